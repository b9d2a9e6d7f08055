"""Megatron on its own: replayed on itself, meant for GPUs, resumed, padded and tied."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from align_hooks import open_run
from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.sides import check
from checklist.exercises import to_change
from real import frameworks


def test_megatron_replays_itself_to_the_bit_without_its_data(reference: Path) -> None:
    change = {"--data-path": "not/there", "--init-method-std": "0.3", "--eval-iters": "5"}
    given = {**frameworks.fed_by(reference), **frameworks.EVERYTHING, "SEED": 7}
    done = frameworks.kept(frameworks.megatron, change=change, RUN="run", **given)
    assert "args.eval_iters: 5 -> 0 (ALIGN_HOOKS_REPLAY_BATCHES)" in done.ours
    ours, theirs = open_run(reference), open_run(done.run)
    overrides = {override.what: override.after for override in theirs.facts.overrides}
    assert overrides["training data"] == f"{reference}@all"
    assert overrides["weights"] == f"{reference}@0"
    assert [row["loss"] for row in ours.scalars()] == [row["loss"] for row in theirs.scalars()]
    for step in (0, 2):
        assert all(np.array_equal(ours.gradients(step)[name], theirs.gradients(step)[name]) for name in ours.gradients(step))
    frameworks.aligned(reference, done.run)


def test_a_rehearsal_takes_a_command_that_is_meant_for_gpus(reference: Path) -> None:
    """What is only fast is switched off, and listed; the numbers are those of a command that says so itself."""
    change = {**dict.fromkeys(name for name in FAST if name.startswith("--no-")), "--use-cpu-initialization": None}
    change |= {"--transformer-impl": "transformer_engine", "--distributed-backend": "nccl"}
    flags = ("--cross-entropy-loss-fusion", "--te-rng-tracker", "--use-distributed-optimizer", "--attention-backend", "flash")
    flags += ("--delay-wgrad-compute", "--use-te-activation-func", "--use-sharp")
    fed = frameworks.fed_by(reference)
    done = frameworks.kept(frameworks.megatron, change=change, flags=flags, RUN="run", **fed, LOCAL_NORMS="all")
    assert "args.transformer_impl: transformer_engine -> local (ALIGN_HOOKS_DEVICE)" in done.ours
    assert "MASTER_PORT: not set -> 0 (ALIGN_HOOKS_DEVICE)" in done.ours
    run = open_run(done.run)
    overridden = {override.what for override in run.facts.overrides}
    assert {f"args.{name}" for name in FAST.values()} <= overridden
    assert [row["loss"] for row in run.scalars()] == [row["loss"] for row in open_run(reference).scalars()]


FAST = {
    "--transformer-impl": "transformer_impl",
    "--distributed-backend": "distributed_backend",
    "--use-cpu-initialization": "use_cpu_initialization",
    "--no-masked-softmax-fusion": "masked_softmax_fusion",
    "--no-bias-swiglu-fusion": "bias_swiglu_fusion",
    "--no-bias-dropout-fusion": "bias_dropout_fusion",
    "--no-rope-fusion": "apply_rope_fusion",
    "--no-gradient-accumulation-fusion": "gradient_accumulation_fusion",
    "--no-persist-layer-norm": "no_persist_layer_norm",
}
"""What ``llama.args`` says for a CPU, and the attribute of each."""


@pytest.mark.slow
def test_replay_stops_at_the_last_recorded_step_and_keeps_the_schedule(reference: Path) -> None:
    change = {"--train-iters": "8", "--lr-decay-style": "linear", "--min-lr": "0"}
    done = frameworks.kept(frameworks.megatron, change=change, RUN="run", REPLAY_BATCHES=f"{reference}@0-1")
    assert "training stops after iteration 2 of 8" in done.ours
    rates = [row["learning_rate"] for row in open_run(done.run).scalars()]
    assert rates == pytest.approx([1e-3, 1e-3 * 7 / 8])


@pytest.mark.slow
def test_a_resumed_run_is_fed_its_own_steps_and_goes_on_counting(reference: Path) -> None:
    checkpoint = {"--ckpt-format": "torch", "--save": "checkpoint", "--save-interval": "1"}
    saved = frameworks.kept(frameworks.megatron, change=checkpoint | {"--exit-interval": "1"})
    resumed = {"--ckpt-format": "torch", "--load": str(saved.where / "checkpoint")}
    run = frameworks.recorded(frameworks.megatron, change=resumed, REPLAY_BATCHES=reference)
    ours, theirs = open_run(reference), open_run(run)
    assert theirs.steps == theirs.batch_steps() == [1, 2]
    assert theirs.problems == []
    assert all(np.array_equal(ours.batch(step).tokens, theirs.batch(step).tokens) for step in theirs.steps)
    assert [row["loss"] for row in theirs.scalars()] == [row["loss"] for row in ours.scalars()[1:]]
    assert all(np.array_equal(ours.weights(3)[name], theirs.weights(3)[name]) for name in ours.weights(3))


@pytest.fixture(scope="module")
def padded(real_corpus: Path) -> Path:
    """Tied embeddings, and a vocabulary of 257 that Megatron pads to 384."""
    change = {"--vocab-size": "257", "--untie-embeddings-and-output-weights": None}
    return frameworks.recorded(frameworks.megatron, change=change)


def test_padded_rows_are_a_piece_of_their_own(padded: Path) -> None:
    run = open_run(padded)
    assert run.weights(0)["model.embed_tokens.weight"].shape == (257, 64)
    assert run.weights(0)["model.embed_tokens.weight#padding"].shape == (127, 64)
    assert "lm_head.weight" not in run.weights(0)
    assert run.local_norms(0)["model.embed_tokens.weight#padding"] > 0
    model = load_file(padded / "step_0" / "rank_0" / "weights" / "model.safetensors")
    assert not any("#" in name for name in model)


@pytest.mark.slow
def test_a_padded_and_tied_pair_is_aligned(padded: Path) -> None:
    change = {"model.model_config.vocab_size": 384, "model.model_config.tie_word_embeddings": True}
    frameworks.aligned(padded, frameworks.recorded(frameworks.mindformers, change=change, **frameworks.fed_by(padded)))


@pytest.mark.slow
def test_a_padded_vocabulary_is_aligned_as_check_and_compare_advise(padded: Path) -> None:
    """The size without padding is planted; what is printed is done as it is printed."""
    yaml = {"model.model_config.tie_word_embeddings": True, "model.model_config.init_method_std": 0.1}
    yaml["model.model_config.vocab_size"] = 257
    planted = frameworks.kept(frameworks.mindformers, change=yaml, RUN="run", REPLAY_BATCHES=padded)
    apart = frameworks.compare(padded, planted.run)
    assert apart.code == 3
    assert "vocab_size: 384" in apart.output
    advice = differing(padded, planted.where / "llama.yaml")
    assert advice == {"rows_of_the_embedding": "vocab_size: 384"}
    key, _, value = advice["rows_of_the_embedding"].partition(": ")
    yaml[f"model.model_config.{key}"] = int(value)
    fed = frameworks.fed_by(padded)
    mended = frameworks.kept(frameworks.mindformers, change=yaml, RUN="run", **fed)
    assert differing(padded, mended.where / "llama.yaml") == {}
    assert differing(padded, mended.run) == {}
    assert frameworks.aligned(padded, mended.run).output.startswith("aligned:")


FIRST_WEIGHTS = "initial_scale_of_output_projections"
"""A row that differs between the frameworks unless weights are loaded, and that no setting mends."""


def differing(reference: Path, candidate: Path) -> dict[str, str]:
    """What changes the result, by row, with what a check prints to do about it."""
    comparison = check(str(reference), str(candidate), {})
    apart = [found for outcome in (RowOutcome.DIFFERENT, RowOutcome.UNKNOWN) for found in comparison.of(outcome)]
    return {found.row.id: to_change(found) for found in apart if found.row.id != FIRST_WEIGHTS}


@pytest.mark.slow
def test_a_mindformers_without_the_padding_is_refused(padded: Path) -> None:
    change = {"model.model_config.vocab_size": 257, "model.model_config.tie_word_embeddings": True}
    done = frameworks.kept(frameworks.mindformers, 2, change=change, **frameworks.fed_by(padded))
    assert "model.embed_tokens.weight#padding [127, 64] is not of this model" in done.ours
