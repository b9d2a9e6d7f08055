"""A forward_step and a loss function of one's own: the loss mask on record is the one that training used, or its absence is said."""

from pathlib import Path

import numpy as np
import pytest

from align_hooks import Run, open_run
from align_hooks.names.blocks import Array
from align_hooks.record.format.missing_batch import NOT_REPLAYED, MissingBatchReason
from chosen import slow_but
from real import frameworks
from real.kept import Kept

SCRIPT = frameworks.SCRIPTS / "own_forward_step.py"
BATCHES = {"BATCHES": "all", "LOCAL_NORMS": "0"}
SEEN = (
    *("closure", "method", "keyword", "flat", "labels first", "scalar", "teacher", "recomputed", "twice"),
    *("partial, fractional", "flat, fractional", "closure, two elements", "method, two elements", "partial, fractional, two elements"),
)
"""Forms whose mask is seen: nothing is handed over, or not where it is looked for, or more than the mask."""
UNSEEN = {"own cross entropy": MissingBatchReason.LABELS, "closure, fractional": MissingBatchReason.WEIGHTS}
LAYOUTS = {
    "4 micro-batches": (1, "--micro-batch-size 1"),
    "per-token loss": (1, "--calculate-per-token-loss"),
    "bf16": (1, "--bf16"),
    "fp16, TP2": (2, "--fp16 --initial-loss-scale 65536 --tensor-model-parallel-size 2 --sequence-parallel"),
    "CP2": (2, "--context-parallel-size 2"),
    "DP2": (2, "--use-distributed-optimizer"),
    "PP2": (2, "--pipeline-model-parallel-size 2"),
    "PP2, virtual": (2, "--pipeline-model-parallel-size 2 --num-layers 4 --num-layers-per-virtual-pipeline-stage 1 --micro-batch-size 1"),
    "all computed again": (1, "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"),
}
"""How many ranks a layout has, and its flags."""


def own(form: str, *, ranks: int | None = None, flags: str = "", **variables: object) -> Kept:
    given = {"OWN_FORM": form, "WITNESS": "witness_{rank}.npz"}
    return frameworks.kept(frameworks.megatron, script=SCRIPT, ranks=ranks, flags=tuple(flags.split()), environment=given, **variables)


def expected(labels: Array, form: str) -> Array:
    mask = (labels % 3 != 0).astype(np.float32)
    return mask * np.where(labels % 2 == 1, np.float32(0.5), np.float32(1)) if "fractional" in form else mask


def whole(run: Run, form: str) -> None:
    """The run's masks are those that training used, its losses those of its tokens, and it says nothing against itself."""
    assert run.batch_steps() == list(range(frameworks.STEPS))
    for step in run.steps:
        batch = run.batch(step)
        assert batch.labels is not None and batch.loss_mask is not None
        np.testing.assert_array_equal(batch.loss_mask, expected(batch.labels, form))
        assert 0 < batch.loss_mask.sum() < batch.loss_mask.size
    assert run.self_check.of_layout == []


@pytest.mark.parametrize("form", slow_but(SEEN, "closure, two elements"))
def test_the_mask_is_seen_in_whatever_form_the_script_has_it(real_corpus: Path, form: str) -> None:
    done = own(form, RUN="run", **BATCHES)
    run = open_run(done.run)
    whole(run, form)
    assert run.unseen == ([MissingBatchReason.PASSES] if form == "twice" else [])
    assert ("loss_mask is not recorded" in done.ours) is False
    if "two elements" in form:
        assert [row.valid_tokens for row in run.rows] == [None] * frameworks.STEPS
        for row in run.rows:
            assert row.loss is not None and row.objective_loss is not None
            np.testing.assert_allclose(row.objective_loss, row.loss, rtol=1e-6)
    if "fractional" not in form or "two elements" in form:
        assert run.self_check.contradictions == ()


@pytest.mark.slow
@pytest.mark.parametrize("form", UNSEEN)
def test_what_is_not_seen_is_said_and_left_out_and_never_replayed(real_corpus: Path, form: str) -> None:
    done = own(form, RUN="run", **BATCHES)
    lines = [line for line in done.ours.splitlines() if "loss_mask" in line]
    assert len(lines) == 1, done.ours
    run = open_run(done.run)
    assert run.unseen == [UNSEEN[form]]
    assert run.unseen[0] in NOT_REPLAYED
    batch = run.batch(0)
    assert batch.loss_mask is None
    assert (batch.labels is None, batch.token_losses is None) == ((True, True) if form == "own cross entropy" else (False, False))


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_mask_is_seen_in_every_layout(real_corpus: Path, layout: str) -> None:
    ranks, flags = LAYOUTS[layout]
    for form in ("closure", "closure, two elements"):
        run = open_run(own(form, ranks=ranks, flags=flags, RUN="run", **BATCHES).run)
        whole(run, form)
        assert run.unseen == [] and run.problems == []
        assert run.self_check.contradictions == ()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["closure", "scalar", "partial, fractional", "closure, two elements", "recomputed", "twice"])
@pytest.mark.parametrize("layout", ["4 micro-batches", "fp16, TP2", "PP2, virtual"])
def test_listening_leaves_losses_and_weights_bitwise_as_they_were(real_corpus: Path, form: str, layout: str) -> None:
    if form in ("twice", "scalar") and "PP2" in layout:
        pytest.skip("a stage's input is set for one call, and not every chunk that has labels makes a loss")
    ranks, flags = LAYOUTS[layout]
    runs = [own(form, ranks=ranks, flags=flags, **asked) for asked in ({}, {"RUN": "run"} | frameworks.EVERYTHING)]
    for rank in range(ranks):
        plain, recorded = (np.load(run.where / f"witness_{rank}.npz") for run in runs)
        assert len(plain.files) > 10 and plain.files == recorded.files
        assert [name for name in plain.files if plain[name].tobytes() != recorded[name].tobytes()] == []


def test_a_mean_over_the_ranks_of_a_sequence_is_recorded_as_one_rank_has_it(real_corpus: Path) -> None:
    """MindSpeed-LLM's fine-tuning: each rank returns the mean of all of them, and differentiates its own tokens."""
    single = open_run(own("closure, two elements", RUN="run", **BATCHES).run)
    run = open_run(own("closure, over the sequence", ranks=2, flags="--context-parallel-size 2", RUN="run", **BATCHES).run)
    whole(run, "closure")
    for ours, theirs in zip(single.rows, run.rows, strict=True):
        for name in ("loss", "objective_loss", "grad_norm"):
            np.testing.assert_allclose(getattr(theirs, name), getattr(ours, name), rtol=2e-6, err_msg=name)


@pytest.mark.slow
def test_a_loss_of_all_ranks_whose_own_part_is_not_known_ends_recording_and_not_training(real_corpus: Path) -> None:
    flags = "--context-parallel-size 2"
    done = own("closure, over the sequence, half", ranks=2, flags=flags, RUN="run", code=(1, 3), **BATCHES)
    assert "returns neither these sums nor their mean, so that this rank's own part is not known" in done.output
    assert len(np.load(done.where / "witness_0.npz")["losses"]) == 2 * frameworks.STEPS
    assert open_run(done.run).steps == []
