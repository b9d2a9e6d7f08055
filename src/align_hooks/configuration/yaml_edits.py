"""Settings written into a YAML file, every other character of which stays as it is.

PyYAML says where each node begins and ends, and only there is anything written. Libraries that write a whole document anew, such as
ruamel.yaml, keep comments and order and change what nobody asked for: ``True`` to ``true``, and the room around lists and comments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from align_hooks.configuration.values import ConfigurationError
from align_hooks.configuration.yaml_files import YamlNode, leaves, parsed

ANCHOR = re.compile(r"[ \t]*&[^\s,\[\]{}]+")
INDENT = 2
"""Spaces by which a new section is moved in, where no other tells."""


@dataclass(frozen=True, slots=True)
class MappingEntry:
    """A key of a mapping and its value, as nodes. Of an alias the value's node stands elsewhere, where its anchor is."""

    key: YamlNode
    value: YamlNode

    @property
    def is_alias(self) -> bool:
        """Whether the value is that of an anchor."""
        return bool(self.value.start_mark.index < self.key.end_mark.index)


def with_settings(text: str, name: str, settings: Mapping[str, str | None]) -> str:
    """A YAML text with some dotted keys given values, which are YAML of one line; None takes a key out.

    :raises ConfigurationError: a key stands where nothing can be written, as in what is not a mapping.
    """
    for key, value in settings.items():
        path, standing = key.split("."), leaves(text, name).get(key)
        wanted = leaves(f"value: {value}", name).get("value")
        if value is None:
            text = _without(text, name, path)
        elif standing is None or wanted is None or repr(standing.written) != repr(wanted.written):  # else an anchor was given it
            text = _with_setting(text, name, path, value)
    return text


def _without(text: str, name: str, path: Sequence[str]) -> str:
    """A text without the lines of a key."""
    with parsed(text, name) as (_, node):
        entry = None
    for part in path:
        entry = _entry(node, part) if node is not None and node.id == "mapping" and not node.flow_style else None
        node = entry.value if entry is not None and not entry.is_alias else None
    if entry is None:
        raise ConfigurationError(f"{name}: {path[-1]} stands in no line of its own; take it out by hand")
    begin = text.rfind("\n", 0, entry.key.start_mark.index) + 1
    return text[:begin] + text[_end_of(text, entry) :].partition("\n")[2]


def _with_setting(text: str, name: str, path: Sequence[str], value: str) -> str:
    """A text with one key given a value: where it stands, or else at the end of the deepest section above it that is there."""
    with parsed(text, name) as (_, root):
        node = root
    if node is None or node.id != "mapping":
        raise ConfigurationError(f"{name} is no mapping; nothing can be written into it")
    for depth, part in enumerate(path):
        entry = _entry(node, part)
        if entry is None:
            return _added(text, node, path[depth:], value)
        if depth == len(path) - 1:
            return _replaced(text, entry, " " + value)
        if entry.value.id != "mapping" or entry.is_alias:
            return _replaced(text, entry, _in_braces(path[depth + 1 :], value))
        node = entry.value
    raise ConfigurationError(f"{name}: no key was given")


def _entry(node: YamlNode, name: str) -> MappingEntry | None:
    """The entry of a mapping that a name has in the text itself, not by a merge."""
    return next((MappingEntry(key, value) for key, value in node.value if str(key.value) == name), None)


def _in_braces(path: Sequence[str], value: str) -> str:
    """A value below some keys, in one line."""
    return " " + "".join(f"{{{part}: " for part in path) + value + "}" * len(path)


def _replaced(text: str, entry: MappingEntry, value: str) -> str:
    """A text with another value in an entry. The comment behind the value stays, and an anchor, which aliases name."""
    begin = text.index(":", entry.key.end_mark.index) + 1
    anchor = ANCHOR.match(text, begin)
    if anchor is not None and not entry.is_alias:
        begin = anchor.end()
    if entry.is_alias:
        held = re.compile(r"[ \t]*\*[^\s,}\]]+").match(text, begin)
        end = held.end() if held is not None else begin
    else:
        end = max(begin, _end(text, entry.value))
    return text[:begin] + value + text[end:]


def _added(text: str, node: YamlNode, path: Sequence[str], value: str) -> str:
    """A text with a new key behind the last of a mapping."""
    if node.flow_style:
        end = text.rindex("}", 0, node.end_mark.index)
        last = text[:end].rstrip()
        joint = "" if last.endswith(("{", ",")) else ", "
        return f"{last}{joint}{path[0]}:{_in_braces(path[1:], value)}{text[end:]}"
    newline = "\r\n" if "\r\n" in text else "\n"
    margin = node.value[0][0].start_mark.column if node.value else 0
    lines = [" " * (margin + INDENT * depth) + f"{part}:" for depth, part in enumerate(path)]
    lines[-1] += " " + value
    end = _end_of(text, MappingEntry(*node.value[-1]))
    stop = text.find("\n", end)
    if stop < 0:
        return text + newline + newline.join(lines)
    stop -= text[stop - 1] == "\r"
    return text[:stop] + "".join(newline + line for line in lines) + text[stop:]


def _end_of(text: str, entry: MappingEntry) -> int:
    """Where the last character of a key and its value stands."""
    after_key = int(entry.key.end_mark.index)
    return after_key if entry.is_alias else max(after_key, _end(text, entry.value))


def _end(text: str, node: YamlNode) -> int:
    """Where the last character of a node stands. Blocks end, for PyYAML, where the next thing begins."""
    if node.id == "scalar" and node.style in ("|", ">"):
        return len(text[: node.end_mark.index].rstrip())
    if node.id == "scalar" or node.flow_style or not node.value:
        return int(node.end_mark.index)
    if node.id == "sequence":
        return _end(text, node.value[-1])
    last = MappingEntry(*node.value[-1])
    after_key = int(last.key.end_mark.index)
    return text.find("\n", after_key) if last.is_alias else max(after_key + 1, _end(text, last.value))
