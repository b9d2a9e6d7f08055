"""The modules at which a dump has the points of a model: a table for each framework, in ``points.txt``.

A point is a place in the forward pass with one canonical name (Hugging Face's). Its value is [rows, sequence, width]; its gradient is of
the objective. The gradient of a module's input is not that of a tensor with several consumers: such points have only a value.

A dump of MindSpore has operators instead of modules. A point is the input or the output of an operator of a known kind, where the Cell has
exactly as many of the kind as the row says. Fused operators, or operators of a backward pass or of several micro-batches under the same
names, change the count; "the last operator of a Cell" would be another tensor then, so the point is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from align_hooks.data_file import sections
from align_hooks.evidence.dumps.entry import INPUT, OUTPUT, Dump

SB, BS = "sb", "bs"
"""Order of the first two axes, or of the tokens on one axis: sequence and rows, or rows and sequence."""
LAYER = "model.layers.{layer}"
PREFIX = r"(?:(?P<chunk>\d+)\.)?(?:(?:module|_orig_mod|network|_backbone|backbone|model|language_model)\.)*?"
"""Optional prefix of a path: the model's number in a list, and its wrappers."""
Operators: TypeAlias = tuple[tuple[tuple[str, ...], int], ...]
"""Kinds of operators, and their number directly in a Cell. The first that fits counts; of several operators the last that ran."""


class Fusion(Enum):
    """The cut of a module's output into the points of its row."""

    GROUPS = "groups"
    HALVES = "halves"


class ModuleRow(Struct, frozen=True):
    """One module that has points."""

    path: str
    """The module's path, with ``{layer}`` for a number."""
    points: tuple[str, ...]
    order: str
    side: str = OUTPUT
    index: str = "0"
    """The input or output by its number, or by its argument's names with bars between."""
    kinds: str = ""
    """A regular expression of the module's class; empty for any."""
    operators: Operators = ()
    """The operator in a dump of operators; empty where the point is not there."""
    fusion: Fusion | None = None
    sole_consumer: bool = False
    """Whether the point's tensor goes only to this module, so that the input's gradient is the point's."""
    modules: bool = True
    """False where the module does more than the point."""


class ModuleTable(Struct, frozen=True):
    """A framework's rows."""

    name: str
    rows: tuple[ModuleRow, ...]
    knows: str
    """A path that only this framework's models have."""
    latent: tuple[ModuleRow, ...] = ()
    """The rows of latent attention."""


SECTIONS = sections(Path(__file__).parent / "points.txt")
OPERATORS: Mapping[str, Operators] = {
    name: tuple((tuple(kinds.split("|")), int(count)) for count, kinds in map(str.split, ways.split(", ")))
    for name, _, ways in (line.partition(": ") for line in SECTIONS["operators"])
}


def _rows(head: str, layer: str) -> tuple[ModuleRow, ...]:
    """Return the rows of a section of ``points.txt``; ``layer`` is the path of the framework's layers."""

    def full(name: str, above: str) -> str:
        return f"{above}{name}".rstrip(".") if name.startswith(".") else name

    rows = []
    for line in SECTIONS[head]:
        module, points = line.split(" -> ")
        path, order, *words = module.split()
        options = dict(word.partition("=")[::2] for word in words)
        row = ModuleRow(
            "" if path == "-" else full(path, layer),
            tuple(full(point, LAYER) for point in points.split()),
            order,
            side=INPUT if "in" in options else OUTPUT,
            index=options.get("in") or "0",
            kinds=options.get("kinds", ""),
            operators=OPERATORS[options["operators"]] if "operators" in options else (),
            fusion=Fusion(options["cut"]) if "cut" in options else None,
            sole_consumer="alone" in options,
            modules="inside" not in options,
        )
        rows.append(row)
    return tuple(rows)


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
"""Points by their canonical names, and by the modules whose outputs they are; the first row of a name counts."""
LATENT = re.compile(PREFIX + r"decoder\.layers\.\d+\.self_attention\.(?:linear_kv_down_proj|linear_kvb|kv_layernorm)")


def table_of(dump: Dump) -> ModuleTable | None:
    """Return the table of the framework whose names a dump has; None for names of no framework."""
    if dump.by_hand:
        return BY_HAND
    return next((table for table in TABLES if any(map(pattern_of(table.knows).fullmatch, dump.classes))), None)


def rows_of(table: ModuleTable, classes: Mapping[str, str]) -> Sequence[ModuleRow]:
    """Return the rows of a table that a model has; latent attention has its own norms, and no projection by query groups."""
    if not any(map(LATENT.fullmatch, classes)):
        return table.rows
    replaced = {row.path for row in table.latent}
    return [*table.latent, *(row for row in table.rows if row.path not in replaced and row.fusion is not Fusion.GROUPS)]


@cache
def pattern_of(path: str) -> re.Pattern[str]:
    """Return the pattern of a row's modules, with the groups ``layer`` and ``chunk``, the model's number in a list."""
    inside = re.escape(path).replace(re.escape("{layer}"), r"(?P<layer>\d{1,6})")
    return re.compile(PREFIX + inside if path else r"(?:(?P<chunk>\d+)\.?)?(?:(?:module|_orig_mod)\.?)*")
