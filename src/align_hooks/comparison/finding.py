"""One thing compared: both values, and the error beside its limit."""

from __future__ import annotations

import math
from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from align_hooks.messages import Joined, Message, message


class Named(str, Enum):
    """A member whose value is its name in data."""

    __str__ = str.__str__


class Metric(Named):
    """What a finding is of. The value is the name of the recorded quantity (:mod:`align_hooks.quantities`), where it is one."""

    LOSS = "losses"
    TOKEN_LOSSES = "token_losses"
    ROUTING = "routing"
    BATCHES = "batches"
    VALID_TOKENS = "valid_tokens"
    CONSUMED_SAMPLES = "consumed_samples"
    LOCAL_NORMS = "local_norms"
    GRADIENTS = "gradients"
    GRAD_NORM = "grad_norm"
    CLIP_COEFFICIENT = "clip_coefficient"
    SKIPPED = "skipped"
    LEARNING_RATE = "learning_rate"
    UPDATES = "updates"
    WEIGHTS = "weights"
    OPTIMIZER_STATE = "optimizer_state"
    ACTIVATIONS = "activations"
    HYPER_PARAMETER = "optimizer"
    MODEL_SETTING = "model"
    SHAPE = "shape"
    WHOLENESS = "wholeness"
    SELF_CHECK = "self_check"
    STATE = "state"


class Term(Named):
    """What AdamW or Muon makes an update with."""

    LEARNING_RATE = "learning_rate"
    BETA1 = "beta1"
    BETA2 = "beta2"
    BETAS = "betas"
    EPS = "eps"
    WEIGHT_DECAY = "weight_decay"
    DECAY_GROUPING = "decay_grouping"
    BIAS_CORRECTION = "bias_correction"
    DECOUPLED_WEIGHT_DECAY = "decoupled_weight_decay"
    CLIP_COEFFICIENT = "clip_coefficient"
    GRADIENT_SCALE = "gradient_scale"
    COUNT = "count"
    FORMULA = "formula"
    MOMENTUM = "momentum"
    NESTEROV = "nesterov"
    COEFFICIENTS = "coefficients"
    SCALE = "scale"


class Pattern(Enum):
    """What a stage recognises in its findings, for the diagnosis; batches have patterns of their own (``Made``, ``SampleRelation``)."""

    STALE_MAIN_PARAMETERS = "an optimizer starts from other weights than its model"
    CLIPPED_BEFORE = "gradients reach the optimizer with the norm to which it clips"
    RANKS_NOT_REDUCED = "ranks hold different gradients of one tensor"
    RANKS_DIFFER = "ranks hold different weights of one tensor"
    NORM_MISCOUNTS = "a framework's norm does not count each element once"
    CLIPPED_APART = "gradients are clipped by a norm of each group of tensors"
    NAMED_ALIKE = "ranks hold other tensors under one name"
    MOMENTS_EMPTIED = "an optimizer's moments are empty after updates"
    SOME_UPDATES = "updates of few tensors follow no formula"
    DIVIDED_BY_NOTHING = "a loss is divided by the tokens that count where none does"
    BIAS_MOVED = "an update moved the experts' bias otherwise"
    RATE_STANDS = "a resumed run's learning rate no longer moves"
    UPDATES_SCALED = "every update is off by one factor"
    GRADIENTS_KEPT = "gradients have those of the step before in them"


class Unit(Enum):
    """What an error and its limit are counted in."""

    RELATIVE = "relative"
    ROUNDINGS = "roundings"


Value: TypeAlias = "str | bool | int | float | Message | Joined | None"
"""A side's value in a comparison: a number as it is, a setting as it was written, a message where there is no number."""


Words: TypeAlias = "Message | Joined"


def when(step: int) -> Message:
    """A step as people meet it: our number, and the iteration that both frameworks print."""
    return message("step.iteration", step=step, iteration=step + 1)


def at_step(subject: Words | str, step: int) -> Message:
    """What was compared, at a step."""
    return message("step.of", what=subject, step=step, iteration=step + 1)


class Finding(Struct, frozen=True):
    """One thing compared that is worth showing."""

    what: Words | str
    """What was compared, for readers."""
    reference: Value = ""
    candidate: Value = ""
    error: float | None = None
    """How far the two are apart, in ``unit``; None where that is not known."""
    limit: float | None = None
    """How far honest runs may be apart, in ``unit``; None without a limit."""
    scale: float | None = None
    """The number by which the reference comes closest to the candidate; None of what is no tensor or norm."""
    direction: float | None = None
    """The relative error that is left at ``scale``; None of norms, which have no direction."""
    name: str = ""
    """The canonical name of the tensor, or the setting, alone."""
    step: int | None = None
    """None of what is of no step."""
    quantity: Metric | None = None
    since: int | None = None
    """The first step at which it may have come about; None where that is the step at which it was seen."""
    rank: int | None = None
    unit: Unit = Unit.RELATIVE
    term: Term | None = None
    """The term with which a run's updates were made against its settings; None of anything else."""
    by_digest: bool = False
    """Whether the two are equal by the digests that both records keep."""
    names: tuple[str, ...] = ()
    """The parameters of a setting that differs for some; empty where it differs for all."""
    pattern: Enum | None = None
    """The pattern that the finding is; None where it is no known one."""

    @property
    def limit_ratio(self) -> float:
        """Error over limit: above 1 it is a violation. NaN and infinity count as infinite."""
        return limit_ratio(self.error, self.limit)


def limit_ratio(error: float | None, limit: float | None) -> float:
    """Error over limit; see :attr:`Finding.limit_ratio`."""
    if error is None or not math.isfinite(error):
        return float("inf")
    if not limit:
        return float("inf") if error else 0.0
    return error / limit
