"""Runs of many ranks, cut as Megatron cuts a Llama: tensor, pipeline and data parallel, with or without a distributed optimizer.

What a rank holds is told by the real name tables; what it writes is cut out of whole tensors that the test knows.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from align_hooks.names.blocks import WHOLE, Cut, Dims
from align_hooks.names.fused import Fused
from align_hooks.record.format.ending import HowEnded
from align_hooks.record.format.norms import squared_sum
from align_hooks.record.format.shard import Shard, shards_of
from synthetic import Array, begun, job, row
from tables import MEGATRON_LLAMA

Bend = Callable[[int, str, Array], Array]
"""What a test does to a rank's part of a gradient: rank, canonical name and the honest part, to what is written."""


@dataclass(frozen=True)
class Grid:
    """Ranks in Megatron's order: tensor-parallel ones stand together, then data-parallel, then pipeline stages."""

    tp: int = 1
    dp: int = 1
    pp: int = 1
    distributed: bool = False

    def places(self) -> list[dict[str, int]]:
        sizes = {"tp_size": self.tp, "dp_size": self.dp, "pp_size": self.pp, "cp": 0, "cp_size": 1, "ep": 0, "ep_size": 1}
        return [{"dp": dp, "tp": tp, "pp": pp} | sizes for pp in range(self.pp) for dp in range(self.dp) for tp in range(self.tp)]


@dataclass(frozen=True)
class Model:
    """Sizes of a Llama whose vocabulary needs padding."""

    layers: int = 4
    hidden: int = 8
    dims: Dims = field(default_factory=lambda: Dims(heads=4, groups=2, head_dim=2, ffn=12, vocabulary=13, padded=16))

    def natives(self, stage: int, stages: int) -> Iterator[tuple[str, tuple[int, ...], int | None]]:
        """Native name, whole shape and the axis that tensor parallelism cuts, of one pipeline stage."""
        dims, hidden = self.dims, self.hidden
        if stage == 0:
            yield "embedding.word_embeddings.weight", (dims.padded, hidden), 0
        for layer in range(self.layers // stages):
            prefix = f"decoder.layers.{layer}"
            yield f"{prefix}.input_layernorm.weight", (hidden,), None
            yield f"{prefix}.self_attention.linear_qkv.weight", ((dims.heads + 2 * dims.groups) * dims.head_dim, hidden), 0
            yield f"{prefix}.self_attention.linear_proj.weight", (hidden, dims.heads * dims.head_dim), 1
            yield f"{prefix}.pre_mlp_layernorm.weight", (hidden,), None
            yield f"{prefix}.mlp.linear_fc1.weight", (2 * dims.ffn, hidden), 0
            yield f"{prefix}.mlp.linear_fc2.weight", (hidden, dims.ffn), 1
        if stage == stages - 1:
            yield "decoder.final_layernorm.weight", (hidden,), None
            yield "output_layer.weight", (dims.padded, hidden), 0

    def held(self, place: Mapping[str, int], grid: Grid) -> list[tuple[Fused, bool]]:
        """What one rank holds, and whether it counts."""
        parameters = []
        for native, shape, axis in self.natives(place["pp"], grid.pp):
            local = [size // grid.tp if index == axis else size for index, size in enumerate(shape)]
            cut = WHOLE if axis is None else Cut(axis, place["tp"], grid.tp)
            fused = MEGATRON_LLAMA.fused(native, local, self.dims, cut=cut, first_layer=place["pp"] * self.layers // grid.pp)
            assert fused is not None
            parameters.append((fused, (axis is not None or place["tp"] == 0) and (grid.distributed or place["dp"] == 0)))
        return list(_ranges(parameters, place["dp"], grid.dp)) if grid.distributed else parameters

    def tensors(self, seed: int) -> dict[str, Array]:
        """Every canonical tensor of the model."""
        random = np.random.default_rng(seed)
        whole = [fused for fused, _ in self.held(Grid().places()[0], Grid())]
        return {piece.name: random.standard_normal(piece.shape).astype(np.float32) for fused in whole for piece in fused.parts}


def _ranges(parameters: list[tuple[Fused, bool]], rank: int, ranks: int) -> Iterator[tuple[Fused, bool]]:
    """A rank's equal share of all elements, one after the other: Megatron's gradient buffer."""
    sizes = [math.prod(fused.shape) for fused, _ in parameters]
    share = -(-sum(sizes) // ranks)
    for (fused, counted), start, size in zip(parameters, np.cumsum([0, *sizes]).tolist(), sizes, strict=False):
        low, high = (min(max(end - start, 0), size) for end in (rank * share, (rank + 1) * share))
        yield fused.narrowed(low, high), counted


def honest(rank: int, name: str, part: Array) -> Array:
    return part


def write(
    path: Path,
    grid: Grid,
    gradients: Mapping[str, Array],
    *,
    model: Model | None = None,
    bend: Bend = honest,
    lose: Callable[[int, Shard], bool] = lambda rank, shard: False,
    left_out: Callable[[int, Shard], bool] = lambda rank, shard: False,
    again: Callable[[int, Shard], bool] = lambda rank, shard: False,
    weights: Callable[[int], Mapping[str, float]] = lambda rank: {},
    **row_changes: object,
) -> Path:
    """Record one step of ``gradients``; ``bend`` changes what a rank has, ``lose`` says which shards its table lacks, ``left_out``
    which the framework's norm does, and ``again`` which copies it counts. ``weights`` are
    squares of what a rank computes with.

    The framework's own norm is that of what the ranks have, whatever our tables say of it.
    """
    model = model or Model()
    places = grid.places()
    have = []
    for rank, place in enumerate(places):
        shards = [shard for fused, counted in model.held(place, grid) for shard in shards_of(fused, dtype="float32", counted=counted)]
        have.append([(shard, bend(rank, shard.name, part_of(gradients[shard.name], shard))) for shard in shards])

    def included(rank: int, shard: Shard) -> bool:
        return again(rank, shard) or (shard.counted and not left_out(rank, shard))

    exact = [math.fsum(squared_sum(part) for shard, part in parts if included(rank, shard)) for rank, parts in enumerate(have)]
    norm = math.sqrt(math.fsum(exact))
    one_group = [place["dp"] == 0 or grid.distributed for place in places]
    for rank, (place, parts) in enumerate(zip(places, have, strict=True)):
        mine = exact[rank] if one_group[rank] else exact[rank - place["dp"] * grid.tp]
        first = 0 if grid.distributed else place["dp"] * grid.tp
        taken = {"norm": norm, "same": mine, "exact": mine, "first": first, "ranks": sum(one_group)}
        kept = [(shard, part) for shard, part in parts if not lose(rank, shard)]
        writer = begun(path, job(rank, len(places)), gradients="all", local_norms="all")
        training = {"compute_type": "float32", "micro_batch_size": 1, "global_batch_size": grid.dp}
        facts = {"training": training, "optimizer": {"groups": []}, "model": {"num_hidden_layers": model.layers}}
        writer.describe(place=place, shards=[shard for shard, _ in kept], facts=facts, steps=range(1))
        writer.gradients(0, {shard.name: part for shard, part in kept if shard.counted})
        writer.local_norms(0, "reduced", {shard.name: squared_sum(part) for shard, part in kept}, [taken], weights(rank))
        last = place["pp"] == grid.pp - 1
        writer.scalars(row(0, grad_norm=norm, **({} if last else {"loss": None, "objective_loss": None, "valid_tokens": 0}), **row_changes))
        writer.finish(HowEnded("finished"), hooks={})
    return path


def part_of(whole: Array, shard: Shard) -> Array:
    """A rank's part of a whole tensor, in memory of its own."""
    box = whole[tuple(slice(*bounds) for bounds in shard.box)]
    return (box.reshape(-1)[slice(*shard.flat)] if shard.flat else box).copy()
