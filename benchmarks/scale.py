"""What large records cost to judge: ``python benchmarks/scale.py {curves,large} [--in FOLDER] [--ranks N] [--layers N] [--json FILE]``.

``curves`` opens, self-checks and compares records of more and more ranks, and of more and more steps; the last of these are of 300 tensors
with norms at every 100th step, with the rows of a small model and with all that Megatron's rows have. ``large`` judges a record of 512
ranks and 21 GB against one with a fault, by this process alone, by processes, by Dask and by MPI, and reads the same files plainly beside
them. Every measurement is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from many_ranks import DEEP, LARGE, SMALL, TINY, Grid, Job, write
from rich.console import Console
from rich.table import Table

HERE, BIN = Path(__file__).parent, Path(sys.executable).parent
RANKS = (8, 32, 128, 512, 2048)
STEPS = (1_000, 10_000, 100_000)
EVERY = 100
"""Steps from one with norms to the next in a long run of 300 tensors."""
WORKERS = os.cpu_count() or 1
TIMED = """
import json, re, sys, time
from align_hooks import open_run
from align_hooks.comparison.pipeline import compare
begun = time.perf_counter()
def taken():
    global begun
    seconds, begun = time.perf_counter() - begun, time.perf_counter()
    return seconds
runs = [open_run(path) for path in sys.argv[1:]]
opened = taken()
steps = [run.steps for run in runs]
rows = taken()
checks = [run.self_check for run in runs]
checked = taken()
verdict = compare(*runs).verdict.text
kilobytes = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
print(json.dumps({"opened": opened, "rows": rows, "self-check": checked, "compared": taken(), "MiB": kilobytes / 1024, "verdict": verdict}))
"""


def grid(ranks: int) -> Grid:
    """Tensor and pipeline parallelism of up to 8, and data parallelism of what is left."""
    tp = pp = 1
    while tp * pp < min(ranks, 64):
        tp, pp = (2 * tp, pp) if tp <= pp else (tp, 2 * pp)
    return Grid(tp=tp, pp=pp, dp=ranks // (tp * pp), distributed=True)


def curves(folder: Path, largest: int) -> Iterator[dict[str, object]]:
    """One measurement a size: ranks with one step of small tensors; steps of eight ranks with scalars and norms of 23 tensors; then norms
    of 300 tensors at few of these steps."""
    jobs = [Job(grid(ranks), SMALL) for ranks in RANKS if ranks <= largest]
    jobs += [Job(grid(8), TINY, steps, tensors=False) for steps in STEPS]
    few = (Job(grid(8), DEEP, steps, tensors=False, norms=f"0-{steps}/{EVERY}") for steps in STEPS)
    jobs += [replace(job, full=full) for job in few for full in (False, True)]
    for job in jobs:
        with tempfile.TemporaryDirectory(dir=folder) as kept:
            paths = [Path(kept) / name for name in ("reference", "candidate")]
            for path, each in zip(paths, (job, replace(job, rounding=True)), strict=True):
                write(path, each, WORKERS)
            done = subprocess.run([sys.executable, "-c", TIMED, *map(str, paths)], capture_output=True, text=True, check=True)
            of = {"ranks": job.ranks, "steps": job.steps, "norms": job.norms, "full": job.full}
            yield of | json.loads(done.stdout)


def large(folder: Path, ranks: int, layers: int) -> Iterator[dict[str, object]]:
    """A record of gradients and weights against one whose gradients are off by roundings and one of which is wrong."""
    paths = [folder / name for name in ("reference", "candidate")]
    job = Job(grid(ranks), replace(LARGE, layers=layers))
    for path, of in zip(paths, (job, replace(job, rounding=True, fault=True)), strict=True):
        if not path.exists():
            write(path, of, WORKERS)
    command = ["-m", "align_hooks", "compare", *map(str, paths)]
    mpi = [str(BIN / "mpiexec"), "-n", str(WORKERS + 1), sys.executable, "-m", "mpi4py.futures", *command, "--executor", "mpi"]
    ways = {name: [sys.executable, *command, "--executor", name] for name in ("none", f"processes:{WORKERS}", f"dask:{WORKERS}")}
    yield read_plainly(paths)
    verdicts: set[str] = set()
    for name, argv in (ways | {"mpi": mpi}).items():
        said = folder / "said.json"
        begun = time.perf_counter()
        done = subprocess.run([*argv, "--json", str(said)], capture_output=True, text=True)
        seconds = time.perf_counter() - begun
        if done.returncode not in (0, 1, 4):
            raise SystemExit(f"{name} ended with {done.returncode}: {done.stderr[-2000:]}")
        verdicts.add(said.read_text())
        found = json.loads(said.read_text())
        yield {"way": name, "seconds": seconds, "verdict": found["verdict"], "first": found["first"], "exit": done.returncode}
    yield {"way": "different answers", "count": len(verdicts)}


def read_plainly(paths: list[Path]) -> dict[str, object]:
    """Seconds to read every gradient of both records, one file after the other, and nothing else."""
    files = sorted(file for path in paths for file in path.glob("step_*/rank_*/gradients.safetensors"))
    room, begun, total = memoryview(bytearray(1 << 24)), time.perf_counter(), 0
    for file in files:
        with file.open("rb", buffering=0) as opened:
            while count := opened.readinto(room):
                total += count
    seconds = time.perf_counter() - begun
    return {"way": "the gradients read, and nothing else", "seconds": seconds, "GB": total / 1e9, "GB/s": total / 1e9 / seconds}


def main() -> None:
    """Measure what is asked for, and say it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("curves", "large"))
    parser.add_argument("--in", dest="folder", type=Path, default=Path("build/scale"), help="where the records are written")
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--layers", type=int, default=LARGE.layers, help="of the large record's model")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    measured = []
    asks_for_curves = asked.what == "curves"
    for each in curves(asked.folder, asked.ranks) if asks_for_curves else large(asked.folder, asked.ranks, asked.layers):
        print(each, file=sys.stderr, flush=True)
        measured.append(each)
    columns = list(dict.fromkeys(key for each in measured for key in each))
    made = Table(*columns)
    for each in measured:
        made.add_row(*(f"{value:.3g}" if isinstance(value, float) else str(value) for value in (each.get(key, "") for key in columns)))
    Console(width=200).print(made)
    if asked.json is not None:
        asked.json.write_text(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
