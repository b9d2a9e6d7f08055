"""What only a record can tell: built types, which weights decay, versions, variables, and the batches themselves."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from align_hooks.checklist.judge import JudgedRow, RowOutcome, judge
from align_hooks.checklist.result import Scheduled, check
from align_hooks.configuration.recorded import recorded
from align_hooks.configuration.values import Configuration
from align_hooks.errors import RecordError
from align_hooks.messages import Message, Side, message
from align_hooks.record.batch_statistics import BatchStatistics, side_by_side, statistics_of, weigh_alike
from checklist.exercises import NEW, OLD, megatron, mindformers
from worded import ids

DECAYS, SPARED = ["model.embed_tokens.weight", "lm_head.weight"], ["model.norm.weight", "model.layers.0.input_layernorm.weight"]


def facts(side: str, **more: Any) -> dict[str, Any]:
    """A run.json, of either framework."""
    base = megatron(OLD, {}) if side == "torch" else mindformers(OLD, {})
    groups = [{"weight_decay": 0.1, "betas": [0.9, 0.95], "eps": 1e-8, "parameters": DECAYS}]
    groups.append({"weight_decay": 0.0, "betas": [0.9, 0.95], "eps": 1e-8, "parameters": SPARED})
    held: dict[str, Any] = {
        "side": side,
        "arguments": {name: str(value.value) for name, value in base.values.items()},
        "optimizer": {"type": "AdamW", "clip_grad": 1.0, "groups": groups},
        "layers": {"model.embed_tokens.weight": {"class": "Embedding", "weight": "float32", "compute": "float32"}},
        "classes": ["FlashAttention"],
        "settings": {},
    }
    return held | more


def pair(one: dict[str, Any], other: dict[str, Any]) -> tuple[Configuration, Configuration]:
    return recorded(one, "reference"), recorded(other, "candidate")


def row(name: str, one: dict[str, Any], other: dict[str, Any]) -> JudgedRow:
    return next(result for result in judge(*pair(one, other)) if result.row.id == name)


def test_two_honest_records_are_clean() -> None:
    result = check(*pair(facts("torch"), facts("ms")))
    assert (result.differing, result.exit_code) == ([], 0)


@pytest.mark.parametrize("sides", [("torch", "ms"), ("ms", "torch"), ("torch", "torch"), ("ms", "ms")])
def test_which_weights_decay_is_taken_from_the_optimizers_by_name(sides: tuple[str, str]) -> None:
    one, other = (facts(side) for side in sides)
    assert row("weights_that_decay", one, other).outcome is RowOutcome.SAME
    other["optimizer"]["groups"] = [{"weight_decay": 0.1, "parameters": [*DECAYS, *SPARED]}]
    result = row("weights_that_decay", one, other)
    assert result.outcome is RowOutcome.DIFFERENT
    assert len(result.candidate.canonical) == 4
    assert result.why == message("apart.decays_and_more", name="model.layers.0.input_layernorm.weight", more=1)
    groups = ((0.1, [*DECAYS, SPARED[0]]), (0.0, SPARED[1:]))
    one["optimizer"]["groups"] = [{"weight_decay": decay, "parameters": names} for decay, names in groups]
    assert row("weights_that_decay", one, other).why == message("apart.decays_only", name="model.layers.0.input_layernorm.weight")


def test_an_embedding_in_float32_against_bfloat16_is_seen_as_in_the_guides_own_case() -> None:
    one, other = facts("torch"), facts("ms")
    one["layers"] = {"model.embed_tokens.weight": {"compute": "bfloat16"}, "model.layers.*.mlp.up_proj.weight": {"compute": "bfloat16"}}
    other["layers"] = {"model.embed_tokens.weight": {"compute": "float32"}, "model.layers.*.mlp.up_proj.weight": {"compute": "bfloat16"}}
    result = row("types_that_the_built_layers_compute_in", one, other)
    assert (result.outcome, result.why.id) == (RowOutcome.ROUNDING, "apart.types")
    assert dict(result.why.arguments) == {"name": "model.embed_tokens.weight", "reference": "bfloat16", "candidate": "float32"}


def test_the_built_attention_core_counts_before_the_switch() -> None:
    one, other = facts("torch", classes=["TEDotProductAttention"]), facts("ms", classes=["LLamaAttention"])
    assert row("use_flash_attention", one, other).outcome is RowOutcome.ROUNDING
    assert row("use_flash_attention", one, facts("ms", classes=["FlashAttention"])).outcome is RowOutcome.SAME


def test_what_was_built_counts_before_what_was_written() -> None:
    one, other = facts("torch"), facts("ms", model={"num_hidden_layers": 3})
    result = row("num_layers", one, other)
    assert (result.outcome, result.candidate.shown) == (RowOutcome.DIFFERENT, "3")


@pytest.mark.parametrize(
    ("versions", "advised"),
    [
        ({"mindformers": "1.9.0", "mindspore": "2.9.0"}, False),
        ({"mindformers": "1.9.0", "mindspore": "2.7.0"}, True),
        ({"mindformers": "2.1.0", "mindspore": "2.10.0"}, True),
    ],
)
def test_versions_that_belong_together(versions: dict[str, str], advised: bool) -> None:
    one, other = facts("torch", versions={"megatron-core": "0.19.2"}), facts("ms", versions=versions)
    assert bool(row("mindspore_beside_mindformers", one, other).advised) is advised
    assert row("framework", one, other).reference.shown == "megatron-core 0.19.2"


@pytest.mark.parametrize(("mode", "advised"), [("INFNAN_MODE", False), ("SATURATION_MODE", True), (None, False)])
def test_overflow_mode(mode: str | None, advised: bool) -> None:
    environment = {"MS_ASCEND_CHECK_OVERFLOW_MODE": {"value": mode, "effective": True}}
    result = row("MS_ASCEND_CHECK_OVERFLOW_MODE", facts("torch"), facts("ms", environment=environment))
    assert bool(result.advised) is advised
    assert result.outcome is (RowOutcome.BY_HAND if mode is None else RowOutcome.ALONE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("HCCL_DETERMINISTIC", "false"), ("ASCEND_LAUNCH_BLOCKING", "0"), ("NCCL_ALGO", "Tree")),
        *(("CUBLAS_WORKSPACE_CONFIG", ":0:0"), ("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "1")),
    ],
)
def test_variables_are_held_against_the_advice(name: str, value: str) -> None:
    environment = {name: {"value": value, "effective": True}}
    assert row(name, facts("torch", environment=environment), facts("ms")).advised
    assert not row(name, facts("torch"), facts("ms")).advised


def test_determinism_is_read_back_from_the_frameworks() -> None:
    one = facts("torch", determinism={"torch.are_deterministic_algorithms_enabled": True})
    other = facts("ms", determinism={"mindspore.get_context(deterministic)": "ON"})
    assert row("deterministic_algorithms", one, other).outcome is RowOutcome.SAME
    other["determinism"]["mindspore.get_context(deterministic)"] = "OFF"
    assert row("deterministic_algorithms", one, other).outcome is RowOutcome.ROUNDING


def test_weights_of_the_other_run_are_the_same_weights() -> None:
    one, other = facts("torch"), facts("ms")
    for side, name in ((one, "load"), (other, "load_checkpoint")):
        side["arguments"].pop(name)
    assert row("load", one, other).advised == (Side.REFERENCE, Side.CANDIDATE)
    other["settings"] = {"load_weights": "/runs/megatron@0"}
    assert row("load", one, other).advised == ()


def test_data_settings_do_no_harm_where_batches_were_replayed() -> None:
    one, other = facts("torch"), facts("ms", settings={"replay_batches": "/runs/megatron"})
    other["arguments"]["train_dataset.data_loader.config.split"] = "9,1,0"
    result = row("split", one, other)
    assert (result.outcome, result.why.id) == (RowOutcome.HARMLESS, "harmless.replayed")


def test_of_one_framework_what_no_row_covers_is_compared_all_the_same() -> None:
    one, other = facts("torch"), facts("torch")
    other["arguments"]["quantum_entanglement"] = "True"
    assert check(*pair(one, other)).setting_differences == (("quantum_entanglement", "–", "True"),)
    assert check(*pair(one, facts("ms"))).setting_differences == ()


def test_a_record_made_by_hand_says_so() -> None:
    with pytest.raises(RecordError, match=r"holds no run\.json"):
        recorded({}, "runs/by_hand")


TOKENS = np.arange(40, 104).reshape(2, 32)


def batches(*steps: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Batches whose labels are the next token and whose tokens all count, each bent by a step's own arrays."""
    for step, own in enumerate(steps):
        tokens = own.get("tokens", TOKENS + 64 * step)
        yield step, {"tokens": tokens, "labels": tokens + 1, "loss_mask": np.ones(np.shape(tokens)), **own}


def place(step: int, row: int) -> Message:
    return message("batches.place", step=step, iteration=step + 1, row=row)


def seen(*steps: dict[str, Any], vocabulary: int | None = 1000, **special: int) -> BatchStatistics:
    return statistics_of(batches(*steps), vocabulary, special)


def test_an_id_in_the_padding_of_the_embedding_is_noted_and_reads_nothing_beyond_it() -> None:
    for rows, where in ((168, "notes"), (167, "problems"), (None, "problems")):
        result = statistics_of(batches({}, {}), 167, {}, rows=rows)
        assert result.largest == 167
        assert ids(*getattr(result, where)) == ["batches.in_the_padding" if where == "notes" else "batches.above"]


def test_honest_batches_have_no_problems() -> None:
    result = seen({}, {})
    assert (result.problems, result.notes) == ([], [])
    assert (result.rows, result.tokens, result.counted, result.smallest, result.largest) == (4, 128, 128, 40, 167)
    assert (result.shifted, result.pairs) == (124, 124)


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"tokens": TOKENS - 41}, message("batches.below", id=-1)),
        ({"tokens": TOKENS + 1000}, message("batches.above", id=1103, last=999)),
        ({"labels": TOKENS}, message("batches.not_shifted", labels=62, pairs=62)),
        ({"loss_mask": np.zeros((2, 32))}, message("batches.nothing_counts")),
        ({"loss_mask": np.array([[1.0] * 32, [0.0] * 32])}, message("batches.row_does_not_count", place=place(0, 1))),
        ({"tokens": np.array([[7] * 32, [*range(50, 82)]])}, message("batches.few_ids", place=place(0, 0), different=1, ids=32)),
    ],
)
def test_what_no_training_wants_is_told(arrays: dict[str, Any], problem: Message) -> None:
    assert problem in seen(arrays).problems


def test_labels_that_do_not_count_need_not_be_the_next_token() -> None:
    labels, mask = TOKENS + 1, np.ones((2, 32))
    labels[0, 5], mask[0, 5] = -100, 0.0
    result = seen({"labels": labels, "loss_mask": mask})
    assert (result.problems, result.shifted, result.pairs) == ([], 61, 61)
    labels[0, 5], mask[0, 5] = 7, 1.0
    assert seen({"labels": labels, "loss_mask": mask}).notes == [message("batches.documents_meet", labels=1, pairs=62)]


def test_labels_below_zero_do_not_count_whatever_the_mask_says() -> None:
    labels = TOKENS + 1
    labels[0, :16] = -100
    result = seen({"labels": labels})
    assert (result.problems, result.counted, result.tokens) == ([], 48, 64)


def test_samples_that_occur_twice_are_noted() -> None:
    twice = {"tokens": np.array([TOKENS[0], TOKENS[0]])}
    assert seen(twice).notes == [message("batches.repeats", count=1, place=place(0, 0), other=place(0, 1))]


@pytest.mark.parametrize(
    ("arrays", "note"),
    [
        ({"loss_mask": np.ones(3)}, message("batches.other_shape", name="loss_mask", step=0, iteration=1)),
        ({"tokens": TOKENS.astype(float)}, message("batches.no_tokens", step=0, iteration=1)),
        ({"labels": np.ones((2, 31), int)}, message("batches.other_shape", name="labels", step=0, iteration=1)),
    ],
)
def test_arrays_that_do_not_fit_are_noted(arrays: dict[str, Any], note: Message) -> None:
    assert note in seen(arrays).notes


def test_special_ids_are_counted_with_and_without_the_mask() -> None:
    mask = np.ones((2, 32))
    mask[0, 0] = 0.0
    result = seen({"loss_mask": mask}, pad_token_id=40, eos_token_id=41)
    assert result.special == {"pad_token_id": (1, 0, 40), "eos_token_id": (1, 1, 41)}
    assert result.notes == []
    assert seen({}, pad_token_id=40).notes[0] == message("batches.padding_counts", id=40, times=1)


def test_samples_are_decoded_the_first_and_the_odd_ones() -> None:
    odd = np.array([[7] * 32, [*range(50, 82)]])
    result = statistics_of(batches({}, {"tokens": odd}), 1000, {}, lambda ids: f"{len(ids)} ids from {ids[0]}")
    assert result.decoded == [(place(0, 0), "32 ids from 40"), (place(1, 0), "32 ids from 7")]


def test_two_runs_side_by_side() -> None:
    one = seen({}, {})
    assert side_by_side(one, seen({}, {})) == (message("two_runs.same", steps=2), True)
    assert side_by_side(one, seen({"tokens": TOKENS[::-1]}, {})) == (message("two_runs.other_order", step=0, iteration=1), False)
    apart = message("two_runs.other_tokens", differing=1, steps=2, step=0, iteration=1, both=2)
    assert side_by_side(one, seen({"tokens": TOKENS + 500}, {})) == (apart, False)
    apart = message("two_runs.other_arrays", name="loss_mask", differing=1, steps=2, step=0, iteration=1)
    assert side_by_side(one, seen({"loss_mask": np.eye(2, 32)}, {})) == (apart, False)
    assert side_by_side(seen({}), statistics_of([], 10, {})) == (message("two_runs.no_step"), None)


def weighing(*weights: float) -> BatchStatistics:
    """A look at one batch whose two rows weigh so much."""
    return seen({"weights": np.repeat([[weight] for weight in weights], 32, axis=1)})


@pytest.mark.parametrize(
    ("weights", "per_token", "micro_batches"),
    [
        ((0.5, 0.5), RowOutcome.HARMLESS, RowOutcome.ROUNDING),
        ((0.2, 0.8), RowOutcome.DIFFERENT, RowOutcome.DIFFERENT),
        (None, RowOutcome.DIFFERENT, RowOutcome.ROUNDING),
    ],
    ids=["alike", "otherwise", "nobody looked"],
)
def test_what_weighs_tokens_is_settled_by_the_recorded_batches(weights: Any, per_token: RowOutcome, micro_batches: RowOutcome) -> None:
    """One micro-batch of a whole step is a per-token loss; micro-batches of unequal masks are more than rounding."""
    one, other = (facts(side, training={"per_token_loss": side == "torch"}) for side in ("torch", "ms"))
    one["arguments"] |= {"global_batch_size": "8", "micro_batch_size": "2", "data_parallel_size": "1"}
    statistics = (weighing(0.5, 0.5), weighing(*weights)) if weights else (None, None)
    rows = {checked.row.id: checked for checked in check(*pair(one, other), statistics).checked}
    assert (rows["loss_of_every_token_alike"].outcome, rows["micro_batches_of_a_step"].outcome) == (per_token, micro_batches)


def test_weights_of_other_masks_settle_nothing() -> None:
    other = seen({"weights": np.full((2, 32), 0.8), "loss_mask": np.eye(2, 32)})
    assert weigh_alike(weighing(0.5, 0.5), weighing(0.5, 0.5)) is True
    assert weigh_alike(weighing(0.5, 0.5), other) is None
    assert weigh_alike(weighing(0.5, 0.5), seen({})) is None
    assert weigh_alike(weighing(0.5, 0.5), None) is None


def test_the_same_samples_more_often_are_in_no_other_order() -> None:
    twice = seen({"tokens": np.concatenate([TOKENS, TOKENS])}, {})
    assert side_by_side(seen({}, {}), twice) == (message("two_runs.other_times", step=0, iteration=1, reference=4, candidate=6), False)


def test_new_and_old_names_meet_in_a_record_too() -> None:
    new = mindformers(NEW, {})
    held = facts("ms", arguments={name: str(value.value) for name, value in new.values.items()})
    assert row("num_layers", facts("torch"), held).outcome is RowOutcome.SAME


def test_learning_rates_on_record_go_before_what_settings_come_to() -> None:
    """Settings are alike, and a script that steps its schedule late is not clean."""
    sides = pair(facts("torch"), facts("ms"))
    honest = check(*sides)
    course = next(each for each in honest.courses if each.name is Scheduled.LEARNING_RATE)
    recorded_rates = dict(zip(course.steps[:4], course.reference[:4], strict=True))
    late = recorded_rates | {2: 2 * recorded_rates[2]}
    assert check(*sides, rates=(recorded_rates, dict(recorded_rates))).exit_code == 0
    for rates in ((recorded_rates, late), (late, recorded_rates)):
        result = check(*sides, rates=rates)
        assert result.differing == ["learning_rate"]
        found = next(each for each in result.courses if each.name is Scheduled.LEARNING_RATE)
        assert (found.first, found.differing, found.steps) == (2, 1, [0, 1, 2, 3])
        assert ids(found.text)[0] == "course.on_record"
    unknown = check(*sides, rates=(recorded_rates, {}))
    assert unknown.exit_code == 0  # no step in common


@pytest.mark.parametrize("value", [8.0, 2, "yarn", None, {"factor": 8.0}])
def test_what_was_built_otherwise_is_no_clean_check(value: object) -> None:
    sides = pair(facts("torch"), facts("torch"))
    models = ({"model_type": "llama", "rope_scaling": {"factor": 32.0}}, {"model_type": "llama", "rope_scaling": value})
    result = check(*sides, models=models)
    assert (result.differing, result.exit_code) == (["built"], 1)
    assert [name for name, *_ in result.built] == ["rope_scaling.factor" if isinstance(value, dict) else "rope_scaling"]
    assert check(*sides, models=(models[0], models[0])).exit_code == 0
