"""Megatron-LM's ``torch_dist`` checkpoints: ``.metadata`` lists chunks of tensors, which ``*.distcp`` hold.

A chunk is an archive of ``torch.save`` within a file. Shapes are of global tensors, independent of the ranks: layers and experts are axes
in front of a parameter's own, unless the model keeps them separate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from align_hooks.checkpoints.checkpoint import Checkpoint, FrameworkTensor, FrameworkTensors
from align_hooks.checkpoints.kinds import KINDS, TORCH_NAMES
from align_hooks.checkpoints.megatron import ALLOWED, notes_of
from align_hooks.checkpoints.model import ConfiguredModel, of_arguments, open_model
from align_hooks.checkpoints.pickles import Class, Object, classes, read_pickle
from align_hooks.checkpoints.torch_zip import TorchArchive, TorchTensor, arguments
from align_hooks.errors import RecordError, RefusedRun, shown
from align_hooks.record.format.files import in_words, read_json, readable
from align_hooks.record.format.layout import Array
from align_hooks.regular import read_regular

METADATA, COMMON, KIND = ".metadata", "common.pt", "metadata.json"
CLASSES = classes("distributed")
OTHERS = re.compile(
    r"(chained_\d+\.)?(optimizer|opt_param_scheduler|rng_state|rerun_state_machine_state|common_state|dataloader_state)\b.*|.*\._extra_state.*"
)
"""Names of other content of a checkpoint than weights."""
IN_LAYERS = re.compile(r"((?:decoder|mtp)\.layers\.)(?!\d)(.*)")
IN_EXPERTS = re.compile(r"(.*\.mlp\.experts\.)experts\.(\d+\.)?(.*)")
CELLS = 1 << 22
"""Most cells into which the edges of chunks cut a parameter."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A box of a global tensor, and the place of its numbers."""

    begin: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class _Global:
    """A global tensor of the checkpoint, layers and experts stacked."""

    name: str
    shape: tuple[int, ...]
    kind: str
    chunks: tuple[_Chunk, ...]


def read_torch_dist(path: Path, config: Path | None) -> Checkpoint:
    """Read a ``torch_dist`` checkpoint; raises RecordError for a missing chunk, or a file cut short."""
    backend = read_json(path / KIND, within=path).get("sharded_backend") if (path / KIND).exists() else "torch_dist"
    if backend != "torch_dist":
        raise RecordError(f"{path} was saved as {shown(str(backend))}; save it with --ckpt-format torch_dist")
    metadata = _metadata(path)
    wholes = list(_wholes(metadata, path))
    rows = next((whole.shape[0] for whole in wholes if whole.name.endswith("word_embeddings.weight") and whole.shape), None)
    args = {} if config is not None else _arguments(metadata, path)
    model = open_model(config) if config is not None else of_arguments(args, rows, path)
    tensors = _parameters(wholes, model, rows, path).tensors()
    return Checkpoint(path, "Megatron-LM, torch_dist", model, tensors, notes_of(args, model, config))


def _metadata(path: Path) -> Object:
    file = path / METADATA
    with readable(file, "; copy it again"):
        value = read_pickle(read_regular(file, within=path), CLASSES, file)
    if not isinstance(value, Object) or not all(isinstance(value.state.get(key), dict) for key in ("state_dict_metadata", "storage_data")):
        raise RecordError(f"{file} is no metadata of a distributed checkpoint; copy it again")
    return value


def _places(metadata: Object, path: Path) -> Iterator[tuple[tuple[str, tuple[int, ...] | None], tuple[str, int, int]]]:
    """Yield name and offset of a chunk, with its file, offset and length; raises RecordError for a file of another directory."""
    for index, place in metadata.state["storage_data"].items():
        name, offset = index.state["fqn"], index.state.get("offset")
        file, begin, length = (place.state[key] for key in ("relative_path", "offset", "length"))
        if not isinstance(file, str) or Path(file).name != file or file in ("", ".", ".."):
            why = "which is none of its own directory; convert one that you trust"
            raise RecordError(f"{path / METADATA} names the file {shown(repr(file))}, {why}")
        if place.state.get("transform_descriptors"):
            raise RecordError(f"{path}: {shown(str(name))} is compressed; save it without extensions")
        begin, length = _sizes((begin, length))
        yield (str(name), None if offset is None else _sizes(offset)), (file, begin, length)


def _refuse_shared(places: Mapping[tuple[str, tuple[int, ...] | None], tuple[str, int, int]], path: Path) -> None:
    """Raise RecordError for two chunks on the same bytes."""
    ordered = sorted((place, name) for (name, _), place in places.items())
    for ((file, offset, length), one), ((next_file, begin, _), other) in pairwise(ordered):
        if file == next_file and begin < offset + length:
            raise RecordError(f"{path / file}: chunks of {shown(one)} and {shown(other)} lie on the same bytes; copy the checkpoint again")


def _sizes(numbers: Any) -> tuple[int, ...]:
    if not all(isinstance(number, int) and 0 <= number < 1 << 48 for number in numbers):
        raise ValueError("a size is no number")
    return tuple(numbers)


def _wholes(metadata: Object, path: Path) -> Iterator[_Global]:
    try:
        places = dict(_places(metadata, path))
        _refuse_shared(places, path)
        for name, described in metadata.state["state_dict_metadata"].items():
            if described.of.name != "TensorStorageMetadata" or OTHERS.fullmatch(str(name)):
                continue
            shape = _sizes(described.state["size"])
            chunks = tuple(_chunks(str(name), described.state["chunks"], shape, places, path))
            yield _Global(str(name), shape, _kind(described.state["properties"]), chunks)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RecordError(f"{path / METADATA} contradicts itself ({shown(in_words(error))}); copy it again") from None


def _kind(properties: Object) -> str:
    """Return the type of a tensor, by our name for a type of weights."""
    state = properties.state.get("", ())  # a tuple, whose first member is the type
    dtype = properties.state.get("dtype", state[0] if state else None)
    name = dtype.name if isinstance(dtype, Class) else "?"
    return next((kind for kind, torch in TORCH_NAMES.items() if torch == name), name)


def _chunks(name: str, listed: Sequence[Object], shape: tuple[int, ...], places: Mapping[Any, Any], path: Path) -> Iterator[_Chunk]:
    for chunk in listed:
        begin, sizes = _sizes(chunk.state["offsets"]), _sizes(chunk.state["sizes"])
        if len(begin) != len(shape) or len(sizes) != len(shape) or any(a + b > c for a, b, c in zip(begin, sizes, shape, strict=True)):
            raise ValueError(f"a chunk of {name} is outside it")
        if (name, begin) not in places:
            raise RecordError(f"{path / METADATA} does not say where the chunk {list(begin)} of {shown(name)} is; copy it again")
        file, offset, length = places[name, begin]
        there = (path / file).stat().st_size if (path / file).is_file() else None
        if there is None or offset + length > there:
            why = "is missing" if there is None else f"ends at {there}, before the chunk {list(begin)} of {shown(name)}"
            raise RecordError(f"{path / file} {why}; copy the whole checkpoint")
        yield _Chunk(begin, sizes, file, offset, length)


def _arguments(metadata: Object, path: Path) -> Mapping[str, Any]:
    """Return Megatron-LM's arguments, in ``common.pt`` or, since 0.19, among the chunks."""
    if (path / COMMON).exists():
        found: object = TorchArchive(path / COMMON, ALLOWED).value
    else:
        place = next((place for (name, _), place in _places(metadata, path) if name.startswith("common_state")), None)
        found = {} if place is None else TorchArchive(path / place[0], ALLOWED, place[1], place[2]).value
        found = found[0] if isinstance(found, list) and found else found
    return (arguments(found.get("args")) if isinstance(found, dict) else None) or {}


def _parameters(wholes: Sequence[_Global], model: ConfiguredModel, rows: int | None, path: Path) -> FrameworkTensors:
    dims, parameters = model.dims(rows), FrameworkTensors(path)
    for whole in wholes:
        places = _natives(whole, model)
        chunks_at = _by_index(whole, len(places[0][1]) if places else 0)
        for native, index in places:
            shape = whole.shape[len(index) :]
            try:
                fused = model.family.megatron.fused(native, shape, dims)
            except RefusedRun as error:
                raise RecordError(f"{path}: {error}") from None
            if fused is None or (model.tied and fused.pieces[:1] == (model.family.output,)):
                continue
            chunks = chunks_at.get(index, [])
            _refuse_gaps(native, shape, [(chunk.begin[len(index) :], chunk.sizes[len(index) :]) for chunk in chunks], path)
            parameters.add(FrameworkTensor(fused, whole.kind, partial(_read, path, whole, index, chunks), shown(whole.name)))
    return parameters


def _natives(whole: _Global, model: ConfiguredModel) -> list[tuple[str, tuple[int, ...]]]:
    """Return the name of each parameter in a global tensor, with its index on the first axes."""
    layers, experts = IN_LAYERS.fullmatch(whole.name), IN_EXPERTS.fullmatch(whole.name)
    axes = ["layer"] * (layers is not None) + ["expert"] * (experts is not None and experts[2] is None)
    most = {"layer": model.layers, "expert": model.experts}
    lengths = whole.shape[: len(axes)]
    if len(lengths) < len(axes) or any(length > most[axis] for axis, length in zip(axes, lengths, strict=True)):
        return [(whole.name, ())]  # a name that is refused
    if math.prod(lengths) > CELLS:
        raise RecordError(f"{shown(whole.name)} is of {' x '.join(map(str, lengths))} parameters, more than any model has; copy it again")
    places = [(dict(zip(axes, index, strict=True)), index) for index in product(*map(range, lengths))]
    return [(_native(whole.name, numbers), index) for numbers, index in places]


def _native(name: str, numbers: Mapping[str, int]) -> str:
    """Return a parameter's own name, with the numbers of its layer and its expert."""
    if "layer" in numbers:
        name = IN_LAYERS.sub(lambda match: f"{match[1]}{numbers['layer']}.{match[2]}", name)
    own = f"{numbers['expert']}." if "expert" in numbers else None
    return IN_EXPERTS.sub(lambda match: f"{match[1]}local_experts.{own or match[2]}{match[3]}", name)


def _by_index(whole: _Global, depth: int) -> dict[tuple[int, ...], list[_Chunk]]:
    """Return index on the first axes to the chunks of the parameter there."""
    found: dict[tuple[int, ...], list[_Chunk]] = {}
    if sum(math.prod(chunk.sizes[:depth]) for chunk in whole.chunks) > CELLS:
        raise RecordError(f"the chunks of {shown(whole.name)} are of more parameters than any model has; copy the checkpoint again")
    for chunk in whole.chunks:
        ranges = (range(begin, begin + size) for begin, size in zip(chunk.begin[:depth], chunk.sizes[:depth], strict=True))
        for index in product(*ranges):
            found.setdefault(index, []).append(chunk)
    return found


def _refuse_gaps(native: str, shape: tuple[int, ...], boxes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], path: Path) -> None:
    """Raise RecordError unless the boxes cover each element of a parameter once."""
    edges = [sorted({0, length, *(begin[axis] for begin, _ in boxes)}) for axis, length in enumerate(shape)]
    cells = math.prod(len(of_axis) for of_axis in edges)
    if cells > CELLS:
        raise RecordError(f"{path}: {shown(native)} is in {len(boxes)} chunks, more than any checkpoint has; copy it again")
    where = [{edge: place for place, edge in enumerate(of_axis)} for of_axis in edges]
    covered = np.zeros([len(of_axis) - 1 for of_axis in edges], np.int32)
    elements = 0
    for begin, sizes in boxes:
        stops = [a + b for a, b in zip(begin, sizes, strict=True)]
        if not all(stop in of_axis for stop, of_axis in zip(stops, where, strict=True)):
            elements = -1
            break
        covered[tuple(slice(of_axis[a], of_axis[b]) for of_axis, a, b in zip(where, begin, stops, strict=True))] += 1
        elements += math.prod(sizes)
    if elements != math.prod(shape) or not (covered == 1).all():
        raise RecordError(f"{path}: the chunks of {shown(native)} overlap or are not all there; copy the whole checkpoint")


def _read(path: Path, whole: _Global, index: tuple[int, ...], chunks: Sequence[_Chunk]) -> Array:
    shape, depth = whole.shape[len(index) :], len(index)
    if len(chunks) == 1:
        return _part(path, whole, index, chunks[0])
    result = np.empty(shape, KINDS[whole.kind])
    for chunk in chunks:
        box = tuple(slice(begin, begin + size) for begin, size in zip(chunk.begin[depth:], chunk.sizes[depth:], strict=True))
        result[box] = _part(path, whole, index, chunk)
    return result


def _part(path: Path, whole: _Global, index: tuple[int, ...], chunk: _Chunk) -> Array:
    """Return a chunk's part of the parameter at an index."""
    tensor = TorchArchive(path / chunk.file, (), chunk.offset, chunk.length).value
    if not isinstance(tensor, TorchTensor) or tensor.shape != chunk.sizes or tensor.kind != whole.kind:
        what = f"the chunk {list(chunk.begin)} of {shown(whole.name)}"
        raise RecordError(f"{path / chunk.file}: {what} is not what .metadata says; copy it again")
    depth, size = len(index), math.prod(chunk.sizes[len(index) :])
    place = 0
    for at, begin, length in zip(index, chunk.begin[:depth], chunk.sizes[:depth], strict=True):
        place = place * length + at - begin
    return tensor.rows(place * size, (place + 1) * size).reshape(chunk.sizes[depth:])
