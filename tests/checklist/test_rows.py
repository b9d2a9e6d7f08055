"""Every row of the CheckList: what agrees is the same however it is written, what does not is seen, and no row of a guide is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from align_hooks.checklist.judge import Checked, Outcome, judge
from align_hooks.checklist.row import Effect, Row
from align_hooks.checklist.side_value import read_row
from align_hooks.checklist.tables import GROUPS, ROW, ROWS
from align_hooks.checklist.tables.structure import ALONE
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.values import Configuration
from align_hooks.messages import Side
from checklist.exercises import BASES, EXERCISES, EXPERTS, LATENT, NEW, OLD, Exercise, flags, megatron, mindformers
from checklist.shipped import rows

BY_NAME = {row.id: row for row in ROWS}
FROM_RECORDS = rows("""
    framework mindspore_beside_mindformers CANN difference_from_the_open_source_model MS_ASCEND_CHECK_OVERFLOW_MODE HCCL_DETERMINISTIC
    ASCEND_LAUNCH_BLOCKING NCCL_ALGO CUBLAS_WORKSPACE_CONFIG NVTE_ALLOW_NONDETERMINISTIC_ALGO types_that_the_built_layers_compute_in
""")
"""Rows that no configuration says: a record does, or a person."""
LOADER = "train_dataset.data_loader.config"
SETUPS = {row.id for row in ROWS if row.advice is not None and row.advice.setup}


def row_of(name: str, one: Configuration, other: Configuration) -> Checked:
    return next(checked for checked in judge(one, other) if checked.row.id == name)


def both(exercise: Exercise, keys: dict[str, Any]) -> tuple[Configuration, Configuration]:
    """Both sides, the flags those of the keys where these bring their own."""
    others = {key: value for key, value in keys.items() if key != "FLAGS"}
    return megatron(exercise.style, flags(keys["FLAGS"]) if "FLAGS" in keys else exercise.flags), mindformers(exercise.style, others)


@pytest.mark.parametrize("style", [OLD, NEW, EXPERTS, LATENT])
def test_the_bases_agree_in_everything_that_changes_the_result(style: str) -> None:
    checked = judge(megatron(style, {}), mindformers(style, {}))
    assert [(one.row.id, one.reference.shown, one.candidate.shown) for one in checked if one.outcome is Outcome.DIFFERENT] == []
    assert [one.row.id for one in checked if one.outcome is Outcome.NOT_TOLD and one.row.effect is Effect.RESULT] == []


@pytest.mark.parametrize("exercise", EXERCISES, ids=[f"{at}-{one.id}" for at, one in enumerate(EXERCISES)])
def test_row(exercise: Exercise) -> None:
    row = BY_NAME[exercise.row]
    agreeing = row_of(exercise.row, *both(exercise, exercise.same))
    if row.alone:
        assert agreeing.outcome in (Outcome.ALONE, Outcome.BY_HAND, Outcome.UNUSED)
        return
    if exercise.row in FROM_RECORDS or (not exercise.same and not exercise.other and not exercise.flags):
        assert agreeing.outcome in (Outcome.SAME, Outcome.BY_HAND, Outcome.UNUSED)
        return
    assert agreeing.outcome in (Outcome.SAME, Outcome.BY_HAND), (agreeing.reference, agreeing.candidate, agreeing.why)
    one, other = both(exercise, exercise.other)
    apart = row_of(exercise.row, one, other)
    expected = {
        Effect.RESULT: (Outcome.DIFFERENT, Outcome.NOT_TOLD)
        if row.by_hand is None and row.unsure is None
        else (Outcome.DIFFERENT, Outcome.BY_HAND),
        Effect.ROUNDING: (Outcome.ROUNDING, Outcome.BY_HAND),
        Effect.NOTHING: (Outcome.HARMLESS, Outcome.BY_HAND),
    }[row.effect]
    harmless = (Outcome.HARMLESS,) if row.unless is not None else ()
    assert apart.outcome in (*expected, *harmless), (apart.outcome, apart.reference, apart.candidate)
    if exercise.other != exercise.same and apart.outcome not in (Outcome.BY_HAND, Outcome.NOT_TOLD):
        assert apart.reference.shown != apart.candidate.shown


@pytest.mark.parametrize("row", ALONE, ids=[row.id for row in ALONE])
def test_what_only_megatron_can_be_told_is_a_difference_where_it_is(row: Row) -> None:
    told = {row.id.replace("_", "-"): "" if row.megatron.default is False else 3}
    assert row_of(row.id, megatron(NEW, {}), mindformers(NEW, {})).outcome is Outcome.SAME
    assert row_of(row.id, megatron(NEW, told), mindformers(NEW, {})).outcome is Outcome.DIFFERENT


KEPT: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "layers_in_a_small_model": ({}, {}, {"num-layers": 8}, {"m.num_layers": 8}),
    "constant_learning_rate": ({}, {}, {"lr-decay-style": "cosine"}, {"lr_schedule.type": "CosineWithWarmUpLR"}),
    "no_warm_up": ({}, {}, {"lr-warmup-iters": 5}, {"lr_schedule.warmup_ratio": 0.5}),
    "adam_eps": ({}, {}, {"adam-eps": "1e-6"}, {"optimizer.eps": 1e-6}),
    "no_dropout": ({}, {}, {"hidden-dropout": 0.1}, {"m.hidden_dropout": 0.1}),
    "one_parallel_feature_at_a_time": ({}, {}, {"sequence-parallel": ""}, {"parallel_config.pipeline_stage": 2}),
    "bfloat16": ({}, {}, {"bf16": None}, {"m.compute_dtype": "float16"}),
    "data_parallelism_alone": ({}, {}, {"use-distributed-optimizer": ""}, {"parallel.enable_parallel_optimizer": True}),
    "eight_cards_of_one_machine": (
        {"world-size": 8, "tensor-model-parallel-size": 2},
        {"use_parallel": True, "parallel_config.data_parallel": 4, "parallel_config.model_parallel": 2},
        {"world-size": 4},
        {"use_parallel": False},
    ),
    "a_thousand_steps_and_more": ({"train-iters": 5000}, {"train_dataset.data_loader.sizes": [5000, 0, 0]}, {}, {}),
    "data_set": ({}, {}, {"data-path": "/data/mine"}, {f"{LOADER}.data_path": ["1", "/data/mine"]}),
}
"""Rows of the guide's set-ups: flags and keys that keep to them, and that do not."""


@pytest.mark.parametrize("name", KEPT)
def test_set_ups(name: str) -> None:
    flags, keys, other_flags, other_keys = KEPT[name]
    assert row_of(name, megatron(OLD, flags), mindformers(OLD, keys)).advised == ()
    assert row_of(name, megatron(OLD, other_flags), mindformers(OLD, keys)).advised == (Side.REFERENCE,)
    assert row_of(name, megatron(OLD, flags), mindformers(OLD, other_keys)).advised == (Side.CANDIDATE,)


def test_every_row_of_a_set_up_is_tried() -> None:
    assert KEPT.keys() == SETUPS


def test_every_row_is_exercised() -> None:
    assert {row.id for row in ROWS} - {one.row for one in EXERCISES} - {row.id for row in ALONE} - FROM_RECORDS - SETUPS == set()


def test_rows_have_names_of_their_own_and_sources() -> None:
    assert len(BY_NAME) == len(ROWS)
    assert [row.id for row in ROWS if not row.sources] == []
    assert [row.id for row in ROWS if row.when and row.when.partition("=")[0] not in BY_NAME] == []
    assert len(GROUPS) == 10


CHECKLIST = {
    "structure": """num_layers num_heads hidden_size intermediate_size n_kv_heads Attention normalization Regularization+function
        rms_norm_eps normal_eps dropout activation+function Fusion+computation position+code vocab_size""",
    "experts": """expert_num shared_expert_num num_experts_chosen capacity_factor aux_loss_factor routing_policy enable_sdrop
        router_dense_type use_fused_ops_topkrouter use_shared_expert_gating""",
    "optimizer": "adam+optimizer eps beta1 beta2 weight_decay lr warmup_ratio lr_warmup_fraction clip_grad global_batch_size",
    "weights": "param_init_type init-method-std",
    "precision": """compute_dtype layernorm_compute_type softmax_compute_type Calculation+of+weights rotary_dtype bias+add residual+add loss
        Operator+High+Precision+Mode""",
    "parallel": "data_parallel model_parallel pipeline_stage use_seq_parallel enable_parallel_optimizer micro_batch_interleave_num",
    "other": """Data+Check Special+Words+Check Overflow+Detection Graph+Operator+Fusion Training+Inference+Template+Consistency
        Version+Check Differences+with+Open+Source""",
}
"""Every row of every CheckList table, in the English of the guide's four versions. ``input_ids check`` is a look at recorded batches."""
SETUP = {
    "stage 1": "num_layers learning_rate_type warmup_steps adam_eps dropout parallel seed HCCL_DETERMINISTIC ASCEND_LAUNCH_BLOCKING",
    "acceptance": "data+set precision parallel cluster determinism steps",
}
COMPARISON = {
    "model": """use-legacy-model,+use-mcore-model num-layers encoder-num-layers decoder-num-layers hidden-size ffn-hidden-size
        num-attention-heads kv-channels group-query-attention num-query-groups max-position-embeddings position-embedding-type
        use-rotary-position-embeddings rotary-base rotary-percent rotary-interleaved rotary-seq-len-interpolation-factor use-rope-scaling
        rope-scaling-factor no-position-embedding disable-bias-linear mrope-section make-vocab-size-divisible-by init-method-std
        attention-dropout hidden-dropout normalization norm-epsilon apply-layernorm-1p apply-residual-connection-post-layernorm openai-gelu
        squared-relu swiglu,+openai-gelu,+squared-relu gated_linear_unit swiglu no-persist-layer-norm untie-embeddings-and-output-weights
        fp16,+bf16 grad-reduce-in-bf16 param_init_type layernorm_compute_type attention-softmax-in-fp32 rotary_dtype loss-scale
        initial-loss-scale min-loss-scale loss-scale-window hysteresis fp32-residual-connection accumulate-allreduce-grads-in-fp32
        fp16-lm-cross-entropy q-lora-rank kv-lora-rank qk-head-dim qk-pos-emb-head-dim v-head-dim rotary-scaling-factor
        use-precision-aware-optimizer main-grads-dtype main-params-dtype exp-avg-dtype exp-avg-sq-dtype first-last-layers-bf16
        num-layers-at-start-in-bf16 num-layers-at-end-in-bf16 multi-latent-attention qk-layernorm""",
    "optimizer": """optimizer adam-beta1,+adam-beta2 adam-eps weight-decay start-weight-decay end-weight-decay weight-decay-incr-style
        clip-grad lr lr-decay-style lr-decay-iters lr-decay-samples lr-warmup-iters lr-warmup-fraction lr-warmup-init min-lr""",
    "parallel": """tensor-model-parallel-size pipeline-model-parallel-size sequence-parallel context-parallel-size use-distributed-optimizer
        expert-model-parallel-size expert-tensor-parallel-size""",
    "attention": """attention-backend use-flash-attn no-masked-softmax-fusion no-bias-gelu-fusion no-bias-swiglu-fusion
        no-bias-dropout-fusion no-rope-fusion cross-entropy-loss-fusion""",
    "experts": """num-experts moe-layer-freq moe-ffn-hidden-size moe-shared-expert-intermediate-size moe-shared-expert-overlap
        moe-grouped-gemm moe-router-load-balancing-type moe-router-dtype moe-router-score-function moe-router-topk moe-router-pre-softmax
        moe-router-num-groups moe-router-group-topk moe-router-topk-scaling-factor moe-router-enable-expert-bias
        moe-router-bias-update-rate moe-use-legacy-grouped-gemm moe-aux-loss-coeff moe-z-loss-coeff moe-input-jitter-eps
        moe-token-dispatcher-type moe-enable-deepep moe-per-layer-logging moe-expert-capacity-factor moe-pad-expert-input-to-capacity
        moe-token-drop-policy moe-extended-tp moe-use-upcycling moe-permute-fusion mtp-num-layers mtp-loss-scaling-factor""",
    "data": """data-path,+split train-data-path valid-data-path test-data-path vocab-size vocab-file merge-file tokenizer-type seq-length
        encoder-seq-length decoder-seq-length retriever-seq-length num-workers num-dataset-builder-threads data-cache-path""",
    "control": """batch_size micro_batch_interleave_num global_batch_size epochs train-samples train-iters log-interval eval-iters
        eval-interval save save-interval non-persistent-save-interval non-persistent-ckpt-type pretrained-checkpoint ckpt-step load
        exit-interval exit-duration-in-mins""",
    "recompute": """recompute-activations recompute-granularity recompute-method recompute-num-layers distribute-saved-activations
        checkpoint-activations moe-layer-recompute""",
}
"""Every row of the tables of the guide that compares with Megatron-LM (mindspore-ai/docs, accuracy_comparison.md)."""


def wanted() -> set[str]:
    named = (("CheckList", CHECKLIST), ("comparison", COMPARISON), ("set-up", SETUP))
    tables = ((f"{guide}: {table}", names) for guide, held in named for table, names in held.items())
    return {f"{table}: {name.replace('+', ' ')}" for table, names in tables for name in names.split()}


def test_every_row_of_every_guide_has_a_row_here() -> None:
    given = {source for row in ROWS for source in row.sources} - {"beside the guides"}
    assert wanted() - given == set()
    assert given - wanted() == set()


def test_a_base_is_what_its_name_says() -> None:
    assert BASES[OLD]["use_legacy"] is True
    assert BASES[NEW]["use_legacy"] is False


@pytest.mark.parametrize(
    ("row", "text"), [("save", "output_dir: '1e-8'"), ("data_set", "train_dataset: {data_loader: {dataset_dir: '8.10'}}")]
)
def test_no_number_is_made_of_the_name_of_a_place(row: str, text: str) -> None:
    value = read_row(ROW[row], read_yaml(f"model: {{model_config: {{num_layers: 2}}}}\n{text}\n", "x.yaml", Path()))
    assert value.shown == text.split("'")[1]
