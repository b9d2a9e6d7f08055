"""Keys that an older model's configuration class silently ignores (``PretrainedConfig.__init__``), and what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import replace

from align_hooks.checklist.change import in_yaml
from align_hooks.checklist.class_keys import OF_CLASS, class_of, own_keys
from align_hooks.checklist.older_families import GONE
from align_hooks.checklist.readings.lookup import is_since
from align_hooks.checklist.row import MODEL, UNSET, CheckRow
from align_hooks.checklist.side_value import read_row, same
from align_hooks.checklist.tables import ROW, ROWS
from align_hooks.configuration.values import Configuration, Setting, Value
from align_hooks.messages import Message, message, terms

NEAR = 0.8
"""The similarity (``difflib``, 0 to 1) from which on one name may be meant for another."""
MEANT = {
    "rotary_emb_base": ("rotary_base", "theta"),
    "rotary_pct": ("rotary_percent", ""),
    "emb_dropout_prob": ("hidden_dropout", ""),
    "attn_dropout_prob": ("attention_dropout", ""),
}
"""Other frameworks' names in MindFormers' YAML files to their row, and to the name that an older model reads, empty without one."""


def unread(c: Configuration) -> Iterator[Message]:
    """Yield the ignored keys, each with its place and the name that is read; none whose value holds anyhow."""
    kind = class_of(c)
    read = own_keys(kind, c.version) if kind else frozenset[str]()
    of = {"kind": kind, "version": ".".join(c.version.split(".")[:2])}
    if (last := GONE.get(kind)) is not None and is_since(c.version, 1, 6):
        yield message("trap.no_class", place=c.values[OF_CLASS].where, last=last, **of)
        of["version"] = last
    unknown: list[str] = []
    for name, value in _lost(c) if kind else ():
        if (meant := _meant(c, name, value, read - {name})) is None:
            continue
        near = meant or next(iter(difflib.get_close_matches(name, sorted(read - {name}), 1, NEAR)), "")
        if (other := c.values.get(MODEL + near)) is not None:
            yield message("trap.unread_beside", place=value.where, name=name, other=near, elsewhere=other.where, **of)
        elif meant:
            yield message("trap.unread", place=value.where, name=name, instead=f"{meant}: {in_yaml(value.value)}", **of)
        elif near:
            yield message("trap.unread_near", place=value.where, name=name, other=near, **of)
        else:
            unknown.append(f"{name} ({value.where})")
    if unknown:
        yield message("trap.unread_alone", names=terms(unknown), **of)


def _lost(c: Configuration) -> Iterator[tuple[str, Value]]:
    """Yield the ignored names without their section, each once, with a table's first value; none that is set to nothing."""
    seen: set[str] = set()
    for key, value in c.values.items():
        name = key.removeprefix(MODEL).partition(".")[0]
        if key in c.passed_over and name not in seen and value.value not in (None, "None"):
            seen.add(name)
            yield name, value


def _meant(c: Configuration, name: str, value: Value, read: frozenset[str]) -> str | None:
    """Return the name that is read and means what the key seems to; empty without one; None where the value holds anyhow."""
    key = MODEL + name
    if name in MEANT:
        says, instead = MEANT[name]
        return None if same(_held(ROW[says], c), value.value) else instead if instead in read else ""
    rows = [row for row in ROWS if key in row.mindformers.keys]
    if rows and all(_held(row, c) is not UNSET and same(_held(row, c), _held(row, c, key)) for row in rows):
        return None
    for row in rows:
        for other in (other for other in row.mindformers.keys if other.removeprefix(MODEL) in read):
            without = replace(c, values={one: held for one, held in c.values.items() if one not in (key, other)})
            seems = _held(row, replace(without, values={**without.values, key: value}), key)
            would = _held(row, replace(without, values={**without.values, other: value}))
            if seems is not UNSET and same(seems, would):
                return other.removeprefix(MODEL)
    return ""


def _held(row: CheckRow, c: Configuration, key: str = "") -> Setting:
    """Return a side's meaning of a row, as if ``key`` were read too."""
    return read_row(row, replace(c, passed_over=c.passed_over - {key}, used=set())).meaning
