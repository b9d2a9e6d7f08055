"""The state of a launch script while it is followed: variables, functions, and the commands that it would start."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct, field

from align_hooks.configuration.values import ConfigurationError, SourceLocation, UndecidedVariable, Value
from align_hooks.messages import Message, message

Node: TypeAlias = Any
"""A node of tree-sitter's syntax tree."""
CONTINUED = "\x01"
"""Mark of a continued line inside quotes: no character to bash, and a line to count."""
MOST = 30_000
"""Most steps of a script; a handwritten one takes a few thousand."""
LONGEST = 1_000_000
"""Most characters of a variable: a variable that doubles itself in every line would fill the memory."""


class ShellWord(Struct, frozen=True):
    """A word of a command."""

    raw: str
    line: int
    """The line on which the word begins."""
    unknown: Message | None = None
    """Why the word is unknown (its text has a ``$`` then); None for a known word."""
    parts: tuple[ShellWord, ...] = ()
    """The unknown parts of a word of several."""

    @property
    def text(self) -> str:
        """The word as bash has it."""
        return self.raw.replace(CONTINUED, "")


class Script(Struct):
    """A script that is followed."""

    name: str
    folder: Path | None = None
    variables: dict[str, list[ShellWord]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    functions: dict[str, Node] = field(default_factory=dict)
    started: list[tuple[list[ShellWord], dict[str, Value]]] = field(default_factory=list)
    """The commands that the script would start, each with its environment."""
    gaps: list[Message] = field(default_factory=list)
    """The places that could not be followed."""
    local: dict[str, list[ShellWord] | None] = field(default_factory=dict)
    """The words outside the current function of its local names."""
    odd: set[str] = field(default_factory=set)
    """Names whose values bash changes or keeps."""
    exporting: bool = False
    """Whether every assignment exports (``set -a``)."""
    moved: ShellWord | None = None
    """The folder that the last ``cd`` names; None before the first."""
    depth: int = 0
    unsure: int = 0
    """Number of undecided conditions around the current node."""
    steps: int = 0
    ended: int = 0
    """The line of the last exit or return."""
    texts: list[tuple[int, str]] = field(default_factory=list)
    """The script and the files that it reads, each with the number of lines before it: lines are numbered through."""
    lines: int = 0
    """Number of lines of all texts."""
    absent: list[Message] = field(default_factory=list)
    """The gaps of sourced files that are not here."""
    settled: set[str] = field(default_factory=set)
    """The names that are set after the last of ``absent``."""
    carried: bool = False
    """Whether a variable was read through which a file of ``absent`` may have added arguments."""
    choices: dict[tuple[str, Message], list[list[ShellWord]]] = field(default_factory=dict)
    """The words that each branch gives a variable, by the variable's text and the condition."""

    def begin(self, name: str, text: str) -> int:
        """Number the lines of another text, and return the number of lines before it."""
        before = self.lines
        self.texts.append((before, name))
        self.lines += text.count("\n") + 1
        return before

    def located(self, line: int, option: str = "") -> SourceLocation:
        """Return the location in its own text of a line, as :meth:`begin` numbers lines."""
        before, name = next((text for text in reversed(self.texts) if text[0] < line), (0, self.name))
        return SourceLocation(name, line - before, option)

    def place(self, line: int) -> str:
        """Return the location of a line as text, such as ``train.sh:31``."""
        return str(self.located(line))

    def work(self, steps: int) -> None:
        """Count steps; raises ConfigurationError for more than a handwritten script needs."""
        self.steps += steps
        if self.steps > MOST:
            why = f"takes more than {MOST} steps to be followed"
            raise ConfigurationError(f"{self.name} {why}; name a simpler script, or a list of arguments")

    def not_followed(self, line: int, text: str) -> None:
        """Note a text that is not followed and may change anything."""
        self.gaps.append(message("configuration.not_followed", place=self.place(line), text=" ".join(text.split())[:60]))

    def start(self, words: list[ShellWord], variables: Mapping[str, ShellWord]) -> None:
        """Note a command with the exported variables as they are now, and the variables that ``env`` sets for it."""
        self.work(len(self.exported) // 20)
        first = {name: self.variables[name][0] for name in sorted(self.exported) if self.variables.get(name)} | dict(variables)
        first |= {} if self.moved is None else {"PWD": self.moved}
        self.started.append((words, {name: Value(word.text, self.located(word.line), word.unknown) for name, word in first.items()}))

    def put_back(self, before: Mapping[str, list[ShellWord] | None]) -> None:
        """Give variables their former words; None removes a variable."""
        self.settled -= before.keys()
        for name, words in before.items():
            if words is None:
                self.variables.pop(name, None)
            else:
                self.variables[name] = words

    def set(self, name: str, words: list[ShellWord], line: int) -> None:
        """Give a variable its words; raises ConfigurationError for words longer than any argument."""
        if length_of(words) > LONGEST:
            raise ConfigurationError(f"{self.place(line)} makes ${name} longer than {LONGEST} characters; it cannot be followed")
        self.work(len(words))
        self.exported |= {name} if self.exporting else set()
        self.variables[name] = words
        self.settled |= {name} if self.absent else set()
        if name in self.odd:
            self.forget([name], line)

    def set_arguments(self, words: Sequence[ShellWord]) -> None:
        """Give the script, or a function, its arguments; raises ConfigurationError for too many characters."""
        if length_of(words) > LONGEST:
            raise ConfigurationError(f"{self.name} gives itself more than {LONGEST} characters of arguments; it cannot be followed")
        self.work(len(words) // 4)
        self.put_back({name: None for name in self.variables if name.isdigit()})
        self.variables |= {"@": list(words), "*": list(words), "#": [ShellWord(str(len(words)), 0)]}
        self.variables |= {str(at): [word] for at, word in enumerate(words, 1)}

    def lacks(self, line: int, text: str) -> None:
        """Note a sourced file that is not here."""
        self.absent.append(message("configuration.not_here", place=self.place(line), text=text))
        self.gaps.append(self.absent[-1])
        self.settled.clear()

    def read(self, name: str, words: Sequence[ShellWord] | None, *, otherwise: bool) -> None:
        """Note that a variable is read, through which an absent file may have added arguments.

        :param otherwise: whether the expansion has a substitute; without one an unset variable is an unknown word anyway.
        """
        # one plain word before the absent file is one plain word after it
        plain = words is not None and len(words) == 1 and re.fullmatch(r"[^\s-]\S*", words[0].text)
        if self.absent and name not in self.settled and not plain and (words is not None or otherwise):
            self.carried = True

    def forget(self, names: Sequence[str], line: int, why: Message | None = None) -> None:
        """Make the values of some variables unknown."""
        for name in names:
            unfollowed = why or UndecidedVariable("configuration.set_unfollowed", {"name": name, "place": self.place(line)})
            self.variables[name] = [ShellWord(f"${{{name}}}", line, unfollowed)]


def length_of(words: Sequence[ShellWord]) -> int:
    """Return the characters of some words, with a blank between two."""
    return sum(len(word.raw) + 1 for word in words)


def blank(node: Node) -> bytes:
    """Return the white space at a node's beginning: the grammar adds it to the node that follows."""
    return re.match(rb"(?:\s|\\\n)*", node.text)[0]  # type: ignore[index,no-any-return]


def text_of(node: Node) -> str:
    """Return the text of a node."""
    return str(node.text[len(blank(node)) :].decode("utf-8", "surrogateescape"))


def line_of(node: Node) -> int:
    """Return the line on which a node begins."""
    return int(node.start_point[0]) + blank(node).count(b"\n") + 1
