"""Recording of a step that ended, the same for both sides: each quantity is produced by a side where it is wanted, and written.

A quantity may cost a transfer from the device, so a side is asked only for what is wanted. Gradients are gone when the step ends:
the sides write them earlier, with :func:`record_gradients`.
"""

import functools
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar

from msgspec import Struct, field

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


class LocalNorms(Struct, frozen=True):
    """Norms of a step's gradients on this rank."""

    point: str
    """``reduced`` or ``local``: after or before the data-parallel reduction."""
    squared: Mapping[str, float]
    """Canonical name to squared sum, fp64, copies included."""
    printed: Container[str]
    """The names that this rank prints."""
    parts: Container[str] = ()
    """The names of tensors of which this rank holds a part."""
    framework: Sequence[Mapping[str, object]] = ()
    """Global norms that the framework took; see :meth:`Writer.local_norms`."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Canonical name to squared sum of the weights that the step computed with, fp64; empty where no other rank has copies."""


class Step(Protocol):
    """A side's view of the step that just ended. None is a quantity that the side does not have."""

    def batch(self) -> StepBatch:
        """Return what the model consumed."""

    def routing(self) -> StepChoices | None:
        """Return the experts of each token."""

    def activations(self) -> StepActivations | None:
        """Return the outputs of the probe points."""

    def local_norms(self) -> LocalNorms | None:
        """Return the norms of the gradients."""

    def gradient_sketches(self) -> Callable[[], Mapping[str, Sequence[float]]] | None:
        """Return what makes signed sums of the gradients by canonical name, without copies, on the writing thread."""

    def row(self) -> tuple[Callable[[], Mapping[str, object]], int]:
        """Return what makes the row of scalars on the writing thread, while later steps train, and the bytes that it holds until then."""


Moments: TypeAlias = tuple[Mapping[str, Mapping[str, Array]], int, Mapping[str, str]]
"""The optimizer's moments by moment and canonical name in fp32, its count of updates, and the types in which it keeps the moments."""


def record_step(session: Session, produced: Step, moments: Callable[[], Moments]) -> None:
    """Write the step that just ended; the row of scalars comes last, and makes the step complete."""
    step, recording = session.step, session.recording
    assert step is not None
    session.made += 1
    if recording.selects(step):
        _record_selected(session, step, produced, moments)
    if recording.is_on:
        with recording.isolate_failures("scalars"):
            row, size = produced.row()
            recording.write("scalars", step, row, lambda writer, make: writer.scalars(make()), size)


def _record_selected(session: Session, step: int, produced: Step, moments: Callable[[], Moments]) -> None:
    """Write what was asked for at the step that just ended, and of the state behind it."""
    _record(session, BATCHES, step, "the batch", produced.batch, lambda writer, batch: writer.batch(step, batch))
    _record(session, ROUTING, step, "the experts of each token", produced.routing, lambda writer, choices: writer.routing(step, choices))
    _record(session, ACTIVATIONS, step, "activations", produced.activations, lambda writer, made: writer.activations(step, made))
    norms = functools.partial(_printed_norms, session, step, produced)

    def write(writer: Writer, made: LocalNorms) -> None:
        writer.local_norms(step, made.point, made.squared, made.framework, made.weights)

    _record(session, LOCAL_NORMS, step, "local norms", norms, write)
    sketches = produced.gradient_sketches
    _record(session, GRADIENT_SKETCHES, step, "sketches", sketches, lambda writer, sums: writer.sketches(GRADIENTS, step, sums()))
    record_state(session, step + 1, moments)


def record_gradients(session: Session, pieces: Callable[[], Mapping[str, Array]]) -> None:
    """Write the current step's gradients, canonical name to fp32 array, where they were asked for."""
    if (step := session.step) is not None:
        _record(session, GRADIENTS, step, "gradients", pieces, lambda writer, tensors: writer.gradients(step, tensors))


def record_state(session: Session, updates: int, moments: Callable[[], Moments]) -> None:
    """Write weights and optimizer state after ``updates`` updates, where they were asked for."""
    parameters = session.parameters
    if parameters is None:
        return
    sketches = parameters.weight_sketches

    def weights() -> tuple[Mapping[str, Array], Mapping[str, object], Mapping[str, float]]:
        return parameters.weights(), session.model_config, parameters.weight_squares()

    _record(session, WEIGHT_SKETCHES, updates, "sketches of the weights", sketches, lambda to, sums: to.sketches(WEIGHTS, updates, sums()))
    _record(session, WEIGHTS, updates, "weights", weights, lambda to, state: to.weights(updates, *state))
    _record(session, OPTIMIZER_STATE, updates, "the optimizer's state", moments, lambda to, state: to.optimizer_state(updates, *state))


def _record(
    session: Session,
    kind: Quantity,
    step: int,
    what: str,
    produce: Callable[[], Produced | None],
    write: Callable[[Writer, Produced], None],
) -> None:
    """Produce and write one quantity where it is wanted, with failures isolated."""
    recording = session.recording
    if not recording.wants(kind, step):
        return
    with recording.isolate_failures(what):
        produced = produce()
        if produced is not None:
            recording.write(what, recording.step, produced, write)
            if kind.switch is not None:
                recording.captured.add(kind.switch)


def _printed_norms(session: Session, step: int, produced: Step) -> LocalNorms | None:
    """Return the norms of a step, once they are printed."""
    norms = produced.local_norms()
    if norms is not None and (printed := {name: value for name, value in norms.squared.items() if name in norms.printed}):
        session.print_norms(step, printed, norms.parts)
    return norms
