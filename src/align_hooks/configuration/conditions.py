"""The truth of a script's plain conditions: True, False, or None where only a run shows it."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from fnmatch import fnmatchcase

from align_hooks.configuration.script import Node, Script, ShellWord, line_of, text_of
from align_hooks.configuration.values import UnsetVariable
from align_hooks.configuration.words import EXPANSIONS, NUMBER, single

NUMBERS: dict[str, Callable[[int, int], bool]] = {f"-{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
SURE = ("true", ":", "echo", "printf", "mkdir", "cd")
"""Commands that succeed in any script that trains at all."""
CONFUSED = re.compile(r"\s-[ao]\s|^\[ ! .* (=|==|!=|-\w\w) ")
"""Single brackets that bash reads otherwise than the grammar does."""
ODD_PATTERN = re.compile(r"\[\^|\[\[:|\(|\\")
"""Patterns that mean something else to Python."""


def succeeds(script: Script, node: Node) -> bool | None:
    """Return whether a part of a list succeeds."""
    kind, text = node.type, text_of(node)
    if kind == "list":
        return _both(node, succeeds(script, node.named_children[0]), succeeds(script, node.named_children[-1]))
    if kind in ("test_command", "negated_command"):
        return holds(script, node)
    if kind == "redirected_statement":
        return succeeds(script, node.named_children[0])
    if "$(" in text or "`" in text or (kind == "command" and text.split()[0] not in SURE):
        return False if text == "false" else None
    return True if kind in ("command", "variable_assignment", "declaration_command") else None


def holds(script: Script, node: Node) -> bool | None:
    """Return whether a condition holds, and set the variables that it sets by ``${A:=x}``."""
    kind, text = node.type, text_of(node)
    inner = [child for child in node.named_children if child.type != "comment"]
    if kind == "test_command" and text.startswith("[ ") and len(inner) == 1 and (answer := _without_operand(script, inner[0])) is not None:
        return answer
    if kind == "test_command" and (text.startswith("((") or (text.startswith("[ ") and _confused(script, node))):
        return None
    if kind in ("test_command", "parenthesized_expression") and len(inner) == 1:
        return _is_there(script, inner[0]) if inner[0].type in ("string", "word", *EXPANSIONS) else holds(script, inner[0])
    if kind == "negated_command" or (kind == "unary_expression" and text.startswith("!")):
        answer = holds(script, inner[-1])
        return None if answer is None else not answer
    if kind == "list" or (kind == "binary_expression" and any(child.type in ("&&", "||") for child in node.children)):
        return _both(node, holds(script, inner[0]), holds(script, inner[-1]))
    if kind == "unary_expression" and len(inner) == 2 and text_of(inner[0]) in ("-z", "-n"):
        filled = _is_there(script, inner[1])
        return None if filled is None else filled == (text_of(inner[0]) == "-n")
    if kind == "binary_expression" and len(inner) >= 2:
        return _compared(script, node, inner[0], inner[-1])
    return succeeds(script, node) if kind == "command" else None


def _without_operand(script: Script, test: Node) -> bool | None:
    """Return True for ``[ -z $A ]`` and ``[ -n $A ]`` with an empty ``$A``: to bash, ``-z`` is a text then. None otherwise."""
    inner = test.named_children
    if test.type != "unary_expression" or not inner:
        return None
    if text_of(test).startswith("!"):
        answer = _without_operand(script, inner[-1])
        return None if answer is None else not answer
    if text_of(inner[0]) not in ("-z", "-n") or len(inner) != 2 or inner[1].type not in EXPANSIONS:
        return None
    word = _tested(script, inner[1])
    return None if word.unknown or word.text.strip() else True


def _both(node: Node, first: bool | None, second: bool | None) -> bool | None:
    decides = not any(child.type == "&&" for child in node.children)
    return decides if decides in (first, second) else None if None in (first, second) else not decides


def _confused(script: Script, node: Node) -> bool:
    """Return whether bash reads single brackets otherwise than the grammar does, or splits a word in them."""
    if node.type in EXPANSIONS:
        return re.search(r"\s|^$|[*?\[]", _tested(script, node).text) is not None
    return bool(CONFUSED.search(text_of(node))) or any(_confused(script, child) for child in node.named_children if child.type != "string")


def _tested(script: Script, node: Node) -> ShellWord:
    """Return a word of a condition, where a variable that nothing sets is empty, as in bash."""
    word = single(script, node)
    variable = re.fullmatch(r"\"?\$(\w+|\{\w+\})\"?", text_of(node))
    return ShellWord("", line_of(node)) if variable and isinstance(word.unknown, UnsetVariable) else word


def _is_there(script: Script, node: Node) -> bool | None:
    word = _tested(script, node)
    return None if word.unknown else word.text != ""


def _compared(script: Script, node: Node, left: Node, right: Node) -> bool | None:
    left_word, right_word = _tested(script, left), _tested(script, right)
    sign = next((text_of(child) for child in node.children if child.id not in (left.id, right.id)), "")
    if left_word.unknown or right_word.unknown:
        return None
    if sign in ("=", "==", "!="):
        outer = node
        while outer is not None and outer.type != "test_command":
            outer = outer.parent
        is_pattern = outer is not None and text_of(outer).startswith("[[")
        same = fits(script, left_word.text, right) if is_pattern else left_word.text == right_word.text
        return None if same is None else same != (sign == "!=")
    if sign not in NUMBERS or not (NUMBER.fullmatch(left_word.text) and NUMBER.fullmatch(right_word.text)):
        return None
    return NUMBERS[sign](int(left_word.text), int(right_word.text))


def fits(script: Script, text: str, pattern: Node) -> bool | None:
    """Return whether a text fits a pattern, which means itself in quotes."""
    word = single(script, pattern)
    if pattern.type in ("string", "raw_string"):
        return None if word.unknown else text == word.text
    odd = word.unknown or (pattern.type == "concatenation" and re.search("[\"']", text_of(pattern)))
    return None if odd or ODD_PATTERN.search(text_of(pattern) + word.text) else fnmatchcase(text, word.text)
