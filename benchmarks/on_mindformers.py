"""MindFormers' ways, in GRAPH_MODE and by the PyNative trainer, on the batches and the weights of a run of Megatron-LM.

A graph is compiled once, with what is recorded or without, and works in every step. The guide's way here is ``local_norm`` of
MindFormers, which its PyNative trainer does not have.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from way import PLAIN, ROOT, Measured, Way, left

sys.path.insert(0, str(ROOT / "tests"))

from real import frameworks

STEPS = 31
SIZES: Mapping[str, Mapping[str, int]] = {
    "small": {"layers": 8, "hidden": 64, "intermediate": 128, "heads": 4},
    "large": {"layers": 4, "hidden": 512, "intermediate": 1408, "heads": 8},
}
WAYS = (
    Way(PLAIN, selects=False),
    Way("scalars", {"RUN": ""}, selects=False),
    Way("norms of one step", {"RUN": "", "LOCAL_NORMS": "0"}, selects=False),
    Way("norms", {"RUN": "", "LOCAL_NORMS": "odd"}),
    Way("norms and sketches", {"RUN": "", "LOCAL_NORMS": "odd", "SKETCHES": "odd"}),
    Way("gradients", {"RUN": "", "GRADIENTS": "odd"}),
    Way("weights", {"RUN": "", "WEIGHTS": "even"}),
    Way("activations", {"RUN": "", "ACTIVATIONS": "odd"}),
    Way("the guide: local_norm of MindFormers", change={"runner_wrapper.local_norm": True}, selects=False),
)
PYNATIVE = tuple(way for way in WAYS if not way.change)


def reference(size: str, where: Path, family: str = frameworks.LLAMA) -> Path:
    """A run of Megatron-LM on a model of this size, with the batches and the weights that all ways start from."""
    sizes = SIZES[size]
    change = {"--num-layers": sizes["layers"], "--hidden-size": sizes["hidden"], "--ffn-hidden-size": sizes["intermediate"]}
    change |= {"--num-attention-heads": sizes["heads"], "--train-iters": STEPS}
    texts = {flag: str(value) for flag, value in change.items()}
    frameworks.megatron(where, family=family, change=texts, RUN=where / "run", BATCHES="all", WEIGHTS="0").succeeded()
    return where / "run"


def measure(way: Way, size: str, where: Path, fed_by: Path, *, pynative: bool = False) -> Measured:
    """Train once. Seconds are those that MindFormers prints for a step; the first has the compilation."""
    sizes, train = SIZES[size], frameworks.pynative if pynative else frameworks.mindformers
    of_model = "model" if pynative else "model.model_config"
    names = {"layers": "num_hidden_layers", "heads": "num_attention_heads"} if pynative else {"layers": "num_layers", "heads": "num_heads"}
    names |= {"hidden": "hidden_size", "intermediate": "intermediate_size"}
    change: dict[str, object] = {f"{of_model}.{name}": sizes[key] for key, name in names.items()}
    change |= {"training.steps" if pynative else "lr_schedule.total_steps": STEPS} | dict(way.change)
    with tempfile.TemporaryDirectory(dir=where) as kept:
        asked = {"odd": f"1-{STEPS - 1}/2", "even": f"2-{STEPS}/2"}
        variables: dict[str, object] = {name: asked.get(value, value) for name, value in way.variables.items()}
        if "RUN" in variables:
            variables["RUN"] = Path(kept) / "run"
        done = train(Path(kept), change=change, REPLAY_BATCHES=fed_by, LOAD_WEIGHTS=fed_by, **variables)
        done.succeeded()
        seconds = [float(number) / 1000 for number in re.findall(r"per_step_time: +(\d+)ms", done.output)]
        return Measured(seconds[1:], seconds[0], left(Path(kept) / "run"))
