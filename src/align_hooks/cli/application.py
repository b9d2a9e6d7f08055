"""The application that commands register with, and the exit code of each outcome.

The parser is argparse: other libraries of command lines bring packages that a framework pins.
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
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_args, get_type_hints

from msgspec import Struct

from align_hooks._version import __version__
from align_hooks.errors import AlignHooksError, RecordError, in_a_line, no_such, printable, shown
from align_hooks.messages.catalogue import language_of, speaking
from align_hooks.process.paths import ADDRESS
from align_hooks.process.streams import forgive

F = TypeVar("F", bound=Callable[..., Any])
WRITTEN = ("Example: ", "Commands:")
"""Beginnings of paragraphs of a help whose lines are not wrapped."""
INTERNAL, INTERRUPTED = 5, 130


class Positional(Struct, frozen=True):
    """An annotation of a command's parameter: a positional argument."""

    help: str
    metavar: str | None = None


class Option:
    """An annotation of a command's parameter: an option, called ``--`` and the parameter's name unless ``names`` are given."""

    def __init__(self, *names: str, help: str, min: float | None = None, max: float | None = None) -> None:
        self.names, self.help, self.min, self.max = names, help, min, max


class Parser(ArgumentParser):
    """A parser whose errors are one line, as all errors of align_hooks."""

    def error(self, message: str) -> NoReturn:
        """Raise a usage error."""
        raise AlignHooksError(f"{shown(message)}; {self.prog} --help says what it takes")


class Help(HelpFormatter):
    """A help of paragraphs in the width of the terminal; an example is one line, so that it can be copied."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = re.split(r"\n\s*\n", text)
        return "\n\n".join(each if each.startswith(WRITTEN) else textwrap.fill(each, width) for each in paragraphs)


class CommandParameter(Struct, frozen=True):
    """A parameter of a command's function: an argument or an option of the command."""

    name: str
    about: Positional | Option
    type: type
    """The type of the value, or of each element where the parameter is a list."""
    many: bool
    default: object
    """``inspect.Parameter.empty`` of a required parameter."""

    @property
    def opts(self) -> Sequence[str]:
        """The spellings of an option, with ``--no-`` of a switch that is on; of a positional argument, its name in the help."""
        if isinstance(self.about, Positional):
            return (self.about.metavar or self.name.upper(),)
        name = self.name.replace("_", "-")
        return self.about.names or (f"--{name}", *([f"--no-{name}"] if self.default is True else []))

    def add_to(self, parser: ArgumentParser) -> None:
        """Add the parameter to a parser of arguments."""
        needed = self.default is inspect.Parameter.empty
        value = None if needed else self.default
        shown = "" if value in (None, False) else f" [default: {value}]"
        about: dict[str, Any] = {"help": (self.about.help + shown).replace("%", "%%"), "default": value}
        if isinstance(self.about, Positional):
            about["nargs"] = REMAINDER if self.many else None if needed else "?"
            parser.add_argument(self.name, type=self.type, metavar=self.opts[0], **about)
        elif self.type is bool:
            for spelling in self.opts:
                own = {"action": "store_true"}
                if spelling.startswith("--no-"):
                    own = {"action": "store_false", "help": f"the opposite of {self.opts[0]}"}
                parser.add_argument(spelling, dest=self.name, **about | own)
        else:
            about |= {"action": "append" if self.many else "store", "required": needed}
            about |= {"type": partial(_parsed, self.about, self.type), "metavar": self.type.__name__.upper().replace("STR", "TEXT")}
            parser.add_argument(*self.opts, dest=self.name, **about)


def _parsed(option: Option, kind: type, text: str) -> object:
    """Return the value of a text; raises ArgumentTypeError for one of another type, or out of the option's range."""
    low, high = option.min, option.max
    try:
        value = kind(text)
    except ValueError:
        raise ArgumentTypeError(f"{shown(text)!r} is no {kind.__name__}") from None
    if (low is not None and value < low) or (high is not None and not value <= high):
        raise ArgumentTypeError(f"{text} is not {f'{low} or more' if high is None else f'from {low} to {high}'}")
    return value


class Command(Struct, frozen=True, dict=True):
    """A command: its name, and the function whose annotated parameters are its arguments and options."""

    name: str
    function: Callable[..., Any]

    @property
    def help(self) -> str:
        """The function's docstring."""
        return inspect.cleandoc(self.function.__doc__ or "")

    @cached_property
    def params(self) -> list[CommandParameter]:
        """The command's arguments and options."""
        hints = get_type_hints(self.function, include_extras=True)
        found = []
        for name, parameter in inspect.signature(self.function).parameters.items():
            kind, about = get_args(hints[name])
            if type(None) in get_args(kind):
                kind = next(member for member in get_args(kind) if member is not type(None))
            many = bool(get_args(kind))
            found.append(CommandParameter(name, about, get_args(kind)[0] if many else kind, many, parameter.default))
        return found

    def __call__(self, words: Sequence[str]) -> None:
        """Run the command with these words; a request for help ends the process, and so do wrong words, with code 2."""
        parser = Parser(f"{PROGRAM} {self.name}", description=self.help, formatter_class=Help, allow_abbrev=False)
        for parameter in self.params:
            parameter.add_to(parser)
        known = ["-h", "--help", *(spelling for each in self.params if isinstance(each.about, Option) for spelling in each.opts)]
        rest = next((each.name for each in self.params if each.many and isinstance(each.about, Positional)), None)
        for word in itertools.takewhile(lambda word: word != "--", words):
            option = word.partition("=")[0]
            if word.startswith("--") and " " not in word and option not in known:
                parser.error(no_such("option", option, known))
            if rest and not word.startswith("-"):
                break
        values = vars(parser.parse_args(words) if rest else parser.parse_intermixed_args(words))
        if rest and values[rest][:1] == ["--"]:
            del values[rest][0]
        token = _given.set([(parameter, values[parameter.name]) for parameter in self.params])
        try:
            self.function(**values)
        finally:
            _given.reset(token)


_given: ContextVar[list[tuple[CommandParameter, object]]] = ContextVar("given", default=[])  # noqa: B039  nobody appends to it
PROGRAM = "align-hooks"


def parameters() -> Iterator[tuple[str, object, bool]]:
    """Yield the parameters of the running command: the name or first spelling, the value, and whether it is certainly a path."""
    for parameter, value in _given.get():  # a caller from Python has named no parameter
        yield parameter.opts[0], value, parameter.type is Path


class Application:
    """Commands, each registered by the module of its name when that is imported."""

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
        # from the file, as importing all commands takes four times as long as listing them
        body = ast.parse(Path(__file__).with_name(f"{name.replace('-', '_')}.py").read_text(encoding="utf-8")).body
        functions = [node for node in body if isinstance(node, ast.FunctionDef) and node.decorator_list]
        return str(next(filter(None, map(ast.get_docstring, functions)))).partition(".")[0]

    def command(self, function: F) -> F:
        """Register a command by the name of its function."""
        name = function.__name__.replace("_", "-")
        self._added[name] = Command(name, function)
        return function

    def __call__(self, words: Sequence[str]) -> None:
        """Run the command that the words name, the first one of two paths, or print the list of commands."""
        if words and words[0] in self.names:
            self._of(words[0])(words[1:])
            return
        if words and (ADDRESS.match(words[0]) or Path(words[0]).exists()):
            self._of(self.names[0])(words)
            return
        width = max(map(len, self.names)) + 2
        commands = "\n".join(["Commands:", *(f"  {name:{width}}{self._summary(name)}." for name in self.names)])
        about = "Says where and why a Megatron-LM run and a MindFormers run of the same model part ways. The word compare may be left out."
        usage = f"{PROGRAM} [-h] [--version] COMMAND [ARGUMENT ...]"
        parser = Parser(PROGRAM, usage, about, commands, formatter_class=Help, allow_abbrev=False)
        parser.add_argument("--version", action="version", version=__version__)
        if not words or words[0].startswith("-"):
            parser.parse_args(words)
            parser.print_help()
            parser.exit(2 if not words else 0)
        parser.error(no_such("command", words[0], self.names))


app = Application(
    *("compare", "solve", "accept", "frozen", "watch", "ladder", "hybrid", "arbitrate", "certify", "check", "show", "distill", "convert"),
    *("dump-config", "run", "prove", "doctor", "demo", "env"),
)


def main() -> None:
    """Run a command; report an error in one line, and exit with a code of the contract."""
    forgive()
    try:
        if "" in sys.argv[1:]:  # "$RUN" in a shell where RUN is not set; an empty path would be the working directory
            raise AlignHooksError("an argument is empty; give what it should hold, or leave it out")
        with speaking(language_of(os.environ)):
            app(sys.argv[1:])
        sys.exit(0)
    except AlignHooksError as error:
        _fail(error)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:  # a file that may not be read, or that vanished: a fault of the machine, not of ours
        where = "" if error.filename is None else f"{error.filename} "
        _fail(RecordError(f"{where}cannot be read or written: {error.strerror or error}"))
    except Exception as error:
        print(f"align_hooks: internal error, please report it: {printable(in_a_line(error))}", file=sys.stderr)
        sys.exit(INTERNAL)


def _fail(error: AlignHooksError) -> NoReturn:
    from align_hooks.process.script import report  # here, as only a command that fails needs it

    report(error)
    sys.exit(error.exit_code)
