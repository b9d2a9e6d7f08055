"""Standard streams that are closed, full, or read by nobody: what we print changes no exit code and no training."""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from align_hooks.process.streams import say
from chosen import every, slow_but
from evidence.test_logs import megatron as printed
from job.test_entry import RUNNER, megatron
from job.test_run import STAND_INS
from started import scrubbed, write
from synthetic import Synthetic

SEEDED = {"ALIGN_HOOKS_SEED": "7", "PYTHONHASHSEED": "7"}
GONE = ("closed", "full", "unread")
TRAINS = STAND_INS["megatron/training/arguments.py"]


@contextlib.contextmanager
def gone(how: str) -> Iterator[int]:
    """A descriptor to hand to a process as a stream that is ``how``; the shell closes those that are to be closed."""
    if how == "unread":
        reader, descriptor = os.pipe()
        os.close(reader)
    else:
        descriptor = os.open("/dev/full" if how == "full" else os.devnull, os.O_WRONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def ended(cwd: Path, *command: object, how: dict[int, str], **environment: str) -> tuple[int, str]:
    """Exit code of a process whose streams (1, 2) are ``how`` says, and what it could print on the others."""
    shell = ["bash", "-c", 'exec "$@" ' + " ".join(f"{number}>&-" for number, one in how.items() if one == "closed"), "bash"]
    with contextlib.ExitStack() as stack:
        out, err = (stack.enter_context(gone(how[number])) if number in how else subprocess.PIPE for number in (1, 2))
        started = [*shell, sys.executable, *map(str, command)]
        done = subprocess.run(started, cwd=cwd, env=scrubbed(**environment), stdout=out, stderr=err, timeout=300, check=False)
    return done.returncode, b"".join(filter(None, [done.stdout, done.stderr])).decode()


SCRIPTS = {
    "prints nothing": "",
    "prints a line": "print('mine')",
    "prints and flushes": "print('mine', flush=True)",
    "prints on stderr": "import sys; print('mine', file=sys.stderr)",
    "looks at its streams": "import sys; sys.exit(3 if sys.stdout is None else 4 if sys.stderr is None else 5)",
    "opens a file": "import os; os.write(os.open('file', os.O_CREAT | os.O_WRONLY), b'mine')",
    "fails": "1 / 0",
    "leaves with words": "import sys; sys.exit('no data')",
    "is interrupted": "raise KeyboardInterrupt",
    "has a child that prints": "import subprocess, sys; sys.exit(subprocess.run(['bash', '-c', 'echo mine']).returncode)",
    "has a stream of its own": "import io, sys; sys.stdout = io.TextIOWrapper(sys.stdout.detach() if sys.stdout else io.BytesIO())",
    "closes its streams": "import sys; [one.close() for one in (sys.stdout, sys.stderr) if one]",
    "has no streams": "import sys; sys.stdout = sys.stderr = None",
}


ENDINGS = [(script, stream, GONE[index % 3]) for index, (script, stream) in enumerate((one, two) for one in SCRIPTS for two in (1, 2))]
"""Every script on either stream, each kind of trouble in its turn; what prints is tried with all of them below."""


@pytest.mark.parametrize(("script", "stream", "how"), every(18, ENDINGS))
def test_a_script_ends_as_it_does_without_us_whatever_became_of_its_streams(tmp_path: Path, script: str, stream: int, how: str) -> None:
    """We print that the seed was changed after the script's first line, and again after its last."""
    megatron(tmp_path, TRAINS)
    write(tmp_path, f"import megatron.training.arguments as one\nassert one.parse_args().seed\n{SCRIPTS[script]}\none.parse_args()")
    plain, _ = ended(tmp_path, "script.py", how={stream: how}, PYTHONHASHSEED="7")
    hooked, said = ended(tmp_path, *RUNNER, "script.py", how={stream: how}, **SEEDED)
    assert hooked == plain
    if stream == 2:
        assert "args.seed: 1234 -> 7" in said


@pytest.mark.parametrize("how", slow_but(GONE, "closed"))
@pytest.mark.parametrize("stream", [1, 2])
def test_a_run_is_accounted_for_whatever_became_of_the_streams(tmp_path: Path, stream: int, how: str) -> None:
    megatron(tmp_path, TRAINS)
    write(tmp_path, "", "torch.py")
    write(tmp_path, "import sys, torch\nfrom megatron.training.arguments import parse_args\nparse_args()\nprint('mine')")
    path = scrubbed(tmp_path)["PYTHONPATH"]
    plain, _ = ended(tmp_path, "script.py", how={stream: how}, PYTHONPATH=path)
    command = ("-m", "align_hooks", "run", "--", sys.executable, "script.py")
    assert ended(tmp_path, *command, how={stream: how}, ALIGN_HOOKS_SEED="7", PYTHONPATH=path)[0] == plain


@pytest.mark.parametrize("how", slow_but(GONE, "closed"))
@pytest.mark.slow
def test_a_file_that_is_opened_does_not_become_a_closed_stream(tmp_path: Path, how: str) -> None:
    """A library's C code prints to descriptor 1, whatever that is by then."""
    megatron(tmp_path, TRAINS)
    prints = "try: os.write(1, b'torn')\nexcept OSError: pass"
    write(tmp_path, f"import os\nfrom megatron.training.arguments import parse_args\nparse_args()\n{prints}")
    ended(tmp_path, *RUNNER, "script.py", how={1: how}, **SEEDED, ALIGN_HOOKS_RUN=str(tmp_path / "run"))
    recorded = [one.read_bytes() for one in (tmp_path / "run").rglob("*") if one.is_file()]
    assert recorded and not any(b"torn" in content for content in recorded)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, another one that differs, and a log of Megatron's, side by side."""
    folder = tmp_path_factory.mktemp("records")
    Synthetic().write(folder / "reference")
    candidate = Synthetic().drifted()
    candidate.rows[0]["loss"] *= 1.1
    candidate.write(folder / "candidate")
    (folder / "args").write_text("--num-layers 2\n--hidden-size 64\n")
    (folder / "log").write_text(printed())
    return folder


COMMANDS = {
    "compare, aligned": (["compare", "reference", "reference"], 0),
    "compare, diverged": (["compare", "reference", "candidate"], 1),
    "compare, files": (["compare", "reference", "candidate", "--json", "OUT/c.json", "--html", "OUT/c.html"], 1),
    "compare, unreadable": (["compare", "reference", "args"], 3),
    "compare, usage": (["compare", "reference"], 2),
    "check": (["check", "args", "args"], 4),
    "show": (["show", "reference"], 0),
    "show, page": (["show", "reference", "--html", "OUT/s.html"], 0),
    "convert": (["convert", "log", "OUT/converted"], 0),
    "env": (["env"], 0),
    "env, markdown": (["env", "--markdown"], 0),
    "version": (["--version"], 0),
    "help": (["--help"], 0),
    "help of a command": (["compare", "--help"], 0),
    "no command": ([], 2),
    "no such command": (["compute"], 2),
    "run, nothing": (["run"], 2),
    "run, help": (["run", "--help"], 0),
    "run, nothing set": (["run", "--", "true"], 2),
}


@pytest.mark.parametrize(("command", "how"), every(18, [(one, GONE[index % 3]) for index, one in enumerate(COMMANDS)]))
def test_the_exit_code_of_a_command_stands_whatever_became_of_its_output(records: Path, tmp_path: Path, command: str, how: str) -> None:
    arguments, code = COMMANDS[command]
    for number, streams in enumerate(({1: how}, {1: how, 2: how})):
        line = [one.replace("OUT", str(tmp_path / str(number))) for one in arguments]
        found, said = ended(records, "-m", "align_hooks", *line, how=streams)
        assert found == code, said
        assert "Traceback" not in said


@pytest.mark.parametrize("how", slow_but(GONE, "full"))
@pytest.mark.parametrize("stream", [1, 2])
def test_a_verdict_stands_in_every_trouble(records: Path, stream: int, how: str) -> None:
    assert ended(records, "-m", "align_hooks", "compare", "reference", "candidate", how={stream: how})[0] == 1


@pytest.mark.parametrize("how", slow_but(GONE, "unread"))
def test_the_doctor_says_by_its_exit_code_what_it_could_not_print(tmp_path: Path, how: str) -> None:
    """Of a script that is not there, which is refused before a framework is imported."""
    for stream in (1, 2):
        assert ended(tmp_path, "-m", "align_hooks", "doctor", "no_such_script.py", how={stream: how})[0] == 2


@pytest.mark.slow
def test_a_report_that_is_lost_on_a_full_disk_is_said_to_be(records: Path) -> None:
    lost = {"full": "align_hooks: the report could not be printed: No space left on device\n", "unread": ""}
    for how, said in lost.items():
        assert ended(records, "-m", "align_hooks", "show", "reference", how={1: how}) == (0, said)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_what_a_stream_cannot_encode_is_escaped(encoding: str) -> None:
    kept = io.BytesIO()
    stream = io.TextIOWrapper(kept, encoding=encoding)
    say("运行 \udce8", stream)
    assert kept.getvalue() == {"utf-8": "运行 \\udce8\n".encode(), "ascii": b"\\u8fd0\\u884c \\udce8\n"}[encoding]


def test_a_line_follows_what_the_script_printed_before_it(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        log.write("first\n")
        say("second", log)
        log.write("third\n")
    assert (tmp_path / "log").read_text() == "first\nsecond\nthird\n"


def test_a_stream_of_the_scripts_own_gets_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    say("a line", kept := io.StringIO())
    assert kept.getvalue() == "a line\n"
    say("another", sys.stdout)
    assert capsys.readouterr().out == "another\n"


@pytest.mark.parametrize("stream", [None, object(), io.BytesIO()], ids=["none", "no stream", "bytes"])
def test_what_is_no_stream_is_left_alone(stream: object) -> None:
    say("a line", stream)  # type: ignore[arg-type]
