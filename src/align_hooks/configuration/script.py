"""What is known of a launch script while it is followed: variables, functions, and the commands that it would start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from align_hooks.configuration.values import ConfigurationError, Value

CONTINUED = "\v"
"""What a continued line inside quotes leaves: white space that splits, and that counts as a line."""
NOBODY = "nothing sets"
MOST = 30_000
"""Steps of a script; one that was written by hand takes a few thousand."""
LONGEST = 1_000_000
"""Characters of a variable: one that doubles itself in every line would fill the memory."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command, the line it stands on, and why it is not known; an unknown word has a ``$`` in its text."""

    text: str
    line: int
    unknown: str = ""


@dataclass(slots=True)
class Script:
    """What a script says: the commands that it would start, what it exports, and what could not be followed (``gaps``).

    ``unsure`` counts the conditions around what is followed now that only a run can tell; ``local`` are names of the function that is, with
    what they held outside it; ``odd`` are names whose values bash changes or keeps; ``started`` has each command's own environment;
    ``ended`` is the line of the last exit or return.
    """

    name: str
    variables: dict[str, list[Word]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    functions: dict[str, Any] = field(default_factory=dict)
    started: list[tuple[list[Word], dict[str, Value]]] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    local: dict[str, list[Word] | None] = field(default_factory=dict)
    odd: set[str] = field(default_factory=set)
    exporting: bool = False
    depth: int = 0
    unsure: int = 0
    steps: int = 0
    ended: int = 0

    @property
    def commands(self) -> list[list[Word]]:
        """The commands that it would start, in order."""
        return [words for words, _ in self.started]

    def start(self, words: list[Word], given: Mapping[str, Word] | None = None) -> None:
        """Note a command with the environment that it is started in, to which ``env`` gave more."""
        more = {name: Value(word.text, f"{self.name}:{word.line}", word.unknown) for name, word in (given or {}).items()}
        self.work(len(self.exported) // 20)
        self.started.append((words, {**self.exports(), **more}))

    def environment(self, words: Sequence[Word]) -> dict[str, Value]:
        """The environment that a command was started in."""
        return next((held for command, held in self.started if command is words), {})

    def inner(self) -> Script:
        """A script that goes on with what this one knows, for what it evaluates."""
        return Script(
            self.name,
            self.variables,
            self.exported,
            self.functions,
            local=self.local,
            odd=self.odd,
            exporting=self.exporting,
            depth=self.depth + 1,
            unsure=self.unsure,
            steps=self.steps,
        )

    def work(self, steps: int) -> None:
        """Count what is done.

        :raises ConfigurationError: it is more than any script that was written by hand needs.
        """
        self.steps += steps
        if self.steps > MOST:
            raise ConfigurationError(
                f"{self.name} takes more than {MOST} steps to be followed; name a simpler script, or a list of arguments"
            )

    def put_back(self, before: Mapping[str, list[Word] | None]) -> None:
        """Give variables what they held, None for nothing."""
        for name, held in before.items():
            if held is None:
                self.variables.pop(name, None)
            else:
                self.variables[name] = held

    def exports(self) -> dict[str, Value]:
        """Exported variables as they stand."""
        held = {name: self.variables[name][0] for name in sorted(self.exported) if self.variables.get(name)}
        return {name: Value(word.text, f"{self.name}:{word.line}", word.unknown) for name, word in held.items()}

    def set(self, name: str, words: list[Word]) -> None:
        """Give a variable its words.

        :raises ConfigurationError: they are longer than any argument.
        """
        if sum(len(word.text) + 1 for word in words) > LONGEST:
            raise ConfigurationError(f"{self.name}:{words[0].line} makes ${name} longer than {LONGEST} characters; it cannot be followed")
        self.work(len(words))
        if self.exporting:
            self.exported.add(name)
        self.variables[name] = words
        if name in self.odd:
            line = words[0].line if words else 0
            self.forget([name], line, f"${name} is declared in a way that is not followed at {self.name}:{line}")

    def set_arguments(self, words: Sequence[Word]) -> None:
        """Give the script, or a function, its arguments."""
        for name in [name for name in self.variables if name.isdigit()]:
            del self.variables[name]
        self.variables |= {"@": list(words), "*": list(words), "#": [Word(str(len(words)), 0)]}
        self.variables |= {str(at): [word] for at, word in enumerate(words, 1)}

    def forget(self, names: Sequence[str], line: int, why: str) -> None:
        """Variables of which nothing is known any more."""
        for name in names:
            self.variables[name] = [Word(f"${{{name}}}", line, why)]

    def gap(self, line: int, what: str) -> None:
        """Note what could not be followed."""
        self.gaps.append(f"{self.name}:{line} {what}")


def text_of(node: Any) -> str:
    """The text of a node of the grammar."""
    return str(node.text.decode("utf-8", "surrogateescape"))


def joined(words: Sequence[Word]) -> str:
    """Words with blanks between them."""
    return " ".join(word.text for word in words)
