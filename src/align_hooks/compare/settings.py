"""Recorded settings against each other: hyper-parameters as the optimizers hold them, and the models' configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from align_hooks.compare.limits import SETTING
from align_hooks.compare.measures import relative_difference
from align_hooks.compare.verdict import Finding, Quantity, Value
from align_hooks.messages import Message, message

PER_GROUP = ("learning_rate", "betas", "eps", "weight_decay", "bias_correction")
LONGEST = "max_position_embeddings"
"""How long sequences may be; it changes nothing for those that are shorter."""
OVERALL = ("clip_grad", "loss_scale", "decoupled_weight_decay")


def equal(one: Any, other: Any, within: float = SETTING) -> bool:
    """Whether two recorded settings mean the same; numbers ``within`` the rounding of fp32, relative."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(equal(*both, within) for both in zip(one, other, strict=True))
    if isinstance(one, int | float) and isinstance(other, int | float) and not isinstance(one, bool):
        return relative_difference(float(one), float(other)) <= within
    return bool(one == other)


def by_parameter(optimizer: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Canonical name to the hyper-parameters of its group."""
    return {name: {key: group.get(key) for key in PER_GROUP} for group in optimizer["groups"] for name in group["parameters"]}


def hyper_parameters(reference: Mapping[str, Any], candidate: Mapping[str, Any], *, rates: bool = True) -> list[Finding]:
    """What differs between two recorded optimizers, parameters with the same difference in one finding.

    A group's learning rate is the one that it stood at when the run began: with ``rates`` it is compared, which says something where both
    runs begin with one and the same step.
    """
    kind = Quantity.HYPER_PARAMETER
    ours, theirs = (str(optimizer.get("type")) for optimizer in (reference, candidate))
    families = {"Adam" if "adam" in name.lower() else name for name in (ours, theirs)}
    findings = [_setting("type", ours, theirs, kind)] if len(families) > 1 else []
    whole = [(key, reference.get(key), candidate.get(key)) for key in OVERALL]
    findings += [_setting(*setting, kind) for setting in whole if not equal(*setting[1:])]
    groups = by_parameter(reference), by_parameter(candidate)
    return [*findings, *_in_one_only(*groups), *_of_parameters(*groups, PER_GROUP if rates else PER_GROUP[1:])]


Groups = Mapping[str, Mapping[str, Any]]
"""Canonical name to the hyper-parameters of its group."""


def _in_one_only(ours: Groups, theirs: Groups) -> list[Finding]:
    """Parameters that one optimizer holds alone; nothing where the two have none in common."""
    if not ours.keys() & theirs.keys():
        return []
    alone = {True: sorted(ours.keys() - theirs.keys()), False: sorted(theirs.keys() - ours.keys())}
    return [
        Finding(message("hyper_parameters.in_one_only", names=listed(names)), *presence(in_reference), quantity=Quantity.HYPER_PARAMETER)
        for in_reference, names in alone.items()
        if names
    ]


def _of_parameters(ours: Groups, theirs: Groups, keys: Sequence[str]) -> list[Finding]:
    """Hyper-parameters of groups that differ, each with its parameters where these are not all."""
    findings = []
    for key in keys:
        differing: dict[tuple[str, str], list[str]] = {}
        for name in sorted(ours.keys() & theirs.keys()):
            pair = ours[name][key], theirs[name][key]
            if not equal(*pair) and not (key == "bias_correction" and None in pair):  # None is not known
                differing.setdefault((show(pair[0]), show(pair[1])), []).append(name)
        for names in differing.values():
            setting = _setting(key, ours[names[0]][key], theirs[names[0]][key], Quantity.HYPER_PARAMETER)
            of_some = message("hyper_parameters.of", setting=key, names=listed(names))
            findings.append(setting if len(names) == len(ours) else replace(setting, what=of_some))
    return findings


def listed(names: Sequence[str]) -> Message | str:
    """The first of some names, and how many more there are."""
    return message("names.and_more", name=names[0], count=len(names) - 1) if len(names) > 1 else names[0]


def presence(in_reference: bool) -> tuple[Value, Value]:
    """What both sides have of something that one of them lacks."""
    there = message("match.there")
    return (there, "-") if in_reference else ("-", there)


def model_settings(reference: Mapping[str, Any], candidate: Mapping[str, Any]) -> list[Finding]:
    """What differs between two recorded model configurations."""
    keys = [key for key in (reference.keys() | candidate.keys()) - {LONGEST} if not equal(reference.get(key), candidate.get(key))]
    return [_setting(key, reference.get(key), candidate.get(key), Quantity.MODEL_SETTING) for key in sorted(keys)]


def _setting(key: str, reference: Any, candidate: Any, quantity: Quantity) -> Finding:
    return Finding(key, as_written(reference), as_written(candidate), name=key, quantity=quantity)


def as_written(value: Any) -> Value:
    """A setting as people wrote it: fp32's view of 0.1 is 0.1; a list, or nothing, is text."""
    if isinstance(value, float):
        return float(show(value))
    return value if isinstance(value, bool | int | str) else show(value)


def show(value: Any) -> str:
    """The same as text."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(show, value)) + "]"
    return f"{value:.7g}" if isinstance(value, float) else str(value)
