"""``align-hooks``: the commands that read records and say what they mean. Needs the ``cli`` extra, and no framework."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated

try:
    import typer
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars
    from rich.table import Column, Table
except ModuleNotFoundError as error:
    sys.exit(f"align_hooks: {error.name} is not installed; pip install 'align-hooks[cli]'")

from align_hooks import __version__
from align_hooks.checklist.batches import tokenizer as open_tokenizer
from align_hooks.checklist.sides import check as check_sides
from align_hooks.checklist.sides import check_runs
from align_hooks.compare.health import health
from align_hooks.compare.runs import compare as compare_runs
from align_hooks.configuration.values import FRAMEWORKS
from align_hooks.demo import run_demo
from align_hooks.doctor.examination import examine
from align_hooks.errors import AlignHooksError, RecordError, shown
from align_hooks.evidence.convert import convert as convert_log
from align_hooks.job.paths import place, well_formed
from align_hooks.job.run import main as run_command
from align_hooks.job.script import report
from align_hooks.job.streams import forgive
from align_hooks.messages import Argument, rendered
from align_hooks.messages.progress import Progress
from align_hooks.record import atomic
from align_hooks.record.holdings import holdings, not_whole
from align_hooks.record.problems import distinct
from align_hooks.record.reader import open_run
from align_hooks.record.verify import summary
from align_hooks.record.verify import verify as verify_all
from align_hooks.report.check_machine import check_as_json
from align_hooks.report.check_text import render_check
from align_hooks.report.doctor_text import lines
from align_hooks.report.machine import as_json
from align_hooks.report.run_text import render_run
from align_hooks.report.text import escape, plain, render
from align_hooks.settings import PREFIX, Settings

app = typer.Typer(add_completion=True, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
INTERNAL, INTERRUPTED = 5, 130
PIPED = 140
"""Columns of what is read later."""


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    """Says where and why a Megatron-LM run and a MindFormers run of the same model part ways."""
    if version:
        print(__version__)
        raise typer.Exit


@app.command()
def compare(
    reference: Annotated[Path, typer.Argument(help="the run that is trusted")],
    candidate: Annotated[Path, typer.Argument(help="the run that is questioned")],
    noise: Annotated[
        list[Path] | None, typer.Option(help="the reference run again, or with ALIGN_HOOKS_PERTURB: limits are measured on it")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="write the report to this file, as a page that needs no network")] = None,
    json: Annotated[Path | None, typer.Option(help="write everything of the comparison to this file, as JSON")] = None,
    allow_missing: Annotated[list[str] | None, typer.Option(help="canonical names, with * and ?, that one side may lack")] = None,
) -> None:
    """Compare two recorded runs stage by stage and give a verdict.

    Exit codes: 0 aligned, 1 diverged, 2 usage, 3 not comparable, incomplete or unreadable, 4 inconclusive.

    Example: align-hooks compare runs/megatron runs/mindformers
    """
    console = Output()
    html, json = _files(html, json)
    with progress(Console(stderr=True)) as say:
        repeats = [open_run(_place(path, "--noise ")) for path in noise or ()]
        runs = open_run(_place(reference)), open_run(_place(candidate))
        comparison = compare_runs(*runs, noise=repeats, allow_missing=allow_missing or (), progress=say)
    render(comparison, console)
    if json is not None:
        about = {"align_hooks": __version__, "reference": str(reference), "candidate": str(candidate)}
        written("--json", json, lambda: atomic.json_text(as_json(comparison, **about)))
    if html is not None:
        from align_hooks.report.page import page

        written("--html", html, lambda: page(comparison, __version__, check_runs(*runs)))
    raise typer.Exit(comparison.verdict.exit_code)


@app.command(context_settings={"ignore_unknown_options": True})
def check(
    reference: Annotated[
        str, typer.Argument(help="a recorded run, a launch script, a YAML file, a list of arguments, or a quoted command")
    ],
    candidate: Annotated[str, typer.Argument(help="the same of the side that is questioned")],
    tokenizer: Annotated[str | None, typer.Option(help="a tokenizer.json, or its directory: decode samples of recorded batches")] = None,
    mindformers: Annotated[str | None, typer.Option(help="the version that reads a YAML: the one installed, else 1.9")] = None,
    everything: Annotated[bool, typer.Option("--all", help="list every row, also those that are the same")] = False,
    html: Annotated[Path | None, typer.Option(help="write it to this file, as a page that needs no network")] = None,
    json: Annotated[Path | None, typer.Option(help="write everything of it to this file, as JSON")] = None,
) -> None:
    """Hold two runs, or what is to be run, against the guide's CheckList; nothing is trained and nothing that is read is executed.

    Exit codes: 0 clean, 1 something differs that changes the result, 2 usage, 3 unreadable, 4 something that matters is not told.

    Example: align-hooks check pretrain_llama.sh llama.yaml
    """
    console = Output()
    html, json = _files(html, json)
    decode = open_tokenizer(tokenizer) if tokenizer is not None else None
    with progress(Console(stderr=True)) as say:
        found = check_sides(reference, candidate, os.environ, decode=decode, mindformers=mindformers, progress=say)
    render_check(found, console, everything=everything)
    if json is not None:
        about = {"align_hooks": __version__, "reference": reference, "candidate": candidate}
        written("--json", json, lambda: atomic.json_text(check_as_json(found, **about)))
    if html is not None:
        from align_hooks.report.check_page import check_page

        written("--html", html, lambda: check_page(found, __version__))
    raise typer.Exit(found.exit_code)


@app.command()
def show(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="a recorded run")],
    html: Annotated[Path | None, typer.Option(help="write it to this file, as a page that needs no network")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="read all of it, and hold every byte against its digest")] = False,
) -> None:
    """Show what a run holds, whether its record is whole and agrees with itself, and its curves.

    Exit codes: 0 clean, 1 contradicts itself or holds numbers that are not finite, 2 usage, 3 incomplete or unreadable.

    Example: align-hooks show runs/megatron --html megatron.html
    """
    console = Output()
    html, _ = _files(html)
    with progress(Console(stderr=True)) as say:
        say(f"reading {path}")
        run = open_run(_place(path))
        checked = verify_all(run, say) if verify else None
        wrong = distinct([*not_whole(run), *(checked.wrong if checked else ())])
        found = health(run, holdings(run), wrong, None if checked is None else summary(checked))
    render_run(found, console)
    if html is not None:
        from align_hooks.report.run_page import run_page

        written("--html", html, lambda: run_page(found, __version__))
    raise typer.Exit(found.exit_code)


def _place(path: Path, option: str = "") -> Path:
    """The place that an argument names; raises RecordError where it names none."""
    try:
        return place(path)
    except ValueError as error:
        raise RecordError(f"{option}{shown(str(path))} {error}") from None


def _files(html: Path | None, json: Path | None = None) -> tuple[Path | None, Path | None]:
    """The files that are asked for, and what stands in their way before anything is read: the libraries of a page are needed for nothing
    else, two reports do not fit into one file, and a folder or a device is none."""
    if html is not None:
        try:
            import align_hooks.report.run_page  # noqa: F401
        except ModuleNotFoundError as error:
            raise AlignHooksError(f"--html needs {error.name}, which is not installed; pip install 'align-hooks[html]'") from None
    files = _file("--html", html), _file("--json", json)
    if files[0] is not None and files[0] == files[1]:
        raise AlignHooksError(f"--html and --json name the same file, {html}; give each its own")
    return files


def _file(option: str, path: Path | None) -> Path | None:
    if path is None:
        return None
    try:
        found = place(path)
        if found.exists() and not found.is_file():
            raise ValueError("is no file; name a file that you may write")
    except (OSError, ValueError) as error:
        raise AlignHooksError(f"{option} {shown(str(path))} {getattr(error, 'strerror', None) or error}") from None
    return found


def written(option: str, path: Path, text: Callable[[], str]) -> None:
    """Write what an option asked for to the file that it names."""
    try:
        atomic.write_text(path, well_formed(text()))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise AlignHooksError(f"{option} {path} cannot be written: {why}; name a file that you may write") from None
    print(f"written: {plain(str(path))}")


@app.command()
def convert(
    log: Annotated[Path, typer.Argument(help="what Megatron-LM or MindFormers printed, of every step of one run")],
    path: Annotated[Path, typer.Argument(metavar="RUN", help="the directory to write the record to")],
    names: Annotated[
        Path | None, typer.Option(help="a record of the same model by MindFormers, for the local norms that its local_norm: True logs")
    ] = None,
) -> None:
    """Make a record of a log: loss, gradient norm and learning rate of every step, each at its own step, and how fine they are.

    What compare, show and their pages say of a record they say of this one too, as far as a log goes.

    Exit codes: 0 written, 2 usage, 3 unreadable.

    Example: align-hooks convert megatron.log runs/megatron_log
    """
    log, path, names = _place(log), _place(path), _place(names, "--names ") if names is not None else None
    found, normed = convert_log(log, path, names)
    print(f"{len(found.rows)} steps of {FRAMEWORKS[found.side]}, {found.rows[0]['step']} to {found.rows[-1]['step']}")
    for note in (*found.notes, *([f"local norms of {len(normed)} of them"] if normed else [])):
        print(f"  {note}")
    print(f"written: {plain(str(path))}")


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run(command: Annotated[list[str], typer.Argument(help="what to run, with its arguments")]) -> None:
    """Attach to every training process that a command starts, as the ALIGN_HOOKS_* variables ask.

    Exit codes: the command's own; 3 when that is 0 and something asked for did not happen; 2 usage or settings.

    Example: ALIGN_HOOKS_RUN=runs/megatron align-hooks run -- bash pretrain.sh
    """
    raise typer.Exit(run_command(command))


@app.command()
def doctor(
    given: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="what is to be run: a training script, a launch script, a YAML file; or a recorded run"),
    ] = None,
    python: Annotated[str | None, typer.Option(help="the interpreter that will train, where it is not this one")] = None,
    everything: Annotated[bool, typer.Option("--all", help="list every hook and its seam")] = False,
    json: Annotated[Path | None, typer.Option(help="write everything of it to this file, as JSON")] = None,
) -> None:
    """Say whether a run would start here with the ALIGN_HOOKS_* variables as they are set: ready, or not ready because.

    Imports both frameworks, each in a process of its own, and trains nothing. Where this extra is not installed: python -m
    align_hooks.doctor.

    Exit codes: 0 ready, 1 not ready, 2 usage, 3 unreadable.

    Example: ALIGN_HOOKS_RUN=runs/megatron ALIGN_HOOKS_BATCHES=all align-hooks doctor pretrain_llama.sh
    """
    _, json = _files(None, json)
    with progress(Console(stderr=True)) as say:
        say("importing both frameworks")
        found = examine(given, os.environ, python=python)
    Output().print("\n".join(lines(found, everything=everything)), markup=False, highlight=False, soft_wrap=True)
    if json is not None:
        written("--json", json, lambda: atomic.json_text({"align_hooks": __version__, "exit_code": found.exit_code, **asdict(found)}))
    raise typer.Exit(found.exit_code)


class Output(Console):
    """A console that is as wide as our own lines where it is a file or a pipe, as no terminal says how wide that is. What a record says is
    not searched for words to colour, which takes minutes of a long one."""

    def __init__(self) -> None:
        terminal = sys.stdout.isatty() or "COLUMNS" in os.environ
        super().__init__(width=None if terminal else PIPED, highlight=False)


@app.command()
def demo(
    directory: Annotated[Path, typer.Argument(help="where to record; an earlier demo there is made again")] = Path("align_hooks_demo"),
) -> None:
    """Record a small Megatron-LM run, replay it in MindFormers, and compare them, on a CPU, in about a minute; both must be installed.

    Exit codes: those of compare, the worse of two; 2 usage, 3 a run failed.

    Example: align-hooks demo
    """
    raise typer.Exit(run_demo(_place(directory)))


@app.command()
def env(markdown: Annotated[bool, typer.Option(help="Print the table as Markdown, as the README holds it.")] = False) -> None:
    """List the ALIGN_HOOKS_* variables.

    Example: align-hooks env
    """
    rows = [(PREFIX + one.name.upper(), one.metadata["value"], one.metadata["effect"]) for one in fields(Settings)]
    if markdown:
        print("| variable | value | effect |\n| --- | --- | --- |")
        for name, value, effect in rows:
            print(f"| `{name}` | {value} | {effect} |")
        return
    table = Table(box=None, padding=(0, 1))
    for heading in ("variable", "value", "effect"):
        table.add_column(heading, no_wrap=heading == "variable")
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)


@contextmanager
def progress(console: Console) -> Iterator[Progress]:
    """A line that says what is being read and how far it is, on a terminal only; not on stdout, which is the report's."""
    if not console.is_terminal:  # rich itself, told to show nothing, ends with an empty line in many of its releases
        yield lambda message, done=0, total=0: None
        return
    what = TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1))
    columns = (SpinnerColumn(), what, BarColumn(20), TimeElapsedColumn())
    with Bars(*columns, console=console, transient=True, expand=True) as bars:
        task = bars.add_task("", total=None)

        def say(message: Argument, done: int = 0, total: int = 0) -> None:
            bars.update(task, description=escape(rendered(message)), completed=done, total=total or None)

        yield say


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
    except Exception as error:
        print(f"align_hooks: internal error, please report it: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(INTERNAL)
