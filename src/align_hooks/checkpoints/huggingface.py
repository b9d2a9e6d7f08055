"""A Hugging Face directory: ``config.json`` and safetensors, in one file or in several with an index."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from align_hooks.checkpoints.checkpoint import Checkpoint, TensorOnDisk, each_once
from align_hooks.checkpoints.kinds import TORCH_NAMES
from align_hooks.checkpoints.model import ConfiguredModel, open_model
from align_hooks.checkpoints.safetensors import Output, open_files, write_safetensors
from align_hooks.errors import RecordError, shown
from align_hooks.record.format.files import TensorFile, read_json
from align_hooks.record.write import atomic

MODEL, INDEX = "model.safetensors", "model.safetensors.index.json"
LARGEST_FILE = 5 * 10**9
"""Most bytes of tensors in a file, unless a single tensor has more; Hugging Face's own limit."""
PASSED_OVER = ".rotary_emb.inv_freq"
"""Suffix of buffers of old checkpoints, which are no weights."""


def read_huggingface(path: Path, config: Path | None) -> Checkpoint:
    """Read a Hugging Face checkpoint; raises RecordError for an incomplete one, or one of no family."""
    model = open_model(path if config is None else config)
    homes = tensors_of(path)
    tied = {model.family.output} if model.tied else set()  # some checkpoints keep a copy of the embedding under that name
    names = [name for name in homes if name not in tied and not name.endswith(PASSED_OVER)]
    return Checkpoint(path, "Hugging Face", model, {name: stored(homes[name], name) for name in names})


def tensors_of(path: Path) -> dict[str, TensorFile]:
    """Return name to file of every tensor in a directory, by its index where there is one."""
    index = path / INDEX
    if not index.exists():
        return {name: file for file in open_files([path / MODEL]) for name in file}
    listed = read_json(index, within=path).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(home, str) for home in listed.values()):
        raise RecordError(f"{index} has no weight_map of names to files; copy it again")
    odd = next((home for home in listed.values() if Path(home).name != home or home in ("", ".", "..")), None)
    if odd is not None:
        why = "which is no file of its own directory; convert a checkpoint that you trust"
        raise RecordError(f"{index} names the file {shown(repr(odd))}, {why}")
    named = sorted(set(listed.values()))
    files = dict(zip(named, open_files([path / home for home in named]), strict=True))
    homes = each_once(((name, home) for home, file in files.items() for name in file), path)
    for name, home in listed.items():
        if homes.get(name) != home:
            raise RecordError(f"{path / home} lacks {shown(name)}, which {INDEX} says it holds; copy the whole checkpoint")
    return {name: files[home] for name, home in listed.items()}


def stored(file: TensorFile, name: str) -> TensorOnDisk:
    """Return a tensor of a safetensors file."""
    return TensorOnDisk(file.shape(name), file.kind(name), partial(file.stored, name))


def write_huggingface(path: Path, model: ConfiguredModel, outputs: Sequence[Output], *, largest: int = LARGEST_FILE) -> None:
    """Write a checkpoint into a new directory."""
    path.mkdir()
    files = list(_files(outputs, largest))
    names = [MODEL] if len(files) == 1 else [f"model-{index:05}-of-{len(files):05}.safetensors" for index in range(1, len(files) + 1)]
    for name, of_file in zip(names, files, strict=True):
        write_safetensors(path / name, of_file, {"format": "pt"})
    if len(files) > 1:
        homes = {output.name: name for name, of_file in zip(names, files, strict=True) for output in of_file}
        size = sum(output.size for output in outputs)
        atomic.write_text(path / INDEX, json.dumps({"metadata": {"total_size": size}, "weight_map": homes}, indent=1))
    write_config(path, model, outputs)


def write_config(path: Path, model: ConfiguredModel, outputs: Sequence[Output]) -> None:
    """Write ``config.json``, with the type of the tensors where all have the same."""
    kinds = {output.kind for output in outputs}
    keys = ("torch_dtype", *(["dtype"] if "dtype" in model.config else [])) if len(kinds) == 1 else ()
    atomic.write_json(path / "config.json", {**model.config, **dict.fromkeys(keys, TORCH_NAMES[min(kinds)])})


def _files(outputs: Sequence[Output], largest: int) -> list[list[Output]]:
    files: list[list[Output]] = [[]]
    size = 0
    for output in outputs:
        if files[-1] and size + output.size > largest:
            files.append([])
            size = 0
        files[-1].append(output)
        size += output.size
    return files
