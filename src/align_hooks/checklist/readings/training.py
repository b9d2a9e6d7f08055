"""Optimizer, batches, layout, length, callbacks, recomputation and set-up of a run, as each side computes or names them."""

from __future__ import annotations

import math

from align_hooks.checklist.defaults import default
from align_hooks.checklist.meaning import Decays, OptimizerKind, OwnRates, ParallelAxis, Switched, Words
from align_hooks.checklist.readings.lookup import all_sides, are_numbers, has, is_on, known, value_of
from align_hooks.checklist.row import UNSET, Edits, Form, model, plain, text
from align_hooks.configuration.values import MINDFORMERS, Configuration, Setting
from align_hooks.messages import Message, Side, message, terms

GROUPED = "grouped_lr_schedule.default."
UNCORRECTED = "adamweightdecay fusedadamweightdecay fp32stateadamweightdecay fusedcastadamweightdecay fused_adamw fp32_adamw"
OPTIMIZERS: dict[str, OptimizerKind | str] = {
    **dict.fromkeys(("adamw", "fusedadamw", "pma_adamw", "adamweightdecayx"), "adamw"),
    **dict.fromkeys(UNCORRECTED.split(), OptimizerKind.ADAMW_UNCORRECTED),
    "adam": OptimizerKind.ADAM_COUPLED,
}
"""MindFormers' optimizers in lower case to their kind."""
ALIAS = "adamw"
"""In lower case another name of MindSpore's ``AdamWeightDecay``, which there was up to 1.5."""
BETAS = ("optimizer.betas", "optimizer.beta1", "optimizer.beta2")
"""Both betas in one list, as MindFormers' own classes read them, and each by itself, as MindSpore's do."""
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
    """Return the optimizer; Megatron's ``adam`` decays weights separately from the gradient, so is AdamW."""
    name = text(value_of(c, ("optimizer",), "adam"))
    return "adamw" if name == "adam" else name


def mindformers_optimizer(c: Configuration) -> Setting:
    """Return the kind of optimizer, whatever implementation computes it."""
    if c.fact("optimizer.groups.0.bias_correction") is False or (name := value_of(c, ("optimizer.type",), "AdamW")) == ALIAS:
        return OptimizerKind.ADAMW_UNCORRECTED
    return OPTIMIZERS.get(str(name).lower(), text(name))


def beta_keys(c: Configuration) -> tuple[str, ...]:
    """Return the keys in which the optimizer reads its two betas; all of them for a class that is not known."""
    if value_of(c, ("optimizer.type",), "AdamW") in ("AdamW", "PmaAdamW"):
        return BETAS[:1]
    return BETAS[1:] if isinstance(mindformers_optimizer(c), OptimizerKind) else BETAS


def moved_betas(c: Configuration) -> Edits:
    """Return edits that move betas from keys that the optimizer refuses to those that it reads."""
    keys = beta_keys(c)
    refused = [key for key in BETAS if key in c.values and key not in keys]
    both = [betas(c, at) for at in range(2)]
    own = {BETAS[0]: both} if keys == BETAS[:1] else dict(zip(BETAS[1:], both, strict=True))
    moved = {key: value for key, value in own.items() if key not in c.values}
    return {**moved, **dict.fromkeys(refused, UNSET)} if refused else {}


def betas(c: Configuration, at: int) -> Setting:
    """Return one of MindFormers' two betas, which older optimizers name separately."""
    pair, single = value_of(c, ("optimizer.betas",), (0.9, 0.999)), value_of(c, (f"optimizer.beta{at + 1}",))
    if single is not UNSET:
        return single
    return pair[at] if isinstance(pair, list | tuple) and len(pair) == 2 else UNSET


def mindformers_eps(c: Configuration) -> Setting:
    """Return ``eps``, whose default depends on whether the optimizer corrects the bias."""
    return value_of(c, ("optimizer.eps",), 1e-6 if mindformers_optimizer(c) == OptimizerKind.ADAMW_UNCORRECTED else 1e-8)


def mindformers_clip(c: Configuration) -> Setting:
    """Return the norm that gradients are clipped to, 0 where they are not: ``use_clip_grad`` and ``max_grad_norm``."""
    several = is_piped(c) or value_of(c, ("runner_config.gradient_accumulation_steps",), 1) > 1
    by_default = several or "Pipeline" in str(value_of(c, ("runner_wrapper.type",), "")) or not has(c, "runner_wrapper.")
    on = value_of(c, ("runner_wrapper.use_clip_grad",), by_default)
    norm = value_of(c, ("runner_wrapper.max_grad_norm", "runner_wrapper.clip_grad"), 1.0)
    return (float(norm) if are_numbers(norm) else norm) if on else 0.0


def is_piped(c: Configuration) -> bool:
    """Return whether MindFormers splits the layers over a pipeline."""
    return bool(value_of(c, ("parallel_config.pipeline_stage",), 1) > 1)


def megatron_data_parallel(c: Configuration) -> Setting:
    """Return the data-parallel size: of a record as it was, of a script the launcher's processes over the other sizes."""

    def left(c: Configuration) -> Setting:
        names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
        cards, sizes = _launched(c), [value_of(c, (name,), 1) for name in names]
        return cards // math.prod(sizes) if are_numbers(cards, *sizes) else UNSET

    return value_of(c, ("data_parallel_size",), left)


def megatron_cards(c: Configuration) -> Setting:
    """Return the processes of a run: of a record as they were, of a script the launcher's."""
    return value_of(c, ("world_size",), _launched)


def _launched(c: Configuration) -> Setting:
    processes, nodes = value_of(c, ("launcher.nproc_per_node",)), value_of(c, ("launcher.nnodes",), 1)
    return processes * nodes if are_numbers(processes, nodes) else UNSET


def megatron_global_batch(c: Configuration) -> Setting:
    """Return ``--global-batch-size``, or one micro-batch a data-parallel rank."""

    def of_ranks(c: Configuration) -> Setting:
        micro, ranks = value_of(c, ("micro_batch_size",)), megatron_data_parallel(c)
        return micro * ranks if are_numbers(micro, ranks) else UNSET

    return value_of(c, ("global_batch_size",), of_ranks)


def one_tensor_rank(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why sequence parallelism need not agree: a single tensor-parallel rank has nothing to cut, and Megatron switches it off."""
    sizes = [value_of(c, ("tensor_model_parallel_size", "parallel_config.model_parallel"), 1) for c in (reference, candidate)]
    return message("harmless.not_cut") if sizes == [1, 1] else None


def is_data_parallel(c: Configuration) -> bool:
    """Return whether MindFormers has data parallelism only; its default mode is semi-automatic."""
    return value_of(c, ("parallel.parallel_mode",), 1) in (0, "DATA_PARALLEL", "data_parallel")


def mindformers_data_parallel(c: Configuration) -> Setting:
    """Return the data-parallel size: configured where sharding is semi-automatic, else every device."""
    if is_data_parallel(c):
        return value_of(c, ("device_num",), 1 if value_of(c, ("use_parallel",), False) is False else UNSET)
    return value_of(c, ("parallel_config.data_parallel",), 1)


def mindformers_cards(c: Configuration) -> Setting:
    """Return the devices of a run: every way of splitting it, multiplied."""
    if value_of(c, ("use_parallel",), False) is False:
        return 1
    sizes = [value_of(c, (f"parallel_config.{name}",), 1) for name in ("model_parallel", "pipeline_stage", "context_parallel")]
    ranks = mindformers_data_parallel(c)
    return ranks if is_data_parallel(c) else math.prod([ranks, *sizes]) if are_numbers(ranks, *sizes) else UNSET


def does_not_accumulate(c: Configuration) -> bool:
    """Return whether MindFormers trains without semi-automatic parallelism, where ``gradient_accumulation_steps`` is 1."""
    return value_of(c, ("use_parallel",), True) is False or is_data_parallel(c)


def adds_up_nothing(c: Configuration) -> Words | None:
    """Return why a side has one micro-batch a step whatever is set (1.3 to 2.1, ``_check_grad_accumulation_steps``); else None."""
    return message("cannot.accumulate") if c.side == MINDFORMERS and does_not_accumulate(c) and not is_piped(c) else None


def accumulated(c: Configuration) -> Setting:
    """Return the micro-batches whose gradients MindFormers adds up without a pipeline."""
    return 1 if does_not_accumulate(c) else value_of(c, ("runner_config.gradient_accumulation_steps",), 1)


def mindformers_global_batch(c: Configuration) -> Setting:
    """Return ``base_trainer``'s product: batch × data parallel × micro-batches × interleaved copies × accumulation."""
    if (recorded := c.fact("training.global_batch_size")) is not None:
        return recorded
    batch, ranks = value_of(c, ("runner_config.batch_size",), 1), mindformers_data_parallel(c)
    piped, micro = is_piped(c), value_of(c, ("parallel_config.micro_batch_num",), 1)
    copies, added = value_of(c, ("micro_batch_interleave_num",), 1), accumulated(c)
    return int(batch * ranks * copies * (micro if piped else added)) if are_numbers(batch, ranks, micro, copies, added) else UNSET


def megatron_micro_batches(c: Configuration) -> Setting:
    """Return the micro-batches of a step on one rank."""
    batch, micro, ranks = megatron_global_batch(c), value_of(c, ("micro_batch_size",)), megatron_data_parallel(c)
    return batch // (micro * ranks) if are_numbers(batch, micro, ranks) and micro * ranks else UNSET


def micro_batch_key(c: Configuration) -> str:
    """Return the key of MindFormers' micro-batches of a step."""
    return "parallel_config.micro_batch_num" if is_piped(c) else "runner_config.gradient_accumulation_steps"


def ranks_too(reference: Configuration, candidate: Configuration) -> tuple[str, Message] | None:
    """Return the key and words for a global batch that the candidate's ranks do not divide; None where these do."""
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
    """Return the key and words for other pipeline stages where lists have an entry for each; None without such lists."""
    key, lists = "parallel_config.pipeline_stage", per_stage(candidate)
    stages = value_of(reference, ("pipeline_model_parallel_size", key), 1)
    return (key, message("change.stages_too", key=key, stages=stages, lists=terms(lists))) if lists else None


def mindformers_micro_batches(c: Configuration) -> Setting:
    """Return the micro-batches of a step on one rank: a pipeline's ``micro_batch_num``, else accumulation steps."""
    return value_of(c, ("parallel_config.micro_batch_num",), 1) if is_piped(c) else accumulated(c)


def mindformers_micro_batch(c: Configuration) -> Setting:
    """Return the rows of a micro-batch on one rank; a record has the size before training overwrites ``batch_size``."""
    recorded = c.fact("training.micro_batch_size")
    return recorded if recorded is not None else value_of(c, ("runner_config.batch_size",), 1)


def mindformers_steps(c: Configuration) -> Setting:
    """Return the updates of a run: samples over the global batch, times epochs."""
    if (recorded := c.fact("training.train_steps")) is not None:
        return recorded
    sizes, epochs = value_of(c, ("train_dataset.data_loader.sizes",)), value_of(c, ("runner_config.epochs",), 1)
    batch = mindformers_global_batch(c)
    if isinstance(sizes, list) and sizes and are_numbers(sizes[0], batch, epochs) and batch:
        return int(sizes[0] // batch * epochs)
    total = value_of(c, schedule_keys("total_steps"))
    return int(total) if are_numbers(total) and total > 0 else UNSET


def megatron_steps(c: Configuration) -> Setting:
    """Return ``--train-iters``, or ``--train-samples`` over the global batch."""
    if (steps := value_of(c, ("train_iters",))) is not UNSET:
        return steps
    samples, batch = value_of(c, ("train_samples",)), megatron_global_batch(c)
    return samples // batch if are_numbers(samples, batch) and batch else UNSET


def ends_earlier(*sides: Configuration) -> Words | None:
    """Return which side makes fewer steps, and whether its schedule is as long; None where that is not known."""
    lengths = [mindformers_steps(c) if c.side == MINDFORMERS else megatron_steps(c) for c in sides]
    if not are_numbers(*lengths) or lengths[0] == lengths[1]:
        return None
    schedules = [length_of_schedule(c) if c.side == MINDFORMERS else megatron_decay_length(c) for c in sides]
    first, steps = min(zip(Side, lengths, strict=True), key=lambda side: side[1])
    return message("harmless.ends_earlier" if schedules[0] == schedules[1] else "harmless.schedule_ends_earlier", side=first, steps=steps)


def samples(c: Configuration) -> Setting:
    """Return the samples of a run: its steps, each of a full batch; the value as written where the batch is not known."""
    readings = (mindformers_steps, mindformers_global_batch) if c.side == MINDFORMERS else (megatron_steps, megatron_global_batch)
    steps, batch = (read(c) for read in readings)
    if are_numbers(steps, batch):
        return steps * batch
    written, epochs = value_of(c, ("train_dataset.data_loader.sizes", "train_samples")), value_of(c, ("runner_config.epochs",), 1)
    first = written[0] if isinstance(written, list) and written else written
    return first * epochs if are_numbers(first, epochs) else first


def shares(value: Setting) -> Setting:
    """Return how documents are split over training, validation and test, as numbers that add up to one."""
    if value is None:
        return UNSET
    numbers = [plain(part.strip()) for part in str(value).strip("[]()'\"").split(",") if part.strip()]
    if not numbers or not are_numbers(*numbers) or not sum(numbers):
        return value
    return [round(number / sum(numbers), 9) for number in (*numbers, 0, 0)[:3]]


def mindformers_averages(c: Configuration) -> Setting:
    """Return whether gradients are averaged over ranks: always in a semi-automatic graph, else by ``gradients_mean``."""
    if (summed := c.fact("training.gradients_summed_over_ranks")) is not None:
        return not summed
    single = value_of(c, ("use_parallel",), False) is False or mindformers_data_parallel(c) == 1
    return True if single or not is_data_parallel(c) else bool(value_of(c, ("parallel.gradients_mean",), False))


def loads(c: Configuration) -> Setting:
    """Return where the weights are loaded from; None where they are random."""
    if recorded := c.fact("settings.load_weights"):
        return recorded
    names: tuple[str, ...] = LOADED if c.side == MINDFORMERS else ("load", "pretrained_checkpoint")
    if value_of(c, ("run_mode",), None) == "finetune" and value_of(c, ("auto_trans_ckpt",), False) is True:
        names = (*LOADED, *OF_MODEL)  # Trainer.finetune loads the model's own weights then, Trainer.train never
    return next((value for name in names for value in [value_of(c, (name,), None)] if value and value is not True), None)


def weights_loaded(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why initial weights need not agree: both sides load theirs."""
    if reference.fact("settings.load_weights") or candidate.fact("settings.load_weights"):
        return message("harmless.recorded_weights")
    return message("harmless.both_load") if all_sides(loads, reference, candidate) else None


def megatron_decay_length(c: Configuration) -> Setting:
    """Return ``--lr-decay-iters``, ``--lr-decay-samples`` over the global batch, or the length of the run."""
    samples = value_of(c, ("lr_decay_samples",), None)
    return value_of(c, ("lr_decay_iters",), megatron_steps) if samples is None else _in_steps(samples, c)


def _in_steps(samples: Setting, c: Configuration) -> Setting:
    """Return samples in steps of Megatron's global batch."""
    batch = megatron_global_batch(c)
    return samples / batch if are_numbers(samples, batch) and batch else UNSET


def rates_of_groups(c: Configuration) -> Setting:
    """Return the groups of parameters with schedules of their own; None where all have the common one."""
    groups = value_of(c, ("grouped_lr_schedule.grouped",), None)
    if not isinstance(groups, list):
        return groups
    common = {name.removeprefix(GROUPED): value.value for name, value in c.values.items() if name.startswith(GROUPED)}
    schedules = [{key: value for key, value in group.items() if key != "params"} for group in groups if isinstance(group, dict)]
    return None if schedules and all(schedule == common for schedule in schedules) else OwnRates(len(groups))


def schedule_class(kind: Setting) -> str:
    """Return the class of a schedule by its name, or by its other one."""
    return SCHEDULES.get(str(kind), str(kind))


def schedule_keys(name: str) -> tuple[str, str]:
    """Return the keys of a schedule's setting; that of ``grouped_lr_schedule`` wins."""
    return (f"{GROUPED}{name}", f"lr_schedule.{name}")


def megatron_warmup(c: Configuration) -> Setting:
    """Return the steps of warm-up, set or as a part of the schedule's length."""
    if (part := value_of(c, ("lr_warmup_fraction",), None)) is not None:
        return part * length if are_numbers(part, length := megatron_decay_length(c)) else UNSET
    samples = value_of(c, ("lr_warmup_samples",), 0)
    return _in_steps(samples, c) if samples else value_of(c, ("lr_warmup_iters",), 0) or 0


def mindformers_warmup(c: Configuration) -> Setting:
    """Return the steps of warm-up; ``warmup_ratio`` wins over ``warmup_steps``, also where it is 0."""
    if (part := value_of(c, schedule_keys("warmup_ratio"), None)) is not None:
        return 0 if not part else int(part * length) if are_numbers(part, length := length_of_schedule(c)) else UNSET
    steps = value_of(c, schedule_keys("warmup_steps"), 0) or 0
    return int(steps) if are_numbers(steps) else steps


def unless_constant(c: Configuration, name: str) -> Setting:
    """Return an end of the weight decay's change; None where the decay is constant."""
    constant = value_of(c, ("weight_decay_incr_style",), "constant") == "constant"
    return None if constant else value_of(c, (name,), None)


def rate(c: Configuration) -> Setting:
    """Return the learning rate after its warm-up."""
    return value_of(c, (*schedule_keys("learning_rate"), *schedule_keys("base_lr")), lambda c: value_of(c, ("optimizer.learning_rate",)))


def length_of_schedule(c: Configuration) -> Setting:
    """Return the steps of the schedule, by default the run's."""
    steps = value_of(c, schedule_keys("decay_steps"), lambda c: value_of(c, schedule_keys("total_steps"), -1))
    return mindformers_steps(c) if steps == -1 else steps


def of_callback(kind: str, key: str) -> Form:
    """Return a form that finds a setting of a callback in MindFormers' list; Megatron's value stays unchanged."""

    def form(value: Setting) -> Setting:
        if not isinstance(value, list):
            return value
        return next((callback.get(key) for callback in value if isinstance(callback, dict) and callback.get("type") == kind), None)

    return form


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


def warm(c: Configuration) -> Setting:
    """Return the steps, samples or part of the run that warm up."""
    mindformers, megatron = ("warmup_steps", "warmup_ratio"), ("lr_warmup_iters", "lr_warmup_samples", "lr_warmup_fraction")
    names = [key for name in mindformers for key in schedule_keys(name)] if c.side == MINDFORMERS else megatron
    return next((value for name in names for value in [value_of(c, (name,), 0)] if value), 0)


def dropout(c: Configuration) -> Setting:
    """Return the larger of the two rates."""
    of_mindformers, names = c.side == MINDFORMERS, ("attention_dropout", "hidden_dropout")
    rates = [value_of(c, model(name), default(name)) if of_mindformers else value_of(c, (name,), 0.1) for name in names]
    return max(rates) if are_numbers(*rates) else rates[0]


SPLITS = {
    ParallelAxis.TENSOR: ("tensor_model_parallel_size", "parallel_config.model_parallel"),
    ParallelAxis.PIPELINE: ("pipeline_model_parallel_size", "parallel_config.pipeline_stage"),
    ParallelAxis.CONTEXT: ("context_parallel_size", "parallel_config.context_parallel"),
    ParallelAxis.SEQUENCE: ("sequence_parallel", "parallel_config.use_seq_parallel"),
    ParallelAxis.OPTIMIZER: ("use_distributed_optimizer", "parallel.enable_parallel_optimizer"),
}
"""Ways of splitting a model: Megatron's setting and MindFormers', a number of ranks or a switch."""


def split(c: Configuration) -> Setting:
    """Return the ways of splitting a model that are on."""
    set_to = {way: value_of(c, (keys[c.side == MINDFORMERS],), None) for way, keys in SPLITS.items()}
    switches = (ParallelAxis.SEQUENCE, ParallelAxis.OPTIMIZER)
    return Switched(tuple(way for way, size in set_to.items() if (size is True if way in switches else are_numbers(size) and size > 1)))


def decaying(c: Configuration) -> Setting:
    """Return the framework's rule; where a record shows another, the canonical names of the weights that decay."""
    groups = c.fact("optimizer.groups")
    # Megatron's _get_param_groups and MindFormers' get_optimizer_grouped_parameters both spare biases and 1-D weights
    if isinstance(groups, list) and groups:
        everything = {name for group in groups for name in group.get("parameters") or ()}
        decays = frozenset(name for group in groups if group.get("weight_decay") for name in group.get("parameters") or ())
        if not decays:
            return Decays.NOTHING
        return Decays.RULE if decays == {name for name in everything if not spared(name)} else decays
    if not decay_strength(c):
        return Decays.NOTHING
    if c.side != MINDFORMERS and (value_of(c, ("apply_wd_to_qk_layernorm",), False) or value_of(c, ("no_weight_decay_cond_type",), None)):
        return Decays.RULE_AND_NORMS
    return Decays.RULE


def nothing_decays(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why weights that decay need not agree: a side decays nothing, which the strength says."""
    return None if all_sides(decay_strength, reference, candidate) else message("harmless.no_decay")


def spared(name: str) -> bool:
    """Return whether a canonical name is of a bias or of a norm, whose weights have one dimension."""
    return name.endswith(".bias") or "norm" in name.rpartition(".")[0].rpartition(".")[2]


def decay_strength(c: Configuration) -> Setting:
    """Return the weight decay of the weights that decay."""
    groups = c.fact("optimizer.groups")
    if isinstance(groups, list) and groups:
        return max((group.get("weight_decay") or 0.0 for group in groups), default=0.0)
    return value_of(c, ("optimizer.weight_decay",), 0.0) if c.side == MINDFORMERS else value_of(c, ("weight_decay",), 0.01)


def decay_differences(reference: Setting, candidate: Setting) -> Words | None:
    """Return the weights that decay on one side only; where only one side has names, those that the other's rule spares."""
    by_name = [names for names in (reference, candidate) if isinstance(names, frozenset)]
    names = sorted(reference ^ candidate) if len(by_name) == 2 else sorted(name for names in by_name for name in names if spared(name))
    if not names:
        return None
    name, more = names[0], len(names) - 1
    if more:
        return message("apart.decays_only_and_more" if len(by_name) == 2 else "apart.decays_and_more", name=name, more=more)
    return message("apart.decays_only" if len(by_name) == 2 else "apart.decays", name=name)
