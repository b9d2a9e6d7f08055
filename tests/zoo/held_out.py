"""Cases that ``compare`` had never been run on when they were written: each says what is true, and whom to blame for it.

Their functions stand in ``planted_held_out.py``, or in the files of ``cases.py`` where ``script`` is empty. A number with a hash is the
thread in which a user met the fault: ML is Megatron-LM, MSL MindSpeed-LLM, MF MindFormers. ``state`` is the place to blame for what a
step starts from beyond its weights: moments, random state, buffers, what one micro-batch leaves to the next.
"""

from __future__ import annotations

from zoo.case import MINDFORMERS, Case, Flags, Reference

DROPOUT: Flags = {"--attention-dropout": "0.1", "--hidden-dropout": "0.1"}
FOUR: Flags = {"--train-iters": "4", "--lr-decay-style": "linear", "--min-lr": "0"}
RECOMPUTED: Flags = {"--recompute-granularity": "full", "--recompute-method": "uniform", "--recompute-num-layers": "1"}
SEQUENCE: Flags = {"--tensor-model-parallel-size": "2", "--sequence-parallel": ""}
TP2: Flags = {"--tensor-model-parallel-size": "2"}
CP2: Flags = {"--context-parallel-size": "2"}
PER_TOKEN: Flags = {"--calculate-per-token-loss": ""}
TIED: Flags = {"--untie-embeddings-and-output-weights": None}
SPLIT: Flags = {"--split": "90,5,5"}

REFERENCES = {
    "four": Reference(FOUR),
    "dropped": Reference({**FOUR, **DROPOUT}, fed="four"),
    "dropped_on_two": Reference(DROPOUT, fed="plain", ranks=2),
    "dropped_in_sequence": Reference({**DROPOUT, **SEQUENCE}, fed="plain", ranks=2),
    "per_token": Reference({**PER_TOKEN, "--micro-batch-size": "4"}, fed="plain", batches="masked"),
    "tied": Reference(TIED),
    "split": Reference({**FOUR, **SPLIT}),
    "mindformers": Reference(fed="plain", side=MINDFORMERS),
}
"""All that ``cases.py`` has are of one rank, three steps and no dropout."""


def planted(name: str, title: str, kind: str, stage: str, *culprit: str, **options: object) -> Case:
    """A fault of ``planted_held_out.py``, of its own name unless ``plant`` says another."""
    side = options.get("side", "megatron")
    script = "" if side == MINDFORMERS else "planted_held_out.py"
    return Case(name, title, kind, stage, culprit, **{"plant": name, "script": script, **options})


def beside(reference: str, flags: Flags | None = None) -> dict[str, object]:
    """What a candidate shares with its reference, those of ``cases.py`` have nothing to share, and further arguments."""
    own = REFERENCES.get(reference, Reference())
    return {"reference": reference, "flags": {**own.flags, **(flags or {})}, "ranks": own.ranks}


# fmt: off
# A row begins a line, whatever its length: the formatter would give each argument a line of its own.
STATES = (
    # all of the first micro-batch is exact; from the second on other places are dropped
    planted("random_state_not_put_back", "recomputation leaves its random state to the next micro-batch", "state", "state", "*random*",
        "*micro-batch*", "*dropout*", **beside("dropped", RECOMPUTED)),
    # the forward pass of step 0 is exact; layers are differentiated with other places dropped
    planted("recomputed_with_other_masks", "recomputation drops other places", "state", "reduced gradients", "*recompute*", "*random*",
        "*dropout*", "*.layers.1.*", **beside("dropped", RECOMPUTED)),
    # layer 1's norm takes off a tenth of the last micro-batch's mean: nothing in the first, wrong in all others
    planted("running_mean_kept", "a running mean outlives its micro-batch", "state", "state", "*micro-batch*", "*buffer*", "*.layers.1.*"),
    # the first four keys of layer 0 are those of the last micro-batch: right in the first, wrong in all others
    planted("keys_cached", "keys cached by the last micro-batch", "state", "state", "*micro-batch*", "*.layers.0.self_attn.*"),
    # angles are right when they are first made and 2 % too large whenever they are read from the cache
    planted("rotary_cache_stretched", "rotary angles read from the cache are stretched", "state", "state", "*micro-batch*", "*rotary*",
        "*rope*", "*.q_proj*", "*.k_proj*"),
    # ML#1256: under sequence parallelism both ranks drop the same places of the embedding
    planted("dropout_outside_its_state", "the embedding's dropout is drawn outside the tensor-parallel random state", "state", "state",
        "*random*", "*dropout*", "*rank 1*", **beside("dropped_in_sequence")),
    # ML PR#4609: the gradient of one tensor starts at half of what it was a step ago; step 0 is exact
    planted("gradient_left_over", "a gradient buffer is not cleared between steps", "state", "reduced gradients",
        "*.layers.0.mlp.down_proj*"),
)


def resumed(name: str, title: str, stage: str, *culprit: str, reference: str = "four", **options: object) -> Case:
    """A run resumed after iteration 2."""
    options = {**beside(reference, options.pop("flags", {})), "earlier": {}, **options}
    return planted(name, title, "resumption", stage, *culprit, **options)


RESUMPTION = (
    # weights, batches and losses of step 2 are exact; the update of step 2 is Adam's first
    resumed("moments_not_restored", "resumed with moments of zero", "state", "*moment*", "*exp_avg*", "*optimizer state*"),
    # the same at one learning rate, a single step of it
    resumed("moments_not_restored_at_one_rate", "resumed with moments of zero, at a constant learning rate", "state", "*moment*",
        "*exp_avg*", "*optimizer state*", plant="moments_not_restored", reference="plain"),
    # as above, with the second moment right
    resumed("first_moment_not_restored", "resumed with a first moment of zero", "state", "*exp_avg*", "*first moment*", "*moment*"),
    # ML#761: moments of the two layers' output projections are each other's; all else is exact
    resumed("moments_exchanged", "two tensors resumed with each other's moments", "state", "*o_proj*"),
    # moments are right, and corrected for bias as if they were new
    resumed("update_count_lost", "resumed with Adam's count of updates at zero", "state", "*bias correction*", "*count*",
        "*number of updates*", "optimizer's updates*"),
    # ML PR#6920: one tensor of the resumed model is the initial one
    resumed("weight_not_restored", "resumed with one initial weight", "weights", "*.1.mlp.down_proj*"),
    # miles PR#1627
    resumed("schedule_stepped_twice", "resumed a step ahead in the schedule", "state", "scheduler's steps*"),
    # verl#7953
    resumed("schedule_not_restored", "resumed at the schedule's beginning", "state", "scheduler's steps*"),
    resumed("sampler_anew", "resumed on the first batches", "data", "tokens*", replayed=False),
    # weights, moments, schedule and batches of step 2 are exact; other places are dropped than in the unbroken run
    resumed("random_state_not_restored", "resumed with --no-load-rng", "state", "*random*", "*dropout*", "*rng*", reference="dropped",
        flags={"--no-load-rng": ""}, plant="", script=""),
)

MICRO_BATCHES = (
    # MSL!4024: exact where a micro-batch has one row
    planted("rows_flattened", "attention of layer 1 flattened [s, b] and read as [b, s], micro-batches of two", "micro-batch", "forward",
        "*.layers.1.self_attn.*"),
    planted("rows_flattened_of_four", "the same, micro-batches of four", "micro-batch", "forward", "*.layers.1.self_attn.*",
        plant="rows_flattened", flags={"--micro-batch-size": "4"}),
    # labels of rows are mixed within a micro-batch, after the batch was taken
    planted("labels_flattened", "labels flattened [s, b] and read as [b, s]", "micro-batch", "forward", "*lm_head*", "*loss*", "*labels*"),
    # positions count in fours, as the flattened index does
    planted("positions_over_rows", "positions counted over all rows of a micro-batch of four", "micro-batch", "forward", "*.q_proj*",
        "*.k_proj*", "*rope*", "*rotary*", flags={"--micro-batch-size": "4"}),
    # token losses are exact; a token of a short row weighs more than one of a long row
    planted("rows_averaged", "the mean of rows' means where masks are unequal", "micro-batch", "loss normalisation", "*row*", "*tokens*",
        "*weight of*", reference="masked"),
    # Megatron's own: without a per-token loss a token's weight follows from the size of its micro-batch
    planted("micro_batch_masked", "--micro-batch-size 4 for 2 where masks are unequal", "micro-batch", "loss normalisation",
        "*micro-batch*", plant="", script="", reference="masked", flags={"--micro-batch-size": "4"}),
)

RANKS = (
    # ML#663, #950: weights are recorded right; rows of data-parallel rank 1 are of last step's down_proj from step 1 on
    planted("weight_of_rank_1_late", "data-parallel rank 1 computes with one weight of the step before", "rank", "forward", "*rank 1*",
        "*.layers.1.mlp.*", ranks=2),
    # nearly all of the text are ids of rank 0
    planted("embedding_shard_0_off", "tensor-parallel rank 0 looks up the next row of its shard", "rank", "forward", "*embed_tokens*",
        "*rank 0*", flags=TP2, ranks=2),
    # the text has few ids from 128 on: one token of row 3 of step 1 gets its neighbour's row, and none of step 0
    planted("embedding_shard_off", "tensor-parallel rank 1 looks up the next row of its shard", "rank", "forward", "*embed_tokens*",
        "*rank 1*", flags=TP2, ranks=2),
    # replicas of one norm differ from the first update on
    planted("norm_of_rank_1_doubled", "tensor-parallel rank 1 updates a replicated norm twice as far", "rank", "optimizer",
        "*.layers.1.input_layernorm*", flags=TP2, ranks=2),
    planted("norm_of_data_rank_1_doubled", "data-parallel rank 1 updates a norm twice as far", "rank", "optimizer",
        "*.layers.1.input_layernorm*", plant="norm_of_rank_1_doubled", ranks=2),
    # rank 1's rows are never seen
    planted("rows_of_rank_0_twice", "both data-parallel ranks train on rank 0's rows", "rank", "data", "tokens*", "*rank 1*", ranks=2,
        replayed=False),
    # ML#7452: the loss of every token is log 2 too large
    planted("partition_doubled", "the partition function counted by both tensor-parallel ranks", "rank", "forward", "*lm_head*", "*loss*",
        "*vocabulary*", flags=TP2, ranks=2),
    planted("maximum_not_reduced", "each tensor-parallel rank takes off its own largest logit", "rank", "forward", "*lm_head*", "*loss*",
        "*vocabulary*", flags=TP2, ranks=2),
    # TransformerEngine PR#715: gradients are exact and the global norm is too large
    planted("replicas_counted_twice", "the global norm counts replicated weights on both tensor-parallel ranks", "rank", "self-check",
        "*norm*", flags=TP2, ranks=2),
    # ML#1446: each rank keeps its half of the sequence's gradient
    planted("final_norm_not_reduced", "the final norm's gradient is not summed over a sequence's ranks", "rank", "reduced gradients",
        "model.norm*", flags=SEQUENCE, ranks=2),
    planted("data_parallel_summed", "gradients summed over data-parallel ranks", "rank", "reduced gradients", "*data-parallel*", ranks=2),
    # ML PR#7513, Megatron's own: a rank divides by the tokens of its own part of the sequence
    planted("context_parallel_masked", "context parallelism where masks are unequal: the mean of ranks' means", "rank",
        "loss normalisation", "*context*", "*tokens*", "*weight of*", plant="", script="", reference="masked", flags=CP2, ranks=2),
    # Megatron seeds data-parallel ranks alike unless told otherwise: rank 0 is exact, rank 1 drops other places
    planted("data_ranks_seeded_apart", "--data-parallel-random-init", "rank", "state", "data_parallel_random_init", "*random*", "*rank 1*",
        "*dropout*", plant="", script="", **beside("dropped_on_two", {"--data-parallel-random-init": ""})),
)


def backward(name: str, title: str, *culprit: str, kind: str = "backward", **options: object) -> Case:
    """A fault of the backward pass alone: every loss of step 0 is exact."""
    return planted(name, title, kind, "reduced gradients", *culprit, **options)


BACKWARD = (
    # gate and up of layer 1 get nine tenths of their gradient; down_proj of layer 1 and all above are exact
    backward("mlp_gradient_scaled", "gradients through layer 1's activation a tenth too small", "*.layers.1.mlp.*"),
    # o_proj of layer 0 and all above are exact; half of its heads get no gradient
    backward("heads_detached", "half of layer 0's heads are not differentiated", "*.layers.0.self_attn.*"),
    # all of layer 1 is exact; all below is rounded
    backward("residual_gradient_in_bfloat16", "gradients between the layers rounded to bfloat16", "*.layers.0.mlp.*", kind="precision"),
    # TransformerEngine#1616 in kind: lm_head and the final norm's weight are exact, all below is wrong
    backward("final_norm_without_mean", "the final norm's backward leaves out the mean", "model.norm*", "*.layers.1.mlp.down_proj*"),
    # v_proj of layer 1 gets nothing; o_proj, q_proj and k_proj of layer 1 are exact
    backward("values_detached", "nothing flows back through layer 1's values", "*.layers.1.self_attn.v_proj*"),
    # o_proj and v_proj of layer 1 are exact
    backward("softmax_without_sum", "layer 1's softmax is differentiated elementwise", "*.layers.1.self_attn.q_proj*",
        "*.layers.1.self_attn.k_proj*"),
    # all but the embedding is exact
    backward("embedding_gradient_once", "a token that occurs twice counts once in the embedding's gradient", "*embed_tokens*"),
)

TWO = (  # the cause that shows first must be named first
    Case("rope_and_weight_decay", "--rotary-base 10100 and --weight-decay 0", "two", "forward", ("rope_theta",),
        flags={"--rotary-base": "10100", "--weight-decay": "0"}, among=1),
    Case("eps_and_cosine", "--norm-epsilon 1e-6 and --lr-decay-style cosine", "two", "forward", ("rms_norm_eps",),
        flags={"--norm-epsilon": "1e-6", "--lr-decay-style": "cosine", "--min-lr": "0"}, among=1),
    Case("scale_and_beta2", "scores of layer 1 a tenth too large, and --adam-beta2 0.999", "two", "forward", ("*.layers.1.self_attn.*",),
        plant="attention_scale_of_one_layer", flags={"--adam-beta2": "0.999"}, among=1),
    Case("eps_and_second_step", "--norm-epsilon 1e-6, and step 1 trained on the batch of step 2", "two", "forward", ("rms_norm_eps",),
        flags={"--norm-epsilon": "1e-6"}, batches="second_step", among=1),
    planted("mlp_gradient_and_adam_eps", "gradients through layer 1's activation a tenth too small, and --adam-eps 1e-5", "two",
        "reduced gradients", "*.layers.1.mlp.*", plant="mlp_gradient_scaled", flags={"--adam-eps": "1e-5"}, among=1),
)

REPORTED = (
    # rates of 0, 0 and 5e-4 for 0, 5e-4 and 1e-3
    planted("schedule_lags", "the warming schedule lags a step", "schedule", "state", "scheduler's steps*", reference="warming",
        flags={"--lr-warmup-iters": "2"}),
    planted("only_last_micro_batch", "only the last micro-batch reaches the optimizer", "reported", "reduced gradients", "*micro-batch*"),
    # AReaL PR#1273, MSL!4432
    planted("divided_again", "gradients divided by the number of micro-batches again", "reported", "reduced gradients", "*micro-batch*"),
    # ML#5974: gradients and settings are equal
    planted("updates_smaller", "updates two thirds of what they should be", "reported", "optimizer", "*update*", "*learning rate*"),
    # MF@32576106a
    planted("rope_not_assigned", "turned queries and keys are thrown away", "reported", "forward", "*.q_proj*", "*.k_proj*",
        "*.self_attn.*"),
)

PAIR = (
    planted("mf_rope_not_assigned", "the same on MindFormers", "reported", "forward", "*.q_proj*", "*.k_proj*", "*.self_attn.*",
        side=MINDFORMERS, plant="rope_not_assigned"),
    planted("mf_mlp_gradient_scaled", "gradients through layer 1's activation a tenth too small, on MindFormers", "backward",
        "reduced gradients", "*.layers.1.mlp.*", side=MINDFORMERS, plant="mlp_gradient_scaled"),
    Case("mf_eps_and_decay", "rms_norm_eps 1e-6 and weight_decay 0.01", "two", "forward", ("rms_norm_eps",), MINDFORMERS,
        change={"model.model_config.rms_norm_eps": 1e-6, "optimizer.weight_decay": 0.01}, among=1),
    Case("mf_theta_of_its_own", "theta 10100, MindFormers for MindFormers", "rope", "forward", ("rope_theta",), MINDFORMERS,
        change={"model.model_config.theta": 10100.0}, reference="mindformers"),
)

FAULTS = STATES + RESUMPTION + MICRO_BATCHES + RANKS + BACKWARD + TWO + REPORTED + PAIR


def honest(name: str, title: str, **options: object) -> Case:
    """A pair that differs in nothing that matters."""
    return Case(name, title, "honest", **options)


HONEST = (
    honest("resumed", "resumed after two of four steps, on its own data", earlier={}, replayed=False, **beside("four")),
    honest("resumed_at_one_rate", "resumed after two of three steps, at a constant learning rate", earlier={}),
    honest("resumed_replayed", "resumed after two of four steps, on the reference's batches", earlier={}, **beside("four")),
    honest("resumed_dropout", "the same with dropout", earlier={}, **beside("dropped")),
    honest("dropout_again", "dropout of equal seeds", **beside("dropped")),
    honest("dropout_recomputed", "dropout with full recomputation", **beside("dropped", RECOMPUTED)),
    honest("dropout_on_two_again", "dropout of equal seeds on two data-parallel ranks", **beside("dropped_on_two")),
    honest("dropout_in_sequence_again", "dropout of equal seeds under sequence parallelism", **beside("dropped_in_sequence")),
    honest("micro_batch_of_four", "one micro-batch of four rows", flags={"--micro-batch-size": "4"}),
    honest("rows_flattened_of_one", "attention of layer 1 flattened [s, b] and read as [b, s], micro-batches of one",
        plant="rows_flattened", script="planted_held_out.py", flags={"--micro-batch-size": "1"}),
    honest("cp2", "context parallelism for one rank", flags=CP2, ranks=2),
    honest("tp2_in_sequence", "TP2 with sequence parallelism", flags=SEQUENCE, ranks=2),
    honest("dp2_overlapped", "two data-parallel ranks, reduction and gathering overlapped",
        flags={"--use-distributed-optimizer": "", "--overlap-grad-reduce": "", "--overlap-param-gather": ""}, ranks=2),
    honest("per_token_of_one", "unequal masks, per-token loss, micro-batches of one for four",
        **beside("per_token", {"--micro-batch-size": "1"})),
    honest("per_token_cp2", "unequal masks, per-token loss, context parallelism",
        **{**beside("per_token", {**CP2, "--micro-batch-size": "2"}), "ranks": 2}),
    honest("tied_pair", "MindFormers for Megatron with tied embeddings", side=MINDFORMERS, reference="tied",
        change={"model.model_config.tie_word_embeddings": True}),
    honest("mf_again", "MindFormers for MindFormers", side=MINDFORMERS, reference="mindformers"),
    honest("logged_otherwise", "--log-interval 5 and more in the log",
        flags={"--log-interval": "5", "--log-params-norm": "", "--log-num-zeros-in-grad": ""}),
    honest("evaluated", "evaluation after every second step", replayed=False,
        **beside("split", {"--eval-iters": "1", "--eval-interval": "2"})),
    honest("final_norm_by_hand", "the final norm's backward written out", plant="final_norm_by_hand", script="planted_held_out.py"),
)
