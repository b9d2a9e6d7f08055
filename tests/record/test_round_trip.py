"""What one rank writes is what is read, to the bit."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from msgspec import convert
from safetensors.numpy import load_file, save_file

from align_hooks import Run, open_run
from align_hooks.errors import RecordError, RefusedRun
from align_hooks.record.format import files
from align_hooks.record.format.batch_arrays import id_range, is_causal
from align_hooks.record.format.files import TensorFile
from align_hooks.record.format.schema import OptimizerFacts
from align_hooks.record.format.shard import Shard
from align_hooks.record.write.atomic import json_text
from align_hooks.record.write.step_files import write_tensors
from record.conftest import contents
from rewritten import relisted
from synthetic import CAUSAL, NAMES, ROWS, SEQUENCE, Synthetic, batch, begun, by_hand, described, finished, norm, row, scalars_only, tensors

HONEST = Synthetic()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(HONEST.write(tmp_path_factory.mktemp("one") / "run"))


def same(recorded: Mapping[str, np.ndarray], given: Mapping[str, np.ndarray]) -> None:
    """Hold arrays that were read against those that were written, to the bit."""
    assert recorded.keys() == given.keys()
    for name, array in given.items():
        np.testing.assert_array_equal(recorded[name], array, strict=True)


def test_a_finished_run_is_whole(recorded: Run) -> None:
    assert (recorded.steps, recorded.problems, recorded.made_by_hand) == ([0, 1, 2], [], False)
    assert list(recorded.path.rglob("*.tmp")) == []
    assert recorded.gradient_steps() == recorded.local_norm_steps() == recorded.batch_steps() == [0, 1, 2]
    assert recorded.weight_steps() == recorded.optimizer_state_steps() == [0, 1, 2, 3]


def test_the_manifest_says_what_ran(recorded: Run) -> None:
    facts = recorded.facts
    assert (facts.format, facts.side, facts.world_size, facts.planned_steps) == (1, "torch", 1, len(HONEST.rows))
    assert facts.optimizer == convert(HONEST.optimizer, OptimizerFacts) and facts.settings["gradients"] == "all"
    counts = {"scalars": 3, "batches": 3, "local_norms": 3, "gradients": 3, "weights": 4, "optimizer_state": 4}
    assert recorded.manifests[0].recorded == counts
    written = json.loads((recorded.path / "run.json").read_text())
    assert all(recorded.manifest[key] == written[key] for key in ("side", "run_id", "model"))


def test_every_run_has_an_id_of_its_own(tmp_path: Path) -> None:
    ids = {open_run(scalars_only().write(tmp_path / name)).facts.run_id for name in "ab"}
    assert len(ids) == 2


def test_scalars_keep_full_precision(tmp_path: Path) -> None:
    run = open_run(scalars_only((9.056482000000001, 1 / 3, 5e-324)).write(tmp_path / "run"))
    assert [scalars["loss"] for scalars in run.scalars()] == [9.056482000000001, 1 / 3, 5e-324]


def test_scalars_and_norms_come_back_as_they_were_given(recorded: Run) -> None:
    assert recorded.scalars() == HONEST.rows
    assert recorded.local_norms(1) == {name: pytest.approx(norm(tensor), rel=1e-6) for name, tensor in HONEST.gradients[1].items()}


def test_batches_come_back_as_they_were_given(recorded: Run) -> None:
    of_step = recorded.batch(1)
    same(of_step.arrays(), HONEST.batches[1])
    assert of_step.rows == ((ROWS,),) and of_step.attention_mask is None
    facts = recorded.batch_facts(1)
    ids = np.concatenate([HONEST.batches[1]["tokens"], HONEST.batches[1]["labels"]])
    assert (facts.sequence, facts.rows, facts.lowest, facts.highest) == (SEQUENCE, ROWS, ids.min(), ids.max())


def test_tensors_and_optimizer_state_come_back_as_they_were_given(recorded: Run) -> None:
    for tensors_of, given in ((recorded.gradients(2), HONEST.gradients[2]), (recorded.weights(2), HONEST.weights[2])):
        same(tensors_of, given)
        assert all(tensors_of.shape(name) == tensor.shape for name, tensor in given.items())
    state = recorded.optimizer_state(2)
    assert (state.updates, list(state.moments)) == (2, ["exp_avg", "exp_avg_sq"])
    for moment, given in HONEST.moments[2].items():
        same(state.moments[moment], given)


def test_the_types_in_which_moments_are_kept_come_back_and_may_be_missing(run: Path) -> None:
    kept = {"exp_avg": "bfloat16", "exp_avg_sq": "float32"}
    writer = described(run, range(2, 3), run_exists="continue", optimizer_state="all")
    writer.optimizer_state(2, HONEST.moments[2], 2, kept)
    finished(writer, [2])
    assert open_run(run).optimizer_state(2).dtypes == kept
    state = run / "step_2/rank_0/optimizer_state/state.json"
    state.write_text(json.dumps({"updates": 2, "moments": list(kept)}))
    assert open_run(relisted(run)).optimizer_state(2).dtypes == {}
    state.write_text(json.dumps({"updates": 2, "dtypes": ["bfloat16"]}))
    with pytest.raises(RecordError, match=r"state.json: dtypes: .*; copy it again"):
        open_run(relisted(run)).optimizer_state(2)


def test_recorded_weights_are_a_hugging_face_checkpoint(recorded: Run) -> None:
    place = recorded.path / "step_0/rank_0/weights"
    assert json.loads((place / "config.json").read_text()) == HONEST.model
    assert load_file(place / "model.safetensors").keys() == set(NAMES)


def test_padding_is_read_but_stands_in_no_hugging_face_file(tmp_path: Path) -> None:
    synthetic = Synthetic(shapes={"lm_head.weight": (10, 4), "lm_head.weight#padding": (6, 4)})
    synthetic.weights, synthetic.gradients = {0: tensors(0, synthetic.shapes)}, {0: tensors(1, synthetic.shapes)}
    run = open_run(synthetic.write(tmp_path / "run"))
    assert load_file(run.path / "step_0/rank_0/weights/model.safetensors").keys() == {"lm_head.weight"}
    for tensors_of, given in ((run.weights(0), synthetic.weights[0]), (run.gradients(0), synthetic.gradients[0])):
        np.testing.assert_array_equal(tensors_of["lm_head.weight#padding"], given["lm_head.weight#padding"])


def test_only_fp32_tensors_are_kept(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="float64, a record keeps float32"):
        begun(tmp_path / "run").gradients(0, {"x": np.ones(2)})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinities_survive_in_scalars(tmp_path: Path, value: float) -> None:
    synthetic = scalars_only((9.0, value))
    synthetic.rows[0]["grad_norm"] = np.float32(value)
    first, second = open_run(synthetic.write(tmp_path / "run")).scalars()
    assert (second["loss"], first["grad_norm"]) == pytest.approx((value, value), nan_ok=True)
    assert isinstance(first["grad_norm"], float)


def test_nan_survives_in_rates_of_several_groups_and_in_local_norms(tmp_path: Path) -> None:
    synthetic = Synthetic()
    synthetic.rows[0]["learning_rate"] = [1e-3, math.nan]
    synthetic.norms[0][NAMES[0]] = math.nan
    run = open_run(synthetic.write(tmp_path / "run"))
    assert run.scalars()[0]["learning_rate"] == pytest.approx([1e-3, math.nan], nan_ok=True)
    assert math.isnan(run.local_norms(0)[NAMES[0]])


def test_rows_are_strict_json(tmp_path: Path) -> None:
    scalars_only((math.nan,)).write(tmp_path / "run")
    text = (tmp_path / "run/scalars/rank_0.jsonl").read_text()
    assert json.loads(text, parse_constant=lambda constant: pytest.fail(constant))["loss"] == "nan"


def test_json_takes_a_scalar_of_numpy_and_no_array() -> None:
    assert json.loads(json_text([np.float32(0.5), np.int64(3), np.bool_(True)])) == [0.5, 3, True]
    with pytest.raises(TypeError):
        json_text(np.ones(1))


def test_a_causal_mask_is_written_once_for_the_run(tmp_path: Path) -> None:
    synthetic = Synthetic()
    for arrays in synthetic.batches.values():
        arrays["attention_mask"] = CAUSAL
    run = open_run(synthetic.write(tmp_path / "run"))
    assert [str(path.relative_to(run.path)) for path in run.path.rglob("*attention_mask.npy")] == ["causal_attention_mask.npy"]
    assert run.batch(2).causal
    np.testing.assert_array_equal(run.batch(2).attention_mask, CAUSAL, strict=True)


def test_any_other_mask_stands_beside_its_batch(tmp_path: Path) -> None:
    mask = np.repeat(CAUSAL, ROWS, axis=0)
    mask[1, 0, 4, 0] = True
    synthetic = Synthetic()
    synthetic.batches[1]["attention_mask"] = mask
    run = open_run(synthetic.write(tmp_path / "run"))
    assert run.batch(0).causal and not run.batch(1).causal
    np.testing.assert_array_equal(run.batch(1).attention_mask, mask, strict=True)


@pytest.mark.parametrize(
    ("mask", "causal"),
    [(CAUSAL, True), (np.repeat(CAUSAL, 3, axis=0), True), (~CAUSAL, False), (CAUSAL[0], False), (np.zeros((1, 1, 3, 3), bool), False)],
)
def test_a_mask_is_causal_when_it_forbids_exactly_what_lies_ahead(mask: np.ndarray, causal: bool) -> None:
    assert is_causal(mask) is causal


def test_labels_that_do_not_count_do_not_widen_the_range_of_ids() -> None:
    arrays = batch(0) | {"labels": np.full((ROWS, SEQUENCE), -100)}
    assert id_range(arrays | {"loss_mask": np.zeros((ROWS, SEQUENCE))})[0] >= 0
    assert id_range(arrays)[0] == -100
    assert id_range({}) is None


def test_a_repeated_step_replaces_the_first(tmp_path: Path) -> None:
    synthetic = scalars_only((9.0, 8.0))
    synthetic.rows.append(row(1, loss=7.5))
    run = open_run(synthetic.write(tmp_path / "run"))
    assert run.steps == [0, 1]
    assert run.scalars()[1]["loss"] == 7.5


def test_a_plan_that_the_disk_cannot_hold_is_refused_before_the_first_step(tmp_path: Path) -> None:
    writer = begun(tmp_path / "run", gradients="all")
    with pytest.raises(RefusedRun, match="choose fewer steps in ALIGN_HOOKS_GRADIENTS"):
        writer.describe(place={}, shards=[Shard("x", (10**9, 10**6), "x", "float32")], facts={}, steps=range(10))


def test_a_hand_made_directory_has_the_steps_with_tokens_and_no_scalars_norms_or_tensors(tmp_path: Path) -> None:
    run = open_run(by_hand(tmp_path, steps=(0, 1, 10)))
    assert run.made_by_hand and run.steps == run.batch_steps() == [0, 1, 10]
    assert (run.problems, run.scalars()) == ([], [])
    assert run.gradient_steps() == run.weight_steps() == run.local_norm_steps() == []


def test_ranks_of_a_hand_made_directory_are_data_parallel_ranks(tmp_path: Path) -> None:
    run = open_run(by_hand(tmp_path, ranks=11))
    np.testing.assert_array_equal(run.batch(1).tokens, np.concatenate([batch(10 + rank)["tokens"] for rank in range(11)]))
    assert run.batch(1).rows == ((ROWS,),) * 11 and run.batch_facts(1).rows == 11 * ROWS


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int64, np.float32])
def test_a_hand_made_causal_mask_is_known_whatever_its_type(tmp_path: Path, kind: type) -> None:
    of_step = open_run(by_hand(tmp_path, mask_type=kind)).batch(0)
    assert of_step.causal and of_step.attention_mask.dtype == bool


@pytest.mark.parametrize("name", ["tokens", "labels"])
def test_a_hand_made_directory_needs_tokens_and_labels_of_every_rank(tmp_path: Path, name: str) -> None:
    by_hand(tmp_path, ranks=2)
    (tmp_path / f"step_0/rank_1/{name}.npy").unlink()
    with pytest.raises(RecordError, match=f"rank_1/{name}.npy is missing"):
        open_run(tmp_path).batch(0)


def test_the_header_of_a_file_is_parsed_once_and_its_tensors_stay_no_part_of_this_process(recorded: Run) -> None:
    with mock.patch.object(files.TensorFile, "__init__", autospec=True, side_effect=files.TensorFile.__init__) as parse:
        weights = recorded.weights(1)
        for _ in range(2):
            assert all(len(weights[name]) for name in weights)
    assert [call.args[1] for call in parse.call_args_list] == [recorded.path / "step_1/rank_0/weights/model.safetensors"]
    assert "model.safetensors" not in Path("/proc/self/maps").read_text()


def test_a_file_without_a_tensor_is_the_librarys_own(tmp_path: Path) -> None:
    """Its old releases write one that nobody reads, so ours is written by us: a rank with copies alone has such files."""
    write_tensors(tmp_path / "run", 0, 1, "gradients.safetensors", {})
    path = tmp_path / "run/step_0/rank_1/gradients.safetensors"
    save_file({}, tmp_path / "theirs", metadata={"format": "pt"})
    assert list(TensorFile(path)) == []
    assert path.read_bytes() == (tmp_path / "theirs").read_bytes()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RecordError, match="is not a whole safetensors file"):
        TensorFile(path)


def test_some_arrays_of_a_batch_are_read_without_the_others(tmp_path: Path) -> None:
    synthetic = Synthetic()
    synthetic.batches[0]["attention_mask"] = np.ones((1, 1, SEQUENCE, SEQUENCE), bool)
    path = synthetic.write(tmp_path / "run")
    (path / "step_0" / "rank_0" / "tokens.npy").write_bytes(b"")
    some, whole = open_run(path).batch(0, ("token_losses", "loss_mask")), open_run(path).batch(1)
    assert some.arrays().keys() == {"token_losses", "loss_mask"} and some.rows == whole.rows


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("loss_mask", np.ones((4, 3), np.float32)),
        ("labels", np.ones(4, np.int64)),
        ("tokens", np.ones((), np.int64)),
        ("tokens", np.full((4, 5), 1.7)),
        ("loss_mask", np.full((4, 5), np.nan, np.float32)),
        ("attention_mask", np.ones((5, 5), bool)),
    ],
)
def test_a_hand_made_array_of_another_shape_or_kind_is_refused(tmp_path: Path, name: str, array: np.ndarray) -> None:
    run = by_hand(tmp_path / "hand", steps=(0,))
    np.save(run / "step_0" / "rank_0" / f"{name}.npy", array)
    with pytest.raises(RecordError, match=r"\.npy"):
        open_run(run).batch(0)


@pytest.mark.parametrize("how", ["refuse", "replace", "continue"])
def test_a_directory_made_by_hand_is_not_written_into(tmp_path: Path, how: str) -> None:
    run = by_hand(tmp_path / "hand", steps=(0,))
    before = contents(run)
    with pytest.raises(RefusedRun, match="holds steps of rank 0 that no manifest lists, made by hand perhaps"):
        begun(run, run_exists=how)
    assert contents(run) == before


def test_names_of_directories_that_are_no_numbers_are_passed_over(run: Path) -> None:
    (run / "step_²/rank_0").mkdir(parents=True)
    for name in ("rank_².json", "rank_00.json"):
        (run / "manifest" / name).write_text("{}")
    assert open_run(run).problems == []
