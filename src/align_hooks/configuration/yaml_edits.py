"""Settings written into a YAML file, every other character of which stays as it is.

PyYAML gives the beginning and the end of each node. Libraries that write the document anew, such as ruamel.yaml, keep comments and
order, and change ``True`` to ``true`` and the spaces around lists and comments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from align_hooks.configuration.values import ConfigurationError
from align_hooks.configuration.yaml_files import YamlNode, leaves, parsed

ANCHOR = re.compile(r"[ \t]*&[^\s,\[\]{}]+")
INDENT = 2
"""Spaces by which the keys of a new section are indented."""


class MappingEntry(Struct, frozen=True):
    """A key of a mapping and its value."""

    key: YamlNode
    value: YamlNode
    """Of an alias, the node at the anchor."""

    @property
    def is_alias(self) -> bool:
        """Whether the value is an alias of an anchor's."""
        return bool(self.value.start_mark.index < self.key.end_mark.index)


def with_settings(text: str, name: str, settings: Mapping[str, str | None]) -> str:
    """Return a YAML text with other values of some dotted keys, each YAML of one line; None removes a key.

    :raises ConfigurationError: a key stands where nothing can be written, as in a list.
    """
    for key, value in settings.items():
        path, standing = key.split("."), leaves(text, name).get(key)
        wanted = leaves(f"value: {value}", name).get("value")
        if value is None:
            text = _without(text, name, path)
        elif standing is None or wanted is None or repr(standing.written) != repr(wanted.written):  # else an anchor has set the value
            text = _with_setting(text, name, path, value)
    return text


def _without(text: str, name: str, path: Sequence[str]) -> str:
    """Return a text without the lines of a key."""
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
    """Return a text with a value of one key, where the key stands, or at the end of the deepest section that is there."""
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
    """Return the entry of a name in the text itself, not by a merge."""
    return next((MappingEntry(key, value) for key, value in node.value if str(key.value) == name), None)


def _in_braces(path: Sequence[str], value: str) -> str:
    """Return a value below some keys, in one line."""
    return " " + "".join(f"{{{part}: " for part in path) + value + "}" * len(path)


def _replaced(text: str, entry: MappingEntry, value: str) -> str:
    """Return a text with another value in an entry; the comment behind the value and its anchor stay."""
    begin = text.index(":", entry.key.end_mark.index) + 1
    if entry.is_alias:
        alias = re.compile(r"[ \t]*\*[^\s,}\]]+").match(text, begin)
        end = alias.end() if alias is not None else begin
    else:
        anchor = ANCHOR.match(text, begin)
        begin = anchor.end() if anchor is not None else begin
        end = max(begin, _end(text, entry.value))
    return text[:begin] + value + text[end:]


def _added(text: str, node: YamlNode, path: Sequence[str], value: str) -> str:
    """Return a text with a new key at the end of a mapping."""
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
    """Return the index behind an entry."""
    after_key = int(entry.key.end_mark.index)
    return after_key if entry.is_alias else max(after_key, _end(text, entry.value))


def _end(text: str, node: YamlNode) -> int:
    """Return the index behind a node's last character; PyYAML ends a block where the next node begins."""
    if node.id == "scalar" and node.style in ("|", ">"):
        return len(text[: node.end_mark.index].rstrip())
    if node.id == "scalar" or node.flow_style or not node.value:
        return int(node.end_mark.index)
    if node.id == "sequence":
        return _end(text, node.value[-1])
    last = MappingEntry(*node.value[-1])
    after_key = int(last.key.end_mark.index)
    return text.find("\n", after_key) if last.is_alias else max(after_key + 1, _end(text, last.value))
