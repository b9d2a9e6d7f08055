"""What digests cost: ``python tests/record/cost_of_digests.py [DIRECTORY] [MEGABYTES]``.

A step that writes gradients is written with digests and without, in turns, so that a machine that is busy is busy for both. The share is of
the writing alone: of a whole step, whose forward and backward pass come on top, it is less.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from align_hooks.record.format import digests
from align_hooks.record.format.ending import HowEnded
from align_hooks.record.format.shard import Shard
from synthetic import begun, row

TENSORS, TURNS = 16, 7


def seconds(body: Callable[[], object]) -> float:
    """How long something takes."""
    started = time.perf_counter()
    body()
    return time.perf_counter() - started


def written(folder: Path, tensors: dict[str, np.ndarray]) -> float:
    """Seconds of a step that writes gradients, its row included, into a new run."""
    writer = begun(folder / "run")
    writer.describe(place={}, shards=[Shard(name, one.shape, name, "float32") for name, one in tensors.items()], facts={}, steps=range(1))

    def step() -> None:
        writer.gradients(0, tensors)
        writer.scalars(row(0))

    took = seconds(step)
    writer.finish(HowEnded("finished"), hooks={})
    shutil.rmtree(folder / "run")
    return took


def main() -> None:
    """Print speeds and the share."""
    where, size = sys.argv[1] if len(sys.argv) > 1 else None, int(sys.argv[2]) if len(sys.argv) > 2 else 1024
    random = np.random.default_rng(1)
    tensors = {f"model.layers.{index}.weight": random.standard_normal(size * (1 << 18) // TENSORS, np.float32) for index in range(TENSORS)}
    total = sum(one.nbytes for one in tensors.values())
    alone = median(seconds(lambda: [digests.xxh3(one) for one in tensors.values()]) for _ in range(TURNS))
    print(f"digests alone: {total / alone / 1e9:.1f} GB/s of {total / 1e9:.2f} GB")
    with tempfile.TemporaryDirectory(dir=where) as folder:
        pairs = []
        for _ in range(TURNS):
            with_ones = written(Path(folder), tensors)
            with mock.patch.object(digests, "xxh3", return_value="0" * digests.LENGTH):
                pairs.append((with_ones, written(Path(folder), tensors)))
    without = median(pair[1] for pair in pairs)
    print(f"a step that writes them: {total / without / 1e9:.2f} GB/s without digests")
    ratios = sorted(one / other for one, other in pairs)
    print(f"with digests it takes {median(ratios):.3f} of that (each pair: {', '.join(f'{one:.3f}' for one in ratios)})")
    print(f"share of digests by their own speed: {alone / (without + alone):.1%}")


if __name__ == "__main__":
    main()
