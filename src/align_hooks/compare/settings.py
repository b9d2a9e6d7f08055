"""Recorded settings against each other: hyper-parameters as the optimizers hold them, and the models' configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from align_hooks.compare.limits import SETTING
from align_hooks.compare.measures import relative_difference
from align_hooks.compare.verdict import Finding
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
    kinds = [str(one.get("type")) for one in (reference, candidate)]
    families = {"Adam" if "adam" in kind.lower() else kind for kind in kinds}
    found = [_setting("type", *kinds)] if len(families) > 1 else []
    found += [_setting(key, reference.get(key), candidate.get(key)) for key in OVERALL if not equal(reference.get(key), candidate.get(key))]
    ours, theirs = by_parameter(reference), by_parameter(candidate)
    alone = [sorted(ours.keys() - theirs.keys()), sorted(theirs.keys() - ours.keys())]
    found += [
        Finding(f"{listed(names)} in one optimizer only", *(("there", "-") if names is alone[0] else ("-", "there")))
        for names in alone
        if names and ours.keys() & theirs.keys()
    ]
    for key in PER_GROUP if rates else PER_GROUP[1:]:
        differing: dict[tuple[str, str], list[str]] = {}
        for name in ours.keys() & theirs.keys():
            unknown = key == "bias_correction" and None in (ours[name][key], theirs[name][key])
            if not unknown and not equal(ours[name][key], theirs[name][key]):
                differing.setdefault((show(ours[name][key]), show(theirs[name][key])), []).append(name)
        for (one, other), names in differing.items():
            what = key if len(names) == len(ours) else f"{key} of {listed(sorted(names))}"
            found.append(Finding(what, one, other, name=what))
    return found


def listed(names: Sequence[str]) -> Message | str:
    """The first of some names, and how many more there are."""
    return message("names.and_more", name=names[0], count=len(names) - 1) if len(names) > 1 else names[0]


def model_settings(reference: Mapping[str, Any], candidate: Mapping[str, Any]) -> list[Finding]:
    """What differs between two recorded model configurations."""
    keys = [key for key in (reference.keys() | candidate.keys()) - {LONGEST} if not equal(reference.get(key), candidate.get(key))]
    return [_setting(key, reference.get(key), candidate.get(key)) for key in sorted(keys)]


def _setting(key: str, one: Any, other: Any) -> Finding:
    return Finding(key, show(one), show(other), name=key)


def show(value: Any) -> str:
    """A setting as people wrote it: fp32's view of 0.1 is 0.1."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(show, value)) + "]"
    return f"{value:.7g}" if isinstance(value, float) else str(value)
