"""YAML files that MindFormers' wheels ship, against launch scripts that an engineer wrote for them with a few mistakes in each."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from align_hooks.checklist.canonical_values import OptimizerKind, ValueOrigin
from align_hooks.checklist.edits import Action, SuggestedEdit
from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.lookup import MODEL
from align_hooks.checklist.result import DIFFERS, Checklist, Scheduled
from align_hooks.checklist.sides import check, fix
from align_hooks.configuration.values import MINDFORMERS
from align_hooks.messages import message, rendered, terms
from checklist.exercises import row, to_change
from checklist.shipped import HIDES, REAL
from checklist.wheels import installed, older
from worded import messages

PAIRS = Path(__file__).parent / "pairs"
RATE, DECAY = Scheduled.LEARNING_RATE, Scheduled.WEIGHT_DECAY
Of = Callable[..., Checklist]
Pieces = Mapping[str, str]

NAMES = pytest.mark.parametrize("name", REAL)


@pytest.fixture
def of(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Of:
    """Check a pair: ``right`` without its mistakes, ``change`` with other pieces in the script, ``yaml`` in the YAML."""

    def checked(name: str, *, right: bool = False, change: Pieces | None = None, yaml: Pieces | None = None) -> Checklist:
        pair = REAL[name]
        own = PAIRS / pair.yaml
        there = own if own.is_file() else older(pair.yaml, tmp_path_factory) if pair.older else installed(pair.yaml)
        sides = [(PAIRS / pair.script, {**(pair.mistakes if right else {}), **(change or {})}), (there, yaml or {})]
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


def names(result: Checklist, outcome: RowOutcome) -> set[str]:
    return {one.row.id for one in result.of(outcome)}


def same(result: Checklist) -> dict[Scheduled, bool | None]:
    return {one.name: one.same for one in result.courses}


def line(script: str, piece: str) -> str:
    """Where a piece stands in a script, as it is reported."""
    text = (PAIRS / script).read_text(encoding="utf-8")
    assert text.count(piece) == 1
    return f"{script}:{text[: text.index(piece)].count(chr(10)) + 1}"


@NAMES
@pytest.mark.parametrize("right", [True, False], ids=["without its mistakes", "as it stands"])
def test_every_mistake_is_found_and_nothing_else_but_what_the_files_make_differ(name: str, right: bool, of: Of) -> None:
    pair, result = REAL[name], of(name, right=right)
    assert names(result, RowOutcome.DIFFERENT) == (pair.inherent if right else pair.planted | pair.inherent)
    assert pair.untold <= names(result, RowOutcome.UNKNOWN) <= pair.untold | pair.free
    assert same(result) == dict(zip((RATE, DECAY), pair.right_courses if right else pair.courses, strict=True))
    assert result.exit_code == (pair.right_exit if right else DIFFERS)


@NAMES
def test_every_mistake_is_told_with_both_places(name: str, of: Of) -> None:
    pair, result = REAL[name], of(name)
    for one in (row(result, each) for each in pair.planted):
        for side, file in ((one.reference, pair.script), (one.candidate, Path(pair.yaml).name)):
            assert side.where is ValueOrigin.DEFAULT or re.match(rf"{re.escape(file)}:\d+", rendered(side.where)), (one.row.id, side)


@NAMES
def test_the_yaml_is_mended_as_told_and_no_letter_else(name: str, of: Of, tmp_path: Path) -> None:
    pair, before = REAL[name], of(name)
    mended, checklist = fix(str(tmp_path / pair.script), str(tmp_path / Path(pair.yaml).name), {}, before, None)
    unmended = {one.row.id for one in before.of(RowOutcome.DIFFERENT) if one.change is not None and not one.change.is_safe}
    assert names(checklist, RowOutcome.DIFFERENT) <= unmended
    was, now = mended.before.splitlines(), mended.after.splitlines()
    comments = [re.findall(r"#.*", line) for line in was]
    assert [comment for comment in comments if comment] == [comment for line in now if (comment := re.findall(r"#.*", line))]
    assert len(set(was) - set(now)) <= len(before.edits)


SHOWN_ROWS = """
qwen3 32b | rotary_base | 10000 | --rotary-base | 1000000 | rope_theta: | rope_theta: 10000
qwen3 32b | head_dim | 80 | --hidden-size | 128 | head_dim: | head_dim: 80
qwen3 32b | hidden_dropout | 0.1 |  | 0 | hidden_dropout: | hidden_dropout: 0.1
qwen3 32b | lr_warmup_iters | 40 | --lr-warmup-iters | 0 |  |
telechat3 36b | beta2 | 0.999 | --adam-beta2 | 0.95 | betas: | optimizer.betas: [0.9, 0.999]
telechat3 36b | tied_embeddings | True |  | False | tie_word_embeddings: |
telechat3 36b | lr_decay_style | cosine | --lr-decay-style | constant | type: ConstantWarmUpLR | lr_schedule.type: CosineWithWarmUpLR
qwen3 30b a3b | size_of_an_expert | 1536 | --moe-ffn-hidden-size | 768 | moe_intermediate_size: | moe_intermediate_size: 1536
qwen3 30b a3b | routed_scaling_factor | 1 |  | 1.5 | routed_scaling_factor: | routed_scaling_factor: 1.0
qwen3 30b a3b | aux_loss_factor | 0.01 | --moe-aux-loss-coeff | 0.001 | moe_aux_loss_coeff: | moe_aux_loss_coeff: 0.01
qwen3 30b a3b | weights_of_the_chosen_add_up_to_one | True |  | False | norm_topk_prob: | norm_topk_prob: True
deepseek3 671b | rope_scaling | yarn | --rope-type | none |  | position_embedding_type: yarn
deepseek3 671b | update_rate_of_that_bias | 0.001 | --moe-router-bias-update-rate | 0.0001 | moe_router_bias_update_rate: | moe_router_bias_update_rate: 0.001
deepseek3 12b | v_head_dim | 128 | --v-head-dim | 192 | v_head_dim: | v_head_dim: 128
deepseek3 12b | clip_grad | 0.5 | --clip-grad | 1 | use_clip_grad: | runner_wrapper.max_grad_norm: 0.5
telechat3 105b | rms_norm_eps | 1e-06 | --norm-epsilon | 1e-05 | rms_norm_eps: | rms_norm_eps: 1.0e-06
telechat3 105b | mtp_loss_scaling_factor | 0.1 |  | 0.2 | mtp_loss_factor: | mtp_loss_factor: 0.1
llama2 13b | intermediate_size | 13632 | --hidden-size | 13824 |  | intermediate_size: 13632
llama2 13b | weight_decay | 0.01 |  | 0 |  | optimizer.weight_decay: 0.01
llama2 70b | n_kv_heads | 64 | --num-attention-heads | 8 | n_kv_heads: | n_kv_heads: 64
llama2 70b | beta2 | 0.95 | --adam-beta2 | 0.99 | beta2: | optimizer.betas: [0.9, 0.95]
glm4 9b | rms_norm_eps | 1e-05 | --norm-epsilon | 1.5625e-07 | layernorm_epsilon: | layernorm_epsilon: 1.0e-05
glm4 9b | global_batch_size | 64 | --global-batch-size | 128 |  |
mixtral 8x7b | num_experts_chosen | 1 | --moe-router-topk | 2 | num_experts_chosen: | moe_config.num_experts_chosen: 1
"""  # noqa: E501
SHOWN = [[cell.strip() for cell in line.split("|")] for line in SHOWN_ROWS.strip().splitlines()]
"""Pair, row, Megatron's value, the flag where it stands, MindFormers' value, how the line of its key begins, and what to change."""


@pytest.mark.parametrize(("name", "asked", "ours", "flag", "theirs", "key", "change"), SHOWN, ids=["-".join(cells[:2]) for cells in SHOWN])
def test_a_mistake_is_shown(
    name: str, asked: str, ours: str, flag: str, theirs: str, key: str, change: str, of: Of, tmp_path: Path
) -> None:
    pair, one = REAL[name], row(of(name), asked)
    assert (rendered(one.reference.shown), rendered(one.candidate.shown)) == (ours, theirs)
    if flag:
        assert one.reference.where == f"{line(pair.script, f'{flag} ')} {flag}"
    if key:
        text = (tmp_path / Path(pair.yaml).name).read_text(encoding="utf-8")
        at = next(number for number, held in enumerate(text.splitlines(), 1) if held.lstrip().startswith(key))
        assert one.candidate.where == f"{Path(pair.yaml).name}:{at}"
    assert change in to_change(one)


def test_ties_that_a_family_has_no_setting_for_are_told_so(of: Of) -> None:
    assert row(of("telechat3 36b"), "tied_embeddings").change == SuggestedEdit(Action.NONE, MINDFORMERS, value="True")


def test_experts_in_other_layers_are_counted(of: Of) -> None:
    one = row(of("deepseek3 671b"), "layers_with_experts")
    for side, dense, sparse in ((one.reference, 1, 60), (one.candidate, 3, 58)):
        counts = message("canonical_value.layers_dense", count=dense), message("canonical_value.layers_with_experts", count=sparse)
        assert side.shown == terms(counts)
    assert one.reference.where == f"{line('deepseek3_671b.sh', '--moe-layer-freq ')} --moe-layer-freq"
    assert one.change is not None
    assert [edit.key for edit in one.change.edits] == [f"{MODEL}first_k_dense_replace"]


TRAPS: list[tuple[str, str, str | None]] = [
    # pair, trap, the name that it is about
    ("qwen3 30b a3b", "pitfall.ignored", "router_aux_loss_coef"),
    ("qwen3 30b a3b", "pitfall.no_effect", "moe_router_pre_softmax"),
    ("qwen3 30b a3b", "pitfall.no_effect", "moe_token_drop_policy"),
    ("deepseek3 671b", "pitfall.ignored", "router_dense_type"),
    ("deepseek3 12b", "pitfall.ignored", "scoring_func"),
    ("deepseek3 12b", "pitfall.ignored", "router_dense_type"),
    ("deepseek3 12b", "pitfall.ignored", "scaling_factor"),
    ("telechat3 105b", "pitfall.ignored", "scoring_func"),
    ("llama2 70b", "pitfall.groups_without_flag", None),
    ("mixtral 8x7b", "pitfall.overwritten", "model.model_config.moe_config.expert_num"),
]


@pytest.mark.parametrize(("name", "id", "about"), TRAPS)
def test_a_trap_is_told(name: str, id: str, about: str | None, of: Of) -> None:
    assert (id, about) in {(pitfall.id, pitfall.arguments.get("name")) for side in of(name).sides for pitfall in side.pitfalls}


def test_hidden_dropout_that_a_file_leaves_out_is_a_tenth(of: Of) -> None:
    result = of("qwen3 32b", right=True, yaml={"    hidden_dropout: 0.0\n": ""})
    assert names(result, RowOutcome.DIFFERENT) == HIDES | {"hidden_dropout"}
    assert row(result, "hidden_dropout").candidate.shown == "0.1"
    assert "pitfall.hidden_dropout" in {pitfall.id for pitfall in result.sides[1].pitfalls}


def test_a_name_that_is_ignored_does_not_count(of: Of) -> None:
    result = of("deepseek3 12b", right=True, yaml={"    scaling_factor: 40": "    scaling_factor: 10"})
    assert row(result, "rotary_scaling_factor").candidate.shown == "40"  # MindFormers 1.9's own, for it knows rotary_scaling_factor only


def test_two_ids_of_an_end_are_no_contradiction(of: Of) -> None:
    one = row(of("qwen3 32b", right=True), "eos_token_id")  # 151645 in the model, eod: 1 in the data, as the file ships
    assert one.outcome not in (RowOutcome.DIFFERENT, RowOutcome.UNKNOWN) and one.candidate.shown == "151645"


def test_a_dense_model_is_not_asked_of_experts_and_latent_attention(of: Of) -> None:
    result = of("glm4 9b", right=True)
    asked = {one.row.id for one in result.checked if one.row.when.startswith(("expert_num", "multi_latent_attention"))}
    assert {one.row.id for one in result.of(RowOutcome.UNUSED)} >= asked


def test_grouped_queries_of_glm_are_read(of: Of) -> None:
    one = row(of("glm4 9b", right=True), "n_kv_heads")
    assert (one.outcome, one.reference.shown, one.candidate.shown) == (RowOutcome.SAME, "2", "2")


def test_rates_of_groups_that_are_the_default_ones_are_no_difference(of: Of) -> None:
    result = of("telechat3 105b", right=True)
    assert row(result, "lr").outcome is RowOutcome.SAME and row(result, "lr").candidate.shown == "0.0002"
    assert row(result, "rates_of_their_own_for_the_embedding_and_output").outcome is not RowOutcome.DIFFERENT


def test_a_suggested_warm_up_is_one(of: Of) -> None:
    """The file says warmup_ratio: 0, which MindFormers puts above warmup_steps; what is suggested must come to a warm-up."""
    change = row(of("qwen3 32b"), "lr_warmup_iters").change
    assert change is not None
    assert {edit.key: edit.value for edit in change.edits} == {"lr_schedule.warmup_steps": 40, "lr_schedule.warmup_ratio": None}
    result = of("qwen3 32b", yaml={"  warmup_ratio: 0\n": "  warmup_steps: 40\n"})
    assert row(result, "lr_warmup_iters").outcome is RowOutcome.SAME


def test_no_type_is_suggested_for_the_embedding_that_takes_the_weights_with_it(of: Of) -> None:
    assert to_change(row(of("qwen3 30b a3b", right=True), "type_of_the_embedding")) != "params_dtype: bfloat16"


@pytest.mark.parametrize("name", ["fused_bias_and_swiglu", "fused_rotary_embedding", "type_in_which_the_residual_is_added"])
def test_no_key_is_suggested_that_an_older_model_does_not_read(name: str, of: Of) -> None:
    change = to_change(row(of("llama2 7b"), name))
    assert not any(key in change for key in ("bias_swiglu_fusion", "apply_rope_fusion", "residual_dtype"))


def test_a_load_balancing_that_mindformers_refuses_is_not_suggested(of: Of) -> None:
    changed = of("qwen3 30b a3b", change={"--moe-router-load-balancing-type global_aux_loss": "--moe-router-load-balancing-type aux_loss"})
    one = row(changed, "load_balancing_type")
    assert one.outcome is RowOutcome.DIFFERENT
    assert "moe_router_load_balancing_type: aux_loss" not in to_change(one)


def test_an_empty_path_is_a_blank_to_fill_in_and_no_data(of: Of) -> None:
    assert row(of("llama2 7b"), "data_path").outcome is not RowOutcome.DIFFERENT


def test_a_variable_that_nothing_sets_is_empty(of: Of) -> None:
    """The same script that says ${DATA_PATH:-...} is read so."""
    result = of("llama2 13b")
    assert row(result, "data_path").reference.shown == "wikitext_text_document"


def test_a_model_that_lies_elsewhere_is_not_told(tmp_path: Path) -> None:
    yaml = tmp_path / "finetune_qwen3.yaml"
    yaml.write_text(installed("qwen3/finetune_qwen3.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    result = check(str(PAIRS / "qwen3_32b.sh"), str(yaml), {})
    assert {"num_layers", "hidden_size", "intermediate_size", "num_heads", "rms_norm_eps", "vocab_size"} <= names(
        result, RowOutcome.UNKNOWN
    )
    (missing,) = (note for note in messages(*result.sides[1].notes) if note.id == "configuration.no_model_file")
    assert missing.arguments["file"] == "/path/to/Qwen3-32B/config.json"


# What msprobe's config_check does of a LLaMA2-7B script and pretrain_llama2_7b.yaml, which is the first to be right here.


HEADS, CLIPS = {"--num-attention-heads 32": "--num-attention-heads 16"}, {"  use_clip_grad: True": "  use_clip_grad: False"}
MSPROBE: dict[str, tuple[str, RowOutcome, tuple[object, object], int | None, str, dict[str, Pieces]]] = {
    # what msprobe does: row, outcome, both meanings, the YAML's line, what to change, and other pieces of the script or the YAML
    "KeyError: 'model.model_config.hidden_size'": ("intermediate_size", RowOutcome.SAME, (11008, 11008), None, "", {}),
    "of hidden_size": ("hidden_size", RowOutcome.SAME, (4096, 4096), None, "", {}),
    "makes nothing of multiple_of": (
        *("intermediate_size", RowOutcome.DIFFERENT, (11264, 11008), None, ""),
        {"change": {"--ffn-hidden-size 11008": "--ffn-hidden-size 11264"}},
    ),
    "gives bf16 to the tensor-parallel size": ("model_parallel", RowOutcome.ROUNDING, (2, None), None, "", {}),
    "and nothing to the pipeline": ("pipeline_stage", RowOutcome.SAME, (1, 1), None, "", {}),
    "gives the tensor-parallel size to bf16": ("compute_dtype", RowOutcome.DIFFERENT, ("bfloat16", "float16"), None, "", {}),
    "misses norm_epsilon": ("rms_norm_eps", RowOutcome.DIFFERENT, (1e-6, 1e-5), 142, "rms_norm_eps: 1.0e-06", {}),
    "holds clip_grad against use_clip_grad": ("clip_grad", RowOutcome.SAME, (1.0, 1.0), None, "", {}),
    "also where it is off": ("clip_grad", RowOutcome.DIFFERENT, (1.0, 0.0), None, "", {"yaml": CLIPS}),
    "matches no heads": ("num_heads", RowOutcome.SAME, (32, 32), 139, "", {}),
    "also where they differ": ("num_heads", RowOutcome.DIFFERENT, (16, 32), 139, "num_heads: 16", {"change": HEADS}),
    "matches no beta1": ("beta1", RowOutcome.SAME, (0.9, 0.9), 26, "", {}),
    "matches no beta2": ("beta2", RowOutcome.DIFFERENT, (0.999, 0.95), None, "optimizer.betas: [0.9, 0.999]", {}),
    "matches no eps": ("eps", RowOutcome.SAME, (1e-8, 1e-8), 28, "", {}),
    "finds the learning rate": ("lr", RowOutcome.DIFFERENT, (1e-5, 5e-5), None, "", {}),
    "finds the seed": ("seed", RowOutcome.HARMLESS, (42, 0), None, "", {}),
}


@pytest.mark.parametrize("case", MSPROBE)
def test_what_msprobe_does_not_see(case: str, of: Of) -> None:
    name, outcome, canonicals, at, told, pieces = MSPROBE[case]
    one = row(of("llama2 7b", **pieces), name)
    assert (one.outcome, one.reference.canonical) == (outcome, canonicals[0])
    assert canonicals[1] in (None, one.candidate.canonical)
    assert at is None or one.candidate.where == f"pretrain_llama2_7b.yaml:{at}"
    assert told in to_change(one)


def test_a_row_is_shown_with_its_place_in_the_script(of: Of) -> None:
    assert row(of("llama2 7b"), "rms_norm_eps").reference.where == f"{line('llama2_7b.sh', '--norm-epsilon')} --norm-epsilon"


def test_msprobe_lists_what_it_does_not_know_as_one_sided(of: Of) -> None:
    assert not of("llama2 7b").sides[0].not_covered  # every argument of the script belongs to a row


def test_the_optimizer_of_old_llama_corrects_no_bias(of: Of) -> None:
    one = row(of("llama2 7b", right=True), "optimizer")
    assert one.outcome is RowOutcome.DIFFERENT
    assert one.candidate.canonical is OptimizerKind.ADAMW_UNCORRECTED
