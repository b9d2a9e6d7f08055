"""Batches of a step, put together from data-parallel ranks, recorded by us or made by hand with the guide's snippet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from align_hooks.errors import RecordError
from align_hooks.record.format import layout
from align_hooks.record.format.batch_arrays import id_range, is_causal
from align_hooks.record.format.descriptions import Description
from align_hooks.record.format.documents import of_mask
from align_hooks.record.format.folder import inside
from align_hooks.record.format.layout import Array
from align_hooks.record.format.sequence import Slices, in_order
from align_hooks.record.format.stored_tensor import CHANGED
from align_hooks.record.read.run_files import BatchSource
from align_hooks.record.read.run_rows import RunRows

SEEN_LATE = ("token_losses", "loss_mask")
"""Arrays that only some ranks may have recorded, since they are known after the forward pass."""
LONGEST = 1 << 17
"""Positions of the longest sequence for which a causal mask is made."""


class Batch(Struct, frozen=True):
    """The global batch of one step, rows in the order micro-batch, data-parallel rank, row; None is not recorded."""

    step: int
    rows: tuple[tuple[int, ...], ...]
    """Rows of each micro-batch on each data-parallel rank."""
    tokens: Array | None = None
    """``[rows, sequence]``, as ``labels``, ``loss_mask`` and ``position_ids``."""
    labels: Array | None = None
    loss_mask: Array | None = None
    position_ids: Array | None = None
    attention_mask: Array | None = None
    """bool, True where attention is forbidden; None also where a kernel applied the causal mask itself."""
    documents: Array | None = None
    """int32 ``[rows, sequence]`` of packed samples: the number of each token's document in its row, -1 for a token of none."""
    causal: bool = True
    slices: tuple[Slices, ...] = ()
    """Positions of each context-parallel rank; empty for one rank."""
    token_losses: Array | None = None
    """The model's output, fp32 ``[rows, sequence]``: each token's loss before the mask."""

    def arrays(self) -> dict[str, Array]:
        """Return the recorded arrays by name."""
        return {name: array for name in layout.BATCH_ARRAYS if (array := getattr(self, name)) is not None}


class BatchFacts(Struct, frozen=True):
    """A batch without its arrays."""

    sequence: int
    """Tokens of a row."""
    rows: int
    """Rows of all data-parallel ranks."""
    lowest: int
    """The lowest id that counts."""
    highest: int
    """The highest id that counts."""


class RankBatch(Struct, frozen=True):
    """One rank's part of a batch, or the joined part of several."""

    rows: tuple[int, ...]
    """Rows of each micro-batch."""
    arrays: dict[str, Array]
    mask: str | None
    """``attention_mask`` of batch.json: None, causal or own."""
    slices: Slices | None = None
    """Positions of a context-parallel rank; None for all."""
    cuts: tuple[Slices, ...] = ()
    """Slices of all joined context-parallel ranks."""
    micro_batches: int | None = None
    """Micro-batches of the joined rows of all ranks; None where each rank has its own."""
    whole: bool = False
    """Whether each rank has the full batch."""


Files: TypeAlias = dict[int, dict[int, dict[BatchSource, Description]]]
"""Data-parallel index to context-parallel index to the batches recorded at that place."""


def read_batch(run: RunRows, step: int, names: Sequence[str]) -> Batch:
    """Return the batch that ``step`` consumed on all data-parallel ranks, with the arrays of ``names``."""
    if run.made_by_hand:
        ranks = range(len(list(inside(run.path, run.path / f"step_{step}").glob("rank_*"))))
        return _join(step, [_read_part_by_hand(BatchSource(run.path, layout.step(run.path, step, rank))) for rank in ranks])
    parts = []
    for _, places in sorted(_files(run, step).items()):
        of_ranks = [_merged([_read_part(source, names) for source in sources]) for _, sources in sorted(places.items())]
        parts.append(_in_sequence(of_ranks, f"{run.path}: step {step}"))
    return _join(step, parts)


def read_batch_facts(run: RunRows, step: int) -> BatchFacts:
    """Return facts of a batch, after a check of its files; of a recorded batch only headers are read."""
    sizes: list[tuple[int, int]] = []
    ranges: list[Sequence[int] | None] = []
    if run.made_by_hand:
        arrays = read_batch(run, step, layout.BATCH_ARRAYS).arrays()
        rows, sequence = arrays["tokens"].shape
        sizes, ranges = [(rows, sequence)], [id_range(arrays)]
    else:
        for places in _files(run, step).values():
            recorded = [source for sources in places.values() for source in sources.items()]
            tokens: list[tuple[int, ...]] = []
            for sources in places.values():
                tokens += [fed.arrays["tokens"].shape for fed in sources.values() if "tokens" in fed.arrays][:1]
            cut = any(fed.slices for _, fed in recorded)
            sizes += [(tokens[0][0], sum(shape[1] for shape in tokens) if cut else tokens[0][1])] if tokens else []
            ranges += [fed.ids for _, fed in recorded]
            for source, name in ((source, name) for source, fed in recorded for name in fed.arrays):
                source.array(name, headers_only=True)
            if any(fed.joined_first and fed.joined_first.whole for _, fed in recorded):
                break  # the other data-parallel ranks have the same batch
    known = [ids for ids in ranges if ids]
    if not sizes or not known:
        raise RecordError(f"{run.path}: the batch of step {step} has no tokens")
    lowest, highest = min(low for low, _ in known), max(high for _, high in known)
    return BatchFacts(sequence=sizes[0][1], rows=sum(size[0] for size in sizes), lowest=lowest, highest=highest)


def _files(run: RunRows, step: int) -> Files:
    """Return the fewest ranks of each place with all of its batch: one of each pipeline stage, as tensor-parallel ranks have copies."""
    files: Files = {}
    stages: dict[tuple[int, ...], int] = {}
    for rank, manifest in sorted(run.manifests.items()):
        stages.setdefault(tuple(manifest.place.get(axis, 0) for axis in ("dp", "cp", "pp")), rank)
    for (dp, cp, _), rank in stages.items():
        source = run.source(step, rank)
        description = source.described()
        seen = files.setdefault(dp, {}).setdefault(cp, {})
        if not seen or description.arrays.keys() - {name for fed in seen.values() for name in fed.arrays}:
            seen[source] = description
    return files


def _read_part(source: BatchSource, names: Sequence[str]) -> RankBatch:
    """Return a rank's part, each array of ``names`` checked against its digest."""
    description = source.described()
    arrays = {}
    for name, stored in description.arrays.items():
        if name not in names:
            continue
        array = source.array(name, stored.file)
        if array.shape != stored.shape or str(array.dtype) != stored.dtype:
            raise RecordError(f"{source.place / name}.npy {CHANGED}")
        arrays[name] = array
    mask = description.attention_mask if "attention_mask" in names else None
    first = description.joined_first
    joined = (None, False) if first is None else (first.micro_batches, first.whole)
    return RankBatch(description.rows, arrays, mask, description.slices, (), *joined)


def _read_part_by_hand(source: BatchSource) -> RankBatch:
    """Return the arrays that the guide's snippet wrote for a rank, which is a data-parallel rank then."""
    place = source.place
    arrays = {name: source.array(name) for name in layout.INPUTS if (place / f"{name}.npy").exists()}
    for name in ("tokens", "labels"):
        if name not in arrays:
            raise RecordError(f"{place / name}.npy is missing; the guide's snippet writes tokens and labels for every rank")
    shape, mask = arrays["tokens"].shape, arrays.pop("attention_mask", None)
    for name, array in arrays.items():
        if len(shape) != 2 or array.shape != shape:
            raise RecordError(f"{place / name}.npy is {list(array.shape)}; it must be [rows, sequence] as the tokens are")
        if name != "loss_mask" and array.dtype.kind not in "iu":
            raise RecordError(f"{place / name}.npy is {array.dtype}; ids are integers")
    if "loss_mask" in arrays and not (np.isfinite(arrays["loss_mask"]).all() and (arrays["loss_mask"] >= 0).all()):
        raise RecordError(f"{place / 'loss_mask.npy'} holds what is no weight of a token")
    if mask is None:
        return RankBatch((shape[0],), arrays, None)
    if mask.ndim != 4 or mask.shape[2:] != (shape[1], shape[1]):
        raise RecordError(f"{place / 'attention_mask.npy'} is {list(mask.shape)}; it must be [rows or 1, 1, sequence, sequence]")
    arrays["attention_mask"] = mask.astype(bool)
    return RankBatch((shape[0],), arrays, None if is_causal(arrays["attention_mask"]) else "own")


def _merged(parts: Sequence[RankBatch]) -> RankBatch:
    """Return the part of ranks with the same rows and positions: tokens come from one pipeline stage, labels from another."""
    arrays: dict[str, Array] = {}
    for part in reversed(parts):
        arrays |= part.arrays
    rows = next((part.rows for part in parts if part.rows), ())
    return replace(parts[0], rows=rows, arrays=arrays, mask=next((part.mask for part in parts if part.mask), None))


def _in_sequence(parts: Sequence[RankBatch], where: str) -> RankBatch:
    """Return the part of a data-parallel rank from its context-parallel ranks; raises RecordError where a slice is missing.

    Where batches are joined first, context-parallel ranks have the same full sequences.
    """
    if len(parts) == 1 and parts[0].slices is None:
        return parts[0]
    if all(part.slices is None and part.micro_batches for part in parts):
        return _merged(parts)
    partly = {name for name in SEEN_LATE if not all(name in part.arrays for part in parts)}
    parts = [replace(part, arrays={name: array for name, array in part.arrays.items() if name not in partly}) for part in parts]
    slices = [part.slices for part in parts if part.slices is not None]
    names = {name for part in parts for name in part.arrays}
    if len(slices) != len(parts) or any(names != part.arrays.keys() for part in parts):
        raise RecordError(f"{where}: a context-parallel rank recorded other arrays than the others; record the step again")
    arrays = {name: in_order([part.arrays[name] for part in parts], slices, f"{where}: {name}") for name in sorted(names)}
    causal = "attention_mask" in arrays and is_causal(arrays["attention_mask"])
    return RankBatch(parts[0].rows, arrays, "causal" if causal else parts[0].mask, cuts=tuple(slices))


def _join(step: int, parts: list[RankBatch]) -> Batch:
    """Return the global batch; raises RecordError where rows that were joined first are no equal micro-batches."""
    parts = parts[:1] if parts and parts[0].whole else parts
    rows = tuple(part.rows for part in parts)
    causal = all(part.mask != "own" for part in parts)
    arrays: dict[str, Array] = {}
    for name in layout.BATCH_ARRAYS:
        pieces = [part.arrays[name] for part in parts if name in part.arrays]
        if name == "attention_mask" or not pieces:
            continue
        if len(pieces) == len(parts):
            arrays[name] = interleaved(pieces, rows)
        elif name not in SEEN_LATE:
            raise RecordError(f"step {step}: {name} is recorded by some data-parallel ranks and not by others; record the step again")
    if not causal or any("attention_mask" in part.arrays for part in parts):
        arrays["attention_mask"] = interleaved([_mask_of_rows(part) for part in parts], rows)
    elif arrays and parts[0].mask == "causal":
        sequence = next(int(array.shape[1]) for array in arrays.values())
        if sequence > LONGEST:  # more than a host holds
            size = LONGEST**2 >> 30
            raise RecordError(f"step {step}: the attention mask of {sequence} positions is larger than {size} GiB; replay another run")
        arrays["attention_mask"] = _causal(sequence)
    micro_batches, total = parts[0].micro_batches if parts else None, sum(map(sum, rows))
    if micro_batches is not None:
        if total % micro_batches:
            raise RecordError(f"step {step}: {total} rows are no {micro_batches} equal micro-batches; record the step again")
        rows = ((total // micro_batches,) * micro_batches,)
    return Batch(step, rows, causal=causal, slices=parts[0].cuts if parts else (), **arrays)


def _causal(sequence: int) -> Array:
    """Return the causal mask of a sequence, bool, ``[1, 1, sequence, sequence]``."""
    return ~np.tri(sequence, dtype=bool)[None, None]


def _mask_of_rows(part: RankBatch) -> Array:
    """Return a part's attention mask for each of its rows, the causal mask where no other was recorded."""
    recorded = part.arrays.get("attention_mask")
    mask = _causal(part.arrays["tokens"].shape[1]) if recorded is None else recorded
    return np.broadcast_to(mask, (sum(part.rows), *mask.shape[1:]))


def documents_of(batch: Batch) -> Array | None:
    """Return the documents of any batch, int ``[rows, sequence]``: as recorded, of its mask, or each row one; None where it has none."""
    if batch.documents is not None or batch.tokens is None:
        return batch.documents
    if batch.causal or batch.attention_mask is None:
        return np.zeros(batch.tokens.shape, np.int32)
    return of_mask(batch.attention_mask)


def sizes_of(rows: Sequence[Sequence[int]]) -> list[int]:
    """Return the rows of each micro-batch of each data-parallel rank, in the order of a batch."""
    return [counts[index] for index in range(max(map(len, rows))) for counts in rows if index < len(counts)]


def interleaved(pieces: Sequence[Array], rows: Sequence[tuple[int, ...]]) -> Array:
    """Join the arrays of data-parallel ranks, each with its row counts, as micro-batch, data-parallel rank, row."""
    if len(pieces) == 1:
        return pieces[0]
    slices = [np.split(piece, np.cumsum(counts)[:-1]) for piece, counts in zip(pieces, rows, strict=True)]
    return np.concatenate([cuts[index] for index in range(max(map(len, slices))) for cuts in slices if index < len(cuts)])


def joined(parts: Sequence[dict[str, Array]]) -> tuple[dict[str, Array], list[int]]:
    """Return arrays of micro-batches joined along the batch axis, and the rows of each; an attention mask may have one row for all."""
    names = [name for name in parts[0] if all(name in part for part in parts)] if parts else []
    of_rows = [name for name in names if name != "attention_mask"]
    rows = [len(part[of_rows[0]]) for part in parts] if of_rows else []
    if "attention_mask" in names and any(len(part["attention_mask"]) > 1 for part in parts):
        for part, count in zip(parts, rows, strict=True):
            part["attention_mask"] = np.broadcast_to(part["attention_mask"], (count, *part["attention_mask"].shape[1:]))
    return {name: np.concatenate([part[name] for part in parts]) for name in names}, rows
