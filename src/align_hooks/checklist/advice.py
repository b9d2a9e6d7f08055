"""What the guide recommends where precision is compared, and what it sets for an occasion, by the id of the row."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from align_hooks.checklist.canonical_values import Drops
from align_hooks.checklist.lookup import are_numbers
from align_hooks.checklist.resolvers.initialisation import weights_loaded
from align_hooks.checklist.row import Occasion, Recommendation
from align_hooks.messages import message

fault, acceptance = partial(Recommendation, setup=Occasion.FINDING_A_FAULT), partial(Recommendation, setup=Occasion.ACCEPTANCE)
"""Both sides are compared with these values, not with each other."""
OFF = Recommendation(message("advice.off_while_aligning"), lambda on: not on)

ADVICE: Mapping[str, Recommendation] = {
    "rows_of_the_embedding": Recommendation(message("advice.multiple_of_16"), lambda size: size % 16 == 0),
    "attention_dropout": Recommendation(message("advice.no_random_mask"), lambda rate: rate == 0),
    "hidden_dropout": Recommendation(message("advice.no_recompute"), lambda rate: rate == 0),
    "aux_loss_factor": Recommendation(message("advice.no_auxiliary_loss"), lambda factor: factor == 0),
    "capacity_factor": Recommendation(message("advice.capacity"), lambda factor: factor is None or (are_numbers(factor) and factor >= 1)),
    "tokens_that_are_dropped": Recommendation(message("advice.drop_by_position"), lambda policy: policy not in ("probs", Drops.BY_CHOICE)),
    "router_dense_type": Recommendation(message("advice.router_float32"), lambda kind: kind in ("float32", "float64")),
    "routing_policy": Recommendation(message("advice.topk_router_v2"), lambda policy: policy in (None, "TopkRouterV2")),
    "type_of_the_main_weights": Recommendation(message("advice.weights_float32"), lambda kind: kind == "float32"),
    "enable_parallel_optimizer": Recommendation(message("advice.parallel_optimizer_off"), lambda on: not on),
    "micro_batch_interleave_num": Recommendation(message("advice.no_interleaving"), lambda copies: copies == 1),
    "beta1": Recommendation("0.9", lambda value: abs(value - 0.9) < 1e-6),
    "beta2": Recommendation("0.95", lambda value: abs(value - 0.95) < 1e-6),
    "eps": Recommendation("1e-8", lambda eps: abs(eps - 1e-8) < 1e-14),
    "clip_grad": Recommendation("1.0", lambda norm: norm == 1.0),
    "fused_cross_entropy": OFF,
    "overlap_of_the_gradients_reduction": OFF,
    "mindspore_beside_mindformers": Recommendation(message("advice.released_with"), lambda pair: pair.fits),
    "deterministic_algorithms": Recommendation(message("advice.deterministic"), lambda on: on in (True, "ON")),
    "MS_ASCEND_CHECK_OVERFLOW_MODE": Recommendation(message("advice.infnan"), lambda mode: mode in (None, "INFNAN_MODE")),
    "enable_graph_kernel": Recommendation(message("advice.off"), lambda on: not on),
    "jit_level": Recommendation(message("advice.jit_level"), lambda level: level in (None, "O0")),
    "HCCL_DETERMINISTIC": Recommendation(message("advice.true_on_npus"), lambda on: on is None or str(on).lower() in ("true", "strict")),
    "ASCEND_LAUNCH_BLOCKING": Recommendation(message("advice.one_on_npus"), lambda on: on is None or str(on) == "1"),
    "NCCL_ALGO": Recommendation(message("advice.ring"), lambda value: value in (None, "Ring", "^NVLS")),
    "CUBLAS_WORKSPACE_CONFIG": Recommendation(":4096:8", lambda value: value in (None, ":4096:8", ":16:8")),
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": Recommendation("0", lambda value: value in (None, "0")),
    "load": Recommendation(message("advice.same_weights"), bool, kept_by=weights_loaded),
    "layers_in_a_small_model": fault("2", lambda layers: are_numbers(layers) and layers <= 2),
    "constant_learning_rate": fault("constant", lambda style: style == "constant"),
    "no_warm_up": fault(message("advice.no_steps"), lambda steps: not steps),
    "adam_eps": fault("1e-8", lambda eps: are_numbers(eps) and abs(eps - 1e-8) < 1e-14),
    "no_dropout": fault("0", lambda rate: rate == 0),
    "one_parallel_feature_at_a_time": fault(message("advice.not_split"), lambda ways: not ways.on),
    "bfloat16": acceptance("bfloat16", lambda kind: kind == "bfloat16"),
    "data_parallelism_alone": acceptance(message("advice.data_parallel_only"), lambda ways: not ways.on),
    "eight_cards_of_one_machine": acceptance(message("advice.eight_cards"), lambda ranks: ranks == 8),
    "a_thousand_steps_and_more": acceptance(message("advice.a_thousand_steps"), lambda steps: are_numbers(steps) and steps >= 1000),
    "data_set": acceptance(message("advice.data_sets"), lambda path: any(name in str(path).lower() for name in ("wiki", "alpaca"))),
}
