"""YAML files that MindFormers' wheels ship, against launch scripts that an engineer wrote for them with a few mistakes in each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from align_hooks.checklist.judge import Checked, Outcome
from align_hooks.checklist.meaning import Optimizer, Origin
from align_hooks.checklist.result import CLEAN, DIFFERS, UNDECIDED, Checklist, Scheduled
from align_hooks.checklist.sides import check
from align_hooks.messages import rendered
from checklist.exercises import to_change
from checklist.wheels import installed, older

PAIRS = Path(__file__).parent / "pairs"
RATE, DECAY = Scheduled.LEARNING_RATE, Scheduled.WEIGHT_DECAY
Of = Callable[..., Checklist]


@dataclass(frozen=True)
class Pair:
    """A script and a YAML.

    ``mistakes`` are pieces of the script and what a careful engineer would have written; ``planted`` are the rows that they make differ.
    ``inherent`` rows differ whatever the script says. ``untold`` are rows of which a file says nothing, ``free`` those that may be so.
    ``courses`` are learning rate and weight decay of every step, of the script as it stands and without its mistakes.
    """

    script: str
    yaml: str
    mistakes: Mapping[str, str]
    planted: frozenset[str]
    courses: tuple[bool | None, bool | None] = (True, True)
    right_courses: tuple[bool | None, bool | None] = (True, True)
    inherent: frozenset[str] = frozenset()
    untold: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()
    older: bool = False
    right_exit: int = CLEAN
    texts: tuple[str, ...] = field(default=())


OLD_LLAMA = frozenset({"optimizer", "type_of_the_main_weights"})
"""FP32StateAdamWeightDecay is the operator AdamWeightDecay, which corrects no bias: its first step is 3.16 times as long as Adam's with the
default betas, and Megatron-LM cannot be told to do the same. These files hold the weights in float16, and update them in it."""
OF_DATA = frozenset({"lr_decay_iters", "lr_warmup_iters"})
"""MindDataset names no seed, and total_steps: -1 leaves the length to it."""

REAL: dict[str, Pair] = {
    "qwen3 32b": Pair(
        "qwen3_32b.sh",
        "qwen3/pretrain_qwen3_32b_4k.yaml",
        {
            "--rotary-base 10000\n": "--rotary-base 1000000\n",
            "--num-query-groups 8\n": "--num-query-groups 8 --kv-channels 128\n",
            "--attention-dropout 0.0\n": "--attention-dropout 0.0 --hidden-dropout 0.0\n",
            "--lr-warmup-iters 40\n": "--lr-warmup-iters 0\n",
        },
        frozenset({"rotary_base", "head_dim", "hidden_dropout", "lr_warmup_iters"}),
        courses=(False, True),
    ),
    "telechat3 36b": Pair(
        "telechat3_36b.sh",
        "telechat3/pretrain_telechat3_36b.yaml",
        {
            "--adam-beta2 0.999": "--adam-beta2 0.95",
            "--disable-bias-linear \\": "--disable-bias-linear --untie-embeddings-and-output-weights \\",
            "--lr-decay-style cosine": "--lr-decay-style constant",
            "    --reset-attention-mask \\\n": "",
        },
        frozenset({"beta2", "tied_embeddings", "lr_decay_style", "reset_attention_mask"}),
        courses=(False, True),
        untold=frozenset({"vocab_size", "rows_of_the_embedding"}),  # the tokenizer's, which is not here
        right_exit=UNDECIDED,
    ),
    # global_aux_loss of Megatron-LM and gbs_aux_loss of MindFormers are one: the share of every expert over the batch up to now, times the
    # mean score of this micro-batch, times experts and coefficient
    "qwen3 30b a3b": Pair(
        "qwen3_30b_a3b.sh",
        "qwen3_moe/pretrain_qwen3_30b_a3b_4k.yaml",
        {
            "--moe-ffn-hidden-size 1536": "--moe-ffn-hidden-size 768",
            "--moe-router-score-function softmax": "--moe-router-score-function softmax --moe-router-pre-softmax",
            "--moe-aux-loss-coeff 0.01": "--moe-aux-loss-coeff 0.001",
            "--moe-router-topk 8": "--moe-router-topk 8 --moe-router-topk-scaling-factor 1.5",
        },
        frozenset({"size_of_an_expert", "weights_of_the_chosen_add_up_to_one", "aux_loss_factor", "routed_scaling_factor"}),
    ),
    # the file does not ask for YaRN, which MindFormers 1.9 does not take from the family: positions are plain, whatever the paper says
    "deepseek3 671b": Pair(
        "deepseek3_671b.sh",
        "deepseek3/pretrain_deepseek3_671b.yaml",
        {
            "--rope-type yarn\n": "--rope-type rope\n",
            "([0]*1+[1]*60)": "([0]*3+[1]*58)",
            "--moe-router-bias-update-rate 1e-3": "--moe-router-bias-update-rate 1e-4",
            "--moe-router-score-function sigmoid": "--moe-router-score-function sigmoid --moe-router-topk-scaling-factor 2.5",
        },
        frozenset(
            {
                "position_embedding_type",
                "rotary_scaling_factor",
                "mscale",
                "mscale_all_dim",
                "layers_with_experts",
                "update_rate_of_that_bias",
                "routed_scaling_factor",
            }
        ),
    ),
    # YaRN of MindFormers starts from max_position_embeddings, which is 163840 here; Megatron's latent attention from
    # original_max_position_embeddings, which is 4096 and has no argument: the frequencies differ
    "deepseek3 12b": Pair(
        "deepseek3_12b.args",
        "deepseek3/pretrain_deepseek3_12b_16p_pp16.yaml",
        {
            "--v-head-dim 128": "--v-head-dim 192",
            "--moe-router-topk 6": "--moe-router-topk 8",
            "--moe-router-load-balancing-type aux_loss": "--moe-router-load-balancing-type seq_aux_loss",
            "--clip-grad 0.5": "--clip-grad 1.0",
        },
        frozenset({"v_head_dim", "num_experts_chosen", "load_balancing_type", "clip_grad"}),
        inherent=frozenset({"original_max_position_embeddings"}),
        right_exit=DIFFERS,
    ),
    # the group of the embedding and the output has the rates of the default, so there are no rates of its own
    "telechat3 105b": Pair(
        "telechat3_105b.sh",
        "telechat3_moe/pretrain_telechat3_105b_a4b_4k.yaml",
        {
            "--norm-epsilon 1e-6": "--norm-epsilon 1e-5",
            "--moe-shared-expert-intermediate-size 3072": "--moe-shared-expert-intermediate-size 1536",
            "--mtp-num-layers 1\n": "--mtp-num-layers 1 --mtp-loss-scaling-factor 0.2\n",
        },
        frozenset({"rms_norm_eps", "size_of_the_shared_experts", "mtp_loss_scaling_factor"}),
    ),
    "llama2 7b": Pair(
        "llama2_7b.sh",
        "llama2/pretrain_llama2_7b.yaml",
        {
            "--norm-epsilon 1e-6": "--norm-epsilon 1e-5",
            "--bf16": "--fp16",
            "--lr 1e-5": "--lr 5e-5",
            "--adam-beta2 0.999": "--adam-beta2 0.95",
        },
        frozenset({"rms_norm_eps", "compute_dtype", "lr", "beta2"}),
        courses=(None, True),
        right_courses=(None, True),
        inherent=OLD_LLAMA,
        untold=OF_DATA,
        older=True,
        right_exit=DIFFERS,
    ),
    "llama2 13b": Pair(
        "llama2_13b.sh",
        "llama2/pretrain_llama2_13b_bf16.yaml",
        {
            "    --swiglu \\\n": "    --swiglu --ffn-hidden-size 13824 \\\n",
            "    --disable-bias-linear \\\n": "    --disable-bias-linear --untie-embeddings-and-output-weights \\\n",
            "    --adam-beta2 0.95 \\\n": "    --adam-beta2 0.95 --weight-decay 0 \\\n",
        },
        frozenset({"intermediate_size", "tied_embeddings", "weight_decay"}),
        courses=(None, False),
        right_courses=(None, True),
        inherent=OLD_LLAMA,
        untold=OF_DATA,
        older=True,
        right_exit=DIFFERS,
    ),
    "llama2 70b": Pair(
        "llama2_70b.sh",
        "llama2/finetune_llama2_70b.yaml",
        {
            "--num-query-groups 8": "--group-query-attention --num-query-groups 8",
            "--adam-beta2 0.95": "--adam-beta2 0.99",
            "--weight-decay 0.1": "--weight-decay 0.0",
        },
        frozenset({"n_kv_heads", "beta2", "weight_decay"}),
        courses=(None, False),
        right_courses=(None, True),
        inherent=OLD_LLAMA,
        untold=OF_DATA,
        older=True,
        right_exit=DIFFERS,
    ),
    # cosine from 1e-6 to 1e-6 without warm-up is 1e-6 however long it runs; half of a head is turned, as --rotary-percent 0.5 says
    "glm4 9b": Pair(
        "glm4_9b.sh",
        "glm4/finetune_glm4_9b.yaml",
        {
            "--norm-epsilon 1e-5": "--norm-epsilon 1.5625e-07",
            "--hidden-dropout 0.1": "--hidden-dropout 0.0",
            "--global-batch-size 64": "--global-batch-size 128",
        },
        frozenset({"rms_norm_eps", "hidden_dropout", "global_batch_size"}),
        free=OF_DATA
        | {
            "normalization",
            "activation_function",
            "gated_linear_unit",
            "norm_of_queries_and_keys",
            "tied_embeddings",
            "position_embedding_type",
            "rotary_base",
            "rotary_percent",
            "rotary_interleaved",
            "init_method_std",
        },
        right_exit=UNDECIDED,
    ),
    "mixtral 8x7b": Pair(
        "mixtral_8x7b.sh",
        "mixtral_8x7b.yaml",
        {
            "--moe-router-topk 1": "--moe-router-topk 2",
            "--moe-aux-loss-coeff 0.02": "--moe-aux-loss-coeff 0.05",
            "--moe-expert-capacity-factor 1.25": "--moe-expert-capacity-factor 1.1",
        },
        frozenset({"num_experts_chosen", "aux_loss_factor", "capacity_factor"}),
    ),
}
NAMES = pytest.mark.parametrize("name", REAL)


@pytest.fixture
def of(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Of:
    """Check a pair: ``right`` without its mistakes, ``change`` with other pieces in the script, ``yaml`` in the YAML."""

    def checked(
        name: str, *, right: bool = False, change: Mapping[str, str] | None = None, yaml: Mapping[str, str] | None = None
    ) -> Checklist:
        pair = REAL[name]
        own = PAIRS / pair.yaml
        there = own if own.is_file() else older(pair.yaml, tmp_path_factory) if pair.older else installed(pair.yaml)
        sides = [
            (PAIRS / pair.script, {**(pair.mistakes if right else {}), **(change or {})}),
            (there, yaml or {}),
        ]
        written = []
        for path, pieces in sides:
            text = path.read_text(encoding="utf-8")
            for old, new in pieces.items():
                assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path.name}"
                text = text.replace(old, new)
            (tmp_path / path.name).write_text(text, encoding="utf-8")
            written.append(str(tmp_path / path.name))
        return check(written[0], written[1], {})

    return checked


def names(found: Checklist, outcome: Outcome) -> set[str]:
    return {one.row.id for one in found.of(outcome)}


def row(found: Checklist, name: str) -> Checked:
    return next(one for one in found.checked if one.row.id == name)


def same(found: Checklist) -> dict[Scheduled, bool | None]:
    return {one.name: one.same for one in found.courses}


def line(script: str, piece: str) -> str:
    """Where a piece stands in a script, as it is reported."""
    text = (PAIRS / script).read_text(encoding="utf-8")
    assert text.count(piece) == 1
    return f"{script}:{text[: text.index(piece)].count(chr(10)) + 1}"


@NAMES
def test_without_its_mistakes_nothing_differs_that_the_files_do_not_make_differ(name: str, of: Of) -> None:
    pair, found = REAL[name], of(name, right=True)
    assert names(found, Outcome.DIFFERENT) == pair.inherent
    assert pair.untold <= names(found, Outcome.NOT_TOLD) <= pair.untold | pair.free
    assert same(found) == dict(zip((RATE, DECAY), pair.right_courses, strict=True))
    assert found.exit_code == pair.right_exit


@NAMES
def test_every_mistake_is_found_and_nothing_else(name: str, of: Of) -> None:
    pair, found = REAL[name], of(name)
    assert names(found, Outcome.DIFFERENT) == pair.planted | pair.inherent
    assert pair.untold <= names(found, Outcome.NOT_TOLD) <= pair.untold | pair.free
    assert same(found) == dict(zip((RATE, DECAY), pair.courses, strict=True))
    assert found.exit_code == DIFFERS


@NAMES
def test_every_mistake_is_told_with_both_places(name: str, of: Of) -> None:
    pair, found = REAL[name], of(name)
    for one in (row(found, each) for each in pair.planted):
        for side, file in ((one.reference, pair.script), (one.candidate, Path(pair.yaml).name)):
            assert side.where is Origin.DEFAULT or re.match(rf"{re.escape(file)}:\d+", rendered(side.where)), (one.row.id, side)


SHOWN: list[tuple[str, str, str, str, str, str, str]] = [
    # pair, row, Megatron's value, where it stands, MindFormers' value, its key, what to change
    ("qwen3 32b", "rotary_base", "10000", "--rotary-base", "1000000", "    rope_theta:", "rope_theta: 10000"),
    ("qwen3 32b", "head_dim", "80", "--hidden-size", "128", "    head_dim:", "head_dim: 80"),
    ("qwen3 32b", "hidden_dropout", "0.1", "", "0", "    hidden_dropout:", "hidden_dropout: 0.1"),
    ("qwen3 32b", "lr_warmup_iters", "40", "--lr-warmup-iters", "0", "", ""),
    ("telechat3 36b", "beta2", "0.999", "--adam-beta2", "0.95", "  betas:", "optimizer.betas: [0.9, 0.999]"),
    ("telechat3 36b", "tied_embeddings", "True", "", "False", "    tie_word_embeddings:", "MindFormers has no setting that makes it True"),
    (
        "telechat3 36b",
        "lr_decay_style",
        "cosine",
        "--lr-decay-style",
        "constant",
        "  type: ConstantWarmUpLR",
        "lr_schedule.type: CosineWithWarmUpLR",
    ),
    (
        "qwen3 30b a3b",
        "size_of_an_expert",
        "1536",
        "--moe-ffn-hidden-size",
        "768",
        "    moe_intermediate_size:",
        "moe_intermediate_size: 1536",
    ),
    ("qwen3 30b a3b", "routed_scaling_factor", "1", "", "1.5", "    routed_scaling_factor:", "routed_scaling_factor: 1.0"),
    ("qwen3 30b a3b", "aux_loss_factor", "0.01", "--moe-aux-loss-coeff", "0.001", "    moe_aux_loss_coeff:", "moe_aux_loss_coeff: 0.01"),
    ("qwen3 30b a3b", "weights_of_the_chosen_add_up_to_one", "True", "", "False", "    norm_topk_prob:", "norm_topk_prob: True"),
    ("deepseek3 671b", "position_embedding_type", "yarn", "--rope-type", "rope", "", "position_embedding_type: yarn"),
    (
        "deepseek3 671b",
        "layers_with_experts",
        "1 dense, 60 with experts",
        "--moe-layer-freq",
        "3 dense, 58 with experts",
        "",
        "first_k_dense_replace",
    ),
    (
        "deepseek3 671b",
        "update_rate_of_that_bias",
        "0.001",
        "--moe-router-bias-update-rate",
        "0.0001",
        "    moe_router_bias_update_rate:",
        "moe_router_bias_update_rate: 0.001",
    ),
    ("deepseek3 12b", "v_head_dim", "128", "--v-head-dim", "192", "    v_head_dim:", "v_head_dim: 128"),
    ("deepseek3 12b", "clip_grad", "0.5", "--clip-grad", "1", "  use_clip_grad:", "runner_wrapper.max_grad_norm: 0.5"),
    ("telechat3 105b", "rms_norm_eps", "1e-06", "--norm-epsilon", "1e-05", "    rms_norm_eps:", "rms_norm_eps: 1.0e-06"),
    ("telechat3 105b", "mtp_loss_scaling_factor", "0.1", "", "0.2", "    mtp_loss_factor:", "mtp_loss_factor: 0.1"),
    ("llama2 13b", "intermediate_size", "13632", "--hidden-size", "13824", "", "intermediate_size: 13632"),
    ("llama2 13b", "weight_decay", "0.01", "", "0", "", "optimizer.weight_decay: 0.01"),
    ("llama2 70b", "n_kv_heads", "64", "--num-attention-heads", "8", "    n_kv_heads:", "n_kv_heads: 64"),
    ("llama2 70b", "beta2", "0.95", "--adam-beta2", "0.99", "  beta2:", "optimizer.beta2: 0.95"),
    ("glm4 9b", "rms_norm_eps", "1e-05", "--norm-epsilon", "1.5625e-07", "    layernorm_epsilon:", "layernorm_epsilon: 1.0e-05"),
    ("glm4 9b", "global_batch_size", "64", "--global-batch-size", "128", "", ""),
    ("mixtral 8x7b", "num_experts_chosen", "1", "--moe-router-topk", "2", "  num_experts_chosen:", "moe_config.num_experts_chosen: 1"),
]


@pytest.mark.parametrize(("name", "asked", "ours", "flag", "theirs", "key", "change"), SHOWN, ids=[f"{one[0]}-{one[1]}" for one in SHOWN])
def test_a_mistake_is_shown(
    name: str, asked: str, ours: str, flag: str, theirs: str, key: str, change: str, of: Of, tmp_path: Path
) -> None:
    pair, one = REAL[name], row(of(name), asked)
    assert (rendered(one.reference.shown), rendered(one.candidate.shown)) == (ours, theirs)
    if flag:
        assert one.reference.where == f"{line(pair.script, f'{flag} ')} {flag}"
    if key:
        text = (tmp_path / Path(pair.yaml).name).read_text(encoding="utf-8")
        at = next(number for number, held in enumerate(text.splitlines(), 1) if held.startswith(key))
        assert one.candidate.where == f"{Path(pair.yaml).name}:{at}"
    assert change in to_change(one)


TRAPS: list[tuple[str, str, str | None]] = [
    # pair, trap, the name that it is about
    ("qwen3 32b", "trap.null_tokenizer", None),
    ("qwen3 30b a3b", "trap.ignored", "router_aux_loss_coef"),
    ("qwen3 30b a3b", "trap.no_effect", "moe_router_pre_softmax"),
    ("qwen3 30b a3b", "trap.no_effect", "moe_token_drop_policy"),
    ("deepseek3 671b", "trap.ignored", "router_dense_type"),
    ("deepseek3 12b", "trap.ignored", "scoring_func"),
    ("deepseek3 12b", "trap.ignored", "router_dense_type"),
    ("deepseek3 12b", "trap.ignored", "scaling_factor"),
    ("telechat3 105b", "trap.ignored", "scoring_func"),
    ("llama2 70b", "trap.groups_without_flag", None),
    ("mixtral 8x7b", "trap.overwritten", "model.model_config.moe_config.expert_num"),
]


@pytest.mark.parametrize(("name", "id", "about"), TRAPS)
def test_a_trap_is_told(name: str, id: str, about: str | None, of: Of) -> None:
    assert (id, about) in {(trap.id, trap.arguments.get("name")) for side in of(name).sides for trap in side.traps}


def test_hidden_dropout_that_a_file_leaves_out_is_a_tenth(of: Of) -> None:
    found = of("qwen3 32b", right=True, yaml={"    hidden_dropout: 0.0\n": ""})
    assert names(found, Outcome.DIFFERENT) == {"hidden_dropout"}
    assert row(found, "hidden_dropout").candidate.shown == "0.1"
    assert "trap.hidden_dropout" in {trap.id for trap in found.sides[1].traps}


def test_a_name_that_is_ignored_does_not_count(of: Of) -> None:
    found = of("deepseek3 12b", right=True, yaml={"    scaling_factor: 40": "    scaling_factor: 10"})
    assert row(found, "rotary_scaling_factor").candidate.shown == "40"  # MindFormers 1.9's own, for it knows rotary_scaling_factor only


def test_two_ids_of_an_end_are_no_contradiction(of: Of) -> None:
    one = row(of("qwen3 32b", right=True), "eos_token_id")  # 151645 in the model, eod: 1 in the data, as the file ships
    assert one.outcome not in (Outcome.DIFFERENT, Outcome.NOT_TOLD) and one.candidate.shown == "151645"


def test_a_dense_model_is_not_asked_of_experts_and_latent_attention(of: Of) -> None:
    found = of("glm4 9b", right=True)
    asked = {one.row.id for one in found.checked if one.row.when.startswith(("expert_num", "multi_latent_attention"))}
    assert {one.row.id for one in found.of(Outcome.UNUSED)} >= asked


def test_grouped_queries_of_glm_are_read(of: Of) -> None:
    one = row(of("glm4 9b", right=True), "n_kv_heads")
    assert (one.outcome, one.reference.shown, one.candidate.shown) == (Outcome.SAME, "2", "2")


def test_rates_of_groups_that_are_the_default_ones_are_no_difference(of: Of) -> None:
    found = of("telechat3 105b", right=True)
    assert row(found, "lr").outcome is Outcome.SAME and row(found, "lr").candidate.shown == "0.0002"
    assert row(found, "rates_of_their_own_for_the_embedding_and_output").outcome is not Outcome.DIFFERENT


def test_a_suggested_warm_up_is_one(of: Of) -> None:
    """The file says warmup_ratio: 0, which MindFormers puts above warmup_steps; what is suggested must come to a warm-up."""
    assert (
        to_change(row(of("qwen3 32b"), "lr_warmup_iters")) == "make it come to 40 by lr_schedule.warmup_ratio"
    )  # which wins over the steps
    found = of("qwen3 32b", yaml={"  warmup_ratio: 0\n": "  warmup_steps: 40\n"})
    assert row(found, "lr_warmup_iters").outcome is Outcome.SAME


def test_no_type_is_suggested_for_the_embedding_that_takes_the_weights_with_it(of: Of) -> None:
    assert to_change(row(of("qwen3 30b a3b", right=True), "type_of_the_embedding")) != "params_dtype: bfloat16"


@pytest.mark.parametrize("name", ["fused_bias_and_swiglu", "fused_rotary_embedding", "type_in_which_the_residual_is_added"])
def test_no_key_is_suggested_that_an_older_model_does_not_read(name: str, of: Of) -> None:
    change = to_change(row(of("llama2 7b"), name))
    assert not any(key in change for key in ("bias_swiglu_fusion", "apply_rope_fusion", "residual_dtype"))


def test_a_load_balancing_that_mindformers_refuses_is_not_suggested(of: Of) -> None:
    changed = of("qwen3 30b a3b", change={"--moe-router-load-balancing-type global_aux_loss": "--moe-router-load-balancing-type aux_loss"})
    one = row(changed, "load_balancing_type")
    assert one.outcome is Outcome.DIFFERENT
    assert "moe_router_load_balancing_type: aux_loss" not in to_change(one)


def test_an_empty_path_is_a_blank_to_fill_in_and_no_data(of: Of) -> None:
    assert row(of("llama2 7b"), "data_path").outcome is not Outcome.DIFFERENT


def test_a_variable_that_nothing_sets_is_empty(of: Of) -> None:
    """The same script that says ${DATA_PATH:-...} is read so."""
    found = of("llama2 13b")
    assert row(found, "data_path").reference.shown == "wikitext_text_document"


def test_a_model_that_lies_elsewhere_is_not_told(tmp_path: Path) -> None:
    yaml = tmp_path / "finetune_qwen3.yaml"
    yaml.write_text(installed("qwen3/finetune_qwen3.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    found = check(str(PAIRS / "qwen3_32b.sh"), str(yaml), {})
    assert {"num_layers", "hidden_size", "intermediate_size", "num_heads", "rms_norm_eps", "vocab_size"} <= names(found, Outcome.NOT_TOLD)
    assert any("/path/to/Qwen3-32B/config.json, which is not on this machine" in rendered(note) for note in found.sides[1].notes)


# What msprobe's config_check does of a LLaMA2-7B script and pretrain_llama2_7b.yaml, which is the first to be right here.


def test_msprobe_crashes_on_ffn_hidden_size(of: Of) -> None:
    one = row(of("llama2 7b"), "intermediate_size")  # KeyError: 'model.model_config.hidden_size'
    assert (one.outcome, one.reference.shown, one.candidate.shown) == (Outcome.SAME, "11008", "11008")
    assert row(of("llama2 7b"), "hidden_size").outcome is Outcome.SAME


def test_msprobe_computes_what_multiple_of_makes(of: Of) -> None:
    one = row(of("llama2 7b", change={"--ffn-hidden-size 11008": "--ffn-hidden-size 11264"}), "intermediate_size")
    assert (one.outcome, one.candidate.meaning) == (Outcome.DIFFERENT, 11008)


def test_msprobe_gives_the_tensor_parallel_size_to_bf16(of: Of) -> None:
    found = of("llama2 7b")
    assert row(found, "compute_dtype").reference.meaning == "bfloat16"
    assert (row(found, "model_parallel").reference.meaning, row(found, "pipeline_stage").reference.meaning) == (2, 1)
    assert (row(found, "model_parallel").outcome, row(found, "pipeline_stage").outcome) == (Outcome.ROUNDING, Outcome.SAME)


def test_msprobe_misses_norm_epsilon(of: Of) -> None:
    one = row(of("llama2 7b"), "rms_norm_eps")
    assert (one.outcome, one.reference.meaning, one.candidate.meaning) == (Outcome.DIFFERENT, 1e-6, 1e-5)
    assert one.reference.where == f"{line('llama2_7b.sh', '--norm-epsilon')} --norm-epsilon"
    assert one.candidate.where == "pretrain_llama2_7b.yaml:142"
    assert to_change(one) == "rms_norm_eps: 1.0e-06"


def test_msprobe_holds_clip_grad_against_use_clip_grad(of: Of) -> None:
    one = row(of("llama2 7b"), "clip_grad")
    assert (one.outcome, one.reference.meaning, one.candidate.meaning) == (Outcome.SAME, 1.0, 1.0)
    off = row(of("llama2 7b", yaml={"  use_clip_grad: True": "  use_clip_grad: False"}), "clip_grad")
    assert (off.outcome, off.candidate.meaning) == (Outcome.DIFFERENT, 0.0)


def test_msprobe_matches_no_heads(of: Of) -> None:
    one = row(of("llama2 7b"), "num_heads")
    assert (one.outcome, one.reference.meaning, one.candidate.where) == (Outcome.SAME, 32, "pretrain_llama2_7b.yaml:139")
    other = row(of("llama2 7b", change={"--num-attention-heads 32": "--num-attention-heads 16"}), "num_heads")
    assert (other.outcome, to_change(other)) == (Outcome.DIFFERENT, "num_heads: 16")


def test_msprobe_matches_no_betas(of: Of) -> None:
    first, second = (row(of("llama2 7b"), name) for name in ("beta1", "beta2"))
    assert (first.outcome, first.candidate.where) == (Outcome.SAME, "pretrain_llama2_7b.yaml:26")
    assert (second.outcome, second.reference.meaning, second.candidate.meaning) == (Outcome.DIFFERENT, 0.999, 0.95)
    assert to_change(second) == "optimizer.beta2: 0.999"


def test_msprobe_matches_no_eps_of_adam(of: Of) -> None:
    one = row(of("llama2 7b"), "eps")
    assert (one.outcome, one.candidate.where) == (Outcome.SAME, "pretrain_llama2_7b.yaml:28")


def test_msprobe_finds_the_learning_rate_and_the_seed_and_so_does_check(of: Of) -> None:
    found = of("llama2 7b")
    one, seed = row(found, "lr"), row(found, "seed")
    assert (one.outcome, one.reference.meaning, one.candidate.meaning) == (Outcome.DIFFERENT, 1e-5, 5e-5)
    assert (seed.reference.meaning, seed.candidate.meaning) == (42, 0) and seed.outcome is not Outcome.SAME


def test_msprobe_lists_what_it_does_not_know_as_one_sided(of: Of) -> None:
    assert not of("llama2 7b").sides[0].not_covered  # every argument of the script belongs to a row


def test_the_optimizer_of_old_llama_corrects_no_bias(of: Of) -> None:
    one = row(of("llama2 7b", right=True), "optimizer")
    assert one.outcome is Outcome.DIFFERENT
    assert one.candidate.meaning is Optimizer.ADAMW_UNCORRECTED
