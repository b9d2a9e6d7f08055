"""The points of a built Megatron model: which module shows each, and what a step makes of them.

A module's forward hook sees what it puts out or is given. Only the steps that were selected have such hooks. A gradient is read by a hook
of the tensor itself, which autograd calls with the sum over all users of the tensor; it adds no node to the graph. Module backward hooks,
which other tools use, do: they put a node of their own before every module, gradients are then added in another order, and the run changes
in its last bits.

Where activations are recomputed, a module is called twice. The first call is the forward pass, without gradients; the second is inside
the backward pass, and only its gradients are read.
"""

from __future__ import annotations

import functools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch
from megatron.core.num_microbatches_calculator import get_num_microbatches
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.transformer_layer import TransformerLayer
from megatron.training import get_args

from align_hooks.errors import RefusedRun
from align_hooks.hooking.hook import Result
from align_hooks.names import points
from align_hooks.names.blocks import Array
from align_hooks.names.fused import Fused
from align_hooks.names.own import own_name
from align_hooks.names.points import GRADIENT
from align_hooks.process.streams import say
from align_hooks.quantities.activations import ACTIVATIONS, FILTER, WHOLE
from align_hooks.record.activations import column_signs, places, row_signs
from align_hooks.record.pieces import StepActivations
from align_hooks.record.sequence import Slices, part_of, positions_of, zigzag
from align_hooks.record.sketch import PROJECTIONS
from align_hooks.settings import PREFIX, Settings
from align_hooks.torch_side.arrays import numbers_of, on_device, to_numpy
from align_hooks.torch_side.model import MEGATRON, Parameters
from align_hooks.torch_side.objects import Arguments, Module, Tensor
from align_hooks.torch_side.optimizer import chain
from align_hooks.torch_side.session import TorchSession

BLOCK = re.compile(r"(.*\blayers\.\d+)\.")
"""The beginning of the names of a block's parameters."""


@dataclass(frozen=True, slots=True)
class Value:
    """A point in a tensor that a seam shows: its columns [start, stop) of its whole ``width`` on this rank."""

    name: str
    columns: tuple[int, int]
    width: int


Pick: TypeAlias = Callable[[Sequence[Tensor], Mapping[str, Tensor], Tensor], Tensor]
"""Finds a tensor ``[positions, rows, columns]`` among a module's arguments and its output; None where it is not there."""
Split: TypeAlias = Callable[[Tensor], list[Tensor]]
"""Cuts the columns of a tensor into those of each value, in their order."""


@dataclass(frozen=True, slots=True)
class Seam:
    """Where the values of a tensor are seen: a ``module``, before or after its call, and how the tensor is found and cut."""

    module: Module
    values: tuple[Value, ...]
    pick: Pick
    split: Split
    before: bool = False
    gives: bool = True
    """Whether what is given in its place reaches all that use the tensor."""
    every: int = 1
    which: int = 0
    """How many times the module is called a micro-batch, and which of these calls counts."""


def uncut(tensor: Tensor) -> list[Tensor]:
    """A tensor of one value."""
    return [tensor]


def output(args: Sequence[Tensor], kwargs: Mapping[str, Tensor], result: Tensor) -> Tensor:
    """What a module puts out, the first of several."""
    return result[0] if isinstance(result, tuple | list) else result


def given(position: int, name: str) -> Pick:
    """An argument of a module, by its position or its name."""
    return lambda args, kwargs, result: kwargs[name] if name in kwargs else args[position] if len(args) > position else None


def heads(position: int, name: str) -> Pick:
    """An argument ``[positions, rows, heads, size]``, its heads side by side; None for packed samples, which have no rows."""
    pick = given(position, name)

    def side_by_side(args: Sequence[Tensor], kwargs: Mapping[str, Tensor], result: Tensor) -> Tensor:
        found = pick(args, kwargs, result)
        return found if found is not None and found.dim() == 4 else None

    return side_by_side


# ---- which module shows which point


def seams_of(session: TorchSession) -> list[Seam]:
    """The seams of this rank's model, those alone of which a point is wanted."""
    asked = wanted(session.settings) if session.settings.steps(ACTIVATIONS) else lambda name: False
    forced = session.teacher.forces if session.teacher is not None else lambda name: False
    return [seam for seam in every_seam(session) if any(asked(value.name) or forced(value.name) for value in seam.values)]


def every_seam(session: TorchSession) -> Iterator[Seam]:
    """The seams of this rank's model, whatever is asked for."""
    assert session.parameters is not None
    names = {id(parameter.model): parameter.whole for parameter in session.parameters}
    for chunk in session.chunks:
        yield from of_chunk(chunk, names, session.parameters, session.place)


def of_chunk(gpt: Module, names: Mapping[int, Fused], parameters: Parameters, place: Mapping[str, int]) -> Iterator[Seam]:
    """The seams of one chunk of a model."""
    config, args = gpt.config, get_args()
    hidden = config.hidden_size
    predicted = (getattr(args, "mtp_num_layers", None) or 0) if getattr(gpt, "mtp_process", False) else 0
    whole = functools.partial(Value, columns=(0, hidden), width=hidden)
    if gpt.pre_process:  # the last stage may have a copy, for what predicts further tokens alone
        yield Seam(gpt.embedding, (whole(points.EMBEDDING),), output, uncut, every=predicted + 1)
    for native, module in gpt.named_modules():
        weight = getattr(module, "_parameters", {}).get("weight")
        if weight is not None and id(weight) in names and not is_elsewhere(native, module):
            heads_of = {"q_layernorm": config.num_attention_heads, "k_layernorm": config.num_query_groups or config.num_attention_heads}
            count = heads_of.get(native.rpartition(".")[2], 0) if not getattr(config, "multi_latent_attention", False) else 0
            yield from of_weight(module, names[id(weight)]) if not count else of_heads(module, names[id(weight)], count, place)
        if isinstance(module, TransformerLayer):
            block = block_of(module, names) or own_name(MEGATRON, native, module.layer_number - 1, 0)
            yield from of_block(module, block, whole, config, place)
    if getattr(gpt, "output_layer", None) is not None and gpt.post_process:
        yield from of_logits(gpt.output_layer, parameters, place, predicted)
        yield Seam(gpt, (Value(points.TOKEN_LOSSES, (0, 1), 1),), token_losses, uncut)


def is_elsewhere(native: str, module: Module) -> bool:
    """Whether a module with a weight has a seam of another kind, or none: the model's ends, routers, and what is inside experts."""
    return native.startswith(("embedding.", "output_layer")) or isinstance(module, TopKRouter) or ".experts." in native


def of_weight(module: Module, fused: Fused) -> Iterator[Seam]:
    """The seam of a module that multiplies by a weight: its output has a column for each row of the weight, or is as wide as a norm's."""
    pieces = [(piece, rows) for piece, rows in zip(fused.parts, fused.blocks.rows, strict=True) if rows]
    values = tuple(Value(piece.name.removesuffix(".weight"), piece.box[0], piece.shape[0]) for piece, _ in pieces)

    def split(tensor: Tensor) -> list[Tensor]:
        parts = fused.blocks.filled.split(tensor.movedim(-1, 0))
        return [part.movedim(0, -1) for part in parts]

    yield Seam(module, values, output, split if len(values) > 1 else uncut)


def of_heads(module: Module, fused: Fused, count: int, place: Mapping[str, int]) -> Iterator[Seam]:
    """The seam of a norm that is taken of each of ``count`` heads."""
    (piece,) = fused.parts
    width = piece.shape[0] * count
    yield Seam(module, (share(piece.name.removesuffix(".weight"), width, place),), output, uncut)


def block_of(layer: Module, names: Mapping[int, Fused]) -> str | None:
    """The name of a block, from those of its parameters; None where no family has one."""
    for parameter in layer.parameters():
        fused = names.get(id(parameter))
        found = BLOCK.match(fused.parts[0].name) if fused is not None and not fused.parts[0].own else None
        if found is not None:
            return found[1]
    return None


def of_block(layer: Module, block: str, whole: Callable[[str], Value], config: Arguments, place: Mapping[str, int]) -> Iterator[Seam]:
    """The seams of a block beside those of its weights."""
    yield Seam(layer, (whole(f"{block}.input"),), given(0, "hidden_states"), uncut, before=True)
    yield Seam(layer, (whole(block),), output, uncut)
    core = getattr(layer.self_attention, "core_attention", None)
    if core is not None:
        yield from of_core(core, f"{block}.self_attn", config, place)
    yield Seam(layer.pre_mlp_layernorm, (whole(f"{block}.residual"),), given(0, "hidden_states"), uncut, before=True, gives=False)
    if hasattr(layer.mlp, "router"):
        yield from of_experts(layer.mlp, f"{block}.mlp", whole, config, place)
    elif hasattr(layer.mlp, "linear_fc2"):
        yield activation(layer.mlp, f"{block}.mlp.activation", place)


def of_core(core: Module, attention: str, config: Arguments, place: Mapping[str, int]) -> Iterator[Seam]:
    """What an attention core is given and puts out, heads side by side; tensor-parallel ranks have some heads each."""
    latent = getattr(config, "multi_latent_attention", False)
    size = config.qk_head_dim + config.qk_pos_emb_head_dim if latent else config.kv_channels
    of_values = config.v_head_dim if latent else config.kv_channels
    queries = config.num_attention_heads
    groups = queries if latent else config.num_query_groups or queries
    for position, (argument, count, width) in enumerate((("query", queries, size), ("key", groups, size), ("value", groups, of_values))):
        value = share(f"{attention}.{argument}", count * width, place)
        yield Seam(core, (value,), heads(position, argument), uncut, before=True)
    yield Seam(core, (share(f"{attention}.core", queries * of_values, place),), output, uncut)


def share(name: str, width: int, place: Mapping[str, int]) -> Value:
    """A tensor-parallel rank's part of a value."""
    part = width // place["tp_size"]
    return Value(name, (place["tp"] * part, (place["tp"] + 1) * part), width)


def activation(mlp: Module, name: str, place: Mapping[str, int]) -> Seam:
    """What the second projection of a dense MLP is given."""
    width = mlp.linear_fc2.weight.shape[1] * place["tp_size"]
    return Seam(mlp.linear_fc2, (share(name, width, place),), given(0, "input_"), uncut, before=True)


def of_experts(mlp: Module, name: str, whole: Callable[[str], Value], config: Arguments, place: Mapping[str, int]) -> Iterator[Seam]:
    """The seams of a layer with experts. What a router makes of its input is seen by a hook of its own (:mod:`.hooks.routing`)."""
    experts = config.num_moe_experts
    yield Seam(mlp.router, (Value(f"{name}.gate", (0, experts), experts),), lambda args, kwargs, result: None, uncut)
    yield Seam(mlp.router, (Value(f"{name}.gate.weights", (0, experts), experts),), output, uncut)
    if place["etp_size"] == 1 and "permuted_probs" in mlp.experts.forward.__code__.co_varnames:
        first = place["ep"] * experts // place["ep_size"]
        values = tuple(whole(f"{name}.experts.{first + expert}") for expert in range(experts // place["ep_size"]))
        yield Seam(mlp.experts, values, output, uncut)
    shared = getattr(mlp, "shared_experts", None)
    if shared is not None:
        yield Seam(shared, (whole(f"{name}.shared_experts"),), output, uncut)
        yield activation(shared, f"{name}.shared_experts.activation", place)
    yield Seam(mlp, (whole(name),), output, uncut)


def of_logits(layer: Module, parameters: Parameters, place: Mapping[str, int], predicted: int) -> Iterator[Seam]:
    """The logits without those of padded rows; the layers that predict further tokens pass the same module first."""
    rows, padded = parameters.dims.vocabulary, parameters.dims.padded
    part = padded // place["tp_size"]
    start, stop = (min(place["tp"] * part + offset, rows) for offset in (0, part))
    names = [f"model.layers.{parameters.layers + index}.shared_head.head" for index in range(predicted)]
    for which, name in enumerate((*names, points.LOGITS)):
        value = Value(name, (start, stop), rows)
        yield Seam(layer, (value,), output, lambda tensor: [tensor[..., : stop - start]], every=predicted + 1, which=which)


def token_losses(args: Sequence[Tensor], kwargs: Mapping[str, Tensor], result: Tensor) -> Tensor:
    """Each token's loss ``[rows, positions]`` as a value one wide; None where the model puts out something else."""
    labels = kwargs.get("labels")
    fits = isinstance(result, torch.Tensor) and labels is not None and result.shape == labels.shape
    return result if fits else None


# ---- what was asked for


def wanted(settings: Settings) -> Callable[[str], bool]:
    """Says of a point whether its numbers are asked for."""
    return points.chosen(settings.patterns(FILTER).parts or ("*",))


def refuse_unmatched(session: TorchSession) -> None:
    """Refuse, before training, a pattern that matches no point of the model on any rank, with the nearest points; and a model that passes a
    layer several times a micro-batch."""
    assert session.parameters is not None
    if getattr(get_args(), "mtp_use_repeated_layer", False) and (get_args().mtp_num_layers or 0) > 1:
        raise RefusedRun(f"{PREFIX}ACTIVATIONS: --mtp-use-repeated-layer passes a layer several times a micro-batch; drop it, or unset it")
    here = {value.name for seam in every_seam(session) for value in seam.values}
    elsewhere = {re.sub(r"(?<=\blayers\.)\d+", str(layer), name) for name in here for layer in range(session.parameters.layers)}
    known = here | elsewhere | {points.EMBEDDING, points.FINAL_NORM, points.LOGITS, points.TOKEN_LOSSES}
    session.refuse_unmatched(known, lambda pattern: points.EXPERT.search(pattern) is not None)


# ---- a step


@dataclass
class Watch:
    """The points of one step. ``sums`` are device vectors by name and micro-batch, ``tensors`` host arrays, ``extents`` what part of each
    value this rank has. ``calls`` counts a module's calls, in the forward pass and where it is computed again. ``reached`` are the seams
    whose module was called, whether or not it showed a value; ``scale`` is what a gradient that flows is too large by."""

    session: TorchSession
    seams: Sequence[Seam]
    sums: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    tensors: dict[tuple[str, int], Array] = field(default_factory=dict)
    extents: dict[str, dict[str, object]] = field(default_factory=dict)
    calls: Counter[tuple[int, bool]] = field(default_factory=Counter)
    reached: set[int] = field(default_factory=set)
    handles: list[Tensor] = field(default_factory=list)
    scale: Tensor | float = 1.0

    def __post_init__(self) -> None:
        settings = self.session.settings
        self.wanted, self.whole = wanted(settings), points.chosen(settings.patterns(WHOLE).parts)

    def begin(self) -> None:
        """Put the hooks in place, for this step alone. A module's own hooks run first."""
        for index, seam in enumerate(self.seams):
            if seam.before:
                hook = functools.partial(self._before, index, seam)
                self.handles.append(seam.module.register_forward_pre_hook(hook, with_kwargs=True))
            else:
                hook = functools.partial(self._after, index, seam)
                self.handles.append(seam.module.register_forward_hook(hook, with_kwargs=True))

    def end(self) -> None:
        """Take the hooks away."""
        while self.handles:  # one that fails is not tried again, and keeps none of the others in place
            self.handles.pop().remove()

    def forget(self) -> None:
        """Drop what a pass gathered that is repeated."""
        for gathered in (self.sums, self.tensors, self.calls):
            gathered.clear()

    def _before(self, index: int, seam: Seam, module: Module, args: Sequence[Tensor], kwargs: Mapping[str, Tensor]) -> Result:
        with self.session.recording.surviving("activations"):
            self.reached.add(index)
            tensor = seam.pick(args, kwargs, None)
            passed = self.pass_on(index, seam, tensor, args, kwargs)
            if passed is not tensor:
                instead = {name: passed if value is tensor else value for name, value in kwargs.items()}
                return tuple(passed if value is tensor else value for value in args), instead
        return None

    def _after(
        self, index: int, seam: Seam, module: Module, args: Sequence[Tensor], kwargs: Mapping[str, Tensor], result: Tensor
    ) -> Result:
        with self.session.recording.surviving("activations"):
            self.reached.add(index)
            tensor = seam.pick(args, kwargs, result)
            passed = self.pass_on(index, seam, tensor, args, kwargs)
            if passed is not tensor:
                return (passed, *result[1:]) if isinstance(result, tuple) else passed
        return None

    def pass_on(
        self, index: int, seam: Seam, tensor: Tensor, args: Sequence[Tensor] = (), kwargs: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """Take the numbers of a tensor's values, and those of its gradient once it is there. Returns the tensor, or what a teacher gives in
        its place, whose gradient is then read."""
        recording = self.session.recording
        if tensor is None or self.session.step is None:
            return tensor
        again = torch._C._current_graph_task_id() != -1
        call = self.calls[index, again]
        self.calls[index, again] += 1
        micro_batch, of_micro_batch = divmod(call, seam.every)
        if of_micro_batch != seam.which:
            return tensor
        sizes: list[int] | None = None
        with recording.surviving("activations"):
            if points.is_of_experts(seam.values[0].name):
                sizes = segments(seam, args, kwargs or {})
            if not again and self.records:
                self._take(seam, tensor.detach(), micro_batch, sizes, "")
        passed = tensor
        if self.session.teacher is not None:
            with recording.must_succeed():
                passed = self._taught(seam, tensor, micro_batch)
        with recording.surviving("activations"):
            if passed.requires_grad and self.records:
                passed.register_hook(functools.partial(self._gradient, seam, micro_batch, sizes))
        return passed

    @property
    def records(self) -> bool:
        """Whether numbers are taken in this step; a step may be forced and not recorded."""
        return self.session.recording.wants(ACTIVATIONS)

    def _taught(self, seam: Seam, tensor: Tensor, micro_batch: int) -> Tensor:
        """What a teacher gives in the place of a tensor; the tensor itself where it gives nothing."""
        teacher, step = self.session.teacher, self.session.step
        if teacher is None or step not in teacher.steps or not is_given(seam, teacher.forces):
            return tensor
        value, gradient = (self._part(seam.values[0], tensor, micro_batch, suffix) for suffix in ("", GRADIENT))
        teacher.made.add(step)
        return Taught.apply(tensor, value, gradient * self.scale)

    def _part(self, value: Value, tensor: Tensor, micro_batch: int, suffix: str) -> Tensor:
        """A teacher's value, or its gradient, in the layout of a tensor of this rank."""
        teacher, step, place = self.session.teacher, self.session.step, self.session.place
        assert teacher is not None and step is not None
        rows = get_args().micro_batch_size
        first = (micro_batch * place["dp_size"] + place["dp"]) * rows
        whole = teacher.tensor(step, value.name + suffix)[first : first + rows, :, slice(*value.columns)]
        positions = in_rows(tensor, value, rows).shape[0]
        slices = slices_of(self.session, positions)
        part = whole if slices is None else whole[:, positions_of(slices)]
        given = torch.from_numpy(np.ascontiguousarray(part.transpose(1, 0, 2))).to(tensor.device, tensor.dtype)
        return given.reshape(tensor.shape) if value.name != points.TOKEN_LOSSES else given[..., 0].transpose(0, 1)

    def _gradient(self, seam: Seam, micro_batch: int, sizes: Sequence[int] | None, gradient: Tensor) -> None:
        with self.session.recording.surviving("activations"):
            if self.records:
                self._take(seam, gradient.detach(), micro_batch, sizes, GRADIENT)

    def _take(self, seam: Seam, tensor: Tensor, micro_batch: int, sizes: Sequence[int] | None, suffix: str) -> None:
        for value, part in zip(seam.values, seam.split(tensor) if sizes is None else tensor.split(list(sizes)), strict=True):
            if self.wanted(value.name):
                name = value.name + suffix
                self.sums[name, micro_batch] = self._numbers(value, part, micro_batch, free=sizes is not None)
                if self.whole(value.name) and sizes is None:
                    shaped = in_rows(part, value, get_args().micro_batch_size)
                    self.tensors[name, micro_batch] = to_numpy(shaped).transpose(1, 0, 2)

    def _numbers(self, value: Value, part: Tensor, micro_batch: int, *, free: bool) -> Tensor:
        columns = columns_on(part.device, value.columns)
        if free:
            self.extents[value.name] = {"width": value.width, "columns": list(value.columns), "slices": None, "counted": True}
            return numbers_of(part, torch.ones((part.shape[0], PROJECTIONS), dtype=torch.int8, device=part.device), columns)
        args, place = get_args(), self.session.place
        shaped = in_rows(part, value, args.micro_batch_size)
        positions, of_rows = shaped.shape[:2]
        slices = slices_of(self.session, positions)
        cut = value.columns != (0, value.width) or positions < rank_length(self.session)
        counted = place["tp"] == 0 or cut
        self.extents[value.name] = {"width": value.width, "columns": list(value.columns), "slices": slices, "counted": counted}
        first = (micro_batch * place["dp_size"] + place["dp"]) * of_rows
        where = tuple(map(tuple, slices or [[0, positions]]))
        rows = rows_on(part.device, range(first, first + of_rows), where, args.seq_length)
        return numbers_of(shaped.reshape(-1, shaped.shape[2]), rows, columns)

    def made(self) -> StepActivations:
        """What the step left, on the host: one transfer. Raises RefusedRun where no point was seen."""
        factor = 1.0 / float(self.scale)
        if not self.sums and self.seams:
            raise RefusedRun(f"{PREFIX}ACTIVATIONS: no point was seen in this step; a captured graph passes modules without Python")
        if not self.sums:  # a stage that has none of the points that are asked for
            return StepActivations({}, {}, {"length": get_args().seq_length, "scale": factor})
        device = next(iter(self.sums.values())).device
        numbers = torch.stack([vector.to(device) for vector in self.sums.values()]).cpu().numpy()
        by_name: dict[str, dict[int, Array]] = {}
        for (name, micro_batch), row in zip(self.sums, numbers, strict=True):
            by_name.setdefault(name, {})[micro_batch] = row
        count = max(micro_batch for _, micro_batch in self.sums) + 1
        whole = {name: np.stack([rows[index] for index in range(count)]) for name, rows in by_name.items() if len(rows) == count}
        kept: dict[str, list[Array]] = {}
        for (name, _), array in sorted(self.tensors.items(), key=lambda item: item[0]):
            kept.setdefault(name, []).append(array)
        tensors = {name: np.concatenate(parts) for name, parts in kept.items() if name in whole}
        args = get_args()
        extents = unlike(self.extents)
        return StepActivations(
            whole,
            tensors,
            {
                "rows": [args.micro_batch_size] * count,
                "length": args.seq_length,
                "extents": list(extents),
                "extent_of": {name: extents.index(extent) for name, extent in self.extents.items()},
                "scale": factor,
                "unseen": self.unseen(),
                "by_tokens": bool(args.calculate_per_token_loss),
            },
        )

    def unseen(self) -> list[str]:
        """The points that were asked for and whose modules were not called in the step, as what is fused or captured passes them; said at
        the first recorded step, by the first of ranks that are alike."""
        passed = [seam for index, seam in enumerate(self.seams) if index not in self.reached]
        names = [value.name for seam in passed for value in seam.values if self.wanted(value.name)]
        session, first = self.session, ACTIVATIONS.switch not in self.session.recording.captured
        if names and first and not any(session.place.get(axis, 0) for axis in ("dp", "tp", "cp")):
            of = f"{len(names)} points of rank {session.launch.rank}, first {names[0]}"
            say(f"align_hooks: {PREFIX}ACTIVATIONS records nothing of {of}: the model passes their modules without a call", sys.stdout)
        return names


@functools.cache
def columns_on(device: torch.device, columns: tuple[int, int]) -> Tensor:
    """The signs of columns on a device, made once a run."""
    return on_device(torch.from_numpy(column_signs(columns)), device)


@functools.cache
def rows_on(device: torch.device, rows: range, slices: tuple[tuple[int, ...], ...], length: int) -> Tensor:
    """The signs of the tokens of rows at positions on a device, made once a run: 16 bytes for each token of a step on this rank."""
    where = positions_of([list(bounds) for bounds in slices])
    return on_device(torch.from_numpy(row_signs(places(rows, where, length))), device)


def unlike(extents: Mapping[str, Mapping[str, object]]) -> list[Mapping[str, object]]:
    """The extents that there are, each once."""
    found: list[Mapping[str, object]] = []
    for extent in extents.values():
        if extent not in found:
            found.append(extent)
    return found


def in_rows(part: Tensor, value: Value, rows: int) -> Tensor:
    """A value as ``[positions, rows, columns]``, whatever axes the model gives it."""
    if value.name == points.TOKEN_LOSSES:
        return part.transpose(0, 1).unsqueeze(2)
    if part.dim() == 2:  # tokens in the order position, row
        return part.reshape(-1, rows, part.shape[1])
    return part.reshape(part.shape[0], part.shape[1], -1)


def segments(seam: Seam, args: Sequence[Tensor], kwargs: Mapping[str, Tensor]) -> list[int]:
    """How many tokens each expert of this rank is given."""
    counts = given(1, "tokens_per_expert")(args, kwargs, None)
    return [int(count) for count in (counts.tolist() if isinstance(counts, torch.Tensor) else counts)]


def rank_length(session: TorchSession) -> int:
    """Positions of the sequence that this context-parallel rank has."""
    return int(get_args().seq_length) // session.place["cp_size"]


def slices_of(session: TorchSession, positions: int) -> Slices | None:
    """The positions [start, stop) of a value with so many of them; None for all of the sequence."""
    place, args = session.place, get_args()
    here = [[0, args.seq_length]] if place["cp_size"] == 1 else zigzag(place["cp"], place["cp_size"], args.seq_length)
    length = rank_length(session)
    if positions == length:
        return None if place["cp_size"] == 1 else here
    if args.sequence_parallel and positions * place["tp_size"] == length:
        return part_of(here, place["tp"], place["tp_size"])
    raise RefusedRun(f"{PREFIX}ACTIVATIONS: a value has {positions} positions, where this rank has {length}; unset it for such batches")


def router_logits(session: TorchSession, router: Module, logits: Tensor) -> None:
    """Take the numbers of what a router makes of its input."""
    watch = session.watch
    if watch is None:
        return
    for index, seam in enumerate(watch.seams):
        if seam.module is router and seam.values[0].name.endswith(".gate"):
            watch.pass_on(index, seam, logits)


class Taught(torch.autograd.Function):
    """What a teacher gives in the place of a tensor, as if it were the tensor's own value; and what it gives in the place of the gradient
    that arrives."""

    @staticmethod
    def forward(context: Tensor, tensor: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        """The given value."""
        context.save_for_backward(gradient)
        return value.clone()

    @staticmethod
    def backward(context: Tensor, arrived: Tensor) -> tuple[Tensor, None, None]:
        """The given gradient."""
        (gradient,) = context.saved_tensors
        return gradient.to(arrived.dtype), None, None


def is_given(seam: Seam, forces: Callable[[str], bool]) -> bool:
    """Whether a teacher gives the value that a seam shows: one value, of tokens in their order, of which nothing is read elsewhere."""
    (value, *others) = seam.values
    if others or not seam.gives or points.is_of_experts(value.name) or value.name.endswith((".gate", ".gate.weights")):
        return False
    return forces(value.name)


def check_teacher(session: TorchSession, planned: range) -> None:
    """Hold what a teacher is to give against this rank's points, before training."""
    teacher, args = session.teacher, get_args()
    if teacher is None:
        return
    if args.calculate_per_token_loss:
        raise RefusedRun(
            f"{PREFIX}TEACHER: with --calculate-per-token-loss gradients are divided by the tokens behind the backward pass; drop either"
        )
    widths = {seam.values[0].name: seam.values[0].width for seam in session.seams if is_given(seam, teacher.forces)}
    rows = None if getattr(args, "rampup_batch_size", None) else args.micro_batch_size * args.data_parallel_size * get_num_microbatches()
    session.check_teacher(widths, planned, rows, args.seq_length)


def begin(session: TorchSession) -> None:
    """Watch the points of the step that begins, where it is selected, or forced."""
    if not (session.recording.wants(ACTIVATIONS) or session.teacher is not None):
        return
    recording = session.recording
    forced = session.teacher is not None and session.step in session.teacher.steps
    with recording.must_succeed() if forced else recording.surviving("activations"):
        watch = Watch(session, session.seams, scale=scale(session))
        if watch.records or forced:
            session.watch = watch
            watch.begin()


def end(session: TorchSession) -> None:
    """Take the hooks of the step away that watch points; what they saw stays with the session."""
    if session.watch is not None:
        session.watch.end()


def scale(session: TorchSession) -> Tensor | float:
    """What a gradient that flows is divided by to be that of the reduced objective; with a per-token loss Megatron divides by the tokens
    of the step later still, and sums over ranks. A loss scale is left on its device."""
    place, args = session.place, get_args()
    ranks = 1 if args.calculate_per_token_loss else place["dp_size"] * place["cp_size"]
    scaled = [leaf for leaf in chain(session.optimizer) if getattr(leaf, "grad_scaler", None) is not None]
    return scaled[0].get_loss_scale().detach().clone() * ranks if scaled else float(ranks)


def bytes_of(session: TorchSession, rows: Iterable[int]) -> int:
    """What a selected step writes of whole tensors on this rank, in bytes: values and gradients."""
    kept = points.chosen(session.settings.patterns(WHOLE).parts)
    widths = sum(value.columns[1] - value.columns[0] for seam in session.seams for value in seam.values if kept(value.name))
    return 2 * 4 * widths * sum(rows) * rank_length(session)
