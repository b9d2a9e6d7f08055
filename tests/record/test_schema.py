"""What a record's JSON may hold: wrong values are refused by file, key and way out, and what is not known is passed over."""

import json
import math
from pathlib import Path

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from align_hooks import open_run
from align_hooks.errors import RecordError
from align_hooks.record.format.rows import NormRow, ScalarRow
from align_hooks.record.format.schema import Facts, MuonMatrix
from align_hooks.record.format.structured import structured
from align_hooks.record.read.manifests import read_facts
from rewritten import edit, edit_rows
from synthetic import Synthetic

DEEP = json.loads("[" * 400 + "]" * 400)
WRONG = {
    "run.json": {
        "training": {"global_batch_size": "8"},
        "optimizer": {"groups": [{"parameters": [3]}]},
        "model": {"vocab_size": 10**400},
        "settings": {"gradients": "2-1"},
        "planned_steps": 1.5,
        "overrides": [DEEP],
        "run_id": "a b",
        "injected": {"steps": [True]},
        "resolution": {"loss": "x"},
    },
    "manifest/rank_0.json": {
        "launch": {"world_size": None},
        "place": {"dp": "0"},
        "hooks": {"step": 3},
        "recorded": {"scalars": DEEP},
        "segments": [{"stop": "3"}],
        "deleting": [-1],
        "first_step": 10**400,
        "groups": [{"parameters": ["w"], "betas": [DEEP]}],
        "parameters": [{"name": "w"}],
    },
}


@pytest.mark.parametrize(("file", "key"), [(file, key) for file, keys in WRONG.items() for key in keys])
def test_a_wrong_value_is_refused_by_file_key_and_way_out(run: Path, file: str, key: str) -> None:
    edit(run / file, **{key: WRONG[file][key]})
    with pytest.raises(RecordError, match=rf"{file}: {key}[^;]*; copy it again, or record the run again") as refused:
        open_run(run)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 600


@pytest.mark.parametrize(
    "change", [{"loss": "x"}, {"valid_tokens": 10**400}, {"micro_batches": [[1, 2]]}, {"random": [DEEP]}, {"skipped": 2}]
)
def test_a_wrong_number_of_a_step_is_refused_by_file_step_and_key(run: Path, change: dict[str, object]) -> None:
    edit_rows(run / "scalars/rank_0.jsonl", **change)
    with pytest.raises(RecordError, match=rf"rank_0.jsonl: step 0: {next(iter(change))}.*; copy it again"):
        _ = open_run(run).steps


@pytest.mark.parametrize("norm", [{"norm": -1.0}, {"norm": math.nan, "same": -1.0}, {"norm": 1.0, "first": -1}, {"norm": "x"}, {}, 3])
def test_a_norm_that_is_none_is_refused_by_file_step_and_key(norm: object) -> None:
    with pytest.raises(RecordError, match=r"^rank_0.jsonl: step 3: taken\[(0|\.\.\.)\].*; copy it again"):
        structured(NormRow, {"step": 3, "squared": {}, "taken": [norm]}, "rank_0.jsonl: step 3")


def test_half_a_character_is_refused_as_a_key_and_read_as_a_value() -> None:
    facts = structured(Facts, {"overrides": [{"what": "\udcff", "before": "\ud800"}], "environment": {"\udcff": "\udcff"}}, "run.json")
    assert (facts.overrides[0].what, facts.environment) == ("\udcff", {"\udcff": "\udcff"})
    with pytest.raises(RecordError, match=r"run.json: .*; copy it again"):
        structured(Facts, {"overrides": [{"\udcff": 1}]}, "run.json")


def test_an_integer_larger_than_any_float_is_refused(run: Path) -> None:
    edit(run / "run.json", resolution={"loss": 10**400})
    with pytest.raises(RecordError, match=r"run.json: .*; copy it again"):
        open_run(run)


def test_a_key_of_a_later_version_is_passed_over_and_null_is_not_there(run: Path) -> None:
    before = open_run(run)
    whole = before.facts, before.manifests, before.rows
    for file in ("run.json", "manifest/rank_0.json"):
        edit(run / file, of_a_later_version={"deep": DEEP})
    edit(run / "run.json", injected=None, overrides=None, resolution=None)
    edit(run / "manifest/rank_0.json", storage_limitations=None, hooks=None, deleting=None, segments=None)
    edit_rows(run / "scalars/rank_0.jsonl", of_a_later_version=DEEP, random=None, unrecorded_inputs=None)
    after = open_run(run)
    assert (after.facts, after.manifests, after.rows) == whole


def test_nan_of_an_optimizer_and_of_a_row_is_a_number(tmp_path: Path) -> None:
    synthetic = Synthetic()
    synthetic.optimizer["groups"][0]["weight_decay"] = math.nan
    synthetic.rows[0]["learning_rate"] = [math.inf, 1e-3]
    run = open_run(synthetic.write(tmp_path / "run"))
    assert math.isnan(run.facts.optimizer.groups[0].weight_decay) and run.rows[0].learning_rate == [math.inf, 1e-3]


NUMBERS = ("loss", "objective_loss", "valid_tokens", "grad_norm", "clip_coefficient", "learning_rate", "skipped")


def test_a_row_without_a_number_that_every_row_has_is_refused() -> None:
    whole = to_builtins(structured(ScalarRow, {"step": 1} | dict.fromkeys(NUMBERS), "row"))
    assert whole == {"step": 1} | dict.fromkeys(NUMBERS)
    for key in NUMBERS:
        with pytest.raises(RecordError, match=f"^row: Object missing required field {key}; copy it again"):
            structured(ScalarRow, {name: value for name, value in whole.items() if name != key}, "row")


def test_nothing_is_known_of_a_run_without_run_json() -> None:
    assert Facts().is_there is False
    assert Facts() == structured(Facts, {}, "run.json")


def test_a_group_has_the_parameters_and_the_matrices_of_all_ranks(tmp_path: Path) -> None:
    synthetic = Synthetic()
    first = synthetic.optimizer["groups"][0]
    first |= {"momentum": 0.9, "matrices": [{"parameters": [name]} for name in first["parameters"]]}
    run = synthetic.write(tmp_path / "run")
    here = open_run(run).facts.optimizer.groups[0]
    there = replace(here, parameters=("there",), matrices=(MuonMatrix(("there",), blocks=2), MuonMatrix(("there",), blocks=2)))
    merged = read_facts(run, {}, [there]).optimizer.groups
    assert len(merged) == 2
    assert merged[0].parameters == (*here.parameters, "there")
    assert merged[0].matrices == (*here.matrices, MuonMatrix(("there",), blocks=2))
    assert merged[1].matrices is None
