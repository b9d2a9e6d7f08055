"""What users' own scripts and settings do that a record must not pass over: inputs beside the batch, weights of tokens, compute types."""

from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.cli import app
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.verdict import Verdict
from align_hooks.messages import Side, message, terms
from invoked import invoke
from real import frameworks
from real.test_noninterference import DROPOUT
from worded import arguments, ids


def test_an_input_beside_the_batch_is_said_recorded_and_noted(reference: Path) -> None:
    fed, script = frameworks.fed_by(reference), frameworks.SCRIPTS / "decoder_input.py"
    done = frameworks.kept(frameworks.megatron, script=script, RUN="run", **fed, **frameworks.EVERYTHING)
    assert "align_hooks: the model is given decoder_input beside the batch: neither recorded nor replayed" in done.ours
    run = open_run(done.run)
    assert run.unrecorded_inputs == ["decoder_input"]
    assert open_run(reference).unrecorded_inputs == []
    comparison = compare(open_run(reference), run)
    assert message("notes.unrecorded_inputs", side=Side.CANDIDATE, names=terms(["decoder_input"])) in comparison.notes
    blame, why = comparison.blame, message("blame.unrecorded_inputs", names=terms(["decoder_input"]))
    assert blame is not None and (blame.place, blame.likely[0]) == ("forward", why)
    assert "the model is given decoder_input beside the batch" in " ".join(invoke(app, ["show", str(done.run)]).output.split())


@pytest.mark.slow
def test_it_is_said_without_any_batch_recorded(real_corpus: Path) -> None:
    script = frameworks.SCRIPTS / "decoder_input.py"
    done = frameworks.kept(frameworks.megatron, script=script, RUN="run", change={"--train-iters": "1"})
    assert "the model is given decoder_input beside the batch" in done.ours


@pytest.mark.slow
def test_a_loss_that_weighs_tokens_otherwise_contradicts_its_own_token_losses(reference: Path) -> None:
    script = frameworks.SCRIPTS / "weighted_loss.py"
    run = open_run(frameworks.recorded(frameworks.megatron, script=script, **frameworks.fed_by(reference)))
    assert [contradiction.step for contradiction in run.self_check.of_losses] == run.steps
    assert run.self_check.of_layout == []
    assert open_run(reference).self_check.contradictions == ()
    assert invoke(app, ["show", str(run.path)]).exit_code == 1
    blame = compare(open_run(reference), run).blame
    assert blame is not None
    assert (blame.place, ids(blame.suspects[0].what)[0]) == ("loss normalisation", "first_loss.not_the_mean")
    assert compare(run, run).verdict is Verdict.ALIGNED  # a script's own weights are no fault where both sides have them


@pytest.mark.slow
def test_float16_beside_float32_is_never_aligned(reference: Path) -> None:
    half = {"model.model_config.compute_dtype": "float16"}
    candidate = frameworks.recorded(frameworks.mindformers, change=half, **frameworks.fed_by(reference))
    comparison = compare(open_run(reference), open_run(candidate))
    assert comparison.verdict is not Verdict.ALIGNED
    first = comparison.settings[0]
    assert (first.what, first.reference, first.candidate) == (message("settings.compute_type"), "float32", "float16")
    assert arguments("notes.compute_types", comparison.notes)["coarser"] == "float16"


@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_random_states_are_recorded_at_every_step(side: str, request: pytest.FixtureRequest) -> None:
    run = open_run(request.getfixturevalue(side))
    for step in run.steps:
        (states,) = run.random_states(step).values()
        assert len(states[0]) >= 4
        assert len(states) == 1  # without dropout nothing is drawn, so that no micro-batch begins in another state than the step


@pytest.mark.slow
def test_dropout_moves_the_random_state_from_micro_batch_to_micro_batch(real_corpus: Path) -> None:
    run = frameworks.kept(frameworks.megatron, change=DROPOUT | {"--train-iters": "2"}, RUN="run").run
    (first,), (second,) = (open_run(run).random_states(step).values() for step in (0, 1))
    assert len(first) == len(second) == 3  # the start of the step, and of either micro-batch
    moved = {name for name in first[1] if first[1][name] != first[2][name]}
    assert moved == {"torch", "model-parallel-rng"}
    assert first[2] != second[0]
