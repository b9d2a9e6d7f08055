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
from align_hooks.record.ending import End, HowEnded, Writing, ending, from_words
from align_hooks.record.last_words import Ended
from synthetic import Synthetic

WRITTEN: dict[str, tuple[End, dict[str, Any]]] = {
    "finished": (End.FINISHED, {}),
    "ended early: 3 of 5 planned steps were made": (End.EARLY, {"made": 3, "planned": 5}),
    "ended early: 3 of its planned steps were made": (End.EARLY, {"made": 3}),
    "failed: the script ended with an error": (End.FAILED, {}),
    "failed: the script ended with exit code 3": (End.FAILED, {"code": 3}),
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
    "stopped recording between two steps while writing weights: OSError: full": (
        End.STOPPED,
        {"what": Writing.WEIGHTS, "error": "OSError: full"},
    ),
    "interrupted at step -3 (SIGINT)": (End.OTHER, {"how": "interrupted at step -3 (SIGINT)"}),
    "went home": (End.OTHER, {"how": "went home"}),
    "interrupted at step 9999999999999999999999 (SIGINT)": (End.OTHER, {"how": "interrupted at step 9999999999999999999999 (SIGINT)"}),
}


@pytest.mark.parametrize("text", WRITTEN)
def test_what_a_manifest_says(text: str) -> None:
    ended = ending(7, None, text, None)
    end, arguments = WRITTEN[text]
    told = arguments if end is End.FINISHED else {"rank": 7, **arguments}
    assert (ended.end, dict(ended.message.arguments)) == (end, told | ({"iteration": told["step"] + 1} if "step" in told else {}))
    assert rendered(ended.message, CHINESE) != rendered(ended.message)
    assert ended.message.id == ("rank.ended_otherwise" if end is End.OTHER else f"rank.{from_words(text).form}")


@pytest.mark.parametrize("text", [text for text, (end, _) in WRITTEN.items() if end is not End.OTHER])
def test_what_a_manifest_says_to_programs_is_what_it_says_to_people(text: str) -> None:
    """``end`` of a manifest and its words come to the same."""
    how = from_words(text)
    assert how is not None and str(how) == text
    kept = HowEnded(**json.loads(json.dumps(how.facts())))
    assert ending(7, kept, "words that are not looked at", None) == ending(7, None, text, None)


def test_an_error_is_told_with_the_line_of_the_script_and_an_earlier_version_still_reads_it() -> None:
    how = HowEnded("failed_at", error="ValueError: no such layer", where="train.py:12 in build")
    assert how.is_known and HowEnded(**json.loads(json.dumps(how.facts()))) == how
    told = ending(7, how, str(how), None)
    assert (told.end, told.message.id) == (End.FAILED, "rank.failed_at")
    assert told.message.arguments == {"rank": 7, "error": "ValueError: no such layer", "where": "train.py:12 in build"}
    by_words = ending(7, None, str(how), None)  # as a version reads it that does not know the form
    assert (by_words.end, by_words.message.id) == (End.FAILED, "rank.failed_with_error")
    assert "train.py:12 in build" in rendered(by_words.message)


@pytest.mark.parametrize("how", [HowEnded("early", made=3), HowEnded("finished", step=3), HowEnded("a form of a later version")])
def test_an_end_that_this_version_cannot_word_is_told_by_the_words(how: HowEnded) -> None:
    assert ending(7, how, "interrupted at step 3 (SIGINT)", None) == ending(7, HowEnded("interrupted", step=3), None, None)
    assert ending(7, how, "went home", None).end is End.OTHER
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
