"""The words that a node of bash's grammar becomes, by quotes, expansions and sums; any other node is unknown. Nothing is executed."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from align_hooks.configuration.beside import written_out
from align_hooks.configuration.script import CONTINUED, LONGEST, Node, Script, ShellWord, blank, length_of, line_of, text_of
from align_hooks.configuration.values import ConfigurationError, MissingArgument, UnsetVariable
from align_hooks.messages import Message, message

ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "%": lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1),
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""Operator to its result of two whole numbers; a comparison gives 0 or 1."""
SIGNS = ("#", "##", "%", "%%", "/", "//")
"""Cuts at the front or the end of the shortest or the longest piece that fits; replacements of the first piece or of all."""
PLAIN_PATTERN = re.compile(r"[^\\\[\]()'\"`$!{}&#%]+[#%]*")
"""Patterns and texts that Python and bash read alike, but for ``*`` and ``?``."""
MOST_COMPARISONS = 10**8
"""Most comparisons of characters in a cut; cuts of paths and lists of arguments take a thousandth."""
WIDEST = 2**62
NUMBER = re.compile(r"-?(0|[1-9]\d{0,18})")
"""A whole number that bash and Python read alike."""
EXPANSIONS = ("simple_expansion", "expansion")
BRACES = re.compile(r"(?<!\$)\{[^{}$]*(,|\.\.)[^{}]*\}")
CONTENT = ("string_content", "heredoc_content")
ESCAPED = re.compile(r'\\([\\"$`\n])')
"""An escaped character in double quotes."""
IN_DOCUMENT = re.compile(r"\\([\\$`\n])")
"""An escaped character in a here-document."""
GLOB = re.compile(r"[^\[]*[*?][^\[]*")
"""A pattern of file names; a text with brackets is a list of layers instead."""
SPLIT = re.compile(r"'|\"\"|\".*\s", re.DOTALL)
"""A quoted text within an expansion, where bash splits no words."""
SEVERAL = re.compile(r'"\$(@|\{@[:}+-]|\{\w+\[@\])')
"""A quoted expansion that is several words."""
SET_BY_BASH = {*"?$!-_", "HOSTNAME", "UID", "EUID", "PPID", "RANDOM", "SECONDS", "LINENO"}
SET_BY_BASH |= {"OSTYPE", "HOSTTYPE", "MACHTYPE", "SHLVL", "PWD", "BASH"}
"""Variables that bash itself sets."""


def words(script: Script, node: Node) -> list[ShellWord]:
    """Return the words that a node of a command becomes: several where an expansion is unquoted, or is of an array."""
    text = text_of(node)
    if node.type in EXPANSIONS:
        pieces = [piece for word in expansion(script, node) for piece in split(word)]
        script.work(len(pieces) // 20)
        return pieces
    if node.type == "string" and "@" in text:
        inner = [child for child in node.named_children if child.type != "string_content"]
        if len(inner) == len(node.named_children) == 1 and SEVERAL.match(text):
            pieces = expansion(script, inner[0])
            script.work(len(pieces) // 20)
            return pieces
        if re.search(r"\$@|\$\{@|\[@\]", text):
            script.gaps.append(message("configuration.not_followed", place=script.place(line_of(node)), text=text))
    if node.type == "concatenation":
        joined = single(script, node)
        if not any(child.type in EXPANSIONS for child in node.named_children):
            return [joined]
        quotes = (child for child in node.named_children if child.type in ("string", "raw_string"))
        return [unfollowed(script, node)] if any(re.search(r"\s", single(script, child).raw) for child in quotes) else split(joined)
    if node.type == "word" and GLOB.fullmatch(text) and "\\" not in text:
        return [unknown(node, message("configuration.files", text=text))]
    return [single(script, node)]


def split(word: ShellWord) -> list[ShellWord]:
    """Split an unquoted word at white space as bash does, each piece with its line."""
    pieces, line, at = [], word.line, 0
    for match in re.finditer(rf"[^ \t\n{CONTINUED}][^ \t\n]*", word.raw):
        line, at = line + len(re.findall(f"[\n{CONTINUED}]", word.raw[at : match.start()])), match.start()
        part = next((part for part in word.parts or (word,) if part.unknown and part.raw in match[0]), None)
        piece = ShellWord(match[0], line, part.unknown if part else None)
        if part is None and GLOB.fullmatch(piece.text):
            piece = ShellWord(f"${piece.text}", line, message("configuration.files", text=piece.text))
        pieces.append(piece)
    return pieces


def join(pieces: Sequence[ShellWord], line: int, between: str = "") -> ShellWord:
    """Join pieces to one word; raises ConfigurationError for a word longer than any argument."""
    if length_of(pieces) > LONGEST:
        raise ConfigurationError(f"a word at line {line} becomes longer than {LONGEST} characters; it cannot be followed")
    parts = tuple(part for word in pieces for part in (word.parts or (word,)) if part.unknown)
    return ShellWord(between.join(word.raw for word in pieces), line, parts[0].unknown if parts else None, parts)


def unknown(node: Node, why: Message, text: str = "") -> ShellWord:
    """Return an unknown word with a node's text, or ``text``, and a ``$`` in it."""
    text = "".join((text or text_of(node)).split())
    return ShellWord(text if "$" in text and text[0] != "-" else f"${text}", line_of(node), why)


def single(script: Script, node: Node) -> ShellWord:
    """Return the one word that a node becomes where bash does not split."""
    line, kind, text = line_of(node), node.type, text_of(node)
    if kind == "raw_string":
        return ShellWord(text[1:-1], line)
    if kind == "string":
        return join(quoted(script, node), line)
    if kind in ("word", "concatenation", "brace_expression") and BRACES.search(text):
        return unfollowed(script, node)
    if kind in ("word", "number", "variable_name", "extglob_pattern"):
        home = script.variables.get("HOME") if re.match("~(/|$)", text) else None
        if text.startswith("~"):
            return ShellWord(home[0].text + text[1:], line) if home else unfollowed(script, node)
        return ShellWord(re.sub(r"\\(.)", r"\1", text.replace("\\\n", "")), line)
    if kind == "concatenation":
        return concatenated(script, node)
    if kind in EXPANSIONS:
        return join(expansion(script, node), line, " ")
    if kind == "arithmetic_expansion" and len(node.named_children) == 1:
        try:
            return ShellWord(str(number(script, node.named_children[0])), line)
        except (ValueError, ZeroDivisionError):
            if re.search(r"\+\+|--|(?<![=!<>])=(?!=)", text):
                script.forget(names_in(node), line)
    if kind == "command_substitution" and (document := printed(script, node)) is not None:
        return document
    if kind in ("command_substitution", "process_substitution"):
        return unknown(node, message("configuration.output", text=text, place=script.place(line)), written_out(script, text))
    return unfollowed(script, node)


def unfollowed(script: Script, node: Node) -> ShellWord:
    """Return an unknown word for a node that is not worked out."""
    return unknown(node, message("configuration.not_worked_out", text=text_of(node), place=script.place(line_of(node))))


def concatenated(script: Script, node: Node) -> ShellWord:
    """Return the word of pieces that stand together."""
    at, pieces = node.start_byte, []
    for child in node.children:
        if child.start_byte > at or blank(child):  # several words, as within ${A:+…}
            return unfollowed(script, node)
        pieces.append(single(script, child) if child.is_named else ShellWord(text_of(child), line_of(child)))
        at = child.end_byte
    return join(pieces, line_of(node))


def quoted(script: Script, node: Node, edge: int = 1, escaped: re.Pattern[str] = ESCAPED) -> list[ShellWord]:
    """Return the pieces between double quotes, or of a here-document, whose ``edge`` is 0 bytes."""
    pieces, at = [ShellWord("", line_of(node))], node.start_byte + edge
    # The text between children is read from the bytes: white space and continued lines may belong to no node.
    for child in [*(child for child in node.named_children if child.type not in CONTENT), None]:
        end = child.start_byte + len(blank(child)) if child is not None else node.end_byte - edge
        written = node.text[at - node.start_byte : end - node.start_byte].decode("utf-8", "surrogateescape")
        pieces.append(ShellWord(escaped.sub(lambda match: match[1].replace("\n", CONTINUED), written), 0))
        if child is not None:
            pieces.append(single(script, child))
            at = child.end_byte
    return pieces


def here_document(script: Script, redirect: Node) -> ShellWord | None:
    """Return the text of a here-document, expanded where its mark is unquoted; None without a body."""
    parts = {child.type: child for child in redirect.named_children}
    if "heredoc_body" not in parts:
        return None
    body, line = parts["heredoc_body"], parts["heredoc_body"].start_point[0] + 1
    if re.search(r"[\"'\\]", text_of(parts["heredoc_start"])):
        word = ShellWord(body.text.decode("utf-8", "surrogateescape"), line)
    else:
        word = join(quoted(script, body, edge=0, escaped=IN_DOCUMENT), line)
    if redirect.children[0].type == "<<-":
        word = ShellWord(re.sub(r"(?m)^\t+", "", word.raw), line, word.unknown, word.parts)
    return word


def printed(script: Script, node: Node) -> ShellWord | None:
    """Return the text of ``$(cat <<EOF … )``; None for any other command."""
    inner = node.named_children[0] if len(node.named_children) == 1 else None
    if inner is None or inner.type != "redirected_statement" or len(inner.named_children) != 2:
        return None
    command, redirect = inner.named_children
    document = here_document(script, redirect) if redirect.type == "heredoc_redirect" and text_of(command) == "cat" else None
    return document and ShellWord(document.raw.rstrip("\n"), line_of(node), document.unknown, document.parts)


def expansion(script: Script, node: Node) -> list[ShellWord]:
    """Return the words of ``$NAME``, ``${NAME[1]}`` or ``${NAME:-…}``."""
    text = text_of(node)
    named = next((child for child in node.named_children if child.type.endswith("variable_name") or child.type == "subscript"), None)
    sign = next((text_of(child) for child in node.children if not child.is_named and child.type not in ("${", "}", "$")), "")
    operands = [child for child in node.named_children if named is None or child.id != named.id]
    if named is None or (text.startswith(("${#", "${!")) and text != "${#}") or (len(operands) > 1 and sign not in SIGNS):
        return [unfollowed(script, node)]
    holder, _, index = text_of(named).rstrip("]").partition("[")
    value = script.variables.get(holder)
    script.read(holder, value, otherwise=sign not in ("", "?", ":?") or holder in ("@", "*"))
    if value is None and holder in SET_BY_BASH:
        return [unfollowed(script, node)]
    if value is not None and holder not in ("@", "*") and index not in ("@", "*"):
        if not re.fullmatch(r"\d*", index) or (index not in ("", "0") and any(word.unknown for word in value)):
            return [unfollowed(script, node)]
        value = value[int(index or 0) :][:1]
    empty = not value or (sign.startswith(":") and len(value) == 1 and value[0].raw == "")
    if sign in ("", "?", ":?"):
        return value if value is not None else unset(script, node, holder)
    if sign in SIGNS:
        return unset(script, node, holder) if value is None else [_left(script, node, word, sign) for word in value]
    if sign not in (":-", "-", ":=", "=", ":+", "+") or any(SPLIT.match(text_of(operand)) for operand in operands):
        return [unfollowed(script, node)]
    if "+" in sign and value and value[0].unknown:
        return [unfollowed(script, node)]
    if empty == ("+" in sign):
        return [] if empty else list(value or ())
    if sign in (":-", "-") and operands and "[@]" in text_of(operands[0]):
        return words(script, operands[0])
    substitute = [single(script, operand) for operand in operands] or [ShellWord("", line_of(node))]
    if "=" in sign:
        script.set(holder, substitute, line_of(node))
    return substitute


def _left(script: Script, node: Node, word: ShellWord, sign: str) -> ShellWord:
    """Return what a cut, or a replacement, leaves of a word."""
    at = next(child.end_byte for child in node.children if child.type == sign) - node.start_byte
    written = str(node.text[at:-1].decode("utf-8", "surrogateescape"))  # the grammar gives a blank to no node
    pattern, _, instead = written.partition("/") if sign[0] == "/" else (written, "", "")
    left = None if word.unknown or CONTINUED in word.raw else cut(word.raw, sign, pattern, instead)  # the mark may hide a match
    return unfollowed(script, node) if left is None else replace(word, raw=left)


def cut(text: str, sign: str, pattern: str, instead: str = "") -> str | None:
    """Return a text after an expansion of :data:`SIGNS`; None for a pattern with quotes, classes or variables, and for a slow one."""
    work = len(text) ** (pattern.count("*") + (1 if sign[0] == "/" else 2))
    if not PLAIN_PATTERN.fullmatch(pattern) or not (instead == "" or PLAIN_PATTERN.fullmatch(instead)) or work > MOST_COMPARISONS:
        return None
    if sign[0] == "/" and not pattern.strip("*"):  # the pattern fits the empty text
        return None
    written = "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern)
    if sign[0] == "/":
        return re.sub(written, lambda _: instead, text, count=0 if sign == "//" else 1, flags=re.DOTALL)
    for end in range(len(text) + 1) if sign in ("#", "%%") else range(len(text), -1, -1):
        piece, rest = (text[:end], text[end:]) if sign[0] == "#" else (text[end:], text[:end])
        if re.fullmatch(written, piece, re.DOTALL):
            return rest
    return text


def unset(script: Script, node: Node, name: str) -> list[ShellWord]:
    """Return the words of a variable that nothing sets."""
    if name in ("@", "*"):
        return []
    if name.isdigit():
        return [unknown(node, MissingArgument("configuration.argument", {"name": name, "script": script.name}, script.name))]
    return [unknown(node, UnsetVariable("configuration.unset", {"name": name, "place": script.place(line_of(node))}))]


def names_in(node: Node) -> list[str]:
    """Return every variable that a node names."""
    names = [text_of(node)] if node.type == "variable_name" else []
    return names + [name for child in node.named_children for name in names_in(child)]


def number(script: Script, node: Node) -> int:
    """Return the value of a sum; raises ValueError for unknown or large numbers, and for anything but a plain sum."""
    inner = node.named_children
    if node.type == "parenthesized_expression" and len(inner) == 1:
        value = number(script, inner[0])
    elif node.type == "binary_expression" and len(inner) == 2:
        sign = next(text_of(child) for child in node.children if not child.is_named)
        if sign not in ARITHMETIC:
            raise ValueError(sign)
        value = int(ARITHMETIC[sign](number(script, inner[0]), number(script, inner[1])))
    elif node.type == "ternary_expression" and len(inner) == 3:
        value = number(script, inner[1 if number(script, inner[0]) else 2])
    elif node.type == "unary_expression" and text_of(node).startswith("-") and len(inner) == 1:
        value = -number(script, inner[0])
    else:
        named = script.variables.get(text_of(node)) if node.type == "variable_name" else [single(script, node)]
        if not named or named[0].unknown or not NUMBER.fullmatch(named[0].text):
            raise ValueError(text_of(node))
        value = int(named[0].text)
    if abs(value) > WIDEST:
        raise ValueError(text_of(node))
    return value
