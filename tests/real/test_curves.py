"""The curves that both frameworks leave for TensorBoard, beside the record of the same run."""

import math
from pathlib import Path

import pytest

from align_hooks import Run, open_run
from align_hooks.evidence.convert import convert_curves, is_curves
from real import frameworks

pytest.importorskip("tensorboard")


def same(record: Run, curves: Run) -> None:
    """Every number of a curve is the record's own, as fp32 keeps it."""
    assert curves.steps == record.steps
    for ours, theirs in zip(record.rows, curves.rows, strict=True):
        assert math.isclose(theirs.loss or 0.0, ours.loss or 1.0, rel_tol=1e-6)
        assert math.isclose(theirs.grad_norm or 0.0, ours.grad_norm or 1.0, rel_tol=1e-6)
        assert theirs.consumed_samples == ours.consumed_samples


@pytest.mark.slow
def test_both_frameworks_events_are_their_runs(tmp_path: Path, real_corpus: Path) -> None:
    flags = ("--tensorboard-dir", "events", "--log-interval", "2")  # its text log has means of two steps
    recorded = {"RUN": "run", "BATCHES": "all", "WEIGHTS": "0"}
    megatron = frameworks.kept(frameworks.megatron, flags=flags, **recorded)
    board = {"tensorboard": {"tensorboard_dir": "events", "log_loss_scale_to_tensorboard": True}}
    mindformers = frameworks.kept(frameworks.mindformers, change=board, **frameworks.fed_by(megatron.run), **recorded)
    for name, trained in (("megatron", megatron), ("mindformers", mindformers)):
        assert is_curves(trained.where / "events")
        convert_curves(trained.where / "events", tmp_path / "curves" / name)
        record, curves = (open_run(path) for path in (trained.run, tmp_path / "curves" / name))
        same(record, curves)
        late = name == "megatron"  # which logs the next step's rate
        ours, theirs = ([row.learning_rate for row in run.rows[late:]] for run in (record, curves))
        assert theirs == pytest.approx(ours, rel=1e-6)
        assert (curves.rows[0].learning_rate is None) == late
    assert "aligned" in frameworks.aligned(*(tmp_path / "curves" / name for name in ("megatron", "mindformers"))).output
