"""How a rank ended, from the words of its manifest, which may be anybody's, or from its last words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from align_hooks import open_run
from align_hooks.messages import CHINESE, rendered
from align_hooks.record.ending import End, Writing, ending
from align_hooks.record.last_words import Ended
from synthetic import Synthetic

WRITTEN: dict[str, tuple[End, dict[str, Any]]] = {
    "finished": (End.FINISHED, {}),
    "ended early: 3 of 5 planned steps were made": (End.EARLY, {"made": 3, "planned": 5}),
    "ended early: 3 of its planned steps were made": (End.EARLY, {"made": 3}),
    "failed: the script ended with an error": (End.FAILED, {}),
    "failed: the script ended with exit code 3": (End.FAILED, {"code": "3"}),
    "failed: the script ended with OSError: full; {0}": (End.FAILED, {"error": "OSError: full; {0}"}),
    "interrupted at step 3 (SIGINT)": (End.INTERRUPTED, {"step": 3}),
    "refused: no such step; train longer": (End.REFUSED, {"error": "no such step; train longer"}),
    "stopped recording at step 2 while writing weights: OSError: full\nup": (
        End.STOPPED,
        {"step": 2, "what": Writing.WEIGHTS, "error": "OSError: full\nup"},
    ),
    "stopped recording at step 2 while writing a book: OSError: full": (
        End.STOPPED,
        {"step": 2, "what": "a book", "error": "OSError: full"},
    ),
    "went home": (End.OTHER, {"how": "went home"}),
    "interrupted at step 9999999999999999999999 (SIGINT)": (End.OTHER, {"how": "interrupted at step 9999999999999999999999 (SIGINT)"}),
}


@pytest.mark.parametrize("text", WRITTEN)
def test_what_a_manifest_says(text: str) -> None:
    ended = ending(7, text, None)
    end, arguments = WRITTEN[text]
    assert (ended.end, dict(ended.message.arguments)) == (end, arguments if end is End.FINISHED else {"rank": 7, **arguments})
    assert rendered(ended.message) == (text if end is End.FINISHED else f"rank 7 {text}")
    assert rendered(ended.message, CHINESE) != rendered(ended.message)


@pytest.mark.parametrize("odd", [5, ["finished"], {"finished": 1}, True])
def test_what_is_no_text_is_shown_as_it_is(odd: Any) -> None:
    assert ending(0, odd, None).end is End.OTHER


@pytest.mark.parametrize("none", [None, "", 0, []])
def test_a_rank_that_says_nothing_never_ended_unless_it_left_last_words(none: Any) -> None:
    assert ending(0, none, None).end is End.UNKNOWN
    bare, placed = ending(0, none, Ended("SIGHUP")), ending(0, none, Ended("SIGTERM", [("train.py", 7, "step"), ("run.py", 1, "main")]))
    assert bare.end is placed.end is End.SIGNALLED
    assert rendered(bare.message) == f"rank 0 {Ended('SIGHUP')}"
    assert placed.message.arguments == {"rank": 0, "signal": "SIGTERM", "file": "train.py", "line": 7, "function": "step"}
    assert rendered(placed.message) == "rank 0 was ended by SIGTERM in train.py:7 step"


def test_a_run_tells_of_each_rank(tmp_path: Path) -> None:
    run = open_run(Synthetic(ended="interrupted at step 3 (SIGINT)").write(tmp_path / "run"))
    assert {rank: ended.end for rank, ended in run.endings.items()} == {0: End.INTERRUPTED}
    assert [(problem.rank, problem.step, problem.place) for problem in run.problems] == [(0, 2, "manifest/rank_0.json")]
