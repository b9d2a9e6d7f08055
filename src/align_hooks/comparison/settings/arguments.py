"""Compare settings of a model's parts that ``config.json`` has no place for, by the arguments given to each framework.

The frameworks give some of them other names or one name another meaning, so the meaning of a setting is compared, where it is known."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from msgspec import Struct

from align_hooks.comparison.stage_result import Phase
from align_hooks.configuration.pynative import PYNATIVE, recorded_arguments
from align_hooks.messages import Message, message
from align_hooks.record.format.schema import Facts

MODEL = "model.model_config."
WORDS = {"None": None, "True": True, "False": False}
UNKNOWN = object()
"""The value of a setting that a record does not have."""
OF_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
"""Keys of ``config.json``, one of which a model with experts has."""
UNBALANCED = ("none", "sinkhorn", "quantile_balancing", None)
"""Megatron-LM's kinds of balancing without an auxiliary loss."""
AUXILIARY = ("aux_loss", "seq_aux_loss", "global_aux_loss")
"""Megatron-LM's auxiliary losses: over a micro-batch, over each sequence, over the batch."""
WHOLE, BY_SEQUENCE = AUXILIARY[:2]
IN_MINDFORMERS = {"sub_seq_aux_loss": "aux_loss", "seq_aux_loss": "aux_loss", "gbs_aux_loss": "global_aux_loss"}
"""The static graph's auxiliary loss to Megatron-LM's: its loss over a sequence runs over all sequences of a micro-batch. The PyNative
trainer's losses are Megatron-LM's, and so named."""
MOVES_THE_BIAS = "TopkBiasBalanceCallback"
"""MindFormers' callback without which the bias of its experts stays."""
RECOMPUTES = re.compile(r"^_(?:select_)?recompute:(?!False|None|\[\]|\{\})", re.MULTILINE)
"""A line of MindFormers' ``recompute_config``, a table as text, that makes layers compute again."""
Read = Callable[[Facts], object]


class ComparedSetting(Struct, frozen=True):
    """A setting of a model's part."""

    name: str
    """Megatron-LM's."""
    acts: Phase
    """Phase of a step in which it acts: an auxiliary loss moves gradients, and no token's loss."""
    matters: Callable[[Facts], bool]
    """Whether a run has the part that is set."""
    means: Read
    """The meaning, which is compared."""
    shown: Read | None = None
    """The value for a reader; None for the meaning."""

    def compared(self, reference: Facts, candidate: Facts) -> tuple[object, object] | None:
        """Return the meaning of the setting on each side; None where a side lacks it or its record does not say."""
        if not all(facts.arguments is not None and self.matters(facts) for facts in (reference, candidate)):
            return None
        ours, theirs = self.means(reference), self.means(candidate)
        return None if UNKNOWN in (ours, theirs) else (ours, theirs)


def argument(facts: Facts, megatron: str, mindformers: str = "", default: object = UNKNOWN) -> object:
    """Return an argument of a run by its framework's name; ``default`` is MindFormers', for Megatron-LM records its own."""
    arguments = recorded_arguments(facts.arguments)
    if not of_mindformers(facts):
        return plain(arguments.get(megatron, UNKNOWN))
    keys = (f"{MODEL}{name}" for name in (mindformers or megatron).split())
    return plain(next((arguments[key] for key in keys if key in arguments), default))


def plain(value: object) -> object:
    """Return None, True or False for the word that was recorded, any other value as it is."""
    return WORDS.get(value, value) if isinstance(value, str) else value


def number(value: object) -> object:
    """Return the number of a setting; unknown for a list of several kinds."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return UNKNOWN


def of_mindformers(facts: Facts) -> bool:
    """Return whether a run is one of MindFormers."""
    return facts.side == "ms"


def recomputes(facts: Facts) -> bool | None:
    """Return whether a run computes activations again in its backward pass; None where its record does not say."""
    if facts.arguments is None:
        return None
    if of_mindformers(facts):
        mode = facts.arguments.get("recompute.mode")  # the PyNative trainer's
        return RECOMPUTES.search(str(facts.arguments.get("recompute_config"))) is not None or mode not in (None, "None")
    return plain(facts.arguments.get("recompute_granularity")) is not None


def has_experts(facts: Facts) -> bool:
    """Return whether a model has experts."""
    return any(facts.model.get(key) for key in OF_EXPERTS)


def capacity(facts: Facts) -> object:
    """Return how many times its even share of tokens an expert takes, None where each has room for all tokens of a micro-batch."""
    factor, chosen = number(argument(facts, "moe_expert_capacity_factor") or 0.0), number(facts.model.get("num_experts_per_tok"))
    if not isinstance(factor, float):
        return factor
    experts = next((number(facts.model[key]) for key in OF_EXPERTS if facts.model.get(key)), UNKNOWN)
    fits_all = isinstance(chosen, float) and isinstance(experts, float) and factor * chosen >= experts
    return None if fits_all or factor <= 0 else factor


def drops_tokens(facts: Facts) -> bool:
    """Return whether experts drop tokens that exceed their capacity."""
    return has_experts(facts) and isinstance(capacity(facts), float)


def coefficient(facts: Facts) -> object:
    """Return the weight of the auxiliary loss, 0 where there is none."""
    kind = balancing(facts)
    weight = number(argument(facts, "moe_aux_loss_coeff", default=0.0)) if kind in AUXILIARY else UNKNOWN
    return 0.0 if kind in UNBALANCED else weight


def balancing(facts: Facts) -> object:
    """Return how experts are balanced, by Megatron-LM's name."""
    kind, rows = own_balancing(facts), facts.training.micro_batch_size
    if of_mindformers(facts) and facts.trainer != PYNATIVE:
        kind = IN_MINDFORMERS.get(str(kind), kind)
    # a micro-batch may be one sequence, or the whole batch
    alike = {"seq_aux_loss": 1, "global_aux_loss": facts.training.global_batch_size}
    return "aux_loss" if rows and rows == alike.get(str(kind)) else kind


def own_balancing(facts: Facts) -> object:
    """Return how experts are balanced, by the framework's own name."""
    return argument(facts, "moe_router_load_balancing_type", default="sub_seq_aux_loss")


def is_balanced(facts: Facts) -> bool:
    """Return whether an auxiliary loss balances the experts."""
    return has_experts(facts) and coefficient(facts) not in (UNKNOWN, 0.0)


def micro_batch(facts: Facts) -> object:
    """Return the rows of a micro-batch; unknown where no auxiliary loss depends on them."""
    return (balancing(facts) == "aux_loss" and facts.training.micro_batch_size) or UNKNOWN


def logits_loss(facts: Facts) -> object:
    """Return the weight of the loss of the router's logits, which MindFormers does not read."""
    return 0.0 if of_mindformers(facts) else number(argument(facts, "moe_z_loss_coeff") or 0.0)


def unknown_term(facts: Facts) -> Message | None:
    """Return the term of a run's loss that no third implementation computes; None where there is none."""
    if predicts(facts) and not isinstance(prediction_loss(facts), float):
        return message("arbitrate.unknown_prediction")
    if not has_experts(facts):
        return None
    weight, of_logits, per_token = coefficient(facts), logits_loss(facts), facts.training.per_token_loss
    if not isinstance(weight, float) or (weight and (balancing(facts) not in (WHOLE, BY_SEQUENCE) or per_token)):
        return message("arbitrate.unknown_balance", kind=str(balancing(facts)))
    known = isinstance(of_logits, float) and not (of_logits and per_token)
    return None if known else message("arbitrate.unknown_logits_loss")


def bias_rate(facts: Facts) -> object:
    """Return by how much the bias of experts moves after a step; unknown without a bias."""
    if argument(facts, "moe_router_enable_expert_bias") is not True:
        return UNKNOWN
    moves = not of_mindformers(facts) or MOVES_THE_BIAS in str(recorded_arguments(facts.arguments).get("callbacks"))
    return number(argument(facts, "moe_router_bias_update_rate", default=0.001)) if moves else 0.0


def predicts(facts: Facts) -> bool:
    """Return whether layers predict further tokens."""
    return bool(facts.model.get("num_nextn_predict_layers"))


def prediction_loss(facts: Facts) -> object:
    """Return the weight of the loss of these layers."""
    return number(argument(facts, "mtp_loss_scaling_factor", "mtp_loss_factor mtp_loss_scaling_factor"))


def latent_stretch(facts: Facts) -> list[object]:
    """Return the factor by which YaRN stretches positions, and a weight of its logarithm; latent scores use both without YaRN too."""
    weight = "mscale" if of_mindformers(facts) else "mscale_all_dim"
    scaling = facts.model.get("rope_scaling")
    if isinstance(scaling, dict):
        return [number(scaling.get("factor")), number(scaling.get(weight))]
    return [number(argument(facts, "rotary_scaling_factor", default=40.0)), number(argument(facts, weight, default=0.707))]


def latent_scale(facts: Facts) -> object:
    """Return the factor of latent scores beside the root of their size."""
    factor, weight = latent_stretch(facts)
    if not (isinstance(factor, float) and isinstance(weight, float)):
        return UNKNOWN
    scale = 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0
    return scale * scale


LATENT = "rotary_scaling_factor, mscale (MindFormers) or mscale_all_dim (Megatron-LM)"
ARGUMENTS = (
    ComparedSetting(LATENT, Phase.FORWARD, lambda facts: "kv_lora_rank" in facts.model, latent_scale, latent_stretch),
    ComparedSetting("moe_expert_capacity_factor", Phase.FORWARD, has_experts, capacity),
    ComparedSetting("moe_token_drop_policy", Phase.FORWARD, drops_tokens, lambda facts: argument(facts, "moe_token_drop_policy")),
    ComparedSetting("moe_aux_loss_coeff", Phase.BACKWARD, has_experts, coefficient),
    ComparedSetting("moe_router_load_balancing_type", Phase.BACKWARD, is_balanced, balancing, own_balancing),
    ComparedSetting("micro_batch_size", Phase.BACKWARD, is_balanced, micro_batch),
    ComparedSetting("moe_z_loss_coeff", Phase.BACKWARD, has_experts, logits_loss),
    ComparedSetting("mtp_loss_scaling_factor", Phase.BACKWARD, predicts, prediction_loss),
    ComparedSetting("moe_router_bias_update_rate", Phase.UPDATE, has_experts, bias_rate),
)
ACTS = {argument.name: argument.acts for argument in ARGUMENTS}
"""Setting to the phase in which it acts; all others act in the forward pass."""
