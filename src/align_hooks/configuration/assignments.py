"""Statements that give variables their values: assignments, declarations, and commands that set arguments or read them."""

from __future__ import annotations

import re

from align_hooks.configuration.script import Node, Script, ShellWord, line_of, text_of
from align_hooks.configuration.words import join, names_in, single, words


def assign(script: Script, node: Node) -> None:
    """Follow ``name=value``, ``name+=value`` and ``name=(…)``; an assignment to elements of an array makes it unknown."""
    target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    line, name = line_of(node), text_of(target).partition("[")[0]
    array = value is not None and value.type == "array"
    if name == "IFS":
        script.not_followed(line, text_of(node))
    if target.type == "subscript" or (array and re.search(r"[(\s]\[\S*\]=", text_of(value))):
        script.forget([name], line)
        return
    assigned = [ShellWord("", line)] if value is None else [single(script, value)] if not array else []
    for child in value.named_children if array else ():
        assigned += words(script, child) if child.type != "comment" else []
    before, added = script.variables.get(name, []), any(child.type == "+=" for child in node.children)
    if added or before[1:]:
        script.read(name, before, otherwise=True)
    if added:
        assigned = before + assigned if array else [join([*before[:1], *assigned], line), *before[1:]]
    elif not array:
        assigned += before[1:]  # the first element of an array
    script.set(name, assigned, line)


def declare(script: Script, node: Node) -> None:
    """Follow ``declare``, ``typeset``, ``local``, ``export`` and ``readonly``."""
    kind, line, assigned = node.children[0].type, line_of(node), set[str]()
    flags = {flag for child in node.named_children if text_of(child).startswith("-") for flag in text_of(child)}
    local = kind == "local" or (kind in ("declare", "typeset") and script.depth and "g" not in flags)
    for child in node.named_children:
        if child.type not in ("variable_assignment", "variable_name"):
            continue
        name = re.match(r"\w*", text_of(child))[0]  # type: ignore[index]
        if local and name not in script.local:
            script.local[name] = script.variables.pop(name, None)
        if kind == "export" or "x" in flags:
            script.exported.discard(name) if "n" in flags else script.exported.add(name)
        if child.type == "variable_assignment":
            assign(script, child)
            if assigned & set(names_in(child)):
                script.forget([name], line)  # bash has worked out all values before it sets the first
            assigned.add(name)
        if kind == "readonly" or "r" in flags:
            script.odd.add(name)
        if flags & set("iluA" if kind == "export" else "iluAn"):
            script.odd.add(name)
            script.forget([name], line)
            script.not_followed(line, text_of(node))


def unset(script: Script, node: Node) -> None:
    """Follow ``unset`` of variables; ``unset`` of an element makes its array unknown."""
    for child in () if re.search(r"\s-f\b", text_of(node)) else node.named_children:
        name = text_of(child).strip("'\"").partition("[")[0]
        if "[" in text_of(node):
            script.forget([name], line_of(node))
        else:
            script.variables.pop(name, None)


def set_options(script: Script, started: list[ShellWord], line: int) -> None:
    """Follow ``set``, which sets arguments, or options, of which only ``-a`` counts."""
    texts = [word.text for word in started]
    at = next((at for at, text in enumerate(texts) if at and text in ("--", "-")), 0 if texts[1:2] and texts[1][:1] not in "-+" else None)
    if at is not None:
        script.set_arguments(started[at + 1 :])
    for option in texts[1:at]:
        if re.fullmatch(r"[-+][a-z]*a[a-z]*", option) or option == "allexport":
            script.exporting = "-a" in texts or "-o" in texts or option[0] == "-"


def shift(script: Script, started: list[ShellWord], line: int) -> None:
    """Follow ``shift``."""
    arguments, count = script.variables["@"], started[1].text if len(started) > 1 else "1"
    if not count.isdigit() or any(word.unknown for word in arguments):
        script.forget([name for name in script.variables if name in ("@", "*", "#") or name.isdigit()], line)
    elif int(count) <= len(arguments):
        script.set_arguments(arguments[int(count) :])


def note_read(script: Script, started: list[ShellWord], line: int) -> None:
    """Forget the variables that only a run sets: ``read``, ``mapfile``, ``getopts``, ``let``, ``printf -v``."""
    if started[0].text != "printf" or [word.text for word in started[1:2]] == ["-v"]:
        names = [name for word in started[1:] for name in re.findall(r"[A-Za-z_]\w*", word.text)]
        script.forget([*names, "REPLY", "OPTARG", "OPTIND"], line)


def names_set_in(node: Node) -> list[str]:
    """Return the names that are assigned anywhere in a node, and the variable of a loop."""
    target = node.child_by_field_name("name" if node.type == "variable_assignment" else "variable")
    names = [text_of(target).partition("[")[0]] if target is not None else []
    names += names_in(node) if node.type != "do_group" and re.match(r"\$?\(\(", text_of(node)) else []
    return names + [name for child in node.named_children for name in names_set_in(child)]
