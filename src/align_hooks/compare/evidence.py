"""Recorded updates as evidence: which ones a record holds whole, and their numbers at a sample of elements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from align_hooks.compare.limits import limits_for
from align_hooks.compare.settings import by_parameter
from align_hooks.compare.updates import Evidence, Settings, Update

CHECKED = 4
"""Consecutive updates that are checked against the formula: three tell every term from every other."""
SAMPLED = 1 << 15
"""Elements that the formula is checked on, spread over all tensors."""


@dataclass(frozen=True)
class OnRecord:
    """A run's updates, the settings that they should follow, and two of these as people write them: first rate, clipping."""

    evidence: Evidence
    settings: Settings
    learning_rate: float
    clip_grad: float | None


def gather(run: Any, other: Any, *, candidate: bool) -> OnRecord | str:
    """A run's updates and settings, or in words why its updates cannot be checked.

    What the candidate does not know of itself is expected to be as in the reference.
    """
    optimizer = run.manifest.get("optimizer") or (other.manifest.get("optimizer") if candidate else None)
    if not optimizer:
        return "its hyper-parameters are not known"
    if "adam" not in str(optimizer.get("type")).lower():
        return f"its optimizer is {optimizer.get('type')}, only Adam's formula is known"
    rows = {row["step"]: row for row in run.scalars()}
    expected = {row["step"]: row for row in other.scalars()} if candidate else {}
    steps = chain(run, other, rows)
    if not steps:
        return "that takes weights before and after a step and its gradients, from the first step or with the optimizer's state"
    names = sorted(by_parameter(optimizer).keys() & set(run.weights(steps[0])) & set(gradients(run, other, steps[0])))
    groups = by_parameter(optimizer)
    if not names:
        return "its optimizer's record names none of its weights"
    if len({(*groups[name]["betas"], groups[name]["eps"], groups[name]["bias_correction"]) for name in names}) > 1:
        return "its parameter groups differ in betas, eps or bias correction, the formula is checked for one of each"
    sample = Sample.choose(run.weights(steps[0]), names)
    updates: list[Update] = []
    for step in steps:
        row = {key: rows[step].get(key) if rows[step].get(key) is not None else expected.get(step, {}).get(key) for key in rows[step]}
        rates = _rates(row["learning_rate"], optimizer, names)
        if rates is None or row["clip_coefficient"] is None:
            return f"learning rate or clip coefficient of step {step} cannot be told by parameter"
        updates.append(_update(run, other, step, row, rates, sample, count=updates[-1].count + 1 if updates else 1))
        if not updates[-1].finite:
            return f"the update of step {step} is not of finite numbers"
    first = groups[names[0]]
    settings = Settings(
        beta1=first["betas"][0],
        beta2=first["betas"][1],
        eps=first["eps"],
        decay=np.array([groups[name]["weight_decay"] for name in names], np.float64),
        bias_correction=first["bias_correction"] is not False,
        decoupled=optimizer.get("decoupled_weight_decay") is not False,
    )
    evidence = Evidence(tuple(names), sample.tensor, tuple(updates))
    return OnRecord(evidence, settings, float(updates[0].rates[0]), optimizer.get("clip_grad"))


def chain(run: Any, other: Any, rows: Mapping[int, Mapping[str, Any]]) -> list[int]:
    """Consecutive steps whose update is on record, from the first one before which Adam's state is known."""
    weights, states = set(run.weight_steps()), set(run.optimizer_state_steps())
    loaded = any(one["what"] == "optimizer state" and one["after"] != "reset" for one in run.manifest.get("overrides", ()))
    found: list[int] = []
    fresh = min(rows, default=None) == 0 and not loaded
    for step in sorted(rows):
        if rows[step]["skipped"]:
            continue
        if (fresh or step in states) and {step, step + 1} <= weights and gradients(run, other, step) is not None:
            found.append(step)
            fresh = True  # the prediction carries the state on
        elif found:
            break
        else:
            fresh = False
        if len(found) == CHECKED:
            break
    return found


def gradients(run: Any, other: Any, step: int) -> Any:
    """What went into the update: the run's own gradients, or those injected, where ``other`` is where they came from."""
    injected = run.manifest.get("injected") or {}
    if step in injected.get("steps", ()):
        same = other.manifest.get("run_id") == injected.get("run_id")
        return other.gradients(step) if same and step in other.gradient_steps() else None
    return run.gradients(step) if step in run.gradient_steps() else None


def _update(run: Any, other: Any, step: int, row: Mapping[str, Any], rates: NDArray[Any], sample: Sample, count: int) -> Update:
    """One update's numbers at the sampled elements; tensors are read one by one."""
    before, after, given = run.weights(step), run.weights(step + 1), gradients(run, other, step)
    states = [run.optimizer_state(one) if one in run.optimizer_state_steps() else None for one in (step, step + 1)]
    known = [tuple(map(sample.of, state.moments.values())) if state else None for state in states]
    return Update(
        step=step,
        count=states[0].updates + 1 if states[0] else count,
        rates=rates,
        norm=row["grad_norm"],
        coefficient=row["clip_coefficient"],
        weights=sample.of(before),
        gradient=sample.of(given),
        after=sample.of(after),
        moments=known[0],  # type: ignore[arg-type]
        moments_after=known[1],  # type: ignore[arg-type]
        eps=_weights_eps(run),
    )


@dataclass(frozen=True)
class Sample:
    """Elements of every tensor, chosen once for all updates: canonical name to flat indices."""

    chosen: Mapping[str, NDArray[np.int64]]

    @classmethod
    def choose(cls, tensors: Any, names: Sequence[str]) -> Sample:
        """About ``SAMPLED`` elements, as many of each tensor as there are, the same ones every time."""
        generator = np.random.default_rng(0)
        each = max(16, SAMPLED // len(names))
        sizes = {name: math.prod(tensors.shape(name)) for name in names}
        return cls(
            {name: np.arange(size) if size <= each else np.unique(generator.integers(0, size, each)) for name, size in sizes.items()}
        )

    def of(self, tensors: Any) -> NDArray[np.float64]:
        """The sampled elements of all tensors in one array."""
        return np.concatenate([tensors[name].reshape(-1)[at].astype(np.float64) for name, at in self.chosen.items()])

    @property
    def tensor(self) -> NDArray[np.int64]:
        """Index of every sampled element's tensor."""
        return np.repeat(np.arange(len(self.chosen)), [len(at) for at in self.chosen.values()])


def _rates(rate: Any, optimizer: Mapping[str, Any], names: Sequence[str]) -> NDArray[Any] | None:
    """The learning rate of each tensor; None where one a group was recorded and the groups are others."""
    held = [group for group in optimizer["groups"] if group["parameters"]]
    if isinstance(rate, list):
        if len(rate) != len(held):
            return None
        by_name = {name: one for one, group in zip(rate, held, strict=True) for name in group["parameters"]}
        return np.array([by_name[name] for name in names], np.float64)
    return None if rate is None else np.full(len(names), rate, np.float64)


def _weights_eps(run: Any) -> float:
    """Eps of the type that the optimizer keeps weights in: Megatron's main parameters are fp32, MindFormers updates the model's own."""
    own = {shard.dtype for rank in run.manifests for shard in run.shards(rank)} if run.manifest.get("side") == "ms" else set()
    return limits_for(*own)[1].eps
