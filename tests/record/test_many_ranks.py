"""A job of 512 ranks is opened, held against itself and compared in 2 GiB, with work that grows as the ranks do."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from align_hooks.names.blocks import Dims
from sharded import Grid, Model, write

BIG = Model(layers=64, hidden=128, dims=Dims(heads=16, groups=8, head_dim=8, ffn=256, vocabulary=4000, padded=4096))
MANY = Grid(tp=8, dp=8, pp=8, distributed=True)
BYTES = 2 << 30
CALLS = 4_000_000
"""2.5 million are made: 2,400 a rank and record."""

MEASURED = """
import cProfile, json, pstats, re, sys
from align_hooks import open_run
from align_hooks.comparison.pipeline import compare
from align_hooks.messages import as_data
counted = cProfile.Profile()
counted.enable()
one, other = map(open_run, sys.argv[1:])
found = compare(one, other)
counted.disable()
stages = {stage.name: stage.status.value for stage in found.stages}
kilobytes = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
print(json.dumps([pstats.Stats(counted).total_calls, kilobytes * 1024, stages, as_data(found.stages[1].summary)]))
"""


@pytest.mark.slow
def test_512_ranks_are_compared_in_2_gib_with_few_calls_a_rank(tmp_path: Path) -> None:
    gradients = BIG.tensors(1)
    paths = [write(tmp_path / name, MANY, gradients, model=BIG) for name in ("reference", "candidate")]
    done = subprocess.run([sys.executable, "-c", MEASURED, *map(str, paths)], capture_output=True, text=True, timeout=1800, check=True)
    calls, memory, stages, summary = json.loads(done.stdout)
    print(f"512 ranks: {calls} calls, {memory / 2**20:.0f} MiB")
    assert summary["id"] == "self_check.norms"
    assert {stages[name] for name in ("match", "self-check", "local norms", "gradients")} == {"same"}
    assert calls < CALLS
    assert memory < BYTES
