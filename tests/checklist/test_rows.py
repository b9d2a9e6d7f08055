"""Every row of the CheckList: what agrees is the same however it is written, what does not is seen, and no row of a guide is left out."""

from pathlib import Path
from typing import Any

import pytest

from align_hooks.checklist.advice import ADVICE
from align_hooks.checklist.judge import JudgedRow, RowOutcome, judge
from align_hooks.checklist.row import CheckRow, Effect
from align_hooks.checklist.tables import GROUPS, ROW, ROWS
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.values import Configuration
from align_hooks.data_file import sections
from align_hooks.messages import Side
from checklist.exercises import ALONE, BASES, EXERCISES, EXPERTS, LATENT, NEW, OLD, Exercise, megatron, mindformers
from checklist.shipped import rows

BY_NAME = {row.id: row for row in ROWS}
FROM_RECORDS = rows("""
    framework mindspore_beside_mindformers CANN difference_from_the_open_source_model MS_ASCEND_CHECK_OVERFLOW_MODE HCCL_DETERMINISTIC
    ASCEND_LAUNCH_BLOCKING NCCL_ALGO CUBLAS_WORKSPACE_CONFIG NVTE_ALLOW_NONDETERMINISTIC_ALGO types_that_the_built_layers_compute_in
""")
"""Rows that no configuration says: a record does, or a person."""
LOADER = "train_dataset.data_loader.config"
SETUPS = {row.id for row in ROWS if row.advice is not None and row.advice.setup}


def row_of(name: str, one: Configuration, other: Configuration) -> JudgedRow:
    return next(checked for checked in judge(one, other) if checked.row.id == name)


@pytest.mark.parametrize("style", [OLD, NEW, EXPERTS, LATENT])
def test_the_bases_agree_in_everything_that_changes_the_result(style: str) -> None:
    checked = judge(megatron(style, {}), mindformers(style, {}))
    assert [(one.row.id, one.reference.shown, one.candidate.shown) for one in checked if one.outcome is RowOutcome.DIFFERENT] == []
    assert [one.row.id for one in checked if one.outcome is RowOutcome.UNKNOWN and one.row.effect is Effect.RESULT] == []


@pytest.mark.parametrize("exercise", EXERCISES, ids=[f"{at}-{one.id}" for at, one in enumerate(EXERCISES)])
def test_row(exercise: Exercise) -> None:
    row = BY_NAME[exercise.row]
    agreeing = row_of(exercise.row, *exercise.sides(exercise.same))
    if row.one_sided:
        assert agreeing.outcome in (RowOutcome.ALONE, RowOutcome.BY_HAND, RowOutcome.UNUSED)
        return
    if exercise.row in FROM_RECORDS or (not exercise.same and not exercise.other and not exercise.flags):
        assert agreeing.outcome in (RowOutcome.SAME, RowOutcome.BY_HAND, RowOutcome.UNUSED)
        return
    assert agreeing.outcome in (RowOutcome.SAME, RowOutcome.BY_HAND), (agreeing.reference, agreeing.candidate, agreeing.why)
    one, other = exercise.sides(exercise.other)
    apart = row_of(exercise.row, one, other)
    expected = {
        Effect.RESULT: (RowOutcome.DIFFERENT, RowOutcome.UNKNOWN)
        if row.by_hand is None and row.uncertain_if is None
        else (RowOutcome.DIFFERENT, RowOutcome.BY_HAND),
        Effect.ROUNDING: (RowOutcome.ROUNDING, RowOutcome.BY_HAND),
        Effect.NOTHING: (RowOutcome.HARMLESS, RowOutcome.BY_HAND),
    }[row.effect]
    harmless = (RowOutcome.HARMLESS,) if row.harmless_if is not None else ()
    assert apart.outcome in (*expected, *harmless), (apart.outcome, apart.reference, apart.candidate)
    if exercise.other != exercise.same and apart.outcome not in (RowOutcome.BY_HAND, RowOutcome.UNKNOWN):
        assert apart.reference.shown != apart.candidate.shown


@pytest.mark.parametrize("row", ALONE, ids=[row.id for row in ALONE])
def test_what_only_megatron_can_be_told_is_a_difference_where_it_is(row: CheckRow) -> None:
    told = {row.id.replace("_", "-"): "" if row.megatron.default is False else 3}
    assert row_of(row.id, megatron(NEW, {}), mindformers(NEW, {})).outcome is RowOutcome.SAME
    assert row_of(row.id, megatron(NEW, told), mindformers(NEW, {})).outcome is RowOutcome.DIFFERENT


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
    assert ADVICE.keys() <= BY_NAME.keys()


def wanted() -> set[str]:
    """Every row of every table of the guides."""
    tables = sections(Path(__file__).with_name("guides.txt"))
    return {f"{table}: {name.replace('+', ' ')}" for table, lines in tables.items() for name in " ".join(lines).split()}


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
    value = ROW[row].read(read_yaml(f"model: {{model_config: {{num_layers: 2}}}}\n{text}\n", "x.yaml", Path()))
    assert value.shown == text.split("'")[1]
