"""A run's directory in the hands of another process: locks are a process's own, so no test can hold one against itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CODE = """
import sys
from pathlib import Path
from synthetic import begun
begun(Path(sys.argv[1]))
print("begun", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(run: Path) -> Iterator[int]:
    """Let rank 0 of another job begin in ``run`` and do nothing more; yields its process, which is killed at the end."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    line = [sys.executable, "-c", CODE, str(run)]
    with subprocess.Popen(line, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield process.pid
        finally:
            process.kill()
