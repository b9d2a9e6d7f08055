"""The flags that MindSpeed and MindSpeed-LLM (Megatron-LM on Ascend) add to Megatron-LM's.

The flags of a launch script, or the imports of its program, show which of the three it starts.
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
    """Return flag to attribute, and the value that the flag sets (None: the flag takes a value), from a table's rows."""
    return {flag: (attribute, setting(value[0]) if value else None) for flag, attribute, *value in map(str.split, lines)}


_TABLES = sections(Path(__file__).parent / "mindspeed_flags.txt")
RENAMED = renamed(_TABLES["renamed"])
"""Flags whose attribute has another name (mostly that of Megatron-LM's later releases), and flags that switch off."""
CHOICES: Mapping[str, list[str]] = {flag: values for flag, *values in map(str.split, _TABLES["choices"])}
"""Flag of Megatron-LM to the values that MindSpeed adds to Megatron-LM's own."""
_ROWS = [line.split(maxsplit=4) for line in _TABLES[""]]
FLAGS: Mapping[str, str] = {flag: takes for flag, takes, *_ in _ROWS}
"""Flag without its dashes to what it takes, in the words of Megatron-LM's table."""

_DEFAULTS = {flag.replace("-", "_"): json.loads(default) for flag, *_, default in _ROWS}
ARGUMENTS: Mapping[str, Setting] = {
    RENAMED.get(name, (name, None))[0]: default
    for name, default in sorted(_DEFAULTS.items(), key=lambda item: item[0] not in RENAMED)  # the flag of the attribute's name wins
}
"""Attribute to its default."""

OTHERS = frozenset(" ".join(_TABLES["others"]).split())
"""Flags that do not identify MindSpeed: other forks, older releases or torchrun have them, or any word might be one."""
OWNERS: Mapping[str, str] = {flag: owner for flag, _, owner, *_ in _ROWS if flag not in OTHERS}
"""Flag that identifies MindSpeed to who registers it: ``llm``, ``core`` or ``both``."""
MODULES = ("mindspeed_llm.", "modellink.")
"""Prefixes of MindSpeed-LLM's modules, as ``--spec`` takes them."""
IMPORTS = re.compile(r"^[ \t]*(?:import|from)[ \t]+(mindspeed_llm|modellink|mindspeed|ascendspeed)\b", re.MULTILINE)
"""A program's import of MindSpeed; ModelLink and AscendSpeed are former names."""
MANY = 20
"""Least number of attributes of a fork by which a record is the fork's: its parser sets all of them."""


def fork_of_words(words: Iterable[str], of_megatron: Mapping[str, str]) -> str:
    """Return the fork that a command's own flags and modules show; empty where none does."""
    words = list(words)
    flags = {word[2:].partition("=")[0] for word in words if word.startswith("--")}
    owners = {OWNERS[flag] for flag in flags if flag in OWNERS and flag not in of_megatron}
    owners |= {"llm" for word in words if word.startswith(MODULES)}
    return MINDSPEED_LLM if "llm" in owners else MINDSPEED if owners else ""


def fork_of_record(names: Iterable[str], of_megatron: Mapping[str, str]) -> str:
    """Return the fork whose parser made a record's arguments, by the names of the attributes; empty for Megatron-LM."""
    flags = [name.replace("_", "-") for name in names]
    owners = [OWNERS[flag] for flag in flags if flag in OWNERS and flag not in of_megatron]
    return "" if len(owners) < MANY else MINDSPEED_LLM if owners.count("llm") >= MANY else MINDSPEED


def by_attribute(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return a record's arguments by the attributes that ``RENAMED`` maps them to; an alias that is not set is left out."""
    aliases = {name for name, (attribute, _) in RENAMED.items() if name != attribute}
    meant = {RENAMED[name][0]: value for name, value in values.items() if name in aliases and value.value not in (None, False)}
    return {name: value for name, value in values.items() if name not in aliases} | meant


def fork_of_program(program: str, folder: Path | None) -> str:
    """Return the fork that a program beside its script, or in a folder above, imports; empty where it imports none."""
    if folder is None or not program or Path(program).is_absolute():
        return ""
    try:
        places = [above / program for above in folders_above(folder)]
        path = next((place for place in places if place.is_file()), None)
        imported = set(IMPORTS.findall(read_text(path))) if path is not None else set()
    except (ConfigurationError, OSError, ValueError):
        return ""
    return MINDSPEED_LLM if imported & {"mindspeed_llm", "modellink"} else MINDSPEED if imported else ""
