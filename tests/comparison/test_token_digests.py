"""Batches that are not on record: two runs of one framework in one layout are held to the digests of their tokens."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from align_hooks import Run, open_run
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.runs import compare
from align_hooks.comparison.verdict import Comparison, StageResult, Status, Verdict
from synthetic import STEPS, Synthetic, row
from worded import ids


def run(
    where: Path,
    *other: int,
    recorded: tuple[int, ...] = (),
    rows: int = 2,
    framework: str = "Megatron-LM",
    digested: bool = True,
    lost: tuple[int, ...] = (),
) -> Run:
    """A run that recorded the batches of some steps, and of every step the tokens' digest; ``other`` are steps with other tokens."""
    digests = [f"{step + 100 * (step in other):013x}" if digested else "" for step in range(STEPS)]
    settings = {"batches": ",".join(map(str, recorded)) or "none"}
    made = Synthetic(settings=settings, rows=[row(step) | {"token_digest": digests[step]} for step in range(STEPS)])
    for step in lost:
        made.rows[step] |= {"loss": math.nan, "objective_loss": math.nan}
    made.batches = {step: made.batches[step] for step in recorded}
    made.facts = {"framework": framework, "training": {"micro_batch_size": rows}}
    return open_run(made.write(where))


def stage(comparison: Comparison) -> StageResult:
    (found,) = (result for result in comparison.stages if result.name == "batches")
    return found


def test_a_step_with_other_tokens_is_named(tmp_path: Path) -> None:
    comparison = compare(run(tmp_path / "a"), run(tmp_path / "b", 1, 2))
    assert comparison.verdict is Verdict.DIVERGED
    assert comparison.first is not None and comparison.blame is not None
    assert (comparison.first.name, comparison.blame.place) == ("batches", "data")
    assert [(finding.name, finding.step) for finding in comparison.first.findings] == [("tokens", 1), ("tokens", 2)]


def test_equal_tokens_are_said_to_be(tmp_path: Path) -> None:
    result = stage(compare(run(tmp_path / "a"), run(tmp_path / "b")))
    assert (result.status, result.findings) == (Status.SAME, ())
    assert ids(result.summary) == ["batches.compared_by_tokens"]


def test_what_is_on_record_is_compared_itself(tmp_path: Path) -> None:
    result = stage(compare(run(tmp_path / "a", recorded=(0,)), run(tmp_path / "b", 0, recorded=(0,))))
    assert (result.status, result.findings) == (Status.SAME, ())
    assert {"batches.compared", "batches.compared_by_tokens"} <= {*ids(result.summary)}


@pytest.mark.parametrize("change", [{"rows": 4}, {"framework": "another"}, {"digested": False}], ids=str)
def test_runs_that_give_a_rank_other_rows_or_have_no_digest_are_not_compared(tmp_path: Path, change: dict[str, object]) -> None:
    result = stage(compare(run(tmp_path / "a"), run(tmp_path / "b", 1, **change)))  # type: ignore[arg-type]
    assert (result.status, result.findings) == (Status.NOT_COMPARED, ())


@pytest.mark.parametrize("lost", [(), (1,)], ids=["finite", "not finite"])
def test_a_step_whose_loss_is_no_number_is_compared_as_any(tmp_path: Path, lost: tuple[int, ...]) -> None:
    """Such a row is kept as it is, and stands in no column but these."""
    assert Pair(run(tmp_path / "a", lost=lost), run(tmp_path / "b", 1, lost=lost)).tokens() == ([0, 1, 2], [1])


def test_a_digest_of_one_side_alone_is_none(tmp_path: Path) -> None:
    assert Pair(run(tmp_path / "a"), run(tmp_path / "b", digested=False)).tokens() == ([], [])
