"""The files of a step besides rows: batch and tensors. Each writer returns the digests for the step's row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from align_hooks.errors import RecordError
from align_hooks.quantities import activations
from align_hooks.record.format import digests, folder, layout
from align_hooks.record.format.batch_arrays import id_range, is_causal
from align_hooks.record.format.files import DIGESTS, EMPTY
from align_hooks.record.format.layout import Array, JsonObject
from align_hooks.record.format.stored_tensor import STORED, head
from align_hooks.record.write import atomic


class StepBatch(Struct, frozen=True):
    """One rank's batch of a step, its micro-batches joined along the batch axis."""

    arrays: Mapping[str, Array]
    """``[rows, sequence]`` by name; the attention mask is bool ``[rows or 1, 1, sequence, sequence]``, True where forbidden."""
    rows: Sequence[int]
    """Rows of each micro-batch."""
    slices: Sequence[Sequence[int]] | None = None
    """Positions [start, stop) of the sequence that a context-parallel rank has; None for all."""
    joined_first: Mapping[str, object] | None = None
    """Members of :class:`.descriptions.JoinedFirst` where data-parallel ranks' rows form one batch that is then cut; else None."""
    experts: Mapping[str, Sequence[int]] | None = None
    """Name of a layer's router to the number of this rank's tokens on each expert."""


class StepChoices(Struct, frozen=True):
    """The experts of one rank's tokens of a step."""

    experts: Mapping[str, Array]
    """Name of a layer's router to int16 ``[rows, positions, experts a token]``."""
    rows: Sequence[int]
    """Rows of each micro-batch."""
    slices: Sequence[Sequence[int]] | None = None
    """Positions [start, stop) that this rank routes; None for all."""


class StepActivations(Struct, frozen=True):
    """The values of one rank's points in a step."""

    sums: Mapping[str, Array]
    """fp64 ``[micro-batches, NUMBERS]`` by the name of a point or of its gradient."""
    tensors: Mapping[str, Array]
    """fp32 ``[rows, positions, columns]`` of the points with full tensors."""
    points: Mapping[str, object]
    """The members of :class:`.descriptions.ActivationHeader`."""


def write_batch(run: Path, step: int, rank: int, batch: StepBatch, segment: str | None = None) -> dict[str, str]:
    """Write a batch; ``batch.json``, with the digests of the arrays, comes last and commits the batch."""
    place, arrays = folder.make(run, layout.step(run, step, rank)), batch.arrays
    facts: JsonObject = {"rows": list(batch.rows), "arrays": {}, "attention_mask": None, "ids": id_range(arrays)}
    optional = {"slices": batch.slices, "joined_first": batch.joined_first, "experts": batch.experts or None, "segment": segment}
    facts |= {key: value for key, value in optional.items() if value is not None}
    for name in layout.BATCH_ARRAYS:
        if name not in arrays:
            continue
        array = arrays[name]
        if name == "attention_mask":
            facts["attention_mask"] = "causal" if is_causal(array) else "own"
            if facts["attention_mask"] == "causal":  # once a run, for other readers: ours computes it
                if rank == 0 and not layout.causal_mask(run).exists():
                    atomic.write_array(layout.causal_mask(run), array[:1])
                continue
        written = atomic.write_array(place / f"{name}.npy", array)
        facts["arrays"][name] = {"dtype": str(array.dtype), "shape": list(array.shape), "sha256": sha256(array), "file": written}
    return {layout.BATCH: atomic.write_json(place / layout.BATCH, facts)}


def write_tensors(run: Path, step: int, rank: int, name: str, tensors: Mapping[str, Array], segment: str | None = None) -> str:
    """Write one rank's fp32 tensors of a step as safetensors; raises RecordError for another dtype."""
    return _write_safetensors(run, layout.step(run, step, rank) / name, tensors, np.float32, {"segment": segment})


def write_routing(run: Path, step: int, rank: int, choices: StepChoices, segment: str | None = None) -> dict[str, str]:
    """Write the experts of tokens."""
    cuts = None if choices.slices is None else json.dumps(choices.slices)
    facts = {"rows": json.dumps(choices.rows), "slices": cuts, "segment": segment}
    path = layout.step(run, step, rank) / layout.CHOICES
    return {layout.CHOICES: _write_safetensors(run, path, choices.experts, np.int16, facts)}


def write_activations(run: Path, step: int, rank: int, made: StepActivations, segment: str | None = None) -> dict[str, str]:
    """Write the values of points; the sums come last and commit the step's activations."""
    place, written = layout.step(run, step, rank), {}
    if made.tensors:
        written[activations.TENSORS] = _write_safetensors(run, place / activations.TENSORS, made.tensors, np.float32, {"segment": segment})
    facts = {key: json.dumps(value) for key, value in made.points.items()} | {"segment": segment}
    written[activations.SUMS] = _write_safetensors(run, place / activations.SUMS, made.sums, np.float64, facts)
    return written


def _write_safetensors(run: Path, path: Path, tensors: Mapping[str, Array], dtype: type, facts: Mapping[str, str | None]) -> str:
    """Write tensors with the ``facts`` that are not None in the header; return the header's digest."""
    wrong = [key for key, tensor in tensors.items() if tensor.dtype != dtype]
    if wrong:
        raise RecordError(f"{path.name}: {wrong[0]} is {tensors[wrong[0]].dtype}, a record keeps {np.dtype(dtype)}")
    contiguous = {key: np.ascontiguousarray(tensor) for key, tensor in tensors.items()}
    folder.make(run, path.parent)
    metadata = {"format": "pt", DIGESTS: json.dumps({key: digests.xxh3(tensor) for key, tensor in contiguous.items()})}
    metadata |= {key: value for key, value in facts.items() if value is not None}
    kind = next(kind for kind, stored in STORED.items() if np.dtype(stored) == dtype)
    before = head(((key, kind, tensor.shape, tensor.nbytes) for key, tensor in contiguous.items()), metadata) if contiguous else EMPTY

    def write(temporary: Path) -> str:
        atomic.write_buffers(temporary, [before, *map(digests.bytes_of, contiguous.values())])
        return digests.xxh3(before)

    return atomic.replace(path, write)


def sha256(array: Array) -> str:
    """Return the SHA-256 of an array's bytes in C order, for comparisons of two runs' batches."""
    return hashlib.sha256(digests.bytes_of(array)).hexdigest()
