"""The honest pair: Megatron recorded, MindFormers on the same weights and batches, and Hugging Face as a third opinion."""

from pathlib import Path

import numpy as np
import pytest

from align_hooks import Run, open_run
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import Status
from real import frameworks, huggingface
from worded import messages
from zoo import altered


def test_the_pair_is_aligned(reference: Path, candidate: Path) -> None:
    assert frameworks.aligned(reference, candidate).output.startswith("aligned:")
    stages = compare(open_run(reference), open_run(candidate)).stages
    assert [stage.name for stage in stages if stage.status is Status.NOT_COMPARED] == ["curve"]


def test_every_loss_agrees_to_1e_6(reference: Path, candidate: Path) -> None:
    errors = frameworks.loss_errors(open_run(reference), open_run(candidate))
    assert len(errors) == frameworks.STEPS
    assert max(errors) < 1e-6


def test_first_norms_and_gradients_agree_to_1e_5(reference: Path, candidate: Path) -> None:
    ours, theirs = open_run(reference), open_run(candidate)
    assert set(ours.gradients(0)) == set(theirs.gradients(0)) == set(ours.local_norms(0)) == set(theirs.local_norms(0))
    assert len(ours.gradients(0)) == 21
    assert frameworks.furthest(ours.gradients(0), theirs.gradients(0)) < 1e-5
    for name, gradient in ours.gradients(0).items():
        assert theirs.local_norms(0)[name] == pytest.approx(ours.local_norms(0)[name], rel=1e-5), name
        assert ours.local_norms(0)[name] == pytest.approx(float(np.linalg.norm(gradient.astype(np.float64))), rel=4e-6), name


def test_loaded_weights_are_equal_to_the_bit(reference: Path, candidate: Path) -> None:
    ours, theirs = open_run(reference).weights(0), open_run(candidate).weights(0)
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


def test_recorded_sketches_are_those_of_the_tensors(reference: Path, candidate: Path) -> None:
    """Those that MindSpore's graph takes of gradients are made of sums in fp32."""
    assert max(frameworks.sketch_errors(open_run(reference))) < 1e-12
    assert max(frameworks.sketch_errors(open_run(candidate), ["weights"])) < 1e-12
    assert max(frameworks.sketch_errors(open_run(candidate), ["gradients"])) < 1e-6


def exchanged_weights(where: Path, reference: Path) -> None:
    altered.checkpoint("keys_as_values", reference, where)


@pytest.mark.slow  # the zoo has it too, 87 times
def test_sketches_alone_tell_an_honest_side_from_a_wrong_conversion(reference: Path) -> None:
    """No tensor stored: aligned on the reference's weights; with two projections exchanged, that is what is said."""
    fed = {"REPLAY_BATCHES": reference, "BATCHES": "all", "LOCAL_NORMS": "all", "SKETCHES": "all"}
    wrong = frameworks.derived(exchanged_weights, reference)
    for weights, code in ((reference, 0), (wrong, 1)):
        run = frameworks.kept(frameworks.mindformers, RUN="run", LOAD_WEIGHTS=weights, **fed).run
        assert not list(run.rglob("*.safetensors"))
        done = frameworks.compare(reference, run)
        assert done.code == code, done.output
    found = frameworks.first(frameworks.diverged(reference, run))
    assert (found.name, len(found.findings)) == ("initial weights", 21)
    exchanged = {f"model.layers.0.self_attn.{name}_proj.weight" for name in "kv"}
    assert exchanged in [set(told.arguments.values()) for told in messages(found.summary) if told.id == "conversion.exchanged"]


def test_each_framework_s_norm_is_that_of_the_recorded_gradients(reference: Path, candidate: Path) -> None:
    for path in (reference, candidate):
        run = open_run(path)
        whole = sum(norm**2 for norm in run.local_norms(0).values()) ** 0.5
        assert run.scalars()[0]["grad_norm"] == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_hugging_face_agrees_on_the_recorded_weights(side: str, request: pytest.FixtureRequest) -> None:
    run = open_run(request.getfixturevalue(side))
    loss, gradients = third_opinion(run)
    assert loss == pytest.approx(run.scalars()[0]["loss"], rel=1e-6)
    assert frameworks.furthest(gradients, run.gradients(0)) < 1e-5


def third_opinion(run: Run) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients of transformers' own model, opened from the record with no help from us."""
    torch, where = huggingface.torch, run.path / "step_0" / "rank_0" / "weights"
    given = {"dtype": torch.float32, "attn_implementation": "eager", "local_files_only": True}
    model = huggingface.transformers.AutoModelForCausalLM.from_pretrained(where, **given)
    tokens, labels, mask = (torch.tensor(array) for array in (run.batch(0).tokens, run.batch(0).labels, run.batch(0).loss_mask))
    loss = huggingface.mean_loss(model(tokens).logits, labels, mask)
    loss.backward()
    return float(loss.detach()), {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}


def test_the_record_says_what_was_overridden(candidate: Path, reference: Path) -> None:
    overrides = {override.what: override for override in open_run(candidate).facts.overrides}
    assert overrides["context.device_target"].after == "CPU"
    assert overrides["train_dataset.data_loader"].after.count(str(reference)) == 1
    assert overrides["weights"].after == f"{reference}@0"
    assert {"model.model_config.input_sliced_sig", "train_dataset.input_columns"} <= overrides.keys()


def test_micro_batches_are_joined_and_their_boundaries_kept(reference: Path) -> None:
    batch = open_run(reference).batch(1)
    assert batch.rows == ((2, 2),)
    assert batch.tokens is not None and batch.labels is not None
    assert batch.tokens.shape == (4, 128)
    assert np.array_equal(batch.tokens[:, 1:], batch.labels[:, :-1])
    assert batch.causal


def test_scalars_hold_the_whole_contract(reference: Path, candidate: Path) -> None:
    wanted = {"step", "loss", "objective_loss", "valid_tokens", "consumed_samples", "grad_norm", "clip_coefficient"}
    wanted |= {"learning_rate", "loss_scale", "skipped", "seconds"}
    for path in (reference, candidate):
        rows = open_run(path).scalars()
        assert [row["step"] for row in rows] == [0, 1, 2]
        assert all(row.keys() == wanted for row in rows)
        assert [row["consumed_samples"] for row in rows] == [4, 8, 12]
        assert all(row["valid_tokens"] == 512 and row["seconds"] > 0 and row["skipped"] is False for row in rows)
        assert rows[0]["clip_coefficient"] == pytest.approx(1 / (rows[0]["grad_norm"] + 1e-6), rel=1e-6)
