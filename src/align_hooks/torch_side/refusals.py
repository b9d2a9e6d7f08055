"""What of Megatron's arguments a run under the settings refuses, and what a rehearsal changes, told from the arguments alone.

The hook on ``parse_args`` asks before anything is built, and the doctor asks of a launch script before a node is taken, so both say the
same. Imports no framework. What only the built model tells is refused by :mod:`.model`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from align_hooks.settings import PREFIX, Settings

Get = Callable[[str], Any]
"""The value of an argument by the name of its attribute, None where it is not set."""

REHEARSAL: Mapping[str, Any] = {
    "transformer_impl": "local",
    "distributed_backend": "gloo",
    "use_cpu_initialization": True,
    "masked_softmax_fusion": False,
    "bias_swiglu_fusion": False,
    "bias_dropout_fusion": False,
    "apply_rope_fusion": False,
    "gradient_accumulation_fusion": False,
    "no_persist_layer_norm": True,
    "cross_entropy_loss_fusion": False,
    "tp_comm_overlap": False,
    "fp8_param_gather": False,
    "delay_wgrad_compute": False,
    "fine_grained_activation_offloading": False,
    "use_te_activation_func": False,
    "te_rng_tracker": False,
    "use_nccl_ub": False,
    "use_sharp": False,
    "moe_enable_deepep": False,
    "moe_grouped_gemm": False,
    "moe_permute_fusion": False,
    "moe_router_fusion": False,
    "moe_single_grouped_weight": False,
    "moe_single_grouped_bias": False,
}
"""What a CPU needs of Megatron's arguments; the mathematics is the same. Which of them there are depends on the version."""

NOT_RECOMPUTED = ("moe_act", "layernorm")
"""Of ``--recompute-modules``, those that only Transformer Engine or the grouped matrix product recompute."""

ACCELERATED: Mapping[str, str] = {
    "fp8": "--fp8-format",
    "fp4": "--fp4-format",
    "apply_layernorm_1p": "--apply-layernorm-1p",
    "layernorm_zero_centered_gamma": "--apply-layernorm-1p",
    "use_precision_aware_optimizer": "--use-precision-aware-optimizer",
    "enable_cuda_graph": "--enable-cuda-graph",
    "external_cuda_graph": "--external-cuda-graph",
}
"""Arguments that no CPU can follow, and no other way of computing the same is at hand; the second spelling is that of newer versions."""

NOT_DETERMINISTIC: Mapping[str, str] = {
    "cross_entropy_loss_fusion": "--cross-entropy-loss-fusion",
    "tp_comm_overlap": "--tp-comm-overlap",
}

UNREAD: Mapping[str, str] = {
    "use_torch_fsdp2": "--use-torch-fsdp2",
    "use_megatron_fsdp": "--use-megatron-fsdp",
    "use_custom_fsdp": "--use-custom-fsdp",
    "use_layer_wise_distributed_optimizer": "the layer-wise distributed optimizer",
    "optimizer_cpu_offload": "--optimizer-cpu-offload",
    "optimizer_cuda_graph": "--optimizer-cuda-graph",
    "layerzero": "--layerzero",  # MindSpeed from here: fully sharded
    "reuse_fp32_param": "--reuse-fp32-param",  # main parameters lie in the model's own memory, as two halves, between updates
    "quant_states": "--quant-states",
    "quant_grads": "--quant-grads",
    "swap_optimizer": "--swap-optimizer",  # to the host
    "tp_2d": "--tp-2d",  # cut along two axes
}
"""Attribute of Megatron's arguments to the flag of what keeps gradients or main parameters where this version does not look."""

GRAPHS = ("cuda_graph_impl", "cuda_graph_scope", "cuda_graph_scope_deprecated")
"""What says how much of an iteration a CUDA graph takes in, by version."""


def rehearsal(get: Get) -> dict[str, Any]:
    """What a CPU needs of these arguments: :data:`REHEARSAL`, and what depends on their values."""
    changes = dict(REHEARSAL)
    if get("moe_token_dispatcher_type") == "flex":
        changes["moe_token_dispatcher_type"] = "alltoall"
    modules = get("recompute_modules")
    if isinstance(modules, list | tuple) and set(NOT_RECOMPUTED) & set(modules):
        changes["recompute_modules"] = [one for one in modules if one not in NOT_RECOMPUTED] or ["core_attn"]
    return changes


def refusals(settings: Settings, get: Get) -> Iterator[str]:
    """Why a run with these arguments is refused, one line each; ``get`` gives them as they were said."""
    changes = rehearsal(get) if settings.device == "cpu" else {}

    def said(name: str) -> Any:
        return changes[name] if name in changes else get(name)

    flags = [flag for name, flag in ACCELERATED.items() if said(name)]
    flags += ["--cuda-graph-impl"] if said("cuda_graph_impl") not in (None, "none") else []
    if settings.device == "cpu" and flags:
        yield f"{PREFIX}DEVICE=cpu: {' and '.join(dict.fromkeys(flags))} only an accelerator can follow; leave it out"
    if settings.deterministic and (flags := [flag for name, flag in NOT_DETERMINISTIC.items() if said(name)]):
        yield f"{PREFIX}DETERMINISTIC=1: Megatron's {' and '.join(flags)} is not deterministic; leave it out"
    if settings.run is not None and said("iterations_to_skip") not in (None, []):
        yield "--iterations-to-skip makes steps that train nothing and cannot be recorded; leave it out"
    load = said("load")
    if settings.learning_rate is not None and isinstance(load, str | int) and _is_checkpoint(Path(str(load))):
        yield (
            f"{PREFIX}LEARNING_RATE with --load {load}: Megatron finds a checkpoint's parameter groups by their rates; "
            f"give --lr and --min-lr instead, or start from {PREFIX}LOAD_WEIGHTS"
        )
    if said("use_legacy_models"):  # until 0.17
        yield "--use-legacy-models builds no megatron.core model, and only those have canonical names; leave it out"
    yield from unread(said)
    asked = [PREFIX + name.upper() for name in ("weights", "optimizer_state", "load_weights") if getattr(settings, name)]
    if asked and settings.device != "cpu" and said("use_precision_aware_optimizer"):
        yield (
            f"--use-precision-aware-optimizer keeps main parameters inside the optimizer, where {' and '.join(asked)} cannot reach; "
            f"leave it out"
        )


def _is_checkpoint(folder: Path) -> bool:
    return (folder / "latest_checkpointed_iteration.txt").exists()


def unread(said: Get) -> Iterator[str]:
    """Why shards or gradients would not be where this version looks."""
    flags = [flag for name, flag in UNREAD.items() if said(name)]
    if _is_several(said("num_distributed_optimizer_instances")):
        flags.append("--num-distributed-optimizer-instances above 1")
    if str(said("optimizer")).startswith("dist_"):  # layers' main parameters are on one rank each
        flags.append(f"--optimizer {said('optimizer')}")
    if said("schedules_method") == "dualpipev":  # MindSpeed: both ends of the model are on the first stage
        flags.append("--schedules-method dualpipev")
    if "full_iteration" in " ".join(str(said(name)) for name in GRAPHS):
        flags.append("a CUDA graph of the whole iteration, inside which nothing can be seen")
    if flags:
        yield f"this version does not read gradients and weights as they are kept with {', '.join(flags)}; leave it out"
    if _is_several(said("context_parallel_size")) and said("context_parallel_algo") and said("reset_position_ids"):
        yield "--reset-position-ids: MindSpeed cuts the sequence in ways that only position ids tell, and these begin anew; leave it out"


def _is_several(value: Any) -> bool:
    return isinstance(value, int) and value > 1
