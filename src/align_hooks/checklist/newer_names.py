"""Names that MindFormers 1.9's newer models ignore or refuse, and what to write instead: data, in ``newer_names.txt``.

1.6 to 1.8 read nearly all of them, as the guide and old YAML files do. Families differ, for Qwen3's classes convert their
configuration twice; tests build every family with every name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from align_hooks.configuration.values import Setting
from align_hooks.data_file import sections, setting
from align_hooks.messages import Argument, message

_TABLES = sections(Path(__file__).parent / "newer_names.txt")
_GROUPS = {name: tuple(families.split()) for name, families in (line.split(": ") for line in _TABLES["families"])}
EVERY = _GROUPS["EVERY"]
"""The families that 1.9 trains."""


def _instead(head: str) -> dict[str, Argument]:
    """Return what to write instead of each name of a section: another name, or a message about two of them."""
    return {name: _advice(*names) for name, *names in map(str.split, _TABLES[head])}


def _advice(name: str, of_deepseek: str = "") -> Argument:
    if of_deepseek:
        return message("instead.num_experts", name=name, other=of_deepseek)
    first, _, second = name.partition("|")
    return message("instead.either", name=first, other=second) if second else name


def _by_family(head: str) -> list[tuple[tuple[str, ...], list[str]]]:
    """Return the rows of a section: the families that each holds for, and its words."""
    rows = (line.split(": ") for line in _TABLES[head])
    return [(tuple(one for name in families.split() for one in _GROUPS.get(name, (name,))), words.split()) for families, words in rows]


IGNORED = _instead("ignored")
INSTEAD: Mapping[str, Argument] = {**IGNORED, **_instead("instead")}
READ_BY = {"router_dense_type": ("qwen3_moe", "telechat3_moe")}
"""Families that do read what the others pass over."""
REFUSED, WITHOUT_EFFECT, UNREAD = map(_by_family, ("refused", "without effect", "unread"))
REFUSED_VALUES: list[tuple[tuple[str, ...], str, Setting]] = [
    (families, name, setting(value))
    for families, pairs in _by_family("refused values")
    for name, value in (pair.split("=") for pair in pairs)
]
UNLESS: Mapping[str, tuple[str, Setting]] = {"bias_swiglu_fusion": ("hidden_act", "swiglu")}
"""What must be said too for a refused value of a name to be taken."""


def refused(family: str | None) -> frozenset[str]:
    """Names that a family refuses; of one that 1.9 does not train, or that is not known, those that all refuse."""
    known = family if family in EVERY else None
    return frozenset(name for families, names in REFUSED for name in names if (known in families if known else families == EVERY))


def ignored(family: str | None) -> frozenset[str]:
    """Names that a family passes over."""
    return frozenset(name for name in IGNORED.keys() - refused(family) if family not in READ_BY.get(name, ()))


def unread(family: str | None) -> frozenset[str]:
    """Names by which nothing changes in a family that 1.9 trains."""
    return frozenset(name for families, names in UNREAD for name in names if family in families) | without_effect(family)


def without_effect(family: str | None) -> frozenset[str]:
    """Names that mean something, and that a family that 1.9 trains does not do."""
    return frozenset(name for families, names in WITHOUT_EFFECT for name in names if family in families)


def refuses(family: str | None, name: str, value: Setting, said: Mapping[str, Setting]) -> bool:
    """Return whether a family, every one where it is not known, refuses a value; ``said``: the YAML's model settings by name."""
    holds = (one for families, *one in REFUSED_VALUES if (family in families if family is not None else families == EVERY))
    if [name, value] not in holds:
        return False
    beside, wanted = UNLESS.get(name, ("", None))
    return not beside or said.get(beside) != wanted
