"""Keys of an older model that its configuration class does not read: which they are, and what to write so that they do what they say.

Such a key becomes an attribute that nobody asks for, without a word (``PretrainedConfig.__init__``, 1.9
``models/configuration_utils.py``).
"""

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
"""How alike two names are, from 0 to 1 (``difflib``), where one may be meant for the other."""
MEANT = {
    "rotary_emb_base": ("rotary_base", "theta"),
    "rotary_pct": ("rotary_percent", ""),
    "emb_dropout_prob": ("hidden_dropout", ""),
    "attn_dropout_prob": ("attention_dropout", ""),
}
"""Names of other frameworks' configurations that stand in YAML files of MindFormers: the row that says what they mean, and what an older
model reads in their stead, empty where it reads nothing."""


def unread(c: Configuration) -> Iterator[Message]:
    """The keys that are lost, each with its place and what is read in its stead; none where what holds is what the key says."""
    kind = class_of(c)
    read = own_keys(kind, c.version) if kind else frozenset[str]()
    of = {"kind": kind, "version": ".".join(c.version.split(".")[:2])}
    if (last := GONE.get(kind)) is not None and is_since(c.version, 1, 6):
        yield message("trap.no_class", place=c.values[OF_CLASS].where, last=last, **of)
        of["version"] = last
    alone: list[str] = []
    for name, value in _lost(c) if kind else ():
        meant = _meant(c, name, value, read - {name})
        if meant is None:
            continue
        near = meant or next(iter(difflib.get_close_matches(name, sorted(read - {name}), 1, NEAR)), "")
        standing = c.values.get(MODEL + near)
        if standing is not None:
            yield message("trap.unread_beside", place=value.where, name=name, other=near, elsewhere=standing.where, **of)
        elif meant:
            yield message("trap.unread", place=value.where, name=name, instead=f"{meant}: {in_yaml(value.value)}", **of)
        elif near:
            yield message("trap.unread_near", place=value.where, name=name, other=near, **of)
        else:
            alone.append(f"{name} ({value.where})")
    if alone:
        yield message("trap.unread_alone", names=terms(alone), **of)


def _lost(c: Configuration) -> Iterator[tuple[str, Value]]:
    """Names without their section, each once, in their order; a table goes by its first key, and what is set to nothing is not lost."""
    seen: set[str] = set()
    for key, value in c.values.items():
        name = key.removeprefix(MODEL).partition(".")[0]
        if key in c.passed_over and name not in seen and value.value not in (None, "None"):
            seen.add(name)
            yield name, value


def _meant(c: Configuration, name: str, value: Value, read: frozenset[str]) -> str | None:
    """The name that is read and would do with this value what the key seems to do, empty where there is none; None where what holds is what
    the key says."""
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
    """What a side holds of a row, as if ``key`` were read too."""
    return read_row(row, replace(c, passed_over=c.passed_over - {key}, used=set())).meaning
