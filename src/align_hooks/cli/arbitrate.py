"""``align-hooks arbitrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from align_hooks._version import __version__
from align_hooks.cli.application import Option, Positional, app
from align_hooks.cli.files import output, place_of, progress, report_files, written
from align_hooks.messages import message
from align_hooks.oracle import refuse_lacking
from align_hooks.record.reader import open_run
from align_hooks.report.arbitration import JSON, document
from align_hooks.report.console import print_document
from align_hooks.report.json import as_json


@app.command
def arbitrate(
    reference: Annotated[str, Positional(help="a recorded run; its config.json says what the model is")],
    candidate: Annotated[str, Positional(help="the other recorded run")],
    step: Annotated[int | None, Option(min=0, help="a step whose weights and batch both recorded; the first one unless said")] = None,
    json: Annotated[Path | None, Option(help="write everything of it to this file, as JSON")] = None,
) -> None:
    """Say which of two runs is right, by Hugging Face's model.

    Both are compared with that model in fp64, on their own weights and batch.

    Exit codes: 0 both right, 1 a side is wrong, 2 usage, 3 not on record or unreadable, 4 undecided.

    Example: align-hooks arbitrate runs/megatron runs/mindformers
    """
    _, json = report_files(None, json)
    refuse_lacking()
    with progress() as say:
        say(message("arbitrate.importing"))
        from align_hooks.oracle.arbitrate import arbitrate as held

        arbitration = held(open_run(place_of(reference)), open_run(place_of(candidate)), step, progress=say)
    print_document(document(arbitration), output())
    about = {"align_hooks": __version__, "reference": str(reference), "candidate": str(candidate)}
    written("--json", json, lambda: as_json(arbitration, JSON, **about))
    raise SystemExit(arbitration.ruling.exit_code)
