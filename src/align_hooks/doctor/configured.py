"""Why a run of a configuration would be refused: refusals of the side, and recorded data that does not fit; and in what a model differs
from the nearest family.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Mapping

from align_hooks.checklist.row import MODEL, is_new
from align_hooks.configuration.values import MINDFORMERS, Configuration
from align_hooks.doctor.belongs import NETWORK, experts, known, misfits, named
from align_hooks.doctor.fit import unfit
from align_hooks.families.registry import closest
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


def elsewhere(configuration: Configuration) -> str:
    """The place where the configuration may go on, so that a missing name need not have its default; empty where all is here."""
    for name in ("yaml_cfg", "use_checkpoint_args"):
        if configuration.side != MINDFORMERS and name in configuration.values:
            return configuration.values[name].where or name
    return configuration.unread or rendered(next(iter(configuration.gaps), None))


def odd(configuration: Configuration) -> list[str]:
    """In what a model differs from the nearest family; empty where it is of one."""
    partly = bool(elsewhere(configuration))
    if families := named(configuration):
        sort = experts(configuration, partly=partly)
        return closest(families, lambda family: misfits(family, configuration, partly=partly), experts=sort)[1]
    if is_new(configuration):
        kind = known(configuration, f"{MODEL}model_type") or known(configuration, f"{MODEL}architectures") or "unknown"
        return [f"model_type is {kind}, which no family has"]
    network = configuration.values[NETWORK]
    return [f"{NETWORK} is {network.value} ({network.where}), which no family has"]


def own_names(configuration: Configuration, settings: Settings) -> str | None:
    """What a run of a model of no family should know; None of others."""
    if not settings.any_set() or not (wrong := odd(configuration)):
        return None
    return (
        f"the model is of no family: {'; '.join(wrong)}; what its nearest family does not know is recorded under the framework's own names"
    )
