"""Paths in Chinese, and paths that are no text at all, where the locale is none of UTF-8."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.process.paths import well_formed
from chosen import slow_but
from evidence.test_logs import megatron as printed
from job.test_entry import megatron
from process.test_streams import TRAINS
from started import scrubbed
from synthetic import Synthetic

LOCALES = {"C": {"LC_ALL": "C"}, "POSIX": {"LC_ALL": "POSIX"}, "ASCII": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}}
"""Python takes C for UTF-8 unless it is told not to."""
CHINESE = "训练 运行"
BYTES = "run_\udcff"
"""A name that is not UTF-8, as Python holds it."""


def ended(cwd: Path, locale: str, *command: str, **more: str) -> tuple[int, str]:
    environment = scrubbed(**LOCALES[locale], **more)
    done = subprocess.run([sys.executable, *command], cwd=cwd, env=environment, capture_output=True, timeout=300, check=False)
    return done.returncode, (done.stdout + done.stderr).decode("utf-8", "surrogateescape")


@pytest.fixture(params=[CHINESE, BYTES], ids=["Chinese", "no UTF-8"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder of such a name with a run, a list of arguments and a log, each of such a name."""
    here = tmp_path / (name := request.param)
    Synthetic().write(here / name)
    (here / f"{name}.args").write_text("--num-layers 2\n--hidden-size 64\n")
    (here / f"{name}.log").write_text(printed())
    return here


COMMANDS = {
    "compare": ("compare NAME NAME --html NAME.html --json NAME.json", 0),
    "show": ("show NAME --html NAME.html", 0),
    "check": ("check NAME.args NAME.args --html NAME.html --json NAME.json --all", 4),
    "convert": ("convert NAME.log NAME.converted", 0),
    "unreadable": ("compare NAME NAME.absent", 3),
}


@pytest.mark.parametrize("locale", slow_but(LOCALES, "ASCII"))
@pytest.mark.parametrize("command", slow_but(COMMANDS, "unreadable"))
def test_commands_work_on_paths_of_any_name(here: Path, command: str, locale: str) -> None:
    line, wanted = COMMANDS[command]
    words = [word.replace("NAME", here.name) for word in line.split(" ")]
    code, said = ended(here, locale, "-m", "align_hooks", *words)
    assert code == wanted, said
    assert "Traceback" not in said
    for made in [here / word for word in words if word.endswith((".html", ".json"))]:
        assert made.read_text("utf-8")
    if command == "unreadable":
        assert said.count("\n") == 1
        assert locale == "ASCII" or well_formed(f"{here.name}.absent") in said
    if command == "convert":
        assert len(open_run(here / words[-1]).steps) == 3


@pytest.mark.parametrize("locale", slow_but(LOCALES, "ASCII"))
@pytest.mark.parametrize("name", slow_but([CHINESE, BYTES], BYTES), ids=["Chinese", "no UTF-8"])
def test_a_script_in_such_a_place_records(tmp_path: Path, name: str, locale: str) -> None:
    """Run directory, script and arguments are of that name; a stand-in trains, as its arguments and nothing else are looked at."""
    here = tmp_path / name
    megatron(here, TRAINS)
    (here / f"{name}.py").write_text("import sys, megatron.training.arguments as one\none.parse_args()\nprint(ascii(sys.argv[1]))", "utf-8")
    run = here / "runs" / name
    command = ("-m", "align_hooks.torch_side", f"{name}.py", name)
    code, said = ended(here, locale, *command, ALIGN_HOOKS_RUN=str(run), ALIGN_HOOKS_SEED="7", PYTHONHASHSEED="7")
    assert code == 3, said  # for hooks that a stand-in never calls
    assert "Traceback" not in said
    kept = json.loads((run / "manifest/rank_0.json").read_text("utf-8"))["settings"]["run"]
    assert kept == well_formed(str(run))
    plain, told = ended(here, locale, f"{name}.py", name)
    assert plain == 0 and told in said


def test_what_python_keeps_of_bytes_becomes_the_letters_that_were_meant() -> None:
    kept = "训练".encode().decode("ascii", "surrogateescape")
    assert kept != "训练" and os.fsencode(kept) == "训练".encode()
    assert [well_formed(text) for text in (kept, "训练", "a\udcff", "a\ud800")] == ["训练", "训练", "a\\xff", "a\\ud800"]


def test_the_terminal_speaks_the_language_of_the_locale_and_files_do_not(tmp_path: Path) -> None:
    Synthetic().write(tmp_path / "one")
    Synthetic().write(tmp_path / "other")
    said = {}
    for locale, other in (("zh_CN.UTF-8", "en_US.UTF-8"), ("C", "zh_CN.UTF-8")):
        command = [sys.executable, "-m", "align_hooks", "compare", "one", "other", "--markdown", f"{locale}.md", "--json", f"{locale}.json"]
        environment = scrubbed(LC_ALL=locale, LANG=other, PYTHONUTF8="1")
        said[locale] = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=True
        ).stdout
    assert "下一步" in said["zh_CN.UTF-8"] and "下一步" not in said["C"]
    for kind in ("md", "json"):
        assert (tmp_path / f"zh_CN.UTF-8.{kind}").read_text() == (tmp_path / f"C.{kind}").read_text()
