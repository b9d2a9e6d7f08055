"""``align-hooks frozen``."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

from align_hooks._version import __version__
from align_hooks.checklist.batches import tokenizer as open_tokenizer
from align_hooks.cli.application import Option, Positional, app
from align_hooks.cli.files import output, place_of, progress, report_files, written
from align_hooks.cli.runs import run_of
from align_hooks.comparison.optimizer.zero_lr import of_standing_out, unmoved
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.pipeline import compare
from align_hooks.errors import AlignHooksError
from align_hooks.job.run import main as run_command
from align_hooks.messages import message, with_commands
from align_hooks.report.console import paragraph, print_document
from align_hooks.report.frozen import as_json, document
from align_hooks.scenarios.frozen import isolate, variables

ASKED = 1000
"""Steps that the guide asks for."""


@app.command
def frozen(
    run: Annotated[str, Option(help="where this run is recorded")],
    source: Annotated[str | None, Option("--from", help="the other side's run of this command: its batches and weights are fed")] = None,
    command: Annotated[list[str] | None, Positional(help="the training; without it a run that is recorded already is judged")] = None,
    tokenizer: Annotated[str | None, Option(help="a tokenizer.json, or its directory: show the text of a step that stands out")] = None,
    json: Annotated[Path | None, Option(help="write all of it to this file, as JSON")] = None,
) -> None:
    """Train at a learning rate of 0, and judge each step by itself.

    Batches are recorded ones; loss and global norm are judged step by step (the guide, "weights not updated").

    Exit codes: 0 aligned, 1 diverged or a step stands out, 2 usage, 3 not comparable or unreadable, 4 inconclusive; a training's own.

    Example: align-hooks frozen --run runs/ms_frozen --from runs/megatron_frozen -- bash train.sh
    """
    _, json = report_files(None, json)
    decode = open_tokenizer(tokenizer) if tokenizer is not None else None
    place, other = place_of(run), None if source is None else place_of(source, "--from ")
    if not command and other is None:
        lacking = "there is neither a command to run nor a run to judge by"
        raise AlignHooksError(f"{lacking}; give the training after --, or --from and no command")
    if command:
        os.environ.update(variables(place, other))
        code = run_command(["--", *command])
        if code or other is None:
            if not code:
                other_side = f"align-hooks frozen --run {shlex.quote(f'{place}_other')} --from {shlex.quote(str(place))}"
                paragraph(output(), with_commands(message("frozen.now_the_other"), message("frozen.other_side", frozen=other_side)), 0)
            raise SystemExit(code)
    assert other is not None
    with progress() as say:
        runs = run_of(str(other)), run_of(run)
        comparison = compare(*runs, progress=say)
    pair = Pair(*runs)
    if (moving := next((ours.step for ours, _ in pair.rows if ours.step + 1 not in pair.still), None)) is not None:
        raise AlignHooksError(f"the learning rate is not 0 at step {moving}; record both runs with align-hooks frozen")
    numbers = unmoved(pair.rows)
    steps = sorted({step for number in numbers for step, _ in number.out[:1]})
    with_batch = [step for step in steps if pair.reference.has("batches", step)]
    shared = of_standing_out(pair, numbers)
    isolated = [isolate(pair.reference, step, place.with_name(f"{place.name}_step_{step}"), decode) for step in with_batch]
    print_document(document(comparison, numbers, isolated, shared, ASKED, decode), output())
    code = comparison.verdict.exit_code or (1 if steps else 0)
    about = {"align_hooks": __version__, "reference": str(other), "candidate": run, "exit_code": code}
    written("--json", json, lambda: {"format": 1, **about, **as_json(comparison, numbers, isolated, shared)})
    raise SystemExit(code)
