"""What of a configuration that is to be run stands in its way: what the side refuses of it, models that have no canonical names, and
what feeds the run and does not fit it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from align_hooks.checklist.held import Held, hold
from align_hooks.checklist.row import UNSET, is_new
from align_hooks.checklist.tables import ROW
from align_hooks.configuration.values import MINDFORMERS, Configuration
from align_hooks.doctor.fit import unfit
from align_hooks.launcher import room
from align_hooks.settings import Settings

LLAMA: Mapping[str, tuple[Any, ...]] = {
    "normalization": ("rmsnorm",),
    "activation function": ("swiglu", "silu"),
    "gated linear unit": (True,),
    "bias of linear layers": (False,),
    "bias of queries, keys and values": (False,),
    "norm of queries and keys": (False,),
    "zero-centred norm weights": (False,),
    "position_embedding_type": ("rope",),
    "rotary_percent": (1.0,),
    "rotary_interleaved": (False,),
    "rope scaling": ("none",),
    "sliding window": (None,),
    "softmax_type": ("vanilla",),
    "multi_latent_attention": (False,),
    "mtp_num_layers": (None, 0),
    "use_mup": (False,),
}
"""Row of the CheckList to what a Llama holds of it: the models with canonical names."""

MIXTRAL: Mapping[str, tuple[Any, ...]] = {
    "score function": ("softmax",),
    "weights of the chosen add up to one": (True,),
    "size of the shared experts": (None,),
    "groups of experts": (None,),
    "bias of the experts": (False,),
    "routed_scaling_factor": (1.0, None),
    "capacity_factor": (None, -1),
}
"""The same of a Mixtral, which is a Llama whose every feed-forward layer is a choice of experts."""

UNSAID = "default"
"""Where a value comes from that a configuration does not say."""


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
    if odd := list(_odd(configuration, said)):
        models = "dense Llama models" if configuration.side == MINDFORMERS else "Llama models, dense or with experts as in Mixtral,"
        yield f"only {models} have canonical names so far: {'; '.join(odd)}; leave it out, or add the family (CONTRIBUTING)"
        return
    yield from unfit(configuration, settings, versions.get("megatron-core", ""), elsewhere(configuration))


def elsewhere(configuration: Configuration) -> str:
    """Where more may be said, so that what is left out here need not be the default; empty where all is here."""
    for name in ("yaml_cfg", "use_checkpoint_args"):
        if configuration.side != MINDFORMERS and name in configuration.values:
            return configuration.values[name].where or name
    return configuration.unread or next(iter(configuration.gaps), "")


def _odd(configuration: Configuration, said: Callable[[str], Any]) -> Iterator[str]:
    """In what a model is none that has canonical names."""
    if configuration.side == MINDFORMERS and is_new(configuration):
        yield f"use_legacy is False ({configuration.values['use_legacy'].where}), and only LlamaForCausalLM of use_legacy: True is read"
        return
    built = said("model.arch.type") if configuration.side == MINDFORMERS else None
    if built not in (None, "LlamaForCausalLM"):
        yield f"model.arch.type is {built} ({configuration.values['model.arch.type'].where}), and only LlamaForCausalLM is read"
        return
    plain = dict(LLAMA)
    if hold(ROW["expert_num"], configuration).meaning not in (None, UNSET, 0, 1):
        plain |= {"expert_num": (None,)} if configuration.side == MINDFORMERS else MIXTRAL
        layers = hold(ROW["layers with experts"], configuration)
        if "dense" in layers.shown:
            yield _shown("layers with experts", layers)
    partly = bool(elsewhere(configuration))
    for name, allowed in plain.items():
        held = hold(ROW[name], configuration)
        told = held.meaning is not UNSET and not held.why and not (partly and held.where == UNSAID)
        if told and held.meaning not in allowed:
            yield _shown(name, held)


def _shown(name: str, held: Held) -> str:
    return f"{name} is {held.shown}" + (f" ({held.where})" if held.where else "")
