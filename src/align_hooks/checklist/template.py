"""What MindFormers fills in where a YAML lacks a whole section: ``ConfigTemplate`` of ``mindformers.tools.register.template``.

A section that is there is taken as it stands, without these.
"""

from __future__ import annotations

from collections.abc import Mapping

from align_hooks.configuration.values import Setting, Value

TEMPLATE_SINCE = (1, 5)
"""The version of MindFormers that fills sections in."""
SECTIONS: Mapping[str, Mapping[str, Setting]] = {
    "optimizer": {"type": "AdamW", "betas": [0.9, 0.999], "learning_rate": 5e-5, "eps": 1e-8, "weight_decay": 0.0},
    "lr_schedule": {"type": "CosineWithWarmUpLR", "learning_rate": 5e-5, "lr_end": 0.0, "warmup_ratio": 0.0, "total_steps": -1},
}
"""Sections of a training. That of ``runner_wrapper`` is what the readings of its rows take for granted."""


def of_template(values: Mapping[str, Value]) -> dict[str, Value]:
    """The values of sections that a configuration lacks; a schedule by groups takes the place of the one schedule."""
    there = {name.partition(".")[0] for name in values}
    lacking = [name for name in SECTIONS if name not in there and not (name == "lr_schedule" and "grouped_lr_schedule" in there)]
    return {f"{section}.{key}": Value(value) for section in lacking for key, value in SECTIONS[section].items()}
