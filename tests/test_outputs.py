"""What a command was asked to write, and what it may not read: a line, a documented code, and nothing else changes."""

import ctypes
import os
import sys
from pathlib import Path

import pytest

from align_hooks.cli import main
from align_hooks.record.write.output import place_of
from chosen import every
from synthetic import Synthetic

WRITING = (
    *(f"{command} AT" for command in ("show RUN --json", "show RUN --html", "check SH SH --json", "check SH SH --html", "distill RUN")),
    *(f"compare RUN RUN --{form} AT" for form in ("json", "html", "junit", "markdown", "plan")),
    *("accept RUN RUN --json AT", "watch RUN RUN --json AT", "watch RUN RUN --html AT", "convert LOG AT", "ladder SH --json AT"),
    *("convert RUN AT --to huggingface", "frozen --run RUN --from RUN --json AT", "arbitrate RUN RUN --json AT", "doctor RUN --json AT"),
    "dump-config --steps 0 --layers 0 --to /data --out AT",
)
LOG = " [2026-11-22 12:00:00.1] iteration 1/ 1 | consumed samples: 4 | lm loss: 9.0E+00 | grad norm: 1.5 | learning rate: 1E-4 |\n"


def bound() -> None:
    """Let permissions bind this process even if it is root's: without capabilities root is the owner of its files and no more."""
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if os.geteuid() == 0 and ctypes.CDLL(None, use_errno=True).capset(header, none):
        raise OSError(ctypes.get_errno(), "capset")


def ran(words: list[str], *, bind: bool = False) -> tuple[int, str]:
    """Exit code and errors of a command in a child of this process; with ``bind`` permissions bind it, whoever runs the tests."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(writing, 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        sys.argv = ["align-hooks", *words]
        code = 99
        try:
            if bind:
                bound()
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(bool(end.code))
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    with open(reading) as errors:  # noqa: PTH123
        text = errors.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


def words_of(command: str, folder: Path, at: Path) -> list[str]:
    """The words of a command, on files that stand in ``folder``."""
    places = {"RUN": folder / "run", "LOG": folder / "run.log", "SH": folder / "train.sh", "AT": at}
    return [str(places.get(word, word)) for word in command.split()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Synthetic().write(tmp_path / "run")
    (tmp_path / "run.log").write_text(LOG)
    (tmp_path / "train.sh").write_text("torchrun pretrain_gpt.py --num-layers 2 --lr 1e-4\n")
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "link.txt").symlink_to(tmp_path / "mine.txt")
    (tmp_path / "dangling").symlink_to(tmp_path / "elsewhere")
    return tmp_path


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


REFUSED = ("run/run.json", "run/manifest/rank_0.json", "run/step_0/rank_0/new.json", "link.txt", "dangling", "mine.txt/below")


@pytest.mark.parametrize("command", every(4, WRITING))
def test_nothing_is_written_into_a_record_through_a_link_or_below_a_file(folder: Path, command: str) -> None:
    before = content(folder)
    for at in REFUSED:
        code, said = ran(words_of(command, folder, folder / at))
        assert code in (2, 3), (at, code, said)
        assert said.count("\n") == 1, (at, said)
        assert said.startswith("align_hooks: "), (at, said)
        assert "internal error" not in said
        assert content(folder) == before, at


@pytest.mark.parametrize(
    "command", ["check SH SH --json SH", "check SH SH --fix SH", "check SH SH --html SH", "convert LOG LOG", "ladder SH --json SH"]
)
def test_nothing_is_written_over_what_is_read(folder: Path, command: str) -> None:
    before = content(folder)
    code, said = ran(words_of(command, folder, folder))
    assert (code, said.count("\n")) == (2, 1), said
    assert "name the same file" in said
    assert content(folder) == before


def test_a_device_or_a_folder_is_no_file_and_beside_a_record_there_is_room(folder: Path) -> None:
    for at in (Path("/dev/full"), folder):
        code, said = ran(["show", str(folder / "run"), "--json", str(at)])
        assert (code, said.count("\n")) == (2, 1), said
    assert ran(["show", str(folder / "run"), "--json", str(folder / "run" / "report.json")]) == (0, "")
    assert place_of(folder / "new" / "deep" / "file") == folder / "new" / "deep" / "file"


def test_a_new_file_may_have_the_name_of_a_choice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    code, said = ran(["convert", "run", "huggingface", "--to", "huggingface"])
    assert "name the same file" not in said, (code, said)
    code, said = ran(["show", "run", "--json", "one", "--html", "one"])
    assert code == 2 and "--json and --html name the same file" in said


@pytest.mark.parametrize("name", ["step_100_hf", "step_200", "step_100/report.html"])
def test_a_folder_of_checkpoints_by_step_is_no_record(name: str, tmp_path: Path) -> None:
    (tmp_path / "step_100").mkdir()
    assert place_of(tmp_path / name) == tmp_path / name


READING = (
    *("show RUN", "show RUN --verify", "compare RUN RUN", "accept RUN RUN", "check RUN RUN", "watch RUN RUN", "distill RUN AT"),
    *("convert RUN AT --to huggingface", "frozen --run RUN --from RUN", "arbitrate RUN RUN", "doctor RUN"),
)
LOCKED = ("run", "run/run.json", "run/manifest", "run/manifest/rank_0.json", "run/scalars/rank_0.jsonl", "run/step_0/rank_0")


@pytest.mark.parametrize("command", every(4, READING))
def test_what_one_may_not_read_is_a_line(folder: Path, command: str) -> None:
    # the curves alone are read by the first two
    for locked in LOCKED[: -1 if command.startswith(("accept", "watch")) else None]:
        place = folder / locked
        mode = place.stat().st_mode
        place.chmod(0)
        code, said = ran(words_of(command, folder, folder / "out"), bind=True)
        place.chmod(mode)
        assert "internal error" not in said, (locked, said)
        assert code in (1, 2, 3) if command.startswith("doctor") else code == 3 or (code == 2 and "written" in said), (locked, code, said)
        assert said.count("\n") <= 1, (locked, said)


@pytest.mark.parametrize("command", every(4, WRITING))
def test_where_one_may_not_write_is_a_line(folder: Path, command: str) -> None:
    (folder / "shut").mkdir(mode=0o555)
    code, said = ran(words_of(command, folder, folder / "shut" / "file"), bind=True)
    assert code in (2, 3), (code, said)
    assert "internal error" not in said
    assert said.count("\n") == 1, said


@pytest.mark.parametrize(
    "command", ["show RUN", "compare RUN RUN", "watch RUN RUN", "distill RUN AT", "check RUN RUN", "doctor RUN", "accept RUN RUN"]
)
@pytest.mark.parametrize("name", every(3, ["manifest/rank_0.json", "run.json", "scalars/rank_0.jsonl", "manifest/rank_1.json"]))
def test_a_file_that_leads_nowhere_is_a_line(folder: Path, command: str, name: str) -> None:
    (folder / "run" / name).unlink(missing_ok=True)
    (folder / "run" / name).symlink_to("gone")
    code, said = ran(words_of(command, folder, folder / "out"))
    assert code in ((1, 3) if command.startswith("doctor") else (3, 4)), (code, said)
    assert "internal error" not in said
    assert said.count("\n") <= 1, said
