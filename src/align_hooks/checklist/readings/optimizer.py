"""The optimizer, its betas and its clipping of gradients, as each side reads them."""

from __future__ import annotations

from align_hooks.checklist.meaning import OptimizerKind
from align_hooks.checklist.readings.layout import is_piped
from align_hooks.checklist.readings.lookup import are_numbers, has, value_of
from align_hooks.checklist.row import UNSET, Edits, text
from align_hooks.configuration.values import Configuration, Setting

UNCORRECTED = "adamweightdecay fusedadamweightdecay fp32stateadamweightdecay fusedcastadamweightdecay fused_adamw fp32_adamw"
OPTIMIZERS: dict[str, OptimizerKind | str] = {
    **dict.fromkeys(("adamw", "fusedadamw", "pma_adamw", "adamweightdecayx"), "adamw"),
    **dict.fromkeys(UNCORRECTED.split(), OptimizerKind.ADAMW_UNCORRECTED),
    "adam": OptimizerKind.ADAM_COUPLED,
}
"""MindFormers' optimizers in lower case to their kind."""
ALIAS = "adamw"
"""In lower case another name of MindSpore's ``AdamWeightDecay``, which there was up to 1.5."""
BETAS = ("optimizer.betas", "optimizer.beta1", "optimizer.beta2")
"""Both betas in one list, as MindFormers' own classes read them, and each by itself, as MindSpore's do."""


def megatron_optimizer(c: Configuration) -> Setting:
    """Return the optimizer; Megatron's ``adam`` decays weights separately from the gradient, so is AdamW."""
    name = text(value_of(c, ("optimizer",), "adam"))
    return "adamw" if name == "adam" else name


def mindformers_optimizer(c: Configuration) -> Setting:
    """Return the kind of optimizer, whatever implementation computes it."""
    if c.fact("optimizer.groups.0.bias_correction") is False or (name := value_of(c, ("optimizer.type",), "AdamW")) == ALIAS:
        return OptimizerKind.ADAMW_UNCORRECTED
    return OPTIMIZERS.get(str(name).lower(), text(name))


def beta_keys(c: Configuration) -> tuple[str, ...]:
    """Return the keys in which the optimizer reads its two betas; all of them for a class that is not known."""
    if value_of(c, ("optimizer.type",), "AdamW") in ("AdamW", "PmaAdamW"):
        return BETAS[:1]
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
    pair, single = value_of(c, ("optimizer.betas",), (0.9, 0.999)), value_of(c, (f"optimizer.beta{at + 1}",))
    if single is not UNSET:
        return single
    return pair[at] if isinstance(pair, list | tuple) and len(pair) == 2 else UNSET


def mindformers_eps(c: Configuration) -> Setting:
    """Return ``eps``, whose default depends on whether the optimizer corrects the bias."""
    return value_of(c, ("optimizer.eps",), 1e-6 if mindformers_optimizer(c) == OptimizerKind.ADAMW_UNCORRECTED else 1e-8)


def mindformers_clip(c: Configuration) -> Setting:
    """Return the norm that gradients are clipped to, 0 where they are not: ``use_clip_grad`` and ``max_grad_norm``."""
    several = is_piped(c) or value_of(c, ("runner_config.gradient_accumulation_steps",), 1) > 1
    by_default = several or "Pipeline" in str(value_of(c, ("runner_wrapper.type",), "")) or not has(c, "runner_wrapper.")
    on = value_of(c, ("runner_wrapper.use_clip_grad",), by_default)
    norm = value_of(c, ("runner_wrapper.max_grad_norm", "runner_wrapper.clip_grad"), 1.0)
    return (float(norm) if are_numbers(norm) else norm) if on else 0.0
