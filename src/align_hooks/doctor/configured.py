"""What of a configuration that is to be run stands in its way: what the side refuses of it, models that have no canonical names, and
what feeds the run and does not fit it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from align_hooks.checklist.row import is_new
from align_hooks.configuration.values import MINDFORMERS, Configuration
from align_hooks.doctor.belongs import NETWORK, experts, misfits, named, of_side
from align_hooks.doctor.fit import unfit
from align_hooks.families.registry import closest, in_mindformers, models
from align_hooks.job.entry import room
from align_hooks.settings import Settings


def refused(side: str, configuration: Configuration, settings: Settings, versions: Mapping[str, str]) -> Iterator[str]:
    """Why a run of ``configuration`` would be refused under ``settings``, one line each; ``versions`` are those of the side's packages."""
    room(side)
    rules = importlib.import_module(f"align_hooks.{side}_side.refusals")

    def said(name: str) -> Any:
        found = configuration.values.get(name)
        return None if found is None or found.unknown else found.value

    trains = said("run_mode") in rules.TRAINS if side == "ms" else not said("skip_train")
    if not settings.any_set() or not trains:
        return
    yield from rules.refusals(settings, said, *([versions.get("mindspore", "")] if side == "ms" else []))
    if odd := _odd(configuration):
        known = models(of_side(configuration))
        yield f"only {known} have canonical names so far: {'; '.join(odd)}; leave it out, or add the family (CONTRIBUTING)"
        return
    yield from unfit(configuration, settings, versions.get("megatron-core", ""), elsewhere(configuration))


def elsewhere(configuration: Configuration) -> str:
    """Where more may be said, so that what is left out here need not be the default; empty where all is here."""
    for name in ("yaml_cfg", "use_checkpoint_args"):
        if configuration.side != MINDFORMERS and name in configuration.values:
            return configuration.values[name].where or name
    return configuration.unread or next(iter(configuration.gaps), "")


def _odd(configuration: Configuration) -> list[str]:
    """In what a model is none that has canonical names."""
    partly = bool(elsewhere(configuration))
    if families := named(configuration):
        sort = experts(configuration, partly=partly)
        return closest(families, lambda family: misfits(family, configuration, partly=partly), experts=sort)[1]
    older = " and ".join(built.network for built in in_mindformers() if built.legacy)
    if is_new(configuration):
        return [f"use_legacy is False ({configuration.values['use_legacy'].where}), and only {older} of use_legacy: True is read"]
    network = configuration.values[NETWORK]
    return [f"{NETWORK} is {network.value} ({network.where}), and only {older} is read"]
