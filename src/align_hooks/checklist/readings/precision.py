"""Types that things are computed, added up and held in, loss scales and kernels, as each side works them out."""

from __future__ import annotations

from typing import Any

from align_hooks.checklist.defaults import default
from align_hooks.checklist.meaning import Dynamic, Words
from align_hooks.checklist.readings.said import has, known, number, said
from align_hooks.checklist.row import UNSET, dtype, is_new, model
from align_hooks.configuration.values import Configuration
from align_hooks.messages import message


def megatron_compute(c: Configuration) -> Any:
    """bfloat16 with ``--bf16``, float16 with ``--fp16``, else float32 (the guide says float16, which is a mistake)."""
    return "bfloat16" if said(c, ("bf16",), False) is True else "float16" if said(c, ("fp16",), False) is True else "float32"


def mindformers_compute(c: Configuration) -> Any:
    """``compute_dtype``."""
    return dtype(said(c, model("compute_dtype"), default("compute_dtype")))


def megatron_gradient_type(c: Configuration) -> Any:
    """What gradients are added up and reduced in."""
    compute = megatron_compute(c)
    asked, lower = said(c, ("accumulate_allreduce_grads_in_fp32",), False), said(c, ("grad_reduce_in_bf16",), False)
    main = dtype(said(c, ("main_grads_dtype",), "float32"))
    if compute == "bfloat16":
        return "bfloat16" if lower or main != "float32" else "float32"
    return "float16" if compute == "float16" and not asked else "float32"


def mindformers_parameter_type(c: Configuration) -> Any:
    """What weights are held in, which their gradients are reduced in too."""
    return dtype(said(c, model("param_init_type", "params_dtype"), default("params_dtype")))


def megatron_softmax_type(c: Configuration) -> Any:
    """float32 where it is asked for, in a fused or flash kernel, or where everything is; else the compute type."""
    flash = megatron_flash(c)
    fused = said(c, ("masked_softmax_fusion",), True)
    asked = said(c, ("attention_softmax_in_fp32",), False) or said(c, ("apply_query_key_layer_scaling",), False)
    return "float32" if asked or flash or fused else megatron_compute(c)


def mindformers_softmax_type(c: Configuration) -> Any:
    """float32 in a flash kernel; else ``softmax_compute_dtype``."""
    given = dtype(said(c, model("softmax_compute_type", "softmax_compute_dtype"), default("softmax_compute_dtype")))
    return "float32" if said(c, model("use_flash_attention"), default("use_flash_attention")) is True else given


def megatron_residual(c: Configuration) -> Any:
    """What the residual is added in."""
    return "float32" if said(c, ("fp32_residual_connection",), False) else megatron_compute(c)


def mindformers_residual(c: Configuration) -> Any:
    """The same; ``residual_dtype`` in older models."""
    older = dtype(said(c, model("residual_dtype")))
    if older is not UNSET:
        return older
    return "float32" if said(c, model("fp32_residual_connection"), False) else mindformers_compute(c)


def megatron_router_type(c: Configuration) -> Any:
    """What the router computes in; the compute type where nothing is said."""
    return dtype(said(c, ("moe_router_dtype",), megatron_compute))


def mindformers_router_type(c: Configuration) -> Any:
    """``moe_router_dtype`` or ``router_dense_type``; the latter's float16 becomes float32 in older models."""
    found = dtype(said(c, (*model("router_dense_type", "moe_router_dtype"), "moe_config.router_dense_type"), default("moe_router_dtype")))
    return "float32" if found == "float16" and not is_new(c) else found


def megatron_loss_scale(c: Configuration) -> Any:
    """A fixed number, or where a dynamic one starts."""
    given = said(c, ("loss_scale",), None)
    if given is not None:
        return float(given)
    return Dynamic(float(number(c, ("initial_loss_scale",), 2**32))) if megatron_compute(c) == "float16" else 1.0


def mindformers_loss_scale(c: Configuration) -> Any:
    """``scale_sense``: a number, or a cell that moves it."""
    prefix = "runner_wrapper.scale_sense"
    kind, start = said(c, (f"{prefix}.type",)), number(c, (f"{prefix}.loss_scale_value", "runner_wrapper.loss_scale_value"), 65536)
    fixed = number(c, (prefix,))
    c.find((f"{prefix}.scale_factor",))
    if kind is not UNSET:
        return Dynamic(float(start)) if "dynamic" in str(kind).lower() else float(start)
    if known(fixed):
        return float(fixed)
    if fixed is not UNSET:  # the built cell, in a record
        held = c.fact("optimizer.loss_scale") or start
        return Dynamic(float(held)) if "dynamic" in str(fixed).lower() else float(held)
    return 1.0 if has(c, "runner_wrapper.") else Dynamic(65536.0)


def flash_as_built(c: Configuration) -> Any:
    """Whether the built model has a flash or fused attention core; None where nothing was recorded."""
    classes = c.fact("classes")
    return None if classes is None else any("flash" in str(one).lower() or "TEDotProduct" in str(one) for one in classes)


def mindformers_flash(c: Configuration) -> Any:
    """Whether flash attention computes the attention."""
    built = flash_as_built(c)
    return said(c, model("use_flash_attention"), default("use_flash_attention")) if built is None else built


def megatron_flash(c: Configuration) -> Any:
    """Whether a flash or fused kernel computes the attention; ``auto`` chooses one on a GPU with Transformer Engine."""
    built = flash_as_built(c)
    if built is not None:
        return built
    backend = str(said(c, ("attention_backend",), "auto")).rpartition(".")[2]
    local = said(c, ("transformer_impl",), "transformer_engine") == "local"
    asked = said(c, ("use_flash_attn",), False)
    return bool(asked or (backend in ("flash", "fused", "auto") and not local))


def mindformers_embedding(c: Configuration) -> Any:
    """What the embedding is held and looked up in."""
    own = dtype(said(c, model("embedding_init_type")))
    return own if own is not UNSET and own is not None else mindformers_parameter_type(c)


def megatron_loss_type(c: Configuration) -> Any:
    """Logits are cast to float32 before the cross entropy unless ``--fp16-lm-cross-entropy``."""
    return "float16" if said(c, ("fp16_lm_cross_entropy",), False) else "float32"


def built_types(c: Configuration) -> Any:
    """Kind of weight to the type that it is computed with, as a record holds it; UNSET for a configuration alone."""
    layers = c.fact("layers")
    if not isinstance(layers, dict) or not layers:
        return UNSET
    return {name: dtype(one.get("compute")) for name, one in layers.items() if isinstance(one, dict)}


def types_where_both_have_them(one: Configuration, other: Configuration) -> Words | None:
    """Layers that one side lacks are no difference of types."""
    ours, theirs = built_types(one), built_types(other)
    shared = ours.keys() & theirs.keys()
    return message("harmless.same_types") if shared and all(ours[name] == theirs[name] for name in shared) else None


def told_types(one: Any, other: Any) -> Words | None:
    """Which layers compute in other types."""
    shared = [name for name in one if name in other and one[name] != other[name]]
    if not shared:
        return message("apart.no_layer_in_common")
    first = {"name": shared[0], "reference": str(one[shared[0]]), "candidate": str(other[shared[0]])}
    return message("apart.types_and_more", more=len(shared) - 1, **first) if len(shared) > 1 else message("apart.types", **first)
