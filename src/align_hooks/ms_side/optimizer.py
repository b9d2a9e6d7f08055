"""The built optimizer: its hyper-parameters, and Adam's moments under canonical names.

MindSpore's optimizers keep moments in the order of ``optimizer.parameters``, and count updates in ``global_step``, which is also the
position of the learning-rate schedule. The attributes of the moments, and the arithmetic of the update, differ by class.
"""

from collections.abc import Iterable, Sequence

import mindspore
from mindspore.nn.learning_rate_schedule import LearningRateSchedule
from msgspec import Struct
from msgspec.structs import replace

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.arrays import number
from align_hooks.ms_side.model import CellParameters, fill, pieces
from align_hooks.ms_side.objects import Cell, Optimizer, Schedule, Weight
from align_hooks.ms_side.place import calling_alone
from align_hooks.names.blocks import Array
from align_hooks.record.format.layout import MOMENTS
from align_hooks.record.reader import OptimizerState
from align_hooks.settings import PREFIX


class Adam(Struct, frozen=True):
    """A class of Adam."""

    moments: tuple[str, str]
    """The attributes of its two moments."""
    bias_correction: bool = True
    first: int = 0
    """The first value of ``global_step``."""


ADAMS = {
    "AdamW": Adam(("exp_avg", "exp_avg_sq")),
    "PmaAdamW": Adam(("exp_avg", "exp_avg_sq")),
    "FusedAdamW": Adam(("exp_avg", "exp_avg_sq"), first=-1),
    "AdamWeightDecay": Adam(("moments1", "moments2"), bias_correction=False),
}
"""By class name: three of ``mindformers.core.optim`` 1.3 to 1.9 (1.3 and 1.5 have only AdamW), and one of ``mindspore.nn``."""


def kind_of(optimizer: Optimizer) -> Adam | None:
    """Return the entry of :data:`ADAMS` for an optimizer's class or its base; None without an entry."""
    kind = next((ADAMS[base.__name__] for base in type(optimizer).__mro__ if base.__name__ in ADAMS), None)
    return replace(kind, first=-1) if kind is not None and getattr(optimizer, "enable_fused_opt", False) else kind  # PyNative's AdamW


def refuse_without_moments(optimizer: Optimizer) -> None:
    """Refuse to record the state of an optimizer that is no Adam."""
    if kind_of(optimizer) is None:
        known, kind = ", ".join(ADAMS), type(optimizer).__name__
        raise RefusedRun(f"{PREFIX}OPTIMIZER_STATE records the moments of {known}, this optimizer is {kind}; unset it")


def clip_norm(cell: Cell) -> float | None:
    """Return the norm at which a training cell clips gradients; None without clipping."""
    return number(cell.clip_grad_norm.clip_norm) if cell.use_clip_grad else None


def optimizer_facts(optimizer: Optimizer, clip: float | None, parameters: CellParameters) -> dict[str, object]:
    """Return the optimizer's present hyper-parameters by parameter group, with canonical names; ``clip`` is the norm at which it clips."""
    kind = kind_of(optimizer)
    beta1, beta2, eps = (number(getattr(optimizer, name)) if hasattr(optimizer, name) else None for name in ("beta1", "beta2", "eps"))
    return {
        "type": type(optimizer).__name__,
        "decoupled_weight_decay": ("AdamW" in type(optimizer).__name__) if "Adam" in type(optimizer).__name__ else None,
        "clip_grad": clip,
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


def groups(optimizer: Optimizer, parameters: CellParameters) -> dict[int, list[str]]:
    """Return the canonical names of parameters that share a schedule and a decay, by the index of the first parameter.

    Schedules are compared, and not their rates: two schedules that warm up both begin with 0. A group may have gaps."""
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
    """Return the rate of the next update, or each group's rate where rates differ; ``firsts`` are the keys of :func:`groups`."""
    rates = [learning_rate(optimizer, first) for first in firsts]
    return rates[0] if len(set(rates)) == 1 else rates


def schedule_of(optimizer: Optimizer, index: int) -> Schedule:
    """Return a parameter's rate or schedule of rates, an object shared by its group."""
    return optimizer.learning_rate[index] if optimizer.is_group_lr else optimizer.learning_rate


def weight_decay(optimizer: Optimizer, index: int) -> float:
    """Return a parameter's decay; NaN where it follows a schedule."""
    decay = optimizer.weight_decay[index] if isinstance(optimizer.weight_decay, tuple) else optimizer.weight_decay
    return float("nan") if callable(getattr(decay, "construct", None)) else float(decay)


def learning_rate(optimizer: Optimizer, index: int) -> float:
    """Return a parameter's rate in the optimizer's next update."""
    rate = schedule_of(optimizer, index)
    with calling_alone():
        return number(rate(optimizer.global_step) if optimizer.dynamic_lr else rate)


def moments(optimizer: Optimizer, parameters: CellParameters) -> dict[str, dict[str, Array]]:
    """Map moment and canonical name to Adam's moments, fp32, without other ranks' copies."""
    counted = [parameter for parameter in parameters if parameter.counted]
    if not counted:
        return {moment: {} for moment in MOMENTS}
    return {moment: pieces((parameter, kept[parameter.index]) for parameter in counted) for moment, kept in _kept(optimizer).items()}


def moment_dtypes(optimizer: Optimizer) -> dict[str, str]:
    """Return the type in which the optimizer keeps each of Adam's moments."""
    return {moment: str(kept[0].dtype).lower() for moment, kept in _kept(optimizer).items()}


def load_moments(optimizer: Optimizer, parameters: CellParameters, state: OptimizerState) -> None:
    """Set Adam's moments and its count of updates, the exponent of its bias correction."""
    for moment, kept in _kept(optimizer).items():
        for parameter in parameters:
            fill(kept[parameter.index], parameter.fused.join(state.moments[moment]))
    kind = kind_of(optimizer)
    assert kind is not None
    optimizer.global_step.set_data(mindspore.Tensor([kind.first + state.updates], dtype=optimizer.global_step.dtype))


def updates_made(optimizer: Optimizer) -> int:
    """Return the optimizer's count of updates."""
    kind = kind_of(optimizer)
    return int(number(optimizer.global_step)) - (kind.first if kind else 0)


def _kept(optimizer: Optimizer) -> dict[str, Sequence[Weight]]:
    """Map each moment's name to the moments of the optimizer's parameters."""
    kind = kind_of(optimizer)
    if kind is None:
        raise RefusedRun(f"only the moments of {', '.join(ADAMS)} are known, this optimizer is {type(optimizer).__name__}")
    return dict(zip(MOMENTS, (getattr(optimizer, name) for name in kind.moments), strict=True))


class Shifted(LearningRateSchedule):  # type: ignore[misc]
    """A learning-rate schedule at its own position, although ``global_step``, also Adam's exponent, starts at ``updates``."""

    def __init__(self, schedule: Schedule, updates: int) -> None:
        super().__init__()
        self.schedule = schedule
        self.updates = updates

    def construct(self, global_step):  # type: ignore[no-untyped-def]
        """Return the rate of ``global_step - updates``; compiled from this text."""
        return self.schedule(global_step - self.updates)
