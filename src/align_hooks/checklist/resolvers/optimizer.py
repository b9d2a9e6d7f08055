"""The optimizer, its betas and its clipping of gradients, as each side reads them."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from align_hooks.checklist.canonical_values import UNSET, Decays, OptimizerKind, Words, text
from align_hooks.checklist.lookup import Read, all_sides, are_numbers, has, value_of
from align_hooks.checklist.resolver import EditRequest, Edits, Resolver, resolver
from align_hooks.checklist.resolvers.layout import is_piped
from align_hooks.configuration.values import MINDFORMERS, Configuration, Setting, Value
from align_hooks.messages import message

UNCORRECTED = "adamweightdecay fusedadamweightdecay fp32stateadamweightdecay fusedcastadamweightdecay fused_adamw fp32_adamw"
OPTIMIZERS: dict[str, OptimizerKind | str] = {
    **dict.fromkeys(("adamw", "fusedadamw", "pma_adamw", "adamweightdecayx"), "adamw"),
    **dict.fromkeys(UNCORRECTED.split(), OptimizerKind.ADAMW_UNCORRECTED),
    "adam": OptimizerKind.ADAM_COUPLED,
}
"""MindFormers' optimizers in lower case to their kind."""
ALIAS = "adamw"
"""In lower case another name of MindSpore's ``AdamWeightDecay``, which there was up to 1.5."""
MUON, ADAMW_BETAS = "muon", "optimizer.adamw_betas"
"""Muon, and the key in which MindFormers' has both betas of what it leaves to AdamW."""
SIMPLE = [3.4445, -4.775, 2.0315]
"""MindFormers' coefficients of Muon's iteration, the same in each step: Emerging-Optimizers' ``simple``."""
BETAS = ("optimizer.betas", "optimizer.beta1", "optimizer.beta2")
"""Both betas in one list, as MindFormers' own classes read them, and each by itself, as MindSpore's do."""


def megatron_optimizer(c: Configuration) -> Setting:
    """Return the optimizer; Megatron's ``adam`` decays weights separately from the gradient, so is AdamW."""
    name = text(value_of(c, ("optimizer",), "adam"))
    return "adamw" if name == "adam" else name


@resolver
def mindformers_optimizer(c: Configuration) -> Setting:
    """Return the kind of optimizer, whatever implementation computes it."""
    if c.fact("optimizer.groups.0.bias_correction") is False or (name := value_of(c, ("optimizer.type",), "AdamW")) == ALIAS:
        return OptimizerKind.ADAMW_UNCORRECTED
    return OPTIMIZERS.get(str(name).lower(), text(name))


@mindformers_optimizer.writer
def optimizer_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield the class of an optimizer, with its betas in the form that this class reads."""
    for kind in ("AdamW", "Adam"):
        values = {**request.candidate.values, "optimizer.type": Value(kind)}
        yield {"optimizer.type": kind, **moved_betas(replace(request.candidate, values=values))}


def beta_keys(c: Configuration) -> tuple[str, ...]:
    """Return the keys in which the optimizer reads its two betas; all of them for a class that is not known."""
    if value_of(c, ("optimizer.type",), "AdamW") in ("AdamW", "PmaAdamW"):
        return BETAS[:1]
    if mindformers_optimizer(c) == MUON:
        return (ADAMW_BETAS,)
    return BETAS[1:] if isinstance(mindformers_optimizer(c), OptimizerKind) else BETAS


def moved_betas(c: Configuration) -> Edits:
    """Return edits that move betas from keys that the optimizer refuses to those that it reads."""
    keys = beta_keys(c)
    refused = [key for key in BETAS if key in c.values and key not in keys]
    both = [betas(c, at) for at in range(2)]
    own = {BETAS[0]: both} if keys == BETAS[:1] else dict(zip(BETAS[1:], both, strict=True))
    moved = {key: value for key, value in own.items() if key not in c.values}
    return {**moved, **dict.fromkeys(refused, UNSET)} if refused else {}


def betas(c: Configuration, at: int) -> Setting:
    """Return one of MindFormers' two betas, which older optimizers name separately."""
    if mindformers_optimizer(c) == MUON:
        pair, single = value_of(c, (ADAMW_BETAS,), (0.95, 0.95)), UNSET
    else:
        pair, single = value_of(c, ("optimizer.betas",), (0.9, 0.999)), value_of(c, (f"optimizer.beta{at + 1}",))
    if single is not UNSET:
        return single
    return pair[at] if isinstance(pair, list | tuple) and len(pair) == 2 else UNSET


def beta(at: int) -> Resolver:
    """Return the resolver of one beta, in the list of both or under its own name, whichever the optimizer reads."""
    one = Resolver(lambda c: betas(c, at))

    @one.writer
    def edits(request: EditRequest) -> Iterator[Edits]:
        both = [betas(request.candidate, index) for index in range(2)]
        ways: list[Edits] = [
            *({key: [*both[:at], request.wanted, *both[at + 1 :]]} for key in ("optimizer.betas", ADAMW_BETAS)),
            {f"optimizer.beta{at + 1}": request.wanted},
        ]
        yield from (way for way in ways if way.keys() <= set(beta_keys(request.candidate)))

    return one


def mindformers_eps(c: Configuration) -> Setting:
    """Return ``eps``, whose default depends on whether the optimizer corrects the bias; with Muon that of the rest's AdamW."""
    if mindformers_optimizer(c) == MUON:
        return value_of(c, ("optimizer.adamw_eps",), 1e-8)
    return value_of(c, ("optimizer.eps",), 1e-6 if mindformers_optimizer(c) == OptimizerKind.ADAMW_UNCORRECTED else 1e-8)


@resolver
def newton_schulz_steps(c: Configuration) -> Setting:
    """Return the steps of Muon's iteration, which coefficients that change from step to step count themselves."""
    coefficients = value_of(c, ("optimizer.ns_coefficients",), UNSET)
    if isinstance(coefficients, list) and coefficients and isinstance(coefficients[0], list):
        return sum(segment[1] for segment in coefficients)
    return value_of(c, ("optimizer.ns_steps",), 5)


@newton_schulz_steps.writer
def steps_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield the steps, of coefficients that are the same in each."""
    yield {"optimizer.ns_steps": request.wanted}


@resolver
def newton_schulz_coefficients(c: Configuration) -> Setting:
    """Return the name that Megatron has for MindFormers' coefficients; others as they are written."""
    coefficients = value_of(c, ("optimizer.ns_coefficients",), UNSET)
    return "simple" if coefficients is UNSET or coefficients == SIMPLE else str(coefficients)


@newton_schulz_coefficients.writer
def coefficients_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield the only coefficients that have a name on either side."""
    yield {"optimizer.ns_coefficients": SIMPLE}


@resolver
def mindformers_clip(c: Configuration) -> Setting:
    """Return the norm that gradients are clipped to, 0 where they are not: ``use_clip_grad`` and ``max_grad_norm``."""
    several = is_piped(c) or value_of(c, ("runner_config.gradient_accumulation_steps",), 1) > 1
    by_default = several or "Pipeline" in str(value_of(c, ("runner_wrapper.type",), "")) or not has(c, "runner_wrapper.")
    on = value_of(c, ("runner_wrapper.use_clip_grad",), by_default)
    norm = value_of(c, ("runner_wrapper.max_grad_norm", "runner_wrapper.clip_grad"), 1.0)
    return (float(norm) if are_numbers(norm) else norm) if on else 0.0


@mindformers_clip.writer
def clip_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield the norm to which gradients are clipped, 0 without clipping."""
    on, norm = "runner_wrapper.use_clip_grad", "runner_wrapper.max_grad_norm"
    yield from ({on: value} for value in (True, False))
    yield {norm: request.wanted}
    yield {on: True, norm: request.wanted}


def decaying(c: Configuration) -> Setting:
    """Return the framework's rule; where a record shows another, the canonical names of the weights that decay."""
    groups = c.fact("optimizer.groups")
    if isinstance(groups, list) and groups:
        everything = {name for group in groups for name in group.get("parameters") or ()}
        decays = frozenset(name for group in groups if group.get("weight_decay") for name in group.get("parameters") or ())
        if not decays:
            return Decays.NOTHING
        return Decays.RULE if decays == {name for name in everything if not spared(name)} else decays
    if not strength(c):
        return Decays.NOTHING
    if c.side != MINDFORMERS and (value_of(c, ("apply_wd_to_qk_layernorm",), False) or value_of(c, ("no_weight_decay_cond_type",), None)):
        return Decays.RULE_AND_NORMS
    return Decays.RULE


def spared(name: str) -> bool:
    """Return whether a canonical name is of a bias or of a norm, whose weights have one dimension."""
    return name.endswith(".bias") or "norm" in name.rpartition(".")[0].rpartition(".")[2]


def strength(c: Configuration) -> Setting:
    """Return the weight decay of the weights that decay."""
    groups = c.fact("optimizer.groups")
    if isinstance(groups, list) and groups:
        return max((group.get("weight_decay") or 0.0 for group in groups), default=0.0)
    return value_of(c, ("optimizer.weight_decay",), 0.0) if c.side == MINDFORMERS else value_of(c, ("weight_decay",), 0.01)


def unless_constant(name: str) -> Read:
    """Return a reader of an end of the weight decay's change; None where the decay is constant."""

    def read(c: Configuration) -> Setting:
        constant = value_of(c, ("weight_decay_incr_style",), "constant") == "constant"
        return None if constant else value_of(c, (name,), None)

    return read


def no_decay(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why it does not matter which weights decay: a side decays none."""
    return None if all_sides(strength, reference, candidate) else message("harmless.no_decay")


def decaying_differences(reference: Setting, candidate: Setting) -> Words | None:
    """Return the weights that decay on one side only; where only one side has names, those that the other's rule spares."""
    by_name = [names for names in (reference, candidate) if isinstance(names, frozenset)]
    names = sorted(reference ^ candidate) if len(by_name) == 2 else sorted(name for names in by_name for name in names if spared(name))
    if not names:
        return None
    name, more = names[0], len(names) - 1
    if more:
        return message("apart.decays_only_and_more" if len(by_name) == 2 else "apart.decays_and_more", name=name, more=more)
    return message("apart.decays_only" if len(by_name) == 2 else "apart.decays", name=name)
