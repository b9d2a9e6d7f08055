"""A run's directory in the hands of another process: locks are a process's own, so no test can hold a lock against itself."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CODE = """
import sys
from pathlib import Path
from align_hooks.record.format.ending import HowEnded
from synthetic import Synthetic, begun, job, row
path, exists, name, rank, world = Path(sys.argv[1]), *sys.argv[2:4], *map(int, sys.argv[4:6])
try:
    writer = begun(path, job(rank, world, name), run_exists=exists)
    print("begun", flush=True)
    for line in sys.stdin:
        if line == "describe\\n":
            writer.describe(place={"dp": rank}, shards=[], facts={}, steps=range(3))
        elif line == "step\\n":
            writer.scalars(row(writer.written["scalars"]))
        elif line == "finish\\n":
            writer.finish(HowEnded("finished"), hooks={})
        print("done", flush=True)
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""


class Holder:
    """A process that begins to record, and records on command."""

    def __init__(self, path: Path, exists: str = "refuse", name: str = "one", rank: int = 0, world: int = 1, code: str = CODE) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
        arguments = [sys.executable, "-c", code, str(path), exists, name, str(rank), str(world)]
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def answer(self) -> str:
        """The next line of its output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def do(self, *commands: str) -> str:
        """The answer to the last of ``commands``."""
        answer = ""
        for command in commands:
            assert self.process.stdin is not None
            self.process.stdin.write(f"{command}\n")
            self.process.stdin.flush()
            answer = self.answer()
        return answer

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def holding(path: Path, exists: str = "refuse", name: str = "one", rank: int = 0, world: int = 1) -> Iterator[Holder]:
    """A rank of another job that has begun in ``path``; it is killed at the end."""
    holder = Holder(path, exists, name, rank, world)
    try:
        assert holder.answer() == "begun"
        yield holder
    finally:
        holder.kill()


@contextmanager
def held(run: Path) -> Iterator[int]:
    """Let rank 0 of another job begin in ``run`` and do nothing more; yields its process, which is killed at the end."""
    with holding(run) as holder:
        yield holder.process.pid
