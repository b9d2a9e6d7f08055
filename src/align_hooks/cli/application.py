"""The application that every command adds itself to, and the exit code of whatever happens.

It stands on argparse, as it is installed beside a framework: what makes more of a command line brings packages that a framework pins.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import os
import re
import sys
import textwrap
from argparse import REMAINDER, ArgumentParser, ArgumentTypeError, HelpFormatter
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_args, get_type_hints

from align_hooks._version import __version__
from align_hooks.errors import AlignHooksError, RecordError, in_a_line, no_such, printable, shown
from align_hooks.messages import language_of, speaking
from align_hooks.process.script import report
from align_hooks.process.streams import forgive

F = TypeVar("F", bound=Callable[..., Any])
WRITTEN = ("Example: ", "Commands:")
"""How paragraphs begin whose lines are shown as they are."""
INTERNAL, INTERRUPTED = 5, 130


@dataclass(frozen=True)
class Positional:
    """A word of a command line that is known by its place; it annotates a parameter of a command."""

    help: str
    metavar: str | None = None


class Option:
    """An option of a command line, by ``--`` and the parameter's name unless it has others; it annotates a parameter of a command."""

    def __init__(self, *names: str, help: str, min: float | None = None, max: float | None = None) -> None:
        self.names, self.help, self.min, self.max = names, help, min, max


class Parser(ArgumentParser):
    """What is wrong with a command line is one line, as everything that goes wrong."""

    def __init__(self, program: str, description: str, **about: Any) -> None:
        super().__init__(program, description=description, formatter_class=Help, allow_abbrev=False, **about)

    @property
    def options(self) -> Sequence[str]:
        """The spellings of all options."""
        return [spelling for action in self._actions for spelling in action.option_strings]

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong."""
        raise AlignHooksError(f"{shown(message)}; {self.prog} --help says what it takes")


class Help(HelpFormatter):
    """Paragraphs in the width of the terminal; an example is one line, however long, so that it can be copied."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(one if one.startswith(WRITTEN) else textwrap.fill(one, width) for one in re.split(r"\n\s*\n", text))


@dataclass(frozen=True)
class CommandParameter:
    """A parameter of a command's function, as the command line gives it."""

    name: str
    about: Positional | Option
    type: type
    """Of the value, or of each where it is a list."""
    many: bool
    default: object
    """``inspect.Parameter.empty`` where it must be given."""

    @property
    def opts(self) -> Sequence[str]:
        """The spellings of an option; the name in the help of a word that is known by its place."""
        if isinstance(self.about, Positional):
            return (self.about.metavar or self.name.upper(),)
        return self.about.names or (f"--{self.name.replace('_', '-')}",)

    def add_to(self, parser: ArgumentParser) -> None:
        """Add it to a parser of arguments."""
        needed, value = self.default is inspect.Parameter.empty, None if self.default is inspect.Parameter.empty else self.default
        shown = "" if value in (None, False) else f" [default: {value}]"
        about: dict[str, Any] = {"help": (self.about.help + shown).replace("%", "%%"), "default": value}
        if isinstance(self.about, Positional):
            about["nargs"] = REMAINDER if self.many else None if needed else "?"
            parser.add_argument(self.name, type=self.type, metavar=self.opts[0], **about)
        elif self.type is bool:
            parser.add_argument(*self.opts, dest=self.name, action="store_true", **about)
        else:
            about |= {"action": "append" if self.many else "store", "required": needed}
            parser.add_argument(
                *self.opts, dest=self.name, type=self._within, metavar=self.type.__name__.upper().replace("STR", "TEXT"), **about
            )

    def _within(self, text: str) -> object:
        """The value of a text; argparse says what is wrong with it."""
        assert isinstance(self.about, Option)
        try:
            value = self.type(text)
        except ValueError:
            raise ArgumentTypeError(f"{shown(text)!r} is no {self.type.__name__}") from None
        low, high = self.about.min, self.about.max
        if (low is not None and value < low) or (high is not None and not value <= high):
            raise ArgumentTypeError(f"{text} is not {f'{low} or more' if high is None else f'from {low} to {high}'}")
        return value


@dataclass(frozen=True)
class Command:
    """A command: its name, and the function whose annotated parameters are its arguments and options."""

    name: str
    function: Callable[..., Any]

    @property
    def help(self) -> str:
        """What the function says of itself."""
        return inspect.cleandoc(self.function.__doc__ or "")

    @cached_property
    def params(self) -> list[CommandParameter]:
        """What it takes."""
        hints = get_type_hints(self.function, include_extras=True)
        found = []
        for name, parameter in inspect.signature(self.function).parameters.items():
            kind, about = get_args(hints[name])
            kind = next((one for one in get_args(kind) if one is not type(None)), kind) if type(None) in get_args(kind) else kind
            many = bool(get_args(kind))
            found.append(CommandParameter(name, about, get_args(kind)[0] if many else kind, many, parameter.default))
        return found

    def __call__(self, words: Sequence[str]) -> None:
        """Run it with these words; ends the process for its help, and with code 2 where they are wrong."""
        parser = Parser(f"{PROGRAM} {self.name}", self.help)
        for parameter in self.params:
            parameter.add_to(parser)
        rest = next((one.name for one in self.params if one.many and isinstance(one.about, Positional)), None)
        for word in itertools.takewhile(lambda word: word != "--", words):
            option = word.partition("=")[0]
            if word.startswith("--") and " " not in word and option not in parser.options:
                parser.error(no_such("option", option, parser.options))
            if rest and not word.startswith("-"):
                break
        values = vars(parser.parse_args(words) if rest else parser.parse_intermixed_args(words))
        if rest and values[rest][:1] == ["--"]:
            del values[rest][0]
        token = _given.set([(one, values[one.name]) for one in self.params])
        try:
            self.function(**values)
        finally:
            _given.reset(token)


_given: ContextVar[list[tuple[CommandParameter, object]]] = ContextVar("given", default=[])  # noqa: B039  nobody appends to it
PROGRAM = "align-hooks"


def parameters() -> Iterator[tuple[str, object, bool]]:
    """What the command that runs was given: each argument by the name in its help, each option by its first spelling, the value, and
    whether that is surely a path."""
    for parameter, value in _given.get():  # a caller from Python has named no parameter
        yield parameter.opts[0], value, parameter.type is Path


class Application:
    """Commands, each of the module of its name, which adds it when it is imported. The first sentence of a command's help is what the list
    of them shows."""

    def __init__(self, *names: str) -> None:
        self.names, self._added = names, dict[str, Command]()

    @property
    def commands(self) -> dict[str, Command]:
        """All commands, in the order of the list."""
        return {name: self._of(name) for name in self.names}

    def _of(self, name: str) -> Command:
        import_module(f"{__package__}.{name.replace('-', '_')}")
        return self._added[name]

    def _summary(self, name: str) -> str:
        """The first sentence of a command's help, from its file, for importing all of them takes four times as long as the list."""
        body = ast.parse(Path(__file__).with_name(f"{name.replace('-', '_')}.py").read_text(encoding="utf-8")).body
        functions = [node for node in body if isinstance(node, ast.FunctionDef) and node.decorator_list]
        return str(next(filter(None, map(ast.get_docstring, functions)))).partition(".")[0]

    def command(self, name: str | None = None) -> Callable[[F], F]:
        """Add a command."""

        def add(function: F) -> F:
            command = Command(name or function.__name__.replace("_", "-"), function)
            self._added[command.name] = command
            return function

        return add

    def __call__(self, words: Sequence[str]) -> None:
        """Run the command that the words name."""
        if words and words[0] in self.names:
            self._of(words[0])(words[1:])
            return
        width = max(map(len, self.names)) + 2
        listed = [f"  {name:{width}}{self._summary(name)}." for name in self.names]
        about = "Says where and why a Megatron-LM run and a MindFormers run of the same model part ways."
        usage = f"{PROGRAM} [-h] [--version] COMMAND [ARGUMENT ...]"
        parser = Parser(PROGRAM, about, usage=usage, epilog="\n".join(["Commands:", *listed]))
        parser.add_argument("--version", action="version", version=__version__)
        if not words or words[0].startswith("-"):
            parser.parse_args(words)
            parser.print_help()
            parser.exit(2 if not words else 0)
        parser.error(no_such("command", words[0], self.names))


app = Application(
    *("compare", "accept", "frozen", "watch", "ladder", "arbitrate", "check", "show", "distill", "convert", "dump-config"),
    *("run", "doctor", "demo", "env"),
)


def main() -> None:
    """Run a command and turn whatever happens into one line and an exit code of the contract."""
    forgive()
    try:
        if "" in sys.argv[1:]:  # as a shell makes it of "$RUN" that is not set; a path would be the working directory
            raise AlignHooksError("an argument is empty; give what it should hold, or leave it out")
        with speaking(language_of(os.environ)):
            app(sys.argv[1:])
        sys.exit(0)
    except AlignHooksError as error:
        report(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:  # of a file that nobody may read, or that vanished: of the machine, and not of ours
        where = "" if error.filename is None else f"{error.filename} "
        report(RecordError(f"{where}cannot be read or written: {error.strerror or error}"))
        sys.exit(RecordError.exit_code)
    except Exception as error:
        print(f"align_hooks: internal error, please report it: {printable(in_a_line(error))}", file=sys.stderr)
        sys.exit(INTERNAL)
