"""Under CUDA graphs, which are emulated here, a record is that of eager steps, and training is as it was to the bit."""

from pathlib import Path
from typing import Any

import pytest

from real import frameworks
from real.test_noninterference import same

GRAPHS = ("--cuda-graph-impl", "local", "--inference-rng-tracker")
CASES = {"llama": (), "qwen3_moe": ("--moe-expert-capacity-factor", "2", "--moe-pad-expert-input-to-capacity")}
"""Family to flags: only where each expert is given as many tokens in every step can a graph hold it."""
RECORDED = {name: steps for name, steps in frameworks.EVERYTHING.items() if not name.startswith("ACTIVATIONS")}
"""Everything that is not refused under graphs."""


@pytest.mark.slow
@pytest.mark.parametrize("family", CASES)
def test_steps_in_graphs_are_recorded_as_eager_ones(family: str, real_corpus: Path) -> None:
    emulated = ("-m", "align_hooks.torch_side", str(frameworks.SCRIPTS / "graphs_emulated.py"))
    own: dict[str, Any] = {"family": family, "script": frameworks.SCRIPTS / "witness_megatron.py", "change": {"--train-iters": "5"}}
    own["environment"] = {"WITNESS": "witness.npz", "REPLAYED": "replayed"}
    graphs = {**own, "launcher": emulated, "flags": (*CASES[family], *GRAPHS)}
    eager = frameworks.kept(frameworks.megatron, **own, flags=CASES[family], RUN="run", **RECORDED)
    plain = frameworks.kept(frameworks.megatron, **graphs)
    recorded = frameworks.kept(frameworks.megatron, **graphs, RUN="run", **RECORDED)
    assert int((recorded.where / "replayed").read_text()) >= 16
    same(plain.where / "witness.npz", recorded.where / "witness.npz", losses=None)
    frameworks.aligned(eager.run, recorded.run)
