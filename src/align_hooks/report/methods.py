"""How each number was made, a row a stage: what stands behind a report when somebody asks.

Every row says what was taken, of what, by which formula, and what it is held against; ``source`` is where that comes from.
"""

from __future__ import annotations

from dataclasses import dataclass

from align_hooks.messages import Argument, Message, message, sentences
from align_hooks.report.stages import named


@dataclass(frozen=True, slots=True)
class Method:
    """How the numbers of ``stage`` were made; ``stage`` is empty where they are of no stage alone."""

    name: Argument
    how: Message
    source: Argument = None
    stage: str = ""


def _of(stage: str, how: Message, source: Argument = None) -> Method:
    return Method(named(stage), how, source, stage)


METHODS = (
    Method(message("method.name_relative_error"), message("method.relative_error"), "align_hooks.compare.measures"),
    Method(message("method.name_limits"), message("method.limits"), "align_hooks.compare.limits, align_hooks.compare.noise, docs/zoo.md"),
    _of("match", message("method.match")),
    _of("self-check", message("method.self_check"), "align_hooks.record.self_check"),
    _of("hyper-parameters", message("method.hyper_parameters"), message("method.guide_checklist")),
    _of("batches", message("method.batches"), message("method.guide_data_set")),
    _of("initial weights", message("method.initial_weights")),
    _of("initial optimizer state", message("method.initial_optimizer_state")),
    _of("token losses", message("method.token_losses")),
    _of("step-0 loss", message("method.step_0_loss")),
    _of("local norms", message("method.local_norms"), sentences(message("method.guide_local_norm"), "align_hooks.norms")),
    _of("gradients", message("method.gradients"), "align_hooks.record.sketch"),
    _of("clipping", message("method.clipping")),
    _of("weights after an update", message("method.weights_after_an_update"), message("method.guide_optimizer")),
    _of("first updates", message("method.first_updates")),
    _of("later losses", message("method.later_losses")),
    _of("curve", message("method.curve"), message("method.guide_around_zero")),
    _of("free-running steps", message("method.free_running_steps")),
    _of("model settings", message("method.model_settings")),
    Method(message("method.name_noise_band"), message("method.noise_band")),
)
BY_STAGE = {one.stage: one for one in METHODS if one.stage}


def method(stage: str) -> Method | None:
    """How the numbers of a stage were made; a first loss has its step in its name."""
    return BY_STAGE.get("step-0 loss" if stage.startswith("first loss") else stage)
