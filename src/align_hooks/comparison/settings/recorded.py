"""Compare recorded settings: hyper-parameters as the optimizers hold them, and the models' configurations."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from msgspec.structs import replace

from align_hooks.comparison.finding import Finding, Metric, Named, Value
from align_hooks.comparison.metrics.limits import SETTING
from align_hooks.comparison.metrics.measures import relative_difference
from align_hooks.comparison.settings.arguments import ARGUMENTS, of_mindformers
from align_hooks.configuration.pynative import PYNATIVE
from align_hooks.messages import Argument, Message, all_of, message, terms
from align_hooks.names.blocks import PADDING
from align_hooks.quantities.weights import NEAREST, NO_FAMILY, not_compared
from align_hooks.record.format.schema import Facts, OptimizerFacts, ParameterGroup, Table


class HyperParameter(Named):
    """A setting of an optimizer, by its name in a record."""

    TYPE = "type"
    LEARNING_RATE = "learning_rate"
    BETAS = "betas"
    EPS = "eps"
    WEIGHT_DECAY = "weight_decay"
    BIAS_CORRECTION = "bias_correction"
    CLIP_GRAD = "clip_grad"
    LOSS_SCALE = "loss_scale"
    DECOUPLED_WEIGHT_DECAY = "decoupled_weight_decay"
    OPTIMIZER = "optimizer"
    MOMENTUM = "momentum"
    NESTEROV = "nesterov"
    COEFFICIENTS = "coefficients"
    SCALE_MODE = "scale_mode"
    EXTRA_SCALE_FACTOR = "extra_scale_factor"
    PRODUCTS = "products"
    WEIGHT_DECAY_METHOD = "weight_decay_method"
    MATRICES = "matrices"


# dampening is left out: the Newton-Schulz iteration takes every factor of the momentum off
MUON = ("momentum", "nesterov", "coefficients", "scale_mode", "extra_scale_factor", "products", "weight_decay_method", "matrices")
PER_GROUP = ("learning_rate", "optimizer", "betas", "eps", "weight_decay", "bias_correction", *MUON)
MICRO_BATCH = "micro_batch_size"
FAMILY = "family"
"""Name of the finding that only one side's model is of a family."""
OF_NONE = (NO_FAMILY, NEAREST)
"""Keys of a record for a model of no family, which are no settings."""
NAMED = 5
"""The most names in a row."""
OVERALL = ("clip_grad", "loss_scale", "decoupled_weight_decay")


def equal(a: object, b: object, within: float = SETTING) -> bool:
    """Return whether two recorded settings mean the same; numbers ``within`` the rounding of fp32, relative."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(equal(*pair, within) for pair in zip(a, b, strict=True))
    if isinstance(a, int | float) and isinstance(b, int | float) and not isinstance(a, bool):
        return relative_difference(float(a), float(b)) <= within
    return bool(a == b)


def hyper_parameters(
    reference: OptimizerFacts, candidate: OptimizerFacts, *, rates: bool = True, left_out: Container[str] = ()
) -> list[Finding]:
    """Return what differs between two recorded optimizers, one finding for parameters with the same difference.

    ``rates`` compares the initial learning rates too, which means something where both runs begin with one step. ``left_out`` are
    parameters that cannot be compared."""
    types = str(reference.type), str(candidate.type)
    families = {frozenset(map(_kind, name.split(" and "))) for name in types}
    known = None not in (reference.type, candidate.type)
    findings = [_setting("type", *types, Metric.HYPER_PARAMETER)] if known and len(families) > 1 else []
    for key in OVERALL:
        values = getattr(reference, key), getattr(candidate, key)
        # None is a value of clip_grad only; elsewhere it is unknown
        if (None not in values or key == "clip_grad") and not equal(*values):
            findings.append(_setting(key, *values, Metric.HYPER_PARAMETER))
    sides = (side.by_parameter().items() for side in (reference, candidate))
    ours, theirs = ({name: group for name, group in groups if name not in left_out} for groups in sides)
    return [*findings, *_in_one_only(ours, theirs), *_of_parameters(ours, theirs, PER_GROUP if rates else PER_GROUP[1:])]


Groups = Mapping[str, ParameterGroup]
"""Canonical name to its group."""


def _in_one_only(ours: Groups, theirs: Groups) -> list[Finding]:
    """Return the parameters that only one optimizer holds; nothing where the two share none."""
    findings = []
    for only in (ours.keys() - theirs.keys(), theirs.keys() - ours.keys()) if ours.keys() & theirs.keys() else ():
        if only:
            subject, in_reference = message("hyper_parameters.in_one_only", names=listed(sorted(only))), only <= ours.keys()
            findings.append(Finding(subject, *presence(in_reference), quantity=Metric.HYPER_PARAMETER))
    return findings


def _of_parameters(ours: Groups, theirs: Groups, keys: Sequence[str]) -> list[Finding]:
    """Return hyper-parameters of groups that differ, each with its parameters where these are not all."""
    findings = []
    for key in keys:
        differing: dict[tuple[str, str], list[str]] = {}
        for name in sorted(ours.keys() & theirs.keys()):
            pair = _value(ours[name], key, name), _value(theirs[name], key, name)
            scheduled = all(value != value for value in pair)  # NaN is a rate or a decay that follows a schedule
            if not (None in pair or equal(*pair) or scheduled):
                differing.setdefault((show(pair[0]), show(pair[1])), []).append(name)
        for names in differing.values():
            first, other = (_value(groups[names[0]], key, names[0]) for groups in (ours, theirs))
            setting = _setting(key, first, other, Metric.HYPER_PARAMETER)
            shown = [name for name in names if name.removesuffix(PADDING) not in names or not name.endswith(PADDING)]
            of_some = message("hyper_parameters.of", setting=HyperParameter(key), names=listed(shown))
            findings.append(setting if len(names) == len(ours) else replace(setting, what=of_some, names=tuple(shown)))
    return findings


def _kind(optimizer: str) -> str:
    """Return the algorithm of an optimizer's class, or the class where it is no known one."""
    return "Adam" if "adam" in optimizer.lower() else "Muon" if optimizer in ("Muon", "TensorParallelMuon") else optimizer


def _value(group: ParameterGroup, key: str, name: str) -> object:
    """Return a hyper-parameter of a parameter as it is compared; None where unknown."""
    if key == HyperParameter.OPTIMIZER:
        return group.optimizer and _kind(group.optimizer)
    if key == HyperParameter.MATRICES:
        matrix = next((matrix for matrix in group.matrices or () if name in matrix.parameters), None)
        return matrix and [len(matrix.parameters), matrix.blocks]
    return getattr(group, key)


def several(names: Sequence[Argument]) -> Argument:
    """Return some names in a row, ``one, another and a third``, the first of many; None without any."""
    if len(names) > NAMED:
        return message("names.and_more", name=terms(names[:NAMED]), count=len(names) - NAMED)
    return all_of(terms(names[:-1]), names[-1]) if len(names) > 1 else next(iter(names), None)


def listed(names: Sequence[str]) -> Message | str:
    """Return the first name, and how many more there are."""
    return message("names.and_more", name=names[0], count=len(names) - 1) if len(names) > 1 else names[0]


def can_be_given(name: str, facts: Facts) -> bool:
    """Return whether a run like one can be given another value of a setting."""
    at_once = of_mindformers(facts) and facts.trainer != PYNATIVE  # the static graph takes all rows of a batch
    return name != FAMILY and not (name == MICRO_BATCH and at_once)


def presence(in_reference: bool) -> tuple[Value, Value]:
    """Return the values of both sides for what one side lacks."""
    present, absent = message("match.there"), message("match.absent")
    return (present, absent) if in_reference else (absent, present)


def model_settings(reference: Table, candidate: Table) -> list[Finding]:
    """Return the differences of two recorded model configurations: whether only one is of a family, then the settings."""
    unknown = [NO_FAMILY in table for table in (reference, candidate)]  # only sizes are on record
    keys = reference.keys() & candidate.keys() if any(unknown) else reference.keys() | candidate.keys()
    pairs = {key: (reference.get(key), candidate.get(key)) for key in sorted(keys - not_compared(reference, candidate))}
    families = Finding(message("settings.family"), _family(reference), _family(candidate), name=FAMILY, quantity=Metric.MODEL_SETTING)
    differing = [_setting(key, *pair, Metric.MODEL_SETTING) for key, pair in pairs.items() if not equal(*pair)]
    return [families, *differing] if unknown[0] != unknown[1] else differing


def _family(model: Table) -> Value:
    """Return the family of a recorded model as a setting is shown, or why it has none."""
    if NO_FAMILY in model:
        return of_no_family(model)
    named = model.get("architectures") or model.get("model_type")
    return terms(map(str, named)) if isinstance(named, list) else as_written(named)


def of_no_family(model: Table) -> Message:
    """Say that a recorded model is of no family, and how it differs from the nearest."""
    reasons, nearest = model.get(NO_FAMILY), model.get(NEAREST)
    why = terms(map(str, reasons)) if isinstance(reasons, list) else show(reasons)
    return message("family.not_recognised", family=str(nearest), why=why) if nearest else message("family.none", why=why)


def argument_settings(reference: Facts, candidate: Facts) -> list[Finding]:
    """Return the settings of the models' parts with another meaning on each side."""
    findings = []
    for argument in ARGUMENTS:
        compared, shown = argument.compared(reference, candidate), argument.shown or argument.means
        if compared is not None and not equal(*compared):
            findings.append(_setting(argument.name, shown(reference), shown(candidate), Metric.MODEL_SETTING))
    return findings


def _setting(key: str, reference: object, candidate: object, quantity: Metric) -> Finding:
    what = HyperParameter(key) if quantity is Metric.HYPER_PARAMETER else key
    return Finding(what, as_written(reference), as_written(candidate), name=key, quantity=quantity)


def as_written(value: object) -> Value:
    """Return a setting as people wrote it: fp32's view of 0.1 is 0.1, a list is text."""
    if value is None:
        return message("settings.none")
    if isinstance(value, float):
        return float(show(value))
    return value if isinstance(value, bool | int | str) else show(value)


def show(value: object) -> str:
    """Return a setting as text."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(show, value)) + "]"
    return f"{value:.7g}" if isinstance(value, float) else str(value)
