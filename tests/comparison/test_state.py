"""What rows of a run hold beside losses and norms: the state that steps start from, digests of tokens, terms of the loss, random states."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.comparison.data.random_states import first_difference
from align_hooks.comparison.finding import at_step
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.stage_result import FaultLocation, Status
from align_hooks.comparison.stages.state import of_step
from align_hooks.comparison.verdict import ComparisonResult, Verdict
from align_hooks.record.format import digests, layout
from align_hooks.record.format.state import BUFFER, SAMPLES, SCHEDULER
from align_hooks.record.format.terms import AUXILIARY, PREDICTION
from comparison.conftest import Compared, stage
from record.conftest import DP2, of_ranks
from sharded import Grid, Model, write
from synthetic import STEPS, Synthetic, row
from worded import ids

BIAS, BUFFERED = f"{BUFFER}decoder.layers.1.mlp.router.expert_bias", f"{BUFFER}decoder.layers.1.running_mean"


def run(changes: Mapping[str, float | str] | None = None, *, side: str = "torch", framework: str = "Megatron-LM") -> Synthetic:
    """A run with the state of each step, of which ``changes`` are what steps after the first have instead."""
    made = Synthetic(side=side, facts={"framework": framework})
    for step, scalars in enumerate(made.rows):
        state = {SAMPLES: 4.0 * step, SCHEDULER: 4.0 * step, BIAS: f"{step:016x}", BUFFERED: f"{step:016x}"}
        scalars["state"] = state | (changes or {} if step else {})  # type: ignore[assignment]
    return made


def test_equal_states_are_said_to_be(compared: Compared) -> None:
    comparison = compared(run(), against=run())
    of_state = stage(comparison, "training state")
    assert (comparison.verdict, of_state.status, of_state.findings) == (Verdict.ALIGNED, Status.SAME, ())


@pytest.mark.parametrize(("name", "value"), [(SCHEDULER, 99.0), (BUFFERED, "f" * 16)])
def test_what_was_not_restored_is_named_at_its_step(compared: Compared, name: str, value: float | str) -> None:
    comparison = compared(run({name: value}), against=run())
    assert (comparison.verdict, comparison.first.name) == (Verdict.DIVERGED, "training state")
    assert [finding.what for finding in comparison.first.findings] == [at_step(name, 1)]
    assert ("next.read_count" in ids(comparison.next)) == (name == SCHEDULER)
    assert (comparison.blame.place, comparison.blame.causes) == ("state", ("not_restored",))


def test_a_schedule_that_starts_elsewhere_is_the_optimizers_where_nothing_is_restored(compared: Compared) -> None:
    started = run({})
    started.rows[0]["state"] |= {SCHEDULER: 4.0}
    comparison = compared(started, against=run())
    assert (comparison.blame.place, comparison.blame.causes) == ("optimizer", ("rate_schedule",))
    assert "next.read_count" in ids(comparison.next)
    started.rows[0]["state"] |= {SAMPLES: 4.0}
    assert compared(started, against=run()).blame.place == "state"


def test_an_experts_bias_that_only_its_update_moves_is_the_updates(compared: Compared) -> None:
    comparison = compared(run({BIAS: "f" * 16}), against=run())
    assert (comparison.blame.place, comparison.blame.causes) == ("optimizer", ("bias_of_experts",))
    assert comparison.headline.id == "training_state.bias_moved"
    started = run({BIAS: "f" * 16})
    started.rows[0]["state"] |= {BIAS: "f" * 16}
    comparison = compared(started, against=run())
    assert (comparison.blame.place, comparison.blame.causes) == ("state", ("not_restored",))


def test_of_two_frameworks_nothing_is_compared(compared: Compared) -> None:
    comparison = compared(run({SCHEDULER: 99.0}, side="ms", framework="MindFormers"), against=run())
    assert "training state" not in [stage.name for stage in comparison.stages]


def test_of_two_layouts_it_is_said_that_nothing_is_compared(tmp_path: Path, compared: Compared) -> None:
    one, two = (write(tmp_path / str(tp), Grid(tp=tp), Model().tensors(1)) for tp in (1, 2))
    of_state = stage(compared(two, against=one), "training state")
    assert (of_state.status, ids(of_state.summary)) == (Status.NOT_COMPARED, ["training_state.other_layout"])


def test_what_one_run_alone_recorded_is_left_out(tmp_path: Path, compared: Compared) -> None:
    assert "training state" not in [stage.name for stage in compared(Synthetic(), against=run()).stages]
    assert list(of_step(Pair(*(open_run(each.write(tmp_path / name)) for name, each in (("a", run()), ("b", Synthetic())))), 0)) == []


# ---- batches that are not on record: two runs of one framework in one layout are held to the digests of their tokens


def digesting(
    *other: int, recorded: tuple[int, ...] = (), rows: int = 2, framework: str = "Megatron-LM", digested: bool = True, lost: int = -1
) -> Synthetic:
    """A digesting that recorded the batches of some steps, and of every step the tokens' digest; ``other`` are steps with other tokens."""
    digests = [f"{step + 100 * (step in other):013x}" if digested else "" for step in range(STEPS)]
    made = Synthetic(
        settings={"batches": ",".join(map(str, recorded)) or "none"},
        rows=[row(step) | {"token_digest": digests[step]} for step in range(STEPS)],
        facts={"framework": framework, "training": {"micro_batch_size": rows}},
    )
    if lost >= 0:
        made.rows[lost] |= {"loss": math.nan, "objective_loss": math.nan}
    made.batches = {step: made.batches[step] for step in recorded}
    return made


def test_a_step_with_other_tokens_is_named(compared: Compared) -> None:
    comparison = compared(digesting(1, 2), against=digesting())
    assert (comparison.verdict, comparison.first.name, comparison.blame.place) == (Verdict.DIVERGED, "batches", "data")
    assert [(finding.name, finding.step) for finding in comparison.first.findings] == [("tokens", 1), ("tokens", 2)]


@pytest.mark.parametrize(
    ("reference", "candidate", "status", "said"),
    [
        (digesting(), digesting(), Status.SAME, ["batches.compared_by_tokens"]),
        (digesting(recorded=(0,)), digesting(0, recorded=(0,)), Status.SAME, ["batches.compared", "batches.compared_by_tokens"]),
        (digesting(), digesting(1, rows=4), Status.NOT_COMPARED, []),
        (digesting(), digesting(1, framework="another"), Status.NOT_COMPARED, []),
        (digesting(), digesting(1, digested=False), Status.NOT_COMPARED, []),
    ],
    ids=["equal tokens", "what is on record by itself", "ranks with other rows", "another framework", "no digest"],
)
def test_what_was_compared_is_said(compared: Compared, reference: Synthetic, candidate: Synthetic, status: Status, said: list[str]) -> None:
    result = stage(compared(candidate, against=reference), "batches")
    assert (result.status, result.findings) == (status, ())
    assert status is Status.NOT_COMPARED or ids(result.summary) == said


@pytest.mark.parametrize(
    ("reference", "candidate", "tokens"),
    [
        (digesting(), digesting(1), ([0, 1, 2], [1])),
        (digesting(lost=1), digesting(1, lost=1), ([0, 1, 2], [1])),  # such a row is kept as it is, and stands in no column but these
        (digesting(), digesting(digested=False), ([], [])),
    ],
    ids=["finite losses", "a loss that is no number", "digests of one side alone"],
)
def test_steps_with_digests_and_those_that_differ(
    tmp_path: Path, reference: Synthetic, candidate: Synthetic, tokens: tuple[list[int], list[int]]
) -> None:
    assert Pair(open_run(reference.write(tmp_path / "a")), open_run(candidate.write(tmp_path / "b"))).tokens() == tokens


# ---- terms of the loss beside the language model's: found apart from the losses of tokens, with their coefficients

Terms = Mapping[str, float] | None


def run_with(terms: Terms) -> Synthetic:
    return Synthetic(rows=[row(step) | {"terms": terms} for step in range(STEPS)])


OfTerms = Callable[[Terms, Terms], ComparisonResult]
"""Compares runs with these terms: the reference's, the candidate's."""


@pytest.fixture
def pair(compared: Compared) -> OfTerms:
    return lambda ours, theirs: compared(run_with(theirs), against=run_with(ours))


@pytest.mark.parametrize("terms", [None, {}])
def test_models_of_one_term_have_no_such_stage(pair: OfTerms, terms: Terms) -> None:
    comparison = pair(terms, terms)
    assert comparison.verdict is Verdict.ALIGNED
    assert "loss terms" not in {result.name for result in comparison.stages}


def test_equal_terms_are_the_same_and_part_of_the_objective(pair: OfTerms, tmp_path: Path) -> None:
    ours = {AUXILIARY: 0.002, PREDICTION: 1.5}
    comparison = pair(ours, ours | {AUXILIARY: 0.002 * (1 + 1e-7)})
    result = stage(comparison, "loss terms")
    assert (comparison.verdict, result.status) == (Verdict.ALIGNED, Status.SAME)
    assert {finding.name for finding in result.findings} == {AUXILIARY, PREDICTION}
    row = open_run(run_with(ours).write(tmp_path / "ours")).rows[0]
    assert row.objective_loss == pytest.approx(row.loss + 1.502, rel=1e-12)


def test_another_coefficient_is_named_although_every_token_agrees(pair: OfTerms) -> None:
    comparison = pair({AUXILIARY: 0.002}, {AUXILIARY: 0.02})
    assert (comparison.verdict, comparison.first.name) == (Verdict.DIVERGED, "loss terms")
    assert (comparison.blame.place, comparison.blame.suspects[0].name) == (FaultLocation.GRADIENTS, AUXILIARY)
    assert stage(comparison, "token losses").status is Status.SAME


def test_a_term_that_one_side_lacks_is_zero_there(pair: OfTerms) -> None:
    assert stage(pair({PREDICTION: 1.5}, {PREDICTION: 1.5, AUXILIARY: 0.0}), "loss terms").status is Status.SAME
    assert stage(pair({PREDICTION: 1.5}, {}), "loss terms").status is Status.DIFFERENT


def test_of_a_record_that_does_not_know_its_terms_the_language_models_objective_is_compared(pair: OfTerms) -> None:
    """As records of earlier versions do not."""
    comparison = pair(None, {AUXILIARY: 0.02})
    assert comparison.verdict is Verdict.ALIGNED
    assert stage(comparison, "loss terms").status is Status.NOT_COMPARED
    assert stage(comparison, "step-0 loss").status is Status.SAME


# ---- of a long run few rows are looked at


@pytest.mark.parametrize("step", [0, 2, 4])
@pytest.mark.parametrize("key", ["random", "state"])
def test_rows_are_looked_at_where_texts_differ_on_any_rank(tmp_path: Path, key: str, step: int) -> None:
    content = {"random": [{"torch": "a"}, {"torch": "b"}], "state": {"consumed samples": 1.0}}
    other = {"random": [{"torch": "c"}, {"torch": "b"}], "state": {"consumed samples": -1.0}}
    paths = [of_ranks(tmp_path / name, DP2, steps=range(5)) for name in ("reference", "candidate")]
    for path in paths:
        for rank in range(2):
            file = layout.scalars(path, rank)
            rows = [json.loads(line) | content for line in file.read_bytes().splitlines()]
            rows[step] |= {key: other[key]} if rank == 1 and path is paths[1] else {}
            texts = [json.dumps({name: value for name, value in row.items() if name != "digest"}) for row in rows]
            file.write_bytes(b"".join(digests.seal(text.encode()) + b"\n" for text in texts))
    pair = Pair(*map(open_run, paths))
    assert pair.may_differ(key) == [step]
    assert pair.may_differ("state" if key == "random" else "random") == []
    drawn = first_difference(pair)
    assert (drawn is not None and (drawn.step, drawn.rank) == (step, 1)) if key == "random" else drawn is None
