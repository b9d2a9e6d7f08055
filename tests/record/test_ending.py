"""How a rank ended: from its last words, which real processes leave that real signals end, or from the words of its manifest."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import align_hooks
from align_hooks import open_run
from align_hooks.messages import rendered
from align_hooks.messages.catalogue import CHINESE
from align_hooks.record.format import layout
from align_hooks.record.format.crash_stack import LARGEST, SIGNALS, SignalExit, read
from align_hooks.record.format.ending import End, HowEnded, InterruptedWrite, ending
from chosen import every
from synthetic import Synthetic

STEPS = """
    import faulthandler, os, re, signal, subprocess, sys, threading, time
    from align_hooks.process.ranks import Launch
    from align_hooks.session import Session
    from align_hooks.session.accounting import finish
    from align_hooks.settings import Settings
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
    NUMBERS = ("loss", "objective_loss", "valid_tokens", "grad_norm", "clip_coefficient", "learning_rate", "skipped")
    session = Session("torch", Settings.from_environment({"ALIGN_HOOKS_RUN": sys.argv[1]} | OPTIONS), Launch())
    BEFORE
    session.begin()
    session.describe(place={}, facts={}, steps=range(4))
    session.recording.writer.scalars({"step": 0} | dict.fromkeys(NUMBERS))
    session.made = 1
    def ready():
        print("ready", flush=True)
    def hang():
        HANG
    hang()
"""
WAIT = "ready(); [time.sleep(0.1) for _ in range(10_000)]"  # a signal that comes just before a sleep is handled after it
IN_C = "ready(); re.match('(a+)+$', 'a' * 40 + 'b')"
"""The interpreter is held for longer than a test may take: no Python handler would run."""


@contextmanager
def process(run: Path, hang: str = WAIT, before: str = "", **options: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has recorded a step and hangs in the next."""
    options = {f"ALIGN_HOOKS_{name}": value for name, value in options.items()}
    text = dedent(STEPS).replace("HANG", hang).replace("BEFORE", before).replace("OPTIONS", repr(options))
    script = run.parent / f"{run.name}.py"
    script.write_text(text)
    with subprocess.Popen([sys.executable, str(script), str(run)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as hanging:
        try:
            assert "ready\n" in iter(hanging.stdout.readline, "")
            yield hanging
        finally:
            hanging.kill()


def ended(hanging: subprocess.Popen[str], number: int) -> int:
    """Exit status after a signal; the timeout is for a process that hangs for good."""
    hanging.send_signal(number)
    return hanging.wait(timeout=300)


@pytest.mark.parametrize("hang", [WAIT, IN_C], ids=["waits", "holds the interpreter"])
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_process_at_once_and_its_place_is_left(tmp_path: Path, number: signal.Signals, hang: str) -> None:
    with process(tmp_path / "run", hang) as hanging:
        assert ended(hanging, number) == -number
    words = read(tmp_path / "run", 0)
    line = (tmp_path / "run.py").read_text().splitlines().index(f"    {hang}") + 1
    assert (words.signal, (str(tmp_path / "run.py"), line, "hang") in words.stack) == (number.name, True)
    assert re.fullmatch(rf"was ended by {number.name} in \S+:\d+ \w+", str(words))  # or in a function that it called


def test_a_process_that_was_killed_without_a_word_left_none(tmp_path: Path) -> None:
    with process(tmp_path / "run") as hanging:
        assert ended(hanging, signal.SIGKILL) == -signal.SIGKILL
    assert read(tmp_path / "run", 0) is None


def test_what_another_life_of_the_rank_left_is_not_the_next_ones(tmp_path: Path) -> None:
    with process(tmp_path / "run") as hanging:
        ended(hanging, signal.SIGTERM)
    with process(tmp_path / "run", RUN_EXISTS="continue") as hanging:
        assert read(tmp_path / "run", 0) is None
        ended(hanging, signal.SIGHUP)
    assert str(read(tmp_path / "run", 0)).startswith("was ended by SIGHUP in ")


def test_a_run_that_ends_by_itself_leaves_no_file_and_handles_no_signal(tmp_path: Path) -> None:
    hang = "finish(session); ready(); time.sleep(1000)"
    with process(tmp_path / "run", hang) as hanging:
        assert ended(hanging, signal.SIGTERM) == -signal.SIGTERM
    assert list((tmp_path / "run/last_words").iterdir()) == []


OTHERS = {
    "in Python": "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))",
    "ignoring": "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGHUP, lambda *_: os._exit(9))",
    "in C": "faulthandler.register(signal.SIGTERM, file=open(sys.argv[1] + '.theirs', 'w'), chain=True)",
}
STATUS = {"in Python": 9, "ignoring": 9, "in C": -signal.SIGTERM}


@pytest.mark.parametrize(("when", "handler"), every(2, product(("before", "after"), OTHERS)))
def test_a_handler_of_the_scripts_own_is_left_alone(tmp_path: Path, handler: str, when: str) -> None:
    before, hang = (OTHERS[handler], WAIT) if when == "before" else ("", f"{OTHERS[handler]}; {WAIT}")
    with process(tmp_path / "run", hang, before) as hanging:
        if handler == "ignoring":
            hanging.send_signal(signal.SIGTERM)
        assert ended(hanging, signal.SIGHUP if handler == "ignoring" else signal.SIGTERM) == STATUS[handler]
    assert read(tmp_path / "run", 0) is None
    assert handler != "in C" or "in hang" in (tmp_path / "run.theirs").read_text()


def test_the_script_sees_no_handler(tmp_path: Path) -> None:
    seen = "print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, faulthandler.is_enabled(), file=sys.stderr)"
    with process(tmp_path / "run", f"{seen}; {WAIT}") as hanging:
        hanging.kill()
        assert hanging.communicate()[1] == "True False\n"


FORKED = """child = os.fork()
    if not child:
        {child}
        os.write(2, str(os.getpid()).encode() + b"\\n")
        ready()
        [time.sleep(0.1) for _ in range(10_000)]
    print(child, os.waitpid(child, 0)[1], flush=True)
    time.sleep(1000)"""
EXIT_7 = "signal.signal(signal.SIGTERM, lambda *_: os._exit(7))"


def status_of_child(hanging: subprocess.Popen[str]) -> int:
    """How the forked child ends that SIGTERM is sent to."""
    os.kill(int(hanging.stderr.readline()), signal.SIGTERM)
    return int(hanging.stdout.readline().split()[1])


@pytest.mark.parametrize(("child", "status"), [("pass", signal.SIGTERM), (EXIT_7, 7 << 8)], ids=["as it is", "with a handler"])
def test_a_forked_child_ends_as_it_does_without_us_and_leaves_no_word(tmp_path: Path, child: str, status: int) -> None:
    """A worker of a data loader is ended so when training is over. The parent's words stay its own."""
    with process(tmp_path / "run", FORKED.format(child=child)) as hanging:
        assert status_of_child(hanging) == status
        assert read(tmp_path / "run", 0) is None
        assert ended(hanging, signal.SIGTERM) == -signal.SIGTERM
    assert read(tmp_path / "run", 0) is not None


def test_a_handler_of_the_scripts_own_stays_in_what_it_forks(tmp_path: Path) -> None:
    with process(tmp_path / "run", f"{EXIT_7}; {FORKED.format(child='pass')}") as hanging:
        assert status_of_child(hanging) == 7 << 8


def test_a_place_that_cannot_be_written_is_said_and_stops_nothing(tmp_path: Path) -> None:
    before = "os.makedirs(sys.argv[1]); open(sys.argv[1] + '/last_words', 'w').close()"
    with process(tmp_path / "run", before=before) as hanging:
        hanging.kill()
        assert "goes on without last words: FileExistsError" in hanging.communicate()[1]
    assert json.loads((tmp_path / "run/scalars/rank_0.jsonl").read_text())["step"] == 0


HOSTILE = {
    "absent": None,
    "empty": b"",
    "not ours": b"secret\n",
    "not text": b"Stack\n" + bytes(range(256)),
    "long": b"Stack\n" + b'  File "a", line 1 in f\n' * 10_000,
    "a line without an end": b'Stack\n  File "' + b"a" * (2 * LARGEST),
}


@pytest.fixture
def words(tmp_path: Path) -> Path:
    place = layout.last_words(tmp_path, 0, "SIGTERM")
    place.parent.mkdir()
    return place


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_any_file_is_read_at_once(tmp_path: Path, words: Path, content: bytes | None) -> None:
    if content is not None:
        words.write_bytes(content)
    ending = read(tmp_path, 0)
    assert (ending is not None) == (content is not None and content.startswith(b"Stack"))
    assert ending is None or len(ending.stack) < LARGEST


NO_FILES: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda words, file: words.symlink_to(file),
    "fifo": lambda words, file: os.mkfifo(words),
    "folder": lambda words, file: words.mkdir(),
    "device": lambda words, file: words.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("put", NO_FILES.values(), ids=NO_FILES)
def test_nothing_but_a_file_in_the_record_is_read(tmp_path: Path, words: Path, put: Callable[[Path, Path], object]) -> None:
    (tmp_path / "elsewhere").write_text('Stack\n  File "a", line 1 in f\n')
    put(words, tmp_path / "elsewhere")
    assert read(tmp_path, 0) is None


def test_a_signal_that_found_no_python_is_named_all_the_same() -> None:
    assert str(SignalExit("SIGTERM")) == "was ended by SIGTERM"


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
    told |= {"what": InterruptedWrite.WEIGHTS} if told.get("what") == "weights" else {}
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
    bare, placed = (ending(0, None, none, words) for words in (SignalExit("SIGHUP"), SignalExit("SIGTERM", stack)))
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
    texts = [text for file in source.rglob("*.py") for text in re.findall(r'(?:isolate_failures|survive)\(\s*"([^"]+)"', file.read_text())]
    assert len(texts) > 20 and set(texts) <= {writing.value for writing in InterruptedWrite}
