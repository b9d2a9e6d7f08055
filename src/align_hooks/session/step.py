"""The one recorder of a step: a side produces what it has, this decides what is wanted, survives failures, writes and accounts.

What both sides do alike when a step ends is here, so that they cannot come to differ in it. A side is asked only for what is wanted, for it
may cost a transfer from the device. Gradients are written where they are seen, for they are gone when the step ends.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from align_hooks.names.blocks import Array
from align_hooks.quantities.activations import ACTIVATIONS
from align_hooks.quantities.batches import BATCHES
from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.quantities.kind import Quantity
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.quantities.optimizer_state import OPTIMIZER_STATE
from align_hooks.quantities.routing import ROUTING
from align_hooks.quantities.sketches import GRADIENT_SKETCHES, WEIGHT_SKETCHES
from align_hooks.quantities.weights import WEIGHTS
from align_hooks.record.write.step_files import StepActivations, StepBatch, StepChoices
from align_hooks.record.write.writer import Writer
from align_hooks.session.session import Session

Produced = TypeVar("Produced")


@dataclass(frozen=True, slots=True)
class LocalNorms:
    """Squared sums of a step's gradients: canonical name to fp64, of what this rank holds, copies too.

    ``point`` is where they were taken, ``reduced`` or ``local``. ``printed`` are the names that this rank prints, those in ``parts`` as
    parts of a tensor. ``taken`` are the global norms that the framework took; see :meth:`Writer.local_norms`.
    """

    point: str
    squared: Mapping[str, float]
    printed: Container[str]
    parts: Container[str] = ()
    taken: Sequence[Mapping[str, object]] = ()


class Step(Protocol):
    """What a side can say of the step that just ended."""

    def batch(self) -> StepBatch:
        """What the model consumed."""

    def routing(self) -> StepChoices | None:
        """The experts of each token; None where this side has none to give."""

    def activations(self) -> StepActivations | None:
        """What its points put out; None where this side has none to give."""

    def local_norms(self) -> LocalNorms | None:
        """The norms of its gradients; None where this side has none to give."""

    def gradient_sketches(self) -> Mapping[str, Sequence[float]] | None:
        """Signed sums of its gradients by canonical name, without copies; None where this side has none to give."""

    def row(self) -> Mapping[str, object]:
        """Its scalars."""


Moments: TypeAlias = tuple[Mapping[str, Mapping[str, Array]], int, Mapping[str, str]]
"""Adam's moments by moment and canonical name in fp32, the optimizer's count of updates, and the types in which it keeps the moments."""


def record_step(session: Session, produced: Step, moments: Callable[[], Moments]) -> None:
    """Write everything of the step that just ended; its row of scalars comes last and makes it whole."""
    step, recording = session.step, session.recording
    assert step is not None
    session.made += 1
    _record(session, BATCHES, step, "the batch", produced.batch, lambda writer, batch: writer.batch(step, batch))
    _record(session, ROUTING, step, "the experts of each token", produced.routing, lambda writer, choices: writer.routing(step, choices))
    _record(session, ACTIVATIONS, step, "activations", produced.activations, lambda writer, made: writer.activations(step, made))
    with recording.isolate_failures("local norms"):
        _record_local_norms(session, step, produced)
    sketches = produced.gradient_sketches
    _record(session, GRADIENT_SKETCHES, step, "sketches", sketches, lambda writer, sums: writer.sketches(GRADIENTS, step, sums))
    record_state(session, step + 1, moments)
    if recording.is_on:
        with recording.isolate_failures("scalars"):
            recording.write("scalars", step, produced.row(), Writer.scalars)


def record_gradients(session: Session, pieces: Callable[[], Mapping[str, Array]]) -> None:
    """Write the gradients of the step under way, canonical name to fp32, where they were asked for. A failure is the caller's to survive,
    who read them from the device."""
    step, recording = session.step, session.recording
    if step is not None and recording.writer is not None and recording.wants(GRADIENTS, step):
        recording.write("gradients", step, pieces(), lambda writer, tensors: writer.gradients(step, tensors))
        recording.capture(GRADIENTS)


def record_state(session: Session, updates: int, moments: Callable[[], Moments]) -> None:
    """Write weights and optimizer state after ``updates`` updates, where they were asked for."""
    parameters = session.parameters
    if parameters is None:
        return
    sketches = parameters.weight_sketches

    def weights() -> tuple[Mapping[str, Array], Mapping[str, object], Mapping[str, float]]:
        return parameters.weights(), session.model_config, parameters.weight_squares()

    _record(
        session, WEIGHT_SKETCHES, updates, "sketches of the weights", sketches, lambda writer, sums: writer.sketches(WEIGHTS, updates, sums)
    )
    _record(session, WEIGHTS, updates, "weights", weights, lambda writer, state: writer.weights(updates, *state))
    _record(
        session, OPTIMIZER_STATE, updates, "the optimizer's state", moments, lambda writer, state: writer.optimizer_state(updates, *state)
    )


def _record(
    session: Session,
    kind: Quantity,
    step: int,
    what: str,
    produce: Callable[[], Produced | None],
    write: Callable[[Writer, Produced], None],
) -> None:
    """Produce one kind where it is wanted, and write it unless there is none, so that training survives a failure."""
    recording = session.recording
    if recording.writer is None or not recording.wants(kind, step):
        return
    with recording.isolate_failures(what):
        produced = produce()
        if produced is not None:
            recording.write(what, recording.step, produced, write)
            recording.capture(kind)


def _record_local_norms(session: Session, step: int, produced: Step) -> None:
    """Print the norms of a step, and write them where there is a record."""
    recording = session.recording
    norms = produced.local_norms() if recording.wants(LOCAL_NORMS, step) else None
    if norms is None:
        return
    printed = {name: value for name, value in norms.squared.items() if name in norms.printed}
    if printed:
        session.print_norms(step, printed, norms.parts)
    recording.write("local norms", step, norms, lambda writer, norms: writer.local_norms(step, norms.point, norms.squared, norms.taken))
    recording.capture(LOCAL_NORMS)
