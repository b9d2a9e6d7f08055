"""Why a run of a configuration would be refused: refusals of the side, and recorded data that does not fit; and that a model is of no
family."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Iterator, Mapping

from align_hooks.checklist.belongs import elsewhere, odd
from align_hooks.checklist.readings import training
from align_hooks.checklist.readings.lookup import are_numbers, known
from align_hooks.configuration.values import MINDFORMERS, Configuration
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


def too_few(configuration: Configuration, processes: int | None) -> Iterator[str]:
    """Why a layout needs more than the ``processes`` that are started where no launcher says how many; None where that is not known."""
    of_mindformers = configuration.side == MINDFORMERS
    keys = ("model_parallel", "pipeline_stage") if of_mindformers else ("tensor_model_parallel_size", "pipeline_model_parallel_size")
    launched = known(configuration, "device_num") if of_mindformers else training.megatron_cards(configuration)
    started = launched if are_numbers(launched) else processes
    split = [known(configuration, key) or 1 for key in keys]
    needed = training.mindformers_cards(configuration) if of_mindformers else math.prod(split) if are_numbers(*split) else None
    if are_numbers(started, needed) and needed > started:  # type: ignore[operator]
        off = "use_parallel: False, " if of_mindformers else ""
        yield (
            f"{configuration.source} splits the model over {needed} devices, and so many processes are started: {started}; start more, or "
            f"for a rehearsal set {off}{' and '.join(keys)} to 1 in a copy, as docs/rehearsal.md does with all such keys"
        )


def own_names(configuration: Configuration, settings: Settings) -> str | None:
    """What a run of a model of no family should know; None of others."""
    if not settings.any_set() or not (wrong := odd(configuration)):
        return None
    why = "; ".join(map(rendered, wrong))
    return f"the model is of no family: {why}; what its nearest family does not know is recorded under the framework's own names"
