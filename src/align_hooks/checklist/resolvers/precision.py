"""Types of computation, reduction and weights, loss scales and kernels, as each side sets them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from align_hooks.checklist.canonical_values import UNSET, Dynamic, Switched, Words, dtype
from align_hooks.checklist.lookup import Read, all_sides, are_numbers, has, is_new, is_on, model, value_of
from align_hooks.checklist.mindformers_models import default
from align_hooks.checklist.resolver import EditRequest, Edits, Resolver, one_key, resolver
from align_hooks.checklist.row import Explain
from align_hooks.configuration.values import MEGATRON, MINDFORMERS, Configuration, Setting
from align_hooks.messages import message


def megatron_compute(c: Configuration) -> Setting:
    """Return bfloat16 with ``--bf16``, float16 with ``--fp16``, else float32 (the guide says float16, which is a mistake)."""
    return "bfloat16" if value_of(c, ("bf16",), False) is True else "float16" if value_of(c, ("fp16",), False) is True else "float32"


half_precision = Resolver(megatron_compute)
"""The type of computation, by two switches that are given together."""


@half_precision.writer
def half_precision_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield the two switches of half precision, at most one of them on."""
    yield from ({"bf16": on == "bfloat16" or None, "fp16": on == "float16" or None} for on in ("bfloat16", "float16", "float32"))


def mindformers_compute(c: Configuration) -> Setting:
    """Return ``compute_dtype`` under its one name."""
    return dtype(value_of(c, model("compute_dtype"), default("compute_dtype")))


def megatron_gradient_type(c: Configuration) -> Setting:
    """Return the type in which gradients are added up and reduced."""
    compute = megatron_compute(c)
    asked, lower = value_of(c, ("accumulate_allreduce_grads_in_fp32",), False), value_of(c, ("grad_reduce_in_bf16",), False)
    main = dtype(value_of(c, ("main_grads_dtype",), "float32"))
    if compute == "bfloat16":
        return "bfloat16" if lower or main != "float32" else "float32"
    return "float16" if compute == "float16" and not asked else "float32"


def mindformers_parameter_type(c: Configuration) -> Setting:
    """Return the type that weights are held in; their gradients are reduced in it too."""
    return dtype(value_of(c, model("param_init_type", "params_dtype"), default("params_dtype")))


def megatron_softmax_type(c: Configuration) -> Setting:
    """Return float32 where that is asked for, in a fused or flash kernel, or where all is; else the compute type."""
    asked = value_of(c, ("attention_softmax_in_fp32",), False) or value_of(c, ("apply_query_key_layer_scaling",), False)
    flash, fused = megatron_flash(c), value_of(c, ("masked_softmax_fusion",), True)
    return "float32" if asked or flash or fused else megatron_compute(c)


def mindformers_softmax_type(c: Configuration) -> Setting:
    """Return float32 in a flash kernel; else ``softmax_compute_dtype``."""
    compute = dtype(value_of(c, model("softmax_compute_type", "softmax_compute_dtype"), default("softmax_compute_dtype")))
    return "float32" if value_of(c, model("use_flash_attention"), default("use_flash_attention")) is True else compute


def megatron_residual(c: Configuration) -> Setting:
    """Return the type in which the residual is added."""
    return "float32" if value_of(c, ("fp32_residual_connection",), False) else megatron_compute(c)


def mindformers_residual(c: Configuration) -> Setting:
    """Return the type in which the residual is added; older models name it ``residual_dtype``."""
    if (older := dtype(value_of(c, model("residual_dtype")))) is not UNSET:
        return older
    return "float32" if value_of(c, model("fp32_residual_connection"), False) else mindformers_compute(c)


def mindformers_router_type(c: Configuration) -> Setting:
    """Return ``moe_router_dtype`` or ``router_dense_type``; older models compute in float32 for float16."""
    keys = (*model("router_dense_type", "moe_router_dtype"), "moe_config.router_dense_type")
    type_of_router = dtype(value_of(c, keys, default("moe_router_dtype")))
    return "float32" if type_of_router == "float16" and not is_new(c) else type_of_router


def megatron_loss_scale(c: Configuration) -> Setting:
    """Return a fixed number, or where a dynamic one starts."""
    if (fixed := value_of(c, ("loss_scale",), None)) is not None:
        return float(fixed)
    return Dynamic(float(value_of(c, ("initial_loss_scale",), 2**32))) if megatron_compute(c) == "float16" else 1.0


@resolver
def mindformers_loss_scale(c: Configuration) -> Setting:
    """Return ``scale_sense``: a number, or a cell that moves it."""
    prefix = "runner_wrapper.scale_sense"
    kind, start = value_of(c, (f"{prefix}.type",)), value_of(c, (f"{prefix}.loss_scale_value", "runner_wrapper.loss_scale_value"), 65536)
    fixed = value_of(c, (prefix,))
    if kind is not UNSET:
        return Dynamic(float(start)) if "dynamic" in str(kind).lower() else float(start)
    if are_numbers(fixed):
        return float(fixed)
    if fixed is not UNSET:  # the built cell, in a record
        scale = float(c.fact("optimizer.loss_scale") or start)
        return Dynamic(scale) if "dynamic" in str(fixed).lower() else scale
    return 1.0 if has(c, "runner_wrapper.") else Dynamic(65536.0)


@mindformers_loss_scale.writer
def loss_scale_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield a loss scale that is fixed, or one that moves from a start."""
    sense = "runner_wrapper.scale_sense"
    if isinstance(request.wanted, Dynamic):
        yield {f"{sense}.type": "DynamicLossScaleUpdateCell", f"{sense}.loss_scale_value": int(request.wanted.start)}
    elif are_numbers(request.wanted):
        yield {sense: float(request.wanted)}


def scale_window_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield the steps after which a moving loss scale is doubled, with all that makes it move where it does not yet."""
    sense = "runner_wrapper.scale_sense"
    start = megatron_loss_scale(request.reference) if request.reference.side == MEGATRON else None
    if f"{sense}.type" in request.candidate.values:
        yield {f"{sense}.scale_window": request.wanted}
    elif isinstance(start, Dynamic):
        moves = {"type": "DynamicLossScaleUpdateCell", "loss_scale_value": int(start.start), "scale_factor": 2}
        yield {f"{sense}.{name}": value for name, value in (moves | {"scale_window": request.wanted}).items()}


def flash_as_built(c: Configuration) -> Setting:
    """Return whether the built model has a flash or fused attention core; None where nothing was recorded."""
    classes = c.fact("classes")
    return None if classes is None else any("flash" in str(name).lower() or "TEDotProduct" in str(name) for name in classes)


def mindformers_flash(c: Configuration) -> Setting:
    """Return whether flash attention computes the attention."""
    built = flash_as_built(c)
    return value_of(c, model("use_flash_attention"), default("use_flash_attention")) if built is None else built


def megatron_flash(c: Configuration) -> Setting:
    """Return whether a flash or fused kernel computes the attention; ``auto`` chooses one on a GPU with Transformer Engine."""
    if (built := flash_as_built(c)) is not None:
        return built
    fast = str(value_of(c, ("attention_backend",), "auto")).rpartition(".")[2] in ("flash", "fused", "auto")
    local = bool(c.fork) or value_of(c, ("transformer_impl",), "transformer_engine") == "local"  # MindSpeed has --use-flash-attn alone
    return bool(value_of(c, ("use_flash_attn",), False) or (fast and not local))


def megatron_router_type(c: Configuration) -> Setting:
    """Return the type that the router computes in; ``--router-gating-in-fp32`` is MindSpeed-LLM's name for float32."""
    return "float32" if value_of(c, ("router_gating_in_fp32",), False) else value_of(c, ("moe_router_dtype",), megatron_compute)


OWN_TYPES: Mapping[str, tuple[tuple[str, ...], Setting]] = {
    "embedding": (model("embedding_init_type"), None),
    "norms": (model("layernorm_compute_type", "layernorm_compute_dtype"), default("layernorm_compute_dtype")),
    "router": ((*model("router_dense_type"), "moe_config.router_dense_type"), default("moe_router_dtype")),
}
"""Kinds of weights with a type of their own in MindFormers: its keys, and its default in older models, None where there is none."""


def own_type(c: Configuration, kind: str) -> Setting:
    """Return the type of a kind of weight by its own keys; None for that of all weights."""
    own, older = OWN_TYPES[kind]
    return None if older is not None and is_new(c) else dtype(value_of(c, own, older))


def held(kind: str) -> Read:
    """Return a reader of the type in which a kind of weight is held and updated, in MindFormers without float32 copies."""
    return lambda c: own_type(c, kind) or mindformers_parameter_type(c)


def held_as_all(kind: str) -> Explain:
    """Return the reason why types of a kind of weight need not agree: it is held in that of all weights, which has a row."""

    def harmless_if(*sides: Configuration) -> Words | None:
        as_all = all_sides(lambda c: c.side != MINDFORMERS or own_type(c, kind) is None, *sides)
        return message("harmless.as_all_weights") if as_all else None

    return harmless_if


HIGH_PRECISION = 'context.set_context(ascend_config={"ge_options": {"global": {"ge.opSelectImplmode": "high_precision"}}})'
HIGH_PRECISION_BY_HAND = message("by_hand.high_precision", command=HIGH_PRECISION)


def megatron_loss_type(c: Configuration) -> Setting:
    """Return the type of the cross entropy: float32 unless ``--fp16-lm-cross-entropy``."""
    return "float16" if value_of(c, ("fp16_lm_cross_entropy",), False) else "float32"


def built_types(c: Configuration) -> Setting:
    """Return the types in which a record's layers compute, by layer; UNSET without a record."""
    layers = c.fact("layers")
    if not isinstance(layers, dict) or not layers:
        return UNSET
    return {name: dtype(layer.get("compute")) for name, layer in layers.items() if isinstance(layer, dict)}


def types_where_both_have_them(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why types need not agree: they do in the layers that both sides have."""
    ours, theirs = built_types(reference), built_types(candidate)
    return message("harmless.same_types") if ours.keys() & theirs.keys() and not _differing(ours, theirs) else None


def _differing(reference: Setting, candidate: Setting) -> list[str]:
    return [name for name in reference if name in candidate and reference[name] != candidate[name]]


def type_differences(reference: Setting, candidate: Setting) -> Words | None:
    """Return which layers compute in other types."""
    if not (names := _differing(reference, candidate)):
        return message("apart.no_layer_in_common")
    first = {"name": names[0], "reference": str(reference[names[0]]), "candidate": str(candidate[names[0]])}
    return message("apart.types_and_more", more=len(names) - 1, **first) if len(names) > 1 else message("apart.types", **first)


def fused_swiglu_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield a fused SwiGLU, which newer models accept with the activation of that name only."""
    yield from one_key(request)
    switch, act = model("bias_swiglu_fusion", "hidden_act")
    if switch in request.keys and request.wanted is True:
        yield {switch: True, act: "swiglu"}


def overlap(c: Configuration) -> Setting:
    """Return which communication runs beside the computation."""
    names = ("overlap_grad_reduce", "overlap_param_gather", "tp_comm_overlap", "overlap_moe_expert_parallel_comm")
    on = tuple(name for name in names if is_on(c, name))
    return Switched(on) if on else None


def megatron_recomputes(c: Configuration) -> Setting:
    """Return what is computed again in the backward pass."""
    return value_of(c, ("recompute_granularity",), lambda c: "selective" if is_on(c, "recompute_activations") else None)


def mindformers_recomputes(c: Configuration) -> Setting:
    """Return what is computed again in the backward pass."""
    full, selective = (value_of(c, (f"recompute_config.{name}",), False) for name in ("recompute", "select_recompute"))
    return "full" if full else "selective" if selective else None
