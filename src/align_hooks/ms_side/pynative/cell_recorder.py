"""The values of a PyNative model's points in one step, seen by hooks of its Cells.

Hooks are put in place on selected steps only. A hook of the tensor itself, which MindSpore calls with the sum over all users, reads the
gradient. A layer that is passed once more inside the backward pass (recompute) shows its values in the first pass and its gradients in the
second.
"""

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mindspore
import numpy as np
from mindspore import mint
from mindspore.common._grad_function import _Function
from mindspore.graph.api import _no_grad

from align_hooks.errors import RefusedRun
from align_hooks.hooking.hook import Function
from align_hooks.ms_side.arrays import to_numpy
from align_hooks.ms_side.objects import Tensor
from align_hooks.ms_side.point_builder import of_points
from align_hooks.ms_side.points import Numbers, TokenLayout, with_count
from align_hooks.ms_side.pynative.cell_points import CellPoint, of_model, output
from align_hooks.ms_side.pynative.terms import in_recompute
from align_hooks.ms_side.session import MsSession
from align_hooks.names import points
from align_hooks.names.blocks import Array
from align_hooks.names.points import GRADIENT
from align_hooks.quantities.activations import ACTIVATIONS, FILTER, WHOLE
from align_hooks.record.write.step_files import StepActivations
from align_hooks.settings import PREFIX


@dataclass
class CellRecorder:
    """The hooks and the recorded values of one step."""

    session: MsSession
    cell_points: Sequence[CellPoint]
    on_host: bool = field(default_factory=lambda: mindspore.get_context("device_target") == "CPU")
    """Whether the host makes the numbers, in fp64 of whole tensors: MindSpore's products of a CPU are slow in fp64."""
    sums: dict[tuple[str, int], Array | Tensor] = field(default_factory=dict)
    """Numbers by name and micro-batch: the host's ``[NUMBERS]``, or the device's without the count of elements."""
    tensors: dict[tuple[str, int], Array] = field(default_factory=dict)
    """Host arrays ``[rows, positions, columns]`` by name and micro-batch."""
    calls: Counter[tuple[int, bool]] = field(default_factory=Counter)
    """Calls of a point's Cell, in the forward pass and recomputed."""
    undo: list[Callable[[], object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = self.session.settings
        self.wanted = points.chosen(settings.patterns(FILTER).parts or ("*",))
        self.whole = points.chosen(settings.patterns(WHOLE).parts)

    def begin(self) -> None:
        """Put the hooks of this step in place, behind the Cells' own."""
        for index, point in enumerate(self.cell_points):
            if point.function:
                own = getattr(point.cell, point.function)
                setattr(point.cell, point.function, functools.partial(self.called, index, point, own))
                self.undo.append(functools.partial(setattr, point.cell, point.function, own))
            else:
                register = point.cell.register_forward_pre_hook if point.before else point.cell.register_forward_hook
                self.undo.append(register(functools.partial(self.passed, index, point), with_kwargs=True).remove)

    def end(self) -> None:
        """Remove the hooks."""
        for undo in self.undo:
            undo()
        self.undo.clear()

    def called(self, index: int, point: CellPoint, own: Function, *args: Any, **kwargs: Any) -> Any:
        """Call a function that a Cell holds, and see its result."""
        return self.seen(index, point, args, kwargs, own(*args, **kwargs))

    def passed(self, index: int, point: CellPoint, cell: Any, args: Any, kwargs: Any, result: Any = None) -> Any:
        """See a Cell's output, or before its call, where there is no ``result`` to replace, its argument."""
        return self.seen(index, point, args, kwargs, result)

    def seen(self, index: int, point: CellPoint, args: Any, kwargs: Any, result: Any) -> Any:
        """Record the value in a call of a Cell, and return the result, with a teacher's value in its place."""
        with self.session.recording.isolate_failures("activations"):
            return self._seen(index, point, args, kwargs, result)
        return result

    def _seen(self, index: int, point: CellPoint, args: Any, kwargs: Any, result: Any) -> Any:
        current, again = self.session.current, in_recompute()
        call, self.calls[index, again] = self.calls[index, again], self.calls[index, again] + 1
        micro_batch, which = divmod(call, point.every)
        tensor = point.pick(args, kwargs, result)
        if which != point.which or current is None or self.session.step is None or tensor is None:
            return result
        rows = current.micro_batches[micro_batch].rows
        columns = point.columns(args, kwargs, result) if point.columns is not None else None
        if self.records and not again:
            self.record(point, tensor, micro_batch, rows, columns, "")
        passed = self.forced(point, tensor, micro_batch, rows)
        if self.records and getattr(passed, "_requires_grad", False):
            passed.register_hook(functools.partial(self.gradient, point, micro_batch, rows, columns))
        if passed is tensor:
            return result
        return (passed, *result[1:]) if isinstance(result, tuple) else passed

    @property
    def records(self) -> bool:
        """Whether this step is recorded; a step may be forced only."""
        return self.session.recording.wants(ACTIVATIONS)

    def gradient(self, point: CellPoint, micro_batch: int, rows: int, columns: Tensor, gradient: Tensor) -> None:
        """Record the gradient of a value."""
        with self.session.recording.isolate_failures("activations"):
            self.record(point, gradient, micro_batch, rows, columns, GRADIENT)

    def record(self, point: CellPoint, tensor: Tensor, micro_batch: int, rows: int, columns: Tensor, suffix: str) -> None:
        """Keep the numbers of the values in a tensor, and whole values that are wanted."""
        with _no_grad():
            value = tensor.detach()
            if columns is not None:
                value = mint.zeros((value.shape[0], point.views[0].width), dtype=value.dtype).scatter(1, columns, value)
            layout = self.layout(point, value, micro_batch, rows)
            if layout.length != self.length:
                return  # an attention without flash attention may repeat keys and values: no view of these is the point's
            wanted = [view for view in point.views if self.wanted(view.name)]
            kept = to_numpy(value) if wanted and (self.on_host or any(self.whole(view.name) for view in wanted)) else None
            for view in wanted:
                name = view.name + suffix, micro_batch
                if kept is not None and self.whole(view.name):
                    self.tensors[name] = np.ascontiguousarray(layout.in_order(kept, view), np.float32)
                self.sums[name] = Numbers(layout, [view])(value)[0] if kept is None else layout.numbers(layout.in_order(kept, view))

    @property
    def length(self) -> int:
        """Positions of a sequence."""
        assert self.session.current is not None
        return int(self.session.current.micro_batches[0].arrays["tokens"].shape[1])

    def layout(self, point: CellPoint, value: Tensor, micro_batch: int, rows: int) -> TokenLayout:
        """Return the order of the tokens in a tensor."""
        first = self.session.rows_of(micro_batch).start
        width = int(np.prod(point.views[0].shape))
        return TokenLayout(rows, value.size // width // rows, first, by_position=point.by_position)

    def forced(self, point: CellPoint, tensor: Tensor, micro_batch: int, rows: int) -> Tensor:
        """Return the teacher's value in the place of a tensor, or the tensor."""
        teacher, step = self.session.teacher, self.session.step
        if teacher is None or step is None or step not in teacher.steps or not is_forced(point, teacher.forces):
            return tensor
        with self.session.recording.must_succeed():
            name, layout = point.views[0].name, self.layout(point, tensor, micro_batch, rows)
            cut = slice(layout.first, layout.first + rows)
            value, gradient = (teacher.tensor(step, name + suffix)[cut] for suffix in ("", GRADIENT))
            given = [mindspore.Tensor(layout.out_of_order(part).reshape(tensor.shape), dtype=tensor.dtype) for part in (value, gradient)]
            teacher.made.add(step)
            return ForcedTensor.apply(tensor, *given)

    def made(self) -> StepActivations:
        """Return the values of the step, on the host: one transfer of the device's numbers."""
        current = self.session.current
        assert current is not None
        rows = [micro_batch.rows for micro_batch in current.micro_batches]
        by_name: dict[str, list[Array]] = {}
        on_device = [tensor for tensor in self.sums.values() if not isinstance(tensor, np.ndarray)]
        fetched = iter(mint.stack(on_device).asnumpy() if on_device else ())
        length = self.length
        widths = {view.name: view.width for point in self.cell_points for view in point.views}
        for (name, micro_batch), kept in sorted(self.sums.items(), key=lambda item: item[0]):
            count = rows[micro_batch] * length * widths[name.removesuffix(GRADIENT)]
            row = kept if isinstance(kept, np.ndarray) else with_count(next(fetched).astype(np.float64), count)[0]
            by_name.setdefault(name, []).append(row)
        whole = {name: np.stack(parts) for name, parts in by_name.items() if len(parts) == len(rows)}
        tensors: dict[str, list[Array]] = {}
        for (name, _), array in sorted(self.tensors.items(), key=lambda item: item[0]):
            tensors.setdefault(name, []).append(array)
        recorded = {name.removesuffix(GRADIENT) for name in whole}
        facts = of_points({name: width for name, width in widths.items() if name in recorded}, rows, length, 1.0, by_tokens=False)
        unseen = sorted(name for name in widths if self.wanted(name) and name not in recorded)
        joined = {name: np.concatenate(parts) for name, parts in tensors.items() if name in whole}
        return StepActivations(whole, joined, facts | {"unseen": unseen})


class ForcedTensor(_Function):  # type: ignore[misc]
    """A teacher's value in the place of a tensor's, and its gradient in the place of the gradient that arrives."""

    @staticmethod
    def forward(context: Any, tensor: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        """Return the teacher's value."""
        context.save_for_backward(gradient)
        return value

    @staticmethod
    def backward(context: Any, arrived: Tensor) -> tuple[Tensor, None, None]:
        """Return the teacher's gradient."""
        (gradient,) = context.saved_tensors
        return gradient, None, None


def is_forced(point: CellPoint, forces: Callable[[str], bool]) -> bool:
    """Return whether a teacher replaces a point's tensor: one value, an output, with no users elsewhere."""
    return len(point.views) == 1 and not point.before and point.reaches_all and point.pick is output and forces(point.views[0].name)


def find_points(session: MsSession) -> list[CellPoint]:
    """Return the points that are recorded or forced; refuse a pattern that matches none."""
    settings, model, parameters = session.settings, session.model, session.parameters
    assert model is not None and parameters is not None
    if not settings.steps(ACTIVATIONS) and session.teacher is None:
        return []
    if model.built is None:
        raise RefusedRun(f"{PREFIX}ACTIVATIONS: points are known of PyNative's GPTModel, this is {type(model.network).__name__}; unset it")
    try:
        every = list(of_model(model, parameters.dims.vocabulary))
    except AttributeError as error:
        raise RefusedRun(f"{PREFIX}ACTIVATIONS: a part of this model is not built as those that were tried ({error}); unset it") from None
    session.refuse_unmatched({view.name for point in every for view in point.views})
    wanted = points.chosen(settings.patterns(FILTER).parts or ("*",)) if settings.steps(ACTIVATIONS) else lambda name: False
    forces = session.teacher.forces if session.teacher is not None else lambda name: False
    return [point for point in every if any(wanted(view.name) or forces(view.name) for view in point.views)]


def check_points(session: MsSession, planned: range) -> None:
    """Say how much disk whole activations take, and refuse a teacher that does not fit the ``planned`` steps."""
    training, length = session.config.training, int(session.config.model.seq_length)
    rows, kept = int(training.global_batch_size), points.chosen(session.settings.patterns(WHOLE).parts)
    width = sum(view.width for point in session.cell_points for view in point.views if kept(view.name))
    session.announce_activations(2 * 4 * width * rows * length, planned)
    if session.teacher is not None:
        forced = [point.views[0] for point in session.cell_points if is_forced(point, session.teacher.forces)]
        session.check_teacher({view.name: view.width for view in forced}, planned, rows, length)
