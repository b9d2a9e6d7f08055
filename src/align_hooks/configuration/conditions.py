"""Whether a condition of a script holds, and whether a command succeeds: yes, no, or None where only a run can tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from align_hooks.configuration.script import NOBODY, Script, Word, text_of
from align_hooks.configuration.words import ARITHMETIC, SIMPLE, single

NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda one, other: one == other,
    "-ne": lambda one, other: one != other,
    "-lt": lambda one, other: one < other,
    "-le": lambda one, other: one <= other,
    "-gt": lambda one, other: one > other,
    "-ge": lambda one, other: one >= other,
}
BARE = ("string", "word", "simple_expansion", "expansion")
"""What alone between brackets asks whether it is anything."""
SURE = ("true", ":", "echo", "printf", "mkdir", "cd")
"""Commands that succeed in any script that trains at all."""
ODD_PATTERN = re.compile(r"\[\^|\[\[:|\(|\\\\")


def succeeds(script: Script, node: Any) -> bool | None:
    """Whether a part of a list succeeds."""
    if node.type == "list":
        one, other = succeeds(script, node.named_children[0]), succeeds(script, node.named_children[-1])
        return _both(one, other, all_of=any(child.type == "&&" for child in node.children))
    if node.type in ("test_command", "negated_command"):
        return holds(script, node)
    text = text_of(node)
    if "$(" in text or "`" in text:
        return None
    if node.type in ("variable_assignment", "declaration_command"):
        return True
    if node.type == "redirected_statement":
        return succeeds(script, node.named_children[0])
    if node.type != "command":
        return None
    return False if text == "false" else True if text.split()[0] in SURE else None


def holds(script: Script, node: Any) -> bool | None:
    """Whether a condition holds."""
    kind, text = node.type, text_of(node)
    inner = [child for child in node.named_children if child.type != "comment"]
    if kind == "test_command" and text.startswith("[ ") and _confused(script, node):
        return None
    if kind in ("test_command", "parenthesized_expression") and len(inner) == 1:
        return _is_there(script, inner[0]) if inner[0].type in BARE else holds(script, inner[0])
    if kind == "negated_command" or (kind == "unary_expression" and text.lstrip().startswith("!")):
        held = holds(script, inner[-1])
        return None if held is None else not held
    if kind == "list" or (kind == "binary_expression" and any(child.type in ("&&", "||") for child in node.children)):
        return _both(holds(script, inner[0]), holds(script, inner[-1]), all_of=any(child.type == "&&" for child in node.children))
    if kind == "unary_expression" and len(inner) == 2:
        there, test = _is_there(script, inner[1]), text_of(inner[0])
        return None if there is None or test not in ("-z", "-n") else there == (test == "-n")
    if kind == "binary_expression" and len(inner) >= 2:
        return _compared(script, node, inner)
    if kind == "command" and text in ("true", "false", ":"):
        return text != "false"
    return None


def _confused(script: Script, node: Any) -> bool:
    """Whether single brackets read something else than the grammar does: ``-a``, ``-o``, ``!`` before a comparison, words that split."""
    if re.search(r"\s-[ao]\s|^\[ ! .* (=|==|!=|-\w\w) ", text_of(node)):
        return True
    return any(re.search(r"\s|^$|[*?]", _tested(script, one).text) is not None for one in _unquoted(node))


def _unquoted(node: Any) -> list[Any]:
    """Expansions that stand outside quotes."""
    if node.type in SIMPLE:
        return [node]
    return [one for child in node.named_children if child.type != "string" for one in _unquoted(child)]


def _both(one: bool | None, other: bool | None, *, all_of: bool) -> bool | None:
    if all_of:
        return False if False in (one, other) else None if None in (one, other) else True
    return True if True in (one, other) else None if None in (one, other) else False


def _tested(script: Script, node: Any) -> Word:
    """A word of a condition: a variable that nothing sets is empty there, as it is to bash."""
    word = single(script, node)
    alone = node.type in SIMPLE or (node.type == "string" and len(node.named_children) == 1 and node.named_children[0].type in SIMPLE)
    whole = alone and re.fullmatch(r"\"?\$(\w+|\{\w+\})\"?", text_of(node)) is not None
    return Word("", word.line) if whole and word.unknown.startswith(NOBODY) else word


def _is_there(script: Script, node: Any) -> bool | None:
    word = _tested(script, node)
    return None if word.unknown else word.text != ""


def fits(script: Script, text: str, pattern: Any) -> bool | None:
    """Whether a text is what a pattern means; quoted, a pattern is itself."""
    word = single(script, pattern)
    if word.unknown:
        return None
    if pattern.type in ("string", "raw_string"):
        return text == word.text
    quoted = pattern.type == "concatenation" and any(child.type in ("string", "raw_string") for child in pattern.named_children)
    if quoted or ODD_PATTERN.search(text_of(pattern)) or ODD_PATTERN.search(word.text):
        return None
    return fnmatchcase(text, word.text)


def expand(script: Script, node: Any) -> None:
    """What asking a condition does beside the answer: ``${A:=x}`` gives a variable its value."""
    if node.type in SIMPLE:
        single(script, node)
    for child in node.named_children:
        expand(script, child)


def _compared(script: Script, node: Any, inner: list[Any]) -> bool | None:
    one, other = _tested(script, inner[0]), _tested(script, inner[-1])
    sign = next((text_of(child) for child in node.children if child.id not in (inner[0].id, inner[-1].id)), "")
    if one.unknown or other.unknown:
        return None
    outer = node.parent
    while outer is not None and outer.type != "test_command":
        outer = outer.parent
    doubled = outer is not None and text_of(outer).startswith("[[")
    if sign in ("=", "==", "!="):
        same = fits(script, one.text, inner[-1]) if doubled else one.text == other.text
        return None if same is None else same != (sign == "!=")
    try:
        table: Mapping[str, Callable[[int, int], Any]] = NUMBERS if sign in NUMBERS or outer is not None else ARITHMETIC
        return bool(table[sign](int(one.text, 0), int(other.text, 0)))
    except (KeyError, ValueError, ZeroDivisionError):
        return None
