"""What recording may ask of Megatron-LM's step, counted and not timed: ``benchmarks/budget.json``.

A selected step is counted above one that is not, and *every step* above one of a run without a record, both by runs that make some more.

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


def counted(steps: int = STEPS, **variables: str) -> dict[str, int]:
    """Counts of a whole run, and the bytes of its record."""
    script, change = Path(__file__).with_name("counted_pretrain.py"), {"--train-iters": str(steps)} if steps != STEPS else {}
    trained = kept(megatron, script=script, environment={"COUNTED": "counted.json"}, change=change, **variables)
    recorded = sum(file.stat().st_size for file in trained.run.rglob("*") if file.is_file())
    return {**json.loads((trained.where / "counted.json").read_text()), "bytes": recorded}


@pytest.fixture(scope="module")
def nothing_selected(real_corpus: Path) -> dict[str, int]:
    return counted(RUN="run")


@pytest.mark.real
@pytest.mark.parametrize("way", slow_but(WAYS))
def test_a_selected_step_keeps_to_its_budget(way: str, nothing_selected: dict[str, int]) -> None:
    asked = {name: steps.format(steps=STEPS, last=STEPS - 1) for name, steps in WAYS[way].items()}
    keeps_to(way, {kind: (count - nothing_selected[kind]) / STEPS for kind, count in counted(RUN="run", **asked).items()})


@pytest.mark.real
@pytest.mark.slow
def test_every_step_keeps_to_its_budget(real_corpus: Path) -> None:
    recorded, without = ({"RUN": "run", "LOCAL_NORMS": "none"}, {"LOCAL_NORMS": "none"})
    longer, shorter = ([counted(steps, **asked) for asked in (recorded, without)] for steps in (2 * STEPS, STEPS))
    of_steps = [{kind: count - less[kind] for kind, count in more.items()} for more, less in zip(longer, shorter, strict=True)]
    keeps_to("every step", {kind: (count - of_steps[1][kind]) / STEPS for kind, count in of_steps[0].items()})


def keeps_to(way: str, more: Mapping[str, float]) -> None:
    print(way, more)
    over = {kind: count for kind, count in more.items() if count > BUDGET[way][kind]}
    assert not over, f"{way}: a step takes {over}, more than benchmarks/budget.json allows"
    assert more["bytes"] > 0
