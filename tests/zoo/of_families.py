"""Faults of the parts that families other than Llama have, on the models of ``launch/families``: a case's ``family`` names the files.

Every pair is one of both frameworks: what MindFormers does otherwise is held against Megatron, what Megatron does otherwise against
MindFormers, whose references end in ``_ms``. All start from weights whose norms and biases are no longer 1 and 0.
"""

from __future__ import annotations

from zoo.case import MEGATRON, MINDFORMERS, Case, Reference

FAMILIES = ("qwen2", "qwen3", "qwen3_moe", "deepseek_v3", "deepseek_v3_mtp")
TIED = ({"--untie-embeddings-and-output-weights": None}, {"model.model_config.tie_word_embeddings": True})


def references(family: str) -> dict[str, Reference]:
    """Of a family the run whose weights are scattered, and those of both frameworks that start from these."""
    return {
        f"{family}_own": Reference(family=family, start=""),
        family: Reference(family=family, start=f"{family}_own", weights="scattered"),
        f"{family}_ms": Reference(family=family, start=family, fed=family, side=MINDFORMERS),
    }


REFERENCES = {name: reference for family in FAMILIES for name, reference in references(family).items()}
REFERENCES["qwen3_tied"] = Reference(TIED[0], family="qwen3", start="")


def megatron(family: str, name: str, title: str, kind: str, stage: str = "", *culprit: str, **options: object) -> Case:
    """A fault of Megatron, held against MindFormers."""
    given = {"reference": f"{family}_ms", "family": family, "script": "planted_in_families.py" if "plant" in options else "", **options}
    return Case(name, title, kind, stage, culprit, MEGATRON, **given)  # type: ignore[arg-type]


def mindformers(family: str, name: str, title: str, kind: str, stage: str = "", *culprit: str, **options: object) -> Case:
    """A fault of MindFormers, held against Megatron; ``change`` is of its model's configuration."""
    given = {"reference": family, "family": family, **options}
    given["change"] = {f"model.model_config.{key}": value for key, value in options.get("of_model", {}).items()}  # type: ignore[attr-defined]
    given["change"] |= options.get("change", {})
    given.pop("of_model", None)
    return Case(name, title, kind, stage, culprit, MINDFORMERS, **given)  # type: ignore[arg-type]


def planted(family: str, name: str, title: str, kind: str, stage: str, *culprit: str) -> Case:
    """A fault of ``planted_in_families.py``, of its own name."""
    return megatron(family, name, title, kind, stage, *culprit, plant=name)


# fmt: off
# A row begins a line, whatever its length: the formatter would give each argument a line of its own.
QWEN2 = (
    mindformers("qwen2", "biases_lost", "Qwen2: biases of queries, keys and values not converted", "conversion", "weights",
        "*q_proj.bias", "*k_proj.bias", "*v_proj.bias", weights="biases_lost"),
    planted("qwen2", "qkv_bias_not_added", "Qwen2: biases of queries, keys and values not added", "attention", "forward", "*_proj.bias*"),
)
QWEN3 = (
    planted("qwen3", "norms_after_rotary", "Qwen3: queries and keys normalised after they are turned", "attention", "forward",
        "*.q_norm.weight", "*.k_norm.weight"),
    planted("qwen3", "scale_of_hidden_size", "Qwen3: scores divided by the root of hidden size over heads", "attention", "forward",
        "*.q_norm.weight", "*.k_norm.weight", "*.q_proj.weight", "*.k_proj.weight"),
    mindformers("qwen3", "query_and_key_norms", "Qwen3: norms of queries and keys exchanged", "conversion", "weights",
        "*.q_norm.weight*", "*.k_norm.weight*", weights="query_and_key_norms"),
    mindformers("qwen3", "query_norms_as_key_norms", "Qwen3: norms of queries and keys exchanged by the name table", "conversion",
        "forward", "*.q_norm.weight", "*.k_norm.weight", plant="query_norms_as_key_norms"),
)
QWEN3_MOE = (
    megatron("qwen3_moe", "auxiliary_coefficient", "Qwen3-MoE: auxiliary coefficient 0.01 for 0.001", "experts", "reduced gradients",
        "moe_aux_loss_coeff", flags={"--moe-aux-loss-coeff": "1e-2"}),
    megatron("qwen3_moe", "auxiliary_micro_batches", "Qwen3-MoE: micro-batches of 2 for 4 under an auxiliary loss", "experts",
        "reduced gradients", "micro_batch_size", flags={"--micro-batch-size": "2"}),
    megatron("qwen3_moe", "auxiliary_by_sequence", "Qwen3-MoE: --moe-router-load-balancing-type seq_aux_loss for sub_seq_aux_loss",
        "experts", "reduced gradients", "moe_router_load_balancing_type", flags={"--moe-router-load-balancing-type": "seq_aux_loss"}),
    mindformers("qwen3_moe", "chosen_not_normalised", "Qwen3-MoE: norm_topk_prob False", "experts", "forward", "norm_topk_prob",
        of_model={"norm_topk_prob": False}),
    planted("qwen3_moe", "scores_by_sigmoid", "Qwen3-MoE: experts scored by sigmoid", "experts", "forward", "*.mlp.gate.weight"),
    mindformers("qwen3_moe", "experts_permuted", "Qwen3-MoE: experts 0 and 1 of layer 1 exchanged", "conversion", "weights",
        "*.1.mlp.experts.*", weights="experts_permuted"),
    planted("qwen3_moe", "experts_exchanged", "Qwen3-MoE: experts 0 and 1 of layer 1 compute for each other", "experts", "forward",
        "*.1.mlp.experts.0.*", "*.1.mlp.experts.1.*"),
    mindformers("qwen3_moe", "expert_gate_as_up", "Qwen3-MoE: gate and up exchanged in every expert", "conversion", "weights",
        "*.mlp.experts.*", weights="expert_gate_as_up"),
    mindformers("qwen3_moe", "expert_gates_as_ups", "Qwen3-MoE: gate and up of experts exchanged by the name table", "conversion",
        "forward", "*.mlp.experts.*", plant="expert_gates_as_ups"),
)
DEEPSEEK = (
    mindformers("deepseek_v3", "group_limit", "DeepSeek-V3: topk_group 4 for 2", "experts", "forward", "topk_group",
        of_model={"topk_group": 4}),
    planted("deepseek_v3", "groups_ignored", "DeepSeek-V3: groups of experts ignored", "experts", "forward", "*.mlp.gate.weight"),
    mindformers("deepseek_v3", "bias_not_moved", "DeepSeek-V3: no TopkBiasBalanceCallback", "experts", "optimizer",
        "*e_score_correction_bias*", change={"callbacks": [{"type": "MFLossMonitor"}]}),
    megatron("deepseek_v3", "bias_rate", "DeepSeek-V3: bias update rate 0.01 for 0.001", "experts", "optimizer",
        "moe_router_bias_update_rate", flags={"--moe-router-bias-update-rate": "1e-2"}),
    planted("deepseek_v3", "shared_experts_left_out", "DeepSeek-V3: shared experts left out", "experts", "forward", "*shared_experts*"),
    mindformers("deepseek_v3", "latent_scale", "DeepSeek-V3: rotary_scaling_factor 40 with plain positions", "attention", "forward",
        "rotary_scaling_factor", of_model={"rotary_scaling_factor": 40.0}),
    mindformers("deepseek_v3", "routed_scale", "DeepSeek-V3: routed_scaling_factor 1 for 2.5", "experts", "forward",
        "routed_scaling_factor", of_model={"routed_scaling_factor": 1.0}),
    planted("deepseek_v3", "scores_by_softmax", "DeepSeek-V3: experts scored by softmax", "experts", "forward", "*.mlp.gate.weight"),
    planted("deepseek_v3", "latent_norms_exchanged", "DeepSeek-V3: norms of compressed queries and keys exchanged", "attention", "forward",
        "*.q_a_layernorm.weight", "*.kv_a_layernorm.weight"),
    planted("deepseek_v3_mtp", "mtp_labels_shifted", "DeepSeek-V3: labels of the predicting layer one position off", "loss",
        "reduced gradients", "*shared_head*", "*.layers.3.*", "loss of multi-token prediction*"),
    mindformers("deepseek_v3_mtp", "mtp_loss_factor", "DeepSeek-V3: mtp_loss_factor 0.1 for 0.3", "loss", "reduced gradients",
        "mtp_loss_scaling_factor", of_model={"mtp_loss_factor": 0.1}),
)
FAULTS = QWEN2 + QWEN3 + QWEN3_MOE + DEEPSEEK

HONEST = (
    mindformers("qwen2", "qwen2_pair", "Qwen2: MindFormers for Megatron", "honest"),
    mindformers("qwen3", "qwen3_tied_pair", "Qwen3: MindFormers for Megatron with tied embeddings", "honest", reference="qwen3_tied",
        change=TIED[1]),
    megatron("qwen3", "qwen3_micro_batches", "Qwen3: Megatron's micro-batches of one for MindFormers' four", "honest",
        flags={"--micro-batch-size": "1"}),
    mindformers("qwen3_moe", "qwen3_moe_pair", "Qwen3-MoE: MindFormers for Megatron", "honest"),
    megatron("qwen3_moe", "experts_in_reverse", "Qwen3-MoE: the last expert computes first", "honest", plant="experts_in_reverse"),
    mindformers("qwen3_moe", "sequences_of_one_rank", "Qwen3-MoE: seq_aux_loss for sub_seq_aux_loss on one device", "honest",
        of_model={"moe_router_load_balancing_type": "seq_aux_loss"}),
    mindformers("qwen3_moe", "batch_of_one_micro_batch", "Qwen3-MoE: gbs_aux_loss for aux_loss in a batch of one micro-batch", "honest",
        of_model={"moe_router_load_balancing_type": "gbs_aux_loss"}),
    mindformers("deepseek_v3", "scale_of_no_weight", "DeepSeek-V3: rotary_scaling_factor 2 with mscale 0 for 1", "honest",
        of_model={"rotary_scaling_factor": 2.0, "mscale": 0.0}),
    mindformers("deepseek_v3", "deepseek_pair", "DeepSeek-V3: MindFormers for Megatron", "honest"),
    megatron("deepseek_v3_mtp", "deepseek_micro_batches", "DeepSeek-V3: Megatron's micro-batches of one for MindFormers' four", "honest",
        flags={"--micro-batch-size": "1"}),
)
