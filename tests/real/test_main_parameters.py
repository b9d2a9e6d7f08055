"""Main parameters that a checkpoint did not reach, on record from a bfloat16 run of Megatron-LM."""

from __future__ import annotations

from pathlib import Path

from align_hooks import open_run
from real import frameworks

ZOO = Path(__file__).parents[1] / "zoo"
HALF = {"--bf16": "", "--attention-softmax-in-fp32": "", "--ckpt-format": "torch"}


def test_weights_that_are_loaded_into_the_model_alone_are_on_record(tmp_path: Path, real_corpus: Path) -> None:
    """``--finetune`` loads no optimizer; without ``reload_model_params`` it goes on from the weights that it was built with."""
    saved = {"--save": str(tmp_path / "saved"), "--save-interval": "1", "--exit-interval": "1"}
    frameworks.megatron(tmp_path, change=HALF | saved, SEED=7, RUN=tmp_path / "saving").succeeded()
    loaded = {"--load": str(tmp_path / "saved"), "--finetune": "", "--exit-interval": "1"}
    planted = {"script": ZOO / "planted_megatron.py", "environment": {"PLANTED": "main_parameters_stale"}}
    frameworks.megatron(tmp_path, change=HALF | loaded, RUN=tmp_path / "stale", WEIGHTS="0", **planted).succeeded()
    whole, stale = open_run(tmp_path / "saving"), open_run(tmp_path / "stale")
    assert whole.stale_main_parameters == []
    assert "lm_head.weight" in stale.stale_main_parameters
    trained = [shard for shard in stale.shards(0) if shard.trainable]
    assert all(shard.main_differs is not None for shard in trained)  # half precision has a main parameter of each
