"""``align-hooks solve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from align_hooks._version import __version__
from align_hooks.cli.application import Option, Positional, app
from align_hooks.cli.files import output, page_of, place_of, report_files, written
from align_hooks.comparison.diagnosis.commands import training_command
from align_hooks.comparison.verdict import Trial
from align_hooks.errors import AlignHooksError
from align_hooks.messages import Side, message
from align_hooks.record.format import layout
from align_hooks.record.reader import open_run
from align_hooks.report import solve as report
from align_hooks.report.blocks import Code, Paragraph
from align_hooks.report.console import print_blocks, print_document
from align_hooks.report.document import Document
from align_hooks.report.json import SHAPES, encoded
from align_hooks.report.markdown import markdown
from align_hooks.scenarios.solve import Solving
from align_hooks.scenarios.trial import GB, Budget, SolveStep, Spent, Trainings


@app.command
def solve(
    reference: Annotated[str, Positional(help="the shell command that trains what is trusted, or a record of it")],
    candidate: Annotated[str, Positional(help="the command that trains what is questioned, or a record of it")],
    folder: Annotated[str, Option(help="where everything is recorded; the same folder goes on from where it was stopped")] = "runs/solve",
    trials: Annotated[int, Option(min=1, help="the most comparisons")] = 8,
    minutes: Annotated[float, Option(min=0, help="the most minutes of training")] = 240.0,
    gigabytes: Annotated[float | None, Option(min=0, help="the most that is recorded; by default what the disk has")] = None,
    elsewhere: Annotated[str | None, Option(help="the side that is trained on another machine, reference or candidate")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="print the first trial, and run nothing")] = False,
    html: Annotated[Path | None, Option(help="write the end to this file, as a page that needs no network")] = None,
    json: Annotated[Path | None, Option(help="write every step and the last comparison to this file, as JSON")] = None,
) -> None:
    """Go from two launch commands to the cause.

    Both are recorded and compared, and what a comparison advises is carried out until one cause is left or nothing more can be told.
    A command should train few steps (--exit-interval 20). Every line is printed before it is run, and stands in solve.md of the folder.

    Exit codes: 0 aligned, 1 a cause is found, 2 usage, 3 a training failed, 4 open, stopped, or waiting for the other side.

    Example: align-hooks solve "bash train_megatron.sh" "bash train_mindformers.sh"
    """
    html, json = report_files(html, json)
    sides = {side.value: side for side in Side}
    if elsewhere is not None and elsewhere not in sides:
        raise AlignHooksError(f"--elsewhere {elsewhere}: choose one of {', '.join(sides)}")
    budget = Budget(trials, minutes * 60, None if gigabytes is None else int(gigabytes * GB))
    commands = {Side.REFERENCE: command_of(reference), Side.CANDIDATE: command_of(candidate)}
    solving = Solving(Trainings(place_of(folder), commands, sides[elsewhere] if elsewhere is not None else None), budget)
    console, number = output(), 0
    if dry_run:
        trial = solving.first_trial()
        print_blocks([report.begun(1, trial.words, *trial.commands), Paragraph(message("solve.plan"))], console)
        raise SystemExit(0)
    solving.go_on()
    for event in solving.solve():
        match event:
            case Trial():
                number += 1
                print_blocks([report.begun(number, event.words)], console)
            case str():
                print_blocks([Code([event])], console)
            case SolveStep():
                print_blocks(report.showed(event), console)
            case Spent():
                print_blocks([report.spent(event)], console)
    conclusion = solving.conclusion
    assert conclusion is not None
    made = report.document(conclusion, solving.steps)
    print_document(Document(made.result, made.headline, [*report.ended(conclusion, solving.steps)]), console)
    written("solve.md", solving.trainings.folder / "solve.md", lambda: markdown(made))
    about = {"format": 1, "align_hooks": __version__, **{side.value: command for side, command in commands.items()}}
    code = conclusion.result.exit_code
    shapes = {**SHAPES, **report.JSON}
    written("--json", json, lambda: {**about, "exit_code": code, **encoded(conclusion, shapes), "steps": encoded(solving.steps, shapes)})
    written("--html", html, lambda: page_of(made))
    raise SystemExit(code)


def command_of(text: str) -> str:
    """Return the command that an argument is, or the one that started the run it names; raises AlignHooksError where none is on record."""
    if not layout.ranks(place := Path(text)):
        return text
    command = training_command(open_run(place))
    if command is None:
        raise AlignHooksError(f"{text} does not hold the command that trained it; give the command itself")
    return command
