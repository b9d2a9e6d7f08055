"""MindSpeed-LLM's own arguments: what each means where Megatron-LM has none of its name, beside what holds without it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from align_hooks.checklist.judge import Outcome
from align_hooks.checklist.result import UNDECIDED, check
from align_hooks.checklist.row import Effect
from align_hooks.checklist.side_value import read_row
from align_hooks.checklist.tables import ROW
from align_hooks.checklist.uncovered import changing_nothing, matters
from align_hooks.configuration import mindspeed
from align_hooks.configuration.megatron import ARGUMENTS, FLAGS, RENAMED, defaults_of, flags_of, read_command, read_script
from align_hooks.configuration.recorded import recorded
from align_hooks.configuration.values import MEGATRON, MINDSPEED, MINDSPEED_LLM, Configuration, ConfigurationError
from align_hooks.messages import rendered
from checklist.exercises import EXPERTS, LATENT, NEW, flags, megatron, mindformers
from chosen import in_one
from worded import ids

SPEC = "--spec mindspeed_llm.tasks.models.spec"
"""What stands before ``deepseek_spec layer_spec``."""
PLAIN = (
    "--num-layers 6 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 4096 --position-embedding-type rope"
)
BASE = f"{PLAIN} --no-shared-storage"
SPARSE = "--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 96"


def command(words: str, program: str = "pretrain_gpt.py") -> Configuration:
    """MindSpeed-LLM's side of a base, with more arguments."""
    return read_command(f"torchrun {program} {BASE} {' '.join(words.split())}", {})


def meaning(row: str, configuration: Configuration) -> str:
    """What a side holds of a row, as a report shows it."""
    return rendered(read_row(ROW[row], configuration).shown)


NONE = "--moe-router-load-balancing-type none"
BY_GROUPS = f"{SPARSE} --micro-batch-size 2 --moe-router-load-balancing-type group_limited_greedy"
READ = f"""
# row | beside | flag | with it | without
num_layers | | --noop-layers 4,5 | 4 | 6
layers_with_experts | {SPARSE} --moe-layer-freq 1 | --first-k-dense-replace 2 | 2 dense, 4 with experts | 6 with experts
layers_with_experts | {SPARSE} | --first-k-dense-replace 2 | 2 dense, 4 with experts | 6 with experts
layers_with_experts | {SPARSE} | --moe-layer-freq 2 | 6 with experts | 6 with experts
layers_with_experts | {SPARSE} --first-k-dense-replace 1 | --noop-layers 1,5 | 1 dense, 3 with experts | 1 dense, 5 with experts
layers_with_experts | {SPARSE} --moe-layer-freq -1 | --first-k-dense-replace -1 | 6 with experts | 6 with experts
size_of_an_expert | --num-experts 8 | --moe-intermediate-size 80 | 80 | 256
size_of_the_shared_experts | {SPARSE} | --n-shared-experts 2 | 192 | None
size_of_the_shared_experts | --num-experts 8 --ffn-hidden-size 32 | --n-shared-experts 2 | 64 | None
size_of_the_shared_experts | {SPARSE} --n-shared-experts 2 | --moe-shared-expert-intermediate-size 50 | 50 | 192
use_shared_expert_gating | {SPARSE} | --shared-expert-gate | True | False
groups_of_experts | {SPARSE} | --n-group 4 | 4 | None
groups_of_experts | {SPARSE} --n-group 4 | --moe-router-load-balancing-type pai_megatron_aux_loss | None | 4
groups_of_experts | {SPARSE} --expert-model-parallel-size 4 | --moe-router-load-balancing-type group_limited_greedy | 4 | None
groups_chosen | {SPARSE} | --topk-group 2 | 2 | None
routed_scaling_factor | {SPARSE} | --routed-scaling-factor 2.5 | 2.5 | 1
routed_scaling_factor | {SPARSE} --moe-router-topk-scaling-factor 2.5 | --norm-topk-prob | 1 | 2.5
weights_of_the_chosen_add_up_to_one | {SPARSE} --moe-router-pre-softmax | --norm-topk-prob | True | False
weights_of_the_chosen_add_up_to_one | {SPARSE} --moe-router-load-balancing-type softmax_topk | --norm-topk-prob | True | False
weights_of_the_chosen_add_up_to_one | {SPARSE} {NONE} --moe-router-pre-softmax | --norm-topk-prob | False | False
weights_of_the_chosen_add_up_to_one | {SPARSE} | --moe-router-load-balancing-type pai_megatron_aux_loss | False | True
aux_loss_factor | {SPARSE} --moe-aux-loss-coeff 0.01 --moe-router-load-balancing-type none | --seq-aux | 0.01 | 0
aux_loss_factor | {SPARSE} --moe-aux-loss-coeff 0.01 | --moe-router-load-balancing-type softmax_topk | 0 | 0.01
load_balancing_type | {SPARSE} --moe-router-load-balancing-type none | --seq-aux | seq_aux_loss, of each sequence | none
load_balancing_type | {BY_GROUPS} | --seq-aux | seq_aux_loss, of each sequence | aux_loss, of 2 sequences together
router_dense_type | {SPARSE} --bf16 | --router-gating-in-fp32 | float32 | bfloat16
jitter_of_the_input | {SPARSE} --moe-input-jitter-eps 0.01 | --input-jitter | 0 | 0.01
mtp_num_layers | | --num-nextn-predict-layers 1 | 1 | 0
mtp_loss_scaling_factor | | --num-nextn-predict-layers 1 | 0.3 | 0.1
mtp_loss_scaling_factor | --num-nextn-predict-layers 1 | --mtp-loss-scale 0.2 | 0.2 | 0.3
rope_scaling | --rope-scaling-original-max-position-embeddings 1024 --position-embedding-type rope | --rope-scaling-type yarn | yarn | none
position_embedding_type | --multi-latent-attention | {SPEC}.deepseek_spec layer_spec | rope | rope
rope_scaling | --rope-scaling-factor 4 | --rope-scaling-type llama3 | llama3, factor 4 | none
rope_scaling | | --rope-scaling-type plm | none | none
rope_scaling | --rope-scaling-original-max-position-embeddings 9 | --rope-scaling-type longrope | longrope, factor 8 | none
rotary_scaling_factor | --rope-scaling-factor 40 --rope-scaling-original-max-position-embeddings 1024 | --rope-scaling-type yarn | 4 | 40
rotary_scaling_factor | --rope-scaling-type yarn {SPEC}.deepseek_spec layer_spec | --rope-scaling-factor 40 | 40 | 1
original_max_position_embeddings | | --rope-scaling-original-max-position-embeddings 1024 | 1024 | –
rotary_interleaved | | --use-glm-rope | True | False
mscale | | --rope-scaling-mscale 0.707 | 0.707 | 1
mscale_all_dim | | --rope-scaling-mscale-all-dim 0.707 | 0.707 | 0
multi_latent_attention | --multi-head-latent-attention | {SPEC}.deepseek_spec layer_spec | True | False
qk_head_dim | | --qk-nope-head-dim 96 | 96 | 128
qk_pos_emb_head_dim | | --qk-rope-head-dim 32 | 32 | 64
norm_of_queries_and_keys | {SPEC}.qwen3_spec layer_spec | --qk-layernorm | True | False
norm_of_queries_and_keys | --qk-layernorm | {SPEC}.qwen3_spec layer_spec | True | False
spec | | {SPEC}.qwen3_spec layer_spec | None | None
spec | | {SPEC}.gemma2_spec layer_spec | mindspeed_llm.tasks.models.spec.gemma2_spec layer_spec | None
zero_centred_norm_weights | | --add-rmsnorm-offset | True | False
activation_function | | --geglu | gated gelu | gelu (tanh)
activation_function | | --gelu-tanh | gated gelu_pytorch_tanh | gelu (tanh)
gated_linear_unit | | --geglu | True | False
bias_of_queries_keys_and_values | --disable-bias-linear | --add-qkv-bias | True | False
use_flash_attention | | --use-flash-attn | True | False
vocab_file | | --tokenizer-name-or-path /models/one | one | –
"""
"""A line is a row, flags that are there beside, the flag, and what the row reads with it and without."""


def table(text: str) -> list[list[str]]:
    """The lines of a table, as cells."""
    return [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines() if not line.startswith("#")]


@in_one(table(READ))
def test_a_flag_is_read_as_what_it_builds(row: str, beside: str, flag: str, with_it: str, without: str) -> None:
    assert (meaning(row, command(f"{beside} {flag}")), meaning(row, command(beside))) == (with_it, without)
    configuration = command(f"{beside} {flag}")
    name = flag.split()[0][2:].replace("-", "_")
    attribute = mindspeed.RENAMED.get(name, RENAMED.get(name, (name, None)))[0]
    read_row(ROW[row], configuration)
    assert attribute in configuration.used


SCRIPTS = {
    "deepseek3 671b, 26.1": (
        f"""--num-layers 64 --noop-layers 61,62,63 --first-k-dense-replace 3 --moe-layer-freq 1 --num-experts 256 --moe-router-topk 8
        --moe-ffn-hidden-size 2048 --n-shared-experts 1 --moe-router-load-balancing-type none --moe-aux-loss-coeff 0.0001
        --moe-router-num-groups 8 --moe-router-group-topk 4 --moe-router-topk-scaling-factor 2.5 --seq-aux --norm-topk-prob
        --moe-router-score-function sigmoid --multi-latent-attention --qk-layernorm --rope-scaling-type yarn --rope-scaling-factor 40
        --rope-scaling-original-max-position-embeddings 4096 --max-position-embeddings 163840 {SPEC}.deepseek_spec layer_spec""",
        {
            **{"num_layers": "61", "layers_with_experts": "3 dense, 58 with experts", "size_of_the_shared_experts": "2048"},
            **{
                "groups_of_experts": "8",
                "groups_chosen": "4",
                "routed_scaling_factor": "2.5",
                "load_balancing_type": "seq_aux_loss, of each sequence",
            },
            **{"aux_loss_factor": "0.0001", "weights_of_the_chosen_add_up_to_one": "True", "norm_of_queries_and_keys": "True"},
            **{"multi_latent_attention": "True", "position_embedding_type": "rope", "rope_scaling": "yarn", "rotary_scaling_factor": "40"},
            **{"original_max_position_embeddings": "4096", "spec": "None"},
        },
    ),
    "deepseek3 671b, 2.0": (
        f"""--num-layers 64 --noop-layers 61,62,63 --first-k-dense-replace 3 --moe-layer-freq 1 --num-experts 256 --moe-router-topk 8
        --moe-intermediate-size 2048 --n-shared-experts 1 --moe-router-load-balancing-type noaux_tc --moe-aux-loss-coeff 0.0001 --n-group 8
        --topk-group 4 --routed-scaling-factor 2.5 --seq-aux --norm-topk-prob --moe-router-score-function sigmoid
        --multi-head-latent-attention --qk-layernorm --num-nextn-predict-layers 1 {SPEC}.deepseek_spec layer_spec""",
        {
            **{"num_layers": "61", "layers_with_experts": "3 dense, 58 with experts", "size_of_the_shared_experts": "2048"},
            **{
                "groups_of_experts": "8",
                "groups_chosen": "4",
                "routed_scaling_factor": "2.5",
                "load_balancing_type": "seq_aux_loss, of each sequence",
            },
            **{"multi_latent_attention": "True", "mtp_num_layers": "1", "mtp_loss_scaling_factor": "0.3"},
        },
    ),
    "glm 4.5 air": (
        """--num-layers 48 --noop-layers 1,47 --first-k-dense-replace 1 --moe-layer-freq 1 --num-experts 128 --moe-router-num-groups 1
        --moe-router-load-balancing-type none --norm-topk-prob --moe-router-score-function sigmoid""",
        {"num_layers": "46", "layers_with_experts": "1 dense, 45 with experts", "groups_of_experts": "None", "aux_loss_factor": "0"},
    ),
    "qwen3 30b a3b": (
        f"""--num-layers 48 --first-k-dense-replace -1 --moe-layer-freq -1 --num-experts 128 --moe-router-topk 8 --norm-topk-prob
        --moe-ffn-hidden-size 768 --qk-layernorm {SPEC}.qwen3_spec layer_spec""",
        {
            **{"layers_with_experts": "48 with experts", "weights_of_the_chosen_add_up_to_one": "True"},
            **{"norm_of_queries_and_keys": "True", "spec": "None", "multi_latent_attention": "False"},
        },
    ),
    "llama 3.1 8b": (
        "--num-layers 32 --rope-scaling-type llama3 --rope-scaling-factor 8.0 --original-max-position-embeddings 8192",
        {"rope_scaling": "llama3, factor 8", "position_embedding_type": "rope"},
    ),
    "plm 1.8b": (
        f"--num-layers 32 --multi-latent-attention --rope-scaling-type plm {SPEC}.plm_spec layer_spec",
        {"multi_latent_attention": "True", "rope_scaling": "none", "spec": "mindspeed_llm.tasks.models.spec.plm_spec layer_spec"},
    ),
}
"""What MindSpeed-LLM's own scripts ask for, by model: flags of theirs, and what their model has by its paper or its configuration."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_script_of_mindspeed_llm_builds(name: str) -> None:
    words, facts = SCRIPTS[name]
    configuration = command(words)
    assert {row: meaning(row, configuration) for row in facts} == facts


SAME: dict[str, tuple[str, str]] = {
    "latent attention by its older names": (
        LATENT,
        f"""--multi-latent-attention OUT --multi-head-latent-attention --moe-ffn-hidden-size OUT --moe-intermediate-size 96
        --moe-shared-expert-intermediate-size OUT --n-shared-experts 1 --moe-layer-freq 1 --first-k-dense-replace 1
        --rope-scaling-type yarn --rope-scaling-original-max-position-embeddings 4096
        --rope-scaling-mscale-all-dim 1.0 {SPEC}.deepseek_spec layer_spec""",
    ),
    "latent attention between layers that do nothing": (
        LATENT,
        f"--num-layers 4 --noop-layers 1,3 --moe-layer-freq 1 --first-k-dense-replace 1 --rope-scaling-type yarn "
        f"--rope-scaling-original-max-position-embeddings 4096 --rope-scaling-mscale-all-dim 1.0 {SPEC}.deepseek_spec layer_spec",
    ),
    "experts": (EXPERTS, f"--norm-topk-prob --moe-router-dtype OUT --router-gating-in-fp32 {SPEC}.qwen3_spec layer_spec"),
    "dense": (NEW, "--use-fused-rmsnorm --use-fused-swiglu --use-flash-attn --reuse-fp32-param --padded-base-length 64"),
}


@pytest.mark.parametrize(("style", "words"), SAME.values(), ids=SAME)
def test_the_same_model_by_mindspeed_llms_names_is_the_same(style: str, words: str) -> None:
    reference = megatron(style, flags(words) | {"no-shared-storage": ""})
    checklist = check(reference, mindformers(style, {}))
    assert reference.fork == MINDSPEED_LLM
    unlike = (Outcome.DIFFERENT, Outcome.NOT_TOLD)
    assert [one.row.id for one in checklist.checked if one.outcome in unlike and one.row.effect is Effect.RESULT] == []
    assert [setting.name for _, setting in checklist.uncovered if setting.matters] == []
    assert ids(*(trap for side in checklist.sides for trap in side.traps)) == []


MATTERS = """
    --padded-samples | --stage sft | --fix-router | --input-embeds-norm | --scale-emb 12
    --post-norm | --attn-logit-softcapping 50 | --output-logit-softcapping 30 | --query-pre-attn-scalar 256 | --sliding-window 4096
    --interleave-sliding-window 4096 | --embedding-multiplier-scale 2 | --dim-model-base 256 | --scale-depth 1.4 | --cla-share-factor 2
    --dynamic-factor 6 | --o2-optimizer | --o2-gradient
    --lora-target-modules linear_qkv | --neat-pack | --no-pad-to-seq-lengths
    --use-global-aux-loss | --prompt-type qwen3 | --full-attention-interval 4 | --partial-rotary-factor 0.25 | --enable-dsa-indexer
    --swiglu-limit 7 | --no-post-layer-norm | --add-dense-bias | --share-mtp-embedding-and-output-weight | --handler-name One
"""
"""Flags that change training and that no row reads."""
DEFAULT = """
    --beta-fast 32 | --rope-scaling-beta-fast 32 | --beta-slow 1 | --cla-share-factor 1 | --embedding-multiplier-scale 1.0
    --dynamic-factor 1.0 | --moe-comm-aux-loss-coeff 0 | --padded-base-length 128 | --pre-tockens 65536 | --next-tockens 0 | --sparse-mode 0
    --tokenizer-padding-side right | --attention-mask-type causal | --cp-attention-mask-type causal | --pad-to-multiple-of 8
    --use-ascend-mc2 | --use-mc2 | --use-cp-send-recv-overlap | --context-parallel-algo hybrid_cp_algo | --swap-attention --swap-optimizer
    --moe-zero-memory level0 | --tokenizer-not-use-fast | --num-layer-list 2,4 | --use-deter-comp | --high-freq-factor 4.0
"""
"""Flags at their defaults, and flags of memory, speed and communication."""


def listed(words: str) -> list[str]:
    """Arguments that are divided by bars and lines."""
    return [one.strip() for one in words.strip().replace("\n", "|").split("|") if one.strip()]


@in_one(listed(MATTERS))
def test_what_changes_training_and_no_row_reads_keeps_a_check_from_clean(words: str) -> None:
    checklist = check(megatron(NEW, flags(words) | {"no-shared-storage": ""}), mindformers(NEW, {}))
    assert (checklist.exit_code, len(checklist.uncovered)) == (UNDECIDED, 1)
    assert ids(*(trap for side in checklist.sides for trap in side.traps)) == []


@in_one(listed(DEFAULT))
def test_what_is_a_default_or_changes_nothing_matters_to_nobody(words: str) -> None:
    configuration = command(words)
    assert [
        name for name, value in configuration.values.items() if name not in command("").values and matters(configuration, name, value)
    ] == []


def test_without_mindspeed_its_flags_are_strangers() -> None:
    words = f"torchrun pretrain_gpt.py {PLAIN} --stage sft --beta-quick 3"
    plain, forked = read_command(words, {}), read_command(f"{words} --no-shared-storage", {})
    assert (plain.fork, forked.fork) == ("", MINDSPEED_LLM)
    strangers = [{str(flag) for trap in check(side, side).sides[0].traps for flag in trap.arguments.values()} for side in (plain, forked)]
    assert all("--beta-quick" in "".join(map(str, names)) for names in strangers)
    assert ["--stage" in "".join(map(str, names)) for names in strangers] == [True, False]


@pytest.mark.parametrize(
    ("words", "fork"),
    [
        ("--rollout-batch-size 32 --n-samples-per-prompt 8 --kl-coef 0.0 --use-wandb", ""),
        ("--index-topk-freq 4 --index-skip-topk-offset 3 --scale-fmt ue8m0", ""),
        ("--max-new-tokens 20 --no-chat-template --profile-record-shapes", ""),
        ("--geglu", ""),
        ("--rollout-batch-size 32 --no-shared-storage", MINDSPEED_LLM),
    ],
)
def test_flags_that_other_projects_have_too_tell_no_fork(words: str, fork: str) -> None:
    """slime, Megatron-Bridge and Pai-Megatron-Patch have these."""
    stranger = read_command(f"torchrun train.py {PLAIN} --qk-layernorm {words}", {})
    assert (stranger.fork, meaning("norm_of_queries_and_keys", stranger)) == (fork, str(not fork))


def test_mindspeed_alone_builds_what_megatron_lm_builds() -> None:
    core = read_command(f"torchrun pretrain_gpt.py {PLAIN} --use-fused-rmsnorm --qk-layernorm", {})
    assert core.fork == MINDSPEED
    assert meaning("norm_of_queries_and_keys", core) == "True"
    assert not matters(core, "use_fused_rmsnorm", core.values["use_fused_rmsnorm"])


@pytest.mark.parametrize(
    ("imports", "fork"),
    [
        ("from mindspeed_llm import megatron_adaptor", MINDSPEED_LLM),
        ("import modellink", MINDSPEED_LLM),
        ("    import mindspeed.megatron_adaptor", MINDSPEED),
        ("# import mindspeed_llm", ""),
        ("import mindspeed_lookalike", ""),
    ],
)
def test_a_program_tells_what_it_is_of(imports: str, fork: str, tmp_path: Path) -> None:
    (tmp_path / "pretrain_gpt.py").write_text(f"import torch\n{imports}\n")
    script = f"torchrun pretrain_gpt.py {PLAIN} --stage sft\n"
    folder = tmp_path / "examples" / "mcore" / "model"
    folder.mkdir(parents=True)
    assert read_script(script, "train.sh", {}, (), folder).fork == fork
    assert read_script(script, "train.sh", {}, (), folder / "one" / "two").fork == ""


def test_a_boolean_flag_takes_no_value() -> None:
    with pytest.raises(ConfigurationError, match="takes no value"):
        command("--add-rmsnorm-offset yes")
    loose = read_script(f"torchrun pretrain_gpt.py {BASE} --seq-aux $(more)", "train.sh", {})
    assert loose.gaps
    told = read_script(f"torchrun pretrain_gpt.py {BASE} --rope-scaling-type $(more)", "train.sh", {})
    assert told.gaps == ()
    assert told.values["rope_scaling_type"].unknown


def test_a_scale_that_two_releases_take_from_another_flag_is_told() -> None:
    sides = [command(f"{SPARSE} {flag} 2.5") for flag in ("--routed-scaling-factor", "--moe-router-topk-scaling-factor")]
    told = [ids(*check(side, side).sides[0].traps) for side in sides]
    assert told == [["trap.scaling_by_groups"], []]


def test_post_training_normalises_queries_and_keys_without_a_spec() -> None:
    programs = ("pretrain_gpt.py", "posttrain_gpt.py")
    assert [meaning("norm_of_queries_and_keys", command("--qk-layernorm", program)) for program in programs] == ["False", "True"]


def test_a_record_of_mindspeed_llm_at_its_defaults_is_clean() -> None:
    told = {name: value.value for name, value in command("").values.items()}
    arguments = {name: str(value) for name, value in {**defaults_of(MINDSPEED_LLM), **told}.items()}
    changed = arguments | {"scale_emb": "12.0", "n_group": "4"}
    plain, other = (recorded({"side": "torch", "arguments": held}, "a") for held in (arguments, changed))
    assert (plain.fork, recorded({"side": "torch", "arguments": {**ARGUMENTS}}, "b").fork) == (MINDSPEED_LLM, "")
    assert check(plain, plain).uncovered == []
    assert [setting.name for _, setting in check(other, mindformers(NEW, {})).uncovered if setting.matters] == ["scale_emb"]
    assert meaning("groups_of_experts", other) == "4"


@pytest.mark.parametrize("words", ["--noop-layers a,b", "--num-layers 1000000000000", "--noop-layers 3:5", "--first-k-dense-replace many"])
def test_what_cannot_be_told_is_not_told(words: str) -> None:
    """And takes no time."""
    side = read_row(ROW["layers_with_experts"], command(f"{SPARSE} --moe-layer-freq 1 {words}"))
    assert rendered(side.shown) == "–"


def test_the_list_of_flags_is_whole() -> None:
    assert len(mindspeed.FLAGS) == 540
    assert set(mindspeed.FLAGS.values()) == {"nothing", "integer", "number", "text"}
    assert set(mindspeed.OWNERS.values()) == {"llm", "core", "both"}
    assert {name.replace("_", "-") for name in mindspeed.RENAMED} <= mindspeed.FLAGS.keys()
    assert mindspeed.FLAGS.keys() >= mindspeed.OTHERS
    assert flags_of("") is FLAGS
    assert flags_of(MINDSPEED).keys() == FLAGS.keys() | mindspeed.FLAGS.keys()
    assert all(defaults_of(MINDSPEED_LLM)[name] == value for name, value in ARGUMENTS.items())


def test_every_pattern_of_what_changes_nothing_is_of_a_flag_of_mindspeed() -> None:
    own = mindspeed.ARGUMENTS.keys() - ARGUMENTS.keys()
    patterns = [pattern for pattern, _ in changing_nothing()[MINDSPEED] if pattern != "deprecated_*"]
    assert [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in own)] == []
    keys = {key for row in ROW.values() if row.effect is Effect.RESULT for key in row.megatron.keys}
    free = [pattern for pattern, at in changing_nothing()[MINDSPEED] if at is None]
    assert [(key, pattern) for key in keys for pattern in free if fnmatchcase(key, pattern)] == []


def test_what_a_megatron_candidate_is_told_to_write_is_no_flag_of_mindspeed() -> None:
    reference = mindformers(LATENT, {"m.rope_scaling.original_max_position_embeddings": 8192, "m.n_shared_experts": 3})
    changes = [one.change for one in check(reference, megatron(LATENT, {})).checked if one.change is not None]
    keys = {edit.name.removeprefix("--") for change in changes for edit in change.edits if edit.framework == MEGATRON}
    assert keys
    assert keys & (mindspeed.FLAGS.keys() - FLAGS.keys()) == set()
