"""Refusals of MindFormers' configuration under the settings, by the configuration only.

The hook on ``build_context`` uses them before anything is built, and the doctor before a node is allocated. Imports no framework.
:mod:`.model` refuses by the built model, and :mod:`.place` by layouts.
"""

from collections.abc import Callable, Iterator, Mapping

from packaging.version import Version

from align_hooks.families.registry import FAMILIES
from align_hooks.quantities.local_norms import POINT
from align_hooks.settings import PREFIX, Settings

Get = Callable[[str], object]
"""Dotted key to its value, None where it is not set."""
TRAINS = (None, "train", "finetune")
"""Values of ``run_mode`` in a process that will train. Other processes run without hooks, unless a side's launcher started them."""
CONSTANT = (None, "ConstantWarmUpLR", "constant_with_warmup")
"""Schedules without a length; the last is MindFormers' other name for the second."""
PYNATIVE_MODE = (1, "PYNATIVE_MODE")
"""Values of ``context.mode`` for which 1.9 and later build newer models of another kind, which its other trainer trains."""
OF_PYNATIVE = ("training", "lr_scheduler", "parallelism")
"""Sections of a YAML for the PyNative trainer."""
REHEARSAL = {"context.device_target": "CPU", "runner_config.sink_mode": False, "model.model_config.use_flash_attention": False}
NOT_ON_A_CPU = ("model.model_config.use_attn_mask_compression", "monitor_config.monitor_on")
"""Switches that a rehearsal turns off: the compressed causal mask, for flash attention only, and the monitor, which uses TensorDump."""
OF_A_PART = ("tensor_parallel", "context_parallel", "pipeline_parallel", "expert_parallel")
"""Sizes in the section ``parallelism``."""
UNTRIED = {"train_dataset.balance_enabled": True, "parallelism.cpu_offload": True, "parallelism.disable_gradient_division": False}
"""Values that change which rows a rank is given, where its gradients lie, and what they are divided by."""
COMPRESSED_DOCUMENTS = ("model.model_config.use_eod_attn_mask_compression", "train_dataset.data_loader.config.create_compressed_eod_mask")
"""Switches of the compressed mask that separates documents, for flash attention only."""
REHEARSAL_OF_OLDER = {"model.model_config.fused_rms_norm": False, "model.model_config.use_rope_slice": True}
"""A CPU's values, with the same mathematics, of keys that only older models have; :mod:`.rehearsal` adapts newer models."""


def refusals(settings: Settings, get: Get, mindspore: str) -> Iterator[str]:
    """Yield why a run with this configuration is refused on a version of MindSpore, a line each; ``get`` reads the YAML."""
    if settings.any_set() and (sections := [name for name in OF_PYNATIVE if get(name) is not None]):
        yield f"the YAML has {', '.join(sections)}, which only MindFormers' PyNative trainer reads; train with --mode 1"
    elif settings.any_set() and get("use_legacy") is False and get("context.mode") in PYNATIVE_MODE:
        yield (
            f"context.mode is {get('context.mode')}: the static graph's trainer was tried in GRAPH_MODE alone; "
            f"set mode: 0 in the YAML, or write one for the PyNative trainer and train with --mode 1"
        )
    if settings.device == "cpu":
        yield from _of_a_cpu(get, mindspore)
    elif get("runner_config.sink_mode"):  # the batch goes past the host, which sees one value a sink
        yield "runner_config.sink_mode is on: batches and steps inside a sink cannot be seen; set sink_mode: False in the YAML"
    if settings.run is not None and get("use_skip_data_by_global_norm"):
        yield "use_skip_data_by_global_norm skips updates that nobody sees; set it to False in the YAML"
    if settings.replay_batches is not None and settings.learning_rate is None and get("lr_schedule.type") not in CONSTANT:
        total = get("lr_schedule.total_steps")
        if total in (None, -1):
            yield (
                f"{PREFIX}REPLAY_BATCHES: lr_schedule.total_steps is {total}, so the schedule would follow the data's length; "
                f"set total_steps in the YAML, or {PREFIX}LEARNING_RATE"
            )


def pynative_refusals(settings: Settings, get: Get, ranks: int | None) -> Iterator[str]:
    """Yield why a run of the PyNative trainer is refused, a line each; ``get`` reads its YAML, by its own keys.

    ``ranks`` is None where their number is not known."""
    kind, graph = get("model.model_type"), {built.model_type for family in FAMILIES for built in family.mindformers}
    if kind in graph - {built.model_type for family in FAMILIES for built in family.pynative}:
        yield (
            f"model.model_type is {kind}, of which MindFormers has no PyNative model and builds its static graph's; "
            f"train it by the static graph, with --mode 0"
        )
    cut = {name: size for name in OF_A_PART if (size := get(f"parallelism.{name}")) not in (None, 1)}
    if ranks != 1:
        yield from _of_several_ranks(settings, get, cut, are_known=ranks is not None)
    else:
        yield from (f"parallelism.{name} is {size} in a job of one rank; set it to 1" for name, size in cut.items())
    if get("lora_config") is not None:
        yield "lora_config adds parameters that no family names; take the section out of the YAML"
    if get("model.calculate_per_token_loss"):
        yield "model.calculate_per_token_loss gives the trainer a sum for a mean, which was not tried; take it out of the YAML"
    if (variant := get("model.experimental_attention_variant")) not in (None, "dsv4_hybrid"):
        yield f"model.experimental_attention_variant is {variant}, which was not tried; train a model without it, or unset the variables"
    if get("model.params_dtype") not in (None, "float32", "fp32") and settings.device != "cpu":
        yield (
            f"model.params_dtype is {get('model.params_dtype')}: the optimizer updates copies in fp32, which this version does not read; "
            f"set it to float32 (compute_dtype may stay)"
        )
    if get("training.rampup_batch_size") is not None:
        yield "training.rampup_batch_size changes the rows of a step, which was not tried; take it out of the YAML"
    if settings.device == "cpu" and "bfloat16" in (get("model.compute_dtype"), get("model.params_dtype")):
        yield f"{PREFIX}DEVICE=cpu: MindSpore has no bfloat16 on a CPU; set compute_dtype and params_dtype to float32 in the YAML"


def _of_several_ranks(settings: Settings, get: Get, cut: Mapping[str, object], *, are_known: bool) -> Iterator[str]:
    """Yield why a job of several ranks of the PyNative trainer is refused; ``cut`` are the sizes in ``parallelism`` that are not 1.

    Without ``are_known`` there may be one rank."""
    for name in ("context_parallel", "pipeline_parallel"):
        if name in cut:
            yield (
                f"parallelism.{name} is {cut[name]}: of the PyNative trainer this version reads data-, tensor- and expert-parallel ranks; "
                f"set it to 1, or unset the variables"
            )
    for name, value in UNTRIED.items():
        if get(name) is value and (cut or are_known):
            yield f"{name} is {value}, which was not tried with several ranks of the PyNative trainer; set it to {not value}"
    asked = [name for name in ("routing", "replay_routing", "activations", "teacher") if getattr(settings, name)]
    if "tensor_parallel" in cut and asked:
        yield (
            f"{', '.join(PREFIX + name.upper() for name in asked)}: under parallelism.tensor_parallel: {cut['tensor_parallel']} each rank "
            f"sees a part of every sequence, which this version does not join; unset it"
        )
    if settings.choice(POINT) == "local" and (cut or are_known):
        yield f"{PREFIX}LOCAL_NORMS_POINT=local: several ranks of the PyNative trainer reduce gradients where they are made; unset it"


def rehearsal(get: Get, *, newer: bool) -> dict[str, object]:
    """Return the values that a CPU needs in a configuration."""
    return REHEARSAL | ({} if newer else REHEARSAL_OF_OLDER) | {key: False for key in NOT_ON_A_CPU if get(key)}


def _of_a_cpu(get: Get, mindspore: str) -> Iterator[str]:
    if str(get("model.model_config.compute_dtype")).endswith("bfloat16"):
        yield f"{PREFIX}DEVICE=cpu: MindSpore has no bfloat16 on a CPU; set compute_dtype: float32 in the YAML"
    if any(map(get, COMPRESSED_DOCUMENTS)):
        yield (
            f"{PREFIX}DEVICE=cpu: a compressed mask that keeps documents apart needs flash attention; set "
            "create_compressed_eod_mask: False, and create_attention_mask: True with reset_attention_mask: True in the YAML"
        )
    # Its SplitWithSize has no kernel there; from 2.9 on it has.
    if get("model.model_config.qkv_concat") and mindspore and Version(mindspore).release < (2, 9):
        yield f"{PREFIX}DEVICE=cpu: MindSpore {mindspore} has no kernel that splits fused projections; set qkv_concat: False in the YAML"
