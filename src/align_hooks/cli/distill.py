"""``align-hooks distill``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from align_hooks.cli.application import Option, Positional, app
from align_hooks.cli.files import output, progress, report_file, steps_of, written
from align_hooks.cli.runs import run_of
from align_hooks.errors import AlignHooksError
from align_hooks.process.archive import is_archive
from align_hooks.process.executors import ENGINES, executor_of
from align_hooks.process.work import WorkPool
from align_hooks.record.distill import distill as distill_run
from align_hooks.report.console import print_blocks
from align_hooks.report.distilled import contents

STEPS = "of which steps {} are kept: all, none, or 0,4-8/2"


@app.command
def distill(
    run: Annotated[str, Positional(metavar="RUN", help="the run that is trusted: a directory, or s3://bucket/run and the like")],
    file: Annotated[Path, Positional(metavar="FILE", help="where to write it, reference.zip say")],
    batches: Annotated[str, Option(help=STEPS.format("batches and token losses"))] = "all",
    local_norms: Annotated[str, Option(help=STEPS.format("local norms"))] = "all",
    sketches: Annotated[str, Option(help=STEPS.format("gradients and weights, as sketches,"))] = "all",
    routing: Annotated[str, Option(help=STEPS.format("the experts of each token"))] = "all",
    activations: Annotated[str, Option(help=STEPS.format("activations, as sums,"))] = "all",
    executor: Annotated[str, Option(help=f"who reads a large record: {ENGINES}")] = "none",
) -> None:
    """Write a run as one small file, without its tensors.

    Every command takes the file in the place of the run. Of every step the scalars are kept, and of those that are chosen what is no
    tensor; tensors are kept as sketches. What was left out is said. The file is a reference that a repository can hold (docs/ci.md).

    Exit codes: 0 written, 2 usage, 3 not whole or unreadable.

    Example: align-hooks distill runs/megatron reference.zip --sketches 0
    """
    chosen = {"batches": batches, "local_norms": local_norms, "sketches": sketches, "routing": routing, "activations": activations}
    choices = {name: steps_of(text, f"--{name.replace('_', '-')}") for name, text in chosen.items()}
    place = report_file("FILE", file)
    assert place is not None
    if place.exists() and not is_archive(place):
        raise AlignHooksError(f"FILE {place} holds something else than a distilled run; name another file")
    with progress() as say, executor_of(executor) as workers:
        distilled = distill_run(run_of(run), choices, WorkPool(say, workers))
        distilled.at(place)
    written("FILE", place, lambda: distilled.content)
    report = contents(str(place), len(distilled.content), distilled.kept, distilled.sizes, distilled.left_out)
    print_blocks(report, output())
