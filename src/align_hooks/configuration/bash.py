"""A launch script, followed as far as is possible without running anything.

tree-sitter's grammar of bash reads the text. This module follows assignments, plain conditions, functions, loops that start nothing, and
sourced files, and collects the commands that the script would start, word by word, each word with its line. Values that only a run shows,
and what is rare in scripts that train (loops that start commands, tables of names, options of bash), stay unknown, with the reason;
``align-hooks run --arguments-only`` finds them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import tree_sitter
import tree_sitter_bash
from msgspec import Struct
from msgspec.structs import replace

from align_hooks.configuration.assignments import assign, declare, names_set_in, note_read, set_options, shift, unset
from align_hooks.configuration.beside import file_beside
from align_hooks.configuration.conditions import fits, holds, succeeds
from align_hooks.configuration.files import SCRIPT, read_text
from align_hooks.configuration.script import CONTINUED, Node, Script, ShellWord, line_of, text_of
from align_hooks.configuration.values import ConfigurationError, UndecidedVariable
from align_hooks.configuration.words import here_document, join, names_in, single, words
from align_hooks.messages import message

DEEPEST = 8
"""Largest depth of calls, sourced scripts and ``eval``."""
QUIET = ("break", "cat", "continue", "cp", "echo", "ln", "mkdir", "module", "pip", "rm", "sleep", "tee", "trap")
"""Commands that are not collected: a script prints its own command line before it runs it."""
BEFORE = ("exec", "nohup", "time", "command", "builtin", "env")
"""Words before a command that do not change it."""
COMPUTING = frozenset(["true", ":", "echo", "shift", "set", "exit", "return", "test"])
"""Commands that start nothing: a loop of these, of assignments and of conditions is followed pass by pass."""
PASSES = 100
"""Most passes of a loop that are followed; a loop over a script's arguments takes a dozen."""
CUT_WORD = re.compile(rb"(?<=[^\s\\&|;({])\\\n(?=\S)")
"""A continued line within a word."""
JOINED = ("string", "string_content", "raw_string", "comment", "heredoc_body", "heredoc_content")
"""Nodes in which the grammar joins continued lines itself."""
SHELLS = ("bash", "sh")
READERS = (*SHELLS, "sbatch")
"""Commands that read a script."""
ELSEWHERE = ("docker", "kubectl", "podman", "ssh")
"""Commands that pass no variable on."""
SCRIPT_NAME = re.compile(r"\S+\.(sh|bash|sbatch|slurm|job)")


class Nested(Struct, frozen=True):
    """A text that another bash reads: a here-document, the word of ``bash -c`` or a file, as schedulers and containers get their jobs."""

    text: ShellWord
    arguments: Sequence[ShellWord]
    inherits: bool
    """Whether the other bash has the exported variables."""
    name: str = ""
    """The name of the file with the text; empty without a file."""


class Left(Exception):
    """The end of the script or of a function by ``word``: ``exit`` or ``return``."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


def evaluate(text: str, name: str, environment: Mapping[str, str], arguments: Sequence[str] = (), folder: Path | None = None) -> Script:
    """Follow a script that is started with ``arguments`` in ``environment``; files that it sources are in ``folder``.

    :raises ConfigurationError: the text nests too deeply.
    """
    script = Script(name, folder, {key: [ShellWord(value, 0)] for key, value in environment.items()})
    script.set_arguments([ShellWord(argument, 0) for argument in arguments])
    try:
        with ending("exit", "return"):
            _follow(script, text, name)
    except RecursionError:
        raise ConfigurationError(f"{name} is nested too deeply to be read; name a simpler script, or a list of arguments") from None
    return script


@contextmanager
def ending(*words: str) -> Iterator[None]:
    """End the block at some words: ``exit`` and ``return`` in a script or a subshell, ``return`` in a function or a sourced script."""
    try:
        yield
    except Left as leaving:
        if leaving.word not in words:
            raise


def _follow(script: Script, text: str, name: str = "") -> None:
    """Follow a text in the state of a script: the script or a file that it reads, by its ``name``, or a text of ``eval``."""
    while text.rstrip().endswith("\\"):
        text = text.rstrip()[:-1]
    script.work(len(text) // 100 + 10)
    text = "\n" * (script.begin(name, text) if name else 0) + text.removeprefix("\ufeff").replace("\r\n", "\n") + "\n"
    written = text.encode("utf-8", "surrogateescape")
    root = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language())).parse(written).root_node
    for cut in CUT_WORD.finditer(written):
        node = root.descendant_for_byte_range(cut.start(), cut.end())
        if node is None or node.type not in JOINED:
            script.not_followed(written.count(b"\n", 0, cut.start()) + 1, "\\")
    for bad in _errors(script, root) if root.has_error else ():
        near = next(iter(text_of(bad).strip().splitlines()), "")[:60]
        script.gaps.append(message("configuration.no_bash", place=script.place(line_of(bad)), text=repr(near)))
    _all(script, root)


def _errors(script: Script, node: Node) -> Iterator[Node]:
    """Yield the nodes at which the grammar broke, but for those in a loop without a pass."""
    for child in node.children:
        if child.type == "ERROR" or child.is_missing:
            yield child
        elif child.has_error and not _over_no_argument(script, child):
            yield from _errors(script, child)


def _all(script: Script, node: Node) -> None:
    """Follow a node's children."""
    for child in node.named_children:
        _walk(script, child)


def _walk(script: Script, node: Node) -> None:
    """Follow a node, as a subshell where it runs in the background."""
    script.work(1)
    if node.next_sibling is not None and node.next_sibling.type == "&":
        _subshell(script, [node])
    elif node.type in FOLLOWED:
        FOLLOWED[node.type](script, node)
    elif node.type not in PASSED:
        script.not_followed(line_of(node), text_of(node))


def _subshell(script: Script, nodes: Sequence[Node]) -> None:
    """Follow the nodes of a subshell: its variables are gone after it, and ``exit`` ends only it."""
    before = dict(script.variables), set(script.exported), dict(script.functions), set(script.settled), script.moved
    script.work(len(script.variables) // 20)
    with ending("exit", "return"):
        for node in nodes:
            FOLLOWED.get(node.type, _all)(script, node)
    script.variables, script.exported, script.functions, script.settled, script.moved = before


def _pipeline(script: Script, node: Node) -> None:
    for child in node.named_children:
        _subshell(script, [child])


def _compound(script: Script, node: Node) -> None:
    """Follow ``{ …; }``, and forget the variables of ``(( … ))``, which is not worked out."""
    if text_of(node).startswith("(("):
        script.forget(names_in(node), line_of(node))
    else:
        _all(script, node)


def _function(script: Script, node: Node) -> None:
    name = text_of(node.child_by_field_name("name"))
    if script.unsure:
        script.gaps.append(message("configuration.may_define", place=script.place(line_of(node)), name=name))
    script.functions[name] = node.child_by_field_name("body")


def _redirected(script: Script, node: Node) -> None:
    """Follow a command with redirections, between and after which its words go on."""
    body, more, document = node.child_by_field_name("body"), list[Node](), None
    for child in node.named_children:
        parts = [inner for inner in child.named_children if inner.type != "file_descriptor" and not inner.type.startswith("heredoc_")]
        if child.type in ("file_redirect", "herestring_redirect"):
            more += parts[1:]
        elif child.type == "heredoc_redirect":
            document = here_document(script, child)
            if any(inner.type not in ("pipeline", "file_redirect") for inner in parts):
                script.not_followed(line_of(child), text_of(child).partition("\n")[0])
    if body is not None and body.type == "command":
        _command(script, body, more, document)
    elif body is not None:
        _walk(script, body)


def _list(script: Script, node: Node) -> None:
    """Follow ``first && second`` and ``first || second``."""
    first, second = node.named_children[0], node.named_children[-1]
    sure = succeeds(script, first)
    _walk(script, first)
    if sure is None:
        _unsettle(script, node, [[second]])
    elif sure == any(child.type == "&&" for child in node.children):
        _walk(script, second)


def _command(script: Script, node: Node, more: Sequence[Node] = (), document: ShellWord | None = None) -> None:
    """Follow a command with its own assignments, ``more`` of its words after a redirection, and the here-document that it reads."""
    named = next((child for child in node.named_children if child.type == "command_name"), node)
    assigned, started, end = list[Node](), list[ShellWord](), -1
    for child in (*node.named_children, *more):
        if child.type == "variable_assignment" and child.end_point[0] < named.start_point[0]:
            assign(script, child)  # a line of its own, which the grammar takes for the command's
        elif child.type == "variable_assignment":
            assigned.append(child)
        elif child.start_byte == end and started:  # the grammar takes a$B.c for two words after a brace
            text, line = f"${started[-1].text}{text_of(child)}", line_of(child)
            started[-1] = ShellWord(text, line, message("configuration.not_worked_out", text=text, place=script.place(line)))
        elif child.type not in BETWEEN:
            started += words(script, child.named_children[0] if child.type == "command_name" else child)
        end = child.end_byte
    names = {text_of(child.child_by_field_name("name")) for child in assigned}
    before, exported = {name: script.variables.get(name) for name in names}, set(script.exported)
    for child in assigned:  # the command's own words were expanded before
        assign(script, child)
    script.exported |= names
    try:
        _start(script, started, line_of(node), document)
    finally:
        script.put_back(before)
        script.exported = exported | (script.exported - names)


def _start(script: Script, started: list[ShellWord], line: int, document: ShellWord | None) -> None:
    """Follow a command's effect on the script, or note that it is started."""
    replaced, variables = False, dict[str, ShellWord]()
    while started and started[0].text in BEFORE:
        replaced |= started[0].text == "exec"
        of_env, started = started[0].text == "env", started[1:]
        while of_env and started and re.match(r"\w+=", started[0].text):
            name, _, text = started[0].text.partition("=")
            variables[name], started = ShellWord(text, started[0].line, started[0].unknown), started[1:]
    name = started[0].text if started else ""
    if name in COMMANDS:
        COMMANDS[name](script, started, line)
    elif name in script.functions:
        _call(script, started, line)
    elif (nested := script_in(script, started, document)) is not None and script.depth < DEEPEST:
        _nested(script, nested, variables)
    elif name not in ("", *QUIET):
        script.start(started, variables)
    if replaced and name:
        raise Left("exit")


def _leave(script: Script, started: list[ShellWord], line: int) -> None:
    script.ended = script.ended if script.unsure else line
    raise Left(started[0].text)


def _move(script: Script, started: list[ShellWord], line: int) -> None:
    """Follow ``cd``: relative paths after it start at its folder."""
    unknown = ShellWord("$PWD", line, message("configuration.moved", place=script.place(line)))
    to = started[1] if len(started) > 1 and not script.unsure else unknown
    script.moved = to if script.moved is None or to.text.startswith(("/", "$", "`")) else join([script.moved, to], line, "/")


def _unfollowed(script: Script, started: list[ShellWord], line: int) -> None:
    script.not_followed(line, " ".join(word.text for word in started))


def _edit(script: Script, started: list[ShellWord], line: int) -> None:
    """Note ``sed -i`` on a script or a configuration: its effect is not followed."""
    if any(re.match(r"-[a-zA-Z]*i|--in-place", word.text) for word in started) and re.search(r"\.(ya?ml|sh|json|py)\b", started[-1].text):
        script.not_followed(line, f"sed -i … {started[-1].text}")


OF_FILES = frozenset(["cat", "chmod", "cp", "du", "echo", "grep", "kill", "ln", "ls", "mkdir", "mv", "rm", "tar", "touch", "wc"])
"""Commands on files, which set nothing of a training."""
WITH_VALUE = frozenset(["-n", "-I", "-P", "-d", "-L", "-a", "-s", "-E"])
"""Options of ``xargs`` that take the next word."""


def _xargs(script: Script, started: list[ShellWord], line: int) -> None:
    """Note ``xargs`` as not followed, unless it starts a command on files."""
    words = iter(started[1:])
    for word in words:
        if word.unknown or not word.text.startswith("-"):
            if word.unknown or word.text not in OF_FILES:
                _unfollowed(script, started, line)
            return
        if word.text in WITH_VALUE:
            next(words, None)


def _source(script: Script, started: list[ShellWord], line: int) -> None:
    """Follow ``source``, where its file is on this machine."""
    named = started[1] if len(started) > 1 else ShellWord("", line)
    beside = file_beside(named.text) if named.unknown and not script.moved else None
    path = Path(named.text if beside is None else beside)
    try:
        if (named.unknown and beside is None) or script.depth >= DEEPEST or (script.moved and beside is None and not path.is_absolute()):
            raise ConfigurationError(named.text)
        text = read_text(path if path.is_absolute() or script.folder is None else script.folder / path, SCRIPT)
    except ConfigurationError:
        script.lacks(line, named.text)
        return
    _within(script, started[2:] or script.variables["@"], lambda: _follow(script, text, path.name))


def _call(script: Script, started: list[ShellWord], line: int) -> None:
    """Follow a function with its own arguments and local variables."""
    if script.depth >= DEEPEST:
        script.not_followed(line, started[0].text)
        return
    local, script.local = script.local, {}
    _within(script, started[1:], lambda: _walk(script, script.functions[started[0].text]))
    script.put_back(script.local)
    script.local = local


def _within(script: Script, arguments: list[ShellWord], follow: Callable[[], None]) -> None:
    """Follow a function or a sourced script with its own ``arguments``."""
    outer = list(script.variables["@"])
    script.set_arguments(arguments)
    script.depth += 1
    with ending("return"):
        follow()
    script.depth -= 1
    script.set_arguments(outer)


def script_in(script: Script, started: Sequence[ShellWord], document: ShellWord | None) -> Nested | None:
    """Return the script that a command's bash reads: the word of ``-c``, a file on this machine, or the here-document."""
    names = [Path(word.text).name for word in started]
    at = next((at for at, name in enumerate(names) if name in READERS), None)
    if at is None or any(name.endswith(".py") for name in names[:at]):
        return None
    inherits, rest = names[0] not in ELSEWHERE, list(started[at + 1 :])
    while rest and rest[0].text.startswith("-") and names[at] in SHELLS:
        option = rest.pop(0).text
        if re.fullmatch(r"-[a-z]*c", option) and rest:
            return None if rest[0].unknown and not rest[0].parts else Nested(rest[0], rest[2:], inherits)
        if re.fullmatch(r"-[a-z]*[oO]", option):
            del rest[:1]
    file = next((at for at, word in enumerate(rest) if SCRIPT_NAME.fullmatch(word.text) or names[0] in SHELLS), None)
    if file is None:
        return Nested(document, [], inherits) if document is not None else None
    path = Path(rest[file].text)
    if rest[file].unknown or script.moved or (script.folder is None and not path.is_absolute()):
        return None
    try:
        text = read_text(path if script.folder is None else script.folder / path, SCRIPT)
    except ConfigurationError:
        return None
    return Nested(ShellWord(text, 0), rest[file + 1 :], inherits, path.name)


def written_again(text: ShellWord) -> tuple[str, dict[str, list[ShellWord]]]:
    """Return a text that bash reads again, and the variables that stand in it for unknown parts."""
    written, stands = text.raw.replace(CONTINUED, "\\\n"), dict[str, list[ShellWord]]()
    for number, part in enumerate(part for part in text.parts or (text,) if part.unknown):
        stands[f"_unknown_{number}"] = [part]
        written = written.replace(part.raw, f"${{_unknown_{number}}}", 1)
    return written, stands


def _nested(script: Script, nested: Nested, variables: Mapping[str, ShellWord]) -> None:
    """Follow a script that another bash reads: it has only the exported variables, and its own are gone after it."""
    before, ended = (script.variables, set(script.exported), script.functions, set(script.settled), script.moved), script.ended
    text, stands = written_again(nested.text)
    inherited = {name: script.variables[name] for name in script.exported if name in script.variables} if nested.inherits else {}
    script.variables, script.functions = {**inherited, **{name: [word] for name, word in variables.items()}, **stands}, {}
    script.exported = set(inherited) | set(variables)
    script.set_arguments(nested.arguments)
    script.depth += 1
    with ending("exit", "return"):
        _follow(script, "\n" * (nested.text.line - 1) + text, nested.name)
    script.depth -= 1
    (script.variables, script.exported, script.functions, script.settled, script.moved), script.ended = before, ended


def _evaluate(script: Script, started: list[ShellWord], line: int) -> None:
    """Follow ``eval``: the joined words are a script, in which a variable stands for each unknown word."""
    if script.depth >= DEEPEST or (len(started) > 1 and started[1].unknown):
        script.gaps.append(message("configuration.evaluates", place=script.place(line), text=" ".join(word.text for word in started[1:])))
        return
    at, gaps, lines = len(script.started), len(script.gaps), {word.text: word.line for word in started}
    stands = {f"_unknown_{number}": [word] for number, word in enumerate(started) if word.unknown}
    script.variables |= stands
    script.depth += 1
    _follow(script, " ".join(f"$_unknown_{number}" if word.unknown else word.text for number, word in enumerate(started) if number))
    script.depth -= 1
    script.put_back(dict.fromkeys(stands))
    for command, _ in script.started[at:]:
        command[:] = [ShellWord(word.raw, lines.get(word.text, word.line + line - 1), word.unknown) for word in command]
    script.gaps[gaps:] = [gap.having(place=script.place(line)) for gap in script.gaps[gaps:]]


def _if(script: Script, node: Node) -> None:
    """Follow the branch that is run, where the conditions are known; else what any branch sets is unknown."""
    conditions = [child for child in node.children_by_field_name("condition") if child.is_named]
    clauses = [child for child in node.named_children if child.type in ("elif_clause", "else_clause")]
    branches = [(conditions, [child for child in node.named_children if child not in (*clauses, *conditions)])]
    for clause in clauses:
        children = clause.named_children
        branches.append((children[:1], children[1:]) if clause.type == "elif_clause" else ([], children))
    for at, (condition, body) in enumerate(branches):
        runs = True if not condition else holds(script, condition[0]) if len(condition) == 1 else None
        if runs is None:
            _unsettle(script, node, [conditions for conditions, _ in branches[at:]])
            _unsettle(script, node, [children for _, children in branches[at:]])
        for child in body if runs else ():
            _walk(script, child)
        if runs is not False:
            return


def _case(script: Script, node: Node) -> None:
    subject, items = single(script, node.named_children[0]), node.named_children[1:]
    bodies = [[child for child in item.named_children if child not in item.children_by_field_name("value")] for item in items]
    through = subject.unknown or any(child.type in (";&", ";;&") for item in items for child in item.children)
    for item, body in zip(items, bodies, strict=True):
        fit = [None if through else fits(script, subject.text, pattern) for pattern in item.children_by_field_name("value")]
        if None in fit:
            _unsettle(script, node, bodies)
        for child in body if True in fit and None not in fit else ():
            _walk(script, child)
        if None in fit or True in fit:
            return


def _over_no_argument(script: Script, node: Node) -> bool:
    """Return whether a loop is over the script's own arguments, and there are none."""
    over = {text_of(value).strip('"') for value in node.children_by_field_name("value")}
    return node.type == "for_statement" and over <= {"$@", "${@}", "$*"} and script.variables.get("@") == []


def _loop(script: Script, node: Node) -> None:
    """Follow a loop that starts nothing pass by pass; what any other loop sets is unknown, within the loop too."""
    if _over_no_argument(script, node):
        return
    before = dict(script.variables), set(script.exported), set(script.settled), list(script.gaps)
    if _computes(node.child_by_field_name("body")) and _every_pass(script, node):
        return
    script.variables, script.exported, script.settled, script.gaps = before
    why, started = UndecidedVariable("configuration.loop", {"place": script.place(line_of(node))}), len(script.started)
    script.forget(names_set_in(node), line_of(node), why)
    _unsettle(script, node, [[node.child_by_field_name("body")]])
    if len(script.started) > started:
        script.gaps.append(why)


def _computes(node: Node) -> bool:
    """Return whether all commands in a node are in :data:`COMPUTING`."""
    name = node.child_by_field_name("name") if node.type == "command" else None
    return (name is None or text_of(name) in COMPUTING) and all(_computes(child) for child in node.named_children)


def _every_pass(script: Script, node: Node) -> bool:
    """Follow a loop pass by pass, and return whether a run makes the same passes."""
    body, kind = node.child_by_field_name("body"), node.children[0].type
    if kind == "for" and node.type == "for_statement":
        listed = any(child.type == "in" for child in node.children)
        values = node.children_by_field_name("value")
        over = [word for value in values for word in words(script, value)] if listed else script.variables["@"]
        if len(over) > PASSES or any(word.unknown for word in over):
            return False
        for word in list(over):
            script.set(text_of(node.child_by_field_name("variable")), [word], line_of(node))
            _walk(script, body)
        return True
    for _ in range(PASSES if kind in ("while", "until") else 0):
        goes_on = holds(script, node.child_by_field_name("condition"))
        if goes_on is None or goes_on == (kind == "until"):
            return goes_on is not None
        _walk(script, body)
    return False


def _unsettle(script: Script, node: Node, branches: Sequence[Sequence[Node]]) -> None:
    """Follow branches that may run, each from the same state: their commands count, and what they set is unknown afterwards."""
    before, settled, line, after = script.variables, set(script.settled), line_of(node), dict[str, list[list[ShellWord]]]()
    script.unsure += 1
    for branch in branches:
        script.variables, ended_by = {name: list(words_before) for name, words_before in before.items()}, ""
        script.work(len(before) // 20)
        try:
            for child in branch:
                _walk(script, child)
        except Left as leaving:
            ended_by = leaving.word
        if ended_by == "return":
            script.gaps.append(message("configuration.may_return", place=script.place(line)))
        for name in before | script.variables if ended_by != "exit" else ():  # after which nothing follows that could ask
            if before.get(name) != script.variables.get(name):
                after.setdefault(name, []).append(script.variables.get(name, []))
    script.unsure -= 1
    script.variables, script.settled = before, settled
    place = script.located(line)
    why = UndecidedVariable("configuration.decided", {"line": place.line, "script": place.source})
    for name, ends in after.items():
        words_before = before.get(name, [])
        script.forget([name], line, why)
        text, choices = script.variables[name][0].text, [words_before, *ends]
        if words_before and all(words_after[: len(words_before)] == words_before for words_after in ends):
            script.variables[name] = words_before + script.variables[name]
            choices = [words_after[len(words_before) :] for words_after in ends]
        elif len(words_before) == 1 and all(
            len(words_after) == 1 and re.match(re.escape(words_before[0].raw) + r"\s", words_after[0].raw) for words_after in ends
        ):
            before_it = words_before[0].raw
            script.variables[name] = [join([*words_before, *script.variables[name]], words_before[0].line, " ")]
            choices = [[replace(words_after[0], raw=words_after[0].raw.removeprefix(before_it))] for words_after in ends]
        script.choices.setdefault((text, why), []).extend(choices)


FOLLOWED: dict[str, Callable[[Script, Node], None]] = {
    "variable_assignment": assign,
    "declaration_command": declare,
    "unset_command": unset,
    "command": _command,
    "redirected_statement": _redirected,
    "if_statement": _if,
    "case_statement": _case,
    "function_definition": _function,
    "list": _list,
    "subshell": lambda script, node: _subshell(script, node.named_children),
    "pipeline": _pipeline,
    "compound_statement": _compound,
    **dict.fromkeys(("for_statement", "while_statement", "c_style_for_statement"), _loop),
    **dict.fromkeys(("program", "do_group", "negated_command", "variable_assignments", "ERROR"), _all),
}
BETWEEN = ("comment", "heredoc_redirect", "file_redirect", "herestring_redirect")
"""Nodes among a command's words that are no words."""
PASSED = (*BETWEEN, "test_command", "command_substitution")
"""Nodes without an effect on the script."""
COMMANDS: dict[str, Callable[[Script, list[ShellWord], int], None]] = {
    **dict.fromkeys(("exit", "return"), _leave),
    **dict.fromkeys(("read", "mapfile", "readarray", "getopts", "let", "printf"), note_read),
    **dict.fromkeys(("shopt", "alias"), _unfollowed),
    "xargs": _xargs,
    **dict.fromkeys(("source", "."), _source),
    "cd": _move,
    "sed": _edit,
    "set": set_options,
    "shift": shift,
    "eval": _evaluate,
}
