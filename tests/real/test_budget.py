"""What recording may ask of Megatron-LM's step, counted and not timed: ``benchmarks/budget.json``, a selected step above one that is not.

On an accelerator operators are kernel launches, and transfers wait for the device. Gradients and weights are copied to the host tensor by
tensor there, which a CPU does not count.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from chosen import slow_but
from real.frameworks import STEPS, kept, megatron

BUDGET: Mapping[str, Mapping[str, int]] = json.loads((Path(__file__).parents[2] / "benchmarks" / "budget.json").read_text())
WAYS = {
    "norms": {"LOCAL_NORMS": "all"},
    "norms and sketches": {"LOCAL_NORMS": "all", "SKETCHES": "0-{last}"},
    "gradients": {"GRADIENTS": "all"},
    "weights": {"WEIGHTS": "1-{steps}"},
}


def counted(**variables: str) -> dict[str, int]:
    """Counts of a whole run, and the bytes of its record."""
    script = Path(__file__).with_name("counted_pretrain.py")
    trained = kept(megatron, script=script, environment={"COUNTED": "counted.json"}, RUN="run", **variables)
    recorded = sum(file.stat().st_size for file in trained.run.rglob("*") if file.is_file())
    return {**json.loads((trained.where / "counted.json").read_text()), "bytes": recorded}


@pytest.fixture(scope="module")
def nothing_selected(real_corpus: Path) -> dict[str, int]:
    return counted()


@pytest.mark.real
@pytest.mark.parametrize("way", slow_but(WAYS))
def test_a_selected_step_keeps_to_its_budget(way: str, nothing_selected: dict[str, int]) -> None:
    asked = {name: steps.format(steps=STEPS, last=STEPS - 1) for name, steps in WAYS[way].items()}
    more = {kind: count - nothing_selected[kind] for kind, count in counted(**asked).items()}
    print(way, {kind: count / STEPS for kind, count in more.items()})
    over = {kind: count / STEPS for kind, count in more.items() if count > BUDGET[way][kind] * STEPS}
    assert not over, f"{way}: a selected step takes {over}, more than benchmarks/budget.json allows"
    assert more["bytes"] > 0
