"""MindSpeed-LLM's own arguments, and MindSpeed's: Megatron-LM on Ascend, whose parser takes more flags than Megatron-LM's.

A launch script does not say which framework it starts. Its flags do, or what its program imports.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from align_hooks.configuration.beside import folders_above
from align_hooks.configuration.files import read_text
from align_hooks.configuration.values import MINDSPEED, MINDSPEED_LLM, ConfigurationError, Setting, Value
from align_hooks.data_file import sections, setting


def renamed(lines: Iterable[str]) -> dict[str, tuple[str, Setting]]:
    """Return flag to attribute, and the value that the flag gives it, None where the flag takes one; of rows of a table of flags."""
    return {flag: (attribute, setting(value[0]) if value else None) for flag, attribute, *value in map(str.split, lines)}


_TABLES = sections(Path(__file__).parent / "mindspeed_flags.txt")
RENAMED = renamed(_TABLES["renamed"])
"""Flags that mean an attribute of another name, mostly Megatron's own, which later releases take instead; and flags that switch off."""
CHOICES: Mapping[str, list[str]] = {flag: taken for flag, *taken in map(str.split, _TABLES["choices"])}
"""Flag of Megatron's to what it takes of MindSpeed's beside Megatron-LM's own."""
_ROWS = [line.split(maxsplit=4) for line in _TABLES[""]]
FLAGS: Mapping[str, str] = {flag: takes for flag, takes, *_ in _ROWS}
"""Every flag without its dashes, and what it takes, as Megatron-LM's."""

_DEFAULTS = {flag.replace("-", "_"): json.loads(default) for flag, *_, default in _ROWS}
ARGUMENTS: Mapping[str, Setting] = {
    **{RENAMED[name][0]: default for name, default in _DEFAULTS.items() if name in RENAMED},
    **{name: default for name, default in _DEFAULTS.items() if name not in RENAMED},
}
"""Attribute to its default; where two flags mean one attribute, that of the flag of its name."""

OTHERS = frozenset(" ".join(_TABLES["others"]).split())
"""Flags that other forks of Megatron-LM have too, older releases of it, or torchrun, and words that anybody might take for a flag: they do
not tell MindSpeed."""

OWNERS: Mapping[str, str] = {flag: owner for flag, _, owner, *_ in _ROWS if flag not in OTHERS}
"""Flag that tells MindSpeed to who registers it: ``llm``, ``core`` or ``both``."""

MODULES = ("mindspeed_llm.", "modellink.")
"""What the name of a module of MindSpeed-LLM begins with, as ``--spec`` takes it."""

IMPORTS = re.compile(r"^[ \t]*(?:import|from)[ \t]+(mindspeed_llm|modellink|mindspeed|ascendspeed)\b", re.MULTILINE)
"""What a program imports of MindSpeed; ModelLink and AscendSpeed are their names of before."""


def fork_of_words(words: Iterable[str], of_megatron: Mapping[str, str]) -> str:
    """The fork that a command's arguments are of, by its own flags and modules; empty where nothing tells it."""
    words = list(words)
    flags = {word[2:].partition("=")[0] for word in words if word.startswith("--")}
    owners = {OWNERS[flag] for flag in flags if flag in OWNERS and flag not in of_megatron}
    owners |= {"llm" for word in words if word.startswith(MODULES)}
    return MINDSPEED_LLM if "llm" in owners else MINDSPEED if owners else ""


MANY = 20
"""So many attributes that only a fork has tell that a record is the fork's, whose parser holds all of them."""


def fork_of_record(names: Iterable[str], of_megatron: Mapping[str, str]) -> str:
    """The fork that the arguments of a record are of, by the names of the attributes."""
    flags = [name.replace("_", "-") for name in names]
    owners = [OWNERS[flag] for flag in flags if flag in OWNERS and flag not in of_megatron]
    return "" if len(owners) < MANY else MINDSPEED_LLM if owners.count("llm") >= MANY else MINDSPEED


def by_attribute(values: Mapping[str, Value]) -> dict[str, Value]:
    """The arguments of a record by the names of the attributes that they mean, as ``RENAMED`` has them; one that is not set means none."""
    aliases = {name for name, (attribute, _) in RENAMED.items() if name != attribute}
    meant = {RENAMED[name][0]: value for name, value in values.items() if name in aliases and value.value not in (None, False)}
    return {name: value for name, value in values.items() if name not in aliases} | meant


def fork_of_program(program: str, folder: Path | None) -> str:
    """The fork that a program imports, where it lies beside its script or in a folder above; empty where it imports none."""
    if folder is None or not program or Path(program).is_absolute():
        return ""
    try:
        places = [above / program for above in folders_above(folder)]
        path = next((place for place in places if place.is_file()), None)
        imported = set(IMPORTS.findall(read_text(path))) if path is not None else set()
    except (ConfigurationError, OSError, ValueError):
        return ""
    return MINDSPEED_LLM if imported & {"mindspeed_llm", "modellink"} else MINDSPEED if imported else ""
