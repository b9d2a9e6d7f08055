"""What a check tells people to write: values that the key takes, that part no other row, and names that nearly are a framework's."""

import re
from typing import Any

import pytest

from align_hooks.checklist.edits import Action, Edit, Form, SuggestedEdit, block
from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.resolver import accepts
from align_hooks.checklist.result import CLEAN, Checklist, Scheduled, check
from align_hooks.checklist.row import Effect
from align_hooks.configuration.megatron import CHOICES, FLAGS, read_command
from align_hooks.configuration.recorded import recorded
from align_hooks.configuration.values import MEGATRON, Configuration, Value
from align_hooks.messages import Message, Side, all_of, message, rendered, terms
from align_hooks.report.check import headline
from checklist.exercises import EXERCISES, EXPERTS, LATENT, NEW, OLD, checked, megatron, mindformers, row, to_change
from chosen import slow

SWITCHES = {name for name, kind in FLAGS.items() if kind == "nothing"}


def trapped(checklist: Checklist) -> list[Message]:
    return [pitfall for side in checklist.sides for pitfall in side.pitfalls]


def every_change(nth: int) -> list[SuggestedEdit]:
    """What each ``nth`` exercise is told to change, either way round."""
    result = []
    for exercise in EXERCISES[::nth]:
        for left, right in ((True, True), (True, False), (False, True), (False, False)):
            flags, keys = exercise.flags if left else {}, exercise.same if right else exercise.other
            sides = megatron(exercise.style, flags), mindformers(exercise.style, keys)
            for pair in (sides, sides[::-1]):
                result += [one.change for one in check(*pair).checked if one.change is not None]
    return result


EXPERT = "--num-experts 8 --moe-router-topk 2"
TO_MEGATRON: dict[str, tuple[str, str, str]] = {
    f"--bf16 {EXPERT} | --bf16 {EXPERT} --moe-router-dtype fp32": ("router_dense_type", "leave --moe-router-dtype out", ""),
    f"--bf16 {EXPERT} | {EXPERT}": ("type_in_which_the_residual_is_added", "add --bf16", ""),
    f"{EXPERT} --moe-token-dispatcher-type alltoall_seq --no-shared-storage | {EXPERT}": (
        *("token_dispatcher", "Megatron-LM has no setting that makes it alltoall_seq", "--moe-token-dispatcher-type alltoall_seq"),
    ),
}
"""Flags of a reference and of Megatron-LM's candidate: a row, what it is told, and what it is told of MindSpeed-LLM's candidate."""


def to_megatron(words: str, more: str = "") -> Checklist:
    """A check of two commands that are divided by a bar."""
    reference, _, candidate = words.partition("|")
    command = "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --lr 1e-3"
    return check(read_command(f"{command} {reference}", {}), read_command(f"{command} {candidate} {more}", {}))


@pytest.mark.parametrize("words", TO_MEGATRON)
def test_megatron_is_told_what_its_parser_takes(words: str) -> None:
    name, told, forked = TO_MEGATRON[words]
    for more, expected in (("", told), ("--no-shared-storage", forked or told)):
        change = row(to_megatron(words, more), name).change
        assert change is not None and expected in rendered(change.words)


@pytest.mark.parametrize("nth", [11, slow(1)])
def test_nothing_that_is_told_is_written_where_it_cannot_stand(nth: int) -> None:
    changes = [*every_change(nth), *(one.change for words in TO_MEGATRON for one in to_megatron(words).checked if one.change is not None)]
    assert {change.action for change in changes} == set(Action)
    for edit in (edit for change in changes for edit in change.edits if edit.form is not Form.LEAVE_OUT):
        if edit.framework == MEGATRON:
            assert (edit.form is Form.ADD) is (edit.name.removeprefix("--") in SWITCHES), edit
            assert edit.form is Form.ADD or edit.value in CHOICES.get(edit.name.removeprefix("--"), [edit.value]), edit
            continue
        assert edit.form is Form.WRITE
        assert re.fullmatch(r"[\w.]+", edit.key), edit
        assert re.fullmatch(r"\[.*\]|'[^']*'|\S+", edit.written), edit
        if edit.key.rpartition(".")[2].startswith(("use_", "enable_")):
            assert edit.value in (True, False), edit


@pytest.mark.parametrize(
    ("flags", "keys", "pitfall"),
    [
        (
            *({"group-query-attention": "", "num-query-groups": 2}, {"m.num_key_value_head": 2}),
            message("pitfall.no_name", place="new.yaml:17", name="num_key_value_head", known="num_key_value_heads"),
        ),
        ({"swiglu": None, "swi-glu": ""}, {}, message("pitfall.no_flag", place="the command:1 --swi-glu", flag="--swiglu")),
        (
            *({"hidden-dropout": None, "hidden_dropout": 0.3}, {}),
            message("pitfall.no_flag", place="the command:1 --hidden_dropout", flag="--hidden-dropout"),
        ),
        ({"my-own-switch": ""}, {}, message("pitfall.no_flags", flags=terms(["--my-own-switch"]))),
        (
            *({}, {"optimiser.eps": 1e-6, "optimizer.eps": None}),
            message("pitfall.no_name", place="new.yaml:22", name="optimiser.eps", known="optimizer.eps"),
        ),
        (
            *({}, {"m.normalization": "layernorm"}),
            message(
                "pitfall.refused_value", place="new.yaml:15", name="normalization", value="layernorm", known=all_of("LayerNorm", "RMSNorm")
            ),
        ),
        ({}, {"m.embedding_init_type": "bfloat16"}, message("pitfall.no_effect", place="new.yaml:9", name="embedding_init_type")),
    ],
)
def test_what_only_looks_like_a_setting_is_a_trap(flags: dict[str, Any], keys: dict[str, Any], pitfall: Message) -> None:
    assert trapped(checked(NEW, flags, keys)) == [pitfall]
    assert trapped(checked(NEW, {}, {})) == []


def test_a_flag_with_the_wrong_dashes_sets_nothing() -> None:
    read = read_command("torchrun pretrain_gpt.py --num-layers 2 --hidden_dropout 0.3 --override-opt_param-scheduler", {})
    assert "hidden_dropout" not in read.values
    assert read.values["--hidden_dropout"].value == 0.3
    assert read.values["override_opt_param_scheduler"].value is True


PADDED = {"vocab-size": 1000, "make-vocab-size-divisible-by": 128}
"""Megatron pads these to 1024 rows."""


@pytest.mark.parametrize("style", [OLD, NEW, EXPERTS, LATENT])
@pytest.mark.parametrize("planted", [{"m.vocab_size": 1000}, {"m.vocab_size": 512}, {"m.vocab_size": None}, {"m.vocab_size": 1280}])
def test_a_padded_vocabulary_is_advised_once_and_is_clean_as_told(style: str, planted: dict[str, Any]) -> None:
    before = checked(style, PADDED, planted)
    (told,) = [one for one in before.checked if one.outcome is RowOutcome.DIFFERENT]
    assert (told.row.id, to_change(told)) == ("rows_of_the_embedding", "vocab_size: 1024")
    assert told.change is not None
    after = checked(style, PADDED, {**planted, **{edit.key: edit.value for edit in told.change.edits}})
    assert [one.row.id for one in after.checked if one.outcome in (RowOutcome.DIFFERENT, RowOutcome.UNKNOWN)] == []
    assert after.exit_code == CLEAN
    assert not [one for one in after.checked if one.advised and one.row.id == "rows_of_the_embedding"]


@pytest.mark.parametrize(
    ("style", "pitfall"),
    [
        (OLD, message("pitfall.padded_size", place="old.yaml:17")),
        (LATENT, message("pitfall.no_effect", place="latent.yaml:27", name="padded_vocab_size")),
        (EXPERTS, message("pitfall.refused", place="experts.yaml:24", name="padded_vocab_size", instead="vocab_size")),
    ],
)
def test_the_padded_size_under_another_name_is_no_size(style: str, pitfall: Message) -> None:
    done = checked(style, PADDED, {"m.vocab_size": 1000, "m.padded_vocab_size": 1024})
    rows = row(done, "rows_of_the_embedding")
    assert (rows.candidate.shown, to_change(rows)) == ("1000", "vocab_size: 1024")
    assert trapped(done) == [pitfall]


def test_chatglm_has_its_base_as_a_ratio() -> None:
    """v1.5.0 mindformers/models/glm2/glm2_modules.py:48: the base is 10000 times rope_ratio."""
    glm = {"m.type": "ChatGLM2Config", "m.theta": None}
    for ratio, base in ((None, 10000), (50, 500000)):
        other = checked(OLD, {"rotary-base": 5000000}, glm | {"m.rope_ratio": ratio})
        assert row(other, "rotary_base").candidate.canonical == base
        assert to_change(row(other, "rotary_base")) == "rope_ratio: 500"


def test_a_long_value_is_shown_cut_and_written_whole() -> None:
    paths = " ".join(f"/data/part_{at:04}_text_document" for at in range(200))
    edit = Edit("MindFormers", "train_dataset.data_path", paths)
    assert len(rendered(edit.words)) < 300
    assert paths in block([edit])


def test_chatglm_has_its_size_under_that_name() -> None:
    done = checked(OLD, PADDED, {"m.type": "ChatGLM2Config", "m.vocab_size": None, "m.padded_vocab_size": 1024})
    assert row(done, "rows_of_the_embedding").outcome is RowOutcome.SAME


def test_rows_that_live_on_one_flag_are_told_alike() -> None:
    done = check(megatron(OLD, PADDED), megatron(OLD, {"vocab-size": 500, "make-vocab-size-divisible-by": 128}))
    assert {to_change(row(done, name)) for name in ("vocab_size", "rows_of_the_embedding")} == {"--vocab-size 1000"}


@pytest.mark.parametrize(("record", "rows"), [({"vocab_size": 256}, 256), ({"vocab_size": 257}, 384)])
def test_a_record_of_null_tokenizer_is_advised_by_the_rows_that_were_built(record: dict[str, int], rows: int) -> None:
    """Until 0.17 Megatron's NullTokenizer added one id, so that 256 made 384 rows; the record holds what was built."""
    facts = {"side": "torch", "model": record, "padded_vocabulary": rows, "arguments": {"vocab_size": "256"}}
    done = check(recorded(facts, "run"), mindformers(OLD, {"m.vocab_size": 250}))
    assert to_change(row(done, "rows_of_the_embedding")) == f"vocab_size: {rows}"
    assert row(done, "vocab_size").outcome is RowOutcome.HARMLESS
    fed = facts | {"side": "ms", "arguments": {"model.model_config.vocab_size": str(rows)}}
    told = check(recorded(facts, "run"), recorded(fed, "other"))
    assert {row(told, name).outcome for name in ("vocab_size", "rows_of_the_embedding")} == {RowOutcome.SAME}


def test_names_that_the_training_graph_does_not_read_do_not_count() -> None:
    done = checked(EXPERTS, {}, {"m.use_fused_ops_topkrouter": True})
    assert row(done, "use_fused_ops_topkrouter").candidate.shown == "False"
    done = checked(LATENT, {}, {"m.n_group": None, "m.n_groups": 4})
    assert row(done, "groups_of_experts").candidate.shown == "8"
    assert trapped(done) == [message("pitfall.no_effect", place="latent.yaml:20", name="n_groups")]


def test_flags_of_samples_in_a_run_of_iterations_are_not_worked_out() -> None:
    done = checked(OLD, {"train-iters": None, "train-samples": 100, "lr-warmup-iters": 3}, {})
    assert done.courses[0].same is None
    why = message("untold.counted_in_samples", flag="--lr-warmup-iters")
    assert done.courses[0].text == message("course.untold_of", side=Side.REFERENCE, why=why)


def test_the_headline_counts_the_rows_that_are_shown() -> None:
    done = checked(OLD, {"lr": 2e-3}, {"m.rms_norm_eps": 1e-6})
    shown = sum(one.row.effect is Effect.RESULT and one.outcome is RowOutcome.DIFFERENT for one in done.checked)
    assert headline(done).parts[:2] == (
        message("headline.settings", count=shown),
        message("headline.course", course=Scheduled.LEARNING_RATE),
    )


@pytest.mark.parametrize(
    ("key", "value", "fits"),
    [
        *(("swiglu", True, True), ("swiglu", "swiglu", False), ("add_bias_linear", False, True), ("add_bias_linear", 1, False)),
        *(("num_layers", 2, True), ("num_layers", 2.5, False), ("num_layers", True, False), ("lr", 1, True), ("lr", "dynamic", False)),
        *(("normalization", "RMSNorm", True), ("normalization", "RMSNorm (fused)", False), ("num_experts", None, True)),
    ],
)
def test_what_a_flag_takes(key: str, value: Any, fits: bool) -> None:
    assert accepts(key, value, Configuration(MEGATRON, "a.sh", {"num_layers": Value(2)})) is fits


def test_traps_stand_in_the_order_of_their_lines() -> None:
    keys = {"m.softmax_compute_dtype": "float16", "m.embedding_init_type": "bfloat16", "m.n_groups": 2, "m.rope_thet": 5}
    found = trapped(checked(NEW, {}, keys | {"context.deterministic": "ON"}))
    lines = [int(str(pitfall.arguments["place"]).rpartition(":")[2]) for pitfall in found if "place" in pitfall.arguments]
    assert len(lines) > 3 and lines == sorted(lines)
