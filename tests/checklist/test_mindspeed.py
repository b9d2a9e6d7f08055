"""MindSpeed-LLM's own arguments: what each means where Megatron-LM has none of its name, beside what holds without it."""

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.result import UNDECIDED, check
from align_hooks.checklist.row import Effect
from align_hooks.checklist.tables import ROW
from align_hooks.checklist.uncovered import changing_nothing, matters
from align_hooks.configuration import mindspeed
from align_hooks.configuration.megatron import ARGUMENTS, FLAGS, RENAMED, defaults_of, flags_of, read_command, read_script
from align_hooks.configuration.recorded import recorded
from align_hooks.configuration.values import MEGATRON, MINDSPEED, MINDSPEED_LLM, Configuration, ConfigurationError
from align_hooks.data_file import sections
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


def canonical(row: str, configuration: Configuration) -> str:
    """What a side holds of a row, as a report shows it."""
    return rendered(ROW[row].read(configuration).shown)


TABLES = sections(Path(__file__).with_name("mindspeed.txt"))
READ = [[cell.strip().replace("SPARSE", SPARSE) for cell in line.split("|")] for line in TABLES["read"]]


@in_one(READ)
def test_a_flag_is_read_as_what_it_builds(row: str, beside: str, flag: str, with_it: str, without: str) -> None:
    assert (canonical(row, command(f"{beside} {flag}")), canonical(row, command(beside))) == (with_it, without)
    configuration = command(f"{beside} {flag}")
    name = flag.split()[0][2:].replace("-", "_")
    attribute = mindspeed.RENAMED.get(name, RENAMED.get(name, (name, None)))[0]
    assert attribute in ROW[row].read(configuration).keys


@pytest.mark.parametrize("model", [head for head in TABLES if head.startswith("model: ")])
def test_what_a_script_of_mindspeed_llm_builds(model: str) -> None:
    configuration = command(" ".join(line for line in TABLES[model] if line.startswith("--")))
    facts = dict(line.split(": ", 1) for line in TABLES[model] if not line.startswith("--"))
    assert facts
    assert {row: canonical(row, configuration) for row in facts} == facts


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
    setting_differences = (RowOutcome.DIFFERENT, RowOutcome.UNKNOWN)
    assert [one.row.id for one in checklist.checked if one.outcome in setting_differences and one.row.effect is Effect.RESULT] == []
    assert [setting.name for _, setting in checklist.uncovered if setting.matters] == []
    assert ids(*(pitfall for side in checklist.sides for pitfall in side.pitfalls)) == []


def listed(head: str) -> list[str]:
    """Arguments of a table that are divided by bars and lines."""
    return [one.strip() for line in TABLES[head] for one in line.split("|") if one.strip()]


@in_one(listed("matter"))
def test_what_changes_training_and_no_row_reads_keeps_a_check_from_clean(words: str) -> None:
    checklist = check(megatron(NEW, flags(words) | {"no-shared-storage": ""}), mindformers(NEW, {}))
    assert (checklist.exit_code, len(checklist.uncovered)) == (UNDECIDED, 1)
    assert ids(*(pitfall for side in checklist.sides for pitfall in side.pitfalls)) == []


@in_one(listed("matter to nobody"))
def test_what_is_a_default_or_changes_nothing_matters_to_nobody(words: str) -> None:
    configuration = command(words)
    assert [
        name for name, value in configuration.values.items() if name not in command("").values and matters(configuration, name, value)
    ] == []


def test_without_mindspeed_its_flags_are_strangers() -> None:
    words = f"torchrun pretrain_gpt.py {PLAIN} --stage sft --beta-quick 3"
    plain, forked = read_command(words, {}), read_command(f"{words} --no-shared-storage", {})
    assert (plain.fork, forked.fork) == ("", MINDSPEED_LLM)
    strangers = [
        {str(flag) for pitfall in check(side, side).sides[0].pitfalls for flag in pitfall.arguments.values()} for side in (plain, forked)
    ]
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
    assert (stranger.fork, canonical("norm_of_queries_and_keys", stranger)) == (fork, str(not fork))


def test_mindspeed_alone_builds_what_megatron_lm_builds() -> None:
    core = read_command(f"torchrun pretrain_gpt.py {PLAIN} --use-fused-rmsnorm --qk-layernorm", {})
    assert core.fork == MINDSPEED
    assert canonical("norm_of_queries_and_keys", core) == "True"
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
    told = [ids(*check(side, side).sides[0].pitfalls) for side in sides]
    assert told == [["pitfall.scaling_by_groups"], []]


def test_post_training_normalises_queries_and_keys_without_a_spec() -> None:
    programs = ("pretrain_gpt.py", "posttrain_gpt.py")
    assert [canonical("norm_of_queries_and_keys", command("--qk-layernorm", program)) for program in programs] == ["False", "True"]


def test_a_record_of_mindspeed_llm_at_its_defaults_is_clean() -> None:
    told = {name: value.value for name, value in command("").values.items()}
    arguments = {name: str(value) for name, value in {**defaults_of(MINDSPEED_LLM), **told}.items()}
    changed = arguments | {"scale_emb": "12.0", "n_group": "4"}
    plain, other = (recorded({"side": "torch", "arguments": held}, "a") for held in (arguments, changed))
    assert (plain.fork, recorded({"side": "torch", "arguments": {**ARGUMENTS}}, "b").fork) == (MINDSPEED_LLM, "")
    assert check(plain, plain).uncovered == []
    assert [setting.name for _, setting in check(other, mindformers(NEW, {})).uncovered if setting.matters] == ["scale_emb"]
    assert canonical("groups_of_experts", other) == "4"


@pytest.mark.parametrize("words", ["--noop-layers a,b", "--num-layers 1000000000000", "--noop-layers 3:5", "--first-k-dense-replace many"])
def test_what_cannot_be_told_is_not_told(words: str) -> None:
    """And takes no time."""
    side = ROW["layers_with_experts"].read(command(f"{SPARSE} --moe-layer-freq 1 {words}"))
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
