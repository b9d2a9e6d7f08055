"""The curves that both frameworks leave for TensorBoard, beside the record of the same run."""

from __future__ import annotations

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
def test_both_frameworks_events_are_their_runs(tmp_path: Path) -> None:
    events = tmp_path / "events"
    flags = ("--tensorboard-dir", str(events / "megatron"), "--log-interval", "2")  # its text log has means of two steps
    recorded = {"BATCHES": "all", "WEIGHTS": "0"}
    frameworks.megatron(tmp_path / "a", flags=flags, RUN=tmp_path / "megatron", **recorded).succeeded()
    board = {"tensorboard": {"tensorboard_dir": str(events / "mindformers"), "log_loss_scale_to_tensorboard": True}}
    fed = frameworks.fed_by(tmp_path / "megatron")
    frameworks.mindformers(tmp_path / "b", change=board, RUN=tmp_path / "mindformers", **fed, **recorded).succeeded()
    for name in ("megatron", "mindformers"):
        assert is_curves(events / name)
        convert_curves(events / name, tmp_path / "curves" / name)
        record, curves = (open_run(path) for path in (tmp_path / name, tmp_path / "curves" / name))
        same(record, curves)
        late = name == "megatron"  # which logs the next step's rate
        assert [row.learning_rate for row in curves.rows[late:]] == pytest.approx(
            [row.learning_rate for row in record.rows[late:]], rel=1e-6
        )
        assert (curves.rows[0].learning_rate is None) == late
    done = frameworks.python(
        tmp_path, ["-m", "align_hooks", "compare", *(str(tmp_path / "curves" / name) for name in ("megatron", "mindformers"))], {}, {}
    )
    assert done.code == 0, done.output
    assert "aligned" in done.output
