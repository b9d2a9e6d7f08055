"""What all ranks of a job would say is said once on each stream, and again by the next job."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from started import scrubbed

RANKS = 4
LAUNCHER = """
import os, subprocess, sys
logs = [open(f"log_{rank}", "w") if sys.argv[1] == "apart" else None for rank in range(RANKS)]
ranks = [
    subprocess.Popen([sys.executable, "-c", sys.argv[2]], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "RANKS"}, stderr=logs[rank])
    for rank in range(RANKS)
]
sys.exit(max(rank.wait() for rank in ranks))
""".replace("RANKS", str(RANKS))
REFUSED = "from align_hooks.errors import RefusedRun; from align_hooks.process.script import report; report(RefusedRun('{}'))"


def job(where: Path, text: str, *, logs: str = "joined") -> list[str]:
    """The lines on the stderr that the ranks share, of a launcher that starts four of them."""
    return said(where, LAUNCHER, logs, text)


def said(where: Path, *program: str) -> list[str]:
    """The lines on stderr of a Python program that stands in no job."""
    start = [sys.executable, "-c", *program]
    done = subprocess.run(start, cwd=where, env=scrubbed(TMPDIR=str(where)), capture_output=True, text=True, timeout=300, check=True)
    return done.stderr.splitlines()


def test_a_line_of_all_ranks_is_printed_once_a_job(tmp_path: Path) -> None:
    for _ in range(2):
        assert job(tmp_path, REFUSED.format("no such step")) == ["align_hooks: no such step"]


def test_a_line_that_names_its_rank_is_printed_by_each(tmp_path: Path) -> None:
    each = "import os; rank = os.environ['RANK']; " + REFUSED.format("rank ' + rank + ' cannot write")
    assert sorted(job(tmp_path, each)) == [f"align_hooks: rank {rank} cannot write" for rank in range(RANKS)]


def test_ranks_with_a_log_each_say_it_in_each(tmp_path: Path) -> None:
    assert job(tmp_path, REFUSED.format("no such step"), logs="apart") == []
    assert [(tmp_path / f"log_{rank}").read_text() for rank in range(RANKS)] == ["align_hooks: no such step\n"] * RANKS


@pytest.mark.parametrize("spoilt", ["a file", "everybody's", "a link"])
def test_where_no_folder_can_be_trusted_everybody_says_it(tmp_path: Path, spoilt: str) -> None:
    folder = tmp_path / f"align_hooks-said-{os.getuid()}"
    if spoilt == "a file":
        folder.write_text("")
    elif spoilt == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    assert job(tmp_path, REFUSED.format("no such step")) == ["align_hooks: no such step"] * RANKS


def test_a_process_of_no_job_says_everything(tmp_path: Path) -> None:
    text = REFUSED.format("no such step") + "; report(RefusedRun('no such step'))"
    assert said(tmp_path, text) == ["align_hooks: no such step"] * 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_earlier_jobs_left_is_removed(tmp_path: Path) -> None:
    job(tmp_path, REFUSED.format("no such step"))
    (left,) = (tmp_path / f"align_hooks-said-{os.getuid()}").iterdir()
    os.utime(left, (1, 1))
    job(tmp_path, REFUSED.format("no such step"))
    (of_this_job,) = left.parent.iterdir()
    assert of_this_job != left
