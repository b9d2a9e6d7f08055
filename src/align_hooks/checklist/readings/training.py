"""Optimizer, batches, parallel layout and length of a run, as each side works them out."""

from __future__ import annotations

import math

from align_hooks.checklist.meaning import OptimizerKind, OwnRates, Words
from align_hooks.checklist.readings.lookup import are_numbers, has, holds_of_all, known, value_of
from align_hooks.checklist.row import UNSET, Edits, model, plain, text
from align_hooks.configuration.values import MINDFORMERS, Configuration, Setting
from align_hooks.messages import Message, Side, message, terms

GROUPED = "grouped_lr_schedule.default."
UNCORRECTED = (
    *("adamweightdecay", "fusedadamweightdecay", "fp32stateadamweightdecay", "fusedcastadamweightdecay"),
    *("fused_adamw", "fp32_adamw"),
)
OPTIMIZERS: dict[str, OptimizerKind | str] = {
    **dict.fromkeys(("adamw", "fusedadamw", "pma_adamw", "adamweightdecayx"), "adamw"),
    **dict.fromkeys(UNCORRECTED, OptimizerKind.ADAMW_UNCORRECTED),
    "adam": OptimizerKind.ADAM_COUPLED,
}
"""MindFormers' optimizers by their kind, names in lower case."""
ALIAS = "adamw"
"""Written so, it was another name of MindSpore's ``AdamWeightDecay`` as long as there was one, which is up to 1.5."""
BETAS = ("optimizer.betas", "optimizer.beta1", "optimizer.beta2")
"""Both betas in one list, as MindFormers' own classes take them, and each alone, as MindSpore's do."""
LOADED, OF_MODEL = ("load_checkpoint", "checkpoint.load_path"), model("checkpoint_name_or_path")
SCHEDULES = {
    "constant_with_warmup": "ConstantWarmUpLR",
    "linear": "LinearWithWarmUpLR",
    "cosine": "CosineWithWarmUpLR",
    "cosine_with_restarts": "CosineWithRestartsAndWarmUpLR",
    "polynomial": "PolynomialWithWarmUpLR",
    "cosine_annealing": "CosineAnnealingLR",
    "cosine_annealing_warm_restarts": "CosineAnnealingWarmRestarts",
}
"""Names that MindFormers' ``register_mf_lr`` gives its schedules beside those of their classes."""


def megatron_optimizer(c: Configuration) -> Setting:
    """Megatron's ``adam`` decays weights apart from the gradient: it is AdamW."""
    name = text(value_of(c, ("optimizer",), "adam"))
    return "adamw" if name == "adam" else name


def mindformers_optimizer(c: Configuration) -> Setting:
    """The kind of optimizer, whatever implementation computes it."""
    if c.fact("optimizer.groups.0.bias_correction") is False:
        return OptimizerKind.ADAMW_UNCORRECTED
    name = value_of(c, ("optimizer.type",), "AdamW")
    if name == ALIAS:
        return OptimizerKind.ADAMW_UNCORRECTED
    return OPTIMIZERS.get(str(name).lower(), text(name))


def beta_keys(c: Configuration) -> tuple[str, ...]:
    """Return the keys in which the optimizer takes its two betas; all of them of a class that is not known."""
    if value_of(c, ("optimizer.type",), "AdamW") in ("AdamW", "PmaAdamW"):
        return BETAS[:1]
    return BETAS[1:] if isinstance(mindformers_optimizer(c), OptimizerKind) else BETAS


def moved_betas(c: Configuration) -> Edits:
    """Return edits that bring betas from keys that the optimizer refuses to those that the optimizer takes."""
    taken = beta_keys(c)
    refused = [key for key in BETAS if key in c.values and key not in taken]
    both = [betas(c, at) for at in range(2)]
    own = {BETAS[0]: both} if taken == BETAS[:1] else dict(zip(BETAS[1:], both, strict=True))
    moved = {key: value for key, value in own.items() if key not in c.values}
    return {**moved, **dict.fromkeys(refused, UNSET)} if refused else {}


def betas(c: Configuration, at: int) -> Setting:
    """One of MindFormers' two betas; older optimizers name them apart."""
    pair, alone = value_of(c, ("optimizer.betas",), (0.9, 0.999)), value_of(c, (f"optimizer.beta{at + 1}",))
    if alone is not UNSET:
        return alone
    return pair[at] if isinstance(pair, list | tuple) and len(pair) == 2 else UNSET


def mindformers_eps(c: Configuration) -> Setting:
    """``eps``; those optimizers that correct no bias have another default."""
    return value_of(c, ("optimizer.eps",), 1e-6 if mindformers_optimizer(c) == OptimizerKind.ADAMW_UNCORRECTED else 1e-8)


def mindformers_clip(c: Configuration) -> Setting:
    """The norm that gradients are clipped to, 0 where they are not: ``use_clip_grad`` and ``max_grad_norm``."""
    several = is_piped(c) or value_of(c, ("runner_config.gradient_accumulation_steps",), 1) > 1
    kind = str(value_of(c, ("runner_wrapper.type",), ""))
    by_default = several or "Pipeline" in kind or not has(c, "runner_wrapper.")
    on = value_of(c, ("runner_wrapper.use_clip_grad",), by_default)
    norm = value_of(c, ("runner_wrapper.max_grad_norm", "runner_wrapper.clip_grad"), 1.0)
    return (float(norm) if are_numbers(norm) else norm) if on else 0.0


def is_piped(c: Configuration) -> bool:
    """Whether MindFormers splits the layers over a pipeline."""
    return bool(value_of(c, ("parallel_config.pipeline_stage",), 1) > 1)


def megatron_data_parallel(c: Configuration) -> Setting:
    """The data-parallel size: of a record as it was, of a script the launcher's processes over the other sizes."""

    def left(c: Configuration) -> Setting:
        names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
        cards, sizes = _launched(c), [value_of(c, (name,), 1) for name in names]
        return cards // math.prod(sizes) if are_numbers(cards, *sizes) else UNSET

    return value_of(c, ("data_parallel_size",), left)


def megatron_cards(c: Configuration) -> Setting:
    """The processes of a run: of a record as they were, of a script the launcher's."""
    return value_of(c, ("world_size",), _launched)


def _launched(c: Configuration) -> Setting:
    processes, nodes = value_of(c, ("launcher.nproc_per_node",)), value_of(c, ("launcher.nnodes",), 1)
    return processes * nodes if are_numbers(processes, nodes) else UNSET


def megatron_global_batch(c: Configuration) -> Setting:
    """``--global-batch-size``, or one micro-batch a data-parallel rank."""

    def of_ranks(c: Configuration) -> Setting:
        micro, ranks = value_of(c, ("micro_batch_size",)), megatron_data_parallel(c)
        return micro * ranks if are_numbers(micro, ranks) else UNSET

    return value_of(c, ("global_batch_size",), of_ranks)


def alone_on_the_tensor(reference: Configuration, candidate: Configuration) -> Words | None:
    """Sequence parallelism cuts among tensor-parallel ranks; Megatron switches it off where there is one."""
    sizes = [value_of(c, ("tensor_model_parallel_size", "parallel_config.model_parallel"), 1) for c in (reference, candidate)]
    return message("harmless.not_cut") if sizes == [1, 1] else None


def is_data_parallel(c: Configuration) -> bool:
    """Whether MindFormers' parallel mode is data parallelism alone; where none is said it is semi-automatic."""
    return value_of(c, ("parallel.parallel_mode",), 1) in (0, "DATA_PARALLEL", "data_parallel")


def mindformers_data_parallel(c: Configuration) -> Setting:
    """The data-parallel size: configured where sharding is semi-automatic, else every device."""
    if is_data_parallel(c):
        return value_of(c, ("device_num",), 1 if value_of(c, ("use_parallel",), False) is False else UNSET)
    return value_of(c, ("parallel_config.data_parallel",), 1)


def mindformers_cards(c: Configuration) -> Setting:
    """The devices of a run: every way of splitting it, multiplied."""
    if value_of(c, ("use_parallel",), False) is False:
        return 1
    sizes = [value_of(c, (f"parallel_config.{name}",), 1) for name in ("model_parallel", "pipeline_stage", "context_parallel")]
    ranks = mindformers_data_parallel(c)
    return ranks if is_data_parallel(c) else math.prod([ranks, *sizes]) if are_numbers(ranks, *sizes) else UNSET


def does_not_accumulate(c: Configuration) -> bool:
    """Whether MindFormers trains without semi-automatic parallelism, where it takes ``gradient_accumulation_steps`` for 1."""
    return value_of(c, ("use_parallel",), True) is False or is_data_parallel(c)


def adds_up_nothing(c: Configuration) -> Words | None:
    """Why a side has one micro-batch a step, whatever it is told (1.3 to 2.1, ``_check_grad_accumulation_steps`` of
    ``trainer/base_trainer.py``: the steps are set back to 1)."""
    return message("cannot.accumulate") if c.side == MINDFORMERS and does_not_accumulate(c) and not is_piped(c) else None


def accumulated(c: Configuration) -> Setting:
    """Micro-batches whose gradients MindFormers adds up, without a pipeline."""
    return 1 if does_not_accumulate(c) else value_of(c, ("runner_config.gradient_accumulation_steps",), 1)


def mindformers_global_batch(c: Configuration) -> Setting:
    """``base_trainer``'s product: batch × data parallel × micro-batches × interleaved copies × accumulation."""
    recorded = c.fact("training.global_batch_size")
    if recorded is not None:
        return recorded
    batch, ranks = value_of(c, ("runner_config.batch_size",), 1), mindformers_data_parallel(c)
    piped, micro = is_piped(c), value_of(c, ("parallel_config.micro_batch_num",), 1)
    copies, added = value_of(c, ("micro_batch_interleave_num",), 1), accumulated(c)
    return int(batch * ranks * copies * (micro if piped else added)) if are_numbers(batch, ranks, micro, copies, added) else UNSET


def megatron_micro_batches(c: Configuration) -> Setting:
    """Micro-batches of a step on one rank."""
    whole, micro, ranks = megatron_global_batch(c), value_of(c, ("micro_batch_size",)), megatron_data_parallel(c)
    return whole // (micro * ranks) if are_numbers(whole, micro, ranks) and micro * ranks else UNSET


def micro_batch_key(c: Configuration) -> str:
    """The key of MindFormers' micro-batches of a step."""
    return "parallel_config.micro_batch_num" if is_piped(c) else "runner_config.gradient_accumulation_steps"


def ranks_too(reference: Configuration, candidate: Configuration) -> tuple[str, Message] | None:
    """How to come to a global batch that the data-parallel ranks do not divide: by other ranks, for which there must be devices."""
    wanted = (mindformers_global_batch if reference.side == MINDFORMERS else megatron_global_batch)(reference)
    ranks = mindformers_data_parallel(candidate) if candidate.side == MINDFORMERS else UNSET
    if not are_numbers(wanted, ranks) or wanted % ranks == 0:
        return None
    return "parallel_config.data_parallel", message("change.ranks_too", batch=wanted, ranks=ranks)


def per_stage(c: Configuration) -> list[str]:
    """Return the lists of a candidate that have an entry for each pipeline stage."""
    names = ("recompute_config.recompute", "recompute_config.select_recompute", "recompute_config.select_comm_recompute", *model("offset"))
    return [name for name in c.values if name.startswith(names) and isinstance(known(c, name), list)]


def stages_too(reference: Configuration, candidate: Configuration) -> tuple[str, Message] | None:
    """How to come to other pipeline stages where lists have an entry for each stage."""
    key, lists = "parallel_config.pipeline_stage", per_stage(candidate)
    stages = value_of(reference, ("pipeline_model_parallel_size", key), 1)
    return (key, message("change.stages_too", key=key, stages=stages, lists=terms(lists))) if lists else None


def mindformers_micro_batches(c: Configuration) -> Setting:
    """Micro-batches of a step on one rank: of a pipeline ``micro_batch_num``, else accumulation steps."""
    return value_of(c, ("parallel_config.micro_batch_num",), 1) if is_piped(c) else accumulated(c)


def mindformers_micro_batch(c: Configuration) -> Setting:
    """Rows of one micro-batch on one rank. Training overwrites ``runner_config.batch_size``; a record holds the size that was meant."""
    recorded = c.fact("training.micro_batch_size")
    return recorded if recorded is not None else value_of(c, ("runner_config.batch_size",), 1)


def mindformers_steps(c: Configuration) -> Setting:
    """Updates of the whole run: samples over the global batch, times epochs."""
    recorded = c.fact("training.train_steps")
    if recorded is not None:
        return recorded
    sizes, epochs = value_of(c, ("train_dataset.data_loader.sizes",)), value_of(c, ("runner_config.epochs",), 1)
    batch = mindformers_global_batch(c)
    if isinstance(sizes, list) and sizes and are_numbers(sizes[0], batch, epochs) and batch:
        return int(sizes[0] // batch * epochs)
    total = value_of(c, schedule_keys("total_steps"))
    return int(total) if are_numbers(total) and total > 0 else UNSET


def megatron_steps(c: Configuration) -> Setting:
    """``--train-iters``, or ``--train-samples`` over the global batch."""
    steps = value_of(c, ("train_iters",))
    if steps is not UNSET:
        return steps
    samples, batch = value_of(c, ("train_samples",)), megatron_global_batch(c)
    return samples // batch if are_numbers(samples, batch) and batch else UNSET


def ends_earlier(*sides: Configuration) -> Words | None:
    """Which side makes fewer steps, and whether its schedule has that length too; None where that is not known, or neither does."""
    lengths = [mindformers_steps(c) if c.side == MINDFORMERS else megatron_steps(c) for c in sides]
    if not are_numbers(*lengths) or lengths[0] == lengths[1]:
        return None
    schedules = [length_of_schedule(c) if c.side == MINDFORMERS else megatron_decay_length(c) for c in sides]
    first, steps = min(zip(Side, lengths, strict=True), key=lambda side: side[1])
    return message("harmless.ends_earlier" if schedules[0] == schedules[1] else "harmless.schedule_ends_earlier", side=first, steps=steps)


def samples(c: Configuration) -> Setting:
    """Samples that the whole run trains on: its steps, each of a whole batch; what is written where the batch is not known."""
    of_mindformers = c.side == MINDFORMERS
    steps, batch = (mindformers_steps(c), mindformers_global_batch(c)) if of_mindformers else (megatron_steps(c), megatron_global_batch(c))
    if are_numbers(steps, batch):
        return steps * batch
    written, epochs = value_of(c, ("train_dataset.data_loader.sizes", "train_samples")), value_of(c, ("runner_config.epochs",), 1)
    first = written[0] if isinstance(written, list) and written else written
    return first * epochs if are_numbers(first, epochs) else first


def shares(value: Setting) -> Setting:
    """How documents are split over training, validation and test, as numbers that add up to one."""
    if value is None:
        return UNSET
    numbers = [plain(part.strip()) for part in str(value).strip("[]()'\"").split(",") if part.strip()]
    if not numbers or not are_numbers(*numbers) or not sum(numbers):
        return value
    return [round(number / sum(numbers), 9) for number in (*numbers, 0, 0)[:3]]


def mindformers_averages(c: Configuration) -> Setting:
    """Whether gradients are averaged over data-parallel ranks: always inside a semi-automatic graph, else as ``gradients_mean`` says."""
    summed = c.fact("training.gradients_summed_over_ranks")
    if summed is not None:
        return not summed
    alone = value_of(c, ("use_parallel",), False) is False or mindformers_data_parallel(c) == 1
    return True if alone or not is_data_parallel(c) else bool(value_of(c, ("parallel.gradients_mean",), False))


def loads(c: Configuration) -> Setting:
    """Where the weights come from; nothing where they are made at random. ``Trainer.finetune`` of MindFormers takes those that the model
    names where nothing else is to be loaded and weights are converted for the layout; ``Trainer.train`` takes none of them."""
    recorded = c.fact("settings.load_weights")
    if recorded:
        return recorded
    names: tuple[str, ...] = LOADED if c.side == MINDFORMERS else ("load", "pretrained_checkpoint")
    if value_of(c, ("run_mode",), None) == "finetune" and value_of(c, ("auto_trans_ckpt",), False) is True:
        names = (*LOADED, *OF_MODEL)
    return next((value for name in names for value in [value_of(c, (name,), None)] if value and value is not True), None)


def weights_loaded(reference: Configuration, candidate: Configuration) -> Words | None:
    """How weights are initialised does no harm where both sides load theirs."""
    if reference.fact("settings.load_weights") or candidate.fact("settings.load_weights"):
        return message("harmless.recorded_weights")
    return message("harmless.both_load") if holds_of_all(loads, reference, candidate) else None


def megatron_decay_length(c: Configuration) -> Setting:
    """``--lr-decay-iters``, ``--lr-decay-samples`` over the global batch, or the whole run."""
    samples = value_of(c, ("lr_decay_samples",), None)
    return value_of(c, ("lr_decay_iters",), megatron_steps) if samples is None else _in_steps(samples, c)


def _in_steps(samples: Setting, c: Configuration) -> Setting:
    """Samples in steps of Megatron's global batch."""
    batch = megatron_global_batch(c)
    return samples / batch if are_numbers(samples, batch) and batch else UNSET


def rates_of_groups(c: Configuration) -> Setting:
    """Groups of parameters whose schedules are not the common one; None where all have the common one."""
    groups = value_of(c, ("grouped_lr_schedule.grouped",), None)
    if not isinstance(groups, list):
        return groups
    common = {name.removeprefix(GROUPED): value.value for name, value in c.values.items() if name.startswith(GROUPED)}
    schedules = [{key: value for key, value in group.items() if key != "params"} for group in groups if isinstance(group, dict)]
    return None if schedules and all(schedule == common for schedule in schedules) else OwnRates(len(groups))


def schedule_class(kind: Setting) -> str:
    """The class of a schedule by its name, or by its other one."""
    return SCHEDULES.get(str(kind), str(kind))


def schedule_keys(name: str) -> tuple[str, str]:
    """A setting of the schedule: ``grouped_lr_schedule`` wins where there is one."""
    return (f"{GROUPED}{name}", f"lr_schedule.{name}")


def megatron_warmup(c: Configuration) -> Setting:
    """Steps of warm-up: given, or a part of the schedule's length."""
    part = value_of(c, ("lr_warmup_fraction",), None)
    if part is not None:
        return part * length if are_numbers(part, length := megatron_decay_length(c)) else UNSET
    samples = value_of(c, ("lr_warmup_samples",), 0)
    return _in_steps(samples, c) if samples else value_of(c, ("lr_warmup_iters",), 0) or 0


def mindformers_warmup(c: Configuration) -> Setting:
    """Steps of warm-up; ``warmup_ratio`` wins over ``warmup_steps``, also where it is 0."""
    part = value_of(c, schedule_keys("warmup_ratio"), None)
    if part is not None:
        return 0 if not part else int(part * length) if are_numbers(part, length := length_of_schedule(c)) else UNSET
    steps = value_of(c, schedule_keys("warmup_steps"), 0) or 0
    return int(steps) if are_numbers(steps) else steps


def unless_constant(c: Configuration, name: str) -> Setting:
    """An end of the weight decay's change, None where it does not change."""
    constant = value_of(c, ("weight_decay_incr_style",), "constant") == "constant"
    return None if constant else value_of(c, (name,), None)


def rate(c: Configuration) -> Setting:
    """The learning rate after its warm-up."""
    return value_of(c, (*schedule_keys("learning_rate"), *schedule_keys("base_lr")), lambda c: value_of(c, ("optimizer.learning_rate",)))


def length_of_schedule(c: Configuration) -> Setting:
    """Steps of the schedule, those of the run where it is not said."""
    steps = value_of(c, schedule_keys("decay_steps"), lambda c: value_of(c, schedule_keys("total_steps"), -1))
    return mindformers_steps(c) if steps == -1 else steps
