"""At which points a fault of the zoo comes about: the faulty one, or its direct output. Patterns of the names of points, of gradients with
``#gradient``; a backward pass that is faulty shows first in the gradient of what the faulty computation is given.

Faults that no point can show are left out: what happens to a gradient of a weight behind the backward pass, and what an optimizer starts
from. Of several patterns any may be named. Each was written from what the plant does.
"""

from __future__ import annotations

G = "#gradient"
EMBEDDING, LOSSES, LOGITS = ("model.embed_tokens",), ("token_losses",), ("lm_head", "token_losses")
TURNED = ("model.layers.0.self_attn.query", "model.layers.0.self_attn.key")
CORE, CORE_OF_1 = ("model.layers.0.self_attn.core",), ("model.layers.1.self_attn.core",)
FIRST_NORM = ("model.layers.0.input_layernorm",)
OF_BLOCKS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("eps_flag", "eps_and_cosine", "eps_and_second_step", "norm_eps_outside", "norm_centred", "norm_weight_plus_one"), FIRST_NORM
    ),
    **dict.fromkeys(("mf_eps", "mf_eps_and_decay", "mf_norm_in_float16"), FIRST_NORM),
    **dict.fromkeys(("rope_base_flag", "rope_base_1_percent", "rope_and_weight_decay", "rope_interleaved", "rope_reversed"), TURNED),
    **dict.fromkeys(
        ("rope_missing_on_keys", "rope_in_bfloat16", "rope_position_doubled", "rope_not_assigned", "positions_over_rows"), TURNED
    ),
    **dict.fromkeys(("mf_theta", "mf_theta_of_its_own", "mf_rope_in_float16", "mf_rope_not_assigned", "rotary_cache_stretched"), TURNED),
    **dict.fromkeys(("attention_scale", "no_causal_mask", "mask_off_by_one", "sliding_window", "query_groups_tiled", "head_dropped"), CORE),
    "mf_softmax_in_float16": CORE,
    **dict.fromkeys(("attention_scale_of_one_layer", "scale_and_beta2", "rows_flattened", "rows_flattened_of_four"), CORE_OF_1),
    "values_of_keys": ("model.layers.1.self_attn.value", *CORE_OF_1),
    "keys_cached": ("model.layers.0.self_attn.key", *CORE),
    "mf_keys_as_values": ("model.layers.*.self_attn.k_proj", "model.layers.*.self_attn.v_proj"),
    "norm_final_skipped": ("model.norm",),
    "norm_in_bfloat16": ("model.layers.1.post_attention_layernorm",),
    "running_mean_kept": ("model.layers.1.input_layernorm",),
    "gelu": ("model.layers.0.mlp.activation",),
    "silu_steeper": ("model.layers.0.mlp.activation",),
    "mlp_clamped": ("model.layers.0.mlp.activation",),
    "gate_and_up_swapped": ("model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj", "model.layers.0.mlp.activation"),
    "mlp_in_bfloat16": ("model.layers.0.mlp.down_proj",),
    "residual_doubled": ("model.layers.1", "model.layers.1.mlp.down_proj"),
    "layers_swapped": ("model.layers.0.*",),
    "weight_of_rank_1_late": ("model.layers.1.mlp.*",),
}
OF_ENDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("ids_off_by_one", "embedding_scaled", "embedding_in_bfloat16", "embedding_shard_0_off", "embedding_shard_off"), EMBEDDING
    ),
    **dict.fromkeys(
        ("random_state_not_put_back", "dropout_outside_its_state", "random_state_not_restored", "data_ranks_seeded_apart"), EMBEDDING
    ),
    **dict.fromkeys(("logits_scaled", "logits_capped", "logits_in_bfloat16", "maximum_not_reduced", "partition_doubled"), LOGITS),
    **dict.fromkeys(("labels_shifted", "z_loss", "labels_smoothed", "labels_flattened", "mf_labels_shifted"), LOSSES),
}
BACKWARD: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("loss_over_fewer_tokens", "last_micro_batch_lost", "rows_averaged"), (f"token_losses{G}",)),
    **dict.fromkeys(("micro_batch_masked", "context_parallel_masked"), (f"token_losses{G}",)),
    "keys_detached": (f"model.layers.1.self_attn.key{G}",),
    "values_detached": (f"model.layers.1.self_attn.value{G}",),
    "softmax_without_sum": (f"model.layers.1.self_attn.query{G}", f"model.layers.1.self_attn.key{G}"),
    "heads_detached": tuple(f"model.layers.0.self_attn.{name}{G}" for name in ("query", "key", "value", "core")),
    "recomputed_with_other_masks": (f"model.layers.1.mlp.down_proj{G}", f"model.layers.1{G}"),
    "residual_gradient_in_bfloat16": (f"model.layers.0{G}", f"model.layers.0.mlp.down_proj{G}", f"model.layers.1.input{G}"),
    "final_norm_without_mean": (f"model.layers.1{G}",),
    **dict.fromkeys(
        ("mlp_gradient_scaled", "mlp_gradient_and_adam_eps", "mf_mlp_gradient_scaled"),
        (f"model.layers.1.mlp.gate_proj{G}", f"model.layers.1.mlp.up_proj{G}", f"model.layers.1.mlp.activation{G}"),
    ),
}
ROUTED = ("model.layers.*.mlp.gate.weights",)
AUXILIARY = ("model.layers.*.mlp.gate#gradient",)
OF_FAMILIES: dict[str, tuple[str, ...]] = {
    "qkv_bias_not_added": ("model.layers.0.self_attn.?_proj",),
    "norms_after_rotary": ("model.layers.0.self_attn.query", "model.layers.0.self_attn.key", "model.layers.0.self_attn.?_norm"),
    "scale_of_hidden_size": CORE,
    "query_norms_as_key_norms": ("model.layers.0.self_attn.?_norm",),
    **dict.fromkeys(("auxiliary_coefficient", "auxiliary_micro_batches", "auxiliary_by_sequence"), AUXILIARY),
    **dict.fromkeys(
        ("chosen_not_normalised", "scores_by_sigmoid", "group_limit", "groups_ignored", "routed_scale", "scores_by_softmax"), ROUTED
    ),
    "experts_exchanged": ("model.layers.1.mlp.experts.[01]",),
    "expert_gates_as_ups": ("model.layers.*.mlp.experts.*",),
    "shared_experts_left_out": ("model.layers.*.mlp.shared_experts*", "model.layers.*.mlp"),
    "latent_scale": CORE,
    "latent_norms_exchanged": ("model.layers.0.self_attn.*_a_layernorm",),
    "mtp_labels_shifted": (f"model.layers.3.shared_head.*{G}", f"model.norm{G}", f"model.layers.3*{G}"),
    "mtp_loss_factor": (f"model.layers.3.shared_head.*{G}", f"model.norm{G}", f"model.layers.3*{G}"),
}
POINTS: dict[str, tuple[str, ...]] = {**OF_BLOCKS, **OF_ENDS, **BACKWARD, **OF_FAMILIES}
"""Name of a case to the points at which its fault comes about."""
