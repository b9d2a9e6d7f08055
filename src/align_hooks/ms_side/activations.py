"""The points of a built MindFormers model: which Cell shows each, in which layout, and what a step left of them.

Newer models (``use_legacy: False``) stand here, ``LlamaForCausalLM`` in :mod:`.activations_of_older`. Points are put in place at the first
``on_train_step_begin``, which has the batch for which the graph is compiled (:mod:`.points` says how). As with token losses the model must
be called with the whole batch: the cells that cut it into micro-batches are those of semi-automatic parallelism, which is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import mindspore
import numpy as np
from mindspore import nn, ops

from align_hooks.errors import RefusedRun
from align_hooks.families.family import ModelConfig
from align_hooks.ms_side import points as compiled
from align_hooks.ms_side.model import Model, is_per_token, model_of
from align_hooks.ms_side.objects import Cell
from align_hooks.ms_side.own_parameters import own_array, own_parameter, set_unregistered
from align_hooks.ms_side.place import place, summed
from align_hooks.ms_side.points import Layout, Point, View, put, turned
from align_hooks.ms_side.session import MsSession
from align_hooks.ms_side.token_losses import is_called_whole
from align_hooks.names import points
from align_hooks.names.blocks import Array
from align_hooks.names.points import GRADIENT
from align_hooks.quantities.activations import ACTIVATIONS, FILTER, WHOLE
from align_hooks.record.activations import column_signs, measured, row_signs
from align_hooks.record.pieces import StepActivations
from align_hooks.settings import PREFIX

VARIABLE = f"{PREFIX}ACTIVATIONS"


@dataclass
class Builder:
    """Makes points and puts them into Cells. ``wanted``, ``whole`` and ``forced`` say of a name what is asked for; ``layout`` is that of
    most tensors, and ``prefix`` stands before the names of a model of no family. ``made`` are the points that there are, ``known`` all
    names."""

    layout: Layout
    vocabulary: int
    wanted: Callable[[str], bool]
    whole: Callable[[str], bool]
    forced: Callable[[str], bool]
    on_host: bool
    prefix: str = ""
    made: list[Point | Choices | OfExperts] = field(default_factory=list)
    known: list[str] = field(default_factory=list)

    def point(self, names: str | Sequence[str], width: int, layout: Layout | None = None, views: Sequence[View] = ()) -> Point | None:
        """A point of one value ``width`` wide, or of several ``views``; None where none of them is asked for. It is among those made."""
        named = [names] if isinstance(names, str) else list(names)
        named = [self.prefix + name for name in named]
        shown = [View(name, view.shape, view.start, view.stop) for name, view in zip(named, views, strict=True)] if views else []
        shown = shown or [View(name, (width,), 0, width) for name in named]
        self.known += named
        where, alone = layout or self.layout, len({(view.start, view.stop) for view in shown}) == 1
        shape = (where.rows * where.length * int(np.prod(shown[0].shape)),)
        keeps, forces = any(map(self.wanted, named)), alone and any(map(self.forced, named))
        if not (forces or keeps):
            return None
        whole = keeps and (self.on_host or any(map(self.whole, named)))
        point = Point(shown, where, shape, whole=whole, keeps=keeps, forces=forces)
        self.made.append(point)
        return point

    def turn(self, cell: Cell, make: Callable[[type], type], **wanted: Point | None) -> None:
        """Put points into a Cell; where some are asked for, the others pass everything on."""
        if any(point is not None for point in wanted.values()):
            turned(cell, make, **{name: point or nn.Identity() for name, point in wanted.items()})

    def around(self, owner: Cell, name: str, point: Point | None) -> None:
        """Put a point behind an attribute whose own class cannot be changed."""
        if point is not None:
            put(owner, name, compiled.Around(getattr(owner, name), point))


# ---- the newer models


def of_newer(build: Builder, model: Model) -> None:
    """Put points into a GPTModel of ``mindformers.parallel_core.training_graph``."""
    core, config, hidden = model.core, model.config, model.config.hidden_size
    build.turn(core.embedding, compiled.of_output, point_out=build.point(points.EMBEDDING, hidden))
    for number, layer in enumerate(core.decoder.layers):
        of_block(build, layer, f"model.layers.{number}", config)
    build.turn(core.decoder.final_layernorm, compiled.of_output, point_out=build.point(points.FINAL_NORM, hidden))
    build.turn(core.output_layer, compiled.of_output, point_out=of_logits(build, points.LOGITS, int(core.vocab_size)))
    of_losses(build, core)
    if getattr(core, "mtp_process", False):
        of_predicting(build, core, config)


def of_logits(build: Builder, name: str, rows: int) -> Point | None:
    """A point of logits, without those of padded rows."""
    return build.point(name, rows, views=[View("", (rows,), 0, build.vocabulary)])


def of_losses(build: Builder, core: Cell) -> None:
    """Put a point behind each token's loss, which stand row after row."""
    loss = getattr(core, "loss", None)
    if hasattr(loss, "_nllloss"):
        build.around(loss, "_nllloss", build.point(points.TOKEN_LOSSES, 1, by_rows(build.layout)))


def by_rows(layout: Layout) -> Layout:
    """The layout of tensors whose tokens stand row after row."""
    return Layout(layout.rows, layout.length, layout.first, by_position=False)


def of_predicting(build: Builder, core: Cell, config: ModelConfig) -> None:
    """Put points into the layers that predict further tokens. What their transformer layer is given has one user, so ``eh_proj`` shows
    it."""
    hidden = config.hidden_size
    for index, layer in enumerate(core.mtp.layers):
        name = f"model.layers.{config.num_layers + index}"
        for norm in ("enorm", "hnorm"):
            build.turn(getattr(layer, norm), compiled.of_output, point_out=build.point(f"{name}.{norm}", hidden))
        views = [View("", (hidden,), 0, hidden)] * 2
        joined = build.point([f"{name}.eh_proj", f"{name}.input"], hidden, views=views)
        build.turn(layer.eh_proj, compiled.of_output, point_out=joined)
        of_block(build, layer.transformer_layer, name, config, predicts=True)
        build.turn(layer.final_layernorm, compiled.of_output, point_out=build.point(f"{name}.shared_head.norm", hidden))
        if len(core.mtp.layers) == 1:  # it is one Cell for all of them
            head = of_logits(build, f"{name}.shared_head.head", int(core.vocab_size))
            build.turn(core.mtp.output_layer, compiled.of_output, point_out=head)


def of_block(build: Builder, layer: Cell, name: str, config: ModelConfig, *, predicts: bool = False) -> None:
    """Put points into a block. ``pre_cross_attn_layernorm`` is an identity, behind which norm and addition read the residual."""
    hidden = config.hidden_size
    if predicts:
        build.turn(layer, compiled.of_output, point_out=build.point(name, hidden))
    else:
        given, out = build.point(f"{name}.input", hidden), build.point(name, hidden)
        build.turn(layer, compiled.of_input_and_output, point_in=given, point_out=out)
    norms = {"input_layernorm": points.NORM, "pre_cross_attn_layernorm": "residual", "pre_mlp_layernorm": points.SECOND_NORM}
    for attribute, kind in norms.items():
        build.turn(getattr(layer, attribute), compiled.of_output, point_out=build.point(f"{name}.{kind}", hidden))
    if config.multi_latent_attention:
        of_latent_attention(build, layer.self_attention, f"{name}.self_attn", config)
    else:
        of_attention(build, layer.self_attention, f"{name}.self_attn", hidden)
    if hasattr(layer.mlp, "router"):
        of_experts(build, layer.mlp, f"{name}.mlp", hidden)
    else:
        of_feed_forward(build, layer.mlp, f"{name}.mlp", hidden, config.ffn_hidden_size)


def of_attention(build: Builder, attention: Cell, name: str, hidden: int) -> None:
    """Put points into attention with usual projections, fused per group of queries or one behind the other."""
    heads, groups, size = attention.num_heads, attention.kv_num_heads, attention.head_dim
    fused = [f"{name}.{which}_proj" for which in "qkv"]
    width = (heads + 2 * groups) * size
    contiguous = "Contiguous" in type(attention).__name__
    build.turn(attention.linear_qkv, compiled.of_output, point_out=build.point(fused, width, views=of_qkv(heads, groups, size, contiguous)))
    for which, count in (("q", heads), ("k", groups)):
        norm = getattr(attention, f"{which}_layernorm", None)
        if norm is not None and type(norm).__name__ != "IdentityOp":
            build.turn(norm, compiled.of_output, point_out=build.point(f"{name}.{which}_norm", count * size))
    widths = {"query": heads * size, "key": groups * size, "value": groups * size}
    build.turn(attention, turned_attention, **{f"point_{which}": build.point(f"{name}.{which}", width) for which, width in widths.items()})
    of_last(build, attention.linear_proj, name, heads * size, hidden)


def of_qkv(heads: int, groups: int, size: int, contiguous: bool) -> list[View]:
    """Queries, keys and values in a fused projection."""
    if contiguous:
        stops = np.cumsum([0, heads * size, groups * size, groups * size]).tolist()
        return [View("", (stops[3],), stops[index], stops[index + 1]) for index in range(3)]
    repeats = heads // groups
    stops = np.cumsum([0, repeats * size, size, size]).tolist()
    return [View("", (groups, stops[3]), stops[index], stops[index + 1]) for index in range(3)]


def of_last(build: Builder, projection: Cell, name: str, width: int, hidden: int) -> None:
    """Put points before and behind the last projection of attention."""
    core, out = build.point(f"{name}.core", width), build.point(f"{name}.o_proj", hidden)
    build.turn(projection, compiled.of_input_and_output, point_in=core, point_out=out)


def turned_attention(base: type) -> type:
    """Attention whose queries, keys and values pass a point before the core: rotated, and not yet repeated for their queries."""

    class Pointed(base):  # type: ignore[misc]
        def _apply_rotary_pos_emb(self, query, key, rotary_pos_emb):  # type: ignore[no-untyped-def]
            query, key = super()._apply_rotary_pos_emb(query, key, rotary_pos_emb)
            return self.point_query(query), key

        def _cat_prefix(self, key, value, prefix_keys_values):  # type: ignore[no-untyped-def]
            key, value = super()._cat_prefix(key, value, prefix_keys_values)
            return self.point_key(key), self.point_value(value)

    return Pointed


def of_latent_attention(build: Builder, attention: Cell, name: str, config: ModelConfig) -> None:
    """Put points into latent attention, whose first projections stand side by side or apart (``mla_qkv_concat``)."""
    heads, head, turned_part = config.num_attention_heads, config.qk_head_dim, config.qk_pos_emb_head_dim
    rank, keys, size = config.q_lora_rank, config.kv_lora_rank + turned_part, head + turned_part
    width = heads * size
    first, out = f"{name}.{'q_a_proj' if rank else 'q_proj'}", compiled.of_output
    if hasattr(attention, "linear_qkv"):
        queries = rank or width
        views = [View("", (queries + keys,), 0, queries), View("", (queries + keys,), queries, queries + keys)]
        build.turn(attention.linear_qkv, out, point_out=build.point([first, f"{name}.kv_a_proj_with_mqa"], queries + keys, views=views))
        cells = {"q_layernorm": "q_layernorm", "k_layernorm": "k_layernorm", "up": "linear_qb", "kv_up": "linear_kvb"}
    else:
        down = "linear_q_down_proj" if rank else "linear_q_proj"
        build.turn(getattr(attention, down), out, point_out=build.point(first, rank or width))
        build.turn(attention.linear_kv_down_proj, out, point_out=build.point(f"{name}.kv_a_proj_with_mqa", keys))
        cells = {"q_layernorm": "q_layernorm", "k_layernorm": "kv_layernorm", "up": "linear_q_up_proj", "kv_up": "linear_kv_up_proj"}
    if rank:
        build.turn(getattr(attention, cells["q_layernorm"]), compiled.of_output, point_out=build.point(f"{name}.q_a_layernorm", rank))
        build.turn(getattr(attention, cells["up"]), out, point_out=build.point(f"{name}.q_b_proj", width))
    norm = build.point(f"{name}.kv_a_layernorm", config.kv_lora_rank)
    build.turn(getattr(attention, cells["k_layernorm"]), compiled.of_output, point_out=norm)
    build.turn(getattr(attention, cells["kv_up"]), out, point_out=build.point(f"{name}.kv_b_proj", heads * (head + config.v_head_dim)))
    widths = {"query": width, "key": width, "value": heads * config.v_head_dim}
    build.turn(attention, turned_latent, **{f"point_{which}": build.point(f"{name}.{which}", wide) for which, wide in widths.items()})
    of_last(build, attention.linear_proj, name, heads * config.v_head_dim, config.hidden_size)


def turned_latent(base: type) -> type:
    """Latent attention whose queries, keys and values pass a point before the core."""

    class Pointed(base):  # type: ignore[misc]
        def get_query_key_value_tensors(self, hidden_states, rotary_pos_emb=None):  # type: ignore[no-untyped-def]
            query, key, value = super().get_query_key_value_tensors(hidden_states, rotary_pos_emb)
            return self.point_query(query), self.point_key(key), self.point_value(value)

    return Pointed


def of_feed_forward(build: Builder, mlp: Cell, name: str, hidden: int, size: int) -> None:
    """Put points into a dense feed-forward part, whose gate and up stand row by row or one behind the other."""
    by_row = "Interleaved" in type(mlp).__name__
    views = [
        View("", (size, 2) if by_row else (2 * size,), *bounds)
        for bounds in (((0, 1), (1, 2)) if by_row else ((0, size), (size, 2 * size)))
    ]
    fused = build.point([f"{name}.gate_proj", f"{name}.up_proj"], 2 * size, views=views)
    build.turn(mlp.linear_fc1, compiled.of_output, point_out=fused)
    active, out = build.point(f"{name}.activation", size), build.point(f"{name}.down_proj", hidden)
    build.turn(mlp.linear_fc2, compiled.of_input_and_output, point_in=active, point_out=out)


# ---- experts


def of_experts(build: Builder, mlp: Cell, name: str, hidden: int) -> None:
    """Put points into a layer with experts. Tokens stand row after row in a router, as in its experts."""
    router, layout = mlp.router, by_rows(build.layout)
    logits = build.point(f"{name}.gate", int(router.expert_dim), layout)
    weights = Choices.of(build, f"{name}.gate.weights", router, layout)
    build.turn(router, turned_router, point_logits=logits, point_weights=weights)  # type: ignore[arg-type]
    if getattr(mlp, "use_shared_expert", False):
        shared = mlp.shared_experts
        of_feed_forward(build, shared, f"{name}.shared_experts", hidden, int(shared.linear_fc2.input_size))
        build.around(mlp, "shared_experts", build.point(f"{name}.shared_experts", hidden))
    build.turn(mlp, compiled.of_output, point_out=build.point(name, hidden))
    if hasattr(mlp.experts, "weighed"):  # a rehearsal's; the device's own operator puts permuted tokens out
        of_each = OfExperts.of(build, name, int(router.expert_dim), hidden, layout)
        if of_each is not None:
            mlp.experts.weighed = of_each


def turned_router(base: type) -> type:
    """A router whose scores and whose weights pass a point."""

    class Pointed(base):  # type: ignore[misc]
        def gating(self, inputs):  # type: ignore[no-untyped-def]
            return self.point_logits(super().gating(inputs))

        def construct(self, inputs):  # type: ignore[no-untyped-def]
            index, weights, aux = super().construct(inputs)
            return index, self.point_weights(weights, index), aux

    return Pointed


class Choices(nn.Cell):
    """A point of the weights of the experts that each token chose: kept with the experts, and read as weights of all experts, 0 where a
    token chose another."""

    def __init__(self, name: str, experts: int, chosen: int, layout: Layout, *, whole: bool) -> None:
        super().__init__(auto_prefix=False)
        self.layout, self.whole, self.views = layout, whole, (View(name, (experts,), 0, experts),)
        self.assign, self.cast = ops.Assign(), ops.Cast()
        self.shape = (layout.rows * layout.length, chosen)
        set_unregistered(
            self,
            index=own_array(f"index.{name}", np.zeros(self.shape, np.int32)),
            value=own_parameter(f"value.{name}", self.shape),
            gradient=own_parameter(f"gradient.{name}", self.shape),
        )
        self.insert = ops.InsertGradientOf(self.keep_gradient)

    @classmethod
    def of(cls, build: Builder, name: str, router: Cell, layout: Layout) -> Choices | None:
        """The point of a router; None where nobody asked for it."""
        named = build.prefix + name
        build.known.append(named)
        if not build.wanted(named):
            return None
        point = cls(named, int(router.expert_dim), int(router.num_experts_chosen), layout, whole=build.whole(named) or build.on_host)
        build.made.append(point)
        return point

    def keep_gradient(self, gradient):  # type: ignore[no-untyped-def]
        """Compiled from this text."""
        self.assign(self.gradient, self.cast(gradient, mindspore.float32).reshape(self.shape))
        return gradient

    def construct(self, weights, index):  # type: ignore[no-untyped-def]
        """Compiled from this text."""
        self.assign(self.index, self.cast(index, mindspore.int32).reshape(self.shape))
        self.assign(self.value, self.cast(weights, mindspore.float32).reshape(self.shape))
        return self.insert(weights)

    def values(self, *, backward: bool) -> Iterator[tuple[str, Array, Array | None]]:
        """As those of a :class:`Point`, of all experts."""
        dense = np.zeros((self.shape[0], self.views[0].width), np.float32)
        np.put_along_axis(dense, self.index.asnumpy(), (self.gradient if backward else self.value).asnumpy(), axis=1)
        tensor = self.layout.in_order(dense, self.views[0])
        yield self.views[0].name, self.layout.numbers(tensor)[None], tensor if self.whole else None

    forces, bytes = False, 0


class OfExperts(nn.Cell):
    """A point of the weighed outputs of all experts of a rehearsal, ``[experts, tokens, hidden]``, where a token that did not choose an
    expert is 0. Tokens of an expert have no order, so their row signs are +1."""

    def __init__(self, names: Sequence[str], hidden: int, layout: Layout) -> None:
        super().__init__(auto_prefix=False)
        self.layout, self.views = layout, tuple(View(name, (hidden,), 0, hidden) for name in names)
        self.assign, self.cast = ops.Assign(), ops.Cast()
        shape = (len(names), layout.rows * layout.length, hidden)
        value, gradient = (own_parameter(f"{which}.{names[0]}", shape) for which in ("experts", "experts_gradient"))
        set_unregistered(self, value=value, gradient=gradient)
        self.insert = ops.InsertGradientOf(self.keep_gradient)

    @classmethod
    def of(cls, build: Builder, name: str, experts: int, hidden: int, layout: Layout) -> OfExperts | None:
        """The point of a layer's experts; None where nobody asked for any."""
        names = [f"{build.prefix}{name}.experts.{expert}" for expert in range(experts)]
        build.known += names
        if not any(map(build.wanted, names)):
            return None
        point = cls(names, hidden, layout)
        build.made.append(point)
        return point

    def keep_gradient(self, gradient):  # type: ignore[no-untyped-def]
        """Compiled from this text."""
        self.assign(self.gradient, self.cast(gradient, mindspore.float32))
        return gradient

    def construct(self, tensor):  # type: ignore[no-untyped-def]
        """Compiled from this text."""
        self.assign(self.value, self.cast(tensor, mindspore.float32))
        return self.insert(tensor)

    def values(self, *, backward: bool) -> Iterator[tuple[str, Array, Array | None]]:
        """As those of a :class:`Point`: of the tokens that chose an expert alone, the others being 0 in its value."""
        outputs = self.value.asnumpy()
        kept = self.gradient.asnumpy() if backward else outputs
        for view, output, tensor in zip(self.views, outputs, kept, strict=True):
            mine = tensor[(output != 0).any(axis=1)]
            yield view.name, measured(mine, row_signs(None, len(mine)), column_signs((0, view.width)))[None], None

    whole, forces, bytes = False, False, 0


# ---- a run


def refuse_unseen(session: MsSession) -> None:
    """Refuse, before training, activations of a job that this version does not see: one that is cut, or of another kind of model."""
    if not session.settings.steps(ACTIVATIONS) and session.teacher is None:
        return
    variable = VARIABLE if session.settings.steps(ACTIVATIONS) else f"{PREFIX}TEACHER"
    model = model_of(session.train_cell)
    if session.sizes is not None or not is_called_whole(session.train_cell):
        raise RefusedRun(f"{variable} is for jobs of MindFormers whose model is called with a rank's whole batch; unset it")
    if model.built is None:
        raise RefusedRun(
            f"{variable}: points are known of newer models and of LlamaForCausalLM, this is {type(model.network).__name__}; unset it"
        )


def keep_activations(session: MsSession, rows: int, length: int) -> None:
    """Put the points into the model, for batches of so many rows and positions on this rank; refuses what does not fit the device."""
    from align_hooks.ms_side.activations_of_older import of_older
    from align_hooks.ms_side.hooks.train_cell import free_memory

    assert session.parameters is not None
    settings, model = session.settings, model_of(session.train_cell)
    asked = bool(settings.steps(ACTIVATIONS)) and session.recording.writer is not None
    data = place(session.launch)["dp"]
    build = Builder(
        Layout(rows, length, data * rows, by_position=model.is_newer),
        session.parameters.dims.vocabulary,
        wanted=points.chosen(settings.patterns(FILTER).parts or ("*",)) if asked else lambda name: False,
        whole=points.chosen(settings.patterns(WHOLE).parts if asked else ()),
        forced=session.teacher.forces if session.teacher is not None else lambda name: False,
        on_host=mindspore.get_context("device_target") == "CPU",
        prefix="mindformers:" if model.misfits else "",
    )
    (of_newer if model.is_newer else of_older)(build, model)
    session.refuse_unmatched(build.known)
    session.points = build.made
    needed, free = sum(point.bytes for point in build.made), free_memory()
    if needed:
        session.say(f"points of the model take {needed / 1e6:.1f} MB of device memory in every step")
    if free is not None and needed > free:
        raise RefusedRun(
            f"points of the model need {needed / 1e9:.1f} GB and the device has {free / 1e9:.1f} GB free; "
            f"choose fewer in {VARIABLE}_FILTER and {VARIABLE}_TENSORS"
        )
    whole = points.chosen(settings.patterns(WHOLE).parts)
    kept = sum(view.width for point in build.made for view in point.views if whole(view.name))
    session.announce_activations(2 * 4 * kept * rows * length, session.planned or range(1))


def check_teacher(session: MsSession, planned: range) -> None:
    """Hold what a teacher is to give against the steps of the run, before training: the widths of the points once they are built."""
    teacher = session.teacher
    if teacher is None:
        return
    if is_per_token(session.train_cell):
        raise RefusedRun(
            f"{PREFIX}TEACHER: with calculate_per_token_loss gradients are divided by the tokens behind the backward pass; drop either"
        )
    recorded = teacher.run.activations(teacher.recorded[0])
    widths = {name: recorded.width(name) for name in recorded.points if teacher.forces(name) and recorded.has_tensor(name)}
    session.check_teacher(widths, planned, None, None)


def give_values(session: MsSession, step: int, loss_scale: float) -> None:
    """Have a step pass on what its teacher gives; in a step that is not forced the points pass on their own."""
    teacher = session.teacher
    if teacher is None:
        return
    forced, factor = step in teacher.steps, np.float32(scale(session, loss_scale))
    for point in (point for point in session.points if point.forces):
        name, rows = point.views[-1].name, slice(point.layout.first, point.layout.first + point.layout.rows)
        if not forced:
            point.give(None)
            continue
        value, gradient = teacher.tensor(step, name)[rows], teacher.tensor(step, name + GRADIENT)[rows]
        if value.shape != (point.layout.rows, point.layout.length, point.views[-1].width):
            raise RefusedRun(
                f"{PREFIX}TEACHER={teacher.source}: step {step} has {list(value.shape)} of {name}, this run "
                f"{[point.layout.rows, point.layout.length, point.views[-1].width]}; train on the batches of that run"
            )
        point.give(value, gradient * factor)
    if forced:
        teacher.made.add(step)


def scale(session: MsSession, loss_scale: float) -> float:
    """What a gradient that flows is divided by to be that of the reduced objective; with a per-token loss MindFormers divides by the tokens
    of the step later still, and sums over ranks."""
    return loss_scale * (1 if is_per_token(session.train_cell) or summed(session.launch) else session.launch.world_size)


def made(session: MsSession, loss_scale: float) -> StepActivations | None:
    """What the points kept in the step that ended; None where there are none."""
    wanted = points.chosen(session.settings.patterns(FILTER).parts or ("*",))
    whole = points.chosen(session.settings.patterns(WHOLE).parts)
    sums: dict[str, Array] = {}
    tensors: dict[str, Array] = {}
    widths: dict[str, int] = {}
    for point in session.points:
        for backward, suffix in ((False, ""), (True, GRADIENT)):
            for name, numbers, tensor in point.values(backward=backward):
                if wanted(name):
                    sums[name + suffix] = numbers
                    if tensor is not None and whole(name):
                        tensors[name + suffix] = tensor
        widths |= {view.name: view.width for view in point.views if wanted(view.name)}
    if not sums:
        return None
    layout, extents = session.points[0].layout, sorted(set(widths.values()))
    return StepActivations(
        sums,
        tensors,
        {
            "rows": [layout.rows],
            "length": layout.length,
            "extents": [{"width": width, "columns": [0, width], "slices": None, "counted": True} for width in extents],
            "extent_of": {name: extents.index(width) for name, width in widths.items()},
            "scale": 1.0 / scale(session, loss_scale),
            "by_tokens": is_per_token(session.train_cell),
        },
    )
