"""Recorded updates as evidence: which ones a record holds whole, and their numbers at a sample of elements."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from align_hooks.compare.formula import Evidence, Settings, Update
from align_hooks.compare.limits import weights_eps
from align_hooks.messages import Message, all_of, message
from align_hooks.record.reader import Run
from align_hooks.record.schema import Group, Optimizer, Rate, Row
from align_hooks.record.tensors import Tensors

CHECKED = 4
"""First consecutive updates that are checked against the formula, and as many of the last: three tell every term from every other."""
ADAM = re.compile(r"(?!N|R)\w*Adam(W|WeightDecay)?")
"""Names of classes that are Adam or AdamW: torch's, Apex's, Transformer Engine's, MindFormers', MindSpore's; no Adamax, NAdam, RAdam."""
SAMPLED = 1 << 15
"""Elements that the formula is checked on, spread over all tensors."""


@dataclass(frozen=True)
class OnRecord:
    """A run's updates, the settings that they should follow, and two of these as people write them: a rate, clipping."""

    evidence: Evidence
    settings: Settings
    learning_rate: float
    clip_grad: float | None


@dataclass(frozen=True)
class Unknown:
    """Why a run's updates cannot be checked."""

    why: Message


def gather(run: Run, other: Run, *, candidate: bool) -> OnRecord | Unknown:
    """A run's updates and settings, or why its updates cannot be checked.

    What the candidate does not know of itself is expected to be as in the reference.
    """
    optimizer = run.facts.optimizer or (other.facts.optimizer if candidate else None)
    if optimizer is None:
        return Unknown(message("formula.no_hyper_parameters"))
    if not ADAM.fullmatch(str(optimizer.type)):
        return Unknown(message("formula.not_adam", type=str(optimizer.type)))
    rows = {row.step: row for row in run.rows}
    expected = {row.step: row for row in other.rows} if candidate else {}
    steps = chain(run, other, rows)
    if not steps:
        injected = bool(run.facts.injected.steps)
        return Unknown(message("formula.injected_from_elsewhere" if injected else "formula.no_whole_update"))
    groups = optimizer.by_parameter()
    names = sorted(groups.keys() & set(run.weights(steps[0])) & set(gradients(run, other, steps[0])))
    if why := outside([groups[name] for name in names]):
        return Unknown(why)
    sample = Sample.choose(run.weights(steps[0]), gradients(run, other, steps[0]), names)
    states = Sampled(run, sample)
    updates: list[Update] = []
    for step in steps:
        row = completed(rows[step], expected.get(step))
        rates = _rates(row.learning_rate, optimizer, names)
        if rates is None or row.clip_coefficient is None:
            return Unknown(message("formula.not_by_parameter", step=step))
        updates.append(
            _update(row, rates, states.at(step), states.at(step + 1), sample.of(gradients(run, other, step)), updates, weights_eps(run))
        )
        if kinds := {*states.at(step).dtypes, *states.at(step + 1).dtypes} - {"float32"}:
            return Unknown(message("formula.moments_kept_in", types=all_of(*sorted(kinds))))
        if not updates[-1].finite:
            return Unknown(message("formula.not_finite", step=step))
    evidence = Evidence(tuple(names), sample.tensor, tuple(updates))
    rate = next((float(one.rates.max()) for one in updates if one.rates.any()), 0.0)
    return OnRecord(evidence, expected_settings(optimizer, [groups[name] for name in names]), rate, optimizer.clip_grad)


def expected_settings(optimizer: Optimizer, groups: Sequence[Group]) -> Settings:
    """What updates should follow; ``groups`` has the hyper-parameters of every tensor."""
    first = groups[0]
    assert first.betas is not None and first.eps is not None  # :func:`outside` has looked
    return Settings(
        beta1=first.betas[0],
        beta2=first.betas[1],
        eps=first.eps,
        decay=np.array([group.weight_decay for group in groups], np.float64),
        bias_correction=first.bias_correction is not False,
        decoupled=optimizer.decoupled_weight_decay is not False,
    )


def completed(row: Row, expected: Row | None) -> Row:
    """A row with what it does not know itself taken from the one that is expected."""
    given = {} if expected is None else asdict(expected)
    return replace(row, **{key: given.get(key) for key, value in asdict(row).items() if value is None})


def outside(groups: Sequence[Group]) -> Message | None:
    """Why these hyper-parameters, one group a tensor, cannot be put into the formula; None where they can."""
    if not groups:
        return message("formula.none_of_its_weights")
    for group in groups:
        betas = group.betas or ()
        if len(betas) != 2 or not all(value is not None and math.isfinite(value) for value in (*betas, group.eps, group.weight_decay)):
            return message("formula.settings_not_on_record")
    if len({(group.betas, group.eps, group.bias_correction) for group in groups}) > 1:
        return message("formula.groups_differ")
    return None


def chain(run: Run, other: Run, rows: Mapping[int, Row]) -> list[int]:
    """Steps whose update is on record: the first ones in a row before which Adam's state is known, and the last with a state."""
    weights, states = set(run.weight_steps()), set(run.optimizer_state_steps())
    made = [step for step in sorted(rows) if not rows[step].skipped]
    whole = {step for step in made if {step, step + 1} <= weights} & known_gradients(run, other)
    loaded = any(override.loads_optimizer_state for override in run.facts.overrides)
    fresh = min(rows, default=None) == 0 and not loaded
    first: list[int] = []
    for step in made:
        if step in whole and (first or step in states or (fresh and step == made[0])):  # a prediction carries the state on
            first.append(step)
        elif first:
            break
        if len(first) == CHECKED:
            break
    last = [step for step in made if first and step > first[-1] and step in whole & states]
    return first + last[-CHECKED:]


def known_gradients(run: Run, other: Run) -> set[int]:
    """Steps of which it is on record what went into the update: the run's own gradients, or those of ``other`` that were injected."""
    given = set(run.facts.injected.steps)
    from_other = other.facts.run_id == run.facts.injected.run_id
    return (set(run.gradient_steps()) - given) | (given & set(other.gradient_steps()) if from_other else set())


def gradients(run: Run, other: Run, step: int) -> Tensors:
    """What went into the update of one of the :func:`known_gradients`."""
    return (other if step in run.facts.injected.steps else run).gradients(step)


def _update(
    row: Row, rates: NDArray[Any], before: State, after: State, gradient: NDArray[Any], earlier: Sequence[Update], eps: float
) -> Update:
    """One update's numbers; where its count is not on record it goes on from the update before it, or begins."""
    assert row.clip_coefficient is not None  # :func:`gather` has looked
    made = before.updates if before.updates is not None else earlier[-1].count if earlier else 0
    return Update(
        step=row.step,
        count=made + 1,
        rates=rates,
        norm=row.grad_norm,
        coefficient=row.clip_coefficient,
        weights=before.weights,
        gradient=gradient,
        after=after.weights,
        moments=before.moments,
        moments_after=after.moments,
        eps=eps,
    )


@dataclass(frozen=True)
class Sample:
    """Elements of every tensor, chosen once for all updates: canonical name to flat indices."""

    chosen: Mapping[str, NDArray[np.int64]]

    @classmethod
    def choose(cls, tensors: Tensors, gradients: Tensors, names: Sequence[str]) -> Sample:
        """About ``SAMPLED`` elements, as many of each tensor as there are, the same ones every time.

        Half of them have a gradient: of an embedding few rows do, and only those show what Adam makes of it.
        """
        generator = np.random.default_rng(0)
        each = max(16, SAMPLED // len(names))
        chosen = {}
        for name in names:
            size = math.prod(tensors.shape(name))
            if size <= each:
                chosen[name] = np.arange(size)
                continue
            moved = np.flatnonzero(gradients[name])
            parts = [generator.integers(0, size, each)]
            parts += [moved[generator.integers(0, moved.size, each)]] if moved.size else []
            chosen[name] = np.unique(np.concatenate(parts))
        return cls(chosen)

    def of(self, tensors: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """The sampled elements of all tensors in one array."""
        return np.concatenate([tensors[name].reshape(-1)[at].astype(np.float64) for name, at in self.chosen.items()])

    @property
    def tensor(self) -> NDArray[np.int64]:
        """Index of every sampled element's tensor."""
        return np.repeat(np.arange(len(self.chosen)), [len(at) for at in self.chosen.values()])


@dataclass(frozen=True)
class State:
    """What a run held between two updates, at the sampled elements; of Adam's state nothing where it is not on record."""

    weights: NDArray[np.float64]
    moments: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    updates: int | None = None
    dtypes: tuple[str, ...] = ()


@dataclass
class Sampled:
    """A run's states, each read once: what one update leads to, the next one starts from."""

    run: Run
    sample: Sample
    last: dict[int, State] = field(default_factory=dict)

    @cached_property
    def recorded(self) -> set[int]:
        """Numbers of updates after which Adam's state is on record."""
        return set(self.run.optimizer_state_steps())

    def at(self, updates: int) -> State:
        """The state after so many updates; tensors are read one by one."""
        if updates not in self.last:
            found = State(self.sample.of(self.run.weights(updates)))
            if updates in self.recorded:
                state = self.run.optimizer_state(updates)
                first, second = map(self.sample.of, state.moments.values())
                found = State(found.weights, (first, second), state.updates, tuple(state.dtypes.values()))
            self.last = {updates - 1: self.last[updates - 1], updates: found} if updates - 1 in self.last else {updates: found}
        return self.last[updates]


def _rates(rate: Rate | None, optimizer: Optimizer, names: Sequence[str]) -> NDArray[Any] | None:
    """The learning rate of each tensor; None where one a group was recorded and the groups are others."""
    held = [group for group in optimizer.groups if group.parameters]
    if isinstance(rate, list):
        if len(rate) != len(held):
            return None
        by_name = {name: one for one, group in zip(rate, held, strict=True) for name in group.parameters}
        return np.array([by_name[name] for name in names], np.float64)
    return None if rate is None else np.full(len(names), rate, np.float64)
