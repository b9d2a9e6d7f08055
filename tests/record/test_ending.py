"""How a rank ended, from the words of its manifest, which may be anybody's, or from its last words."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import align_hooks
from align_hooks import open_run
from align_hooks.messages import CHINESE, rendered
from align_hooks.record.ending import End, HowEnded, Writing, ending
from align_hooks.record.last_words import Ended
from synthetic import Synthetic

WRITTEN: dict[str, tuple[End, HowEnded]] = {
    "finished": (End.FINISHED, HowEnded("finished")),
    "ended early: 3 of 5 planned steps were made": (End.EARLY, HowEnded("early", made=3, planned=5)),
    "ended early: 3 of its planned steps were made": (End.EARLY, HowEnded("early_of_unknown", made=3)),
    "failed: the script ended with an error": (End.FAILED, HowEnded("failed")),
    "failed: the script ended with exit code -9": (End.FAILED, HowEnded("failed_with_code", code=-9)),
    "failed: the script ended with OSError: full; {0}": (End.FAILED, HowEnded("failed_with_error", error="OSError: full; {0}")),
    "failed: the script ended with ValueError: no at train.py:12 in build": (
        End.FAILED,
        HowEnded("failed_at", error="ValueError: no", where="train.py:12 in build"),
    ),
    "interrupted at step 3 (SIGINT)": (End.INTERRUPTED, HowEnded("interrupted", step=3)),
    "refused: no such step; train longer": (End.REFUSED, HowEnded("refused", error="no such step; train longer")),
    "stopped recording at step 2 while writing weights: OSError: full\nup": (
        End.STOPPED,
        HowEnded("stopped", step=2, what="weights", error="OSError: full\nup"),
    ),
    "stopped recording between two steps while writing a book: OSError: full": (
        End.STOPPED,
        HowEnded("stopped_between_steps", what="a book", error="OSError: full"),
    ),
}


@pytest.mark.parametrize("text", WRITTEN)
def test_what_a_manifest_says(text: str) -> None:
    end, how = WRITTEN[text]
    assert str(how) == text and HowEnded(**json.loads(json.dumps(how.facts()))) == how
    ended, arguments = ending(7, how, "words that are not looked at", None), how.values()
    told = arguments if end is End.FINISHED else {"rank": 7, **arguments}
    told |= {"iteration": told["step"] + 1} if "step" in told else {}
    told |= {"what": Writing.WEIGHTS} if told.get("what") == "weights" else {}
    assert (ended.end, dict(ended.message.arguments), ended.message.id) == (end, told, f"rank.{how.form}")
    assert rendered(ended.message, CHINESE) != rendered(ended.message)


@pytest.mark.parametrize("how", [None, HowEnded("early", made=3), HowEnded("finished", step=3), HowEnded("a form of a later version")])
def test_an_end_that_this_version_cannot_word_is_told_by_the_words(how: HowEnded | None) -> None:
    ended = ending(7, how, "went home", None)
    assert (ended.end, ended.message.id, ended.message.arguments) == (End.OTHER, "rank.ended_otherwise", {"rank": 7, "how": "went home"})
    assert rendered(ended.message, CHINESE) != rendered(ended.message)
    assert ending(7, how, None, None).end is End.UNKNOWN


@pytest.mark.parametrize("odd", [5, ["finished"], {"finished": 1}, True])
def test_what_is_no_text_is_shown_as_it_is(odd: Any) -> None:
    assert ending(0, None, odd, None).end is End.OTHER


@pytest.mark.parametrize("none", [None, "", 0, []])
def test_a_rank_that_says_nothing_never_ended_unless_it_left_last_words(none: Any) -> None:
    assert ending(0, None, none, None).end is End.UNKNOWN
    stack = [("train.py", 7, "step"), ("run.py", 1, "main")]
    bare, placed = (ending(0, None, none, words) for words in (Ended("SIGHUP"), Ended("SIGTERM", stack)))
    assert bare.end is placed.end is End.SIGNALLED
    assert (bare.message.id, bare.message.arguments) == ("rank.ended_by_signal", {"rank": 0, "signal": "SIGHUP"})
    assert placed.message.id == "rank.ended_by_signal_in"
    assert placed.message.arguments == {"rank": 0, "signal": "SIGTERM", "file": "train.py", "line": 7, "function": "step"}


def test_a_run_tells_of_each_rank(tmp_path: Path) -> None:
    run = open_run(Synthetic(ended=HowEnded("interrupted", step=3)).write(tmp_path / "run"))
    assert {rank: ended.end for rank, ended in run.endings.items()} == {0: End.INTERRUPTED}
    assert [(problem.rank, problem.step, problem.place) for problem in run.problems] == [(0, 2, "manifest/rank_0.json")]


def test_what_was_being_written_is_worded_whatever_it_is() -> None:
    """Each text that the source gives to what survives a failure has its word in both languages."""
    source = Path(align_hooks.__file__).parent
    texts = [text for file in source.rglob("*.py") for text in re.findall(r'(?:surviving|survive)\(\s*"([^"]+)"', file.read_text())]
    assert len(texts) > 20 and set(texts) <= {writing.value for writing in Writing}
