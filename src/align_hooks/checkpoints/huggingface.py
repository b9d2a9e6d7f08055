"""A Hugging Face directory: ``config.json`` and safetensors, in one file or in several with an index."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path

from align_hooks.checkpoints.checkpoint import KINDS, TORCH_NAMES, Checkpoint, LazyTensor, merged
from align_hooks.checkpoints.model import ConfiguredModel, open_model
from align_hooks.errors import RecordError, shown
from align_hooks.names.stacks import Stacks, StackSlot, slots, stacked, stacked_names
from align_hooks.record.format.digests import bytes_of
from align_hooks.record.format.files import TensorFile, read_json
from align_hooks.record.format.stored_tensor import head
from align_hooks.record.write import atomic

MODEL, INDEX = "model.safetensors", "model.safetensors.index.json"
LARGEST_FILE = 5 * 10**9
"""Most bytes of tensors in a file, unless a single tensor has more; Hugging Face's own limit."""
PASSED_OVER = ".rotary_emb.inv_freq"
"""Suffix of buffers of old checkpoints, which are no weights."""


def read_huggingface(path: Path, config: Path | None) -> Checkpoint:
    """Read a Hugging Face checkpoint; raises RecordError for an incomplete one, or one of no family."""
    model = open_model(path if config is None else config)
    tied = {model.family.output} if model.tied else set()  # some checkpoints keep a copy of the embedding under that name
    tensors = {name: tensor for name, tensor in tensors_of(path).items() if name not in tied and not name.endswith(PASSED_OVER)}
    return Checkpoint(path, "Hugging Face", model, unstacked(tensors, model.family.stacks))


def unstacked(tensors: Mapping[str, LazyTensor], stacks: Stacks) -> dict[str, LazyTensor]:
    """Return tensors with the pieces of each expert in the place of stacks."""
    places = slots({name: tensor.shape for name, tensor in tensors.items()}, stacks)
    read = lru_cache(maxsize=1)(lambda name: tensors[name].read())  # pieces are usually read one after the other

    def piece(slot: StackSlot) -> LazyTensor:
        whole = tensors[slot.stack]
        return LazyTensor(slot.shape(whole.shape), whole.kind, lambda: slot.cut(read(slot.stack)))

    gone = {slot.stack for slot in places.values()}
    kept = {name: tensor for name, tensor in tensors.items() if name not in gone}
    return kept | {name: piece(slot) for name, slot in places.items()}


def in_stacks(tensors: Mapping[str, LazyTensor], stacks: Stacks) -> dict[str, LazyTensor]:
    """Return tensors with stacks in the place of the pieces of each expert, the inverse of :func:`unstacked`."""
    made = stacked_names(tensors, stacks)

    def stack(experts: list[list[str]]) -> LazyTensor:
        first = tensors[experts[0][0]]
        shape = (len(experts), *first.shape[1:], first.shape[0] * len(experts[0]))
        return LazyTensor(shape, first.kind, lambda: stacked([tensors[name].read() for name in pieces] for pieces in experts))

    gone = {name for experts in made.values() for pieces in experts for name in pieces}
    kept = {name: tensor for name, tensor in tensors.items() if name not in gone}
    return kept | {name: stack(experts) for name, experts in made.items()}


def tensors_of(path: Path) -> dict[str, LazyTensor]:
    """Return name to tensor of a directory, by its index where there is one."""
    index = path / INDEX
    if not index.exists():
        return open_safetensors(path / MODEL)
    listed = read_json(index, within=path).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(home, str) for home in listed.values()):
        raise RecordError(f"{index} has no weight_map of names to files; copy it again")
    if (odd := next((home for home in listed.values() if Path(home).name != home or home in ("", ".", "..")), None)) is not None:
        why = "which is no file of its own directory; convert a checkpoint that you trust"
        raise RecordError(f"{index} names the file {shown(repr(odd))}, {why}")
    files = {home: open_safetensors(path / home) for home in sorted(set(listed.values()))}
    merged(files, path)
    for name, home in listed.items():
        if name not in files[home]:
            raise RecordError(f"{path / home} lacks {shown(name)}, which {INDEX} says it holds; copy the whole checkpoint")
    return {name: files[home][name] for name, home in listed.items()}


def open_safetensors(path: Path) -> dict[str, LazyTensor]:
    """Return name to tensor of a safetensors file; raises RecordError for a file cut short."""
    file = TensorFile(path, types=tuple(KINDS), remedy="copy the whole checkpoint again", within=path.parent)
    return {name: LazyTensor(file.shape(name), file.kind(name), partial(file.stored, name)) for name in file}


def write_huggingface(path: Path, model: ConfiguredModel, tensors: Mapping[str, LazyTensor], *, largest: int = LARGEST_FILE) -> None:
    """Write a checkpoint into a new directory."""
    path.mkdir()
    tensors = in_stacks(tensors, model.family.stacks)
    files: list[dict[str, LazyTensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if files[-1] and size + tensor.size > largest:
            files.append({})
            size = 0
        files[-1][name] = tensor
        size += tensor.size
    names = [MODEL] if len(files) == 1 else [f"model-{index:05}-of-{len(files):05}.safetensors" for index in range(1, len(files) + 1)]
    for name, of_file in zip(names, files, strict=True):
        write_safetensors(path / name, of_file, {"format": "pt"})
    if len(files) > 1:
        homes = {tensor: name for name, of_file in zip(names, files, strict=True) for tensor in of_file}
        size = sum(tensor.size for tensor in tensors.values())
        atomic.write_text(path / INDEX, json.dumps({"metadata": {"total_size": size}, "weight_map": homes}, indent=1))
    write_config(path, model, tensors)


def write_safetensors(path: Path, tensors: Mapping[str, LazyTensor], metadata: Mapping[str, str]) -> None:
    """Write a file of tensors, one after the other, and sync it."""
    with path.open("xb") as file:
        file.write(head(((name, tensor.kind, tensor.shape, tensor.size) for name, tensor in tensors.items()), metadata))
        for tensor in tensors.values():
            file.write(bytes_of(tensor.read()))
        file.flush()
        atomic.sync(file.fileno())


def write_config(path: Path, model: ConfiguredModel, tensors: Mapping[str, LazyTensor]) -> None:
    """Write ``config.json``, with the type of the tensors where all have the same."""
    kinds = {tensor.kind for tensor in tensors.values()}
    keys = ("torch_dtype", *(["dtype"] if "dtype" in model.config else [])) if len(kinds) == 1 else ()
    atomic.write_json(path / "config.json", {**model.config, **dict.fromkeys(keys, TORCH_NAMES[min(kinds)])})
