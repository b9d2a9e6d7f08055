"""Synthetic records of many ranks: a Llama cut by tensor, pipeline and data parallelism with a distributed optimizer, written by the real
writer, rank after rank in several processes. Numbers come from one table of random ones, so that no tensor needs memory of its own."""

from __future__ import annotations

import math
import sys
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from align_hooks.names.blocks import Dims
from align_hooks.record.format.ending import HowEnded
from align_hooks.record.format.layout import Array
from align_hooks.record.format.norms import squared_sum
from align_hooks.record.format.random_states import digest
from align_hooks.record.format.shard import Shard, shards_of
from align_hooks.record.format.state import BUFFER, GROWTH, HYSTERESIS, SAMPLES, SCHEDULER, UPDATES
from align_hooks.record.write.writer import Writer
from sharded import Grid, Model, part_of
from synthetic import begun, job, row

CULPRIT = "model.layers.1.mlp.down_proj.weight"
"""The tensor whose gradient is wrong in a record with a fault."""


@dataclass(frozen=True)
class Job:
    """Ranks, a model, and for which steps each quantity is recorded, ``norms`` as a variable says it. ``rounding`` moves every other
    gradient by one rounding, as another framework would; ``fault`` makes one gradient 1 % larger. Rows are ``full`` that have what
    Megatron's have: the sums of micro-batches, and digests of generators and of what a step starts from."""

    grid: Grid
    model: Model
    steps: int = 1
    tensors: bool = True
    norms: str = "all"
    full: bool = False
    rounding: bool = False
    fault: bool = False

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return len(self.grid.places())


@cache
def table(size: int) -> Array:
    """Random numbers, from which every tensor is a view."""
    return np.random.default_rng(0).standard_normal(size, dtype=np.float32)


def part(of: Job, shard: Shard, kind: str) -> Array:
    """A rank's part of a gradient or a weight."""
    size = math.prod(shard.shape)
    begin = zlib.crc32(f"{kind} {shard.name}".encode()) % 4096
    whole = table(_largest(of.model) + 4096)[begin : begin + size].reshape(shard.shape)
    mine = part_of(whole, shard)
    if kind == "gradients" and of.rounding:
        mine.reshape(-1)[::2] *= np.float32(1 + 2**-23)
    if kind == "gradients" and of.fault and shard.name == CULPRIT:
        mine *= np.float32(1.01)
    return mine


@cache
def _largest(model: Model) -> int:
    return max(math.prod(shape) for _, shape, _ in model.natives(0, 1))


def write(path: Path, of: Job, workers: int) -> int:
    """Record a job; how many bytes of tensors it holds."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        exact = list(pool.map(_exact, [of] * of.ranks, range(of.ranks), chunksize=8))
        sums = [math.fsum(exact)] * of.ranks
        first, size = _written(path, of, 0, exact[0], sums[0])  # the others join it while it records
        size += sum(pool.map(_write_rank, [path] * of.ranks, [of] * of.ranks, range(1, of.ranks), exact[1:], sums, chunksize=1))
        first.finish(HowEnded("finished"), hooks={})
    return size


def _shards(of: Job, rank: int) -> Iterator[Shard]:
    for fused, counted in of.model.held(of.grid.places()[rank], of.grid):
        yield from shards_of(fused, dtype="float32", counted=counted)


def _exact(of: Job, rank: int) -> float:
    return math.fsum(squared_sum(part(of, shard, "gradients")) for shard in _shards(of, rank) if shard.counted)


def _write_rank(path: Path, of: Job, rank: int, exact: float, total: float) -> int:
    writer, size = _written(path, of, rank, exact, total)
    writer.finish(HowEnded("finished"), hooks={})
    return size


def _written(path: Path, of: Job, rank: int, exact: float, total: float) -> tuple[Writer, int]:
    place, shards = of.grid.places()[rank], list(_shards(of, rank))
    kept = {"gradients": "0", "weights": "0"} if of.tensors else {}
    writer = begun(path, job(rank, of.ranks), local_norms=of.norms, **kept)
    training = {"compute_type": "float32", "micro_batch_size": 1, "global_batch_size": of.grid.dp}
    facts = {"training": training, "optimizer": {"groups": []}, "model": {"num_hidden_layers": of.model.layers}}
    writer.describe(place=place, shards=shards, facts=facts, steps=range(of.steps))
    gradients = {shard.name: part(of, shard, "gradients") for shard in shards}
    squares = {name: squared_sum(gradient) for name, gradient in gradients.items()}
    if of.tensors:
        weights = {shard.name: part(of, shard, "weights") for shard in shards if shard.counted}
        writer.weights(0, weights, {}, {name: squared_sum(weight) for name, weight in weights.items()})
        writer.gradients(0, {shard.name: gradients[shard.name] for shard in shards if shard.counted})
    norm = math.sqrt(total)
    taken = {"norm": norm, "same": exact, "exact": exact, "first": 0, "ranks": of.ranks}
    lossless = {} if place["pp"] == of.grid.pp - 1 else {"loss": None, "objective_loss": None, "valid_tokens": 0}
    for step in range(of.steps):
        if step in writer.settings.local_norms:
            writer.local_norms(step, "reduced", squares, [taken])
        more = full(step, rank, counts=not lossless) if of.full else {}
        writer.scalars(row(step, grad_norm=norm, **lossless) | more)
    return writer, 2 * 4 * sum(shard.elements for shard in shards if shard.counted) if of.tensors else 0


def full(step: int, rank: int, *, counts: bool) -> dict[str, object]:
    """What a row of Megatron's has beside :func:`row`; ``counts`` says whether the rank has a loss."""
    start = {name: digest(f"{name} {step} {rank}".encode()) for name in ("python", "numpy", "torch", "cuda", "model-parallel-rng")}
    kept: dict[str, object] = {SAMPLES: 8.0 * step, SCHEDULER: 8.0 * step, UPDATES: float(step), GROWTH: 0.0, HYSTERESIS: 2.0}
    kept |= {f"{BUFFER}decoder.layers.{layer}.mlp.router.expert_bias": start["cuda"] for layer in range(2)}
    parts = [[4096.0 * 9 + step + part, 4096.0, (4096.0 * 9 + step + part) / 8192.0] for part in range(2)]
    rows: dict[str, object] = {"random": [start], "state": kept, "micro_batches": parts if counts else [], "token_digest": f"{step:013x}"}
    return rows


TINY = Model(layers=2, hidden=16, dims=Dims(heads=4, groups=4, head_dim=4, ffn=32, vocabulary=100, padded=128))
SMALL = Model(layers=16, hidden=64, dims=Dims(heads=8, groups=8, head_dim=8, ffn=128, vocabulary=1000, padded=1024))
DEEP = Model(layers=33, hidden=16, dims=Dims(heads=4, groups=4, head_dim=4, ffn=32, vocabulary=100, padded=128))
"""300 tensors."""
LARGE = Model(layers=40, hidden=2048, dims=Dims(heads=16, groups=8, head_dim=128, ffn=8192, vocabulary=32000, padded=32256))
"""2.65 billion parameters: gradients and weights of it are 21 GB."""
