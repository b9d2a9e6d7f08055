"""What ``run`` learns of the processes that it attached to: one small file each, in a folder that a private variable names.

The files are written by the attached processes when they attach, when training begins and when they end, so that one that
was killed is known too. Outside ``run`` the variable is not set and nothing is written.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

VARIABLE = "_ALIGN_HOOKS_PROCESSES"
REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Process:
    """One attached process. ``began`` says whether it came to train; ``ended`` is how, None while it runs or after a kill."""

    pid: int
    side: str
    rank: int
    script: str
    began: bool = False
    ended: str | None = None
    problems: Sequence[str] = ()

    def __str__(self) -> str:
        rank = f", rank {self.rank}" if self.began else ""
        return f"{self.side} side{rank}, pid {self.pid}, {self.script}: {self._fate()}"

    def _fate(self) -> str:
        if self.ended is not None:
            return self.ended
        with contextlib.suppress(OSError):
            os.kill(self.pid, 0)
            return "still running"
        return "never ended by itself: it was killed"


def tell(side: str, rank: int, *, began: bool = False, ended: str | None = None, problems: Sequence[str] = ()) -> None:
    """Say how this process stands. Nobody may be listening, any more or at all: that is no trouble of training's."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    process = Process(os.getpid(), side, rank, sys.argv[0] if sys.argv else "", began, ended, list(problems))
    path = Path(folder, f"{process.pid}.json")
    with contextlib.suppress(OSError):
        path.with_suffix(".new").write_text(json.dumps(asdict(process)), encoding="utf-8")
        path.with_suffix(".new").replace(path)


def told(folder: Path) -> list[Process]:
    """What the processes said, ranks ascending."""
    found = [Process(**json.loads(path.read_text(encoding="utf-8"))) for path in folder.glob("*.json")]
    return sorted(found, key=lambda one: (one.rank, one.pid))
