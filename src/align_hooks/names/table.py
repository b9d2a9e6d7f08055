"""From a framework's own parameters to canonical pieces and back, by a table of rules."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from align_hooks.errors import RefusedRun
from align_hooks.names.layouts import WHOLE, Array, Blocks, Cut, Dims, blocks, local_blocks
from align_hooks.record.layout import PADDING
from align_hooks.record.shard import Shard

ROWS_ARE_SET = "vocab_size: {rows} in MindFormers' YAML, --make-vocab-size-divisible-by in Megatron's arguments"
"""How each side is told how many rows its embedding has."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of parameter: its native name, the canonical names of its pieces, and how they are laid out in it.

    ``{layer}`` and ``{expert}`` stand for their numbers, counted over the whole model. A row of ``vocabulary`` layout names
    one piece; the padding, where there is any, is that name with ``#padding``. ``axis`` is the one that tensor parallelism cuts.
    """

    native: str
    canonical: tuple[str, ...]
    layout: str = "whole"
    axis: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """A canonical tensor as one native parameter of a rank holds it: its whole shape, and the box [start, stop) an axis held here."""

    name: str
    shape: tuple[int, ...]
    box: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Fused:
    """One native parameter of this rank with its canonical pieces, in the order of their rows.

    ``blocks`` are those of the tensor on this rank. With ``flat`` only the elements [start, stop) of that tensor, in row-major
    order, are held: the share of a distributed optimizer.
    """

    native: str
    parts: tuple[Piece, ...]
    blocks: Blocks
    flat: tuple[int, int] | None = None

    @property
    def pieces(self) -> tuple[str, ...]:
        """Canonical names of the pieces of which any element is held."""
        return tuple(piece.name for piece, _ in self._held())

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the native tensor on this rank, whatever share of it an optimizer holds."""
        return (self.blocks.total, *(stop - start for start, stop in self.parts[0].box[1:]))

    @property
    def _width(self) -> int:
        return math.prod(self.shape[1:])

    def _held(self) -> list[tuple[Piece, tuple[int, int] | None]]:
        """The pieces held, each with the range of its box that ``flat`` leaves."""
        if self.flat is None:
            return [(piece, None) for piece, rows in zip(self.parts, self.blocks.rows, strict=True) if rows]
        ranges = ((index, tuple(self.blocks.before(index, end, self._width) for end in self.flat)) for index in range(len(self.parts)))
        return [(self.parts[index], (start, stop)) for index, (start, stop) in ranges if start < stop]

    @property
    def cut(self) -> frozenset[str]:
        """Pieces of which a part only is held."""
        return frozenset(
            piece.name
            for piece, held in self._held()
            if piece.box != tuple((0, size) for size in piece.shape) or held not in (None, (0, math.prod(piece.shape)))
        )

    def narrowed(self, start: int, stop: int) -> Fused:
        """The same parameter with only the elements [start, stop) held."""
        return replace(self, flat=(start, stop))

    def shards(self, *, dtype: str, counted: bool, trainable: bool = True) -> list[Shard]:
        """This rank's rows of its parameter table for this parameter."""
        return [
            Shard(piece.name, piece.shape, self.native, dtype, piece.box, flat, counted=counted, trainable=trainable)
            for piece, flat in self._held()
        ]

    def split(self, tensor: Any) -> Iterator[tuple[str, Any]]:
        """Canonical name and piece, for the tensor that is held, of numpy or torch.

        With ``flat`` the tensor is one-dimensional, and a piece comes in one or several runs one after the other.
        """
        if self.flat is None:
            for piece, found in zip(self.parts, self.blocks.split(tensor), strict=True):
                if found.shape[0]:
                    yield piece.name, found
            return
        for index, piece in enumerate(self.parts):
            for run in self.blocks.runs(index, *self.flat, self._width):
                yield piece.name, tensor[run]

    def join(self, tensors: Mapping[str, Array]) -> Array:
        """The tensor that is held, from whole canonical pieces that are read one after the other."""
        held = [piece for piece, rows in zip(self.parts, self.blocks.rows, strict=True) if rows]
        boxes = [tensors[piece.name][tuple(slice(*bounds) for bounds in piece.box)] for piece in held]
        native = Blocks(self.blocks.repeats, tuple(rows for rows in self.blocks.rows if rows)).join(boxes)
        return native if self.flat is None else np.ascontiguousarray(native).reshape(-1)[slice(*self.flat)]


def any_layer(name: str) -> str:
    """A canonical name with ``*`` in place of the number of its layer, and of its expert."""
    return re.sub(r"\.\d+(?=\.)", ".*", name)


def gathered(runs: Iterable[tuple[str, Array]]) -> dict[str, Array]:
    """Canonical name to piece, from what :meth:`Fused.split` yields, its runs joined."""
    found: dict[str, list[Array]] = {}
    for name, run in runs:
        found.setdefault(name, []).append(run)
    return {name: parts[0] if len(parts) == 1 else np.concatenate(parts) for name, parts in found.items()}


@dataclass(frozen=True, slots=True)
class Table:
    """The rules of one framework; ``ignored`` are state entries that are no parameters (full-match patterns)."""

    framework: str
    rules: tuple[Rule, ...]
    ignored: tuple[str, ...] = ()

    def fused(
        self, native: str, shape: Sequence[int], dims: Dims, *, cut: Cut = WHOLE, first_layer: int = 0, first_expert: int = 0
    ) -> Fused | None:
        """The pieces of one native parameter of ``shape`` on this rank, None for an entry that holds none.

        ``cut`` says which part of the whole parameter that is. ``first_layer`` and ``first_expert`` are the numbers, in the whole
        model, of what this rank calls 0. Raises RefusedRun for an unknown name and for a layout that does not fit.
        """
        for rule in self.rules:
            found = _numbers(_pattern(rule.native), native)
            if found is not None:
                numbers = {"layer": found.get("layer", 0) + first_layer, "expert": found.get("expert", 0) + first_expert}
                names = [name.format(**numbers) for name in rule.canonical]
                return _fused(
                    native,
                    names,
                    rule.layout,
                    tuple(shape),
                    dims,
                    replace(cut, axis=rule.axis) if cut.axis is None and cut.count > 1 else cut,
                )
        if any(re.fullmatch(pattern, native) for pattern in self.ignored):
            return None
        raise RefusedRun(
            f"{self.framework} parameter {native!r} has no canonical name; known are those of a Llama, dense or with experts "
            f"(add a rule to align_hooks/names for another family)"
        )

    def elsewhere(self, here: Collection[str], *, layers: int, experts: int = 0) -> Callable[[str], bool]:
        """Whether another rank holds a name, where this one holds ``here``, in a model of ``layers`` layers and ``experts`` experts.

        Of a layer that is here only experts can be elsewhere.
        """
        patterns = [_pattern(canonical) for rule in self.rules for canonical in rule.canonical]
        numbers = [_numbers(pattern, one) for one in here for pattern in patterns]
        layers_here = {found["layer"] for found in numbers if found and "layer" in found}

        def is_elsewhere(name: str) -> bool:
            for pattern in patterns:
                found = _numbers(f"{pattern}({re.escape(PADDING)})?", name)
                if found is not None:
                    there = "expert" in found or found.get("layer") not in layers_here
                    return there and found.get("layer", -1) < layers and found.get("expert", -1) < experts
            return False

        return is_elsewhere


def _numbers(pattern: str, name: str) -> dict[str, int] | None:
    match = re.fullmatch(pattern, name)
    return {key: int(number) for key, number in match.groupdict().items()} if match else None


def _pattern(name: str) -> str:
    return re.escape(name).replace(r"\{layer\}", r"(?P<layer>\d+)").replace(r"\{expert\}", r"(?P<expert>\d+)")


def _fused(native: str, names: list[str], layout: str, shape: tuple[int, ...], dims: Dims, cut: Cut) -> Fused:
    axis = cut.axis or 0
    lengths = list(shape)
    lengths[axis] *= cut.count
    whole = blocks(layout, dims, lengths[0])
    if layout == "vocabulary" and len(whole.rows) == 2:
        names = [names[0], names[0] + PADDING]
    full = [(0, whole.repeats * rows) for rows in whole.rows]
    local, bounds = local_blocks(layout, whole, cut) if axis == 0 else (whole, full)
    tail = [(0, length) for length in lengths[1:]]
    if axis:
        tail[axis - 1] = (cut.index * shape[axis], (cut.index + 1) * shape[axis])
    parts = (Piece(name, (total, *lengths[1:]), (rows, *tail)) for name, (_, total), rows in zip(names, full, bounds, strict=True))
    return Fused(native, tuple(parts), local)


def refuse_unfit(
    wanted: Mapping[str, tuple[int, ...]],
    given: Mapping[str, tuple[int, ...]],
    source: object,
    *,
    elsewhere: Callable[[str], bool] = lambda name: False,
) -> None:
    """Raise RefusedRun unless ``given`` (canonical name to shape, of what ``source`` says) is exactly what a model wants.

    ``wanted`` is what this rank holds, by the shapes of the whole tensors; ``elsewhere`` says of another name whether another
    rank of this job holds it.
    """
    problems = [f"{name} {list(wanted[name])} is missing" for name in sorted(wanted.keys() - given.keys())]
    problems += [f"{name} {list(given[name])} is not of this model" for name in sorted(given.keys() - wanted.keys()) if not elsewhere(name)]
    problems += [
        f"{name} is {list(given[name])}, this model has {list(wanted[name])}"
        for name in sorted(wanted.keys() & given.keys())
        if wanted[name] != given[name]
    ]
    if problems:
        raise RefusedRun(f"{source} do not fit this model: {_first_few(problems)}; {_way_out(wanted, given)}")


def _way_out(wanted: Mapping[str, tuple[int, ...]], given: Mapping[str, tuple[int, ...]]) -> str:
    """What to change: the vocabulary's size alone, where nothing else differs."""
    apart = {name.removesuffix(PADDING) for name in wanted.keys() | given.keys() if wanted.get(name) != given.get(name)}
    ends = ("model.embed_tokens.weight", "lm_head.weight")
    if not all(name in ends and name in wanted and name in given and wanted[name][1:] == given[name][1:] for name in apart):
        return "make the two models the same shape"
    rows = max(given[name][0] + given.get(name + PADDING, (0,))[0] for name in apart)
    return f"give this model their {rows} rows, padding and all: {ROWS_ARE_SET.format(rows=rows)}"


def _first_few(problems: Iterable[str]) -> str:
    (*head,) = problems
    return "; ".join(head[:3]) + (f"; and {len(head) - 3} more" if len(head) > 3 else "")
