"""The application that every command adds itself to, and the exit code of whatever happens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from align_hooks import __version__
from align_hooks.errors import AlignHooksError, RecordError, in_a_line, printable
from align_hooks.process.script import report
from align_hooks.process.streams import forgive

F = TypeVar("F", bound=Callable[..., Any])
EXAMPLE = "Example: "


class Command(TyperCommand):
    """A command whose example is shown in one line, however long, so that it can be copied."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.help = (self.help or "").replace(f"\n\n{EXAMPLE}", f"\n\n\b\n{EXAMPLE}")  # click's mark of what is not wrapped

    def invoke(self, ctx: Any) -> Any:
        """Run the command, whose arguments :func:`parameters` has meanwhile."""
        token = _context.set(ctx)
        try:
            return super().invoke(ctx)
        finally:
            _context.reset(token)


_context: ContextVar[Any] = ContextVar("context", default=None)


def parameters() -> Iterator[tuple[str, object, bool]]:
    """What the command that runs was given: each argument by the name in its help, each option by its first spelling, the value, and
    whether that is surely a path."""
    # not click's own context: some releases of typer bring a click of theirs
    context = _context.get()
    for parameter in context.command.params if context is not None else ():  # a caller from Python has named no parameter
        spelled = parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar or parameter.name.upper()
        value = context.params.get(parameter.name)
        # of click's own types the value is a text yet
        yield spelled, value, isinstance(value, Path) or getattr(getattr(parameter, "type", None), "name", "") == "path"


class Application(typer.Typer):
    """Typer's, with commands that show their examples whole. The first sentence of a command's help is what the list of commands shows."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[F], F]:
        """Add a command."""
        return super().command(name, cls=Command, **options)


app = Application(add_completion=True, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
INTERNAL, INTERRUPTED = 5, 130


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    """Says where and why a Megatron-LM run and a MindFormers run of the same model part ways."""
    if version:
        print(__version__)
        raise typer.Exit


def main() -> None:
    """Run a command and turn whatever happens into one line and an exit code of the contract."""
    forgive()
    try:
        if "" in sys.argv[1:]:  # as a shell makes it of "$RUN" that is not set; a path would be the working directory
            raise AlignHooksError("an argument is empty; give what it should hold, or leave it out")
        app()
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
