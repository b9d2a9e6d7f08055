"""A record as the reader gives it, as a table of the model; every number of a step must be of one job, and of that step."""

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from align_hooks import Run, open_run
from align_hooks.record.read.problems import Problem
from faults.jobs import NAME, POINT, batch, job_and_step, put_out, sums, tensor, value
from faults.model import STATES, Table


class Torn(AssertionError):
    """A step was given as whole whose parts are not of one job and step, or are not all there."""


def look(path: Path) -> tuple[Table, list[Problem]]:
    """The record at a path, and its problems; raises RecordError where there is none, and Torn."""
    run = open_run(path)
    ranks = range(run.world_size)
    table = Table()
    for row in run.scalars():
        job, step = job_and_step(row["loss"])
        if step != row["step"]:
            raise Torn(f"step {row['step']} has the row of step {step}")
        table.steps[step] = job
        _whole(run, job, step, ranks)
    states = zip(STATES, (run.weight_steps(), run.steps_of("sketches/weights"), run.optimizer_state_steps()), strict=True)
    for kind, number in ((kind, number) for kind, numbers in states for number in numbers):
        table.states[kind, number] = _state(run, kind, number, ranks)
    return table, run.problems


def _whole(run: Run, job: int, step: int, ranks: range) -> None:
    def asked(quantity: str) -> bool:
        return "all" in run.asked(quantity).text

    if asked("gradients"):
        _same(run.gradients(step)[NAME], _joined("gradients", job, step, ranks), f"gradients of step {step}")
    if asked("batches"):
        _same(run.batch(step).tokens, batch(job, step)["tokens"], f"tokens of step {step}")
    if asked("local_norms"):
        _same(run.local_norms(step)[NAME] ** 2, len(ranks) * value("norm", job, step), f"norms of step {step}")
    if asked("sketches"):
        _same(run.sketches("gradients", step)[NAME], len(ranks) * np.array(sums("gradients", job, step)), f"sketches of step {step}")
    if asked("activations"):
        recorded, right = run.activations(step), put_out(job, step)
        _same(recorded.tensor(POINT), np.concatenate([right] * len(ranks), axis=2), f"activations of step {step}")
        _same(recorded[POINT].norm ** 2, len(ranks) * float(np.square(right).sum()), f"sums of the activations of step {step}")


def _state(run: Run, kind: str, number: int, ranks: range) -> int:
    """The job that a state is of, all parts of it."""
    if kind == "sketches":
        recorded = run.sketches("weights", number)[NAME]
        job, _ = job_and_step(float(recorded[0]) / len(ranks))
        _same(recorded, len(ranks) * np.array(sums("weights", job, number)), f"sketch of weights {number}")
        return job
    tensors = {"weights": run.weights(number)} if kind == "weights" else run.optimizer_state(number).moments
    job, _ = job_and_step(float(next(iter(tensors.values()))[NAME][0, 0]))
    for name, own in tensors.items():
        _same(own[NAME], _joined(name, job, number, ranks), f"{name} {number}")
    return job


def _joined(kind: str, job: int, step: int, ranks: range) -> np.ndarray:
    return np.concatenate([tensor(kind, job, step, rank) for rank in ranks])


def _same(recorded: ArrayLike, right: ArrayLike, name: str) -> None:
    if not np.allclose(recorded, right, rtol=1e-6):
        raise Torn(f"{name} is {np.ravel(recorded)[:3]}, and the step is one of {np.ravel(right)[:3]}")
