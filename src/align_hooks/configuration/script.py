"""What is known of a launch script while it is followed: variables, functions, and the commands that it would start."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from align_hooks.configuration.values import ConfigurationError, SourceLocation, Value
from align_hooks.messages import Message, message

Node: TypeAlias = Any
"""A node of tree-sitter's syntax tree."""
CONTINUED = "\x01"
"""What a continued line inside quotes leaves: nothing that bash sees, and a line to count."""
MOST = 30_000
"""Steps of a script; one that was written by hand takes a few thousand."""
LONGEST = 1_000_000
"""Characters of a variable: one that doubles itself in every line would fill the memory."""


@dataclass(frozen=True, slots=True)
class ShellWord:
    """A word of a command, the line it begins on, and why it is not known; an unknown word has a ``$`` in its text.

    ``parts`` are what is not known of a word that is put together, each with its own reason.
    """

    raw: str
    line: int
    unknown: Message | None = None
    parts: tuple[ShellWord, ...] = ()

    @property
    def text(self) -> str:
        """As bash has it."""
        return self.raw.replace(CONTINUED, "")


@dataclass(slots=True)
class Script:
    """What a script says: the commands that it would start, each with its environment, and what could not be followed (``gaps``).

    ``unsure`` counts the conditions that only a run can tell, around the node that is followed. ``local`` are the local names of the
    function that is followed, with the words that they had outside it. ``odd`` are names whose values bash changes or keeps. ``ended`` is
    the line of the last exit or return. ``texts`` are the script and the files that it reads, each with the number of ``lines`` before it:
    lines are numbered through, so that a word needs no file beside its line. ``absent`` are the gaps of files that are sourced and not
    here, ``settled`` the names that are set after the first of them, and ``carried`` says that something was read after it by which such a
    file may have added arguments. ``choices`` are, of a variable that a condition decides, by its text and the condition, the words that
    each branch gives it.
    """

    name: str
    folder: Path | None = None
    variables: dict[str, list[ShellWord]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    functions: dict[str, Node] = field(default_factory=dict)
    started: list[tuple[list[ShellWord], dict[str, Value]]] = field(default_factory=list)
    gaps: list[Message] = field(default_factory=list)
    local: dict[str, list[ShellWord] | None] = field(default_factory=dict)
    odd: set[str] = field(default_factory=set)
    exporting: bool = False
    moved: ShellWord | None = None
    """The folder that the last ``cd`` names; None where the script stays where it is started."""
    depth: int = 0
    unsure: int = 0
    steps: int = 0
    ended: int = 0
    texts: list[tuple[int, str]] = field(default_factory=list)
    lines: int = 0
    absent: list[Message] = field(default_factory=list)
    settled: set[str] = field(default_factory=set)
    carried: bool = False
    choices: dict[tuple[str, Message], list[list[ShellWord]]] = field(default_factory=dict)

    def begin(self, name: str, text: str) -> int:
        """Number the lines of a text that is read after others; how many lines stand before it."""
        before = self.lines
        self.texts.append((before, name))
        self.lines += text.count("\n") + 1
        return before

    def located(self, line: int, option: str = "") -> SourceLocation:
        """The place of a line as :meth:`begin` numbers them, in its own text."""
        before, name = next((text for text in reversed(self.texts) if text[0] < line), (0, self.name))
        return SourceLocation(name, line - before, option)

    def place(self, line: int) -> str:
        """``train.sh:31``."""
        return str(self.located(line))

    def work(self, steps: int) -> None:
        """Count the steps of following the script.

        :raises ConfigurationError: they are more than any script that was written by hand needs.
        """
        self.steps += steps
        if self.steps > MOST:
            why = f"takes more than {MOST} steps to be followed"
            raise ConfigurationError(f"{self.name} {why}; name a simpler script, or a list of arguments")

    def not_followed(self, line: int, text: str) -> None:
        """Note a text that is not followed, and may change anything."""
        self.gaps.append(message("configuration.not_followed", place=self.place(line), text=" ".join(text.split())[:60]))

    def start(self, words: list[ShellWord], variables: Mapping[str, ShellWord]) -> None:
        """Note a command with the exported variables as they stand, and those that ``env`` sets for it."""
        self.work(len(self.exported) // 20)
        first = {name: self.variables[name][0] for name in sorted(self.exported) if self.variables.get(name)} | dict(variables)
        first |= {} if self.moved is None else {"PWD": self.moved}
        self.started.append((words, {name: Value(word.text, self.located(word.line), word.unknown) for name, word in first.items()}))

    def put_back(self, before: Mapping[str, list[ShellWord] | None]) -> None:
        """Give variables the words that they had before; None takes a variable away."""
        self.settled -= before.keys()
        self.variables |= {name: words for name, words in before.items() if words is not None}
        for name in [name for name, words in before.items() if words is None]:
            self.variables.pop(name, None)

    def set(self, name: str, words: list[ShellWord], line: int) -> None:
        """Give a variable its words.

        :raises ConfigurationError: they are longer than any argument.
        """
        if length_of(words) > LONGEST:
            raise ConfigurationError(f"{self.place(line)} makes ${name} longer than {LONGEST} characters; it cannot be followed")
        self.work(len(words))
        self.exported |= {name} if self.exporting else set()
        self.variables[name] = words
        self.settled |= {name} if self.absent else set()
        if name in self.odd:
            self.forget([name], line)

    def set_arguments(self, words: Sequence[ShellWord]) -> None:
        """Give the script, or a function, its arguments.

        :raises ConfigurationError: they are longer than those of any script.
        """
        if length_of(words) > LONGEST:
            raise ConfigurationError(f"{self.name} gives itself more than {LONGEST} characters of arguments; it cannot be followed")
        self.work(len(words) // 4)
        self.put_back({name: None for name in self.variables if name.isdigit()})
        self.variables |= {"@": list(words), "*": list(words), "#": [ShellWord(str(len(words)), 0)]}
        self.variables |= {str(at): [word] for at, word in enumerate(words, 1)}

    def lacks(self, line: int, text: str) -> None:
        """Note a file that is sourced and not here."""
        self.absent.append(message("configuration.not_here", place=self.place(line), text=text))
        self.gaps.append(self.absent[-1])
        self.settled.clear()

    def read(self, name: str, words: Sequence[ShellWord] | None, *, otherwise: bool) -> None:
        """Note that a variable is read, and whether a file that is not here may have added arguments by it.

        What was one plain word before that file is one after it. A variable that nothing sets is an unknown word, unless something else
        stands for it, ``otherwise``.
        """
        plain = words is not None and len(words) == 1 and re.fullmatch(r"[^\s-]\S*", words[0].text)
        if self.absent and name not in self.settled and not plain and (words is not None or otherwise):
            self.carried = True

    def forget(self, names: Sequence[str], line: int, why: Message | None = None) -> None:
        """Note that nothing is known of some variables any more."""
        for name in names:
            unfollowed = why or message("configuration.set_unfollowed", name=name, place=self.place(line))
            self.variables[name] = [ShellWord(f"${{{name}}}", line, unfollowed)]


def length_of(words: Sequence[ShellWord]) -> int:
    """Characters of some words, and what stands between them."""
    return sum(len(word.raw) + 1 for word in words)


def blank(node: Node) -> bytes:
    """The white space that the grammar gives to what follows it."""
    return re.match(rb"(?:\s|\\\n)*", node.text)[0]  # type: ignore[index,no-any-return]


def text_of(node: Node) -> str:
    """The text of a node of the grammar."""
    return str(node.text[len(blank(node)) :].decode("utf-8", "surrogateescape"))


def line_of(node: Node) -> int:
    """The line that a node begins on."""
    return int(node.start_point[0]) + blank(node).count(b"\n") + 1
