"""Where a dump has the points of a model: tables of data, a framework's module paths each, in ``points.txt``.

A point is a place in the forward pass with one canonical name, whatever the framework calls the module (Hugging Face's names). Its value is
[rows, sequence, width]; its gradient is that of the objective. What a module was given says the gradient of its input alone, not of a
tensor that others were given too: such points have a value only.

A dump of MindSpore's has operators and not modules. There a point is the input or the output of an operator of a known kind, and only where
the Cell has exactly as many of that kind as the row says. Where a compiler has fused operators, or where those of a backward pass or of
several micro-batches bear the same names, the count differs and the point is left out: "the last operator of a Cell" would be another
tensor there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TypeAlias

from align_hooks.data_file import sections
from align_hooks.evidence.dumps.entry import INPUT, OUTPUT, Dump

SB, BS = "sb", "bs"
"""The order of the first two axes, or of the tokens where these are one: sequence and rows, or rows and sequence."""
LAYER = "model.layers.{layer}"
PREFIX = r"(?:(?P<chunk>\d+)\.)?(?:(?:module|_orig_mod|network|_backbone|backbone|model|language_model)\.)*?"
"""What may stand before a path: the model's number in a list, and what wraps it."""


Operators: TypeAlias = tuple[tuple[tuple[str, ...], int], ...]
"""Kinds of operators and how many of them stand in a Cell, and in no Cell within it. The first that fits counts; of several operators the
one that ran last."""


class Fusion(Enum):
    """How a module's output is cut into the points of its row."""

    GROUPS = "groups"
    HALVES = "halves"


@dataclass(frozen=True, slots=True)
class ModuleRow:
    """One module that has points.

    ``path`` is its path, ``{layer}`` a number. ``side`` and ``index`` say which of its inputs or outputs it is; several names of an
    argument stand between bars. ``kinds`` is a regular expression of its class, where that matters. ``operators`` say which operator it is
    in a dump of operators, none where it is not to be found there. ``alone`` says that nothing but this module was given its input, so that
    the gradient of it is the point's. ``modules`` is False where a module has more inside than the point.
    """

    path: str
    points: tuple[str, ...]
    order: str
    side: str = OUTPUT
    index: str = "0"
    kinds: str = ""
    operators: Operators = ()
    fusion: Fusion | None = None
    alone: bool = False
    modules: bool = True


@dataclass(frozen=True, slots=True)
class ModuleTable:
    """A framework's rows; ``latent`` are those of latent attention, ``knows`` is a path that only its models have."""

    name: str
    rows: tuple[ModuleRow, ...]
    knows: str
    latent: tuple[ModuleRow, ...] = ()


def _rows(head: str, layer: str) -> tuple[ModuleRow, ...]:
    """Return the rows of a section of ``points.txt``; ``layer`` is the path of the framework's layers."""
    return tuple(_row(line, layer) for line in SECTIONS[head])


def _row(line: str, layer: str) -> ModuleRow:
    module, points = line.split(" -> ")
    path, order, *words = module.split()
    said = {name: value for name, _, value in (word.partition("=") for word in words)}
    return ModuleRow(
        "" if path == "-" else _full(path, layer),
        tuple(_full(point, LAYER) for point in points.split()),
        order,
        side=INPUT if "in" in said else OUTPUT,
        index=said.get("in") or "0",
        kinds=said.get("kinds", ""),
        operators=OPERATORS[said["operators"]] if "operators" in said else (),
        fusion=Fusion(said["cut"]) if "cut" in said else None,
        alone="alone" in said,
        modules="inside" not in said,
    )


def _full(name: str, layer: str) -> str:
    return f"{layer}{name}".rstrip(".") if name.startswith(".") else name


def _operators(ways: str) -> Operators:
    return tuple((tuple(kinds.split("|")), int(count)) for count, kinds in map(str.split, ways.split(", ")))


SECTIONS = sections(Path(__file__).parent / "points.txt")
OPERATORS = {name: _operators(ways) for name, _, ways in (line.partition(": ") for line in SECTIONS["operators"])}
BLOCK = "decoder.layers.{layer}"
MEGATRON = ModuleTable(
    "Megatron-LM",
    _rows("Megatron-LM", BLOCK),
    knows=f"{BLOCK}.self_attention.linear_proj",
    latent=_rows("Megatron-LM, latent attention", BLOCK),
)
LEGACY = "MindFormers, use_legacy: True"
MINDFORMERS = ModuleTable(LEGACY, _rows(LEGACY, LAYER), knows=f"{LAYER}.attention.wo")
HUGGING_FACE = ModuleTable("Hugging Face", _rows("Hugging Face", LAYER), knows=f"{LAYER}.self_attn.o_proj")
TABLES = (MEGATRON, MINDFORMERS, HUGGING_FACE)
BY_HAND = ModuleTable(
    "names that a person chose",
    (
        *(ModuleRow(point, (point,), BS) for point in sorted({point for table in TABLES for row in table.rows for point in row.points})),
        *(row for table in TABLES[:2] for row in table.rows if row.side == OUTPUT and row.path and not row.kinds),
    ),
    knows="",
)
"""Points by their canonical names, and by the modules whose outputs they are; of two rows of a name the first counts."""
LATENT = re.compile(PREFIX + r"decoder\.layers\.\d+\.self_attention\.(?:linear_kv_down_proj|linear_kvb|kv_layernorm)")


def table_of(dump: Dump) -> ModuleTable | None:
    """The table of the framework whose names a dump has; None where they are of none."""
    if dump.by_hand:
        return BY_HAND
    return next((table for table in TABLES if any(map(pattern_of(table.knows).fullmatch, dump.classes))), None)


def rows_of(table: ModuleTable, classes: Mapping[str, str]) -> Sequence[ModuleRow]:
    """The rows of a table that a model has. Latent attention has its own norms of queries and keys, and no projection by query groups."""
    if not any(map(LATENT.fullmatch, classes)):
        return table.rows
    taken = {row.path for row in table.latent}
    return [*table.latent, *(row for row in table.rows if row.path not in taken and row.fusion is not Fusion.GROUPS)]


@cache
def pattern_of(path: str) -> re.Pattern[str]:
    """What a module's path is held against for a row; ``layer`` is its number, and ``chunk`` that of the model in a list."""
    inside = re.escape(path).replace(re.escape("{layer}"), r"(?P<layer>\d{1,6})")
    return re.compile(PREFIX + inside if path else r"(?:(?P<chunk>\d+)\.?)?(?:(?:module|_orig_mod)\.?)*")
