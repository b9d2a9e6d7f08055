"""What a process leaves behind that a signal ends. Every process here is a real one, that a real signal ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import pytest

from align_hooks.record import layout
from align_hooks.record.last_words import LARGEST, SIGNALS, Ended, read

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
    session.describe(place={}, shards=[], facts={}, steps=range(4))
    session.recording.writer.scalars({"step": 0} | dict.fromkeys(NUMBERS))
    session.made = 1
    def ready():
        print("ready", flush=True)
    def hang():
        HANG
    hang()
"""
WAIT = "ready(); time.sleep(1000)"
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


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("handler", OTHERS)
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
        ready()
        time.sleep(1000)
    print(child, os.waitpid(child, 0)[1], flush=True)
    time.sleep(1000)"""


@pytest.mark.parametrize(
    ("child", "status"),
    [("pass", signal.SIGTERM), ("signal.signal(signal.SIGTERM, lambda *_: os._exit(7))", 7 << 8)],
    ids=["as it is", "with a handler"],
)
def test_a_forked_child_ends_as_it_does_without_us_and_leaves_no_word(tmp_path: Path, child: str, status: int) -> None:
    """A worker of a data loader is ended so when training is over. The parent's words stay its own."""
    report = "os.write(2, str(os.getpid()).encode() + b'\\n')"
    with process(tmp_path / "run", FORKED.format(child=f"{child}; {report}")) as hanging:
        os.kill(int(hanging.stderr.readline()), signal.SIGTERM)
        assert int(hanging.stdout.readline().split()[1]) == status
        assert read(tmp_path / "run", 0) is None
        assert ended(hanging, signal.SIGTERM) == -signal.SIGTERM
    assert read(tmp_path / "run", 0) is not None


def test_a_handler_of_the_scripts_own_stays_in_what_it_forks(tmp_path: Path) -> None:
    hang = "signal.signal(signal.SIGTERM, lambda *_: os._exit(7)); " + FORKED.format(
        child="os.write(2, str(os.getpid()).encode() + b'\\n')"
    )
    with process(tmp_path / "run", hang) as hanging:
        os.kill(int(hanging.stderr.readline()), signal.SIGTERM)
        assert int(hanging.stdout.readline().split()[1]) == 7 << 8


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
    assert str(Ended("SIGTERM")) == "was ended by SIGTERM"
