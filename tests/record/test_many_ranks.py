"""A job of 512 ranks is opened, held against itself and compared in a minute and 2 GiB."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from align_hooks.names.layouts import Dims
from sharded import Grid, Model, write

BIG = Model(layers=64, hidden=128, dims=Dims(heads=16, groups=8, head_dim=8, ffn=256, vocabulary=4000, padded=4096))
MANY = Grid(tp=8, dp=8, pp=8, distributed=True)
SECONDS, BYTES = 60, 2 << 30

MEASURED = """
import json, re, sys, time
from align_hooks import open_run
from align_hooks.compare.runs import compare
started = time.monotonic()
one, other = map(open_run, sys.argv[1:])
found = compare(one, other)
seconds = time.monotonic() - started
stages = {stage.name: stage.status.value for stage in found.stages}
kilobytes = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
print(json.dumps([seconds, kilobytes * 1024, stages, found.stages[1].summary]))
"""


def test_512_ranks_are_compared_within_a_minute_and_2_gib(tmp_path: Path) -> None:
    gradients = BIG.tensors(1)
    paths = [write(tmp_path / name, MANY, gradients, model=BIG) for name in ("reference", "candidate")]
    done = subprocess.run([sys.executable, "-c", MEASURED, *map(str, paths)], capture_output=True, text=True, timeout=600, check=True)
    seconds, memory, stages, summary = json.loads(done.stdout)
    print(f"512 ranks: {seconds:.1f} s, {memory / 2**20:.0f} MiB")
    assert summary.startswith("norms of steps 1 of 1 of the reference and 1 of 1 of the candidate are the frameworks' own")
    assert {stages[name] for name in ("match", "self-check", "local norms", "gradients")} == {"same"}
    assert seconds < SECONDS
    assert memory < BYTES
