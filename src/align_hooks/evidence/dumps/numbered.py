"""The guide's ``grad_N.npy``: gradients by the place of their parameter in Megatron-LM's optimizer, with no name and no step.

``get_parameters`` of the optimizer gives their order, group after group; N counts from 1. A record of the same model by Megatron-LM on one
rank has the names in that order. The guide's snippet, as printed, saves the parameter itself instead of ``param.grad``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from align_hooks.checkpoints.model import model_of
from align_hooks.errors import RecordError, RefusedRun
from align_hooks.evidence.dumps.npy_lists import OF_THE_GUIDE
from align_hooks.evidence.recording import recording, row_of
from align_hooks.names.blocks import PADDING
from align_hooks.process.paths import well_formed
from align_hooks.record.format.files import list_folder, read_array
from align_hooks.record.format.layout import Array
from align_hooks.record.reader import Run, open_run
from align_hooks.settings import PREFIX, Settings

SIDE = "torch"


def is_numbered(path: Path) -> bool:
    """Return whether a directory has the guide's gradients."""
    return path.is_dir() and any(OF_THE_GUIDE.fullmatch(one.name) for one in list_folder(path))


def convert_gradients(source: Path, run: Path, names: Path, step: int = 0) -> int:
    """Write the record of a step's gradients, and return the number of tensors; ``names`` is a record of the same model by Megatron-LM.

    :raises RecordError: a file is missing, or ``names`` is of another model. :raises RefusedRun: the directory holds a run.
    """
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
    """Yield canonical name and gradient, fp32, of every tensor."""
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
    """Return Megatron-LM's name of each parameter, in the optimizer's order, to its canonical tensors with their shapes.

    :raises RecordError: the record is not by Megatron-LM on one rank.
    """
    if named.facts.side != SIDE or named.world_size != 1 or named.facts.optimizer is None:
        raise RecordError(f"{named.path} is no record by Megatron-LM on one rank, whose order the numbers have; name one with --names")
    shards = {shard.name: shard for shard in named.shards(0) if shard.trainable}
    listed = (shards[name].native for name in named.facts.optimizer.by_parameter() if name in shards)
    parameters: dict[str, dict[str, tuple[int, ...]]] = {native: {} for native in listed}
    for name, shard in shards.items():
        if shard.native in parameters:
            parameters[shard.native][name] = shard.shape
    return parameters
