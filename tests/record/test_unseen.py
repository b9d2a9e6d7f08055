"""What of a batch no recorder could see is a problem of the run, by its reason and its rank, and has words in both languages."""

from __future__ import annotations

from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.comparison.health import Condition, health
from align_hooks.messages import CHINESE, ENGLISH, rendered
from align_hooks.record.problems import ProblemKind
from align_hooks.record.unseen import Unseen
from synthetic import Synthetic


@pytest.mark.parametrize("reason", Unseen)
def test_a_reason_in_a_row_is_a_problem_of_its_rank(tmp_path: Path, reason: Unseen) -> None:
    synthetic = Synthetic()
    synthetic.rows[1]["unseen"] = [reason.value, "of a later version"]  # type: ignore[assignment]
    run = open_run(synthetic.write(tmp_path / "run"))
    assert run.unseen == [reason]
    assert [(problem.kind, problem.rank) for problem in run.problems] == [(ProblemKind.UNSEEN, 0)]
    assert health(run, [], []).condition is Condition.INCOMPLETE


@pytest.mark.parametrize("language", [ENGLISH, CHINESE])
def test_every_reason_has_words(language: str) -> None:
    assert len({rendered(reason.words, language) for reason in Unseen}) == len(Unseen)
