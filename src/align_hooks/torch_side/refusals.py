"""Refusals of Megatron's arguments under the settings, and the changes that a rehearsal makes, by the arguments only.

The hook on ``parse_args`` uses them before anything is built, and the doctor before a node is allocated. The data are in ``refusals.txt``.
Imports no framework. :mod:`.hooks.model` refuses by the built model, and :mod:`.place` by layouts.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from align_hooks.data_file import sections, setting
from align_hooks.settings import PREFIX, Settings
from align_hooks.torch_side.objects import Argument

Get = Callable[[str], Argument]
"""The value of an argument by the name of its attribute, None where it is not set."""
_TABLES = {head: dict(line.split(" ", 1) for line in lines) for head, lines in sections(Path(__file__).parent / "refusals.txt").items()}
REHEARSAL, CONSTANT_RATE = ({name: setting(text) for name, text in _TABLES[head].items()} for head in ("rehearsal", "constant rate"))
"""Values that a CPU needs, and those without which a learning rate moves."""
NOT_RECOMPUTED = ("moe_act", "layernorm")
"""Values of ``--recompute-modules`` that only Transformer Engine or the grouped matrix product recompute."""
ACCELERATED, NOT_DETERMINISTIC, UNREAD, CUDA_GRAPHS, QUANTIZED = (
    _TABLES[head] for head in ("accelerated", "not deterministic", "unread", "CUDA graphs", "quantized")
)
"""Attribute to flag of refused arguments, by condition."""
ULYSSES = "ulysses_cp_algo"
"""MindSpeed's context parallelism that gives each rank contiguous positions; Megatron's gives it a chunk from either end."""
CHECKPOINT = "latest_checkpointed_iteration.txt"
"""The file that marks a directory as a checkpoint of Megatron."""
SCOPES = ("cuda_graph_impl", "cuda_graph_scope", "cuda_graph_scope_deprecated", "cuda_graph_modules")
"""Arguments, by version, for the part of an iteration in a CUDA graph."""
PACKING = ("sft", "dataloader_inter_document_masking")
"""Arguments with which Megatron's own data sets and scripts pack samples."""
IN_LAYERS = ("activations", "teacher", "routing", "replay_routing")
"""Settings that need Python inside the layers in every step."""


def rehearsal(get: Get) -> dict[str, Argument]:
    """Return the changes for a CPU: :data:`REHEARSAL`, and changes that depend on the arguments' values."""
    changes = dict(REHEARSAL)
    if get("moe_token_dispatcher_type") == "flex":
        changes["moe_token_dispatcher_type"] = "alltoall"
    if get("use_megatron_fsdp"):
        changes["gradient_reduce_div_fusion"] = False  # gloo cannot scale while it adds up
    modules = get("recompute_modules")
    if isinstance(modules, list | tuple) and set(NOT_RECOMPUTED) & set(modules):
        changes["recompute_modules"] = [module for module in modules if module not in NOT_RECOMPUTED] or ["core_attn"]
    return changes


def refusals(settings: Settings, get: Get) -> Iterator[str]:
    """Yield why a run with these arguments is refused, a line each; ``get`` reads the arguments as the user set them."""
    changes = rehearsal(get) if settings.device == "cpu" else {}

    def value(name: str) -> Argument:
        return changes[name] if name in changes else get(name)

    flags = [flag for name, flag in ACCELERATED.items() if value(name)] + captured(value)
    if settings.device == "cpu" and flags:
        yield f"{PREFIX}DEVICE=cpu: {' and '.join(dict.fromkeys(flags))} only an accelerator can follow; leave it out"
    if settings.deterministic and (flags := [flag for name, flag in NOT_DETERMINISTIC.items() if value(name)]):
        yield f"{PREFIX}DETERMINISTIC=1: Megatron's {' and '.join(flags)} is not deterministic; leave it out"
    if settings.run is not None and value("iterations_to_skip") not in (None, []):
        yield "--iterations-to-skip makes steps that train nothing and cannot be recorded; leave it out"
    if settings.run is not None and value("inprocess_restart"):
        yield "--inprocess-restart trains anew inside a process whose record has begun; leave it out, torchrun's own restarts are recorded"
    load = value("load")
    if settings.learning_rate is not None and isinstance(load, str | int) and Path(str(load), CHECKPOINT).exists():
        yield (
            f"{PREFIX}LEARNING_RATE with --load {load}: Megatron finds a checkpoint's parameter groups by their rates; "
            f"give --lr and --min-lr instead, or start from {PREFIX}LOAD_WEIGHTS"
        )
    is_cut = value("transformer_impl") == "local" and _is_several(value("tensor_model_parallel_size"))
    if value("softmax_type") == "learnable" and is_cut:
        yield (
            "--softmax-type learnable under tensor parallelism with --transformer-impl local is wrong in Megatron itself: the norm of "
            "gradients, by which it clips, leaves out the offsets of every rank but the first; use one tensor-parallel rank"
        )
    if value("multi_latent_attention") and is_cut:
        yield (
            "--multi-latent-attention under tensor parallelism with --transformer-impl local is wrong in Megatron itself: the gradients "
            "of the turned part of the keys are not summed over the ranks; use one tensor-parallel rank, or Transformer Engine"
        )
    if value("use_legacy_models"):  # until 0.17
        yield "--use-legacy-models builds no megatron.core model, and only those have canonical names; leave it out"
    yield from unread(value)
    yield from _packed(settings, value)
    if settings.device != "cpu":
        yield from _unreachable(settings, value)


def _unreachable(settings: Settings, get: Get) -> Iterator[str]:
    """Yield why the settings cannot be fulfilled on an accelerator, a line each."""

    if (variables := _asked(settings, "weights", "optimizer_state", "load_weights")) and get("use_precision_aware_optimizer"):
        yield f"--use-precision-aware-optimizer keeps main parameters inside the optimizer, where {variables} cannot reach; leave it out"
    if (variables := _asked(settings, *IN_LAYERS)) and (flags := " and ".join(captured(get))):
        yield f"{flags} replays layers without Python, so that {variables} would see none of their steps; leave it out, or unset these"
    quantized = " and ".join(dict.fromkeys(flag for name, flag in QUANTIZED.items() if get(name)))
    if quantized and (variables := _asked(settings, "load_weights")):
        yield f"{quantized}: {variables} would quantise weights in another way than Megatron's optimizer does; leave out either"


def _asked(settings: Settings, *names: str) -> str:
    return " and ".join(PREFIX + name.upper() for name in names if getattr(settings, name))


def packs(get: Get) -> bool:
    """Return whether Megatron's own data sets and scripts pack samples."""
    return any(get(name) for name in PACKING)


def _packed(settings: Settings, get: Get) -> Iterator[str]:
    """Yield why packed samples are not followed through a layout, a line each."""
    cut, several = _is_several(get("context_parallel_size")), _is_several(get("micro_batch_size"))
    if not packs(get):
        return
    if get("multi_latent_attention") and (variables := _asked(settings, "teacher")):
        yield f"--multi-latent-attention fills the values of packed samples up, which {variables} was not tried with; unset it"
    if cut and settings.device == "cpu":
        yield f"{PREFIX}DEVICE=cpu: packed samples are attended to on one context-parallel rank; leave out --context-parallel-size"
    elif cut and (get("sft") or get("hybrid_context_parallel") or several):
        if variables := _asked(settings, "batches", "replay_batches", *IN_LAYERS):
            yield (
                "--context-parallel-size cuts packed samples by document, or across rows, where a token's place is not known: "
                f"unset {variables}, everything else is recorded"
            )
    elif several and get("sequence_parallel") and (variables := _asked(settings, *IN_LAYERS)):
        yield f"--sequence-parallel cuts packed samples across rows: use --micro-batch-size 1, or unset {variables}"


def captured(get: Get) -> list[str]:
    """Return the flags with which CUDA graphs replay layers."""
    return [flag for name, flag in CUDA_GRAPHS.items() if get(name) not in (None, False, "none")]


def unread(get: Get) -> Iterator[str]:
    """Yield why shards or gradients would not be where this version reads them, a line each."""
    fsdp = get("use_megatron_fsdp")
    flags = [flag for name, flag in UNREAD.items() if get(name) and not (name == "use_custom_fsdp" and fsdp)]  # 0.19 sets both
    hybrid = fsdp and get("data_parallel_sharding_strategy") == "optim_grads_params"
    if _is_several(get("num_distributed_optimizer_instances")) and not hybrid:
        flags.append("--num-distributed-optimizer-instances above 1")
    if fsdp and get("outer_dp_sharding_strategy") not in (None, "no_shard"):
        flags.append(f"--outer-dp-sharding-strategy {get('outer_dp_sharding_strategy')}")
    if (name := str(get("optimizer"))).startswith("dist_"):  # 0.19 alone was tried, where this is the old name
        flags.append(f"--optimizer {name} (0.19 has it as --optimizer {name.removeprefix('dist_')} --use-distributed-optimizer)")
    if get("schedules_method") == "dualpipev":  # MindSpeed: both ends of the model are on the first stage
        flags.append("--schedules-method dualpipev")
    if re.search(r"full_iteration\b", " ".join(str(get(name)) for name in SCOPES)):
        flags.append("a CUDA graph of the whole iteration, inside which nothing can be seen")
    if flags:
        yield f"this version does not read gradients and weights as they are kept with {', '.join(flags)}; leave it out"
    algorithm = get("context_parallel_algo") if _is_several(get("context_parallel_size")) else None
    if algorithm not in (None, ULYSSES):
        yield f"MindSpeed's --context-parallel-algo {algorithm} was never tried; give {ULYSSES}, or --context-parallel-size 1"
    if algorithm and get("reset_position_ids"):
        yield "--reset-position-ids: MindSpeed cuts the sequence in ways that only position ids tell, and these begin anew; leave it out"


def _is_several(value: Argument) -> bool:
    return isinstance(value, int) and value > 1
