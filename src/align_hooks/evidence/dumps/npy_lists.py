"""Lists of ``.npy`` files that a person saved: by TroubleShooter (``ts.save``, ``ts.save_grad``), or by MindSpore's ``TensorDump``.

TroubleShooter 1.0 writes ``3_NAME.npy``, and MindSpore since 2.4 ``NAME_float32_3.npy``; ``save_grad`` ends NAME with ``_backward``.
The number counts the files of a process: files of one NAME in one directory are micro-batches in that order, and a step is a directory
``stepN``. NAME is a point's canonical name (``model.layers.0.mlp.down_proj``), or the path of a module, whose output the array is.

The guide's ``grad_N.npy`` are gradients by the place of their parameter in Megatron-LM's optimizer, with no name and no step. Its
``get_parameters`` gives their order, group after group; N counts from 1. A record of the same model by Megatron-LM on one rank has the
names in that order. The guide's snippet, as printed, saves the parameter itself instead of ``param.grad``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from align_hooks.checkpoints.model import model_of
from align_hooks.errors import RecordError, RefusedRun
from align_hooks.evidence.dumps.entry import BACKWARD, FORWARD, INPUT, OUTPUT, Dump, DumpEntry, Statistics
from align_hooks.evidence.recording import recording, row_of
from align_hooks.names.blocks import PADDING
from align_hooks.process.paths import well_formed
from align_hooks.record.format.files import is_folder_in, list_folder, read_array
from align_hooks.record.format.layout import Array
from align_hooks.record.reader import Run, open_run
from align_hooks.settings import PREFIX, Settings

STEP = re.compile(r"step_?(\d{1,15})")
TYPES = "float16|float32|float64|bfloat16"
BEFORE = re.compile(r"(?P<number>\d{1,18})_(?P<name>.+)\.npy", re.DOTALL)
BEHIND = re.compile(rf"(?P<name>.+?)(?:_(?P<mode>in|out))?_(?P<type>{TYPES})_(?P<number>\d{{1,18}})\.npy", re.DOTALL)
PLAIN = re.compile(r"(?P<name>.+)\.npy", re.DOTALL)
OF_THE_GUIDE = re.compile(r"grad_(?P<number>\d{1,9})\.npy")
"""A file of the guide's snippet: a parameter's gradient by its place in the optimizer, without a step."""
GRADIENT = "_backward"
SIDE = "torch"
"""The side of the guide's gradients."""
MOST = 1_000_000
"""Most files of a list."""


def holds(path: Path) -> bool:
    """Return whether a directory is a list, or holds a list for each step."""
    return bool(_lists(path))


def read_list(path: Path, side: str) -> Dump:
    """Read the arrays of a list by ``side``, ``torch`` or ``ms``; arrays of one name are calls in the order of their numbers."""
    entries: list[DumpEntry] = []
    for folder, step in _lists(path):
        names = _names(folder)
        if len(names) > MOST:
            raise RecordError(f"{folder} holds more than {MOST} arrays; name one step's directory")
        if guide := next((name for name in names if OF_THE_GUIDE.fullmatch(name)), None):
            raise RecordError(f"{folder / guide} is a gradient with a number and no name; name a record of the same model with --names")
        by_name: dict[tuple[str, bool], list[tuple[int, str]]] = defaultdict(list)
        for name in names:
            if match := BEHIND.fullmatch(name) or BEFORE.fullmatch(name) or PLAIN.fullmatch(name):
                module, number = match["name"], int(match.groupdict().get("number") or 0)
                by_name[module.removesuffix(GRADIENT), module.endswith(GRADIENT)].append((number, name))
        for (module, gradient), files in by_name.items():
            direction, output = (BACKWARD, INPUT) if gradient else (FORWARD, OUTPUT)
            for call, (_, name) in enumerate(sorted(files)):
                array = read_array(folder / name, headers_only=True, within=folder)
                if array.dtype.kind == "f":
                    where = (name, module, direction, output, "0", call, step)
                    entries.append(DumpEntry(*where, array.shape, str(array.dtype), Statistics(), folder / name))
    return Dump(path, "a list of arrays", side, tuple(entries), {one.module: "" for one in entries if one.module}, by_hand=True)


def _lists(path: Path) -> list[tuple[Path, int]]:
    """Return the directories of a list with their steps; a directory without a number is step 0."""
    if _names(path):
        match = STEP.fullmatch(path.name)
        return [(path, int(match[1]) if match else 0)]
    inside = [(one, STEP.fullmatch(one.name)) for one in (list_folder(path) if path.is_dir() else ())]
    found = [(folder, int(match[1])) for folder, match in inside if match is not None and is_folder_in(folder, path) and _names(folder)]
    return sorted(found, key=lambda one: one[1])


def _names(folder: Path) -> list[str]:
    return [one.name for one in list_folder(folder) if one.name.endswith(".npy")] if folder.is_dir() else []


def is_numbered(path: Path) -> bool:
    """Return whether a directory has the guide's gradients."""
    return path.is_dir() and any(OF_THE_GUIDE.fullmatch(one.name) for one in list_folder(path))


def convert_gradients(source: Path, run: Path, names: Path, step: int = 0) -> int:
    """Write the record of a step's gradients by a record ``names`` of the same model by Megatron-LM; return the number of tensors."""
    named = open_run(names)
    tensors = dict(_tensors(source, named))
    asked = Settings.from_environment({f"{PREFIX}GRADIENTS": str(step), f"{PREFIX}RUN": str(run)})
    converted = {"dump": well_formed(str(source.resolve())), "tool": "numpy", "names": well_formed(str(named.path))}
    facts = {"converted": converted, "model": dict(named.facts.model)}
    shards = [shard for shard in named.shards(0) if shard.trainable]
    with recording(run, SIDE, asked, facts, range(step, step + 1), shards) as writer:
        writer.gradients(step, tensors)
        writer.scalars(row_of(step, skipped=False))
    return len(tensors)


def _tensors(source: Path, named: Run) -> Iterator[tuple[str, Array]]:
    parameters, files = _parameters(named), _files(source)
    if len(files) != len(parameters):
        counts = f"{len(files)} gradients, the model of {named.path} has {len(parameters)} parameters"
        raise RecordError(f"{source} has {counts}; name its own record")
    model = model_of(named.facts.model, named.path)
    padded = sum(shard.shape[0] for shard in named.shards(0) if shard.name in (model.family.embedding, model.family.embedding + PADDING))
    for file, (native, shapes) in zip(files, parameters.items(), strict=True):
        array = read_array(file, within=source).astype(np.float32)
        try:
            fused = model.family.megatron.fused(native, array.shape, model.dims(padded))
            pieces = dict(fused.split(array)) if fused is not None else {}
        except RefusedRun as error:
            raise RecordError(f"{file}: {error}") from None
        if {name: piece.shape for name, piece in pieces.items()} != shapes:
            what = f"which is no gradient of {native} of {named.path}"
            raise RecordError(f"{file} is {list(array.shape)}, {what}; name a record of its model")
        yield from ((name, np.ascontiguousarray(piece)) for name, piece in pieces.items())


def _files(source: Path) -> list[Path]:
    """Return the files by their numbers; raises RecordError unless these are complete from 0 or 1."""
    numbered = {int(match[1]): one for one in list_folder(source) if (match := OF_THE_GUIDE.fullmatch(one.name))}
    first = min(numbered, default=1)
    if missing := next((number for number in range(min(first, 1), first + len(numbered)) if number not in numbered), None):
        raise RecordError(f"{source / f'grad_{missing}.npy'} is missing; copy all of them, or save them again")
    return [numbered[number] for number in sorted(numbered)]


def _parameters(named: Run) -> Mapping[str, Mapping[str, tuple[int, ...]]]:
    """Return Megatron-LM's name of each parameter, in the optimizer's order, to its canonical tensors with their shapes."""
    if named.facts.side != SIDE or named.world_size != 1 or named.facts.optimizer is None:
        raise RecordError(f"{named.path} is no record by Megatron-LM on one rank, whose order the numbers have; name one with --names")
    shards = {shard.name: shard for shard in named.shards(0) if shard.trainable}
    listed = (shards[name].native for name in named.facts.optimizer.by_parameter() if name in shards)
    parameters: dict[str, dict[str, tuple[int, ...]]] = {native: {} for native in listed}
    for name, shard in shards.items():
        if shard.native in parameters:
            parameters[shard.native][name] = shard.shape
    return parameters
