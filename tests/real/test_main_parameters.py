"""Main parameters that a checkpoint did not reach, on record from a bfloat16 run of Megatron-LM."""

from pathlib import Path

import pytest

from align_hooks import open_run
from real import frameworks

ZOO = Path(__file__).parents[1] / "zoo"
HALF = {"--bf16": "", "--attention-softmax-in-fp32": "", "--ckpt-format": "torch"}


@pytest.mark.slow
def test_weights_that_are_loaded_into_the_model_alone_are_on_record(real_corpus: Path) -> None:
    """``--finetune`` loads no optimizer; without ``reload_model_params`` it goes on from the weights that it was built with."""
    saved = {"--save": "saved", "--save-interval": "1", "--exit-interval": "1"}
    saving = frameworks.kept(frameworks.megatron, change=HALF | saved, SEED=7, RUN="run")
    loaded = {"--load": str(saving.where / "saved"), "--finetune": "", "--exit-interval": "1"}
    planted = {"script": ZOO / "planted_megatron.py", "environment": {"PLANTED": "main_parameters_stale"}}
    trained = frameworks.kept(frameworks.megatron, change=HALF | loaded, RUN="run", WEIGHTS="0", **planted)
    whole, stale = open_run(saving.run), open_run(trained.run)
    assert whole.stale_main_parameters == []
    assert "lm_head.weight" in stale.stale_main_parameters
    trained = [shard for shard in stale.shards(0) if shard.trainable]
    assert all(shard.main_differs is not None for shard in trained)  # half precision has a main parameter of each
