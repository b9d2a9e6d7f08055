"""Why a run of a configuration would be refused: refusals of the side, and recorded data that does not fit; and that a model is of no
family."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Mapping

from align_hooks.checklist.belongs import elsewhere, odd
from align_hooks.checklist.readings.lookup import known
from align_hooks.configuration.values import Configuration
from align_hooks.doctor.fit import unfit
from align_hooks.job.entry import room
from align_hooks.messages import rendered
from align_hooks.settings import Settings


def refused(side: str, configuration: Configuration, settings: Settings, versions: Mapping[str, str]) -> Iterator[str]:
    """Why a run of ``configuration`` would be refused under ``settings``, a line each; ``versions`` are those of the side's packages."""
    room(side)
    rules = importlib.import_module(f"align_hooks.{side}_side.refusals")

    get = functools.partial(known, configuration)
    trains = get("run_mode") in rules.TRAINS if side == "ms" else not get("skip_train")
    if not settings.any_set() or not trains:
        return
    yield from rules.refusals(settings, get, *([versions.get("mindspore", "")] if side == "ms" else []))
    if not odd(configuration):  # of another model the shapes are not known
        yield from unfit(configuration, settings, versions.get("megatron-core", ""), elsewhere(configuration))


def own_names(configuration: Configuration, settings: Settings) -> str | None:
    """What a run of a model of no family should know; None of others."""
    if not settings.any_set() or not (wrong := odd(configuration)):
        return None
    why = "; ".join(map(rendered, wrong))
    return f"the model is of no family: {why}; what its nearest family does not know is recorded under the framework's own names"
