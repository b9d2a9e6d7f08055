"""What a check tells people to write: values that the key takes, that part no other row, and names that nearly are a framework's."""

from __future__ import annotations

import re
from typing import Any

import pytest

from align_hooks.checklist.change import takes
from align_hooks.checklist.judge import Checked, Outcome
from align_hooks.checklist.result import CLEAN, Checklist, check
from align_hooks.checklist.row import Effect
from align_hooks.configuration.megatron import FLAGS, read_command
from align_hooks.configuration.recorded import recorded
from align_hooks.configuration.values import MEGATRON, Configuration, Value
from align_hooks.report.check_text import headline
from checklist.exercises import EXERCISES, EXPERTS, LATENT, NEW, OLD, megatron, mindformers

SWITCHES = {name for name, kind in FLAGS.items() if kind == "nothing"}


def checked(style: str, flags: dict[str, Any], keys: dict[str, Any]) -> Checklist:
    """A base of the exercises, with other flags and keys."""
    return check(megatron(style, flags), mindformers(style, keys))


def row(checklist: Checklist, name: str) -> Checked:
    return next(one for one in checklist.checked if one.row.name == name)


def trapped(checklist: Checklist) -> str:
    return "\n".join(trap for side in checklist.sides for trap in side.traps)


def every_change() -> list[str]:
    """What every exercise is told to change, either way round."""
    found = []
    for one in EXERCISES:
        for left, right in ((True, True), (True, False), (False, True), (False, False)):
            flags, keys = one.flags if left else {}, one.same if right else one.other
            sides = megatron(one.style, flags), mindformers(one.style, keys)
            for pair in (sides, sides[::-1]):
                found += [change.change for change in check(*pair).checked if change.change]
    return sorted(set(found))


def test_nothing_that_is_told_is_written_where_it_cannot_stand() -> None:
    for change in every_change():
        if change.startswith(("make it come to", "MindFormers ", "Megatron-LM ", "leave --")):
            continue
        change = change.removeprefix("nothing alone: ").partition(";")[0]
        if change.startswith("leave --"):
            continue
        flag = re.fullmatch(r"(?:add )?--(\S+)(?: (.*))?", change)
        if flag is not None:
            assert bool(flag[2]) is not (flag[1] in SWITCHES), change
            continue
        key, _, value = change.partition(";")[0].partition(": ")
        assert re.fullmatch(r"[\w.]+", key), change
        assert re.fullmatch(r"\[.*\]|\S+", value), change
        if key.rpartition(".")[2].startswith(("use_", "enable_")):
            assert value in ("True", "False"), change


def test_a_rounding_row_is_not_mended_by_parting_a_row_that_changes_the_result() -> None:
    done = checked(NEW, {"bf16": None, "fp16": ""}, {"m.compute_dtype": "float16"})
    told = row(done, "type of the gradients' reduction")
    assert told.change != "params_dtype: float16"


def test_a_key_that_another_row_lives_on_is_not_told() -> None:
    done = checked(NEW, {"group-query-attention": "", "num-query-groups": 2}, {"m.num_key_value_head": 2})
    told = row(done, "n_kv_heads")
    assert told.change == "num_key_value_heads: 2"
    assert "num_key_value_head is a name that no row knows; num_key_value_heads is one" in trapped(done)


@pytest.mark.parametrize(
    ("flags", "keys", "trap"),
    [
        ({"swiglu": None, "swi-glu": ""}, {}, "--swi-glu is no flag of Megatron-LM 0.19; --swiglu is one"),
        ({"hidden-dropout": None, "hidden_dropout": 0.3}, {}, "--hidden_dropout is no flag of Megatron-LM 0.19; --hidden-dropout is one"),
        ({"my-own-switch": ""}, {}, "no flags of Megatron-LM 0.19: --my-own-switch"),
        ({}, {"optimiser.eps": 1e-6, "optimizer.eps": None}, "optimiser.eps is a name that no row knows; optimizer.eps is one"),
        ({}, {"m.normalization": "layernorm"}, "normalization: layernorm is refused by MindFormers 1.9, which knows LayerNorm and RMSNorm"),
        ({}, {"m.embedding_init_type": "bfloat16"}, "embedding_init_type has no effect"),
    ],
)
def test_what_only_looks_like_a_setting_is_a_trap(flags: dict[str, Any], keys: dict[str, Any], trap: str) -> None:
    assert trap in trapped(checked(NEW, flags, keys))
    assert trap not in trapped(checked(NEW, {}, {}))


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
    (told,) = [one for one in before.checked if one.outcome is Outcome.DIFFERENT]
    assert (told.row.name, told.change) == ("rows of the embedding", "vocab_size: 1024")
    key, _, value = told.change.partition(": ")
    after = checked(style, PADDED, {**planted, f"m.{key}": int(value)})
    assert [one.row.name for one in after.checked if one.outcome in (Outcome.DIFFERENT, Outcome.NOT_TOLD)] == []
    assert after.exit_code == CLEAN
    assert not [one for one in after.checked if "multiple of 16" in one.advised]


@pytest.mark.parametrize(
    ("style", "trap"),
    [
        (OLD, "padded_vocab_size is passed over by LlamaConfig, which reads vocab_size"),
        (LATENT, "padded_vocab_size has no effect"),
        (EXPERTS, "padded_vocab_size is refused by MindFormers 1.9"),
    ],
)
def test_the_padded_size_under_another_name_is_no_size(style: str, trap: str) -> None:
    done = checked(style, PADDED, {"m.vocab_size": 1000, "m.padded_vocab_size": 1024})
    assert (row(done, "rows of the embedding").candidate.shown, row(done, "rows of the embedding").change) == ("1000", "vocab_size: 1024")
    assert trapped(done).count("padded_vocab_size") == 1
    assert trap in trapped(done)


def test_chatglm_has_its_size_under_that_name() -> None:
    done = checked(OLD, PADDED, {"m.type": "ChatGLM2Config", "m.vocab_size": None, "m.padded_vocab_size": 1024})
    assert row(done, "rows of the embedding").outcome is Outcome.SAME


def test_rows_that_live_on_one_flag_are_told_alike() -> None:
    done = check(megatron(OLD, PADDED), megatron(OLD, {"vocab-size": 500, "make-vocab-size-divisible-by": 128}))
    assert {row(done, name).change for name in ("vocab_size", "rows of the embedding")} == {"--vocab-size 1000"}


@pytest.mark.parametrize(("record", "rows"), [({"vocab_size": 256}, 256), ({"vocab_size": 257}, 384)])
def test_a_record_of_null_tokenizer_is_advised_by_the_rows_that_were_built(record: dict[str, int], rows: int) -> None:
    """Until 0.17 Megatron's NullTokenizer added one id, so that 256 made 384 rows; the record holds what was built."""
    facts = {"side": "torch", "model": record, "padded_vocabulary": rows, "arguments": {"vocab_size": "256"}}
    done = check(recorded(facts, "run"), mindformers(OLD, {"m.vocab_size": 250}))
    assert row(done, "rows of the embedding").change == f"vocab_size: {rows}"
    assert row(done, "vocab_size").outcome is Outcome.HARMLESS
    fed = facts | {"side": "ms", "arguments": {"model.model_config.vocab_size": str(rows)}}
    told = check(recorded(facts, "run"), recorded(fed, "other"))
    assert {row(told, name).outcome for name in ("vocab_size", "rows of the embedding")} == {Outcome.SAME}


def test_names_that_the_training_graph_does_not_read_do_not_count() -> None:
    done = checked(EXPERTS, {}, {"m.use_fused_ops_topkrouter": True})
    assert row(done, "use_fused_ops_topkrouter").candidate.shown == "False"
    done = checked(LATENT, {}, {"m.n_group": None, "m.n_groups": 4})
    assert row(done, "groups of experts").candidate.shown == "8"
    assert "n_groups has no effect" in trapped(done)


def test_an_auxiliary_loss_that_mindformers_has_not_is_not_told() -> None:
    done = checked(EXPERTS, {"moe-router-load-balancing-type": "aux_loss", "moe-aux-loss-coeff": 0.01}, {"m.moe_aux_loss_coeff": 0.01})
    told = next(one for one in done.checked if "moe_router_load_balancing_type" in "".join(one.row.mindformers.keys))
    assert told.change == "MindFormers has no setting that makes it aux_loss"


def test_flags_of_samples_in_a_run_of_iterations_are_not_worked_out() -> None:
    done = checked(OLD, {"train-iters": None, "train-samples": 100, "lr-warmup-iters": 3}, {})
    assert done.courses[0].same is None
    assert "--lr-warmup-iters is refused by Megatron-LM where the run is counted in samples" in done.courses[0].text


def test_the_headline_counts_the_rows_that_are_shown() -> None:
    done = checked(OLD, {"lr": 2e-3}, {"m.rms_norm_eps": 1e-6})
    shown = sum(one.row.effect is Effect.RESULT and one.outcome.value == "differs" for one in done.checked)
    assert headline(done).startswith(f": {shown} settings differ and change the result; learning rate of every step differs")


@pytest.mark.parametrize(
    ("key", "value", "fits"),
    [
        *(("swiglu", True, True), ("swiglu", "swiglu", False), ("add_bias_linear", False, True), ("add_bias_linear", 1, False)),
        *(("num_layers", 2, True), ("num_layers", 2.5, False), ("num_layers", True, False), ("lr", 1, True), ("lr", "dynamic", False)),
        *(("normalization", "RMSNorm", True), ("normalization", "RMSNorm (fused)", False), ("num_experts", None, True)),
    ],
)
def test_what_a_flag_takes(key: str, value: Any, fits: bool) -> None:
    assert takes(key, value, Configuration(MEGATRON, "a.sh", {"num_layers": Value(2)})) is fits
