"""The values of a model's points in one step, seen by hooks of its modules.

Forward hooks of modules, put in place on selected steps only, see inputs and outputs. A hook of the tensor itself, which autograd calls
with the sum over all users of the tensor, reads the gradient and adds no node to the graph. The module backward hooks of other tools put a
node before every module: gradients are then added in another order, and the run changes in its last bits.

Where activations are recomputed, a module is called twice: in the forward pass, without gradients, and inside the backward pass, where only
gradients are read.
"""

import functools
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from align_hooks.errors import RefusedRun
from align_hooks.hooking.hook import Result
from align_hooks.names import points
from align_hooks.names.blocks import Array
from align_hooks.names.points import GRADIENT
from align_hooks.process.streams import say
from align_hooks.quantities.activations import ACTIVATIONS, FILTER, WHOLE
from align_hooks.record.format.sequence import Slices, part_of, positions_of
from align_hooks.record.read.activations import column_signs, places, row_signs
from align_hooks.record.write.step_files import StepActivations
from align_hooks.session import Session
from align_hooks.settings import PREFIX, Settings
from align_hooks.torch_side.activation_numbers import ActivationNumbers
from align_hooks.torch_side.arrays import bypass_device_rewriting, fetched, in_fp64, on_device, to_numpy
from align_hooks.torch_side.objects import Module, Tensor
from align_hooks.torch_side.packing import rows_of
from align_hooks.torch_side.place import first_row, rank_slices
from align_hooks.torch_side.probes import ProbePoint, ProbeSlice, argument, is_forced
from align_hooks.torch_side.run_arguments import get_args


def wanted(settings: Settings) -> Callable[[str], bool]:
    """Return a predicate of names: whether a point is to be recorded."""
    return points.chosen(settings.patterns(FILTER).parts or ("*",))


@dataclass
class ProbeRecorder:
    """The probes and the recorded values of one step."""

    session: Session
    place: Mapping[str, int]
    probe_points: Sequence[ProbePoint]
    numbers: ActivationNumbers = field(default_factory=ActivationNumbers)
    tensors: dict[tuple[str, int], Array] = field(default_factory=dict)
    """Host arrays ``[rows, positions, columns]`` by name and micro-batch."""
    extents: dict[str, dict[str, object]] = field(default_factory=dict)
    """This rank's part of each value."""
    calls: Counter[tuple[int, bool]] = field(default_factory=Counter)
    """Calls of a probe point's module, in the forward pass and recomputed."""
    reached: set[int] = field(default_factory=set)
    """Probe points whose module was called, with or without a value."""
    handles: list[Tensor] = field(default_factory=list)
    scale: Tensor | float = 1.0
    """The factor by which gradients in the backward pass are too large."""
    packed: bool = False
    """Whether the forward pass under way is of packed samples, whose rows lie behind each other in one row."""

    def __post_init__(self) -> None:
        settings = self.session.settings
        self.wanted, self.whole = wanted(settings), points.chosen(settings.patterns(WHOLE).parts)

    def begin(self) -> None:
        """Put the hooks of this step in place, behind the modules' own hooks."""
        for index, probe in enumerate(self.probe_points):
            register = probe.module.register_forward_pre_hook if probe.before else probe.module.register_forward_hook
            self.handles.append(register(functools.partial(self._see, index, probe), with_kwargs=True))

    def end(self) -> None:
        """Remove the hooks."""
        while self.handles:  # a removal that fails is not tried again, and prevents no other
            self.handles.pop().remove()

    def forget(self) -> None:
        """Drop the values of a pass that is repeated."""
        self.numbers = ActivationNumbers()
        self.tensors.clear()
        self.calls.clear()

    def _see(
        self, index: int, probe: ProbePoint, module: Module, args: Sequence[Tensor], kwargs: Mapping[str, Tensor], *results: Tensor
    ) -> Result:
        """Record the tensor of a called module; return what the module gets or returns in the place of its own, or None."""
        with self.session.recording.isolate_failures("activations"):
            self.reached.add(index)
            tensor = probe.pick(args, kwargs, *results or (None,))
            passed = self.pass_on(index, probe, tensor, args, kwargs)
            if passed is tensor:
                return None
            if results:
                return (passed, *results[0][1:]) if isinstance(results[0], tuple) else passed
            given = {name: passed if value is tensor else value for name, value in kwargs.items()}
            return tuple(passed if value is tensor else value for value in args), given
        return None

    def pass_on(
        self, index: int, probe: ProbePoint, tensor: Tensor, args: Sequence[Tensor] = (), kwargs: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """Record the numbers of a tensor, and later of its gradient; return the tensor, or a teacher's value in its place."""
        recording = self.session.recording
        if tensor is None or self.session.step is None:
            return tensor
        again = torch._C._current_graph_task_id() != -1
        micro_batch, of_micro_batch = divmod(self.calls[index, again], probe.every)
        self.calls[index, again] += 1
        if of_micro_batch != probe.which:
            return tensor
        sizes: list[int] | None = None
        with recording.isolate_failures("activations"):
            if points.is_of_experts(probe.values[0].name):
                sizes = segments(probe, args, kwargs or {})
            if not again and self.records:
                self._record(probe, tensor.detach(), micro_batch, sizes, "")
        passed = tensor
        if self.session.teacher is not None:
            with recording.must_succeed():
                passed = self._forced(probe, tensor, micro_batch)
        with recording.isolate_failures("activations"):
            # a hook on what has no graph yet, an output that is computed again later, keeps all later hooks of it from being called
            if passed.requires_grad and torch.is_grad_enabled() and self.records:
                passed.register_hook(functools.partial(self._gradient, probe, micro_batch, sizes))
        return passed

    @property
    def records(self) -> bool:
        """Whether this step is recorded; a step may be forced only."""
        return self.session.recording.wants(ACTIVATIONS)

    def _forced(self, probe: ProbePoint, tensor: Tensor, micro_batch: int) -> Tensor:
        """Return the teacher's value in the place of a tensor, or the tensor."""
        teacher, step = self.session.teacher, self.session.step
        if teacher is None or step not in teacher.steps or not is_forced(probe, teacher.forces):
            return tensor
        value, gradient = (self._part(probe.values[0], tensor, micro_batch, suffix) for suffix in ("", GRADIENT))
        teacher.made.add(step)
        return ForcedActivation.apply(tensor, value, gradient * self.scale)

    def _part(self, value: ProbeSlice, tensor: Tensor, micro_batch: int, suffix: str) -> Tensor:
        """Return a teacher's value, or its gradient, in the layout of a tensor of this rank."""
        teacher, step = self.session.teacher, self.session.step
        assert teacher is not None and step is not None
        rows = get_args().micro_batch_size
        first = first_row(self.place, micro_batch, rows)
        part = teacher.tensor(step, value.name + suffix)[first : first + rows, :, slice(*value.columns)]
        slices = slices_of(self.place, self._in_rows(value, tensor).shape[0])
        part = part if slices is None else part[:, positions_of(slices)]
        ordered = part if self.packed else part.transpose(1, 0, 2)
        forced = torch.from_numpy(np.ascontiguousarray(ordered)).to(tensor.device, tensor.dtype)
        if self.packed:
            return forced.reshape(tensor.shape)
        return forced.reshape(tensor.shape) if value.name != points.TOKEN_LOSSES else forced[..., 0].transpose(0, 1)

    def _in_rows(self, value: ProbeSlice, part: Tensor) -> Tensor:
        """Return a value as ``[positions, rows, columns]``."""
        if not self.packed:
            return in_rows(part, value, get_args().micro_batch_size)
        tokens = part.numel() if value.name == points.TOKEN_LOSSES else part.shape[0]
        return part.reshape(rows_of(self.place, tokens), -1, part.numel() // tokens).transpose(0, 1)

    def _gradient(self, probe: ProbePoint, micro_batch: int, sizes: Sequence[int] | None, gradient: Tensor) -> None:
        with self.session.recording.isolate_failures("activations"):
            if self.records:
                self._record(probe, gradient.detach(), micro_batch, sizes, GRADIENT)

    def _record(self, probe: ProbePoint, tensor: Tensor, micro_batch: int, sizes: Sequence[int] | None, suffix: str) -> None:
        with bypass_device_rewriting(self.session):
            for value, part in zip(probe.values, probe.split(tensor) if sizes is None else tensor.split(list(sizes)), strict=True):
                if self.wanted(value.name):
                    name = value.name + suffix
                    self._measure((name, micro_batch), value, part, free=sizes is not None)
                    if self.whole(value.name) and sizes is None:
                        shaped = self._in_rows(value, part)
                        self.tensors[name, micro_batch] = to_numpy(shaped).transpose(1, 0, 2)

    def _measure(self, key: tuple[str, int], value: ProbeSlice, part: Tensor, *, free: bool) -> None:
        columns = columns_on(part.device, value.columns)
        if free:
            self.extents[value.name] = {"width": value.width, "columns": list(value.columns), "slices": None, "counted": True}
            self.numbers.add(key, part, None, columns)
            return
        args = get_args()
        shaped = self._in_rows(value, part)
        positions, of_rows = shaped.shape[:2]
        slices = slices_of(self.place, positions)
        counted = self.place["tp"] == 0 or value.columns != (0, value.width) or positions < rank_length(self.place)
        self.extents[value.name] = {"width": value.width, "columns": list(value.columns), "slices": slices, "counted": counted}
        first = first_row(self.place, key[1], of_rows)
        where = tuple(map(tuple, slices or [[0, positions]]))
        rows = rows_on(part.device, range(first, first + of_rows), where, args.seq_length)
        self.numbers.add(key, shaped.reshape(-1, shaped.shape[2]), rows, columns)

    def made(self) -> StepActivations:
        """Return the values of the step, on the host: one transfer. Raises RefusedRun where no point was seen."""
        args = get_args()
        if not self.numbers.seen and self.probe_points:
            raise RefusedRun(f"{PREFIX}ACTIVATIONS: no point was seen in this step; a captured graph passes modules without Python")
        keys, sums = self.numbers.taken() if self.numbers.seen else ([], torch.zeros(0))
        scale = {"scale": self.scale} if isinstance(self.scale, torch.Tensor) else {}
        on_host = fetched({"sums": sums, **scale})
        factor = 1.0 / float(on_host["scale"] if scale else self.scale)
        if not keys:  # a stage without any wanted point
            return StepActivations({}, {}, {"length": args.seq_length, "scale": factor})
        by_name: dict[str, dict[int, Array]] = {}
        of_key = dict(zip(keys, in_fp64(on_host["sums"]).reshape(len(keys), -1), strict=True))
        for name, micro_batch in self.numbers.seen:
            by_name.setdefault(name, {})[micro_batch] = of_key[name, micro_batch]
        count = max(micro_batch for _, micro_batch in keys) + 1
        whole = {name: np.stack([rows[index] for index in range(count)]) for name, rows in by_name.items() if len(rows) == count}
        kept: dict[str, list[Array]] = {}
        for (name, _), array in sorted(self.tensors.items(), key=lambda item: item[0]):
            kept.setdefault(name, []).append(array)
        tensors = {name: np.concatenate(parts) for name, parts in kept.items() if name in whole}
        extents: list[dict[str, object]] = []  # of many points few differ
        for extent in self.extents.values():
            if extent not in extents:
                extents.append(extent)
        return StepActivations(
            whole,
            tensors,
            {
                "rows": [args.micro_batch_size] * count,
                "length": args.seq_length,
                "extents": extents,
                "extent_of": {name: extents.index(extent) for name, extent in self.extents.items()},
                "scale": factor,
                "unseen": self.unseen(),
                "by_tokens": bool(args.calculate_per_token_loss),
            },
        )

    def unseen(self) -> list[str]:
        """Return the wanted points whose modules were not called; print a line at the first recorded step, on one of equal ranks."""
        passed = [probe for index, probe in enumerate(self.probe_points) if index not in self.reached]
        names = [value.name for probe in passed for value in probe.values if self.wanted(value.name)]
        session, first = self.session, ACTIVATIONS.switch not in self.session.recording.captured
        if names and first and not any(self.place.get(axis, 0) for axis in ("dp", "tp", "cp")):
            of = f"{len(names)} points of rank {session.launch.rank}, first {names[0]}"
            say(f"align_hooks: {PREFIX}ACTIVATIONS records nothing of {of}: the model passes their modules without a call", sys.stdout)
        return names


@functools.cache
def columns_on(device: torch.device, columns: tuple[int, int]) -> Tensor:
    """Return the signs of columns on a device, ``[PROJECTIONS, width]``, made once a run."""
    return on_device(torch.from_numpy(np.ascontiguousarray(column_signs(columns).T)), device)


@functools.cache
def rows_on(device: torch.device, rows: range, slices: tuple[tuple[int, ...], ...], length: int) -> Tensor:
    """Return the signs of the tokens of rows at positions on a device, ``[PROJECTIONS + 1, tokens]``, the last +1, made once a run:
    17 bytes a token of a step on this rank."""
    where = positions_of([list(bounds) for bounds in slices])
    signs = row_signs(places(rows, where, length))
    return on_device(torch.from_numpy(np.vstack([signs.T, np.ones_like(signs[:, 0])])), device)


def in_rows(part: Tensor, value: ProbeSlice, rows: int) -> Tensor:
    """Reshape a value of any axes as ``[positions, rows, columns]``."""
    if value.name == points.TOKEN_LOSSES:
        return part.transpose(0, 1).unsqueeze(2)
    if part.dim() == 2:  # tokens in the order position, row
        return part.reshape(-1, rows, part.shape[1])
    return part.reshape(part.shape[0], part.shape[1], -1)


def segments(probe: ProbePoint, args: Sequence[Tensor], kwargs: Mapping[str, Tensor]) -> list[int]:
    """Return the number of tokens of each expert of this rank."""
    counts = argument(1, "tokens_per_expert")(args, kwargs, None)
    return [int(count) for count in (counts.tolist() if isinstance(counts, torch.Tensor) else counts)]


def rank_length(place: Mapping[str, int]) -> int:
    """Return the number of this context-parallel rank's positions."""
    return int(get_args().seq_length) // place["cp_size"]


def slices_of(place: Mapping[str, int], positions: int) -> Slices | None:
    """Return the slices [start, stop) of the sequence in a value of so many ``positions``; None for all of the sequence."""
    args, length = get_args(), rank_length(place)
    here = rank_slices(place, args.seq_length)
    if positions == length:
        return None if place["cp_size"] == 1 else here
    if args.sequence_parallel and positions * place["tp_size"] == length:
        return part_of(here, place["tp"], place["tp_size"])
    raise RefusedRun(f"{PREFIX}ACTIVATIONS: a value has {positions} positions, where this rank has {length}; unset it for such batches")


class ForcedActivation(torch.autograd.Function):
    """A teacher's value in the place of a tensor's, and its gradient in the place of the gradient that arrives."""

    @staticmethod
    def forward(context: Tensor, tensor: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        """Return the teacher's value."""
        context.save_for_backward(gradient)
        return value.clone()

    @staticmethod
    def backward(context: Tensor, arrived: Tensor) -> tuple[Tensor, None, None]:
        """Return the teacher's gradient."""
        (gradient,) = context.saved_tensors
        return gradient.to(arrived.dtype), None, None
