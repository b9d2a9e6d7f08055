"""Batches that are not on record: two runs of one framework in one layout are held to the digests of their tokens."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.verdict import Status, Verdict
from comparison.conftest import Compared, stage
from synthetic import STEPS, Synthetic, row
from worded import ids


def run(
    *other: int, recorded: tuple[int, ...] = (), rows: int = 2, framework: str = "Megatron-LM", digested: bool = True, lost: int = -1
) -> Synthetic:
    """A run that recorded the batches of some steps, and of every step the tokens' digest; ``other`` are steps with other tokens."""
    digests = [f"{step + 100 * (step in other):013x}" if digested else "" for step in range(STEPS)]
    made = Synthetic(
        settings={"batches": ",".join(map(str, recorded)) or "none"},
        rows=[row(step) | {"token_digest": digests[step]} for step in range(STEPS)],
        facts={"framework": framework, "training": {"micro_batch_size": rows}},
    )
    if lost >= 0:
        made.rows[lost] |= {"loss": math.nan, "objective_loss": math.nan}
    made.batches = {step: made.batches[step] for step in recorded}
    return made


def test_a_step_with_other_tokens_is_named(compared: Compared) -> None:
    comparison = compared(run(1, 2), against=run())
    assert (comparison.verdict, comparison.first.name, comparison.blame.place) == (Verdict.DIVERGED, "batches", "data")
    assert [(finding.name, finding.step) for finding in comparison.first.findings] == [("tokens", 1), ("tokens", 2)]


@pytest.mark.parametrize(
    ("reference", "candidate", "status", "said"),
    [
        (run(), run(), Status.SAME, {"batches.compared_by_tokens"}),
        (run(recorded=(0,)), run(0, recorded=(0,)), Status.SAME, {"batches.compared", "batches.compared_by_tokens"}),
        (run(), run(1, rows=4), Status.NOT_COMPARED, set()),
        (run(), run(1, framework="another"), Status.NOT_COMPARED, set()),
        (run(), run(1, digested=False), Status.NOT_COMPARED, set()),
    ],
    ids=["equal tokens", "what is on record by itself", "ranks with other rows", "another framework", "no digest"],
)
def test_what_was_compared_is_said(compared: Compared, reference: Synthetic, candidate: Synthetic, status: Status, said: set[str]) -> None:
    result = stage(compared(candidate, against=reference), "batches")
    assert (result.status, result.findings) == (status, ())
    assert said <= {*ids(result.summary)}


@pytest.mark.parametrize(
    ("reference", "candidate", "tokens"),
    [
        (run(), run(1), ([0, 1, 2], [1])),
        (run(lost=1), run(1, lost=1), ([0, 1, 2], [1])),  # such a row is kept as it is, and stands in no column but these
        (run(), run(digested=False), ([], [])),
    ],
    ids=["finite losses", "a loss that is no number", "digests of one side alone"],
)
def test_steps_with_digests_and_those_that_differ(
    tmp_path: Path, reference: Synthetic, candidate: Synthetic, tokens: tuple[list[int], list[int]]
) -> None:
    assert Pair(open_run(reference.write(tmp_path / "a")), open_run(candidate.write(tmp_path / "b"))).tokens() == tokens
