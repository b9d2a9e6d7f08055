"""The built optimizer: its hyper-parameters, and Adam's moments under canonical names.

MindSpore's optimizers keep moments in the order of ``optimizer.parameters`` and count updates in ``global_step``, which
the learning-rate schedule reads too. Which attribute holds which moment, and what the update is, differs by class.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import mindspore
from mindspore.nn.learning_rate_schedule import LearningRateSchedule
from numpy.typing import NDArray

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.model import Parameters, fill, pieces
from align_hooks.record.layout import MOMENTS
from align_hooks.record.reader import OptimizerState


@dataclass(frozen=True, slots=True)
class Adam:
    """What a class of Adam does: attributes of the two moments, whether it corrects their bias, what ``global_step`` starts at."""

    moments: tuple[str, str]
    bias_correction: bool = True
    first: int = 0


ADAMS = {
    "AdamW": Adam(("exp_avg", "exp_avg_sq")),
    "PmaAdamW": Adam(("exp_avg", "exp_avg_sq")),
    "FusedAdamW": Adam(("exp_avg", "exp_avg_sq"), first=-1),
    "AdamWeightDecay": Adam(("moments1", "moments2"), bias_correction=False),
}
"""By class name: ``mindformers.core.optim`` 1.3 to 1.9 (1.3 and 1.5 have the first of these), and ``mindspore.nn`` for the last. Their
arithmetic stands in ``construct``."""


def kind_of(optimizer: Any) -> Adam | None:
    """What is known of an optimizer's class or of one that it derives from; None for one that is no Adam of the table."""
    return next((ADAMS[one.__name__] for one in type(optimizer).__mro__ if one.__name__ in ADAMS), None)


def optimizer_facts(cell: Any, parameters: Parameters) -> dict[str, Any]:
    """Hyper-parameters a parameter group, as the optimizer holds them at the start, with canonical names.

    MindSpore keeps decay, and where rates differ the rate, per parameter; parameters that share them are one group here.
    """
    optimizer = cell.optimizer
    kind = kind_of(optimizer)
    betas, eps = [number(optimizer, "beta1"), number(optimizer, "beta2")], number(optimizer, "eps")
    return {
        "type": type(optimizer).__name__,
        "decoupled_weight_decay": "AdamW" in type(optimizer).__name__,
        "clip_grad": float(cell.clip_grad_norm.clip_norm.asnumpy().reshape(())) if cell.use_clip_grad else None,
        "groups": [
            {
                "learning_rate": learning_rate(optimizer, first),
                "betas": betas,
                "eps": eps,
                "bias_correction": kind.bias_correction if kind else None,
                "weight_decay": weight_decay(optimizer, first),
                "parameters": held,
            }
            for first, held in groups(optimizer, parameters).items()
        ],
    }


def groups(optimizer: Any, parameters: Parameters) -> dict[int, list[str]]:
    """Canonical names of the parameters that share a schedule and a decay, by the index of the first one.

    By the schedule, not by its rate: two that warm up both begin with 0. One group's parameters need not stand together.
    """
    names = {parameter.model.name: parameter.fused.pieces for parameter in parameters}
    firsts: dict[tuple[int, str], int] = {}
    found: dict[int, list[str]] = {}
    for index, weight in enumerate(optimizer.parameters):
        schedule = schedule_of(optimizer, index)
        key = id(schedule.schedule if isinstance(schedule, Shifted) else schedule), repr(weight_decay(optimizer, index))
        if weight.name in names:
            found.setdefault(firsts.setdefault(key, index), []).extend(names[weight.name])
    return found


def rates(optimizer: Any, firsts: Iterable[int]) -> float | list[float]:
    """The rate that the next update uses, or one a group where these differ; ``firsts`` are the keys of :func:`groups`."""
    found = [learning_rate(optimizer, first) for first in firsts]
    return found[0] if len(set(found)) == 1 else found


def schedule_of(optimizer: Any, index: int) -> Any:
    """One parameter's rate or schedule of rates; the object is that of its whole group."""
    return optimizer.learning_rate[index] if optimizer.is_group_lr else optimizer.learning_rate


def weight_decay(optimizer: Any, index: int) -> float:
    """One parameter's decay; NaN where it follows a schedule."""
    decay = optimizer.weight_decay[index] if isinstance(optimizer.weight_decay, tuple) else optimizer.weight_decay
    return float("nan") if callable(getattr(decay, "construct", None)) else float(decay)


def learning_rate(optimizer: Any, index: int) -> float:
    """The rate that the optimizer's next update uses for one of its parameters."""
    rate = schedule_of(optimizer, index)
    if optimizer.dynamic_lr:
        rate = rate(optimizer.global_step)
    return float(rate.asnumpy().reshape(-1)[0])


def number(optimizer: Any, name: str) -> float:
    """One of the optimizer's constants, kept as a Tensor or as a number."""
    value = getattr(optimizer, name)
    return float(value.asnumpy().reshape(-1)[0]) if hasattr(value, "asnumpy") else float(value)


def moments(optimizer: Any, parameters: Parameters) -> dict[str, dict[str, NDArray[Any]]]:
    """Adam's moments: moment name to canonical name to fp32 array; nothing of copies."""
    if not any(one.counted for one in parameters):
        return {moment: {} for moment in MOMENTS}
    return {moment: pieces((one, tensors[one.index]) for one in parameters if one.counted) for moment, tensors in _held(optimizer).items()}


def moment_dtypes(optimizer: Any) -> dict[str, str]:
    """The type in which the optimizer keeps each of Adam's moments, which a record makes fp32."""
    return {moment: str(tensors[0].dtype).lower() for moment, tensors in _held(optimizer).items()}


def load_moments(optimizer: Any, parameters: Parameters, state: OptimizerState) -> None:
    """Set Adam's moments and its count of updates, the exponent of its bias correction."""
    for moment, tensors in _held(optimizer).items():
        for one in parameters:
            fill(tensors[one.index], one.fused.join(state.moments[moment]))
    kind = kind_of(optimizer)
    assert kind is not None
    optimizer.global_step.set_data(mindspore.Tensor([kind.first + state.updates], dtype=optimizer.global_step.dtype))


def updates_made(optimizer: Any) -> int:
    """How many updates the optimizer has counted."""
    kind = kind_of(optimizer)
    return int(optimizer.global_step.asnumpy().reshape(-1)[0]) - (kind.first if kind else 0)


def _held(optimizer: Any) -> dict[str, Any]:
    kind = kind_of(optimizer)
    if kind is None:
        raise RefusedRun(f"only the moments of {', '.join(ADAMS)} are known, this optimizer is {type(optimizer).__name__}")
    return dict(zip(MOMENTS, (getattr(optimizer, name) for name in kind.moments), strict=True))


class Shifted(LearningRateSchedule):  # type: ignore[misc]
    """A learning-rate schedule that starts where it would have, although the count of updates starts later.

    ``global_step`` is both the schedule's position and Adam's exponent; loading a state of N updates sets the exponent.
    """

    def __init__(self, schedule: Any, updates: int) -> None:
        super().__init__()
        self.schedule = schedule
        self.updates = updates

    def construct(self, global_step):  # type: ignore[no-untyped-def]
        """The rate of ``global_step - updates``; compiled from this text."""
        return self.schedule(global_step - self.updates)
