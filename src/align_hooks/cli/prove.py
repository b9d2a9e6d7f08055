"""``align-hooks prove``."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated

from align_hooks._version import __version__
from align_hooks.cli.application import Option, Positional, app
from align_hooks.cli.files import output, page_of, place_of, report_files, written
from align_hooks.errors import AlignHooksError, shown
from align_hooks.job.child import SIGNALLED
from align_hooks.process.descendants import adopt
from align_hooks.process.ranks import Launch
from align_hooks.process.streams import say
from align_hooks.proof.kept import keep
from align_hooks.proof.trials import prove as proof_of
from align_hooks.proof.ways import Way
from align_hooks.report.console import print_document
from align_hooks.report.json import as_json
from align_hooks.report.proof import JSON, document


@app.command
def prove(
    command: Annotated[list[str], Positional(help="the job, as it is started without align-hooks")],
    steps: Annotated[int, Option(help="steps of each training", min=3)] = 6,
    minutes: Annotated[float, Option(help="the longest that a training may take", min=0.1)] = 30,
    folder: Annotated[Path | None, Option(help="where records lie meanwhile; of several nodes a directory that each sees")] = None,
    html: Annotated[Path | None, Option(help="write it to this file, as a page that needs no network")] = None,
    json: Annotated[Path | None, Option(help="write everything of it to this file, as JSON")] = None,
) -> None:
    """Show on a job that recording changes nothing, and its cost.

    Trains the job six times for a few steps, without hooks and with more and more recorded. Losses, the graph, random states and final
    parameters must be equal to the bit. No checkpoint is written, nothing is evaluated, and records are deleted again.

    Exit codes: 0 proven, 1 disproven, 2 usage, 3 no proof, 4 undecided: the job does not repeat itself.

    Example: align-hooks prove -- torchrun --nproc-per-node 8 pretrain_gpt.py --bf16
    """
    html, json = report_files(html, json)
    if not command:
        raise AlignHooksError("prove needs a command behind --, such as align-hooks prove -- bash pretrain.sh")
    if "LOCAL_RANK" in os.environ or Launch.from_environment(os.environ).rank:
        raise AlignHooksError("prove starts the job itself and is no rank of one: write align-hooks prove -- before torchrun or srun")
    place = None if folder is None else place_of(folder).absolute()
    if place is not None and not place.is_dir():
        raise AlignHooksError(f"--folder {shown(str(folder))} is no directory; make it first")
    adopt()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ended_by)
    with tempfile.TemporaryDirectory(prefix="align_hooks.", dir=place, ignore_cleanup_errors=True) as where:

        def started(way: Way, number: int, known: int) -> None:
            say(f"align_hooks: training {number} of {known}: {way.title}", sys.stderr)

        proof = proof_of(command, Path(where), steps=steps, seconds=60 * minutes, say=started)
        keep(proof)
        print_document(document(proof, __version__), output())
    written("--json", json, lambda: as_json(proof, JSON, align_hooks=__version__))
    written("--html", html, lambda: page_of(document(proof, __version__)))
    raise SystemExit(proof.verdict.exit_code)


def ended_by(number: int, frame: object) -> None:
    """End the command by an exception where a signal arrives, so that what it made is removed."""
    raise SystemExit(SIGNALLED + number)
