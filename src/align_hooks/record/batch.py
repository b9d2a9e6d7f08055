"""Batches of a step, put together from data-parallel ranks, recorded by us or made by hand with the guide's snippet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from align_hooks.errors import RecordError
from align_hooks.record import layout
from align_hooks.record.files import CHANGED, Array, read_array, read_json
from align_hooks.record.folder import inside
from align_hooks.record.pieces import digest, is_causal
from align_hooks.record.schema import Description, structured
from align_hooks.record.sequence import Slices, in_order

LONGEST = 1 << 17
"""Positions of the longest sequence of which a causal mask is made."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The global batch of one step, rows in the order micro-batch, data-parallel rank, row.

    ``tokens``, ``labels``, ``loss_mask``, ``position_ids`` are ``[rows, sequence]``. ``attention_mask`` is bool, True
    where attention is forbidden; None where the model was given none (a kernel made the causal one itself). ``rows`` is
    the number of rows of each micro-batch on each data-parallel rank. An array that was not recorded is None. ``slices`` are the
    positions of the sequence that each context-parallel rank had, empty where there was one. ``token_losses`` are what the model made
    of it: fp32 ``[rows, sequence]``, each token's loss before the mask.
    """

    step: int
    rows: tuple[tuple[int, ...], ...]
    tokens: Array | None = None
    labels: Array | None = None
    loss_mask: Array | None = None
    position_ids: Array | None = None
    attention_mask: Array | None = None
    causal: bool = True
    slices: tuple[Slices, ...] = ()
    token_losses: Array | None = None

    def arrays(self) -> dict[str, Array]:
        """What there is, by name."""
        found = ((name, getattr(self, name)) for name in layout.BATCH_ARRAYS)
        return {name: array for name, array in found if array is not None}


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What a batch is, without reading its arrays: sequence length, global rows, lowest and highest id that counts."""

    sequence: int
    rows: int
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class Part:
    """One rank's part of a batch; ``mask`` is what its batch.json says: None, causal or own.

    ``slices`` are the positions of the sequence that a context-parallel rank has, None for all; ``cuts`` those of all of them, in
    a part that was put together. ``micro_batches`` is how many the parts of all ranks are cut into once they are joined, None where
    each rank has its own; with ``whole`` each part is all of them.
    """

    rows: tuple[int, ...]
    arrays: dict[str, Array]
    mask: str | None
    slices: Slices | None = None
    cuts: tuple[Slices, ...] = ()
    micro_batches: int | None = None
    whole: bool = False

    @property
    def causal(self) -> bool:
        """Whether attention is the plain causal one."""
        return self.mask != "own"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a rank's batch lies in a ``run``, and the ``digest`` of its batch.json; None before format 2, and of a batch made by hand."""

    run: Path
    place: Path
    digest: str | None = None

    def array(self, name: str, file: str | None = None, *, headers_only: bool = False) -> Array:
        """One of its arrays; ``file`` is the digest of the file."""
        return read_array(inside(self.run, self.place / f"{name}.npy"), file, headers_only=headers_only)


def read_part(source: Source, names: Sequence[str] = layout.BATCH_ARRAYS) -> Part:
    """What a rank recorded, each array of ``names`` checked against its digest."""
    description = described(source)
    arrays = {}
    for name, stored in ((name, stored) for name, stored in description.arrays.items() if name in names):
        array = source.array(name, stored.file)
        fits = array.shape == stored.shape and str(array.dtype) == stored.dtype
        if not fits or (stored.file is None and digest(array) != stored.sha256):
            raise RecordError(f"{source.place / name}.npy {CHANGED}")
        arrays[name] = array
    mask = description.attention_mask if "attention_mask" in names else None
    first = description.joined_first
    joined = (None, False) if first is None else (first.micro_batches, first.whole)
    return Part(description.rows, arrays, mask, description.slices, (), *joined)


def merged(parts: Sequence[Part]) -> Part:
    """What ranks that were fed the same rows and positions saw together: tokens on one pipeline stage, labels on another."""
    arrays: dict[str, Array] = {}
    for part in reversed(parts):
        arrays |= part.arrays
    rows = next((part.rows for part in parts if part.rows), ())
    return replace(parts[0], rows=rows, arrays=arrays, mask=next((part.mask for part in parts if part.mask), None))


def in_sequence(parts: Sequence[Part], what: str) -> Part:
    """The part of a data-parallel rank, from those of its context-parallel ranks; raises RecordError where a slice is missing.

    Where batches are joined first, context-parallel ranks are fed the same whole sequences.
    """
    if len(parts) == 1 and parts[0].slices is None:
        return parts[0]
    if all(part.slices is None and part.micro_batches for part in parts):
        return merged(parts)
    if not all("token_losses" in part.arrays for part in parts):
        parts = [replace(part, arrays={name: array for name, array in part.arrays.items() if name != "token_losses"}) for part in parts]
    slices = [part.slices for part in parts if part.slices is not None]
    names = {name for part in parts for name in part.arrays}
    if len(slices) != len(parts) or any(names != part.arrays.keys() for part in parts):
        raise RecordError(f"{what}: a context-parallel rank recorded other arrays than the others; record the step again")
    arrays = {name: in_order([part.arrays[name] for part in parts], slices, f"{what}: {name}") for name in sorted(names)}
    causal = "attention_mask" in arrays and is_causal(arrays["attention_mask"])
    return Part(parts[0].rows, arrays, "causal" if causal else parts[0].mask, cuts=tuple(slices))


def described(source: Source) -> Description:
    """A rank's description of its batch."""
    path = source.place / layout.BATCH
    return structured(Description, read_json(inside(source.run, path), source.digest), path)


def read_part_by_hand(source: Source) -> Part:
    """What the guide's snippet left for a rank, which is then data-parallel rank."""
    place = source.place
    arrays = {name: source.array(name) for name in layout.FED if (place / f"{name}.npy").exists()}
    for name in ("tokens", "labels"):
        if name not in arrays:
            raise RecordError(f"{place / name}.npy is missing; the guide's snippet writes tokens and labels for every rank")
    shape = arrays["tokens"].shape
    for name in ("tokens", "labels", "loss_mask", "position_ids"):
        if name in arrays and (len(shape) != 2 or arrays[name].shape != shape):
            raise RecordError(f"{place / name}.npy is {list(arrays[name].shape)}; it must be [rows, sequence] as the tokens are")
        if name in arrays and name != "loss_mask" and arrays[name].dtype.kind not in "iu":
            raise RecordError(f"{place / name}.npy is {arrays[name].dtype}; ids are integers")
    if "loss_mask" in arrays and not (np.isfinite(arrays["loss_mask"]).all() and (arrays["loss_mask"] >= 0).all()):
        raise RecordError(f"{place / 'loss_mask.npy'} holds what is no weight of a token")
    mask = arrays.get("attention_mask")
    if mask is not None and (mask.ndim != 4 or mask.shape[2:] != (shape[1], shape[1])):
        raise RecordError(f"{place / 'attention_mask.npy'} is {list(mask.shape)}; it must be [rows or 1, 1, sequence, sequence]")
    if mask is not None:
        arrays["attention_mask"] = mask.astype(bool)
    own = mask is not None and not is_causal(arrays["attention_mask"])
    return Part((len(arrays["tokens"]),), arrays, "own" if own else None)


def _own_mask(part: Part) -> Array:
    """A part's attention mask, one a row; the causal one where it has none of its own."""
    size = part.arrays["tokens"].shape[1]
    mask = part.arrays.get("attention_mask", ~np.tri(size, dtype=bool)[None, None])
    return np.broadcast_to(mask, (sum(part.rows), *mask.shape[1:]))


def join(step: int, parts: list[Part]) -> Batch:
    """The global batch of all data-parallel parts.

    Raises RecordError where the rows that were joined first are not cut into equal micro-batches.
    """
    parts = parts[:1] if parts and parts[0].whole else parts
    causal = all(part.causal for part in parts)
    arrays: dict[str, Array] = {}
    for name in layout.BATCH_ARRAYS:
        if name == "attention_mask":
            continue
        pieces = [part.arrays.get(name) for part in parts]
        if name == "token_losses" and any(piece is None for piece in pieces):  # an extra, of some ranks' making only
            continue
        if any(piece is not None for piece in pieces):
            arrays[name] = _interleave([_required(piece, name, step) for piece in pieces], [part.rows for part in parts])
    if not causal or any("attention_mask" in part.arrays for part in parts):
        arrays["attention_mask"] = _interleave([_own_mask(part) for part in parts], [part.rows for part in parts])
    elif arrays and parts[0].mask == "causal":
        arrays["attention_mask"] = _causal(next(int(array.shape[1]) for array in arrays.values()), step)
    rows = tuple(part.rows for part in parts)
    micro_batches = parts[0].micro_batches if parts else None
    if micro_batches is not None:
        size, left_over = divmod(sum(map(sum, rows)), micro_batches)
        if left_over:
            raise RecordError(f"step {step}: {sum(map(sum, rows))} rows are no {micro_batches} equal micro-batches; record the step again")
        rows = ((size,) * micro_batches,)
    return Batch(step, rows, causal=causal, slices=parts[0].cuts if parts else (), **arrays)


def _causal(sequence: int, step: int) -> Array:
    """The causal mask of a sequence; raises RecordError where it is larger than a host holds."""
    if sequence > LONGEST:
        raise RecordError(
            f"step {step}: the attention mask of {sequence} positions is larger than {LONGEST**2 >> 30} GiB; replay another run"
        )
    return ~np.tri(sequence, dtype=bool)[None, None]


def _interleave(pieces: list[Array], rows: list[tuple[int, ...]]) -> Array:
    """Join the arrays of data-parallel ranks, each with its row counts, as micro-batch, data-parallel rank, row."""
    if len(pieces) == 1:
        return pieces[0]
    slices = [np.split(piece, np.cumsum(counts)[:-1]) for piece, counts in zip(pieces, rows, strict=True)]
    return np.concatenate([one[index] for index in range(max(map(len, slices))) for one in slices if index < len(one)])


def _required(piece: Array | None, name: str, step: int) -> Array:
    if piece is None:
        raise RecordError(f"step {step}: {name} is recorded by some data-parallel ranks and not by others; record the step again")
    return piece


def joined(parts: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], list[int]]:
    """Arrays of micro-batches joined along the batch axis, and each one's rows. An attention mask may have one row for all."""
    names = [name for name in parts[0] if all(name in part for part in parts)] if parts else []
    of_rows = [name for name in names if name != "attention_mask"]
    rows = [len(part[of_rows[0]]) for part in parts] if of_rows else []
    if "attention_mask" in names and any(len(part["attention_mask"]) > 1 for part in parts):
        for part, count in zip(parts, rows, strict=True):
            part["attention_mask"] = np.broadcast_to(part["attention_mask"], (count, *part["attention_mask"].shape[1:]))
    return {name: np.concatenate([part[name] for part in parts]) for name in names}, rows
