"""Jobs that record, small enough to be killed ten thousand times: every number says which job and which step it is of."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from align_hooks.process.ranks import Launch
from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.quantities.weights import WEIGHTS
from align_hooks.record.format.ending import HowEnded
from align_hooks.record.format.shard import Shard
from align_hooks.record.read.activations import column_signs, measured, row_signs
from align_hooks.record.write.step_files import StepActivations, StepBatch
from align_hooks.record.write.writer import Writer
from align_hooks.settings import PREFIX, Settings
from faults.tracer import mark
from synthetic import row

ROWS, WIDTH, SEQUENCE = 2, 3, 4
NAME, POINT = "model.w.weight", "model.layers.0.mlp.down_proj"
BEGUN, DESCRIBING, DESCRIBED, COMMITTING, COMMITTED, FINISHED = range(6)
"""What a rank marks: two numbers of the writer's life, then that of a step."""
KINDS = 8


@dataclass(frozen=True)
class Job:
    """A start of a job: its number, how many ranks it has, what it does with an earlier run, and the steps that it makes.

    Of ``gradients``, ``states`` and the like all steps are recorded that are asked for. ``fails`` before its model is built. ``own``
    are the numbers of the earlier starts of the same job by its launcher, None where nothing starts it again."""

    number: int
    ranks: int
    exists: str
    steps: range
    asked: tuple[str, ...] = ("batches", "local_norms", "gradients", "weights", "sketches", "optimizer_state", "activations")
    fails: bool = False
    own: tuple[int, ...] | None = None


def record(job: Job, run: Path, rank: int) -> None:
    """Record a job's part of one rank, as a hook would."""
    environment = {f"{PREFIX}RUN": str(run), f"{PREFIX}RUN_EXISTS": job.exists} | {PREFIX + kind.upper(): "all" for kind in job.asked}
    environment |= {f"{PREFIX}ACTIVATIONS_TENSORS": "*"} if "activations" in job.asked else {}
    launchers = {} if job.own is None else {"agent": len(job.own)}
    writer = Writer(run, Launch(rank, job.ranks, "MASTER_PORT=1", "host", launchers), "torch", Settings.from_environment(environment))
    writer.begin()
    mark(BEGUN)  # all ranks have: they form their groups before they build the model
    if job.fails:
        writer.finish(HowEnded("failed"), hooks={})
        return
    mark(DESCRIBING)
    box = ((ROWS * rank, ROWS * (rank + 1)), (0, WIDTH))
    shard = Shard(NAME, (ROWS * job.ranks, WIDTH), NAME, "float32", box)
    place = {"dp": 0, "tp": rank, "tp_size": job.ranks}
    writer.describe(place=place, shards=[shard], facts={"model": {"job": job.number}}, steps=job.steps)
    mark(DESCRIBED)
    _state(writer, job, job.steps.start, rank)
    for step in job.steps:
        if "batches" in job.asked:
            writer.batch(step, StepBatch(batch(job.number, step), [2]))
        if "gradients" in job.asked:
            writer.gradients(step, {NAME: tensor("gradients", job.number, step, rank)})
        if "activations" in job.asked:
            writer.activations(step, StepActivations(*point(job, step, rank)))
        if "local_norms" in job.asked:
            writer.local_norms(step, "reduced", {NAME: value("norm", job.number, step)})
        if "sketches" in job.asked:
            writer.sketches(GRADIENTS, step, {NAME: sums("gradients", job.number, step)})
        _state(writer, job, step + 1, rank)
        mark(COMMITTING + KINDS * step)
        writer.scalars(row(step, loss=value("loss", job.number, step), grad_norm=None))
        mark(COMMITTED + KINDS * step)
    writer.finish(HowEnded("finished"), hooks={})
    mark(FINISHED)


def _state(writer: Writer, job: Job, number: int, rank: int) -> None:
    if "weights" in job.asked:
        writer.weights(number, {NAME: tensor("weights", job.number, number, rank)}, {"job": job.number})
    if "sketches" in job.asked:
        writer.sketches(WEIGHTS, number, {NAME: sums("weights", job.number, number)})
    if "optimizer_state" in job.asked:
        moments = {moment: {NAME: tensor(moment, job.number, number, rank)} for moment in ("exp_avg", "exp_avg_sq")}
        writer.optimizer_state(number, moments, number)


def point(job: Job, step: int, rank: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, object]]:
    """A rank's columns of what a point put out."""
    whole, columns = put_out(job.number, step), (WIDTH * rank, WIDTH * (rank + 1))
    numbers = measured(whole.reshape(-1, WIDTH), row_signs(np.arange(ROWS * SEQUENCE)), column_signs(columns))
    extents = [{"width": WIDTH * job.ranks, "columns": list(columns), "counted": True}]
    facts = {"rows": [ROWS], "length": SEQUENCE, "extents": extents, "extent_of": {POINT: 0}, "scale": 1.0, "by_tokens": False}
    return {POINT: numbers[None]}, {POINT: whole}, facts


def put_out(job: int, step: int) -> np.ndarray:
    """What a point put out, ``[rows, positions, width]``, the same on every rank."""
    return np.full((ROWS, SEQUENCE, WIDTH), value("activations", job, step), np.float32)


def value(kind: str, job: int, step: int) -> float:
    """A number that nothing else has: its whole part says of which job and step it is."""
    return 1000.0 * job + step + len(kind) / 100


def job_and_step(number: float) -> tuple[int, int]:
    """The job and the step that a number is of."""
    return divmod(int(number), 1000)


def tensor(kind: str, job: int, step: int, rank: int) -> np.ndarray:
    """A rank's part of a tensor."""
    return np.full((ROWS, WIDTH), value(kind, job, step) + rank / 10, np.float32)


def sums(kind: str, job: int, step: int) -> list[float]:
    """A sketch."""
    return [value(kind, job, step)] * 17


def batch(job: int, step: int) -> dict[str, np.ndarray]:
    """What all ranks are fed: under tensor parallelism it is the same."""
    ids = np.full((2, SEQUENCE), 1000 * job + step, np.int64)
    return {"tokens": ids, "labels": ids, "loss_mask": np.ones((2, SEQUENCE), np.float32)}
