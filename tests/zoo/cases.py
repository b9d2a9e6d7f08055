"""The zoo as data: what is wrong in a run, how it is planted, and what ``compare`` must say of it.

``flags`` are arguments of Megatron, ``change`` dotted keys of MindFormers' YAML, ``plant`` a plant of ``planted_megatron.py`` or
``planted_mindformers.py``; ``weights`` and ``batches`` alter, by a function of ``altered.py``, what the run is fed. ``stage`` is the
place to blame; ``culprit`` are patterns of canonical names, settings or words, one of which must be among the first three of what is
named. A case without a stage is honest: nothing may be flagged. Cases that were written before ``compare`` had ever been run on them
stand in ``held_out.py``, those of families other than Llama in ``of_families.py``.
"""

from __future__ import annotations

from zoo import held_out, of_families
from zoo.case import MINDFORMERS, Case, Reference

QK = ("*.q_proj.weight", "*.k_proj.weight", "*.self_attn.*")
ATTENTION = ("*.self_attn.*",)
MLP = ("*.mlp.*",)


def planted(name: str, title: str, kind: str, stage: str, *culprit: str, **options: object) -> Case:
    """A fault of ``planted_megatron.py``."""
    return Case(name, title, kind, stage, culprit, plant=name, **options)


# fmt: off
# A row begins a line, whatever its length: the formatter would give each argument a line of its own.
CONFIGURATION = (
    Case("eps_flag", "--norm-epsilon 1e-6 for 1e-5", "configuration", "forward", ("rms_norm_eps",), flags={"--norm-epsilon": "1e-6"}),
    Case("rope_base_flag", "--rotary-base 500000 for 10000", "configuration", "forward", ("rope_theta",),
        flags={"--rotary-base": "500000"}),
    Case("rope_base_1_percent", "--rotary-base 10100", "configuration", "forward", ("rope_theta",), flags={"--rotary-base": "10100"}),
    Case("no_seed_no_weights", "other initial weights", "weights", "weights", ("*",), weights="none", flags={"--init-method-std": "0.09"}),
    Case("lr", "--lr 2e-3", "optimizer", "configuration", ("learning_rate*", "learning rate*"), flags={"--lr": "2e-3", "--min-lr": "2e-3"}),
    Case("weight_decay", "--weight-decay 0", "optimizer", "configuration", ("weight_decay*",), flags={"--weight-decay": "0"}),
    Case("beta2", "--adam-beta2 0.999", "optimizer", "configuration", ("betas*",), flags={"--adam-beta2": "0.999"}),
    Case("adam_eps", "--adam-eps 1e-5", "optimizer", "configuration", ("eps*",), flags={"--adam-eps": "1e-5"}),
    Case("clip", "--clip-grad 0.5", "clipping", "configuration", ("clip_grad",), flags={"--clip-grad": "0.5"}),
    Case("warm_up", "--lr-warmup-iters 2", "schedule", "configuration", ("learning rate*",), flags={"--lr-warmup-iters": "2"}),
    Case("cosine", "--lr-decay-style cosine", "schedule", "configuration", ("learning rate*",),
        flags={"--lr-decay-style": "cosine", "--min-lr": "0"}),
)

DATA = (
    Case("labels_rolled", "labels one position off in the data", "data", "data", ("labels*",), batches="labels_rolled"),
    Case("one_token", "one token of one row is another", "data", "data", ("tokens*",), batches="one_token"),
    Case("mask_shorter", "the last 8 positions of a row do not count", "data", "data", ("loss_mask*",), batches="mask_shorter"),
    Case("rows_swapped", "rows of a step in another order", "data", "data", ("tokens*",), batches="rows_swapped"),
    Case("second_step", "step 1 is trained on the batch of step 2", "data", "data", ("tokens*",), batches="second_step"),
    planted("labels_shifted", "labels one position off inside the model", "loss", "forward", "*lm_head*", "*loss*"),
)

WEIGHTS = tuple(
    Case(name, title, "conversion", "weights", culprit, weights=name)
    for name, title, culprit in (
        ("keys_as_values", "keys and values exchanged in one layer", ("*.0.self_attn.k_proj*", "*.0.self_attn.v_proj*")),
        ("queries_transposed", "one query projection transposed", ("*.1.self_attn.q_proj*",)),
        ("queries_interleaved", "rotary halves interleaved in all queries and keys", QK),
        ("gate_as_up", "gate and up exchanged in one layer", ("*.1.mlp.gate_proj*", "*.1.mlp.up_proj*")),
        ("values_negated", "the sign of one value projection", ("*.0.self_attn.v_proj*",)),
        ("norm_not_loaded", "one norm's weight left at 1", ("*.1.input_layernorm*",)),
        ("embedding_rolled", "embedding rows one off", ("*embed_tokens*",)),
        ("head_of_embedding", "the output layer given the embedding", ("lm_head*",)),
        ("layers_exchanged", "both layers exchanged", ("*.layers.*",)),
        ("through_bfloat16", "converted by way of bfloat16", ("*",)),
    )
)

# what a checkpoint without the optimizer's state leaves behind: the first part trains at a rate of 0
LOADED = (
    Case("main_parameters_stale", "main parameters are not those of the weights that were loaded", "main parameters", "weights",
        ("*main parameters*",), plant="main_parameters_stale",
        flags={"--finetune": "", "--init-method-std": "0.09"}, earlier={"--lr": "0", "--min-lr": "0"}),
)

MODEL = (
    planted("ids_off_by_one", "the embedding looks up the next id", "embedding", "forward", "*embed_tokens*"),
    planted("embedding_scaled", "embeddings times the root of the hidden size", "embedding", "forward", "*embed_tokens*"),
    planted("embedding_in_bfloat16", "embeddings rounded to bfloat16", "precision", "forward", "*embed_tokens*"),
    planted("attention_scale", "scores divided by the size of a head", "attention", "forward", *QK),
    planted("scale_of_first_step", "scores of layer 1 a tenth too large after the first step", "state", "state",
        "*.layers.1.self_attn.*"),
    planted("attention_scale_of_one_layer", "scores of layer 1 a tenth too large", "attention", "forward", "*.layers.1.self_attn.*"),
    planted("no_causal_mask", "every token attends to all", "attention", "forward", *ATTENTION),
    planted("mask_off_by_one", "every token attends to the next too", "attention", "forward", *ATTENTION),
    planted("sliding_window", "tokens attend to the last 32", "attention", "forward", *ATTENTION),
    planted("query_groups_tiled", "heads share keys in turns", "attention", "forward", *ATTENTION),
    planted("head_dropped", "a head of layer 0 puts out zeros", "attention", "forward", "*.layers.0.self_attn.*"),
    planted("values_of_keys", "attention of layer 1 sums up keys", "attention", "forward", "*.layers.1.self_attn.*"),
    planted("rope_interleaved", "neighbours are turned instead of halves", "rope", "forward", *QK),
    planted("rope_reversed", "turned the other way", "rope", "forward", *QK),
    planted("rope_missing_on_keys", "keys are not turned", "rope", "forward", *QK),
    planted("rope_in_bfloat16", "angles rounded to bfloat16", "rope", "forward", *QK),
    planted("rope_position_doubled", "positions count in twos", "rope", "forward", *QK),
    planted("norm_eps_outside", "eps added to the root", "norm", "forward", "*norm*", "*embed_tokens*"),
    planted("norm_centred", "the mean is taken off before attention", "norm", "forward", "*input_layernorm*", *QK),
    planted("norm_final_skipped", "the last norm does not normalise", "norm", "forward", "*model.norm*", "lm_head*"),
    planted("norm_in_bfloat16", "the norm before layer 1's MLP in bfloat16", "precision", "forward", "*.1.post_attention_layernorm*",
        "*.1.mlp.*"),
    planted("norm_weight_plus_one", "norm weights centred at zero on one side", "norm", "forward", "*input_layernorm*"),
    planted("gelu", "GELU for SiLU", "activation", "forward", *MLP),
    planted("silu_steeper", "quick GELU for SiLU", "activation", "forward", *MLP),
    planted("gate_and_up_swapped", "the activation is of the wrong half", "mlp", "forward", *MLP),
    planted("residual_doubled", "layer 1 adds its MLP twice", "mlp", "forward", "*.layers.1.mlp.*", "model.layers.1"),
    planted("mlp_in_bfloat16", "layer 0's second projection in bfloat16", "precision", "forward", "*.layers.0.mlp.*"),
    planted("mlp_clamped", "activations of layer 0 cut at 0.5", "mlp", "forward", "*.layers.0.mlp.*"),
    planted("layers_swapped", "layer 1 runs before layer 0", "mlp", "forward", "*.layers.*"),
    planted("logits_scaled", "logits a hundredth too small", "loss", "forward", "lm_head*", "*loss*", "*model.norm*"),
    planted("logits_capped", "logits capped at 30", "loss", "forward", "lm_head*", "*loss*", "*model.norm*"),
    planted("logits_in_bfloat16", "logits rounded to bfloat16", "precision", "forward", "lm_head*", "*loss*", "*model.norm*"),
    planted("z_loss", "a z-loss on one side", "loss", "forward", "lm_head*", "*loss*"),
    planted("labels_smoothed", "labels smoothed by 0.01", "loss", "forward", "lm_head*", "*loss*"),
)

LOSS = (
    planted("loss_over_fewer_tokens", "divided by one token less", "loss", "loss normalisation", "*tokens*", "*factor*"),
    planted("loss_over_more_tokens", "divided by one token more", "loss", "loss normalisation", "*candidate*one more*"),
    planted("mask_ignored", "the mask is not applied to the loss", "loss", "data", "loss_mask*", "*valid tokens*", reference="masked"),
)

GRADIENTS = (
    planted("micro_batches_summed", "micro-batches summed", "reduction", "reduced gradients", "*micro-batch*"),
    planted("norm_gradients_doubled", "gradients of norms added once too often", "reduction", "reduced gradients", "*norm*"),
    planted("gradient_lost", "one projection gets no gradient", "reduction", "reduced gradients", "*.1.self_attn.o_proj*"),
    planted("gradient_in_bfloat16", "one gradient reduced in bfloat16", "precision", "reduced gradients", "lm_head*"),
    planted("keys_detached", "nothing flows back through keys", "attention", "reduced gradients", "*.k_proj*"),
    planted("gradient_not_reduced", "one layer's gradients are not reduced over data-parallel ranks", "reduction", "reduced gradients",
        "*not reduced over*data-parallel*", ranks=2),
    planted("clipped_once_more", "gradients are clipped before their norm is taken", "clipping", "reduced gradients", "*clipped once*"),
    planted("last_micro_batch_lost", "a micro-batch is not differentiated", "reduction", "reduced gradients", "*micro-batch*", "*"),
)

OPTIMIZER = (
    planted("never_clipped", "nothing is clipped", "clipping", "clipping", "*clip*"),
    planted("norm_of_each_rank", "each tensor-parallel rank clips by its own norm", "clipping", "clipping", "*norm of each group*",
        flags={"--tensor-model-parallel-size": "2"}, ranks=2),
    planted("eps_in_root", "Adam's eps inside the root", "optimizer", "optimizer", "*formula*"),
    planted("clipped_by_value", "each element clipped", "clipping", "optimizer", "*updates*"),
    planted("norm_of_one_tensor", "the global norm leaves out the embedding", "clipping", "self-check", "*norm*"),
    planted("bias_correction_off", "no bias correction", "optimizer", "optimizer", "*bias correction*"),
    planted("decay_in_gradient", "weight decay goes into the gradient", "optimizer", "optimizer", "*weight*decay*"),
    planted("tensor_frozen", "one tensor is never updated", "optimizer", "optimizer", "*.down_proj*"),
    planted("rate_doubled_for_embedding", "the embedding learns twice as fast", "optimizer", "optimizer", "*embed_tokens*", "*lm_head*"),
    planted("schedule_late", "the schedule lags a step", "schedule", "configuration", "learning rate*", reference="warming"),
)

PAIR = (
    Case("mf_eps", "rms_norm_eps 1e-6", "configuration", "forward", ("rms_norm_eps",), MINDFORMERS,
        change={"model.model_config.rms_norm_eps": 1e-6}),
    Case("mf_theta", "theta 10100", "rope", "forward", ("rope_theta",), MINDFORMERS, change={"model.model_config.theta": 10100.0}),
    Case("mf_weight_decay", "weight_decay 0.01", "optimizer", "configuration", ("weight_decay*",), MINDFORMERS,
        change={"optimizer.weight_decay": 0.01}),
    Case("mf_betas", "betas 0.9, 0.99", "optimizer", "configuration", ("betas*",), MINDFORMERS, change={"optimizer.betas": [0.9, 0.99]}),
    Case("mf_unclipped", "use_clip_grad False", "clipping", "configuration", ("clip_grad*",), MINDFORMERS,
        change={"runner_wrapper.use_clip_grad": False}),
    Case("mf_softmax_in_float16", "softmax_compute_type float16", "precision", "forward", (*ATTENTION, "*softmax*"), MINDFORMERS,
        change={"model.model_config.softmax_compute_type": "float16"}),
    Case("mf_norm_in_float16", "layernorm_compute_type float16", "precision", "forward", ("*norm*",), MINDFORMERS,
        change={"model.model_config.layernorm_compute_type": "float16"}),
    Case("mf_rope_in_float16", "rotary_dtype float16", "precision", "forward", (*QK, "*rotary*"), MINDFORMERS,
        change={"model.model_config.rotary_dtype": "float16"}),
    Case("mf_keys_as_values", "keys and values exchanged by the name table", "conversion", "forward", ("*k_proj*", "*v_proj*"), MINDFORMERS,
        plant="keys_as_values"),
    Case("mf_labels_shifted", "labels shifted inside the model", "loss", "forward", ("lm_head*", "*loss*"), MINDFORMERS,
        plant="labels_shifted"),
    Case("mf_norms_decayed", "norm weights are decayed too", "optimizer", "configuration", ("weight_decay*",), MINDFORMERS,
        plant="norms_decayed"),
)

ALIKE = (
    Case("again", "the same run again", "honest"),
    Case("pair", "MindFormers for Megatron", "honest", side=MINDFORMERS),
    Case("tp2", "TP2 for one rank", "honest", flags={"--tensor-model-parallel-size": "2"}, ranks=2),
    Case("dp2_distributed", "two data-parallel ranks with the distributed optimizer", "honest", flags={"--use-distributed-optimizer": ""},
        ranks=2),
    Case("pp2", "two pipeline stages", "honest", flags={"--pipeline-model-parallel-size": "2"}, ranks=2),
    Case("micro_batches", "four micro-batches of one row", "honest", flags={"--micro-batch-size": "1"}),
    *(
        Case(name, title, "honest", plant=name)
        for name, title in (
            ("sums_in_another_order", "matrix products summed in halves"),
            ("fused_attention", "attention by a fused kernel"),
            ("rope_shifted", "all positions one on"),
            ("recomputed", "the MLP computed again in the backward pass"),
            ("norm_by_hand", "RMSNorm written out"),
            ("loss_in_float64", "the loss in float64"),
            ("norm_in_float64", "the global norm in float64"),
        )
    ),
)

# fmt: on
REFERENCES = {
    "plain": Reference(start=""),
    "masked": Reference(fed="plain", batches="masked"),
    "warming": Reference({"--lr-warmup-iters": "2"}),
}
REFERENCES |= held_out.REFERENCES | of_families.REFERENCES
FAULTS = CONFIGURATION + DATA + WEIGHTS + LOADED + MODEL + LOSS + GRADIENTS + OPTIMIZER + PAIR + held_out.FAULTS + of_families.FAULTS
HONEST = ALIKE + held_out.HONEST + of_families.HONEST
CASES = {case.name: case for case in FAULTS + HONEST}
