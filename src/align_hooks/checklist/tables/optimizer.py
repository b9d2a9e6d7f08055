"""The guide's table of the optimizer, and the comparison's; a schedule's settings are judged by the rates that they give."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from align_hooks.checklist.canonical_values import UNSET, Words, plain, text
from align_hooks.checklist.lookup import Unstated, all_sides, are_numbers, value_of
from align_hooks.checklist.resolvers import layout, optimizer
from align_hooks.checklist.resolvers import schedule as read
from align_hooks.checklist.resolvers.schedule import schedule_class, schedule_keys
from align_hooks.checklist.row import CheckRow, Effect, Recommendation, RowGroup, SideSpec, Worded
from align_hooks.checklist.schedules import RATE, differences, learning_rate
from align_hooks.configuration.values import MINDFORMERS, Configuration, Setting, Unknown
from align_hooks.messages import message

row = partial(CheckRow, group=RowGroup.OPTIMIZER)
MUON = "optimizer=muon"
"""The condition of rows of Muon: both sides divide a momentum by its spectral norm, so that its own scale means nothing."""

STYLES = {
    "ConstantWarmUpLR": "constant",
    "LinearWithWarmUpLR": "linear",
    "CosineWithWarmUpLR": "cosine",
    "CosineAnnealingLR": "cosine",
    "WarmUpStableDecayLR": "wsd",
    "WSD": "wsd",
}
STYLES |= {alias: STYLES.get(name, name.lower()) for alias, name in read.SCHEDULES.items()}
"""Names of the same shape of a schedule."""
ONE_CLASS = "decay_start_steps decay_start_ratio decay_ratio keep_steps final_steps lr_end2 num_cycles t_max t_0 t_mult"
OF_ONE_CLASS = tuple(key for name in ONE_CLASS.split() for key in schedule_keys(name))
"""Keys that only some classes of schedules read; rates are compared as they come out."""


def same_schedule(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why two schedules' settings need not agree: both give the same rate, within float32's rounding, at every step."""
    try:
        errors = differences(learning_rate(reference), learning_rate(candidate))[1]
    except Unstated:
        return None
    return None if (errors > RATE).any() else message("harmless.same_rates")


def same_rates(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why the highest rates need not agree; None where these differ, whatever else is not known."""
    with suppress(Unknown):
        return same_schedule(reference, candidate)
    return None


def same_end(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why the lowest rates need not agree: the schedules are the same, or constant."""
    kinds = [c.find(("lr_decay_style", *schedule_keys("type"))) for c in (reference, candidate)]
    constant = all(kind is not None and STYLES.get(schedule_class(kind.value), kind.value) == "constant" for kind in kinds)
    return same_schedule(reference, candidate) or (message("harmless.constant_rates") if constant else None)


def warms_by_a_part(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why steps of warm-up need not agree: a side has them as a part of the schedule, which is another row."""
    by_parts = any(map(_part, (reference, candidate))) and not _may_be_those_steps(reference, candidate)
    return same_schedule(reference, candidate) or (message("harmless.as_a_part") if by_parts else None)


def warms_by_steps(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why parts of a schedule need not agree: one of unknown length may come to the other side's steps."""
    by_steps = _may_be_those_steps(reference, candidate)
    return same_schedule(reference, candidate) or (message("harmless.as_steps") if by_steps else None)


def _part(c: Configuration) -> Setting:
    return value_of(c, ("lr_warmup_fraction", *schedule_keys("warmup_ratio")), None)


def _may_be_those_steps(*sides: Configuration) -> bool:
    """Return whether a side warms up by a part of an unknown length, and the other by as many steps of its own."""
    of_mindformers = read.mindformers_warmup, read.length_of_schedule
    kinds = [of_mindformers if c.side == MINDFORMERS else (read.megatron_warmup, read.megatron_decay_length) for c in sides]
    for at, other in ((0, 1), (1, 0)):
        part, steps, length = _part(sides[at]), *(of_side(sides[other]) for of_side in kinds[other])
        if part and not _part(sides[other]) and kinds[at][0](sides[at]) is UNSET:
            return not are_numbers(part, steps, length) or abs(part * length - steps) < 1
    return False


def beta(at: int, advised: float) -> CheckRow:
    """Return the row of one of Adam's two betas."""
    name, usual = f"beta{at + 1}", (0.9, 0.999)[at]
    return row(
        name,
        SideSpec((f"adam_{name}",), usual),
        SideSpec(("optimizer.betas", f"optimizer.{name}", "optimizer.adamw_betas"), read=optimizer.beta(at)),
        fact=f"optimizer.groups.0.betas.{at}",
        advice=Recommendation(str(advised), lambda value: abs(value - advised) < 1e-6),
    )


def muon(name: str, default: Setting, key: str, otherwise: Setting) -> CheckRow:
    """Return the row of a setting of Muon's, by Megatron's argument and MindFormers' key."""
    return row(f"muon_{name}", SideSpec((f"muon_{name}",), default), SideSpec((f"optimizer.{key}",), otherwise), when=MUON)


def end_of_decay(name: str) -> CheckRow:
    """Return the row of the first or last weight decay, where it changes, which only Megatron's does."""
    megatron = SideSpec((name,), read=lambda c: optimizer.unless_constant(c, name))
    return row(name, megatron, SideSpec(fixed=None))


OPTIMIZER = (
    row(
        "global_batch_size",
        SideSpec(
            ("global_batch_size", "micro_batch_size", "data_parallel_size", "launcher.nproc_per_node", "launcher.nnodes"),
            read=layout.megatron_global_batch,
        ),
        SideSpec(
            (
                *("runner_config.batch_size", "parallel_config.data_parallel", "parallel_config.micro_batch_num"),
                *("parallel_config.pipeline_stage", "micro_batch_interleave_num", "runner_config.gradient_accumulation_steps"),
                *("parallel.parallel_mode", "use_parallel", "device_num", "train_dataset.batch_size", "runner_config.global_batch_size"),
            ),
            read=layout.mindformers_global_batch,
        ),
        instead=layout.ranks_too,
    ),
    row(
        "optimizer",
        SideSpec(("optimizer",), read=optimizer.megatron_optimizer),
        SideSpec(("optimizer.type",), read=optimizer.mindformers_optimizer),
    ),
    beta(0, 0.9),
    beta(1, 0.95),
    row(
        "eps",
        SideSpec(("adam_eps",), 1e-8),
        SideSpec(("optimizer.eps", "optimizer.adamw_eps"), read=optimizer.mindformers_eps),
        fact="optimizer.groups.0.eps",
        advice=Recommendation("1e-8", lambda eps: abs(eps - 1e-8) < 1e-14),
    ),
    row(
        "weight_decay", SideSpec(("weight_decay",), read=optimizer.strength), SideSpec(("optimizer.weight_decay",), read=optimizer.strength)
    ),
    row(
        Worded("weights_that_decay"),
        SideSpec(read=optimizer.decaying, beside=("apply_wd_to_qk_layernorm", "no_weight_decay_cond_type")),
        SideSpec(read=optimizer.decaying),
        describe=optimizer.decaying_differences,
        harmless_if=lambda *sides: None if all_sides(optimizer.strength, *sides) else message("harmless.no_decay"),
    ),
    end_of_decay("start_weight_decay"),
    end_of_decay("end_weight_decay"),
    row("weight_decay_incr_style", SideSpec(("weight_decay_incr_style",), "constant"), SideSpec(fixed="constant"), form=text),
    muon("momentum", 0.9, "momentum", 0.95),
    muon("nesterov", False, "nesterov", True),
    row(
        "muon_num_ns_steps",
        SideSpec(("muon_num_ns_steps",), 5),
        SideSpec(("optimizer.ns_steps", "optimizer.ns_coefficients"), read=optimizer.newton_schulz_steps),
        when=MUON,
    ),
    row(
        "muon_coefficient_type",
        SideSpec(("muon_coefficient_type",), "quintic"),
        SideSpec(("optimizer.ns_coefficients",), read=optimizer.newton_schulz_coefficients),
        when=MUON,
    ),
    row("muon_scale_mode", SideSpec(("muon_scale_mode",), "spectral"), SideSpec(fixed="spectral"), when=MUON),
    muon("extra_scale_factor", 1.0, "matched_adamw_rms", 0.2),
    row(
        "muon_fp32_matmul_prec", SideSpec(("muon_fp32_matmul_prec",), "medium"), SideSpec(fixed="medium"), effect=Effect.ROUNDING, when=MUON
    ),
    row("muon_scalar_optimizer", SideSpec(("muon_scalar_optimizer",), "adam"), SideSpec(fixed="adam"), when=MUON),
    row(
        "clip_grad",
        SideSpec(("clip_grad",), 1.0),
        SideSpec(
            ("runner_wrapper.use_clip_grad", "runner_wrapper.max_grad_norm", "runner_wrapper.clip_grad", "runner_wrapper.type"),
            read=optimizer.mindformers_clip,
        ),
        fact="optimizer.clip_grad",
        advice=Recommendation("1.0", lambda norm: norm == 1.0),
    ),
    row(
        "lr",
        SideSpec(("lr",)),
        SideSpec((*schedule_keys("learning_rate"), *schedule_keys("base_lr"), "optimizer.learning_rate"), read=read.rate),
        harmless_if=same_rates,
    ),
    row(
        "lr_decay_style",
        SideSpec(("lr_decay_style",), "linear", beside=("lr_wsd_decay_style",)),
        SideSpec((*schedule_keys("type"), *schedule_keys("power")), read=read.style, beside=OF_ONE_CLASS),
        form=lambda kind: STYLES.get(schedule_class(kind), text(schedule_class(kind))),
        harmless_if=same_schedule,
    ),
    row(
        "min_lr",
        SideSpec(("min_lr",), 0.0),
        SideSpec(
            (*schedule_keys("lr_end"), *schedule_keys("lr_end1"), *schedule_keys("eta_min"), *schedule_keys("min_lr")),
            read=read.lowest_rate,
            beside=schedule_keys("type"),
        ),
        form=lambda rate: plain(rate) or 0.0,
        harmless_if=same_end,
    ),
    row(
        "lr_decay_iters",
        SideSpec(("lr_decay_iters", "lr_decay_samples"), read=read.megatron_decay_length),
        SideSpec((*schedule_keys("total_steps"), *schedule_keys("decay_steps")), read=read.length_of_schedule),
        harmless_if=same_end,
    ),
    row(
        "lr_decay_samples",
        SideSpec(("lr_decay_samples",), None),
        SideSpec(fixed=None),
        harmless_if=lambda reference, candidate: message("harmless.in_steps"),
    ),
    row(
        "lr_warmup_iters",
        SideSpec(("lr_warmup_iters", "lr_warmup_samples", "lr_warmup_fraction"), read=read.megatron_warmup),
        SideSpec(
            (*schedule_keys("warmup_steps"), *schedule_keys("warmup_ratio")),
            read=read.mindformers_warmup,
            beside=("lr_schedule.warmup_epochs",),
        ),
        harmless_if=warms_by_a_part,
    ),
    row(
        "lr_warmup_fraction",
        SideSpec(("lr_warmup_fraction",), None),
        SideSpec(schedule_keys("warmup_ratio"), None, writer=read.warm_up_edits),
        form=lambda part: plain(part) or 0,
        harmless_if=warms_by_steps,
    ),
    row("lr_warmup_init", SideSpec(("lr_warmup_init",), 0.0), SideSpec(schedule_keys("warmup_lr_init"), 0.0), harmless_if=same_schedule),
    row(
        Worded("rates_of_their_own_for_the_embedding_and_output"),
        SideSpec(("decoupled_lr",), None),
        SideSpec(("grouped_lr_schedule.grouped",), read=read.rates_of_groups, beside=("layer_scale",)),
    ),
    row(Worded("minimum_of_the_embeddings_own_rate"), SideSpec(("decoupled_min_lr",), None), SideSpec(fixed=None)),
)
