"""``align-hooks ladder``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from align_hooks._version import __version__
from align_hooks.cli.application import Option, Positional, app
from align_hooks.cli.files import output, place_of, report_files, written
from align_hooks.messages import message, with_commands
from align_hooks.report.console import paragraph, print_blocks
from align_hooks.report.json import encoded
from align_hooks.report.ladder import JSON, ended, finished_rung
from align_hooks.scenarios.climb import climb, conclusion
from align_hooks.scenarios.plan import read_plan, script, write_config


@app.command
def ladder(
    plan: Annotated[str, Positional(help="a file of rungs (docs/ladder.md), or the one that compare --plan wrote")],
    scripts: Annotated[Path | None, Option(help="train nothing: write a launch script for each rung into this folder")] = None,
    judge: Annotated[bool, Option("--judge", help="train nothing: compare what is recorded")] = False,
    to_the_end: Annotated[bool, Option("--to-the-end", help="go on after a rung that differs")] = False,
    json: Annotated[Path | None, Option(help="write every rung's result to this file, as JSON")] = None,
) -> None:
    """Train a model layout by layout, from one card to many.

    Each layout is compared with the one before.

    Exit codes: 0 all aligned, 1 a rung diverged, 2 usage, 3 a rung failed or is not comparable, 4 inconclusive.

    Example: align-hooks ladder ladder.yaml
    """
    _, json = report_files(None, json)
    asked = read_plan(place_of(plan))
    console = output()
    if scripts is not None:
        for index, rung in enumerate(asked.rungs):
            write_config(asked, rung)
            file = scripts / f"{index + 1:02}_{rung.name}.sh"
            written("--scripts", file, partial(script, asked, index))
            file.chmod(0o755)
        paragraph(console, with_commands(message("ladder.judge_then"), f"align-hooks ladder {plan} --judge"), 0)
        raise SystemExit(0)
    steps = []
    for step in climb(asked, train=not judge, logs=Path(asked.folder) / "logs"):
        steps.append(step)
        print_blocks([finished_rung(step)], console)
        if not step.may_go_on and not (to_the_end or asked.to_the_end):
            break
    print_blocks(ended(asked, steps, conclusion(steps)), console)
    code = next((step.result.exit_code for step in steps if step.result.exit_code), 0)  # of the first that is not aligned
    about = {"format": 1, "align_hooks": __version__, "plan": plan, "exit_code": code}
    written("--json", json, lambda: {**about, "rungs": encoded(steps, JSON)})
    raise SystemExit(code)
