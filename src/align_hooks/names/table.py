"""From a framework's own parameters to canonical pieces and back, by a table of rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from align_hooks.errors import RefusedRun
from align_hooks.names.layouts import Array, Blocks, Dims, blocks
from align_hooks.record.layout import PADDING


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of parameter: its native name, the canonical names of its pieces, and how they are laid out in it.

    ``{layer}`` stands for the layer's number, counted over the whole model. A row of ``vocabulary`` layout names one
    piece; the padding, where there is any, is that name with ``#padding``.
    """

    native: str
    canonical: tuple[str, ...]
    layout: str = "whole"


@dataclass(frozen=True, slots=True)
class Fused:
    """One native parameter with its canonical pieces, in the order of their rows."""

    native: str
    pieces: tuple[str, ...]
    blocks: Blocks

    def split(self, tensor: Any) -> Iterator[tuple[str, Any]]:
        """Canonical name and whole piece, for a native tensor of numpy or torch."""
        return zip(self.pieces, self.blocks.split(tensor), strict=True)

    def join(self, tensors: Mapping[str, Array]) -> Array:
        """The native tensor, from canonical pieces that are read one after the other."""
        return self.blocks.join([tensors[name] for name in self.pieces])


@dataclass(frozen=True, slots=True)
class Table:
    """The rules of one framework; ``ignored`` are state entries that are no parameters (full-match patterns)."""

    framework: str
    rules: tuple[Rule, ...]
    ignored: tuple[str, ...] = ()

    def fused(self, native: str, rows: int, dims: Dims, *, first_layer: int = 0) -> Fused | None:
        """The pieces of one native parameter, None for an entry that holds none; raises RefusedRun for an unknown name.

        ``first_layer`` is the number, in the whole model, of what this rank calls layer 0.
        """
        for rule in self.rules:
            match = re.fullmatch(re.escape(rule.native).replace(r"\{layer\}", r"(?P<layer>\d+)"), native)
            if match:
                layer = str(int(match["layer"]) + first_layer) if "layer" in match.groupdict() else ""
                pieces = tuple(name.replace("{layer}", layer) for name in rule.canonical)
                found = blocks(rule.layout, dims, rows)
                if rule.layout == "vocabulary" and len(found.rows) == 2:
                    pieces += (pieces[0] + PADDING,)
                return Fused(native, pieces, found)
        if any(re.fullmatch(pattern, native) for pattern in self.ignored):
            return None
        raise RefusedRun(
            f"{self.framework} parameter {native!r} has no canonical name; known are those of a dense Llama "
            f"(add a rule to align_hooks/names for another family)"
        )


def refuse_unfit(wanted: Mapping[str, tuple[int, ...]], given: Mapping[str, tuple[int, ...]], source: object) -> None:
    """Raise RefusedRun unless ``given`` (canonical name to shape, of what ``source`` says) is exactly what a model wants."""
    problems = [f"{name} {list(wanted[name])} is missing" for name in sorted(wanted.keys() - given.keys())]
    problems += [f"{name} {list(given[name])} is not of this model" for name in sorted(given.keys() - wanted.keys())]
    problems += [
        f"{name} is {list(given[name])}, this model has {list(wanted[name])}"
        for name in sorted(wanted.keys() & given.keys())
        if wanted[name] != given[name]
    ]
    if problems:
        raise RefusedRun(f"{source} do not fit this model: {_first_few(problems)}; make the two models the same shape")


def _first_few(problems: Iterable[str]) -> str:
    (*head,) = problems
    return "; ".join(head[:3]) + (f"; and {len(head) - 3} more" if len(head) > 3 else "")
