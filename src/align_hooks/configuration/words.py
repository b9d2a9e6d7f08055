"""The words that a node of bash's grammar becomes: quotes, expansions, arithmetic. Nothing is executed."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from align_hooks.configuration.script import CONTINUED, NOBODY, Script, Word, joined, text_of

ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda one, other: abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1),
    "%": lambda one, other: abs(one) % abs(other) * (1 if one >= 0 else -1),
    "==": lambda one, other: int(one == other),
    "!=": lambda one, other: int(one != other),
    "<": lambda one, other: int(one < other),
    ">": lambda one, other: int(one > other),
    "<=": lambda one, other: int(one <= other),
    ">=": lambda one, other: int(one >= other),
}
"""Powers, shifts, assignments and the rest stay unknown."""
SIMPLE = ("simple_expansion", "expansion")
BRACES = re.compile(r"(?<!\$)\{[^{}$]*(,|\.\.)[^{}]*\}")
PLAIN = re.compile(r"[^'\"\\$^:]*")
"""Patterns that mean the same to bash and to ``fnmatch``."""
OWN = {*"?$!-_", "HOSTNAME", "UID", "EUID", "PPID", "RANDOM", "SECONDS", "LINENO", "OSTYPE", "HOSTTYPE", "MACHTYPE", "SHLVL", "PWD", "BASH"}
"""Variables that bash itself sets."""
WIDEST = 2**62
ESCAPES = re.compile(r"\\(.)", re.DOTALL)


def words(script: Script, node: Any) -> list[Word]:
    """The words that one node of a command becomes: none, one, or many where an expansion stands unquoted, or is of an array."""
    if node.type in SIMPLE:
        return [piece for word in expansion(script, node) for piece in split(word)]
    if node.type == "string":
        inner = [child for child in node.named_children if child.type != "string_content"]
        if len(inner) == len(node.named_children) == 1 and re.match(r'^"\$(@|\{@[:}]|\{\w+\[@\])', text_of(node)):
            return expansion(script, inner[0])
        if re.search(r"\$@|\$\{@|\[@\]", text_of(node)):
            script.gap(node.start_point[0] + 1, f"makes several words of {text_of(node)}, which is not followed")
    if node.type == "word" and re.search(r"[*?]", text_of(node)) and not re.search(r"[\\\[]", text_of(node)):
        return [unknown(node, node.start_point[0] + 1, f"{text_of(node)} stands for files, which only a run can tell")]
    if node.type == "concatenation":
        whole = single(script, node)
        return split(whole) if any(child.type in SIMPLE for child in node.named_children) else [whole]
    return [single(script, node)]


def split(word: Word) -> list[Word]:
    """A word that stands unquoted, split at white space as bash does, each piece with the line that it stands on."""
    pieces, line, at = [], word.line, 0
    for found in re.finditer(r"[^ \t\n\v]+", word.text):
        between = word.text[at : found.start()]
        line, at = line + between.count("\n") + between.count(CONTINUED), found.start()
        files = "" if "[" in found.group() or not re.search(r"[*?]", found.group()) else "it stands for files, which only a run can tell"
        text = f"${found.group()}" if files and "$" not in found.group() else found.group()
        pieces.append(Word(text, line, files or (word.unknown if "$" in found.group() else "")))
    return pieces


def join(pieces: Sequence[Word], line: int) -> Word:
    """Pieces of one word."""
    return Word("".join(word.text for word in pieces), line, next((word.unknown for word in pieces if word.unknown), ""))


def single(script: Script, node: Any) -> Word:
    """The one word that a node becomes where bash does not split."""
    line, kind = node.start_point[0] + 1, node.type
    if kind == "raw_string":
        return Word(text_of(node)[1:-1], line)
    if kind == "ansi_c_string":
        text = text_of(node)
        return unknown(node, line, f"{text} is not worked out at {script.name}:{line}") if "\\" in text else Word(text[2:-1], line)
    if kind == "string":
        return join(quoted(script, node), line)
    if kind == "brace_expression" or (kind in ("word", "concatenation") and BRACES.search(text_of(node))):
        return unknown(node, line, f"{text_of(node)} stands for several words, which is not followed, at {script.name}:{line}")
    if kind == "word" and re.match("~(/|$)", text_of(node)) and script.variables.get("HOME"):
        return Word(script.variables["HOME"][0].text + text_of(node)[1:], line)
    if kind == "word" and text_of(node).startswith("~"):
        return unknown(node, line, f"{text_of(node)} is a home folder, at {script.name}:{line}")
    if kind == "concatenation":
        return concatenated(script, node)
    if kind in SIMPLE:
        found = expansion(script, node)
        return Word(joined(found), line, next((word.unknown for word in found if word.unknown), ""))
    if kind == "arithmetic_expansion":
        return arithmetic(script, node)
    if kind in ("command_substitution", "process_substitution"):
        return unknown(node, line, f"{text_of(node)} is the output of a command, at {script.name}:{line}")
    text = text_of(node)
    return Word(ESCAPES.sub(lambda found: "" if found.group(1) == "\n" else found.group(1), text) if kind == "word" else text, line)


def concatenated(script: Script, node: Any) -> Word:
    """Pieces that stand together; within ``${A:+…}`` with blanks between them, at which bash splits the unquoted ones."""
    line, at, pieces = node.start_point[0] + 1, node.start_byte, []
    apart = False
    for child in node.children:
        between = node.text[at - node.start_byte : child.start_byte - node.start_byte].decode("utf-8", "replace")
        apart |= bool(between) or text_of(child)[:1].isspace()  # a blank that the grammar gives to the quotes
        piece = single(script, child) if child.is_named else Word(text_of(child), line)
        pieces += [Word(between, 0), piece] if between else [piece]
        at = child.end_byte
    if apart and any(child.type in ("string", "raw_string") and re.search(r"\s|^$", single(script, child).text) for child in node.children):
        return unknown(node, line, f"{text_of(node)} holds words of several words at {script.name}:{line}")
    return join(pieces, line)


def unknown(node: Any, line: int, why: str) -> Word:
    """What only a run can tell, as it stands in the script; always one word, and with a ``$`` in it."""
    text = "".join(text_of(node).split())
    return Word(text if "$" in text and text[0] != "-" else f"${text}", line, why)


def quoted(script: Script, node: Any) -> list[Word]:
    """What stands between double quotes, with the white space that the grammar gives to nobody."""
    at, pieces = node.start_byte + 1, []
    for child in node.named_children:
        if child.start_byte > at:
            pieces.append(Word(node.text[at - node.start_byte : child.start_byte - node.start_byte].decode("utf-8", "replace"), 0))
        if child.type == "string_content":
            content = text_of(child).replace("\\\n", CONTINUED)
            pieces.append(Word(re.sub(r'\\([\\"$`])', r"\1", content), 0))
        else:
            pieces.append(single(script, child))
        at = child.end_byte
    rest = node.text[at - node.start_byte : -1].decode("utf-8", "replace")
    return [*pieces, *([Word(rest, 0)] if rest else [])]


def expansion(script: Script, node: Any) -> list[Word]:
    """The words that ``$NAME`` or ``${NAME…}`` stands for."""
    line, text = node.start_point[0] + 1, text_of(node)
    cannot = f"{text} cannot be worked out at {script.name}:{line}"
    named = [child for child in node.named_children if child.type in ("variable_name", "special_variable_name", "subscript")]
    if not named or text.startswith("${!"):
        return [unknown(node, line, cannot)]
    holder, index = named[0], ""
    if holder.type == "subscript":
        index, holder = single(script, holder.named_children[-1]).text, holder.named_children[0]
    name = text_of(holder)
    held = script.variables.get(name)
    sign = next((text_of(child) for child in node.children if not child.is_named and child.type not in ("${", "}", "$", "[", "]")), "")
    operands = [child for child in node.named_children if child.id != named[0].id]
    if held is None and name in OWN:
        return [unknown(node, line, f"{text} is bash's own, and known to a run only, at {script.name}:{line}")]
    if held is not None and len(held) == 1 and held[0].unknown and index not in ("", "@", "*"):
        return held  # of which nothing is known any more
    if held is not None and index and index not in ("@", "*"):
        if not re.fullmatch(r"-?\d+", index):
            return [unknown(node, line, cannot)]
        held = held[int(index) :][:1]
    elif held is not None and not index and name not in ("@", "*"):
        held = held[:1]
    if sign == "#" and text.startswith("${#"):
        whole = held or []
        if any(word.unknown for word in whole):
            return [unknown(node, line, cannot)]
        return [Word(str(len(whole) if index in ("@", "*") else len(joined(whole))), line)]
    known_empty = not held or (joined(held) == "" and not any(word.unknown for word in held))
    empty = known_empty if sign.startswith(":") else not held
    if sign in (":-", "-", ":=", "=", ":+", "+") and (len(operands) > 1 or any(one.type == "raw_string" for one in operands)):
        return [unknown(node, line, cannot)]
    if sign in (":-", "-") and empty and operands and "[@]" in text_of(operands[0]):
        return expansion(script, operands[0]) if operands[0].type in SIMPLE else words(script, operands[0])
    if sign in (":-", "-", ":=", "="):
        found = ([single(script, one) for one in operands] or [Word("", line)]) if empty else list(held or ())
        if "=" in sign and empty:
            script.set(name, found)
        return found
    if sign in (":+", "+"):
        return [] if empty else [single(script, one) for one in operands]
    if held is None:
        return _unset(script, node, name, line)
    if sign in ("", ":?", "?"):
        return held
    cut = _cut(script, node, name, index, sign, operands, held)
    return [unknown(node, line, cannot)] if cut is None else cut


def _unset(script: Script, node: Any, name: str, line: int) -> list[Word]:
    """A variable that nobody gave anything."""
    if name in ("@", "*"):
        return []
    if name.isdigit():
        asked = (
            f"${name} is an argument of {script.name}, which was not given: quote the command with its arguments, 'bash {script.name} ...'"
        )
        return [unknown(node, line, asked)]
    return [unknown(node, line, f"{NOBODY} ${name}, which stands at {script.name}:{line}; put {name}=... before the command")]


def _cut(script: Script, node: Any, name: str, index: str, sign: str, operands: list[Any], held: list[Word]) -> list[Word] | None:
    """``${A[@]:1}``, ``${A:0:5}``, ``${A%.sh}`` and their kind; None where it cannot be told."""
    line = node.start_point[0] + 1
    asked = [single(script, one) for one in operands]
    if any(word.unknown for word in (*held, *asked)):
        return None
    if sign == ":" and asked and all(re.fullmatch(r"\d+", word.text) for word in asked):
        numbers = [int(word.text) for word in asked]
        if name in ("@", "*") or index in ("@", "*"):
            start = numbers[0] - (1 if name in ("@", "*") else 0)
            if start < 0:
                return None
            return held[start : start + numbers[1] if len(numbers) > 1 else None]
        stop = numbers[0] + numbers[1] if len(numbers) > 1 else None
        return [Word(held[0].text[numbers[0] : stop], line)]
    if sign in ("%", "%%", "#", "##") and len(asked) == 1 and len(held) == 1 and PLAIN.fullmatch(text_of(operands[0])):
        return [Word(stripped(held[0].text, sign, asked[0].text), line)]
    return None


def stripped(text: str, sign: str, pattern: str) -> str:
    """A text without the shortest, or for a doubled sign the longest, end (``%``) or beginning (``#``) that fits a pattern."""
    lengths = range(len(text) + 1) if len(sign) == 1 else range(len(text), -1, -1)
    for length in lengths:
        part = text[len(text) - length :] if sign[0] == "%" else text[:length]
        if fnmatchcase(part, pattern):
            return text[: len(text) - length] if sign[0] == "%" else text[length:]
    return text


def arithmetic(script: Script, node: Any) -> Word:
    """``$((…))``; what it assigns is not known after."""
    line = node.start_point[0] + 1
    try:
        inner = node.named_children
        if len(inner) != 1:
            raise ValueError(text_of(node))
        found = number(script, inner[0])
        if abs(found) > WIDEST:
            raise ValueError(text_of(node))
        return Word(str(found), line)
    except (ValueError, ZeroDivisionError, KeyError, IndexError, StopIteration):
        why = f"{text_of(node)} cannot be worked out at {script.name}:{line}"
        if any(sign in text_of(node) for sign in ("++", "--", "=")):
            script.forget(names_in(node), line, why)
        return unknown(node, line, why)


def names_in(node: Any) -> list[str]:
    """Every variable that a node names."""
    own = [text_of(node)] if node.type == "variable_name" else []
    return own + [name for child in node.named_children for name in names_in(child)]


def number(script: Script, node: Any) -> int:
    """The value of an arithmetic expression.

    :raises ValueError: it holds something that is not a known whole number.
    """
    if node.type == "number":
        return int(text_of(node), 0)
    if node.type in ("variable_name", *SIMPLE):
        word = (script.variables.get(text_of(node)) or [Word("", 0, "unset")])[0] if node.type == "variable_name" else single(script, node)
        if word.unknown:
            raise ValueError(word.unknown)
        return int(word.text, 0)
    inner = node.named_children
    if node.type == "parenthesized_expression" and len(inner) == 1:
        return number(script, inner[0])
    if node.type == "binary_expression" and len(inner) == 2:
        sign = next(text_of(child) for child in node.children if not child.is_named)
        return ARITHMETIC[sign](number(script, inner[0]), number(script, inner[1]))
    if node.type == "unary_expression" and text_of(node).startswith("-") and len(inner) == 1:
        return -number(script, inner[0])
    raise ValueError(text_of(node))
