"""Conversion of weights from one form to another, tensor by tensor.

A framework's table may have several names for a canonical tensor, for a framework builds a layer in several ways; the wanted one wins.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
from msgspec import Struct, field

from align_hooks.checkpoints.checkpoint import KINDS, NAMED, Checkpoint, LazyTensor, cast, narrows
from align_hooks.checkpoints.forms import open_checkpoint
from align_hooks.checkpoints.huggingface import write_huggingface
from align_hooks.checkpoints.megatron import write_megatron
from align_hooks.checkpoints.mindformers import tables, write_mindformers
from align_hooks.checkpoints.mindspore import write_ckpt
from align_hooks.checkpoints.model import ConfiguredModel
from align_hooks.errors import AlignHooksError, RefusedRun, shown
from align_hooks.names.blocks import PADDING, Dims
from align_hooks.names.fused import Fused
from align_hooks.names.table import NameTable, Rule, numbers_in, pattern_of
from align_hooks.record.format.layout import Array
from align_hooks.record.write import atomic

WRITERS: Mapping[str, Callable[[Path, ConfiguredModel, Mapping[str, LazyTensor]], None]] = {
    "huggingface": write_huggingface,
    "megatron": write_megatron,
    "mindspore": write_mindformers,
    "mindspore-ckpt": lambda path, model, tensors: write_ckpt(path, tensors),
}
TO = tuple(WRITERS)
"""The forms of a destination."""
LAYERS = ("transformer-engine", "local")
"""Values of Megatron-LM's ``--transformer-impl``, on which the names of some parameters depend."""
NORM_WITHIN = ".layer_norm_weight"
"""Suffix of a norm that Transformer Engine keeps within the linear layer behind it."""
KEEP = "keep"
PADDED = 128
"""Megatron-LM's default of ``--make-vocab-size-divisible-by``."""


class ConversionOptions(Struct, frozen=True):
    """The options of a destination."""

    dtype: str = KEEP
    layers: str = LAYERS[0]
    grouped_experts: bool = False
    qkv_concat: bool = False
    rows: int | None = None
    """Rows of the vocabulary with padding; None: as many as there are."""

    def first(self, rule: Rule) -> bool:
        """Return whether a rule gives the wanted names, where other rules give the same tensors other names."""
        within = self.layers == LAYERS[0] and rule.native.endswith(NORM_WITHIN)
        grouped = self.grouped_experts and rule.native.endswith(".weight{expert}")
        return within or grouped or (self.qkv_concat and len(rule.canonical) > 1)


class ConversionSummary(Struct):
    """The outcome of a conversion."""

    form: str
    """The form of the source."""
    model: str
    tensors: int
    """Number of written tensors."""
    notes: list[str]
    """Changes of the weights, and other things that a person should know."""


class _Rounding(Struct):
    """The rounded tensors, and how many numbers of each became infinite."""

    rounded: set[str] = field(default_factory=set)
    lost: dict[str, int] = field(default_factory=dict)

    def cast(self, name: str, tensor: LazyTensor, kind: str) -> LazyTensor:

        def read() -> Array:
            array, lost = cast(tensor.read(), tensor.kind, kind)
            if narrows(tensor.kind, kind):
                self.rounded.add(name)
            if lost:
                self.lost[name] = lost
            return array

        return tensor if kind == tensor.kind else LazyTensor(tensor.shape, kind, read)

    def notes(self, to: str) -> list[str]:
        words = [f"rounded to {to}, to nearest, ties to even: {len(self.rounded)} tensors"] if self.rounded else []
        if self.lost:
            first = next(iter(self.lost))
            words.append(f"{sum(self.lost.values())} numbers are beyond the largest {to} and became infinite, the first in {first}")
        return words


DEFAULTS = ConversionOptions()


def convert_weights(
    source: Path, destination: Path, to: str, choices: ConversionOptions = DEFAULTS, config: Path | None = None
) -> ConversionSummary:
    """Write the weights of ``source`` as ``destination``, in the form ``to``; ``config`` is a Hugging Face configuration of the model."""
    _refuse_odd(destination, to, choices)
    refuse_existing(destination)
    checkpoint = open_checkpoint(source, config)
    notes, rounding = list(checkpoint.notes), _Rounding()
    converted = {name: rounding.cast(name, tensor, NAMED.get(choices.dtype, tensor.kind)) for name, tensor in checkpoint.tensors.items()}
    tensors, rows, made = padded(checkpoint, converted, choices.rows)
    notes += [f"{name}: filled up to {rows} rows with zeros" for name in made]
    if to == "huggingface":
        left_out = [name for name in tensors if name.endswith(PADDING)]
        notes += [f"{name.removesuffix(PADDING)}: {tensors[name].shape[0]} rows of padding left out" for name in left_out]
        outputs = {name: tensor for name, tensor in tensors.items() if name not in left_out}
    else:
        model = checkpoint.model
        table, of_table = (model.family.megatron, list[str]()) if to == "megatron" else tables(model, checkpoint.path)[0]
        notes += [note for note in of_table if note not in notes]
        outputs = parameters(checkpoint, tensors, rows, table, choices.first)
    with written(destination) as temporary:
        WRITERS[to](temporary, checkpoint.model, outputs)
    notes += rounding.notes(choices.dtype)
    if to == "megatron":  # which silently leaves parameters random that it does not find
        built = choices.layers.replace("-", "_")
        notes.append(
            f"names are those of --transformer-impl {built}; Megatron-LM says nothing of names that it lacks, so start it with that one"
        )
        if rows % PADDED:
            count = f"the vocabulary has {rows} rows; Megatron-LM pads it to a multiple of {PADDED}"
            notes.append(f"{count}: --vocabulary-rows gives that many")
    return ConversionSummary(checkpoint.form, checkpoint.model.words, len(outputs), notes)


def _refuse_odd(destination: Path, to: str, choices: ConversionOptions) -> None:
    """Raise AlignHooksError for a choice that does not exist, or does not apply to the form."""
    for option, value, values in (("--to", to, TO), ("--dtype", choices.dtype, (KEEP, *NAMED)), ("--layers", choices.layers, LAYERS)):
        if value not in values:
            raise AlignHooksError(f"{option} {value}: choose one of {', '.join(values)}")
    megatron, mindformers = to == "megatron", to.startswith("mindspore")
    odd = {
        "--layers": choices.layers != LAYERS[0] and not megatron,
        "--grouped-experts": choices.grouped_experts and not megatron,
        "--qkv-concat": choices.qkv_concat and not mindformers,
        "--vocabulary-rows": choices.rows is not None and not (megatron or mindformers),
    }
    if wrong := next((option for option, is_odd in odd.items() if is_odd), None):
        raise AlignHooksError(f"{wrong} says nothing of --to {to}; leave it out")
    if to == "mindspore-ckpt" and destination.suffix != ".ckpt":
        raise AlignHooksError(f"{destination}: MindSpore wants the name of such a file to end in .ckpt; name {destination}.ckpt")


def refuse_existing(path: Path) -> None:
    """Raise AlignHooksError where something has the destination's name."""
    if os.path.lexists(path):
        raise AlignHooksError(f"{path} is there already; name a new destination, for nothing is written over")


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """Yield the temporary name of a file or a directory, which is renamed on success and removed on failure, so that none is incomplete."""
    temporary = atomic.temporary_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove(temporary)
        yield temporary
        refuse_existing(path)
        temporary.rename(path)
        atomic.sync_path(path.parent)
    except OSError as error:
        why = error.strerror or error
        raise AlignHooksError(f"{path} cannot be written: {why}; name a place with room that you may write to") from None
    finally:
        _remove(temporary)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def padded(checkpoint: Checkpoint, given: Mapping[str, LazyTensor], rows: int | None) -> tuple[Mapping[str, LazyTensor], int, list[str]]:
    """Return the ``given`` tensors, padded to ``rows`` of a vocabulary; the number of rows; and the names of the padded tensors."""
    tensors, filled, own = dict(given), [], 0
    for name in (checkpoint.model.family.embedding, checkpoint.model.family.output):
        if name not in given:
            continue
        has = tensors[name].shape[0] + (tensors[name + PADDING].shape[0] if name + PADDING in tensors else 0)
        own = max(own, has)
        if rows is not None and rows != has:
            if name + PADDING in tensors or rows < has:
                why = f"{name} has {has} rows, padding and all; a vocabulary of {rows} rows cannot be made of it"
                raise AlignHooksError(f"{checkpoint.path}: {why}")
            shape, kind = (rows - has, *tensors[name].shape[1:]), tensors[name].kind
            tensors[name + PADDING] = LazyTensor(shape, kind, partial(np.zeros, shape, KINDS[kind]))
            filled.append(name)
    return tensors, rows or own, filled


def parameters(
    checkpoint: Checkpoint, tensors: Mapping[str, LazyTensor], rows: int, table: NameTable, first: Callable[[Rule], bool]
) -> dict[str, LazyTensor]:
    """Return a framework's parameters that hold all tensors, in the tensors' order; rules of which ``first`` is true win."""
    dims, rules = checkpoint.model.dims(rows), sorted(table.rules, key=lambda rule: not first(rule))
    fitting = [fused for rule in rules for fused in _fitting(rule, table, tensors, dims)]
    there = {fused.native for fused in fitting}
    left = dict.fromkeys(tensors)
    place = {name: index for index, name in enumerate(tensors)}
    made: list[tuple[int, str, LazyTensor]] = []
    for fused in fitting:
        linear, is_norm, _ = fused.native.rpartition(NORM_WITHIN)  # which exists only with its linear layer
        if not left.keys() >= set(fused.pieces) or (is_norm and f"{linear}.weight" not in there):
            continue
        kinds = {tensors[name].kind for name in fused.pieces}
        if len(kinds) > 1:
            words = " and ".join(sorted(kinds))
            raise AlignHooksError(f"{checkpoint.path}: the parts of {fused.native} are {words}; choose one type with --dtype")
        for name in fused.pieces:
            del left[name]
        parameter = LazyTensor(fused.shape, kinds.pop(), partial(_join, fused, tensors))
        made.append((min(place[name] for name in fused.pieces), fused.native, parameter))
    if left:
        raise AlignHooksError(f"{shown(next(iter(left)))} has no parameter in {table.framework}; only {table.model} can be written for it")
    return {native: parameter for _, native, parameter in sorted(made, key=lambda one: one[0])}


def _join(fused: Fused, tensors: Mapping[str, LazyTensor]) -> Array:
    return fused.join({name: tensors[name].read() for name in fused.pieces})


def _fitting(rule: Rule, table: NameTable, tensors: Mapping[str, LazyTensor], dims: Dims) -> Iterator[Fused]:
    """Yield the parameters that a rule joins from the tensors, each in the shape whose pieces have the tensors' shapes."""
    pattern = pattern_of(rule.canonical[0])
    seen: set[str] = set()
    for name, tensor in tensors.items():
        numbers = numbers_in(name, pattern)
        if numbers is None or numbers.get("layer", -1) >= dims.layers or numbers.get("after", dims.layers) < dims.layers:
            continue
        native = rule.native.format(**numbers, mtp=numbers.get("after", dims.layers) - dims.layers)
        if native in seen:
            continue
        seen.add(native)
        names = [*(text.format(**numbers) for text in rule.canonical), name + PADDING]
        rows = sum(tensors[one].shape[0] for one in names if one in tensors)
        stacked, of_experts = (rows, *tensor.shape[1:]), (dims.experts * tensor.shape[-1], rows)  # each expert's, transposed
        for shape in (stacked, of_experts) if dims.experts and len(tensor.shape) == 2 else (stacked,):
            with suppress(RefusedRun):
                fused = table.fused(native, shape, dims)
                parts = [] if fused is None else [part for part in fused.parts if part.name in fused.pieces]
                if fused and parts and all(part.name in tensors and tensors[part.name].shape == part.shape for part in parts):
                    yield fused
                    break
