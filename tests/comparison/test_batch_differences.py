"""Batches that differ: what they have in common, what is likely, and what to do; and what is told where they are the same because they
were fed."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from align_hooks.comparison.finding import Metric
from align_hooks.comparison.stage_result import FaultLocation, Reason, Status
from align_hooks.comparison.verdict import Verdict
from align_hooks.messages import Side, message
from align_hooks.record.batch_statistics import side_by_side, statistics_of
from align_hooks.record.format.missing_batch import MissingBatchReason
from align_hooks.report.comparison import blamed
from comparison.conftest import Compared, asking, stage
from synthetic import ROWS, SEQUENCE, STEPS, Synthetic, batch
from worded import arguments, ids

Arrays = dict[str, Any]
END, PAD = 3, "model.model_config.pad_token_id"
"""The id that ends a document, for these tests."""


def text(seed: int) -> Arrays:
    """A batch of longer samples, in which :data:`END` occurs several times in each, and nowhere else."""
    arrays = batch(seed, sequence=24, vocabulary=6)
    for name, ends in (("tokens", [5, 11, 17]), ("labels", [4, 10, 16])):
        arrays[name] += END + 1
        arrays[name][:, ends] = END
    return arrays


def of_text(*bends: Callable[[Arrays], object], **options: Any) -> Synthetic:
    """A run on :func:`text`, each batch bent, whose rows count the tokens of the mask."""
    run = Synthetic(batches={step: text(step) for step in range(STEPS)}, **options)
    for step, arrays in run.batches.items():
        for bend in bends:
            bend(arrays)
        run.rows[step]["valid_tokens"] = int(arrays["loss_mask"].sum())
    return run


def put(name: str, make: Callable[[Arrays], Any]) -> Callable[[Arrays], None]:
    return lambda arrays: arrays.update({name: np.ascontiguousarray(make(arrays)).astype(arrays.get(name, np.array(True)).dtype)})


def hide(where: Callable[[Arrays], Any]) -> Callable[[Arrays], None]:
    return put("loss_mask", lambda arrays: arrays["loss_mask"] * ~where(arrays))


ENDS_HIDDEN = hide(lambda arrays: arrays["tokens"] == END)


def beginning(arrays: Arrays) -> Any:
    return np.arange(24) < np.array([[7], [2], [9], [4]])


def anew(arrays: Arrays) -> Any:
    ends = np.cumsum(np.pad(arrays["tokens"] == END, ((0, 0), (1, 0)))[:, :-1], axis=1)
    return np.stack([np.concatenate([np.arange(np.sum(row == part)) for part in np.unique(row)]) for row in ends])


def apart(*ends: int) -> Callable[[Arrays], None]:
    """Pack samples whose documents end at some places of each row."""
    documents = np.searchsorted(ends, np.arange(24), side="right").astype(np.int32)
    return lambda arrays: arrays.update(documents=np.tile(documents, (len(arrays["tokens"]), 1)))


FAULTS = {
    "documents are kept apart": (apart(6, 12, 18), "documents_meet", "documents_apart"),
    "labels are the tokens": (put("labels", lambda a: a["tokens"]), "labels_not_shifted", "labels_made"),
    "labels are shifted twice": (put("labels", lambda a: np.roll(a["labels"], -1, 1)), "labels_shifted_twice", "labels_made"),
    "labels to ignore": (put("labels", lambda a: np.where(a["tokens"] == 5, -100, a["labels"])), "labels_ignored", "labels_made"),
    "the last label": (put("labels", lambda a: np.where(np.arange(24) == 23, 0, a["labels"])), "labels_at_end", "labels_made"),
    "a document's end is hidden": (ENDS_HIDDEN, "mask_hides_id", "mask_made"),
    "a label is hidden": (hide(lambda a: a["labels"] == END), "mask_hides_label", "mask_made"),
    "a prompt is hidden": (hide(beginning), "mask_hides_beginning", "mask_made"),
    "the end is hidden": (hide(lambda a: beginning(a)[:, ::-1]), "mask_hides_end", "mask_made"),
    "tokens weigh half": (put("loss_mask", lambda a: a["loss_mask"] / 2), "mask_scaled", "mask_made"),
    "some tokens are hidden": (hide(lambda a: a["tokens"] % 4 == 1), "mask_counts_all", "mask_made"),
    "positions start anew": (put("position_ids", anew), "positions_anew_after", "documents_apart"),
    "positions from 1": (put("position_ids", lambda a: a["position_ids"] + 1), "positions_from", "positions_made"),
    "its own attention": (put("attention_mask", lambda a: np.ones((4, 1, 24, 24))), "attention_of_its_own", "documents_apart"),
}
NAMES = {"labels": "labels", "mask": "loss_mask", "positions": "position_ids", "attention": "attention_mask", "documents": "documents"}
"""The array that the first word of a way is about."""


@pytest.mark.parametrize(("bend", "way", "cause"), FAULTS.values(), ids=FAULTS.keys())
def test_arrays_made_differently_of_the_same_tokens_are_described(compared: Compared, bend: Any, way: str, cause: str) -> None:
    outcome = compared(of_text(bend), against=of_text())
    assert (outcome.verdict, outcome.first.name, outcome.blame.causes) == (Verdict.DIVERGED, "batches", (cause,))
    assert ids(outcome.headline)[:2] == ["two_runs.other_arrays", f"batch_difference.{way}"]
    differing = {"name": NAMES[way.partition("_")[0]], "differing": 3, "steps": 3, "step": 0, "iteration": 1}
    assert arguments("two_runs.other_arrays", outcome.headline) == differing
    assert ids(outcome.next)[0] == "next.mend_making"


@pytest.mark.parametrize(("ends", "way"), [((7, 13, 19), "documents_later"), ((6, 12), "documents")], ids=["later", "fewer"])
def test_documents_that_end_elsewhere_are_counted_and_described(compared: Compared, ends: tuple[int, ...], way: str) -> None:
    outcome = compared(of_text(apart(*ends)), against=of_text(apart(6, 12, 18)))
    assert (outcome.first.name, outcome.blame.causes) == ("batches", ("documents_end",))
    assert ids(outcome.headline)[1] == f"batch_difference.{way}"
    finding = outcome.first.findings[0]
    token = 6 if way == "documents_later" else 18
    place = arguments("batches.documents_differ", finding.what)
    assert [place[name] for name in ("row", "token", "count", "all")] == [0, token, 4, 4]
    assert [value.arguments["count"] for value in (finding.reference, finding.candidate)] == [4, len(ends) + 1]


def test_documents_of_packed_samples_are_those_of_a_mask(compared: Compared) -> None:
    def by_mask(arrays: Arrays) -> None:
        documents = np.searchsorted([6, 12, 18], np.arange(24), side="right")
        mask = (documents[:, None] != documents) | ~np.tri(24, dtype=bool)
        arrays["attention_mask"] = np.broadcast_to(mask, (4, 1, 24, 24))

    def padded(arrays: Arrays) -> None:
        arrays["documents"][:, 5] = -1  # what ends a document is none of its tokens

    for bends in ((by_mask,), (apart(6, 12, 18), padded)):
        outcome = compared(of_text(*bends), against=of_text(apart(6, 12, 18)))
        assert stage(outcome, "batches").status is Status.SAME, outcome.first
    assert stage(compared(of_text(by_mask), against=of_text(apart(6, 12))), "batches").status is Status.DIFFERENT


def test_documents_that_are_not_on_record_are_no_single_one(compared: Compared) -> None:
    candidate = of_text()
    candidate.rows[1]["unseen"] = [MissingBatchReason.DOCUMENTS.value]
    reference = of_text()
    apart(6, 12, 18)(reference.batches[1])
    outcome = compared(candidate, against=reference)
    assert (outcome.verdict, stage(outcome, "batches").status) == (Verdict.NOT_COMPARABLE, Status.INCOMPLETE)
    assert "batches.documents_unseen" in ids(stage(outcome, "batches").summary)


def test_the_side_that_does_it_is_named_and_the_id(compared: Compared) -> None:
    hidden, plain = of_text(ENDS_HIDDEN), of_text()
    for candidate, reference, side in ((hidden, plain, Side.CANDIDATE), (plain, hidden, Side.REFERENCE)):
        headline = compared(candidate, against=reference).headline
        assert arguments("batch_difference.mask_hides_id", headline) == {"side": side, "number": END}


@pytest.mark.parametrize(
    ("side", "key", "value", "told"),
    [
        ("ms", PAD, END, "mask_hides_padding"),
        ("ms", PAD, 0, "mask_hides_id"),
        ("torch", "eod_mask_loss", "True", "mask_hides_documents_end"),
        ("torch", "eod_mask_loss", "False", "mask_hides_id"),
    ],
)
def test_a_setting_that_hides_the_id_is_named(compared: Compared, side: str, key: str, value: object, told: str) -> None:
    outcome = compared(of_text(ENDS_HIDDEN, side=side, facts={"arguments": {key: value}}), against=of_text())
    assert ids(outcome.headline)[1] == f"batch_difference.{told}"
    assert ("padding_hidden" in outcome.blame.causes) == (told == "mask_hides_padding")


def test_mindformers_hides_the_id_0_where_nothing_is_configured(compared: Compared) -> None:
    def zero(arrays: Arrays) -> None:
        for name in ("tokens", "labels"):
            arrays[name][arrays[name] == END] = 0

    hidden = of_text(zero, hide(lambda arrays: arrays["tokens"] == 0), side="ms", facts={"arguments": {}})
    assert compared(hidden, against=of_text(zero)).blame.causes == ("padding_hidden",)


def test_a_way_must_fit_every_step_that_differs(compared: Compared) -> None:
    candidate = of_text(ENDS_HIDDEN)
    candidate.batches[2]["loss_mask"][0, 0] = 0
    assert ids(compared(candidate, against=of_text()).headline)[1] == "batch_difference.mask_counts_all"


def test_samples_that_begin_later_are_the_same_text(compared: Compared) -> None:
    def cut(arrays: Arrays) -> None:
        arrays["tokens"], arrays["labels"] = arrays["labels"], np.roll(arrays["labels"], -1, 1)

    outcome = compared(of_text(cut), against=of_text())
    assert arguments("batch_difference.begins_later", outcome.headline) == {"side": Side.CANDIDATE, "number": 1}
    assert outcome.blame.causes == ("other_cut",)


@pytest.mark.parametrize(("everywhere", "cause"), [(True, ("id_replaced",)), (False, ("other_data",))])
def test_a_token_that_another_id_stands_for_everywhere_is_told(compared: Compared, everywhere: bool, cause: tuple[str, ...]) -> None:
    def pad(arrays: dict[str, Any]) -> None:
        hidden = arrays["tokens"] == END
        hidden[0, 0] |= not everywhere
        arrays["tokens"] = np.where(hidden, 99, arrays["tokens"])

    outcome = compared(of_text(pad), against=of_text())
    assert outcome.blame.causes == cause
    if everywhere:
        assert arguments("batch_difference.id_replaced", outcome.headline) == {"side": Side.REFERENCE, "number": END}


def shuffled(run: Synthetic) -> None:
    run.batches = {step: run.batches[STEPS - 1 - step] for step in range(STEPS)}


def twice(run: Synthetic) -> None:
    run.batches = {step: {name: np.concatenate([array] * 2) for name, array in arrays.items()} for step, arrays in run.batches.items()}


@pytest.mark.parametrize(
    ("bend", "said", "cause"),
    [
        (shuffled, "other_order", "other_order"),
        (twice, "other_times", "other_rows"),
        (lambda run: run.batches.update({1: batch(7)}), "other_tokens", "other_data"),
    ],
    ids=["order", "rows", "data"],
)
def test_samples_relate_in_the_words_of_the_check(compared: Compared, bend: Any, said: str, cause: str) -> None:
    reference, candidate = Synthetic(), Synthetic()
    bend(candidate)
    outcome = compared(candidate, against=reference)
    checked, _ = side_by_side(*(statistics_of(run.batches.items(), None, {}) for run in (reference, candidate)))
    assert outcome.headline.parts[0] == checked
    assert (checked.id, outcome.blame.causes) == (f"two_runs.{said}", (cause,))
    assert ids(outcome.next)[0] != "next.mend_making"


def test_a_number_of_tokens_is_no_data_where_masks_agree(compared: Compared, candidate: Synthetic) -> None:
    """MindFormers counts tokens of weight 0.5 as tokens, Megatron-LM sums their weights in whole numbers."""
    reference = deepcopy(candidate)
    for run, count in ((reference, 19), (candidate, 20)):
        for step, arrays in run.batches.items():
            arrays["loss_mask"][0, 1:3] = 0.5
            run.rows[step] |= {"valid_tokens": count}
            mean = np.average(arrays["token_losses"], weights=arrays["loss_mask"])
            arrays["token_losses"] *= np.float32(run.rows[step]["loss"] / mean)
    outcome = compared(candidate, against=reference)
    assert outcome.verdict is Verdict.ALIGNED
    assert "first_loss.counts_otherwise" not in ids(outcome.notes)


def test_a_number_of_tokens_is_compared_where_no_mask_is_on_record(compared: Compared, candidate: Synthetic) -> None:
    candidate.batches, candidate.settings["batches"] = {}, "none"
    reference = deepcopy(candidate)
    candidate.rows[1]["valid_tokens"] = 19
    outcome = compared(candidate, against=reference)
    assert (outcome.first.name, outcome.first.findings[0].quantity) == ("batches", Metric.VALID_TOKENS)
    assert outcome.blame.causes == ("other_data",)


def test_a_loss_function_that_counts_otherwise_is_named_at_the_loss(compared: Compared, candidate: Synthetic) -> None:
    for scalars in candidate.rows:
        scalars |= {"valid_tokens": 2, "loss": 10 * scalars["loss"], "objective_loss": 10 * scalars["objective_loss"]}
    outcome = compared(candidate)
    assert (outcome.first.name, outcome.blame.place) == ("step-0 loss", FaultLocation.NORMALISATION)
    assert arguments("first_loss.counts_otherwise", outcome.headline) == {"side": Side.CANDIDATE, "count": 2, "sum": ROWS * SEQUENCE}
    assert stage(outcome, "batches").status is Status.SAME
    assert "self_check.loss_function" in ids(stage(outcome, "self-check").summary)


def test_a_loss_function_that_weighs_otherwise_is_named_beside_its_objective(compared: Compared, candidate: Synthetic) -> None:
    """At a later step too: at the first, what follows from no setting may add up to the same."""
    for scalars in candidate.rows:
        scalars["objective_loss"] *= 1.01
    candidate.rows[1]["micro_batches"] = [[20.0, 10, 1.0], [6.0, 2, 7.0]]
    outcome = compared(candidate)
    assert (outcome.first.name, outcome.blame.place) == ("step-0 loss", FaultLocation.NORMALISATION)
    assert arguments("first_loss.weighs_otherwise", outcome.blame.suspects[0].what)["side"] is Side.CANDIDATE
    assert stage(outcome, "self-check").status is Status.SAME
    assert "first_loss.weighs_otherwise" in ids(*(facts.text for facts in blamed(outcome, outcome.blame, [outcome.headline])))


def test_a_count_that_fits_no_mask_is_noted_where_all_agrees(compared: Compared, candidate: Synthetic) -> None:
    candidate.rows[0]["valid_tokens"] = 2
    outcome = compared(candidate)
    assert outcome.verdict is Verdict.ALIGNED
    assert arguments("first_loss.counts_otherwise", outcome.notes)["count"] == 2


def unmasked(run: Synthetic) -> None:
    """The loss function counts less than all tokens, and the mask was not seen."""
    for arrays in run.batches.values():
        del arrays["loss_mask"]
    run.micro_batches = [ROWS]


def masked(run: Synthetic) -> None:
    for step, arrays in run.batches.items():
        arrays["loss_mask"][0] = 0
        run.rows[step]["valid_tokens"] = 15
        arrays["token_losses"] *= np.float32(run.rows[step]["loss"] / np.average(arrays["token_losses"], weights=arrays["loss_mask"]))


def labels_for_mask(run: Synthetic) -> None:
    for arrays in run.batches.values():
        arrays["loss_mask"] = arrays["labels"].astype(np.float32)


@pytest.mark.parametrize(("bend", "id"), [(unmasked, "batches.mask_unseen"), (labels_for_mask, "batches.not_the_mask")])
def test_a_mask_that_was_not_seen_is_not_taken_for_one_that_differs(compared: Compared, bend: Any, id: str) -> None:
    reference, candidate = Synthetic(), Synthetic()
    masked(reference)
    masked(candidate)
    bend(candidate)
    outcome = compared(candidate, against=reference)
    batches = stage(outcome, "batches")
    assert (batches.status, batches.reason) == (Status.INCOMPLETE, Reason.MASK_UNSEEN)
    assert arguments(id, batches.summary)["side"] is Side.CANDIDATE
    if outcome.verdict is Verdict.NOT_COMPARABLE:
        assert ids(outcome.next)[0] == "next.show_mask"


def test_labels_that_no_model_was_given_are_to_be_given(compared: Compared) -> None:
    reference = Synthetic()
    for step, arrays in reference.batches.items():
        del arrays["labels"]
        reference.rows[step]["unseen"] = [MissingBatchReason.LABELS.value]
    outcome = compared(Synthetic().drifted(), against=reference)
    assert outcome.verdict is Verdict.NOT_COMPARABLE
    assert arguments("next.unseen_of", outcome.next) == {"side": Side.REFERENCE, "why": MissingBatchReason.LABELS.words}


def test_micro_batches_of_unequal_masks_are_to_be_weighed_alike(compared: Compared) -> None:
    reference, candidate = Synthetic(), Synthetic()
    for run in (reference, candidate):
        masked(run)
    candidate.micro_batches = [2, 2]
    assert ids(compared(candidate, against=reference).next)[0] == "next.loss_per_token"


def test_what_is_wrong_with_the_data_of_both_is_told_once(compared: Compared) -> None:
    unshifted = of_text(put("labels", lambda arrays: arrays["tokens"]))
    outcome = compared(unshifted, against=unshifted)
    assert outcome.verdict is Verdict.ALIGNED
    told = [id for id in ids(outcome.notes) if id.startswith(("notes.of_", "batches."))]
    assert told == ["notes.of_both", "batches.problem", "batches.not_shifted"]
    assert arguments("notes.of_side", compared(unshifted, against=of_text()).notes)["side"] is Side.CANDIDATE


FED = {"replay_batches": "/runs/reference"}


def overridden(what: str, before: object, after: object) -> dict[str, object]:
    return {"overrides": [{"what": what, "before": str(before), "after": str(after), "why": "ALIGN_HOOKS_REPLAY_BATCHES"}]}


def test_batches_that_were_fed_are_said_to_be(compared: Compared, candidate: Synthetic) -> None:
    own = compared(candidate)
    assert (own.headline.id, "notes.fed" in ids(own.notes)) == ("comparison.agrees", False)
    candidate.settings |= FED
    outcome = compared(candidate)
    assert (outcome.verdict, outcome.headline.id) == (Verdict.ALIGNED, "comparison.agrees_fed")
    assert arguments("notes.fed", outcome.notes)["sides"].parts == (Side.CANDIDATE,)


@pytest.mark.parametrize(("before", "concerns"), [(END, True), ("None", False), (11, False)])
def test_what_a_replay_changed_is_told_with_the_tokens_that_it_concerns(compared: Compared, before: object, concerns: bool) -> None:
    outcome = compared(of_text(facts=overridden(PAD, before, -1)), against=of_text())
    assert outcome.verdict is Verdict.ALIGNED
    assert ("changed.pad_token_id" in ids(outcome.notes)) == concerns
    if concerns:
        told = {"side": Side.CANDIDATE, "before": str(END), "after": "-1", "count": 36, "all": 288}
        assert message("changed.pad_token_id", **told) in outcome.notes


CHANGED = {
    "changed.batch_size": ["runner_config.batch_size"],
    "changed.learning_rate": ["optimizer.learning_rate", "args.lr"],
    "changed.seed": ["seed", "train_dataset.data_loader.config.seed", "args.seed"],
    "changed.evaluation": ["args.eval_iters"],
    None: ["train_dataset.data_loader", "data_skip_steps", "context.device_target"],
}


@pytest.mark.parametrize(("told", "what"), [(told, what) for told, settings in CHANGED.items() for what in settings])
def test_only_what_changes_numbers_is_told(compared: Compared, candidate: Synthetic, told: str | None, what: str) -> None:
    candidate.facts = overridden(what, 2, 4)
    assert [id for id in ids(compared(candidate).notes) if id.startswith("changed.")] == [told] * (told is not None)


@pytest.mark.parametrize(
    ("interval", "steps", "told"), [("1", 3, True), ("2", 3, True), ("3", 3, False), ("None", 3, True), ("3", None, True)]
)
def test_an_evaluation_that_a_replay_left_out_is_told_where_steps_follow_it(
    compared: Compared, candidate: Synthetic, interval: str, steps: int | None, told: bool
) -> None:
    candidate.facts = overridden("args.eval_iters", 2, 0) | {"arguments": {"eval_interval": interval}, "planned_steps": steps}
    assert ("changed.evaluation" in ids(compared(candidate).notes)) == told


def test_a_seed_is_nothing_to_a_run_that_was_fed(compared: Compared, candidate: Synthetic) -> None:
    candidate.facts, candidate.settings = overridden("seed", 1234, 42), candidate.settings | FED
    assert "changed.seed" not in ids(compared(candidate).notes)


def test_where_one_side_has_no_token_losses_no_tensor_is_named(compared: Compared, candidate: Synthetic) -> None:
    for scalars, arrays in zip(candidate.rows, candidate.batches.values(), strict=True):
        scalars["loss"] = scalars["objective_loss"] = 1.001 * scalars["loss"]
        del arrays["token_losses"]
    for name in candidate.gradients[0]:
        random = np.random.default_rng(1).standard_normal(candidate.gradients[0][name].shape)
        candidate.gradients[0][name] += np.float32(0.01) * random.astype(np.float32)
    outcome = compared(candidate)
    assert (outcome.first.name, outcome.blame.place) == ("step-0 loss", FaultLocation.FORWARD)
    assert arguments("blame.no_token_losses", outcome.blame.likely)["side"] is Side.CANDIDATE
    assert (outcome.blame.suspects, outcome.blame.causes) == ((), ())


def test_that_no_updates_were_checked_is_said_once(compared: Compared, candidate: Synthetic) -> None:
    summary = stage(compared(asking(candidate, weights="0"), against=candidate), "weights after an update").summary
    assert ids(summary) == ["after_update.neither_checked", "formula.no_whole_update"]


@pytest.mark.parametrize("name", ["labels", "loss_mask"])
def test_arrays_differ_without_recorded_tokens(compared: Compared, name: str) -> None:
    reference = of_text(lambda arrays: arrays.pop("tokens"))
    candidate = deepcopy(reference)
    candidate.batches[1][name] = 1 - candidate.batches[1][name]
    assert compared(candidate, against=reference).first.name == "batches"
