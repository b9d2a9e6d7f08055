"""Gather recorded updates as evidence: complete ones, at a sample of elements."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from itertools import takewhile

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from align_hooks.comparison.finding import when
from align_hooks.comparison.metrics.limits import weights_eps
from align_hooks.comparison.optimizer.formula import Array, Evidence, HyperParameters, RecordedUpdate, State
from align_hooks.messages import Message, all_of, message
from align_hooks.process.work import WorkPool
from align_hooks.record.format.layout import MOMENTS
from align_hooks.record.format.rows import ScalarRow
from align_hooks.record.format.schema import BESIDE_FORMULA, OptimizerFacts, ParameterGroup
from align_hooks.record.read.tensors import Tensors, Whole
from align_hooks.record.reader import Run

CHECKED = 4
"""First consecutive updates that are checked, and as many of the last: three distinguish every term from every other."""
ADAM = re.compile(r"(?!N|R)\w*Adam(W|WeightDecay)?")
"""Class names of Adam or AdamW in torch, Apex, Transformer Engine, MindFormers and MindSpore; no Adamax, NAdam, RAdam."""
SAMPLED = 1 << 15
"""Elements that the formula is checked on, over all tensors."""


class OnRecord(Struct, frozen=True):
    """A run's updates, and the settings that they should follow."""

    evidence: Evidence
    settings: HyperParameters
    learning_rate: float
    """The largest rate of the first update that has one."""
    clip_grad: float | None
    """None without clipping."""


def gather(run: Run, partner: Run, *, candidate: bool, work: WorkPool) -> OnRecord | Message:
    """Return a run's updates and settings, or why its updates cannot be checked.

    ``partner`` is the other side's run. A candidate's unknown settings are expected to be the reference's."""
    optimizer = run.facts.optimizer or (partner.facts.optimizer if candidate else None)
    if optimizer is None:
        return message("formula.no_hyper_parameters")
    by_parameter = {name: group for name, group in optimizer.by_parameter().items() if group.momentum is None}
    kinds = {str(group.optimizer or optimizer.type) for group in by_parameter.values()} or {str(optimizer.type)}
    if others := sorted(kind for kind in kinds if not ADAM.fullmatch(kind)):
        return message("formula.not_adam", type=all_of(*others))
    rows = rows_of_updates(run, partner, optimizer, candidate=candidate)
    if isinstance(rows, Message):
        return rows
    first = rows[0].step
    names = sorted(by_parameter.keys() & set(run.weights(first)) & set(gradients(run, partner, first)))
    groups = [by_parameter[name] for name in names]
    settings = expected_settings(optimizer, groups)
    if isinstance(settings, Message):
        return settings
    sample = chosen(run.weights(first), gradients(run, partner, first), names)
    state_after = lru_cache(maxsize=2)(partial(sampled_state, run, sample, work=work))  # the next update starts from it
    updates: list[RecordedUpdate] = []
    for row in rows:
        step = row.step
        before, after = state_after(step), state_after(step + 1)
        # by the updates so far where the state's own count is not on record
        count = before.updates if before.updates is not None else updates[-1].count if updates else 0
        rates = np.array([row.rates[name] for name in names], np.float64)
        gradient = at_sample(gradients(run, partner, step), sample, work)
        of_row = count + 1, rates, row.norm, row.coefficient
        updates.append(RecordedUpdate(step, *of_row, before.arrays, gradient, after.arrays, weights_eps(run)))
        if kinds := {*before.dtypes, *after.dtypes} - {"float32"}:
            return message("formula.moments_kept_in", types=all_of(*sorted(kinds)))
        if not updates[-1].finite:
            return message("formula.not_finite", step=when(step))
    tensor = np.repeat(np.arange(len(sample)), [len(indices) for indices in sample.values()])
    rate = next((float(update.rates.max()) for update in updates if update.rates.any()), 0.0)
    return OnRecord(Evidence(tuple(names), tensor, tuple(updates)), settings, rate, optimizer.clip_grad)


class UpdateRow(Struct, frozen=True):
    """The numbers of one update."""

    step: int
    rates: Mapping[str, float]
    """By parameter."""
    coefficient: float
    """Of clipping."""
    norm: float | None


def rows_of_updates(run: Run, partner: Run, optimizer: OptimizerFacts, *, candidate: bool) -> list[UpdateRow] | Message:
    """Return the numbers of the updates that can be checked, or why none can. A candidate's that are unknown are the reference's."""
    if beside := [name for name in BESIDE_FORMULA if (run.facts.arguments or {}).get(name) == "True"]:
        return message(f"formula.{beside[0]}")
    if (run.facts.arguments or {}).get("weight_decay_incr_style") not in (None, "None", "constant"):
        return message("formula.weight_decay_incr_style")
    rows = {row.step: row for row in run.rows}
    expected = {row.step: row for row in partner.rows} if candidate else {}
    found = []
    for step in chain(run, partner, rows):
        known, expects = asdict(rows[step]), expected.get(step)
        row = replace(expects, **{key: value for key, value in known.items() if value is not None}) if expects else rows[step]
        by_name = None if row.learning_rate is None else optimizer.rates(row.learning_rate)
        if by_name is None or row.clip_coefficient is None:
            return message("formula.not_by_parameter", step=when(step))
        found.append(UpdateRow(step, by_name, row.clip_coefficient, row.grad_norm))
    injected = bool(run.facts.injected.steps)
    return found or message("formula.injected_from_elsewhere" if injected else "formula.no_whole_update")


def expected_settings(optimizer: OptimizerFacts, groups: Sequence[ParameterGroup]) -> HyperParameters | Message:
    """Return the settings that updates should follow, or why they do not fit the formula; ``groups`` has one group a tensor."""
    if optimizer.decoupled_weight_decay is None:
        return message("formula.settings_not_on_record")
    if not groups:
        return message("formula.none_of_its_weights")
    for group in groups:
        numbers = (*(group.betas or ()), group.eps, group.weight_decay, group.bias_correction)
        if len(numbers) != 5 or not all(value is not None and math.isfinite(value) for value in numbers):
            return message("formula.settings_not_on_record")
    betas, eps, corrected = groups[0].betas, groups[0].eps, bool(groups[0].bias_correction)
    if betas is None or eps is None or len({(group.betas, group.eps, group.bias_correction) for group in groups}) > 1:
        return message("formula.groups_differ")
    decay, decoupled = np.array([group.weight_decay for group in groups], np.float64), bool(optimizer.decoupled_weight_decay)
    return HyperParameters(betas[0], betas[1], eps, decay, bias_correction=corrected, decoupled=decoupled)


def chain(run: Run, partner: Run, rows: Mapping[int, ScalarRow]) -> list[int]:
    """Return the steps of complete updates: the first consecutive ones after a known state of Adam, and the last with a state."""
    weights, states, injected = set(run.weight_steps()), set(run.optimizer_state_steps()), set(run.facts.injected.steps)
    from_partner = partner.facts.run_id == run.facts.injected.run_id
    gradients = (set(run.gradient_steps()) - injected) | (injected & set(partner.gradient_steps()) if from_partner else set())
    made = [step for step in sorted(rows) if not rows[step].skipped]
    complete = {step for step in made if {step, step + 1} <= weights} & gradients
    loaded = any(override.loads_optimizer_state for override in run.facts.overrides)
    fresh = made[:1] if min(rows, default=None) == 0 and not loaded else []
    begin = next((index for index, step in enumerate(made) if step in complete & {*states, *fresh}), len(made))
    # a prediction carries the state on, so states of later steps may be missing
    first = list(takewhile(complete.__contains__, made[begin : begin + CHECKED]))
    last = [step for step in made[begin + len(first) :] if step in complete & states]
    return first + last[-CHECKED:]


def gradients(run: Run, partner: Run, step: int) -> Tensors:
    """Return the gradients of a step's update: the run's own, or the injected ones of ``partner``."""
    return (partner if step in run.facts.injected.steps else run).gradients(step)


Sample = Mapping[str, NDArray[np.int64]]
"""Canonical name to flat indices of the elements that all updates are checked on."""


def chosen(tensors: Tensors, gradients: Tensors, names: Sequence[str]) -> Sample:
    """Choose about :data:`SAMPLED` elements, reproducibly, as many of each tensor as there are."""
    generator = np.random.default_rng(0)
    share = max(16, SAMPLED // len(names))
    sample = {}
    for name in names:
        if (size := math.prod(tensors.shape(name))) <= share:
            sample[name] = np.arange(size)
            continue
        moved = np.flatnonzero(gradients[name])
        parts = [generator.integers(0, size, share)]
        # half with a gradient: few rows of an embedding have one, and only those show what Adam makes of it
        parts += [moved[generator.integers(0, moved.size, share)]] if moved.size else []
        sample[name] = np.unique(np.concatenate(parts))
    return sample


def at_sample(tensors: Tensors, sample: Sample, work: WorkPool) -> Array:
    """Return the sampled elements of all tensors in one array, fp64."""
    pieces = [(tensors.whole(name), indices) for name, indices in sample.items()]
    return np.concatenate([*work.map(_elements, pieces, [whole.bytes for whole, _ in pieces])])


def _elements(of: tuple[Whole, NDArray[np.int64]]) -> Array:
    whole, indices = of
    return np.asarray(whole.read().reshape(-1)[indices], np.float64)


class SampledState(Struct, frozen=True):
    """A run's state between two updates, at the sampled elements."""

    arrays: State
    updates: int | None = None
    """Adam's count; None where not on record."""
    dtypes: tuple[str, ...] = ()
    """Of the moments; empty where not on record."""


def sampled_state(run: Run, sample: Sample, updates: int, work: WorkPool) -> SampledState:
    """Return the state after so many updates; tensors are read one by one."""
    weights = at_sample(run.weights(updates), sample, work)
    if updates not in run.optimizer_state_steps():
        return SampledState((weights,))
    state = run.optimizer_state(updates)
    moments = (at_sample(state.moments[moment], sample, work) for moment in MOMENTS)
    return SampledState((weights, *moments), state.updates, tuple(state.dtypes[moment] for moment in MOMENTS if moment in state.dtypes))
