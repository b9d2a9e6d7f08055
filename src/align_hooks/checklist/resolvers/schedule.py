"""The steps of a run, and the length, warm-up and rates of its learning rate's schedule, as each side computes them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from align_hooks.checklist.canonical_values import UNSET, OwnRates, Words
from align_hooks.checklist.lookup import are_numbers, by_side, has, value_of
from align_hooks.checklist.resolver import EditRequest, Edits, resolver
from align_hooks.checklist.resolvers.data import LOADER
from align_hooks.checklist.resolvers.layout import megatron_global_batch, mindformers_global_batch
from align_hooks.configuration.values import MEGATRON, MINDFORMERS, Configuration, Setting
from align_hooks.messages import Side, message

GROUPED = "grouped_lr_schedule.default."
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


def schedule_class(kind: Setting) -> str:
    """Return the class of a schedule by its name, or by its other one."""
    return SCHEDULES.get(str(kind), str(kind))


def schedule_keys(name: str) -> tuple[str, str]:
    """Return the keys of a schedule's setting; that of ``grouped_lr_schedule`` wins."""
    return (f"{GROUPED}{name}", f"lr_schedule.{name}")


@resolver
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


@mindformers_steps.writer
def length_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield a number of steps by the samples of the data set, in as many epochs or in one, or by epochs."""
    c = request.candidate
    sizes, epochs = value_of(c, (f"{LOADER}.sizes",)), value_of(c, ("runner_config.epochs",), 1)
    batch = mindformers_global_batch(c)
    if isinstance(sizes, list) and sizes and are_numbers(request.wanted, sizes[0], epochs, batch):
        for count in (epochs, 1):
            if count and request.wanted % count == 0:
                yield {f"{LOADER}.sizes": [request.wanted // count * batch, *sizes[1:]], "runner_config.epochs": count}
        if (each := sizes[0] // batch) and request.wanted % each == 0:
            yield {"runner_config.epochs": request.wanted // each}


def megatron_steps(c: Configuration) -> Setting:
    """Return ``--train-iters``, or ``--train-samples`` over the global batch."""
    if (steps := value_of(c, ("train_iters",))) is not UNSET:
        return steps
    samples, batch = value_of(c, ("train_samples",)), megatron_global_batch(c)
    return samples // batch if are_numbers(samples, batch) and batch else UNSET


def ends_earlier(*sides: Configuration) -> Words | None:
    """Return which side makes fewer steps, and whether its schedule is as long; None where that is not known."""
    lengths = [*map(by_side(megatron_steps, mindformers_steps), sides)]
    if not are_numbers(*lengths) or lengths[0] == lengths[1]:
        return None
    schedules = [*map(by_side(megatron_decay_length, length_of_schedule), sides)]
    first, steps = min(zip(Side, lengths, strict=True), key=lambda side: side[1])
    return message("harmless.ends_earlier" if schedules[0] == schedules[1] else "harmless.schedule_ends_earlier", side=first, steps=steps)


def samples(c: Configuration) -> Setting:
    """Return the samples of a run: its steps, each of a full batch; the value as written where the batch is not known."""
    steps = by_side(megatron_steps, mindformers_steps)(c)
    batch = by_side(megatron_global_batch, mindformers_global_batch)(c)
    if are_numbers(steps, batch):
        return steps * batch
    written, epochs = value_of(c, ("train_dataset.data_loader.sizes", "train_samples")), value_of(c, ("runner_config.epochs",), 1)
    first = written[0] if isinstance(written, list) and written else written
    return first * epochs if are_numbers(first, epochs) else first


def megatron_decay_length(c: Configuration) -> Setting:
    """Return ``--lr-decay-iters``, ``--lr-decay-samples`` over the global batch, or the length of the run."""
    samples = value_of(c, ("lr_decay_samples",), None)
    return value_of(c, ("lr_decay_iters",), megatron_steps) if samples is None else _in_steps(samples, c)


def length_of_schedule(c: Configuration) -> Setting:
    """Return the steps of the schedule, by default the run's."""
    steps = value_of(c, schedule_keys("decay_steps"), lambda c: value_of(c, schedule_keys("total_steps"), -1))
    return mindformers_steps(c) if steps == -1 else steps


def _in_steps(samples: Setting, c: Configuration) -> Setting:
    """Return samples in steps of Megatron's global batch."""
    batch = megatron_global_batch(c)
    return samples / batch if are_numbers(samples, batch) and batch else UNSET


def megatron_warmup(c: Configuration) -> Setting:
    """Return the steps of warm-up, set or as a part of the schedule's length."""
    if (part := value_of(c, ("lr_warmup_fraction",), None)) is not None:
        return part * length if are_numbers(part, length := megatron_decay_length(c)) else UNSET
    samples = value_of(c, ("lr_warmup_samples",), 0)
    return _in_steps(samples, c) if samples else value_of(c, ("lr_warmup_iters",), 0) or 0


@resolver
def mindformers_warmup(c: Configuration) -> Setting:
    """Return the steps of warm-up; ``warmup_ratio`` wins over ``warmup_steps``, also where it is 0."""
    if (part := value_of(c, schedule_keys("warmup_ratio"), None)) is not None:
        return 0 if not part else int(part * length) if are_numbers(part, length := length_of_schedule(c)) else UNSET
    steps = value_of(c, schedule_keys("warmup_steps"), 0) or 0
    return int(steps) if are_numbers(steps) else steps


@mindformers_warmup.writer
def warm_up_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield steps of warm-up, or their part of the length where the reference has one; each replaces the other."""
    steps, ratio = (_schedule_key(request, name) for name in ("warmup_steps", "warmup_ratio"))
    of_megatron = request.reference.side == MEGATRON
    part = value_of(request.reference, ("lr_warmup_fraction",) if of_megatron else schedule_keys("warmup_ratio"), None)
    if part is not None:
        yield {ratio: part, steps: None}
    count = megatron_warmup(request.reference) if of_megatron else mindformers_warmup(request.reference)
    if are_numbers(count) and math.isfinite(count):
        yield from ({steps: whole, ratio: None} for whole in dict.fromkeys((int(count), math.ceil(count))))


def rate(c: Configuration) -> Setting:
    """Return the learning rate after its warm-up."""
    return value_of(c, (*schedule_keys("learning_rate"), *schedule_keys("base_lr")), lambda c: value_of(c, ("optimizer.learning_rate",)))


def rates_of_groups(c: Configuration) -> Setting:
    """Return the groups of parameters with schedules of their own; None where all have the common one."""
    groups = value_of(c, ("grouped_lr_schedule.grouped",), None)
    if not isinstance(groups, list):
        return groups
    common = {name.removeprefix(GROUPED): value.value for name, value in c.values.items() if name.startswith(GROUPED)}
    schedules = [{key: value for key, value in group.items() if key != "params"} for group in groups if isinstance(group, dict)]
    return None if schedules and all(schedule == common for schedule in schedules) else OwnRates(len(groups))


LOWEST = {
    **dict.fromkeys(("CosineWithWarmUpLR", "CosineWithRestartsAndWarmUpLR"), ("lr_end", 0.0)),
    **dict.fromkeys(("PolynomialWithWarmUpLR", "WarmUpStableDecayLR"), ("lr_end", 1e-7)),
    "ConstantWithCoolDownLR": ("lr_end1", 0.0),
    **dict.fromkeys(("CosineAnnealingLR", "CosineAnnealingWarmRestarts"), ("eta_min", 0.0)),
}
"""Schedules that end at a rate that can be set: the name that the class has for it, and its default. A linear one ends at 0."""


@resolver
def lowest_rate(configuration: Configuration) -> Setting:
    """Return the rate at which the schedule ends; of one without an end, its ``lr_end``."""
    kind = schedule_class(value_of(configuration, schedule_keys("type"), None))
    if kind == "LinearWithWarmUpLR":
        return 0.0
    name, otherwise = LOWEST.get(kind, ("lr_end", 0.0))
    return value_of(configuration, schedule_keys(name), otherwise) or 0.0


@lowest_rate.writer
def lowest_rate_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield the rate at which a schedule ends, by its class's name for that rate."""
    kind = schedule_class(value_of(request.candidate, schedule_keys("type"), UNSET))
    if kind in LOWEST:
        yield {_schedule_key(request, LOWEST[kind][0]): request.wanted}
    if kind == "LinearWithWarmUpLR":  # which ends at 0; a polynomial of power 1 is the same and need not
        yield {_schedule_key(request, "type"): "PolynomialWithWarmUpLR", _schedule_key(request, "lr_end"): request.wanted}


@resolver
def style(configuration: Configuration) -> Setting:
    """Return the class of the schedule, by the shape that it gives: a polynomial of power 1 is linear."""
    kind = schedule_class(value_of(configuration, schedule_keys("type"), "constant"))
    straight = kind == "PolynomialWithWarmUpLR" and float(value_of(configuration, schedule_keys("power"), 1.0)) == 1.0
    return "LinearWithWarmUpLR" if straight else kind


@style.writer
def style_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield the class of a schedule, of one that falls at the end with the step from which it does."""
    kind = _schedule_key(request, "type")
    yield from ({kind: name} for name in ("ConstantWarmUpLR", "LinearWithWarmUpLR", "CosineWithWarmUpLR", "PolynomialWithWarmUpLR"))
    falls, length = value_of(request.reference, ("lr_wsd_decay_iters",), None), megatron_decay_length(request.reference)
    # without a warm-up MindFormers' first rate is NaN, step / step: one step that begins at the full rate replaces none
    warm = {} if megatron_warmup(request.reference) else {"warmup_steps": 1, "warmup_lr_init": value_of(request.reference, ("lr",))}
    if are_numbers(falls, length, *warm.values()):
        own = {"decay_start_steps": int(length - falls), **warm}
        yield {kind: "WarmUpStableDecayLR", **{_schedule_key(request, name): value for name, value in own.items()}}


def _schedule_key(request: EditRequest, name: str) -> str:
    """Return the key of a setting of the candidate's schedule, that of ``grouped_lr_schedule`` where there is one."""
    grouped, single = schedule_keys(name)
    return grouped if has(request.candidate, GROUPED) else single


def warm(c: Configuration) -> Setting:
    """Return the steps, samples or part of the run that warm up."""
    mindformers, megatron = ("warmup_steps", "warmup_ratio"), ("lr_warmup_iters", "lr_warmup_samples", "lr_warmup_fraction")
    names = [key for name in mindformers for key in schedule_keys(name)] if c.side == MINDFORMERS else megatron
    return next((value for name in names for value in [value_of(c, (name,), 0)] if value), 0)
