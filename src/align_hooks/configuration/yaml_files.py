"""YAML files as dotted keys, each value with its line.

The safe loader of YAML 1.1 reads them, as in MindFormers: no tag makes an object, and ``1e-8`` is text. Sizes are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import yaml
from msgspec.structs import replace

from align_hooks.configuration.values import ConfigurationError, KeyPath, Setting, SourceLocation, Tie, Value
from align_hooks.regular import ReadLimits

YamlNode: TypeAlias = Any
"""A node of PyYAML, which is imported only where a YAML file is read."""
YamlNodes: TypeAlias = tuple[YamlNode, ...]
"""A node and the nodes around it, the innermost first."""
Leaf: TypeAlias = tuple[str, Value, YamlNodes]
"""The dotted key of a value, the value, and its node with the nodes around it."""
YamlLoader: TypeAlias = Any
"""PyYAML's safe loader of a text."""
ANCHOR = re.compile(r"&([^\s,\[\]{}]+)")
MOST = 100_000
"""Most values of a file: by aliases a few lines can make more than a machine holds."""
DEEPEST = 10_000


@contextmanager
def parsed(text: str, name: str) -> Iterator[tuple[YamlLoader, YamlNode]]:
    """Yield the loader of a text and its root node, None for an empty text; an error in the block names the file and the line.

    :raises ConfigurationError: the text is no YAML, holds a tag or unfolds into too much.
    """
    if deepest(text) > DEEPEST:  # the parser is in C, and ends the process
        raise ConfigurationError(f"{name} cannot be read as YAML: it may open more than {DEEPEST} lists and tables, one in another")
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        node = loader.get_single_node()
        if node is not None and _size(node, {}) > MOST:
            raise ConfigurationError(f"{name} unfolds into more than {MOST} values; take its aliases out")
        yield loader, node
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark is not None else name
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        if "constructor" in problem:
            tag = problem.rpartition("tag ")[2].strip("'")
            problem = f"the tag {tag} makes an object, and MindFormers reads none; nothing was executed, take it out"
        raise ConfigurationError(f"{where} cannot be read as YAML: {problem}") from None
    except (RecursionError, ValueError, TypeError, LookupError, OverflowError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigurationError(f"{name} cannot be read as YAML: {why}") from None


def deepest(text: str) -> int:
    """Return the largest depth that lists and tables of a text may have; quoted text counts too, for only the parser knows quotes."""
    marks = max((len(re.findall(r"[-?:](?=\s)", line)) for line in text.splitlines()), default=0)
    return max(text.count("[") + text.count("{"), marks)


def leaves(text: str, name: str) -> dict[str, Value]:
    """Return every value of a YAML file by its dotted key.

    :raises ConfigurationError: the text cannot be :func:`parsed`, or holds a key twice.
    """
    with parsed(text, name) as (loader, node):
        is_mapping = node is not None and node.id == "mapping"
        found = list(_flatten(loader, node, "", name, ())) if is_mapping else []
        ties = _ties(text, {key: nodes for key, _, nodes in found})
    return {key: replace(value, tie=ties.get(key)) for key, value, _ in found}


def plain_values(text: str, name: str) -> Any:
    """Return what a YAML file holds, as plain objects.

    :raises ConfigurationError: the text cannot be :func:`parsed`, or holds a key twice.
    """
    with parsed(text, name) as (loader, node):
        if node is not None and node.id == "mapping":
            list(_flatten(loader, node, "", name, ()))  # which refuses a key that is there twice
        return None if node is None else _constructed(loader, node)


def yaml_text(values: Mapping[str, Any]) -> str:
    """Return plain objects as YAML, in their order, with lines that are not broken."""
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=1 << 20))


def _ties(text: str, nodes: Mapping[str, YamlNodes]) -> dict[str, Tie]:
    """Return the anchors of values that other keys have too; ``nodes`` has the nodes of each key, the innermost first."""
    places: dict[int, list[tuple[str, KeyPath]]] = {}
    for key, (node, *_) in nodes.items():
        for inner, path in _within(node, ()):
            places.setdefault(id(inner), []).append((key, path))
    ties = {}
    for key, (node, *above) in nodes.items():
        anchor = next(filter(None, (ANCHOR.match(text, one.start_mark.index) for one in (node, *above))), None)
        if anchor is not None and len(places[id(node)]) > 1:  # a key that is merged has none above it, and gives no other its value
            ties[key] = Tie(anchor[1], tuple(places[id(node)]))
    return ties


def _within(node: YamlNode, path: KeyPath) -> Iterator[tuple[YamlNode, KeyPath]]:
    """Yield a node and all nodes inside it, each with the path to it."""
    yield node, path
    keyed = [(str(key.value), inner) for key, inner in node.value] if node.id == "mapping" else []
    for step, inner in (*keyed, *enumerate(node.value if node.id == "sequence" else ())):
        yield from _within(inner, (*path, step))


def _flatten(loader: YamlLoader, node: YamlNode, prefix: str, name: str, above: YamlNodes) -> Iterator[Leaf]:
    """Yield every leaf of a mapping."""
    if any(node is one for one in above):
        raise ConfigurationError(f"{name}:{node.start_mark.line + 1} holds itself; take the alias out")
    seen: dict[str, int] = {}
    for key_node, _ in node.value:
        key, line = str(key_node.value), key_node.start_mark.line + 1
        if key in seen and key != "<<":
            raise ConfigurationError(f"{prefix}{key} is given twice, in {name}:{seen[key]} and {name}:{line}; leave one out")
        seen[key] = line
    loader.flatten_mapping(node)
    for key_node, value_node in node.value:
        key = prefix + str(key_node.value)
        if isinstance(value_node, yaml.MappingNode) and value_node.tag != "tag:yaml.org,2002:map":
            loader.construct_undefined(value_node)  # raises
        if isinstance(value_node, yaml.MappingNode):
            yield from _flatten(loader, value_node, f"{key}.", name, (node, *above))
        else:
            value = Value(_constructed(loader, value_node), SourceLocation(name, key_node.start_mark.line + 1))
            yield key, value, (value_node, node, *above)


def _constructed(loader: YamlLoader, node: YamlNode) -> Setting:
    """Return the value of a node; raises ValueError for a value that does not fit its tag, and for huge numbers."""
    try:
        value = loader.construct_object(node, deep=True)
    except (AttributeError, LookupError, TypeError, ValueError, OverflowError):  # of !!timestamp on a text, PyYAML has no error of its own
        kind = node.tag.rpartition(":")[2]
        raise ValueError(f"line {node.start_mark.line + 1} has no {kind} where its tag, or its form, says so") from None
    waiting = [value]
    while waiting:
        inside = waiting.pop()
        waiting += [*inside, *inside.values()] if isinstance(inside, dict) else inside if isinstance(inside, list | set | tuple) else ()
        if isinstance(inside, int) and abs(inside) >= 10**ReadLimits.DIGITS:
            raise ValueError(f"line {node.start_mark.line + 1} has a number of more than {ReadLimits.DIGITS} digits")
    return value


def _size(node: YamlNode, known: dict[int, int]) -> int:
    """Return the number of values that a node unfolds into, each alias counted, in a time that depends only on the written text."""
    if id(node) not in known:
        known[id(node)] = MOST + 1  # for a node that holds itself
        inner = node.value if isinstance(node.value, list) else []
        pieces = [piece for piece in inner for piece in (piece if isinstance(piece, tuple) else (piece,))]
        known[id(node)] = 1 + sum(_size(piece, known) for piece in pieces)
    return known[id(node)]
