"""Odd calls of every command: what is no run, no log, no file, in every place where one is expected.

Whatever it is, the command says so in a line, with an exit code of the contract, and shows nothing that lies outside of a record.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from align_hooks import cli
from align_hooks.errors import AlignHooksError
from evidence.test_logs import megatron as printed
from synthetic import Synthetic

Call = Callable[..., tuple[int, str, str]]
SECRET = "root:x:secret"
LONG_NAME, LONG_PATH = "n" * 300, "/".join(["n" * 200] * 30)
LEAKING = {"scalars": "secret rows", "manifest": "a secret manifest", "facts": "secret facts"}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of everything that a path may lead to."""
    here = tmp_path_factory.mktemp("odd")
    Synthetic().write(here / "run")
    (here / "args").write_text("--num-layers 2\n--hidden-size 64\n")
    (here / "log").write_text(printed())
    (here / "secret").write_text(f"{SECRET}\n{SECRET}\n")
    (here / "binary").write_bytes(bytes(range(256)) * 64)
    (here / "empty").touch()
    (here / "folder").mkdir()
    (here / "loop").symlink_to("loop")
    (here / "dangling").symlink_to("nowhere")
    (here / "linked").symlink_to("run")
    (here / "zero").symlink_to("/dev/zero")
    (here / "null").symlink_to("/dev/null")
    os.mkfifo(here / "fifo")
    with (here / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    (here / "script.py").write_text("raise SystemExit('it was executed')")
    (here / "broken.yaml").write_text("a: [1\n")
    for name, victim in (("scalars", "scalars/rank_0.jsonl"), ("manifest", "manifest/rank_0.json"), ("facts", "run.json")):
        leaking = here / f"leaking_{name}"
        shutil.copytree(here / "run", leaking)
        (leaking / victim).unlink()
        (leaking / victim).symlink_to(here / "secret")
    return here


ODD = {"nothing": "", "spaces": "   ", "absent": "absent", "a name too long": LONG_NAME, "a path too long": LONG_PATH}
ODD |= {"a NUL": "a\0b", "a line break": "a\nb", "an escape": "a\x1b[2Jb", "not UTF-8": "a\udcffb", "nobody's home": "~nobody_at_all/run"}
ODD |= {"a link to itself": "loop", "below a link to itself": "loop/run", "a link to nowhere": "dangling"}
ODD |= {"a folder": "folder", "a folder, with a slash": "folder/", "below a file": "args/run", "a file": "args", "a log": "log"}
ODD |= {"a binary file": "binary", "an empty file": "empty", "a sparse file": "sparse", "a script": "script.py"}
ODD |= {"broken YAML": "broken.yaml", "a pipe": "fifo", "a device": "zero", "nowhere": "null"}
ODD |= {"the root": "/", "a process": "/proc/self", "a file of the kernel": "/proc/self/mem"}
ODD |= {f"a record with {what}": f"leaking_{part}" for part, what in LEAKING.items()}
ODD |= {"a run by a link": "linked", "an option": "--everything"}
PLACES = [
    *("compare X run", "compare run X", "compare X X"),
    *(f"compare run run {options}" for options in ("--noise X", "--json X", "--html X", "--json X --html X", "--allow-missing X")),
    *("compare run run --junit X", "compare run run --markdown X"),
    *("show X", "show run --json X", "show run --html X"),
    *("distill X OUT/out", "distill run X", "distill run OUT/out --sketches X"),
    *("check X args", "check args X", "check run X"),
    *(f"check args args --{option} X" for option in ("json", "html", "tokenizer", "mindformers")),
    *("convert X OUT/out", "convert log OUT/out --names X", "convert log X", "convert X OUT/out --to huggingface"),
    *("convert X OUT/out --to megatron --config X", "doctor X --python no_such_python", "doctor no_such_file.yaml --json X"),
    *("demo X --no-such-option", "X run run", "env X"),
]
"""Calls, with X in the place of what is odd."""
DOCTOR_LOOKS = {"a script", "a run by a link", "a file", "a log", "nothing"}
"""What the doctor can begin with: it would import both frameworks."""
OVERWRITTEN = {"a file", "a log", "a binary file", "an empty file", "a sparse file", "a script", "broken YAML"}
"""What a report may be written to, as whoever names it as such wants it; tried with files of its own below."""


def calls() -> Iterator[tuple[str, str]]:
    for where in PLACES:
        for odd in ODD:
            writes = any(f"--{name} X" in where for name in ("html", "json", "junit", "markdown"))
            writes = writes or where in ("convert log X", "distill run X")
            outside = where in ("convert log X", "distill run X") and odd == "the root"  # where whoever may would really write
            if outside or (where.startswith("doctor X") and odd in DOCTOR_LOOKS) or (writes and odd in OVERWRITTEN):
                continue
            yield where, odd


@pytest.fixture
def call(here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Call the command line with everything at hand: its code, and what it printed; of what it refuses there is one line."""

    def called(words: list[str], odd: str = "") -> tuple[int, str, str]:
        monkeypatch.chdir(here)
        monkeypatch.setattr("sys.argv", ["align-hooks", *(odd if word == "X" else word.replace("OUT", str(tmp_path)) for word in words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capfd.readouterr()
        assert isinstance(ended.value.code, int)
        assert "Traceback" not in out + err
        if ended.value.code in (2, 3) and err and not err.startswith("usage: "):
            assert err.startswith("align_hooks: ") and err.count("\n") == 1, err
        return ended.value.code, out, err

    return called


def listing(here: Path) -> dict[str, tuple[int, int]]:
    """Everything that lies there, and that would show a change."""
    found = {str(one.relative_to(here)): one.lstat() for one in here.rglob("*")}
    return {name: (facts.st_mtime_ns, facts.st_size) for name, facts in found.items() if not name.startswith("OUT")}


def some_quick() -> Iterator[object]:
    """All odd calls, of which a quick run of the tests makes few: every place and every oddity is among these."""
    places, oddities = list(PLACES), list(ODD)
    for where, odd in calls():
        quick = (places.index(where) + oddities.index(odd)) % 12 == 0
        yield pytest.param(where, odd, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(("where", "odd"), some_quick())
def test_an_odd_call_ends_in_a_line_and_a_code_of_the_contract(here: Path, where: str, odd: str, call: Call) -> None:
    before = listing(here)
    code, out, err = call(where.split(), ODD[odd])
    assert code in (0, 1, 2, 3, 4), err
    for bad in ("internal error", "it was executed", SECRET, "\x1b[2J"):
        assert bad not in out + err
    assert len(err) < 1000 or code not in (2, 3) or err.startswith("usage: ")
    written = set(listing(here)) - set(before)
    for name in written:  # a new file where one was asked for
        shutil.rmtree(here / name) if (here / name).is_dir() else (here / name).unlink(missing_ok=True)
    assert all(name.startswith((ODD[odd].strip()[:1], "nowhere")) for name in written), written
    files = [name for name in before if (here / name).is_file()]
    after = listing(here)
    assert {name: after.get(name) for name in files} == {name: before[name] for name in files}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("comapre runs/a runs/b", "there is no command 'comapre'; did you mean compare?"),
        ("compare --htm x runs/a runs/b", "there is no option '--htm'; did you mean --html?"),
        ("compare runs/a runs/b --htm=x", "there is no option '--htm'; did you mean --html?"),
        ("show runs/a --xyzzy", "there is no option '--xyzzy';"),
    ],
)
def test_a_misspelt_word_is_named_with_what_may_be_meant(line: str, said: str) -> None:
    with pytest.raises(AlignHooksError, match=re.escape(said)):
        cli.app(line.split())


ODD_LINES = {
    "no command": ([], 2),
    "no such command": (["compute"], 2),
    "compare nothing": (["compare"], 2),
    "compare one": (["compare", "run"], 2),
    "compare three": (["compare", "run", "run", "run"], 2),
    "an option without a value": (["compare", "run", "run", "--json"], 2),
    "an unknown option": (["compare", "run", "run", "--yaml", "x"], 2),
    "an option twice": (["show", "run", "--html", "OUT/a.html", "--html", "OUT/b.html"], 0),
    "both reports in one file": (["compare", "run", "run", "--html", "OUT/a", "--json", "OUT/b/../a"], 2),
    "noise of the run itself": (["compare", "run", "run", "--noise", "run"], 3),
    "noise twice": (["compare", "run", "run", "--noise", "run", "--noise", "run"], 3),
    "a report into the run": (["show", "run", "--html", "run/run.json/a.html"], 2),
    "convert onto a file": (["convert", "log", "args"], None),
    "convert onto a run": (["convert", "log", "run"], 2),
    "convert one": (["convert", "log"], 2),
    "distill onto what is no distilled run": (["distill", "run", "args"], 2),
    "distill into the run": (["distill", "run", "run/run.json/reference.zip"], 2),
    "version of nothing": (["check", "args", "args", "--mindformers", "9.9"], 2),
    "a command of many words": (["check", "python " + "a " * 5000, "args"], None),
    "a number": (["compare", "0", "1"], 3),
    "negative": (["compare", "-1", "run"], 3),
    "run without a command": (["run"], 2),
    "environment in an unknown form": (["env", "--json"], 2),
}


@pytest.mark.parametrize(("words", "wanted"), ODD_LINES.values(), ids=ODD_LINES)
def test_an_odd_line(words: list[str], wanted: int | None, call: Call) -> None:
    code, _, err = call(words)
    assert code == wanted if wanted is not None else code in (0, 2, 3, 4), err


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
@pytest.mark.parametrize("where", [one for one in PLACES if "--" not in one and not one.startswith(("X", "doctor", "env"))])
def test_what_may_not_be_read_is_said_to_be(where: str, call: Call, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    code, _, err = call(where.split(), str(tmp_path / "closed"))
    assert code in (2, 3) and err.count("\n") == 1, err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(13, "Permission denied", "/x"), "/x cannot be read or written: Permission denied"),
        (OSError("no device"), "cannot be read or written: no device"),
    ],
)
def test_an_error_of_the_machine_names_the_file_where_it_has_one(
    error: OSError, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(words: object) -> None:
        raise error

    monkeypatch.setattr(cli.application, "app", fails)
    monkeypatch.setattr("sys.argv", ["align-hooks", "env"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, capsys.readouterr().err) == (AlignHooksError.exit_code + 1, f"align_hooks: {said}\n")
