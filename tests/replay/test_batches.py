"""Replayed batches: checked before training, handed out step on step, never wrapped around."""

import re
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from align_hooks import Batch
from align_hooks.errors import RecordError, RefusedRun
from align_hooks.names.blocks import Array
from align_hooks.record.format.documents import mask_of
from align_hooks.record.format.missing_batch import NOT_REPLAYED, MissingBatchReason
from align_hooks.record.write.step_files import StepBatch
from align_hooks.replay.batches import DocumentForm, Replay, filled
from align_hooks.settings import PREFIX, Settings, Source, Steps
from synthetic import CAUSAL, ROWS, SEQUENCE, STEPS, VOCABULARY, Synthetic, batch, begun, by_hand, finished, row


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Synthetic(weights={}, gradients={}, norms={0: {}}).write(tmp_path_factory.mktemp("replay") / "run")


def replay(path: Path, steps: str = "all", first: int = 0) -> Replay:
    return Replay(Source(path, Steps.parse(steps)), first)


def recorded(path: Path, steps: Iterable[int]) -> Path:
    """A run of 8 steps that recorded the batches of some of them."""
    writer = begun(path, batches="all")
    writer.describe(place={"dp": 0}, shards=[], facts={}, steps=range(8))
    for step in range(8):
        if step in steps:
            writer.batch(step, StepBatch(batch(step), [ROWS]))
        writer.scalars(row(step))
    finished(writer, ())
    return path


FITTING = {"sequence": SEQUENCE, "vocabulary": VOCABULARY, "rows": ROWS}


def test_every_recorded_step_is_replayed_in_order(run: Path) -> None:
    replayed = replay(run)
    replayed.check(**FITTING)
    assert replayed.steps == range(STEPS)
    for step in replayed.steps:
        np.testing.assert_array_equal(replayed.batch(step).tokens, batch(step)["tokens"])


def test_a_first_step_that_is_told_late_still_counts(run: Path) -> None:
    replayed = replay(run)
    assert replayed.last == STEPS - 1  # asked for before training knows where it starts
    replayed.first = 1
    assert replayed.steps == range(1, STEPS)
    assert next(replayed.micro_batches(ROWS))[0] == 1


REPLAYED: dict[str, tuple[Iterable[int], str, int, range | str]] = {
    "a resumed run goes on at its own step": (range(STEPS), "all", 1, range(1, STEPS)),
    "chosen steps bound it": (range(STEPS), "0-1", 0, range(2)),
    "no step is left": (range(STEPS), "all", STEPS, f"ends with step {STEPS - 1}, training starts with step {STEPS}"),
    "a gap has two ways out": (
        *((0, 1, 3, 5), "all", 0),
        f"has no batch of step 2 (2 missing up to 5); record with {PREFIX}BATCHES=0-5, or replay PATH@0-1",
    ),
    "of which this is one": ((0, 1, 3, 5), "0-1", 0, range(2)),
    "what is missing is not left out": ((0, 1, 2, 5, 6), "0,2-6", 0, "has no batch of step 3 (2 missing up to 5)"),
}


@pytest.mark.parametrize(("there", "chosen", "first", "steps"), REPLAYED.values(), ids=REPLAYED)
def test_steps_are_replayed_or_refused(tmp_path: Path, there: Iterable[int], chosen: str, first: int, steps: range | str) -> None:
    path = recorded(tmp_path / "run", there)
    if isinstance(steps, range):
        assert replay(path, chosen, first).steps == steps
    else:
        with pytest.raises(RecordError, match=re.escape(steps.replace("PATH", str(path)))):
            _ = replay(path, chosen, first).steps


def test_after_the_last_recorded_step_it_stops_and_says_so(run: Path) -> None:
    replayed = replay(run)
    with pytest.raises(RecordError, match=f"ends with step {STEPS - 1}: nothing is left to replay for step {STEPS}"):
        replayed.batch(STEPS)


def test_recorded_batches_between_the_named_steps_are_left_out(tmp_path: Path) -> None:
    """The guide's "try to skip these data": every later batch comes a step earlier."""
    replayed = replay(recorded(tmp_path / "run", tuple(range(8))), "0-2,4,6-7")
    said: list[str] = []
    replayed.say_left_out(said.append)
    assert said == [f"{replayed.source} leaves out the batches of 2 steps: step 3 is fed the batch of step 4"]
    assert (replayed.left_out, replayed.last, replayed.steps) == ([3, 5], 5, range(6))
    assert [replayed.recorded_step(step) for step in replayed.steps] == [0, 1, 2, 4, 6, 7]
    replayed.check(**FITTING)
    for step, (made, arrays) in zip(replayed.steps, replayed.micro_batches(ROWS), strict=True):
        assert made == step
        np.testing.assert_array_equal(arrays["tokens"], batch(replayed.recorded_step(step))["tokens"])
    with pytest.raises(RecordError, match="ends with step 5: nothing is left to replay for step 6"):
        replayed.batch(6)


def test_a_resumed_run_skips_as_the_run_that_was_broken_off_did(tmp_path: Path) -> None:
    replayed = replay(recorded(tmp_path / "run", tuple(range(8))), "0-2,4-7", first=4)
    assert replayed.steps == range(4, 7)
    assert [replayed.recorded_step(step) for step in replayed.steps] == [5, 6, 7]


def test_the_way_out_of_a_missing_beginning_can_be_followed(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="has no batch of step 0") as caught:
        _ = replay(recorded(tmp_path / "run", (2, 3))).steps
    for advice in re.findall(r"or replay (\S+)", str(caught.value)):
        Settings.from_environment({f"{PREFIX}REPLAY_BATCHES": advice})


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"sequence": SEQUENCE + 1}, f"has sequence length {SEQUENCE}, this run {SEQUENCE + 1}; train with {SEQUENCE}"),
        ({"rows": ROWS * 2}, f"has {ROWS} rows, this run consumes {ROWS * 2} a step; use a global batch size of {ROWS}"),
        ({"vocabulary": 9}, "this model's vocabulary ends at 8; use the model that the data was made for"),
    ],
    ids=["sequence", "rows", "vocabulary"],
)
def test_batches_that_do_not_fit_are_refused_before_training(run: Path, change: dict[str, int], refusal: str) -> None:
    with pytest.raises(RefusedRun, match=re.escape(refusal)):
        replay(run).check(**FITTING | change)


def test_a_later_batch_that_does_not_fit_is_refused_before_the_first_step(tmp_path: Path) -> None:
    synthetic = Synthetic(weights={}, gradients={}, norms={0: {}})
    synthetic.batches[2] = batch(2, rows=ROWS + 1)
    with pytest.raises(RefusedRun, match="the batch of step 2 has 5 rows"):
        replay(synthetic.write(tmp_path / "run")).check(**FITTING)


def test_a_negative_id_that_counts_is_refused_and_one_that_does_not_is_fine(tmp_path: Path) -> None:
    synthetic = Synthetic(weights={}, gradients={}, norms={0: {}})
    synthetic.batches[1]["labels"][0, 0] = -100
    synthetic.batches[1]["loss_mask"][0, 0] = 0
    replay(synthetic.write(tmp_path / "masked")).check(**FITTING)
    synthetic.batches[1]["loss_mask"][0, 0] = 1
    with pytest.raises(RefusedRun, match="has ids from -100 to"):
        replay(synthetic.write(tmp_path / "counting")).check(**FITTING)


def test_an_altered_batch_stops_the_replay(tmp_path: Path) -> None:
    path = recorded(tmp_path / "run", range(STEPS))
    np.save(path / "step_1/rank_0/tokens.npy", batch(9)["tokens"])
    replayed = replay(path)
    replayed.batch(0)
    with pytest.raises(RecordError, match=r"rank_0/tokens\.npy was changed since it was recorded"):
        replayed.batch(1)


@pytest.mark.parametrize("name", ["tokens", "labels", "loss_mask"])
def test_a_batch_that_lacks_an_array_is_refused_and_none_is_made_up_for_a_recorded_run(tmp_path: Path, name: str) -> None:
    synthetic = Synthetic(weights={}, gradients={}, norms={0: {}}, micro_batches=[ROWS])
    del synthetic.batches[1][name]
    replayed = replay(synthetic.write(tmp_path / "run"))
    assert replayed.batch(0).loss_mask is not None
    with pytest.raises(RecordError, match=f"step 1 has no {name}"):
        replayed.batch(1)


def test_micro_batches_are_rows_in_order_step_after_step(run: Path) -> None:
    steps, micro_batches = zip(*replay(run).micro_batches(2), strict=True)
    assert list(steps) == [step for step in range(STEPS) for _ in range(ROWS // 2)]
    assert {len(arrays["tokens"]) for arrays in micro_batches} == {2}
    whole = np.concatenate([batch(step)["tokens"] for step in range(STEPS)])
    np.testing.assert_array_equal(np.concatenate([arrays["tokens"] for arrays in micro_batches]), whole)


def test_a_hand_made_directory_can_be_replayed(tmp_path: Path) -> None:
    replayed = replay(by_hand(tmp_path, steps=(0, 1), ranks=2))
    replayed.check(sequence=SEQUENCE, vocabulary=VOCABULARY, rows=2 * ROWS)
    np.testing.assert_array_equal(replayed.batch(1).tokens, np.concatenate([batch(10)["tokens"], batch(11)["tokens"]]))


def test_what_a_hand_made_directory_lacks_is_filled_as_the_guide_assumes_and_nothing_is_replaced() -> None:
    arrays = batch(0)
    complete = filled(Batch(0, ((ROWS,),), tokens=arrays["tokens"], labels=arrays["labels"]))
    assert complete["loss_mask"].tolist() == np.ones((ROWS, SEQUENCE)).tolist()
    assert complete["position_ids"].tolist() == [list(range(SEQUENCE))] * ROWS
    assert "attention_mask" not in complete
    arrays |= {"loss_mask": np.zeros((ROWS, SEQUENCE)), "position_ids": np.full((ROWS, SEQUENCE), 7)}
    complete = filled(Batch(0, ((ROWS,),), **arrays))
    assert complete["loss_mask"].sum() == 0 and (complete["position_ids"] == 7).all()


def test_a_causal_mask_is_left_to_the_model_and_another_is_handed_over_for_every_row() -> None:
    causal = Batch(0, ((ROWS,),), **batch(0), attention_mask=CAUSAL, causal=True)
    assert "attention_mask" not in filled(causal)
    own = Batch(0, ((ROWS,),), **batch(0), attention_mask=~CAUSAL, causal=False)
    np.testing.assert_array_equal(filled(own)["attention_mask"], np.repeat(~CAUSAL, ROWS, axis=0))


DOCUMENTS = np.tile(np.array([0] * 2 + [1] * (SEQUENCE - 3) + [-1], np.int32), (ROWS, 1))
MASK = mask_of(DOCUMENTS)


def test_documents_are_a_mask_for_a_run_that_does_not_pack_and_a_mask_is_documents_for_one_that_does() -> None:
    packed = Batch(0, ((ROWS,),), **batch(0), documents=DOCUMENTS)
    made = filled(packed)
    assert "documents" not in made
    np.testing.assert_array_equal(made["attention_mask"], MASK)
    assert MASK[0, 0, 2].tolist() == [True, True, False, *[True] * (SEQUENCE - 3)]
    np.testing.assert_array_equal(filled(packed, packed=True)["documents"], DOCUMENTS)
    masked = Batch(0, ((ROWS,),), **batch(0), attention_mask=MASK, causal=False)
    assert filled(masked, packed=True).keys() == made.keys() - {"attention_mask"} | {"documents"}
    np.testing.assert_array_equal(filled(masked, packed=True)["documents"], np.where(DOCUMENTS < 0, 2, DOCUMENTS))
    assert not filled(Batch(0, ((ROWS,),), **batch(0)), packed=True)["documents"].any()
    with pytest.raises(RefusedRun, match="separates no documents"):
        filled(Batch(0, ((ROWS,),), **batch(0), attention_mask=~CAUSAL, causal=False), packed=True)


@pytest.mark.parametrize(
    ("name", "array", "form", "why"),
    [
        ("documents", DOCUMENTS, DocumentForm.NONE, "step 1 has several documents in a row"),
        ("documents", 0 * DOCUMENTS, DocumentForm.NONE, None),
        ("documents", DOCUMENTS, DocumentForm.PACKED, None),
        ("documents", DOCUMENTS, DocumentForm.MASK, None),
        ("attention_mask", MASK, DocumentForm.PACKED, None),
        ("attention_mask", np.repeat(~CAUSAL, ROWS, 0), DocumentForm.PACKED, "step 1 has an attention mask that separates no documents"),
    ],
)
def test_documents_must_fit_how_a_run_gives_them_to_its_model(
    tmp_path: Path, name: str, array: Array, form: DocumentForm, why: str | None
) -> None:
    run = Synthetic(weights={}, gradients={}, norms={0: {}})
    run.batches[1][name] = array
    with pytest.raises(RefusedRun, match=why) if why else nullcontext():
        replay(run.write(tmp_path / "run")).check(**FITTING, form=form)


@pytest.mark.parametrize("reason", MissingBatchReason)
def test_a_step_whose_mask_was_not_seen_is_refused_before_training_and_no_other(tmp_path: Path, reason: MissingBatchReason) -> None:
    synthetic = Synthetic(weights={}, gradients={}, norms={0: {}})
    synthetic.rows[1]["unseen"] = [reason.value]  # type: ignore[assignment]
    path = synthetic.write(tmp_path / "run")
    replay(path, "0").check(**FITTING)
    with pytest.raises(RefusedRun, match="step 1") if reason in NOT_REPLAYED else nullcontext():
        replay(path).check(**FITTING)
