"""The families of models that a configuration describes, by the rows of the CheckList."""

from __future__ import annotations

from collections.abc import Sequence

from align_hooks.checklist.canonical_values import UNSET, ExpertLayers, Scaling, ValueOrigin
from align_hooks.checklist.lookup import MODEL, is_new, known
from align_hooks.checklist.mindformers_models import family as model_type
from align_hooks.checklist.row import SideValue
from align_hooks.checklist.tables import ROW
from align_hooks.configuration.values import MINDFORMERS, Configuration, Unknown
from align_hooks.families.family import Family
from align_hooks.families.registry import FAMILIES, closest
from align_hooks.messages import Message, message, rendered

NETWORK = "model.arch.type"
"""The key that names MindFormers' older models."""


def of_side(configuration: Configuration) -> Sequence[Family]:
    """Return the families that have canonical names on the side of a configuration, and that it can build."""
    if configuration.side == MINDFORMERS:
        return [family for family in FAMILIES if family.mindformers]
    return [family for family in FAMILIES if not family.by_specification or ROW["spec"].read(configuration).canonical is not None]


def named_families(configuration: Configuration) -> Sequence[Family]:
    """Return the families whose class of model a configuration names; all where it names none, or one that is not known."""
    families = of_side(configuration)
    if configuration.side != MINDFORMERS:
        return families
    built = [(family, how) for family in families for how in family.mindformers]
    try:
        if is_new(configuration):
            return [family for family, how in built if not how.legacy and how.model_type == model_type(configuration)]
    except Unknown:
        return families
    network = known(configuration, NETWORK)
    return [family for family, how in built if how.legacy and network in (None, how.network)]


def experts(configuration: Configuration, *, partly: bool) -> bool | None:
    """Return whether a model has experts, None where not known; ``partly``: the configuration may go on elsewhere."""
    value = ROW["expert_num"].read(configuration)
    if value.canonical is UNSET or (partly and value.where is ValueOrigin.DEFAULT):
        return None
    return value.canonical not in (None, 0, 1)


def misfits(family: Family, configuration: Configuration, *, partly: bool) -> list[Message]:
    """Return in what a configuration is known to differ from a family, with the place where that is set."""
    values = {name: ROW[name].read(configuration) for name in ("layers_with_experts", *family.configured, "expert_num")}
    some = experts(configuration, partly=partly)
    wrong = ["layers_with_experts"] if some and not family.mixes and has_dense_layers(configuration) else []
    for name, allowed in family.configured.items():
        value = values[name]
        is_known = value.canonical is not UNSET and not value.why and not (partly and value.where is ValueOrigin.DEFAULT)
        wrong += [name] if is_known and kind_of(value, configuration) not in allowed else []
    wrong += ["expert_num"] if some and not family.experts else []
    return [_shown(name, values[name]) for name in wrong]


def kind_of(value: SideValue, configuration: Configuration) -> object:
    """Return what a family asks of a value: of scaled positions only the kind, but of a fork's, which are its own."""
    return value.canonical.kind if isinstance(value.canonical, Scaling) and not configuration.fork else value.canonical


def elsewhere(configuration: Configuration) -> str:
    """Return the place where a configuration may go on, so that an unset name need not have its default; empty without one."""
    for name in ("yaml_cfg", "use_checkpoint_args"):
        if configuration.side != MINDFORMERS and name in configuration.values:
            return configuration.values[name].where or name
    return configuration.unread or rendered(next(iter(configuration.gaps), None))


def odd(configuration: Configuration) -> list[Message]:
    """Return in what a model differs from the nearest family; empty where none does."""
    partly = bool(elsewhere(configuration))
    if families := named_families(configuration):
        sort = experts(configuration, partly=partly)
        return closest(families, lambda family: misfits(family, configuration, partly=partly), experts=sort)[1]
    if is_new(configuration):
        kind = known(configuration, f"{MODEL}model_type") or known(configuration, f"{MODEL}architectures") or "unknown"
        return [message("family.other_type", type=str(kind))]
    network = configuration.values[NETWORK]
    return [message("family.other_network", key=NETWORK, type=str(network.value), where=network.where)]


def described(configuration: Configuration) -> Family | None:
    """Return the family of a model that has a family's value in every row; None without one."""
    sort = experts(configuration, partly=False)
    single = sort is False and ROW["expert_num"].read(configuration).canonical == 1  # a layer with a router that is no Mixtral's
    if single or has_dense_layers(configuration):
        return None

    def fits(family: Family) -> bool:
        values = ((kind_of(ROW[name].read(configuration), configuration), allowed) for name, allowed in family.configured.items())
        return family.experts is sort and all(value in allowed for value, allowed in values)

    return next(filter(fits, named_families(configuration)), None)


def has_dense_layers(configuration: Configuration) -> bool:
    """Return whether a model with experts also has layers without."""
    layers = layers_with_experts(configuration)
    return layers is not None and layers.dense > 0


def layers_with_experts(configuration: Configuration) -> ExpertLayers | None:
    """Return which layers have experts; None where that is not known."""
    layers = ROW["layers_with_experts"].read(configuration).canonical
    return layers if isinstance(layers, ExpertLayers) else None


def _shown(name: str, value: SideValue) -> Message:
    words = {"name": ROW[name].name, "value": value.shown}
    return message("family.misfit_at", where=value.where, **words) if value.where else message("family.misfit", **words)
