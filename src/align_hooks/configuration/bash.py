"""A launch script, followed as far as it can be without running anything.

tree-sitter's grammar of bash reads the text; this module follows assignments, conditions, functions and what is sourced, and collects
the commands that the script would start, word by word, each word with its line. What only a run can tell (the output of a command, a
variable that nothing sets, a condition on files) stays unknown, with the reason. Nothing is executed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from align_hooks.configuration.conditions import expand, fits, holds, succeeds
from align_hooks.configuration.files import read_text
from align_hooks.configuration.script import Script, Word, text_of
from align_hooks.configuration.values import ConfigurationError
from align_hooks.configuration.words import join, names_in, single, words

COPIED = 20
"""Variables that are copied in a step's time."""
DEEPEST = 8
"""Functions that call functions, scripts that source scripts, ``eval`` in ``eval``: so deep, and no deeper."""
QUIET = ("echo", "printf", "cat", "sleep", "mkdir", "cd", "rm", "cp", "ln", "set", "true", "tee", "read", "trap", "ulimit", "module", "pip")
"""Commands whose words are not looked at: a script prints its own command line before it runs it."""
BEFORE = ("exec", "nohup", "time", "command", "builtin")
"""Words before a command that change nothing of it."""
CUT_WORD = re.compile(r"(?<=[^\s\\&|;({])\\\n(?=\S)")
BESIDE = re.compile(r"\$\{?0|BASH_SOURCE|\bdirname|\bpwd")
"""Commands that tell a script its own folder."""
SETTERS = ("read", "mapfile", "readarray", "getopts")
"""Commands that give variables what only a run can tell."""
UNFOLLOWED = {"shopt": "changes how bash reads", "alias": "names a command anew", "xargs": "starts a command with more arguments"}
"""Commands that may change what is read here, and are not followed."""


class Left(Exception):
    """The script, or with ``returned`` a function, ends here."""

    def __init__(self, *, returned: bool) -> None:
        super().__init__()
        self.returned = returned


def evaluate(text: str, name: str, environment: Mapping[str, str], arguments: Sequence[str] = (), folder: Path | None = None) -> Script:
    """Follow a script that is started with ``arguments`` in ``environment``; what it sources is looked for in its ``folder``.

    :raises ConfigurationError: tree-sitter is not installed, or the text nests deeper than anything that was written by hand.
    """
    script = Script(name)
    script.variables = {key: [Word(value, 0)] for key, value in environment.items()}
    script.set_arguments([Word(one, 0) for one in arguments])
    try:
        with _ending():
            _follow(script, text, folder)
    except RecursionError:
        raise ConfigurationError(f"{name} is nested too deeply to be read; name a simpler script, or a list of arguments") from None
    return script


@contextmanager
def _ending(*, returned: bool = False) -> Iterator[None]:
    """Where a script ends, a subshell too; with ``returned`` a function or what is sourced, which ``exit`` goes beyond."""
    try:
        yield
    except Left as left:
        if returned and not left.returned:
            raise


def _follow(script: Script, text: str, folder: Path | None) -> None:
    """Follow a text in a script's own state: the script itself, what it sources, or what it evaluates."""
    try:
        import tree_sitter
        import tree_sitter_bash
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"reading a script needs {error.name}, which is not installed; pip install 'align-hooks[cli]'") from None
    while text.rstrip().endswith("\\"):
        text = text.rstrip()[:-1]
    text = text.removeprefix("\ufeff").replace("\r\n", "\n") + "\n"
    script.work(len(text) // 100 + 10)
    for at in CUT_WORD.finditer(text):
        script.gap(text.count("\n", 0, at.start()) + 1, "continues a word on the next line, without a blank between them")
    root = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language())).parse(text.encode("utf-8", "surrogateescape")).root_node
    for bad in _errors(root) if root.has_error else ():
        said = text_of(bad).strip().splitlines()
        script.gap(bad.start_point[0] + 1, f"is no bash that can be read, near {(said or [''])[0][:60]!r}")
    _walk(script, root, folder)


def _errors(node: Any) -> Iterator[Any]:
    """The places where the grammar broke."""
    for child in node.children:
        if child.type == "ERROR" or child.is_missing:
            yield child
        elif child.has_error:
            yield from _errors(child)


def _walk(script: Script, node: Any, folder: Path | None = None) -> None:
    """Follow what a node does, in the order of the script."""
    script.work(1)
    if node.next_sibling is not None and node.next_sibling.type == "&":
        _apart(script, [node], folder)
    else:
        _do(script, node, folder)


def _do(script: Script, node: Any, folder: Path | None) -> None:
    kind, line = node.type, node.start_point[0] + 1
    if kind == "variable_assignment":
        _assign(script, node)
        if text_of(node).startswith("IFS="):
            script.gap(line, "sets IFS, by which words are split: that is not followed")
    elif kind in ("declaration_command", "unset_command"):
        _declare(script, node)
    elif kind == "command":
        _command(script, node, folder)
    elif kind == "redirected_statement":
        _redirected(script, node, folder)
    elif kind == "if_statement":
        _if(script, node, folder)
    elif kind == "case_statement":
        _case(script, node, folder)
    elif kind == "for_statement":
        _for(script, node, folder)
    elif kind in ("while_statement", "c_style_for_statement"):
        _loop(script, node, folder)
    elif kind == "function_definition":
        script.functions[text_of(node.child_by_field_name("name"))] = node.child_by_field_name("body")
    elif kind == "list":
        _list(script, node, folder)
    elif kind == "subshell":
        _apart(script, node.named_children, folder)
    elif kind == "pipeline":
        for child in node.named_children:
            _apart(script, [child], folder)
    elif kind == "compound_statement" and text_of(node).startswith("(("):
        script.forget(names_in(node), line, f"what {script.name}:{line} works out is not followed")
    elif kind not in ("comment", "heredoc_redirect", "file_redirect", "herestring_redirect", "command_substitution"):
        for child in node.named_children:
            _walk(script, child, folder)


def _apart(script: Script, nodes: Sequence[Any], folder: Path | None) -> None:
    """A subshell: what it sets is gone after it, and it ends alone."""
    variables, exported, functions = dict(script.variables), set(script.exported), dict(script.functions)
    script.work(len(variables) // COPIED)
    with _ending():
        for node in nodes:
            _do(script, node, folder)
    script.variables, script.exported, script.functions = variables, exported, functions


def _redirected(script: Script, node: Any, folder: Path | None) -> None:
    """A command with redirections, between and after which its words go on; what a here-document's first line goes on with."""
    body, more = node.child_by_field_name("body"), []
    for child in node.named_children:
        if child.type in ("file_redirect", "herestring_redirect"):
            given = [one for one in child.named_children if one.type != "file_descriptor"]
            more += given[1:]
        elif child.type == "heredoc_redirect":
            given = [one for one in child.named_children if one.type not in ("heredoc_start", "heredoc_body", "heredoc_end")]
            if any(one.type not in ("pipeline", "file_redirect") for one in given):
                script.gap(child.start_point[0] + 1, "goes on after a here-document's first word, which is not followed")
    if body is None:
        return
    if body.type == "command":
        _command(script, body, folder, more)
    else:
        _walk(script, body, folder)


def _list(script: Script, node: Any, folder: Path | None) -> None:
    """``one && other`` and ``one || other``: the second may or may not be done."""
    first, second = node.named_children[0], node.named_children[-1]
    sure = succeeds(script, first)
    _walk(script, first, folder)
    wants = any(child.type == "&&" for child in node.children)
    if sure is None:
        _unsettle(script, node, [[second]], folder)
    elif sure == wants:
        _walk(script, second, folder)


def _assign(script: Script, node: Any) -> None:
    name_node, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    line = node.start_point[0] + 1
    if name_node is None:
        return
    if name_node.type == "subscript":
        _assign_element(script, name_node, value, line)
        return
    name = text_of(name_node)
    if value is None:
        found = [Word("", line)]
    elif value.type == "array":
        found = [word for child in value.named_children if child.type != "comment" for word in words(script, child)]
        if any(text_of(child).startswith("[") and "]=" in text_of(child) for child in value.named_children):
            script.forget([name], line, f"${name} is a table of names at {script.name}:{line}, which is not followed")
            return
    else:
        found = [single(script, value)]
    before = script.variables.get(name, [])
    if any(child.type == "+=" for child in node.children):
        found = before + found if value is not None and value.type == "array" else [join([*before[:1], *found], line), *before[1:]]
    elif value is not None and value.type != "array" and len(before) > 1:
        found += before[1:]  # the first element of an array
    script.set(name, found)


def _assign_element(script: Script, target: Any, value: Any, line: int) -> None:
    """``A[1]=x``; ``+=`` is not followed."""
    name, index = text_of(target.named_children[0]), single(script, target.named_children[-1])
    held = list(script.variables.get(name, []))
    appended = any(child.type == "+=" for child in target.parent.children)
    if not index.text.isdigit() or int(index.text) > len(held) or value is None or appended:
        script.forget([name], line, f"elements of ${name} are set by name at {script.name}:{line}, which is not followed")
        return
    held[int(index.text) : int(index.text) + 1] = [single(script, value)]
    script.set(name, held)


def _declare(script: Script, node: Any) -> None:
    kind, line = node.children[0].type, node.start_point[0] + 1
    flags = "".join(text_of(child)[1:] for child in node.named_children if text_of(child).startswith("-"))
    if kind == "unset":
        _unset(script, node, line)
        return
    own = kind == "local" or (kind in ("declare", "typeset") and script.depth and "g" not in flags)
    given: list[str] = []
    for child in node.named_children:
        assigned = child if child.type == "variable_assignment" else None
        name = text_of(child.child_by_field_name("name") if assigned else child)
        if child.type not in ("variable_assignment", "variable_name"):
            continue
        if own and name not in script.local:
            script.local[name] = script.variables.pop(name, None)
        if kind == "export" or "x" in flags:
            script.exported.discard(name) if "n" in flags else script.exported.add(name)
        if set(flags) & set("ilu") or ("n" in flags and kind != "export"):
            script.odd.add(name)
            if "n" in flags:
                script.gap(line, f"makes ${name} another's name, which is not followed")
            script.forget([name], line, f"${name} is declared in a way that is not followed at {script.name}:{line}")
        if assigned:
            _assign(script, assigned)
            if any(f"${one}" in text_of(child) or f"${{{one}" in text_of(child) for one in given):
                script.forget([name], line, f"${name} is made of what the same line declares, at {script.name}:{line}")
            given.append(name)
        if (kind == "readonly" or "r" in flags) and name in script.variables:
            script.odd.add(name)


def _unset(script: Script, node: Any, line: int) -> None:
    for child in node.named_children:
        name = re.match(r"\w*", text_of(child).strip("'\""))
        assert name is not None
        if name[0] not in script.variables:
            continue
        if "[" in text_of(node):
            script.forget([name[0]], line, f"${name[0]} loses an element at {script.name}:{line}, which is not followed")
        else:
            del script.variables[name[0]]


def _command(script: Script, node: Any, folder: Path | None, more: Sequence[Any] = ()) -> None:
    named = next((child for child in node.named_children if child.type == "command_name"), node)
    given = []
    for child in (child for child in node.named_children if child.type == "variable_assignment"):
        if child.end_point[0] < named.start_point[0]:  # a line of its own, which the grammar takes for the command's
            _assign(script, child)
        else:
            given.append(child)
    found: list[Word] = []
    end = -1
    for child in (*node.named_children, *more):
        if child.type == "variable_assignment":
            continue
        if child.start_byte == end and found:  # the grammar takes a$B.c for two words after a brace
            line = child.start_point[0] + 1
            text, end = f"{found[-1].text}{text_of(child)}", child.end_byte
            found[-1] = Word(text if text[0] == "$" else f"${text}", line, f"{text} is read as two words at {script.name}:{line}")
            continue
        end = child.end_byte
        if child.type == "command_name":
            found += words(script, child.named_children[0])
        elif child.type not in ("file_redirect", "heredoc_redirect", "herestring_redirect", "comment"):
            found += words(script, child)
    if not given:
        _start(script, found, node.start_point[0] + 1, folder)
        return
    names = {text_of(child.child_by_field_name("name")) for child in given}
    before, exported = {name: script.variables.get(name) for name in names}, set(script.exported)
    for child in given:  # of this command alone; its own words were expanded before
        _assign(script, child)
    script.exported |= names
    try:
        _start(script, found, node.start_point[0] + 1, folder)
    finally:
        script.put_back(before)
        script.exported = exported | (script.exported - names)


def _start(script: Script, found: list[Word], line: int, folder: Path | None) -> None:
    """Do what one command does, as far as it concerns the script."""
    replaced, given = False, dict[str, Word]()
    while found and found[0].text in (*BEFORE, "env"):
        replaced |= found[0].text == "exec"
        variables, found = found[0].text == "env", found[1:]
        while variables and found and re.match(r"\w+=", found[0].text):
            name, _, text = found[0].text.partition("=")
            given[name], found = Word(text, found[0].line, found[0].unknown), found[1:]
    if found:
        _named(script, found, line, folder, given)
    if replaced and found and not script.unsure:
        raise Left(returned=False)


def _named(script: Script, found: list[Word], line: int, folder: Path | None, given: Mapping[str, Word]) -> None:
    """Do what a command of a name does."""
    name = found[0].text
    if name in ("exit", "return"):
        if not script.unsure:
            script.ended = line
            raise Left(returned=name == "return")
        if name == "return":
            script.gap(line, "may return here, which only a run can tell")
    elif name == "set":
        _set(script, found[1:])
    elif name == "shift":
        held, count = script.variables.get("@", []), found[1].text if len(found) > 1 else "1"
        if not count.isdigit():
            script.forget(["@", "*", "#"], line, f"how far arguments shift at {script.name}:{line} is not known")
        elif int(count) <= len(held):
            script.set_arguments(held[int(count) :])
    elif name == "let":
        script.forget(
            [one for word in found[1:] for one in re.findall(r"[A-Za-z_]\w*", word.text)],
            line,
            f"let is not followed at {script.name}:{line}",
        )
    elif name in SETTERS or (name == "printf" and len(found) > 2 and found[1].text == "-v"):
        names = [word.text for word in found[1:] if re.fullmatch(r"[A-Za-z_]\w*", word.text)]
        script.forget([*names, "REPLY", "OPTARG", "OPTIND"], line, f"{name} sets it at {script.name}:{line}, which only a run can tell")
    elif name in UNFOLLOWED:
        script.gap(line, f"{UNFOLLOWED[name]}, by {name}, which is not followed")
    elif name in ("source", "."):
        _source(script, found[1:], line, folder)
    elif name == "eval":
        _evaluate(script, found[1:], line, folder)
    elif name in script.functions:
        _call(script, name, found[1:], line, folder)
    elif name not in QUIET:
        script.start(found, given)


def _set(script: Script, found: list[Word]) -> None:
    """``set``: arguments, or options, of which only ``-a`` counts here."""
    texts = [word.text for word in found]
    at = next((at for at, text in enumerate(texts) if text in ("--", "-")), None)
    if at is not None:
        script.set_arguments(found[at + 1 :])
    elif texts and texts[0][:1] not in ("-", "+"):
        script.set_arguments(found)
    for one, other in zip(texts, [*texts[1:], ""], strict=True):
        if re.fullmatch(r"[-+][a-z]*a[a-z]*", one) or (one in ("-o", "+o") and other == "allexport"):
            script.exporting = one[0] == "-"


def _source(script: Script, found: list[Word], line: int, folder: Path | None) -> None:
    """Follow a script that is read into this one, where it is here."""
    if not found:
        return
    named, unknown = found[0].text, found[0].unknown
    if unknown and BESIDE.search(named + unknown) and re.search("[)`]/", named):
        named, unknown = re.split("[)`]/", named)[-1], ""
    path = Path(named)
    path = path if path.is_absolute() or folder is None else folder / path
    try:
        if unknown or script.depth >= DEEPEST:
            raise ConfigurationError(unknown)
        text = read_text(path)
    except ConfigurationError:
        script.gap(line, f"reads {found[0].text}, which is not here: what it sets is not known")
        return
    outer = script.variables.get("@", [])
    if len(found) > 1:
        script.set_arguments(found[1:])
    script.depth += 1
    with _ending(returned=True):
        _follow(script, text, folder)
    script.depth -= 1
    if len(found) > 1:
        script.set_arguments(outer)


def _evaluate(script: Script, found: list[Word], line: int, folder: Path | None) -> None:
    """``eval``: the words, joined, are a script again."""
    text = " ".join(word.text for word in found)
    if script.depth >= DEEPEST:
        script.gap(line, "evaluates what it evaluates, too deeply to be followed")
    elif any(word.unknown for word in found):
        if len(found) == 1 and found[0].text.startswith(("$(", "`", "$`")):
            script.gap(line, f"evaluates {found[0].text}, which only a run can tell")
        script.start(found)
    else:
        inner = script.inner()
        try:
            _follow(inner, text, folder)
        finally:
            script.steps = inner.steps
        script.gaps += [f"{script.name}:{line} {gap.partition(' ')[2]}" for gap in inner.gaps]
        lines = {word.text: word.line for word in found}
        for command, environment in inner.started:
            moved = [Word(word.text, lines.get(word.text, word.line + line - 1), word.unknown) for word in command]
            script.started.append((moved, environment))
        script.variables = inner.variables


def _call(script: Script, name: str, arguments: list[Word], line: int, folder: Path | None) -> None:
    """Follow a function with its own arguments and local variables."""
    if script.depth >= DEEPEST:
        script.gap(line, f"calls {name} too deeply to be followed")
        return
    outer, local = script.variables.get("@", []), script.local
    script.set_arguments(arguments)
    script.local, script.depth = {}, script.depth + 1
    with _ending(returned=True):
        _walk(script, script.functions[name], folder)
    script.put_back(script.local)
    script.local, script.depth = local, script.depth - 1
    script.set_arguments(outer)


def _if(script: Script, node: Any, folder: Path | None) -> None:
    """The branch that is taken, where the condition can be told; else what any of them may set is unknown."""
    conditions = [child for child in node.children_by_field_name("condition") if child.is_named]
    first = [child for child in node.named_children if child.type not in ("elif_clause", "else_clause") and child not in conditions]
    branches: list[tuple[Any, list[Any]]] = [(conditions[0], first)]
    unsure = len(conditions) > 1
    for child in node.named_children:
        if child.type == "elif_clause":
            branches.append((child.named_children[0], child.named_children[1:]))
        elif child.type == "else_clause":
            branches.append((None, child.named_children))
    for at, (condition, body) in enumerate(branches):
        taken = None if unsure else True if condition is None else holds(script, condition)
        if taken is None:
            asked = (
                [*conditions, *(one for one, _ in branches[1:] if one is not None)] if at == 0 else [one for one, _ in branches[at:] if one]
            )
            _unsettle(script, node, [[one] for one in asked], folder)
            _unsettle(script, node, [inner for _, inner in branches[at:]], folder)
            return
        if condition is not None:
            expand(script, condition)
        if taken:
            for child in body:
                _walk(script, child, folder)
            return


def _case(script: Script, node: Any, folder: Path | None) -> None:
    subject = single(script, node.named_children[0])
    items = node.named_children[1:]
    through = any(child.type in (";&", ";;&") for item in items for child in item.children)
    bodies = [[child for child in item.named_children if child not in item.children_by_field_name("value")] for item in items]
    for item, body in zip(items, bodies, strict=True):
        fit = [None if subject.unknown or through else fits(script, subject.text, one) for one in item.children_by_field_name("value")]
        if True in fit and None not in fit[: fit.index(True)]:
            for child in body:
                _walk(script, child, folder)
            return
        if None in fit:
            _unsettle(script, node, bodies, folder)
            return


def _for(script: Script, node: Any, folder: Path | None) -> None:
    """A loop over words: followed where all of them are known, else what it sets is unknown."""
    name, line = text_of(node.child_by_field_name("variable")), node.start_point[0] + 1
    values, body = node.children_by_field_name("value"), node.child_by_field_name("body")
    found = [word for child in values for word in words(script, child)] if values else list(script.variables.get("@", []))
    leaves = re.search(r"\b(break|continue|return|exit)\b", text_of(body)) is not None
    if not leaves and not any(word.unknown for word in found):
        for word in found:
            script.set(name, [word])
            _walk(script, body, folder)
        return
    script.forget([name], line, f"${name} takes several values in the loop at {script.name}:{line}")
    _loop(script, node, folder)


def _loop(script: Script, node: Any, folder: Path | None) -> None:
    """A loop of which only a run can tell how often: what it sets is unknown within it too."""
    line = node.start_point[0] + 1
    script.forget(_set_in(node), line, f"what the loop at {script.name}:{line} comes to is known to a run only")
    _unsettle(script, node, [node.named_children], folder)


def _set_in(node: Any) -> list[str]:
    """Names that are assigned anywhere in a node."""
    own = [text_of(node.child_by_field_name("name")).partition("[")[0]] if node.type == "variable_assignment" else []
    return own + [name for child in node.named_children for name in _set_in(child)]


def _unsettle(script: Script, node: Any, branches: Sequence[Sequence[Any]], folder: Path | None) -> None:
    """Follow what may or may not be done, each branch from where they part: their commands count, and what they set is unknown after."""
    before, functions = script.variables, dict(script.functions)
    changed: dict[str, None] = {}
    line = node.start_point[0] + 1
    script.unsure += 1
    for branch in branches:
        script.variables = {name: list(held) for name, held in before.items()}
        script.work(len(before) // COPIED)
        with _ending(returned=True):
            for child in branch:
                if child.type not in ("test_command", "comment"):
                    _walk(script, child, folder)
        held = script.variables
        changed |= dict.fromkeys(name for name in {**before, **held} if before.get(name) != held.get(name))
    script.unsure -= 1
    script.variables = before
    other = [name for name in script.functions if script.functions[name] != functions.get(name)]
    if other:
        script.gap(line, f"may define {other[0]}, which only a run can tell")
    script.forget(list(changed), line, f"what line {line} of {script.name} decides is known to a run only")
