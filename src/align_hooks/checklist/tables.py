"""The rows of the CheckList, of ``rows.txt``, in the order in which a person mends them: what others rest on comes first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from align_hooks.checklist import canonical_values, lookup, mindformers_models, resolver, schedules
from align_hooks.checklist.advice import ADVICE
from align_hooks.checklist.resolvers import (
    balancing,
    data,
    environment,
    experts,
    hybrid,
    initialisation,
    layout,
    mindspeed,
    optimizer,
    precision,
    schedule,
    structure,
)
from align_hooks.checklist.row import CheckRow, Effect, RowGroup, SideSpec, Worded
from align_hooks.configuration.megatron import ARGUMENTS
from align_hooks.data_file import sections, setting
from align_hooks.messages import Message, message

RESOLVERS = (balancing, data, environment, experts, hybrid, initialisation, layout, mindspeed, optimizer, precision, schedule, structure)
NAMED: Mapping[str, Mapping[str, Any]] = {
    "": {name: value for module in (resolver, mindformers_models, lookup, canonical_values) for name, value in vars(module).items()},
    **{module.__name__.rpartition(".")[2]: vars(module) for module in (*RESOLVERS, schedules)},
}
"""Modules, the first four without a name, to what the table may name of them."""


def _named(text: str) -> Any:
    """Return what ``module.name`` stands for, or what ``module.name(argument,…)`` makes."""
    name, made, arguments = text.removesuffix(")").partition("(")
    module, _, attribute = name.rpartition(".")
    found = NAMED[module][attribute]
    return found(*map(setting, arguments.split(",") if arguments else ())) if made else found


def _value(text: str) -> Any:
    """Return a value that a side has, or the reader of one."""
    value = setting(text)
    is_named = isinstance(value, str) and (value.endswith(")") or value.partition(".")[0] in NAMED)
    return _named(value) if is_named else value


def _keys(names: Iterable[str]) -> tuple[str, ...]:
    """Return names in full: ``.name`` is one of MindFormers' model, ``~name`` one of its schedule, and ``*NAME`` several."""
    full: list[str] = []
    for name in names:
        if name.startswith("*"):
            full += _named(name[1:])
        else:
            short, rest = name[:1], name[1:]
            full += lookup.model(rest) if short == "." else schedule.schedule_keys(rest) if short == "~" else (name,)
    return tuple(full)


def _worded(kind: str, text: str) -> Message:
    """Return the message that ends so, or that is a constant, as one with arguments."""
    id = f"{kind}.{text}"
    words: Message = _named(text) if "." in text else message(id)
    return words


OF_SIDE: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "else": ("default", _value),
    "family": ("default", mindformers_models.default),
    "always": ("fixed", _value),
    "beside": ("beside", lambda text: _keys(text.split(","))),
    "read": ("read", _named),
    "write": ("writer", _named),
    "cannot": ("cannot", _named),
}
"""Word of a side to the field of a :class:`SideSpec`, and how the field is read."""
FUNCTIONS = ("describe", "harmless_if", "implied_by", "uncertain_if", "batches", "instead")
OF_ROW: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(FUNCTIONS, _named),
    **{kind: partial(_worded, kind) for kind in ("way_out", "by_hand")},
    **dict.fromkeys(("fact", "when"), str),
    "effect": Effect,
    "form": lambda text: None if text == "null" else _named(text),
    "weighs": setting,
}
"""Field of a :class:`CheckRow` to how it is read."""


def _said(cell: str = "") -> dict[str, str]:
    return dict(word.split("=", 1) for word in cell.split() if "=" in word)


def _side(cell: str) -> SideSpec:
    fields = {OF_SIDE[word][0]: OF_SIDE[word][1](text) for word, text in _said(cell).items()}
    return SideSpec(_keys(word for word in cell.split() if word != "-" and "=" not in word), **fields)


def _row(line: str, group: RowGroup, usual: Mapping[str, str]) -> CheckRow:
    id, megatron, mindformers, *rest = line.split(" | ")
    name = id.removesuffix("*")
    argument = f"={json.dumps(ARGUMENTS.get(name, False))}"
    one, other = (_side(cell.replace("=@", argument)) for cell in (megatron, mindformers))
    fields = {field: OF_ROW[field](text) for field, text in {**usual, **_said(*rest)}.items()}
    return CheckRow(name if name == id else Worded(name), one, other, group=group, advice=ADVICE.get(name), **fields)


def _rows() -> Iterable[CheckRow]:
    for head, lines in sections(Path(__file__).parent / "rows.txt").items():
        group = RowGroup(head.split()[0])
        for line in "\n".join(lines).replace("\n  ", " ").splitlines():
            yield _row(line, group, _said(head))


ROWS = tuple(_rows())
GROUPS = tuple(dict.fromkeys(row.group for row in ROWS))
ROW = {row.id: row for row in ROWS}
"""Every row by its id."""
