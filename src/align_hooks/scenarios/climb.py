"""The rungs of a ladder in turn: each is trained where it has no record yet, and compared with another.

Existing records count: a ladder that was stopped goes on, and a ladder whose rungs ran on a cluster is only judged.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.verdict import ComparisonResult, Judgement, Verdict
from align_hooks.messages import Message, message, terms
from align_hooks.record.format import layout
from align_hooks.record.reader import Run, open_run
from align_hooks.scenarios.plan import ExperimentPlan, Rung, command, environment, write_config

OURS = "align_hooks:"


class Climbed(Judgement):
    """The result of a rung that was not compared."""

    FIRST = ("recorded", 0)
    FAILED = ("failed", 3)
    NOT_TRAINED = ("not trained", 3)


class Experiment(Struct, frozen=True):
    """A rung and its result."""

    rung: Rung
    trained: bool
    against: Path | None = None
    """The run that the rung is compared with; None where there is none."""
    comparison: ComparisonResult | None = None
    why: Message | None = None
    """Why there is no comparison; None where there is one, or nothing to compare with."""

    @property
    def result(self) -> Judgement:
        """The verdict, or the result without a comparison."""
        if self.comparison is not None:
            return self.comparison.verdict
        return Climbed.FIRST if self.why is None else Climbed.FAILED if self.trained else Climbed.NOT_TRAINED

    @property
    def may_go_on(self) -> bool:
        """Whether the ladder may go on to the next rung, which is compared with this one."""
        return self.result in (Verdict.ALIGNED, Verdict.INCONCLUSIVE, Climbed.FIRST)


def climb(plan: ExperimentPlan, *, train: bool, logs: Path) -> Iterator[Experiment]:
    """Yield every rung with its result; if ``train``, those without a record are trained first, and their output is kept in ``logs``."""
    noise = [open_run(path) for path in plan.noise]
    for index, rung in enumerate(plan.rungs):
        place, other = plan.run(rung.name), plan.against(index)
        run, trained, why = recorded_at(place), False, None
        if run is None and train:
            trained, why = True, train_rung(plan, index, logs)
            run = recorded_at(place) if why is None else None
            why = why or (message("ladder.records_nothing", run=str(place)) if run is None else None)
        elif run is None:
            why = message("ladder.not_trained", run=str(place))
        reference = None if run is None or other is None else recorded_at(other)
        if run is not None and other is not None and reference is None:
            why = message("ladder.nothing_to_hold_against", run=str(other))
        comparison = None if run is None or reference is None else compare(reference, run, noise=noise)
        yield Experiment(rung, trained, other, comparison, why)


def recorded_at(path: Path) -> Run | None:
    """Return a finished run; None where there is none, or it was stopped. Raises RecordError where it cannot be read."""
    if not layout.ranks(path):
        return None
    run = open_run(path)
    return run if run.steps and all(manifest.ended for manifest in run.manifests.values()) else None


def train_rung(plan: ExperimentPlan, index: int, logs: Path) -> Message | None:
    """Train a rung; return its failure, None where it succeeded."""
    rung = plan.rungs[index]
    write_config(plan, rung)
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{rung.name}.log"
    variables = {**os.environ, **environment(plan, index), "ALIGN_HOOKS_RUN_EXISTS": "replace"}  # a training that was stopped
    with log.open("wb") as output:
        done = subprocess.run(attached(plan, rung), env=variables, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode == 0:
        return None
    ours = printed_by_us(log.read_text(errors="replace").splitlines())
    why = message("ladder.said", words=ours[-1]) if ours else None
    return message("ladder.failed", code=done.returncode, log=str(log), why=why)


def printed_by_us(lines: Iterable[str]) -> list[str]:
    """Return the lines of a log that align_hooks printed, without their beginning."""
    return [line.removeprefix(OURS).strip() for line in lines if line.startswith(OURS)]


def attached(plan: ExperimentPlan, rung: Rung) -> list[str]:
    """Return the arguments of the process that runs a rung with the hooks attached."""
    return [sys.executable, "-m", "align_hooks", "run", "--", "bash", "-c", command(plan, rung)]


def conclusion(steps: list[Experiment]) -> Message | None:
    """Return the conclusion of a ladder whose rungs leave features out; None of any other."""
    left_out = [step for step in steps if step.rung.without and step.comparison is not None]
    if not left_out:
        return None
    gone = [step.rung.without for step in left_out if step.result is Verdict.ALIGNED]
    return message("ladder.gone_without", names=terms(dict.fromkeys(gone))) if gone else message("ladder.there_in_all")
