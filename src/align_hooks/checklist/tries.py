"""Ways of writing what a row means, for the rows whose meaning is not the value of one key.

A way is some keys with their values, written together. Each is tried on the candidate, and the first that leads to the
meaning is suggested: a way that does not does no harm, and the plainest stands first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from align_hooks.checklist.meaning import Balanced, Dynamic, ExpertLayers, Meaning, Order, Scaling
from align_hooks.checklist.mindformers_schedule import LOWEST
from align_hooks.checklist.readings import balancing, batch_size, data, layout, mindspeed, precision, schedule
from align_hooks.checklist.readings import optimizer as read
from align_hooks.checklist.readings.data import HANDLERS, LOADER
from align_hooks.checklist.readings.experts import mindformers_expert_ffn
from align_hooks.checklist.readings.lookup import are_numbers, has, is_on, known, value_of
from align_hooks.checklist.readings.structure import CHATGLM_BASE, YARN, mindformers_rope_scaling
from align_hooks.checklist.row import MODEL, UNSET, EditRequest, Edits, Tries, is_new, model, plain
from align_hooks.checklist.writable import choices, takes, usable
from align_hooks.configuration.values import MEGATRON, Configuration, Setting, Value

LONGEST = 128
"""Members of a list that are tried one by one: no model's setting has more."""
YARN_SCALES = (("mscale", 1.0), ("mscale_all_dim", mindspeed.all_dimensions))
"""Scales of YaRN, and the default of each."""


def of_one_key(asked: EditRequest) -> Iterator[Edits]:
    """Yield one key with a value that may have the meaning and that the key accepts."""
    for key in asked.keys:
        yield from ({key: value} for value in (*_copied(key, asked), *_values(key, asked), *choices(key, asked.candidate)))


def left_out(asked: EditRequest) -> Iterator[Edits]:
    """Yield a flag of Megatron's left out, any that is set where a reading names no keys."""
    if asked.candidate.side == MEGATRON:
        set_flags = asked.keys or usable([*asked.candidate.values], asked.candidate)
        yield from ({key: UNSET} for key in set_flags if key in asked.candidate.values)


def _copied(key: str, asked: EditRequest) -> Iterator[Setting]:
    """Yield the reference's number for a key, where both sides are of one framework, so that all rows of the key agree."""
    reference, candidate = asked.reference, asked.candidate
    value = known(reference, key) if reference.side == candidate.side else None
    if isinstance(value, int) and takes(key, value, candidate):
        yield value


def _values(key: str, asked: EditRequest) -> Iterator[Setting]:
    """Yield the meaning, a switch, what stands for nothing, or a number of the meaning; a list with one member replaced."""
    meaning, current = asked.wanted, known(asked.candidate, key)
    if isinstance(current, list):
        yield from [meaning] if isinstance(meaning, list) else []
        yield from ([*current[:at], meaning, *current[at + 1 :]] for at in range(min(len(current), LONGEST)))
        return
    numbers = meaning.numbers if isinstance(meaning, Meaning) else (1, 0) if meaning is None else ()
    integer = [int(meaning)] if isinstance(meaning, float) and meaning.is_integer() else []
    first = [*integer, meaning] if key.endswith("_steps") else [meaning, *integer]
    yield from (value for value in (*first, True, False, *numbers) if takes(key, value, asked.candidate, isinstance(meaning, bool)))


def one_of(*choices: Setting) -> Tries:
    """Return tries of all values that a key accepts, which are no meanings."""
    return lambda asked: ({key: choice} for key in asked.keys for choice in choices)


def with_member(member: Setting) -> Tries:
    """Return tries of a list with one member more."""

    def tries(asked: EditRequest) -> Iterator[Edits]:
        lists = ((key, value_of(asked.candidate, (key,), [])) for key in asked.keys)
        yield from ({key: [*members, member]} for key, members in lists if isinstance(members, list))

    return tries


def nothing(asked: EditRequest) -> Iterator[Edits]:
    """Yield nothing, where no way is known from here, such as the path of a data set on another machine."""
    return iter(())


def lengths(asked: EditRequest) -> Iterator[Edits]:
    """Yield the sequence length of the model and of its data, which must be the same."""
    handlers = known(asked.candidate, HANDLERS)
    own: Edits = {f"{LOADER}.config.seq_length": asked.wanted} if has(asked.candidate, f"{LOADER}.config.") else {}
    if isinstance(handlers, list):
        own = {HANDLERS: [one | {"seq_length": asked.wanted} if isinstance(one, dict) and "seq_length" in one else one for one in handlers]}
    yield from of_one_key(replace(asked, keys=[key for key in asked.keys if key != HANDLERS]))
    yield {**dict.fromkeys(model("seq_length"), asked.wanted), **own}


def stops(asked: EditRequest) -> Iterator[Edits]:
    """Yield attention that stops at the end of a document, or does not, by a full mask, or by a compressed one with its column."""
    made, of_megatron = f"{LOADER}.config.reset_attention_mask", data.reader(asked.candidate) == data.OF_MEGATRON
    keys = [key for key in asked.keys if key != made and (key not in data.RESETS or (".config." in key) is of_megatron)]
    for key in [made, *keys] if "attention_mask" in data.model_columns(asked.candidate) else [*keys, made]:
        column = data.length_column_edits(asked.candidate, on=asked.wanted is True) if key != made else {}
        yield {key: asked.wanted, **column}
    if asked.wanted is True and of_megatron:
        yield {f"{LOADER}.config.create_attention_mask": True, made: True}


def seed_of_data(asked: EditRequest) -> Iterator[Edits]:
    """Yield the seed of MindFormers' reader of Megatron's data; other readers have that of the run."""
    yield {f"{LOADER}.config.seed" if has(asked.candidate, f"{LOADER}.config.") else "seed": asked.wanted}


def order(asked: EditRequest) -> Iterator[Edits]:
    """Yield a reader that shuffles, or does not."""
    yield {f"{LOADER}.shuffle": asked.wanted is Order.SHUFFLED}


def rotary_base(asked: EditRequest) -> Iterator[Edits]:
    """Yield the base of rotary positions, of ChatGLM2 as a ratio to its own."""
    yield from of_one_key(asked)
    if are_numbers(asked.wanted):
        ratio = asked.wanted / CHATGLM_BASE
        yield {f"{MODEL}rope_ratio": int(ratio) if ratio == int(ratio) else ratio}


def window(asked: EditRequest) -> Iterator[Edits]:
    """Yield a window as the pair of ``window_size``, or as Hugging Face's one number with the switch that turns it off."""
    wanted = asked.wanted
    on = {key: True for key in model("use_sliding_window") if key in asked.candidate.values and wanted is not None}
    back = wanted[0] if isinstance(wanted, list) else None
    keys = (key for key in asked.keys if not key.endswith("use_sliding_window"))
    yield from ({key: wanted if key.endswith("window_size") else back, **on} for key in keys)


def activation(asked: EditRequest) -> Iterator[Edits]:
    """Yield an activation with or without a gate."""
    named = asked.wanted.removeprefix("gated ") if isinstance(asked.wanted, str) else " "
    own = [] if " " in named else [named]  # an activation of several words goes by another name
    acts = ("silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu2", "relu", "swiglu", *own)
    act, gated = model("hidden_act", "gated_linear_unit")
    yield from ({act: name} for name in acts if act in asked.keys)
    yield from ({gated: on} for on in (True, False) if gated in asked.keys)
    yield from ({act: name, gated: on} for name in acts for on in (True, False) if {act, gated} <= set(asked.keys))


def scaling(asked: EditRequest) -> Iterator[Edits]:
    """Yield a scaling of positions by its type and factor; older models want all its numbers."""
    wanted, newer, values = asked.wanted, is_new(asked.candidate), asked.candidate.values
    if wanted == "none":
        plain_type = "rope" if newer else "None"
        types = [key for key in asked.keys if key.endswith(("type", "extend_method")) and key in values]
        yield from ({key: plain_type} for key in types)
        yield dict.fromkeys(types, plain_type)
    if wanted == YARN and newer:
        yield {f"{MODEL}position_embedding_type": YARN}
    yield from of_one_key(asked)
    if wanted == YARN:
        yield from ({f"{MODEL}position_embedding_type": YARN, f"{MODEL}rope_scaling.{name}": YARN} for name in ("type", "rope_type"))
        yield from _older_yarn(asked.reference) if not newer else ()
    if isinstance(wanted, Scaling) and wanted.kind == "llama3" and not newer:  # a newer model turns no positions by such a type
        table = {"factor": wanted.factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
        yield {f"{MODEL}extend_method": "LLAMA3", **_table("scaling_factor", table)}


def stretch(asked: EditRequest) -> Iterator[Edits]:
    """Yield the factor of latent attention's scores, with plain rotary positions."""
    if mindformers_rope_scaling(asked.candidate) == YARN:  # whose same numbers turn positions too, and have rows of their own
        return
    factor, scale = model("rotary_scaling_factor", "mscale")
    yield {factor: 1.0}
    if (reference := asked.reference).side == MEGATRON:
        dimensions = value_of(reference, ("mscale_all_dim",), mindspeed.all_dimensions)
        yield {factor: float(value_of(reference, ("rotary_scaling_factor",), 1.0)), scale: float(dimensions)}


def _older_yarn(reference: Configuration) -> Iterator[Edits]:
    """Yield YaRN with all its numbers, as older models want it."""
    table = {"factor": mindspeed.yarn_factor(reference), "original_max_position_embeddings": mindspeed.yarn_original(reference)}
    table |= {name: value_of(reference, (name, f"yarn_{name}"), usual) for name, usual in (("beta_slow", 1.0), ("beta_fast", 32.0))}
    table |= {name: mindspeed.yarn_scale(name, usual)(reference) for name, usual in YARN_SCALES}
    if UNSET not in table.values():
        yield {f"{MODEL}extend_method": "YARN", **_table("scaling_factor", table)}


def _table(name: str, values: Mapping[str, Setting]) -> Edits:
    """Return a table of ``model_config`` as keys."""
    return {f"{MODEL}{name}.{key}": value for key, value in values.items()}


def shared_experts(asked: EditRequest) -> Iterator[Edits]:
    """Yield shared experts by their number, which times the size of an expert makes the size of all."""
    size = mindformers_expert_ffn(asked.candidate)
    counts = [key for key in asked.keys if not key.endswith("_intermediate_size")]
    if asked.wanted is None:
        yield from ({key: 0} for key in counts)
    elif are_numbers(asked.wanted, size) and size and asked.wanted % size == 0:
        yield from ({key: int(asked.wanted // size)} for key in counts)
    yield from of_one_key(asked)


def groups(asked: EditRequest) -> Iterator[Edits]:
    """Yield groups of experts, with as many chosen where more would be chosen than exist."""
    yield from of_one_key(asked)
    if is_new(asked.candidate):
        yield dict.fromkeys(model("n_group", "topk_group"), asked.wanted or 1)
    elif asked.reference.side == MEGATRON:
        yield from _older_groups(asked)


def _older_groups(asked: EditRequest) -> Iterator[Edits]:
    """Yield all settings by which an older router chooses among groups."""
    groups, chosen = (mindspeed.groups(f"moe_router_{name}")(asked.reference) for name in ("num_groups", "group_topk"))
    experts = value_of(asked.reference, ("moe_router_topk",), 2)
    # a group scores its best expert or its two best, where Megatron-LM adds up as many as are chosen of a group
    method = {1: "group_limited_greedy", 2: "noaux_tc"}.get(experts // chosen) if are_numbers(groups, chosen, experts) and chosen else None
    if method is not None:
        way = {"n_group": groups, "topk_group": chosen, "topk_method": method}
        # the grouped matrix product ignores groups; without it a factor of 0 drops no token
        product = {"use_gmm": False, "capacity_factor": 0.0} if is_on(asked.candidate, "moe_config.use_gmm") else {}
        yield {f"moe_config.{name}": value for name, value in {**way, **product}.items()}


def betas(at: int) -> Tries:
    """Return tries of one beta, in the list of both or under its own name, whichever the optimizer reads."""

    def tries(asked: EditRequest) -> Iterator[Edits]:
        both = [read.betas(asked.candidate, index) for index in range(2)]
        ways: list[Edits] = [{"optimizer.betas": [*both[:at], asked.wanted, *both[at + 1 :]]}, {f"optimizer.beta{at + 1}": asked.wanted}]
        yield from (way for way in ways if way.keys() <= set(read.beta_keys(asked.candidate)))

    return tries


def optimizer(asked: EditRequest) -> Iterator[Edits]:
    """Yield the class of an optimizer, with its betas in the form that this class reads."""
    for kind in ("AdamW", "Adam"):
        values = {**asked.candidate.values, "optimizer.type": Value(kind)}
        yield {"optimizer.type": kind, **read.moved_betas(replace(asked.candidate, values=values))}


def clip(asked: EditRequest) -> Iterator[Edits]:
    """Yield the norm to which gradients are clipped, 0 without clipping."""
    on, norm = "runner_wrapper.use_clip_grad", "runner_wrapper.max_grad_norm"
    yield from ({on: value} for value in (True, False))
    yield {norm: asked.wanted}
    yield {on: True, norm: asked.wanted}


def lowest_rate(asked: EditRequest) -> Iterator[Edits]:
    """Yield the rate at which a schedule ends, by its class's name for that rate."""
    kind = schedule.schedule_class(value_of(asked.candidate, schedule.schedule_keys("type"), UNSET))
    if kind in LOWEST:
        yield {_schedule_key(asked, LOWEST[kind][0]): asked.wanted}
    if kind == "LinearWithWarmUpLR":  # which ends at 0; a polynomial of power 1 is the same and need not
        yield {_schedule_key(asked, "type"): "PolynomialWithWarmUpLR", _schedule_key(asked, "lr_end"): asked.wanted}


def style(asked: EditRequest) -> Iterator[Edits]:
    """Yield the class of a schedule, of one that falls at the end with the step from which it does."""
    kind = _schedule_key(asked, "type")
    yield from ({kind: name} for name in ("ConstantWarmUpLR", "LinearWithWarmUpLR", "CosineWithWarmUpLR", "PolynomialWithWarmUpLR"))
    falls, length = value_of(asked.reference, ("lr_wsd_decay_iters",), None), schedule.megatron_decay_length(asked.reference)
    # without a warm-up MindFormers' first rate is NaN, step / step: one step that begins at the full rate replaces none
    warm = {} if schedule.megatron_warmup(asked.reference) else {"warmup_steps": 1, "warmup_lr_init": value_of(asked.reference, ("lr",))}
    if are_numbers(falls, length, *warm.values()):
        own = {"decay_start_steps": int(length - falls), **warm}
        yield {kind: "WarmUpStableDecayLR", **{_schedule_key(asked, name): value for name, value in own.items()}}


def warm_up(asked: EditRequest) -> Iterator[Edits]:
    """Yield steps of warm-up, or their part of the length where the reference has one; each replaces the other."""
    steps, ratio = (_schedule_key(asked, name) for name in ("warmup_steps", "warmup_ratio"))
    of_megatron = asked.reference.side == MEGATRON
    part = value_of(asked.reference, ("lr_warmup_fraction",) if of_megatron else schedule.schedule_keys("warmup_ratio"), None)
    if part is not None:
        yield {ratio: part, steps: None}
    count = schedule.megatron_warmup(asked.reference) if of_megatron else schedule.mindformers_warmup(asked.reference)
    if are_numbers(count) and math.isfinite(count):
        yield from ({steps: whole, ratio: None} for whole in dict.fromkeys((int(count), math.ceil(count))))


def global_batch(asked: EditRequest) -> Iterator[Edits]:
    """Yield a global batch by its micro-batches, by the rows of these, or by both, with the reference's rows if these divide it."""
    c = asked.candidate
    count, now = batch_size.micro_batch_key(c), batch_size.mindformers_global_batch(c)
    for key in (count, "runner_config.batch_size"):
        each = value_of(c, (key,), 1)
        if are_numbers(asked.wanted, now, each) and now and (asked.wanted * each) % now == 0:
            yield {key: int(asked.wanted * each // now)}
    rows, batches = batch_size.mindformers_micro_batch(c), batch_size.mindformers_micro_batches(c)
    if are_numbers(asked.wanted, now, rows, batches) and now and asked.wanted % (ranks := now // (rows * batches)) == 0:
        wanted = value_of(asked.reference, ("micro_batch_size", "runner_config.batch_size"), 1)
        each = int(asked.wanted // ranks)
        yield from ({"runner_config.batch_size": size, count: each // size} for size in (wanted, 1) if each % size == 0)


def length(asked: EditRequest) -> Iterator[Edits]:
    """Yield a number of steps by the samples of the data set, in as many epochs or in one, or by epochs."""
    c = asked.candidate
    sizes, epochs = value_of(c, (f"{LOADER}.sizes",)), value_of(c, ("runner_config.epochs",), 1)
    batch = batch_size.mindformers_global_batch(c)
    if isinstance(sizes, list) and sizes and are_numbers(asked.wanted, sizes[0], epochs, batch):
        for count in (epochs, 1):
            if count and asked.wanted % count == 0:
                yield {f"{LOADER}.sizes": [asked.wanted // count * batch, *sizes[1:]], "runner_config.epochs": count}
        if (each := sizes[0] // batch) and asked.wanted % each == 0:
            yield {"runner_config.epochs": asked.wanted // each}


def micro_batch(asked: EditRequest) -> Iterator[Edits]:
    """Yield rows of a micro-batch, with as many micro-batches of a step as keep the global batch."""
    c = asked.candidate
    if batch_size.adds_up_nothing(c) is not None:
        return
    rows, batches = batch_size.mindformers_micro_batch(c), batch_size.mindformers_micro_batches(c)
    if are_numbers(asked.wanted, rows, batches) and asked.wanted and rows * batches % asked.wanted == 0:
        yield {"runner_config.batch_size": int(asked.wanted), batch_size.micro_batch_key(c): int(rows * batches // asked.wanted)}


def stages(asked: EditRequest) -> Iterator[Edits]:
    """Yield stages of a pipeline, unless lists with an entry for each must be written by hand."""
    if asked.wanted == 1 or not layout.per_stage(asked.candidate):
        yield from of_one_key(asked)


def balanced(asked: EditRequest) -> Iterator[Edits]:
    """Yield a load-balancing loss that counts among the same tokens, by its kind, the size of a micro-batch, or both."""
    of_megatron = asked.candidate.side == MEGATRON
    kinds = [key for key in asked.keys if key.endswith("load_balancing_type")]
    named = [{key: kind} for key in kinds for kind in (balancing.OF_MEGATRON if of_megatron else balancing.OF_MINDFORMERS)]
    yield from named
    if isinstance(asked.wanted, Balanced) and not asked.wanted.of_step:
        rows = asked.wanted.sequences
        sizes: list[Edits] = [{"micro_batch_size": rows}] if of_megatron else list(micro_batch(replace(asked, wanted=rows)))
        if not of_megatron and not is_new(asked.candidate):  # whose router reads the tokens of one device
            sizes += [{"parallel_config.use_seq_parallel": False, **size} for size in ({}, *sizes)]
        yield from sizes
        yield from ({**kind, **size} for kind in named for size in sizes)


def micro_batches(asked: EditRequest) -> Iterator[Edits]:
    """Yield micro-batches of a step, with as many rows each as keep the global batch."""
    rows, batches = batch_size.mindformers_micro_batch(asked.candidate), batch_size.mindformers_micro_batches(asked.candidate)
    if are_numbers(asked.wanted, rows, batches) and asked.wanted and rows * batches % asked.wanted == 0:
        yield from micro_batch(replace(asked, wanted=rows * batches // asked.wanted))
    yield {batch_size.micro_batch_key(asked.candidate): asked.wanted}


def fused_swiglu(asked: EditRequest) -> Iterator[Edits]:
    """Yield a fused SwiGLU, which newer models accept with the activation of that name only."""
    yield from of_one_key(asked)
    switch, act = model("bias_swiglu_fusion", "hidden_act")
    if switch in asked.keys and asked.wanted is True:
        yield {switch: True, act: "swiglu"}


def averaged(asked: EditRequest) -> Iterator[Edits]:
    """Yield gradients that are averaged over ranks, or not."""
    yield {"parallel.gradients_mean": asked.wanted}


def loss_scale(asked: EditRequest) -> Iterator[Edits]:
    """Yield a loss scale that is fixed, or one that moves from a start."""
    sense = "runner_wrapper.scale_sense"
    if isinstance(asked.wanted, Dynamic):
        yield {f"{sense}.type": "DynamicLossScaleUpdateCell", f"{sense}.loss_scale_value": int(asked.wanted.start)}
    elif are_numbers(asked.wanted):
        yield {sense: float(asked.wanted)}


def scale_window(asked: EditRequest) -> Iterator[Edits]:
    """Yield the steps after which a moving loss scale is doubled, with all that makes it move where it does not yet."""
    sense = "runner_wrapper.scale_sense"
    start = precision.megatron_loss_scale(asked.reference) if asked.reference.side == MEGATRON else None
    if f"{sense}.type" in asked.candidate.values:
        yield {f"{sense}.scale_window": asked.wanted}
    elif isinstance(start, Dynamic):
        moves = {"type": "DynamicLossScaleUpdateCell", "loss_scale_value": int(start.start), "scale_factor": 2}
        yield {f"{sense}.{name}": value for name, value in (moves | {"scale_window": asked.wanted}).items()}


def split(asked: EditRequest) -> Iterator[Edits]:
    """Yield the parts of a data set as one text, as Megatron and MindFormers' reader of its data accept them."""
    written = value_of(asked.reference, ("split", f"{LOADER}.config.split"), None)
    parts = [plain(part.strip()) for part in written.split(",")] if isinstance(written, str) else asked.wanted
    mark = "," if asked.candidate.side == MEGATRON else ", "
    if isinstance(parts, list) and are_numbers(*parts):
        yield from ({key: mark.join(f"{part:.9g}" for part in parts)} for key in asked.keys)


def window_of_megatron(asked: EditRequest) -> Iterator[Edits]:
    """Yield a window as two numbers with a comma."""
    if isinstance(asked.wanted, list):
        yield from ({key: ",".join(map(str, asked.wanted))} for key in asked.keys)
    elif asked.wanted is None:
        yield from ({key: None} for key in asked.keys)


def pattern(asked: EditRequest) -> Iterator[Edits]:
    """Yield layers with experts by a frequency, or by a pattern as Megatron evaluates it."""
    yield from of_one_key(asked)
    if isinstance(asked.wanted, ExpertLayers):
        yield {"moe_layer_freq": "+".join(f"[{int(experts)}]*{count}" for experts, count in asked.wanted.runs)}


def expert_layers(asked: EditRequest) -> Iterator[Edits]:
    """Yield layers with experts by how many dense ones come first, or by a list with a digit a layer."""
    yield from of_one_key(asked)
    first, every = model("first_k_dense_replace", "moe_layer_freq")
    if isinstance(asked.wanted, ExpertLayers) and {first, every} <= set(asked.keys):
        yield {first: 0, every: [int(experts) for experts, count in asked.wanted.runs for _ in range(count)]}


def half_precision(asked: EditRequest) -> Iterator[Edits]:
    """Yield the two switches of half precision, at most one of them on."""
    yield from ({"bf16": on == "bfloat16" or None, "fp16": on == "float16" or None} for on in ("bfloat16", "float16", "float32"))


def _schedule_key(asked: EditRequest, name: str) -> str:
    """Return the key of a setting of the candidate's schedule, that of ``grouped_lr_schedule`` where there is one."""
    grouped, single = schedule.schedule_keys(name)
    return grouped if has(asked.candidate, schedule.GROUPED) else single
