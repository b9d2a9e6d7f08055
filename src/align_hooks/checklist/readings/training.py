"""Optimizer, batches, parallel layout and length of a run, as each side works them out."""

from __future__ import annotations

import math
from typing import Any

from align_hooks.checklist.meaning import Optimizer, OwnRates, Words
from align_hooks.checklist.readings.said import has, known, number, said
from align_hooks.checklist.row import UNSET, numeric, text
from align_hooks.configuration.values import MINDFORMERS, Configuration
from align_hooks.messages import message

GROUPED = "grouped_lr_schedule.default."


def megatron_optimizer(c: Configuration) -> Any:
    """Megatron's ``adam`` decays weights apart from the gradient: it is AdamW."""
    name = text(said(c, ("optimizer",), "adam"))
    return "adamw" if name == "adam" else name


def mindformers_optimizer(c: Configuration) -> Any:
    """The kind of optimizer, whatever implementation computes it."""
    if c.fact("optimizer.groups.0.bias_correction") is False:
        return Optimizer.ADAMW_UNCORRECTED
    name = said(c, ("optimizer.type",), "AdamW")
    families: dict[str, str | Optimizer] = {
        "adamw": "adamw",
        "fp32stateadamweightdecay": Optimizer.ADAMW_UNCORRECTED,
        "fusedadamw": "adamw",
        "fusedadamweightdecay": "adamw",
        "adamweightdecay": Optimizer.ADAMW_UNCORRECTED,
        "fusedcastadamweightdecay": Optimizer.ADAMW_UNCORRECTED,
        "pma_adamw": "adamw",
        "adam": Optimizer.ADAM_COUPLED,
    }
    return families.get(str(name).lower(), text(name))


def betas(c: Configuration, at: int) -> Any:
    """One of MindFormers' two betas; older optimizers name them apart."""
    pair, alone = said(c, ("optimizer.betas",)), number(c, (f"optimizer.beta{at + 1}",))
    if alone is not UNSET:
        return alone
    if pair is UNSET:
        return (0.9, 0.999)[at]
    return pair[at] if isinstance(pair, list | tuple) and len(pair) == 2 else UNSET


def mindformers_eps(c: Configuration) -> Any:
    """``eps``; those optimizers that correct no bias have another default."""
    return number(c, ("optimizer.eps",), 1e-6 if mindformers_optimizer(c) == Optimizer.ADAMW_UNCORRECTED else 1e-8)


def mindformers_clip(c: Configuration) -> Any:
    """The norm that gradients are clipped to, 0 where they are not: ``use_clip_grad`` and ``max_grad_norm``."""
    piped = number(c, ("parallel_config.pipeline_stage",), 1) > 1 or number(c, ("runner_config.gradient_accumulation_steps",), 1) > 1
    kind = str(said(c, ("runner_wrapper.type",), ""))
    by_default = piped or "Pipeline" in kind or not has(c, "runner_wrapper.")
    on = said(c, ("runner_wrapper.use_clip_grad",), by_default)
    norm = number(c, ("runner_wrapper.max_grad_norm", "runner_wrapper.clip_grad"), 1.0)
    return (float(norm) if known(norm) else norm) if on else 0.0


def megatron_data_parallel(c: Configuration) -> Any:
    """The data-parallel size: of a record as it was, of a script the launcher's processes over the other sizes."""
    recorded = said(c, ("data_parallel_size",))
    processes, nodes = said(c, ("launcher.nproc_per_node",)), said(c, ("launcher.nnodes",), 1)
    sizes = [said(c, (name,), 1) for name in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")]
    if recorded is not UNSET or not known(processes, nodes, *sizes):
        return recorded
    return processes * nodes // math.prod(sizes)


def megatron_cards(c: Configuration) -> Any:
    """The processes of a run: of a record as they were, of a script the launcher's."""
    recorded, processes, nodes = said(c, ("world_size",)), said(c, ("launcher.nproc_per_node",)), said(c, ("launcher.nnodes",), 1)
    return recorded if recorded is not UNSET or not known(processes, nodes) else processes * nodes


def megatron_global_batch(c: Configuration) -> Any:
    """``--global-batch-size``, or one micro-batch a data-parallel rank."""
    given, micro, ranks = said(c, ("global_batch_size",)), said(c, ("micro_batch_size",)), megatron_data_parallel(c)
    return micro * ranks if given is UNSET and known(micro, ranks) else given


def alone_on_the_tensor(one: Configuration, other: Configuration) -> Words | None:
    """Sequence parallelism cuts among tensor-parallel ranks; Megatron switches it off where there is one."""
    sizes = [number(c, ("tensor_model_parallel_size", "parallel_config.model_parallel"), 1) for c in (one, other)]
    return message("harmless.not_cut") if sizes == [1, 1] else None


def is_data_parallel(c: Configuration) -> bool:
    """Whether MindFormers' parallel mode is data parallelism alone; where none is said it is semi-automatic."""
    return said(c, ("parallel.parallel_mode",), 1) in (0, "DATA_PARALLEL", "data_parallel")


def mindformers_data_parallel(c: Configuration) -> Any:
    """The data-parallel size: configured where sharding is semi-automatic, else every device."""
    if is_data_parallel(c):
        return number(c, ("device_num",), 1 if said(c, ("use_parallel",), False) is False else UNSET)
    return number(c, ("parallel_config.data_parallel",), 1)


def mindformers_cards(c: Configuration) -> Any:
    """The devices of a run: every way of splitting it, multiplied."""
    if said(c, ("use_parallel",), False) is False:
        return 1
    sizes = [number(c, (f"parallel_config.{name}",), 1) for name in ("model_parallel", "pipeline_stage", "context_parallel")]
    ranks = mindformers_data_parallel(c)
    alone = is_data_parallel(c)
    return ranks if alone else math.prod([ranks, *sizes]) if known(ranks, *sizes) else UNSET


def does_not_accumulate(c: Configuration) -> bool:
    """Whether MindFormers trains without semi-automatic parallelism, where it takes ``gradient_accumulation_steps`` for 1."""
    return said(c, ("use_parallel",), True) is False or is_data_parallel(c)


def accumulated(c: Configuration) -> Any:
    """Micro-batches whose gradients MindFormers adds up, without a pipeline."""
    return 1 if does_not_accumulate(c) else number(c, ("runner_config.gradient_accumulation_steps",), 1)


def mindformers_global_batch(c: Configuration) -> Any:
    """``base_trainer``'s product: batch × data parallel × micro-batches × interleaved copies × accumulation."""
    recorded = c.fact("training.global_batch_size")
    if recorded is not None:
        return recorded
    batch, ranks = number(c, ("runner_config.batch_size",), 1), mindformers_data_parallel(c)
    piped = number(c, ("parallel_config.pipeline_stage",), 1) > 1
    micro = number(c, ("parallel_config.micro_batch_num",), 1)
    copies, added = number(c, ("micro_batch_interleave_num",), 1), accumulated(c)
    if not known(batch, ranks, micro, copies, added):
        return UNSET
    return int(batch * ranks * copies * (micro if piped else added))


def megatron_micro_batches(c: Configuration) -> Any:
    """Micro-batches of a step on one rank."""
    whole, micro, ranks = megatron_global_batch(c), said(c, ("micro_batch_size",)), megatron_data_parallel(c)
    return whole // (micro * ranks) if known(whole, micro, ranks) and micro * ranks else UNSET


def mindformers_micro_batches(c: Configuration) -> Any:
    """The same: of a pipeline ``micro_batch_num``, else accumulation steps."""
    piped = number(c, ("parallel_config.pipeline_stage",), 1) > 1
    return number(c, ("parallel_config.micro_batch_num",), 1) if piped else accumulated(c)


def mindformers_micro_batch(c: Configuration) -> Any:
    """Rows of one micro-batch on one rank. Training overwrites ``runner_config.batch_size``; a record holds what was meant."""
    recorded = c.fact("training.micro_batch_size")
    return recorded if recorded is not None else number(c, ("runner_config.batch_size",), 1)


def mindformers_steps(c: Configuration) -> Any:
    """Updates of the whole run: samples over the global batch, times epochs."""
    recorded = c.fact("training.train_steps")
    if recorded is not None:
        return recorded
    sizes, batch, epochs = (
        said(c, ("train_dataset.data_loader.sizes",)),
        mindformers_global_batch(c),
        number(c, ("runner_config.epochs",), 1),
    )
    if isinstance(sizes, list) and sizes and known(sizes[0], batch, epochs) and batch:
        return int(sizes[0] // batch * epochs)
    total = number(c, schedule_keys("total_steps"))
    return int(total) if known(total) and total > 0 else UNSET


def megatron_steps(c: Configuration) -> Any:
    """``--train-iters``, or ``--train-samples`` over the global batch."""
    steps, samples, batch = said(c, ("train_iters",)), said(c, ("train_samples",)), megatron_global_batch(c)
    return samples // batch if steps is UNSET and known(samples, batch) and batch else steps


def mindformers_split(c: Configuration) -> Any:
    """How documents are split over training, validation and test, as numbers that add up to one."""
    return _shares(said(c, ("train_dataset.data_loader.config.split",)))


def megatron_split(c: Configuration) -> Any:
    """The same."""
    return _shares(said(c, ("split",)))


def _shares(value: Any) -> Any:
    if value is UNSET or value is None:
        return UNSET
    numbers = [numeric(one.strip()) for one in str(value).strip("[]()'\"").split(",") if one.strip()]
    if not numbers or not known(*numbers) or not sum(numbers):
        return value
    return [round(one / sum(numbers), 9) for one in (*numbers, 0, 0)[:3]]


def mindformers_averages(c: Configuration) -> Any:
    """Whether gradients are averaged over data-parallel ranks: always inside a semi-automatic graph, else as ``gradients_mean`` says."""
    summed = c.fact("training.gradients_summed_over_ranks")
    if summed is not None:
        return not summed
    alone = said(c, ("use_parallel",), False) is False or mindformers_data_parallel(c) == 1
    whole = not is_data_parallel(c)
    return True if alone or whole else bool(said(c, ("parallel.gradients_mean",), False))


def loads(c: Configuration) -> Any:
    """Where the weights come from; nothing where they are made at random."""
    found = c.fact("settings.load_weights")
    if found:
        return found
    names = ("load_checkpoint", "checkpoint.load_path") if c.side == MINDFORMERS else ("load", "pretrained_checkpoint")
    return next((value for name in names for value in [said(c, (name,), None)] if value and value is not True), None)


def weights_loaded(one: Configuration, other: Configuration) -> Words | None:
    """Initial weights that are not used."""
    if one.fact("settings.load_weights") or other.fact("settings.load_weights"):
        return message("harmless.recorded_weights")
    return message("harmless.both_load") if loads(one) and loads(other) else None


def megatron_decay_length(c: Configuration) -> Any:
    """``--lr-decay-iters``, ``--lr-decay-samples`` over the global batch, or the whole run."""
    samples, batch = number(c, ("lr_decay_samples",), None), megatron_global_batch(c)
    if samples is not None:
        return samples / batch if known(samples, batch) and batch else UNSET
    return said(c, ("lr_decay_iters",), megatron_steps)


def rates_of_groups(c: Configuration) -> Any:
    """Schedules of groups of parameters that are not the schedule of the rest; None where all are."""
    groups = said(c, ("grouped_lr_schedule.grouped",), None)
    if not isinstance(groups, list):
        return groups
    whole = {name.removeprefix(GROUPED): value.value for name, value in c.values.items() if name.startswith(GROUPED)}
    own = [{key: value for key, value in group.items() if key != "params"} for group in groups if isinstance(group, dict)]
    return None if own and all(one == whole for one in own) else OwnRates(len(groups))


def schedule_keys(name: str) -> tuple[str, str]:
    """A setting of the schedule: ``grouped_lr_schedule`` wins where there is one."""
    return (f"{GROUPED}{name}", f"lr_schedule.{name}")


def megatron_warmup(c: Configuration) -> Any:
    """Steps of warm-up: given, or a part of the schedule's length."""
    part, length = number(c, ("lr_warmup_fraction",), None), megatron_decay_length(c)
    samples, batch = number(c, ("lr_warmup_samples",), 0), megatron_global_batch(c)
    if part is not None:
        return part * length if known(part, length) else UNSET
    if samples:
        return samples / batch if known(samples, batch) and batch else UNSET
    return number(c, ("lr_warmup_iters",), 0) or 0


def mindformers_warmup(c: Configuration) -> Any:
    """The same; ``warmup_ratio`` wins over ``warmup_steps``, also where it is 0."""
    part, length = number(c, schedule_keys("warmup_ratio"), None), length_of_schedule(c)
    if part is not None:
        return 0 if not part else int(part * length) if known(part, length) else UNSET
    return number(c, schedule_keys("warmup_steps"), 0) or 0


def unless_constant(c: Configuration, name: str) -> Any:
    """An end of the weight decay's change, None where it does not change."""
    found, style = c.find((name,)), c.find(("weight_decay_incr_style",))
    return None if found is None or style is None or style.value == "constant" else found.value


def rate(c: Configuration) -> Any:
    """The learning rate after its warm-up."""
    return number(c, (*schedule_keys("learning_rate"), *schedule_keys("base_lr")), lambda one: number(one, ("optimizer.learning_rate",)))


def length_of_schedule(c: Configuration) -> Any:
    """Steps of the schedule, those of the run where it is not said."""
    given = number(c, schedule_keys("decay_steps"), lambda one: number(one, schedule_keys("total_steps"), -1))
    return mindformers_steps(c) if given == -1 else given
