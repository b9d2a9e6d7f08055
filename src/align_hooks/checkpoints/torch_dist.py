"""Megatron-LM's ``torch_dist`` checkpoints: ``.metadata`` lists chunks of tensors, which ``*.distcp`` hold.

A chunk is an archive of ``torch.save`` within a file. Shapes are of global tensors, independent of the ranks: layers and experts are axes
in front of a parameter's own, unless the model keeps them separate.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct

from align_hooks.checkpoints.checkpoint import KINDS, TORCH_NAMES, Checkpoint, FrameworkTensor, joined
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
_Key: TypeAlias = tuple[str, tuple[int, ...] | None]
"""Name of a global tensor, and the offset of a chunk; None for what is no tensor."""
_Place: TypeAlias = tuple[str, int, int]
"""File of a chunk, its first byte, and its length."""


class _Chunk(Struct, frozen=True):
    """A box of a global tensor, and the place of its numbers."""

    begin: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    offset: int
    length: int


class _Global(Struct, frozen=True):
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
    file = path / METADATA
    with readable(file, "; copy it again"):
        metadata = read_pickle(read_regular(file, within=path), CLASSES, file)
    keys = ("state_dict_metadata", "storage_data")
    if not isinstance(metadata, Object) or not all(isinstance(metadata.state.get(key), dict) for key in keys):
        raise RecordError(f"{file} is no metadata of a distributed checkpoint; copy it again")
    try:
        places = dict(_places(metadata.state["storage_data"], path))
        _refuse_shared(places, path)
        tensors = list(_tensors(metadata.state["state_dict_metadata"], places, path))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RecordError(f"{file} contradicts itself ({shown(in_words(error))}); copy it again") from None
    rows = next((one.shape[0] for one in tensors if one.name.endswith("word_embeddings.weight") and one.shape), None)
    args = {} if config is not None else _arguments(places, path)
    model = open_model(config) if config is not None else of_arguments(args, rows, path)
    weights = joined(_parameters(tensors, model, rows, path), path)
    return Checkpoint(path, "Megatron-LM, torch_dist", model, weights, notes_of(args, model, config))


def _places(listed: Mapping[Any, Any], path: Path) -> Iterator[tuple[_Key, _Place]]:
    """Yield name and offset of a chunk, with its file, offset and length; raises RecordError for a file of another directory."""
    for index, place in listed.items():
        name, offset = index.state["fqn"], index.state.get("offset")
        file, begin, length = (place.state[key] for key in ("relative_path", "offset", "length"))
        if not isinstance(file, str) or Path(file).name != file or file in ("", ".", ".."):
            why = "which is none of its own directory; convert one that you trust"
            raise RecordError(f"{path / METADATA} names the file {shown(repr(file))}, {why}")
        if place.state.get("transform_descriptors"):
            raise RecordError(f"{path}: {shown(str(name))} is compressed; save it without extensions")
        begin, length = _sizes((begin, length))
        yield (str(name), None if offset is None else _sizes(offset)), (file, begin, length)


def _refuse_shared(places: Mapping[_Key, _Place], path: Path) -> None:
    ordered = sorted((place, name) for (name, _), place in places.items())
    for ((file, offset, length), one), ((next_file, begin, _), other) in pairwise(ordered):
        if file == next_file and begin < offset + length:
            raise RecordError(f"{path / file}: chunks of {shown(one)} and {shown(other)} lie on the same bytes; copy the checkpoint again")


def _sizes(numbers: Any) -> tuple[int, ...]:
    if not all(isinstance(number, int) and 0 <= number < 1 << 48 for number in numbers):
        raise ValueError("a size is no number")
    return tuple(numbers)


def _tensors(listed: Mapping[Any, Any], places: Mapping[_Key, _Place], path: Path) -> Iterator[_Global]:
    for key, described in listed.items():
        name = str(key)
        if described.of.name != "TensorStorageMetadata" or OTHERS.fullmatch(name):
            continue
        shape = _sizes(described.state["size"])
        chunks = tuple(_chunk(name, chunk, shape, places, path) for chunk in described.state["chunks"])
        properties = described.state["properties"].state
        state = properties.get("", ())  # a tuple, whose first member is the type
        dtype = properties.get("dtype", state[0] if state else None)
        torch_name = dtype.name if isinstance(dtype, Class) else "?"
        yield _Global(name, shape, next((kind for kind, torch in TORCH_NAMES.items() if torch == torch_name), torch_name), chunks)


def _chunk(name: str, chunk: Object, shape: tuple[int, ...], places: Mapping[_Key, _Place], path: Path) -> _Chunk:
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
    return _Chunk(begin, sizes, file, offset, length)


def _arguments(places: Mapping[_Key, _Place], path: Path) -> Mapping[str, Any]:
    """Return Megatron-LM's arguments, in ``common.pt`` or, since 0.19, among the chunks."""
    if (path / COMMON).exists():
        found: object = TorchArchive(path / COMMON, ALLOWED).value
    else:
        place = next((place for (name, _), place in places.items() if name.startswith("common_state")), None)
        found = {} if place is None else TorchArchive(path / place[0], ALLOWED, place[1], place[2]).value
        found = found[0] if isinstance(found, list) and found else found
    return (arguments(found.get("args")) if isinstance(found, dict) else None) or {}


def _parameters(tensors: Sequence[_Global], model: ConfiguredModel, rows: int | None, path: Path) -> Iterator[FrameworkTensor]:
    dims = model.dims(rows)
    for tensor in tensors:
        natives = _natives(tensor, model)
        chunks_at = _by_index(tensor, len(next(iter(natives), ())))
        for index, native in natives.items():
            shape = tensor.shape[len(index) :]
            try:
                fused = model.family.megatron.fused(native, shape, dims)
            except RefusedRun as error:
                raise RecordError(f"{path}: {error}") from None
            if fused is None or (model.tied and fused.pieces[:1] == (model.family.output,)):
                continue
            chunks = chunks_at[index]
            _refuse_gaps(native, shape, [(chunk.begin[len(index) :], chunk.sizes[len(index) :]) for chunk in chunks], path)
            yield FrameworkTensor(fused, tensor.kind, partial(_read, path, tensor, index, chunks), shown(tensor.name))


def _natives(tensor: _Global, model: ConfiguredModel) -> dict[tuple[int, ...], str]:
    """Return the index on the first axes to the name of each parameter in a global tensor."""
    layers, experts = IN_LAYERS.fullmatch(tensor.name), IN_EXPERTS.fullmatch(tensor.name)
    most = {"layer": model.layers} if layers is not None else {}
    most |= {"expert": model.experts} if experts is not None and experts[2] is None else {}
    lengths = tensor.shape[: len(most)]
    if len(lengths) < len(most) or any(length > limit for limit, length in zip(most.values(), lengths, strict=True)):
        return {(): tensor.name}  # a name that is refused
    if math.prod(lengths) > CELLS:
        raise RecordError(f"{shown(tensor.name)} is of {' x '.join(map(str, lengths))} parameters, more than any model has; copy it again")
    indices = product(*map(range, lengths))
    return {index: _native(tensor.name, dict(zip(most, index, strict=True))) for index in indices}


def _native(name: str, numbers: Mapping[str, int]) -> str:
    """Return a parameter's own name, with the numbers of its layer and its expert."""
    if "layer" in numbers:
        name = IN_LAYERS.sub(lambda match: f"{match[1]}{numbers['layer']}.{match[2]}", name)
    own = f"{numbers['expert']}." if "expert" in numbers else None
    return IN_EXPERTS.sub(lambda match: f"{match[1]}local_experts.{own or match[2]}{match[3]}", name)


def _by_index(tensor: _Global, depth: int) -> Mapping[tuple[int, ...], list[_Chunk]]:
    """Return index on the first axes to the chunks of the parameter there."""
    found: dict[tuple[int, ...], list[_Chunk]] = defaultdict(list)
    if sum(math.prod(chunk.sizes[:depth]) for chunk in tensor.chunks) > CELLS:
        raise RecordError(f"the chunks of {shown(tensor.name)} are of more parameters than any model has; copy the checkpoint again")
    for chunk in tensor.chunks:
        ranges = (range(begin, begin + size) for begin, size in zip(chunk.begin[:depth], chunk.sizes[:depth], strict=True))
        for index in product(*ranges):
            found[index].append(chunk)
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


def _read(path: Path, tensor: _Global, index: tuple[int, ...], chunks: Sequence[_Chunk]) -> Array:
    depth = len(index)
    if len(chunks) == 1:
        return _part(path, tensor, index, chunks[0])
    result = np.empty(tensor.shape[depth:], KINDS[tensor.kind])
    for chunk in chunks:
        box = tuple(slice(begin, begin + size) for begin, size in zip(chunk.begin[depth:], chunk.sizes[depth:], strict=True))
        result[box] = _part(path, tensor, index, chunk)
    return result


def _part(path: Path, tensor: _Global, index: tuple[int, ...], chunk: _Chunk) -> Array:
    stored = TorchArchive(path / chunk.file, (), chunk.offset, chunk.length).value
    if not isinstance(stored, TorchTensor) or stored.shape != chunk.sizes or stored.kind != tensor.kind:
        what = f"the chunk {list(chunk.begin)} of {shown(tensor.name)}"
        raise RecordError(f"{path / chunk.file}: {what} is not what .metadata says; copy it again")
    depth, size = len(index), math.prod(chunk.sizes[len(index) :])
    place = 0
    for at, begin, length in zip(index, chunk.begin[:depth], chunk.sizes[:depth], strict=True):
        place = place * length + at - begin
    return stored.rows(place * size, (place + 1) * size).reshape(chunk.sizes[depth:])
