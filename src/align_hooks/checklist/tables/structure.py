"""The model's structure: the guide's general structure, and the model table of the comparison with Megatron-LM."""

from __future__ import annotations

from functools import partial

from align_hooks.checklist.canonical_values import UNSET, plain, text
from align_hooks.checklist.lookup import FFN, GROUPS, HEADS, LAYERS, TYPE_OF_POSITIONS, Read, is_off, is_on, model, value_of
from align_hooks.checklist.mindformers_models import default, if_complete
from align_hooks.checklist.resolver import one_of
from align_hooks.checklist.resolvers import hybrid, initialisation, mindspeed
from align_hooks.checklist.resolvers import structure as read
from align_hooks.checklist.resolvers.experts import no_dense_layer
from align_hooks.checklist.row import CheckRow, Effect, Recommendation, RowGroup, SideSpec, Worded
from align_hooks.configuration.hybrid import PATTERNS
from align_hooks.configuration.megatron import ARGUMENTS
from align_hooks.configuration.values import Setting
from align_hooks.messages import message

row = partial(CheckRow, group=RowGroup.STRUCTURE)
harmless = partial(row, effect=Effect.NOTHING)
"""Rows whose differences change nothing."""


def megatron_alone(name: str, read: Read | None = None) -> CheckRow:
    """Return the row of a setting that changes the model and that only Megatron has; MindFormers does its default."""
    otherwise = ARGUMENTS.get(name, False)  # older forks alone have embed_layernorm
    return row(name, SideSpec((name,), otherwise if read is None else UNSET, read), SideSpec(fixed=otherwise))


def latent(name: str, otherwise: Setting, keys: tuple[str, ...], mindformers: Setting) -> CheckRow:
    """Return the row of a size of latent attention."""
    return row(name, SideSpec((name,), otherwise), SideSpec(model(*keys), mindformers), when="multi_latent_attention")


def yarn(name: str, megatron: SideSpec, mindformers: float, *keys: str) -> CheckRow:
    """Return the row of a number by which YaRN scales positions, with MindFormers' default."""
    names = keys or (name, f"rope_scaling.{name}", f"scaling_factor.{name}")
    return row(name, megatron, SideSpec(model(*names), if_complete(mindformers)), when=YARN, harmless_if=read.older_does_not_stretch)


YARN = f"rope_scaling={read.YARN}"


ALONE_WITH_MEGATRON = (
    *("init_method_xavier_uniform", "embedding_init_method_std", "embed_layernorm", "qk_l2_norm", "qk_clip"),
    *("no_rope_freq", "softmax_type", "attention_output_gate", "activation_func_clamp_value"),
    *("glu_linear_offset", "experimental_attention_variant", "linear_attention_freq"),
)
ALONE = (
    *map(megatron_alone, ALONE_WITH_MEGATRON),
    *(megatron_alone(name, read=partial(hybrid.pattern_of_no_blocks, name)) for name in PATTERNS),
    megatron_alone("spec", read=mindspeed.layers_of_its_own),
    *map(megatron_alone, ("heterogeneous_layers_config_path", "use_mup", "rampup_batch_size", "step_batch_size_schedule")),
)

STRUCTURE = (
    row(
        "num_layers",
        SideSpec(("num_layers", "encoder_num_layers", "noop_layers"), read=mindspeed.layers),
        SideSpec(LAYERS, default("num_layers")),
        fact="model.num_hidden_layers",
    ),
    row("decoder_num_layers", SideSpec(("decoder_num_layers",), None), SideSpec(fixed=None)),
    row(
        "hidden_size",
        SideSpec(("hidden_size",)),
        SideSpec(model("hidden_size", "n_embed"), default("hidden_size")),
        fact="model.hidden_size",
    ),
    row(
        "intermediate_size",
        SideSpec(("ffn_hidden_size", "hidden_size", "swiglu"), read=read.megatron_ffn),
        SideSpec((*FFN, *model("multiple_of", "ffn_dim_multiplier", "expand_ratio", "hidden_size")), read=read.mindformers_ffn),
        fact="model.intermediate_size",
        harmless_if=no_dense_layer,
    ),
    row("num_heads", SideSpec(("num_attention_heads",)), SideSpec(HEADS, default("num_attention_heads")), fact="model.num_attention_heads"),
    row(
        "n_kv_heads",
        SideSpec(("num_query_groups", "group_query_attention", "num_attention_heads", "multi_latent_attention"), read=read.megatron_groups),
        SideSpec((*GROUPS, *HEADS, *model("use_gqa")), read=read.mindformers_groups),
        fact="model.num_key_value_heads",
        harmless_if=read.ungrouped,
    ),
    row(
        "head_dim",
        SideSpec(("kv_channels", "hidden_size", "num_attention_heads"), read=read.megatron_head_dim),
        SideSpec((*model("head_dim", "kv_channels", "hidden_size"), *HEADS), read=read.mindformers_head_dim),
        fact="model.head_dim",
        harmless_if=read.latent_heads,
    ),
    row(
        Worded("sliding_window"),
        SideSpec(("window_size",), None, beside=("window_attn_skip_freq",), writer=read.window_edits_of_megatron),
        SideSpec(model("sliding_window", "use_sliding_window", "window_size"), read=read.window),
        form=read.window_pair,
    ),
    row(
        "normalization",
        SideSpec(("normalization",), "LayerNorm"),
        SideSpec(model("normalization"), default("normalization"), writer=one_of("RMSNorm", "LayerNorm")),
        form=text,
    ),
    row(
        "rms_norm_eps",
        SideSpec(("layernorm_epsilon", "norm_epsilon"), 1e-5),
        SideSpec(model("rms_norm_eps", "layernorm_epsilon", "layer_norm_epsilon", "layer_norm_eps"), default("layernorm_epsilon")),
        fact="model.rms_norm_eps",
    ),
    row(
        Worded("zero_centred_norm_weights"), SideSpec(("layernorm_zero_centered_gamma", "apply_layernorm_1p"), False), SideSpec(fixed=False)
    ),
    row(
        Worded("residual_after_the_norm"),
        SideSpec(("apply_residual_connection_post_layernorm",), False),
        SideSpec(model("apply_residual_connection_post_layernorm"), False),
    ),
    row(
        Worded("activation_function"),
        SideSpec(
            ("swiglu", "openai_gelu", "squared_relu", "quick_geglu", "bias_gelu_fusion", "add_bias_linear", *mindspeed.GATED),
            read=read.megatron_activation,
        ),
        SideSpec(model("hidden_act", "gated_linear_unit"), read=read.mindformers_activation),
    ),
    row(
        Worded("gated_linear_unit"),
        SideSpec(("swiglu", "quick_geglu", *mindspeed.GATED), read=read.megatron_gated),
        SideSpec(model("gated_linear_unit", "hidden_act"), read=read.mindformers_gated),
    ),
    row(
        Worded("bias_of_linear_layers"),
        SideSpec(("add_bias_linear",), True),
        SideSpec(model("add_bias_linear", "attn_proj_has_bias", "mlp_has_bias"), default("add_bias_linear")),
        fact="model.mlp_bias",
    ),
    row(
        Worded("bias_of_queries_keys_and_values"),
        SideSpec(("add_qkv_bias", "add_bias_linear"), read=read.megatron_qkv_bias),
        SideSpec(model("qkv_has_bias", "attention_bias", "add_qkv_bias", "add_bias_linear"), read=read.mindformers_qkv_bias),
        fact="model.attention_bias",
    ),
    row(
        Worded("norm_of_queries_and_keys"),
        SideSpec(("qk_layernorm", "spec"), read=mindspeed.normalises_queries),
        SideSpec(model("qk_layernorm", "use_qk_norm"), read=read.mindformers_qk_norm),
    ),
    row(
        Worded("tied_embeddings"),
        SideSpec(("untie_embeddings_and_output_weights",), read=lambda c: not value_of(c, ("untie_embeddings_and_output_weights",), False)),
        SideSpec(model("tie_word_embeddings", "untie_embeddings_and_output_weights"), read=read.mindformers_tied),
        fact="model.tie_word_embeddings",
    ),
    row(
        "vocab_size",
        SideSpec(("vocab_size",)),
        SideSpec(model("vocab_size", "padded_vocab_size"), read=read.mindformers_vocabulary),
        fact="model.vocab_size",
        harmless_if=read.padded_size_alone,
    ),
    row(
        Worded("rows_of_the_embedding"),
        SideSpec(
            (
                *("padded_vocab_size", "pad_vocab_size_to", "vocab_size", "make_vocab_size_divisible_by"),
                *("tensor_model_parallel_size", "pad_vocab_size"),
            ),
            read=read.megatron_padded_vocabulary,
        ),
        SideSpec(model("vocab_size", "padded_vocab_size"), read=read.mindformers_rows),
        fact="padded_vocabulary",
        implied_by=read.no_multiple,
        advice=Recommendation(message("advice.multiple_of_16"), lambda size: size % 16 == 0),
    ),
    row(
        "max_position_embeddings",
        SideSpec(("max_position_embeddings",)),
        SideSpec(model("max_position_embedding", "max_position_embeddings"), read=read.mindformers_longest),
        fact="model.max_position_embeddings",
        harmless_if=read.no_table_of_positions,
    ),
    row(
        "position_embedding_type",
        SideSpec(("position_embedding_type", "use_rotary_position_embeddings", "multi_latent_attention"), read=read.megatron_positions),
        SideSpec(TYPE_OF_POSITIONS, read=read.mindformers_positions, beside=("model.arch.type",)),
    ),
    row(
        "no_position_embedding",
        SideSpec(("add_position_embedding",), read=lambda c: is_off(c, "add_position_embedding")),
        SideSpec(model("no_position_embedding", "no-position-embedding"), False),
        harmless_if=read.no_table_of_positions,
    ),
    row(
        "rotary_base",
        SideSpec(("rotary_base",), 10000),
        SideSpec(model("theta", "rope_theta", "rotary_base", "rope_ratio"), read=read.mindformers_base),
        fact="model.rope_theta",
        harmless_if=read.nothing_turned,
    ),
    row(
        "rotary_percent",
        SideSpec(("rotary_percent",), 1.0),
        SideSpec(model("rotary_percent", "partial_rotary_factor"), default("rotary_percent")),
        harmless_if=read.nothing_turned,
    ),
    row(
        "rotary_interleaved",
        SideSpec(("rotary_interleaved", "use_glm_rope"), read=mindspeed.interleaved),
        SideSpec(model("rotary_interleaved", "rope_interleave"), default("rotary_interleaved")),
        harmless_if=read.nothing_turned,
    ),
    row(
        "rotary_seq_len_interpolation_factor",
        SideSpec(("rotary_seq_len_interpolation_factor",), None),
        SideSpec(model("rotary_seq_len_interpolation_factor"), None),
        form=lambda factor: None if plain(factor) == 1 else plain(factor),
    ),
    row(
        Worded("rope_scaling"),
        SideSpec(
            (
                *("use_rope_scaling", "rope_scaling_factor", "rope_scaling_type", *mindspeed.BOUNDS.values()),
                *("position_embedding_type", "multi_latent_attention", "rope_type"),
            ),
            read=read.megatron_rope_scaling,
        ),
        SideSpec(
            (
                *model("rope_scaling.type", "rope_scaling.rope_type", "rope_scaling.factor", "scaling_factor", "scaling_factor.factor"),
                *model("extend_method", "use_rope_scaling", "rotary_scaling_factor", "position_embedding_type"),
                *(key for keys in read.BOUNDS.values() for key in keys),
            ),
            read=read.mindformers_rope_scaling,
        ),
    ),
    row("mrope_section", SideSpec(("mrope_section",), None), SideSpec(model("mrope_section"), None)),
    row(
        "init_method_std",
        SideSpec(("init_method_std",), 0.02),
        SideSpec(model("init_method_std", "initializer_range"), initialisation.spread, cannot=initialisation.draws_alike),
        harmless_if=initialisation.weights_loaded,
    ),
    row(
        Worded("initial_scale_of_output_projections"),
        SideSpec(read=initialisation.megatron_spread, beside=("is_hybrid_model",)),
        SideSpec(read=initialisation.mindformers_spread, beside=initialisation.RULES),
        harmless_if=initialisation.weights_loaded,
        uncertain_if=initialisation.both_draw,
        instead=initialisation.load_too,
    ),
    row(
        "attention_dropout",
        SideSpec(("attention_dropout",), 0.1),
        SideSpec(model("attention_dropout", "attention_dropout_rate"), default("attention_dropout")),
        advice=Recommendation(message("advice.no_random_mask"), lambda rate: rate == 0),
    ),
    row(
        "hidden_dropout",
        SideSpec(("hidden_dropout",), 0.1),
        SideSpec(model("hidden_dropout", "hidden_dropout_rate"), default("hidden_dropout")),
        advice=Recommendation(message("advice.no_recompute"), lambda rate: rate == 0),
    ),
    row(
        "multi_latent_attention",
        SideSpec(("multi_latent_attention", "spec"), read=mindspeed.latent),
        SideSpec(model("multi_latent_attention"), read=read.mindformers_mla),
    ),
    latent("q_lora_rank", None, ("q_lora_rank",), default("q_lora_rank")),
    latent("kv_lora_rank", 32, ("kv_lora_rank",), default("kv_lora_rank")),
    latent("qk_head_dim", 128, ("qk_nope_head_dim", "qk_head_dim"), default("qk_head_dim")),
    latent("qk_pos_emb_head_dim", 64, ("qk_rope_head_dim", "qk_pos_emb_head_dim"), default("qk_pos_emb_head_dim")),
    latent("v_head_dim", 128, ("v_head_dim",), default("v_head_dim")),
    yarn(
        "rotary_scaling_factor",
        SideSpec(
            (
                *("rotary_scaling_factor", "rope_scaling_factor"),
                *("rope_scaling_type", "max_position_embeddings", "rope_scaling_original_max_position_embeddings"),
            ),
            read=mindspeed.yarn_factor,
        ),
        40.0,
        *("rotary_scaling_factor", "rope_scaling.factor", "scaling_factor.factor", "scaling_factor"),
    ),
    row(
        "original_max_position_embeddings",
        SideSpec(
            ("rope_scaling_original_max_position_embeddings",),
            read=mindspeed.yarn_original,
            beside=("yarn_original_max_position_embeddings",),
        ),
        SideSpec((*read.ORIGINAL, *model("max_position_embeddings")), read=read.mindformers_original),
        when=YARN,
        harmless_if=read.older_does_not_stretch,
    ),
    yarn("mscale", SideSpec(("mscale", "rope_scaling_mscale"), read=mindspeed.yarn_scale("mscale", 1.0)), 0.707),
    yarn(
        "mscale_all_dim",
        SideSpec(("mscale_all_dim", "rope_scaling_mscale_all_dim"), read=mindspeed.yarn_scale("mscale_all_dim", mindspeed.all_dimensions)),
        0.707,
    ),
    *(yarn(name, SideSpec((name, f"yarn_{name}"), usual), usual) for name, usual in (("beta_fast", 32.0), ("beta_slow", 1.0))),
    row(
        Worded("stretch_of_latent_attentions_scores"),
        SideSpec(("mscale_all_dim", "rotary_scaling_factor", "mscale"), read=read.megatron_stretch),
        SideSpec(model("rotary_scaling_factor", "rope_scaling.factor", "mscale", "rope_scaling.mscale"), read=read.mindformers_stretch),
        when="multi_latent_attention",
        way_out=message("way_out.mscale"),
        by_hand=message("by_hand.stretch"),
    ),
    harmless(Worded("fused_projections"), SideSpec(fixed=True), SideSpec(model("qkv_concat"), False)),
    harmless(
        "use_legacy",
        SideSpec(("use_legacy_models", "deprecated_use_mcore_models"), read=lambda c: is_on(c, "use_legacy_models")),
        SideSpec(("use_legacy",), True),
    ),
    *ALONE,
)
