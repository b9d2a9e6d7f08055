"""What MindSpeed-LLM builds otherwise than Megatron-LM; rules are of release 26.1 where they name no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from align_hooks.checklist.canonical_values import UNSET, RopeWavelengths, Scaling
from align_hooks.checklist.lookup import LONGEST, Read, are_numbers, is_since, value_of
from align_hooks.configuration.values import MINDSPEED_LLM, Configuration, Setting

ORDINARY = {"qwen3_spec", "qwen2_moe_spec", "bailing_spec", "deepseek_spec", "minicpm_spec"}
"""Modules of ``mindspeed_llm.tasks.models.spec`` whose layers are Megatron-LM's, with plain or latent attention."""
LATENT = {"deepseek_spec", "minicpm_spec", "plm_spec", "longcat_spec"}
"""Those with latent attention."""
STACKS = {"hybrid_stack_spec", "mamba_stack_spec"}
"""Megatron-LM's own specifications of a HybridModel's layers, by the last word of ``--spec``."""
GATED = {"gelu_tanh": "gelu_pytorch_tanh", "geglu": "gelu"}
"""Flags of an activation that multiplies by a gate, and how Hugging Face calls the activation; where both are given the first counts."""
BOUNDS = {"low": "low_freq_factor", "high": "high_freq_factor", "length": "original_max_position_embeddings"}
"""The bounds of Llama 3.1's scaling by their flags, which Hugging Face names alike."""
POST_TRAINING = "posttrain_gpt.py"


def of_mindspeed(c: Configuration) -> bool:
    """Return whether a side is MindSpeed-LLM."""
    return c.fork == MINDSPEED_LLM


def specification(c: Configuration) -> list[str]:
    """Return the words of ``--spec``: a module, and a name in it; none without the flag."""
    return [word.strip("'\",") for word in str(value_of(c, ("spec",), "") or "").strip("[]").split()]


def layer_module(c: Configuration) -> str:
    """Return the last name of the module that ``--spec`` takes the layers from; empty without one."""
    return next(iter(specification(c)), "").rpartition(".")[2]


def layers_of_its_own(c: Configuration) -> Setting:
    """Return the module of ``--spec``; None where its layers are Megatron-LM's, a GPTModel's or a HybridModel's."""
    is_usual = (of_mindspeed(c) and layer_module(c) in ORDINARY) or not STACKS.isdisjoint(specification(c)[-1:])
    return None if is_usual else value_of(c, ("spec",), None)


def latent(c: Configuration) -> Setting:
    """Return whether attention is latent, which only ``--spec`` decides in MindSpeed-LLM."""
    flagged = value_of(c, ("multi_latent_attention",), False)  # read also where it does not count, for it is covered then
    return layer_module(c) in LATENT if of_mindspeed(c) else flagged


def normalises_queries(c: Configuration) -> Setting:
    """Return whether queries and keys are normalised; MindSpeed-LLM's ``pretrain_gpt.py`` does it with ``--spec`` only."""
    flagged = value_of(c, ("qk_layernorm",), False)
    passed_on = not of_mindspeed(c) or bool(layer_module(c)) or c.program.endswith(POST_TRAINING)
    return flagged if passed_on else False


def idle_layers(c: Configuration) -> frozenset[int]:
    """Return the layers, counted from 0, that do nothing: ``--noop-layers 61,62,63``."""
    written = value_of(c, ("noop_layers",), None) if of_mindspeed(c) else None
    return frozenset(int(layer) for layer in str(written).strip("[](){} ").split(",")) if written is not None else frozenset()


def layers(c: Configuration) -> Setting:
    """Return the number of layers without those that do nothing."""
    written = value_of(c, ("num_layers", "encoder_num_layers"))
    return written - sum(0 <= layer < written for layer in idle_layers(c)) if are_numbers(written) else written


def sparse_layers(c: Configuration) -> Setting:
    """Return one digit a layer, 1 for experts: all layers, unless ``--first-k-dense-replace`` is set, with which the frequency counts."""
    # nobody reads a frequency by itself, nor, up to 2.1, --first-k-dense-replace without a frequency
    dense, every = value_of(c, ("first_k_dense_replace",), None), value_of(c, ("moe_layer_freq",), 1)
    written = value_of(c, ("num_layers", "encoder_num_layers"))
    if not are_numbers(written) or written > LONGEST or (dense and not are_numbers(dense, every)):
        return UNSET
    real = sorted(set(range(int(written))) - idle_layers(c))
    if not dense or not every:
        return "1" * len(real)
    return "".join("1" if layer >= dense and layer % every == 0 else "0" for layer in real)


def interleaved(c: Configuration) -> Setting:
    """Return whether neighbours are turned together, as ``--use-glm-rope`` does too (``_process_partial_rope``)."""
    return bool(value_of(c, ("rotary_interleaved",), False) or value_of(c, ("use_glm_rope",), False))


def scaling_type(c: Configuration) -> Setting:
    """Return ``--rope-scaling-type``; None where rotary positions are not scaled."""
    return value_of(c, ("rope_scaling_type",), None) if of_mindspeed(c) else None


def rope_scaling(c: Configuration) -> Setting:
    """Return the scaling with its factor, or none, as for ``plm``, which is plain RoPE; YaRN has rows of its own."""
    kind = scaling_type(c)
    if kind in (None, "plm", "yarn"):
        return "none"
    held = RopeWavelengths(**bounds(c, {field: (name,) for field, name in BOUNDS.items()})) if kind == "llama3" else RopeWavelengths()
    return Scaling(str(kind), float(value_of(c, ("rope_scaling_factor",), 8.0)), held)


def bounds(c: Configuration, keys: Mapping[str, Sequence[str]]) -> Mapping[str, Setting]:
    """Return the bounds of Llama 3.1's scaling that are set, by field."""
    held = {field: value_of(c, names, None) for field, names in keys.items()}
    return {field: float(value) if are_numbers(value) else value for field, value in held.items() if value is not None}


def yarn_factor(c: Configuration) -> Setting:
    """Return YaRN's factor; without latent attention, since 2.3, the model's longest positions over the original ones."""
    longest, original = value_of(c, ("max_position_embeddings",)), value_of(c, ("rope_scaling_original_max_position_embeddings",))
    if of_mindspeed(c) and scaling_type(c) == "yarn" and not latent(c) and are_numbers(longest, original) and original:
        return longest / original
    return value_of(c, ("rope_scaling_factor",) if of_mindspeed(c) else ("rotary_scaling_factor",), 1.0)


def yarn_original(c: Configuration) -> Setting:
    """Return the length that YaRN stretches: of Megatron-LM 4096, which cannot be configured."""
    return value_of(c, ("rope_scaling_original_max_position_embeddings",)) if of_mindspeed(c) else 4096


def all_dimensions(c: Configuration) -> Setting:
    """Return the default of ``--mscale-all-dim``: 1.0 before Megatron-LM 0.14, 0.0 since (``training/arguments.py``)."""
    return 1.0 if c.version and not is_since(c.version, 0, 14) else 0.0


YARN_SCALES: Mapping[str, float | Read] = {"mscale": 1.0, "mscale_all_dim": all_dimensions}
"""Scales of YaRN, and the default of each."""


def yarn_scale(name: str) -> Read:
    """Return a reader of a scale of YaRN, which MindSpeed-LLM names otherwise."""
    return lambda c: value_of(c, (f"rope_scaling_{name}" if of_mindspeed(c) else name,), YARN_SCALES[name])


def balances(c: Configuration) -> Setting:
    """Return how the router balances; ``--seq-aux`` of MindSpeed-LLM means by sequence where the type is none or by groups."""
    kind = value_of(c, ("moe_router_load_balancing_type",), "aux_loss")
    if not of_mindspeed(c) or kind not in ("none", "noaux_tc", "group_limited_greedy"):
        return kind
    by_sequence = value_of(c, ("seq_aux",), False)
    return "seq_aux_loss" if by_sequence else "aux_loss" if kind == "group_limited_greedy" else "none"


def weights_add_up(c: Configuration) -> Setting:
    """Return whether the weights of a token's experts add up to one by MindSpeed-LLM's own types of routing; else UNSET."""
    # only some types read --norm-topk-prob; "none" does not
    kind, asked = value_of(c, ("moe_router_load_balancing_type",), "aux_loss"), value_of(c, ("norm_topk_prob",), False)
    if kind in ("softmax_topk", "group_limited_greedy") or (asked and kind == "aux_loss"):
        return bool(asked)
    return False if kind == "pai_megatron_aux_loss" else UNSET


def weights_scale(c: Configuration) -> Setting:
    """Return the factor of the weights; dividing by their sum, as ``--norm-topk-prob`` does afterwards, undoes it."""
    scale = value_of(c, ("moe_router_topk_scaling_factor",), None)
    kind, asked = value_of(c, ("moe_router_load_balancing_type",), "aux_loss"), value_of(c, ("norm_topk_prob",), False)
    undone = kind == "pai_megatron_aux_loss" or (asked and kind in ("aux_loss", "group_limited_greedy"))
    return None if of_mindspeed(c) and undone else scale


def groups(name: str) -> Read:
    """Return a reader of the groups of experts, or of those chosen: some types of routing read none, one has a group a rank."""

    def read(c: Configuration) -> Setting:
        kind = value_of(c, ("moe_router_load_balancing_type",), "aux_loss") if of_mindspeed(c) else ""
        if kind in ("pai_megatron_aux_loss", "softmax_topk", "sparsemixer_topk"):
            return None
        by_rank = kind == "group_limited_greedy" and name == "moe_router_num_groups"
        return value_of(c, (name,), value_of(c, ("expert_model_parallel_size",), 1) if by_rank else None)

    return read


def jitter(c: Configuration) -> Setting:
    """Return how far the router's input is jittered; ``--input-jitter`` of MindSpeed-LLM switches it off."""
    return value_of(c, ("moe_input_jitter_eps",), None) if value_of(c, ("input_jitter",), True) else None


def extra_loss_scale(c: Configuration) -> Setting:
    """Return the weight of the loss of further tokens: 0.3 with MindSpeed-LLM 2.0's ``--num-nextn-predict-layers``, else 0.1."""
    older = value_of(c, ("num_nextn_predict_layers",), None)
    return value_of(c, ("mtp_loss_scaling_factor", "mtp_loss_scale"), 0.1 if older is None else 0.3)
