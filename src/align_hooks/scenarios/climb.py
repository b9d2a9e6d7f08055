"""The rungs of a ladder, one after the other: trained where they are not yet, and each held against another.

What was trained is read back: a ladder that was stopped goes on, and one whose rungs ran on a cluster is only judged.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.verdict import ComparisonResult, Judgement, Verdict
from align_hooks.messages import Message, message, terms
from align_hooks.record.format import layout
from align_hooks.record.reader import Run, open_run
from align_hooks.scenarios.plan import ExperimentPlan, Rung
from align_hooks.scenarios.rung import attached, environment, write_config

OURS = "align_hooks:"


class Climbed(Judgement):
    """How a rung ended that was not compared."""

    FIRST = ("recorded", 0)
    FAILED = ("failed", 3)
    NOT_TRAINED = ("not trained", 3)


@dataclass(frozen=True, slots=True)
class Experiment:
    """A rung and how it ended: ``comparison`` with ``against``, or ``why`` there is none. ``trained`` says whether it was trained now."""

    rung: Rung
    trained: bool
    against: Path | None = None
    comparison: ComparisonResult | None = None
    why: Message | None = None

    @property
    def result(self) -> Judgement:
        """The verdict, or how it ended without one."""
        if self.comparison is not None:
            return self.comparison.verdict
        return Climbed.FIRST if self.why is None else Climbed.FAILED if self.trained else Climbed.NOT_TRAINED

    @property
    def is_whole(self) -> bool:
        """Whether the ladder may go on from here: what follows is held against it."""
        return self.result in (Verdict.ALIGNED, Verdict.INCONCLUSIVE, Climbed.FIRST)


def climb(plan: ExperimentPlan, *, train: bool, logs: Path) -> Iterator[Experiment]:
    """Every rung in turn. ``train`` says whether rungs that are not recorded are trained; their output goes to files in ``logs``. Raises
    RecordError where a record cannot be read."""
    noise = [open_run(path) for path in plan.noise]
    for index, rung in enumerate(plan.rungs):
        place = plan.run(rung.name)
        run, trained, why = recorded_at(place), False, None
        if run is None and train:
            trained, why = True, trained_now(plan, index, logs)
            run = recorded_at(place) if why is None else None
            why = why or (message("ladder.records_nothing", run=str(place)) if run is None else None)
        elif run is None:
            why = message("ladder.not_trained", run=str(place))
        other = plan.against(index)
        if run is None or other is None:
            yield Experiment(rung, trained, other, None, why)
            continue
        reference = recorded_at(other)
        if reference is None:
            yield Experiment(rung, trained, other, None, message("ladder.nothing_to_hold_against", run=str(other)))
            continue
        yield Experiment(rung, trained, other, compare(reference, run, noise=noise))


def recorded_at(path: Path) -> Run | None:
    """A finished run; None where there is none, or it was stopped before its end. Raises RecordError for one that cannot be read."""
    if not layout.ranks(path):
        return None
    run = open_run(path)
    return run if run.steps and all(manifest.ended for manifest in run.manifests.values()) else None


def trained_now(plan: ExperimentPlan, index: int, logs: Path) -> Message | None:
    """Train a rung; returns what went wrong."""
    rung = plan.rungs[index]
    write_config(plan, rung)
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{rung.name}.log"
    replaced = {"ALIGN_HOOKS_RUN_EXISTS": "replace"}  # what was stopped before its end
    with log.open("wb") as output:
        done = subprocess.run(
            attached(plan, rung),
            env={**os.environ, **environment(plan, index), **replaced},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode == 0:
        return None
    return message("ladder.failed", code=done.returncode, log=str(log), why=last_word(log))


def last_word(log: Path) -> Message | None:
    """The last line of ours in a log, which says what a training ended with."""
    said = [line for line in log.read_text(errors="replace").splitlines() if line.startswith(OURS)]
    return message("ladder.said", words=said[-1].removeprefix(OURS).strip()) if said else None


def outcome(steps: list[Experiment]) -> int:
    """The exit code of a ladder: that of its first rung which is not aligned, 0 where all are."""
    codes = [step.result.exit_code for step in steps if step.result.exit_code]
    return codes[0] if codes else 0


def conclusion(steps: list[Experiment]) -> Message | None:
    """What a ladder that leaves one thing out after the other shows; None of any other, or before its end."""
    left_out = [step for step in steps if step.rung.without and step.comparison is not None]
    if not left_out:
        return None
    gone = [step.rung.without for step in left_out if step.result is Verdict.ALIGNED]
    return message("ladder.gone_without", names=terms(dict.fromkeys(gone))) if gone else message("ladder.there_in_all")
