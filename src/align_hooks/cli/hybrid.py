"""``align-hooks hybrid``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from align_hooks.cli.application import Option, Positional, app
from align_hooks.cli.files import output, place_of
from align_hooks.report.comparison import document
from align_hooks.report.console import print_blocks, print_document
from align_hooks.report.ladder import finished_rung
from align_hooks.scenarios.climb import climb
from align_hooks.scenarios.hybrid import migration


@app.command
def hybrid(
    command: Annotated[list[str], Positional(help="the training of the GPTModel, which names pretrain_gpt.py")],
    folder: Annotated[str, Option(help="where both are recorded")] = "runs/hybrid",
    to: Annotated[str | None, Option(help="the HybridModel's command, where it does not follow from the other")] = None,
    steps: Annotated[int | None, Option(help="train so many steps of each (--exit-interval)")] = None,
) -> None:
    """Train a GPTModel's layers also as a HybridModel, and compare.

    The HybridModel is trained by pretrain_hybrid.py, on the batches and initial weights of the first. What is recorded already is not
    trained again.

    Exit codes: 0 aligned, 1 diverged, 2 usage, 3 a training failed or they are not comparable, 4 inconclusive.

    Example: align-hooks hybrid --steps 10 -- torchrun pretrain_gpt.py --num-layers 32
    """
    plan, console = migration(command, to, place_of(folder), steps), output()
    code = 0
    for step in climb(plan, train=True, logs=Path(plan.folder) / "logs"):
        print_blocks([finished_rung(step)], console)
        if step.comparison is not None:
            print_document(document(step.comparison), console)
        code = step.result.exit_code
        if code:
            break
    raise SystemExit(code)
