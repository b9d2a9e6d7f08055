"""A grade is of what a comparison says, and is kept as plain JSON."""

import glob
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.comparison.finding import at_step
from align_hooks.comparison.pipeline import compare
from align_hooks.messages import rendered
from synthetic import Synthetic
from worded import words
from zoo.case import Case
from zoo.grade import WAYS, Grade, grade, grades

TOKENS = glob.escape(words("batches.differ_first", what="tokens", step=0, iteration=1, count=1, all=20, place="[0, 0]"))


def other_tokens(candidate: Synthetic) -> None:
    candidate.batches[0]["tokens"][0, 0] += 1


def other_loss(candidate: Synthetic) -> None:
    candidate.rows[1]["loss"] *= 1.5


def other_base(candidate: Synthetic) -> None:
    candidate.model["rope_theta"] = 10100.0


def nothing(candidate: Synthetic) -> None:
    pass


@pytest.mark.parametrize(
    ("bend", "expected", "culprit", "good"),
    [
        (other_tokens, "data", TOKENS, True),
        (other_tokens, "data", "labels", False),
        (other_tokens, "forward", TOKENS, False),
        (other_loss, "next loss", rendered(at_step("loss", 1)), True),
        (other_loss, "", "", False),
        (other_base, "model settings", "rope_theta", False),  # inconclusive: it names no culprit
        (nothing, "", "", True),
        (nothing, "data", "tokens", False),
    ],
)
def test_a_comparison_is_graded(tmp_path: Path, bend: Callable[[Synthetic], None], expected: str, culprit: str, good: bool) -> None:
    candidate = Synthetic().drifted()
    bend(candidate)
    runs = open_run(Synthetic().write(tmp_path / "reference")), open_run(candidate.write(tmp_path / "candidate"))
    graded = grade(Case("case", "what", "kind", expected, (culprit,) if culprit else ()), compare(*runs))
    assert graded.good is good, graded.line
    kept = json.loads(json.dumps(asdict(graded)))
    assert Grade(**{**kept, "named": tuple(kept["named"])}) == graded


def test_a_pair_is_graded_in_every_way(tmp_path: Path) -> None:
    candidate = Synthetic().drifted()
    other_tokens(candidate)
    reference, noise = (Synthetic().write(tmp_path / name) for name in ("reference", "noise"))
    graded = grades(Case("case", "what", "kind", "data", (TOKENS,)), reference, candidate.write(tmp_path / "run"), noise)
    assert graded.keys() == WAYS.keys()
    assert {way: judged.good for way, judged in graded.items()} == {**dict.fromkeys(WAYS, True), "guide": False}
