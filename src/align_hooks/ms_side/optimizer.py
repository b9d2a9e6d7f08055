"""The built optimizer: its hyper-parameters, and Adam's moments under canonical names.

MindSpore's optimizers keep moments in the order of ``optimizer.parameters``. They count updates in ``global_step``, which the
learning-rate schedule reads too. The attributes that hold the moments, and the arithmetic of the update, differ by class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import mindspore
from mindspore.nn.learning_rate_schedule import LearningRateSchedule

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.arrays import number
from align_hooks.ms_side.model import Parameters, fill, pieces
from align_hooks.ms_side.objects import Cell, Optimizer, Schedule, Weight
from align_hooks.ms_side.place import calling_alone
from align_hooks.names.blocks import Array
from align_hooks.record.format.layout import MOMENTS
from align_hooks.record.reader import OptimizerState


@dataclass(frozen=True, slots=True)
class Adam:
    """A class of Adam: the attributes of its two moments, whether it corrects their bias, and the ``first`` value of ``global_step``."""

    moments: tuple[str, str]
    bias_correction: bool = True
    first: int = 0


ADAMS = {
    "AdamW": Adam(("exp_avg", "exp_avg_sq")),
    "PmaAdamW": Adam(("exp_avg", "exp_avg_sq")),
    "FusedAdamW": Adam(("exp_avg", "exp_avg_sq"), first=-1),
    "AdamWeightDecay": Adam(("moments1", "moments2"), bias_correction=False),
}
"""By class name: those of ``mindformers.core.optim`` 1.3 to 1.9 (1.3 and 1.5 have AdamW alone), and last that of ``mindspore.nn``. Their
arithmetic stands in ``construct``."""


def kind_of(optimizer: Optimizer) -> Adam | None:
    """The entry of :data:`ADAMS` for an optimizer's class or a base of it; None for an optimizer that has no entry."""
    return next((ADAMS[base.__name__] for base in type(optimizer).__mro__ if base.__name__ in ADAMS), None)


def clip_norm(cell: Cell) -> float | None:
    """The norm at which a training cell clips gradients; None where it does not clip."""
    return number(cell.clip_grad_norm.clip_norm) if cell.use_clip_grad else None


def optimizer_facts(cell: Cell, parameters: Parameters) -> dict[str, object]:
    """Hyper-parameters by parameter group, as the optimizer holds them at the start, with canonical names.

    MindSpore keeps the decay of each parameter, and its rate where rates differ. Parameters that share both are a group here.
    """
    optimizer = cell.optimizer
    kind = kind_of(optimizer)
    beta1, beta2, eps = (number(getattr(optimizer, name)) if hasattr(optimizer, name) else None for name in ("beta1", "beta2", "eps"))
    return {
        "type": type(optimizer).__name__,
        "decoupled_weight_decay": ("AdamW" in type(optimizer).__name__) if "Adam" in type(optimizer).__name__ else None,
        "clip_grad": clip_norm(cell),
        "groups": [
            {
                "learning_rate": learning_rate(optimizer, first),
                "betas": None if None in (beta1, beta2) else [beta1, beta2],
                "eps": eps,
                "bias_correction": kind.bias_correction if kind else None,
                "weight_decay": weight_decay(optimizer, first),
                "parameters": names,
            }
            for first, names in groups(optimizer, parameters).items()
        ],
    }


def groups(optimizer: Optimizer, parameters: Parameters) -> dict[int, list[str]]:
    """Canonical names of the parameters that share a schedule and a decay, by the index of the group's first parameter.

    Schedules are compared, and not their rates: two schedules that warm up both begin with 0. A group's parameters need not be neighbours.
    """
    names = {parameter.model.name: parameter.fused.pieces for parameter in parameters}
    firsts: dict[tuple[int, str], int] = {}
    grouped: dict[int, list[str]] = {}
    for index, weight in enumerate(optimizer.parameters):
        schedule = schedule_of(optimizer, index)
        key = id(schedule.schedule if isinstance(schedule, Shifted) else schedule), repr(weight_decay(optimizer, index))
        if weight.name in names:
            grouped.setdefault(firsts.setdefault(key, index), []).extend(names[weight.name])
    return grouped


def rates(optimizer: Optimizer, firsts: Iterable[int]) -> float | list[float]:
    """The rate of the next update, or each group's rate where these differ; ``firsts`` are the keys of :func:`groups`."""
    rates = [learning_rate(optimizer, first) for first in firsts]
    return rates[0] if len(set(rates)) == 1 else rates


def schedule_of(optimizer: Optimizer, index: int) -> Schedule:
    """A parameter's rate or schedule of rates; its whole group shares the object."""
    return optimizer.learning_rate[index] if optimizer.is_group_lr else optimizer.learning_rate


def weight_decay(optimizer: Optimizer, index: int) -> float:
    """A parameter's decay; NaN where it follows a schedule."""
    decay = optimizer.weight_decay[index] if isinstance(optimizer.weight_decay, tuple) else optimizer.weight_decay
    return float("nan") if callable(getattr(decay, "construct", None)) else float(decay)


def learning_rate(optimizer: Optimizer, index: int) -> float:
    """The rate that the optimizer's next update uses for a parameter."""
    rate = schedule_of(optimizer, index)
    with calling_alone():
        return number(rate(optimizer.global_step) if optimizer.dynamic_lr else rate)


def moments(optimizer: Optimizer, parameters: Parameters) -> dict[str, dict[str, Array]]:
    """Adam's moments, without copies: moment name to canonical name to fp32 array."""
    counted = [parameter for parameter in parameters if parameter.counted]
    if not counted:
        return {moment: {} for moment in MOMENTS}
    return {moment: pieces((parameter, kept[parameter.index]) for parameter in counted) for moment, kept in _kept(optimizer).items()}


def moment_dtypes(optimizer: Optimizer) -> dict[str, str]:
    """The type in which the optimizer keeps each of Adam's moments, which a record makes fp32."""
    return {moment: str(kept[0].dtype).lower() for moment, kept in _kept(optimizer).items()}


def load_moments(optimizer: Optimizer, parameters: Parameters, state: OptimizerState) -> None:
    """Set Adam's moments and its count of updates, the exponent of its bias correction."""
    for moment, kept in _kept(optimizer).items():
        for parameter in parameters:
            fill(kept[parameter.index], parameter.fused.join(state.moments[moment]))
    kind = kind_of(optimizer)
    assert kind is not None
    optimizer.global_step.set_data(mindspore.Tensor([kind.first + state.updates], dtype=optimizer.global_step.dtype))


def updates_made(optimizer: Optimizer) -> int:
    """How many updates the optimizer has counted."""
    kind = kind_of(optimizer)
    return int(number(optimizer.global_step)) - (kind.first if kind else 0)


def _kept(optimizer: Optimizer) -> dict[str, Sequence[Weight]]:
    """Moment name to that moment of each of the optimizer's parameters."""
    kind = kind_of(optimizer)
    if kind is None:
        raise RefusedRun(f"only the moments of {', '.join(ADAMS)} are known, this optimizer is {type(optimizer).__name__}")
    return dict(zip(MOMENTS, (getattr(optimizer, name) for name in kind.moments), strict=True))


class Shifted(LearningRateSchedule):  # type: ignore[misc]
    """A learning-rate schedule at its own position, although the count of updates starts at ``updates``.

    ``global_step`` is both the schedule's position and Adam's exponent; loading a state of N updates sets the exponent.
    """

    def __init__(self, schedule: Schedule, updates: int) -> None:
        super().__init__()
        self.schedule = schedule
        self.updates = updates

    def construct(self, global_step):  # type: ignore[no-untyped-def]
        """The rate of ``global_step - updates``; compiled from this text."""
        return self.schedule(global_step - self.updates)
