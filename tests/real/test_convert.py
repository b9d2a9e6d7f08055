"""Logs that the real frameworks printed, against the records of the same runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.evidence.convert import convert
from real import frameworks


def test_a_log_says_what_the_record_says_of_each_step(reference: Path, candidate: Path, tmp_path: Path) -> None:
    for name, run in (("reference", reference), ("candidate", candidate)):
        found, _ = convert(run.parent / "log", tmp_path / name)
        recorded = open_run(run).scalars()
        for quantity in ("loss", "grad_norm"):
            said = [row[quantity] for row in found.rows]
            # beside what printing takes: fp32 on its way to the log
            assert said == pytest.approx([row[quantity] for row in recorded], abs=found.resolution[quantity] + 1e-6), quantity
        rates = [(row["learning_rate"], true["learning_rate"]) for row, true in zip(found.rows, recorded, strict=True)]
        assert all(said == pytest.approx(true, rel=1e-5) for said, true in rates if said is not None)
        assert len([said for said, _ in rates if said is not None]) == frameworks.STEPS - (name == "reference")
    assert frameworks.compare(tmp_path / "reference", tmp_path / "candidate").code == 0
    assert frameworks.compare(reference, tmp_path / "candidate").code == 0


def test_the_local_norms_that_mindformers_logs_are_those_of_the_record(reference: Path, tmp_path: Path) -> None:
    """In the order of the optimizer's groups, which the record of another run of the model knows."""
    fed = {"REPLAY_BATCHES": reference, "LOAD_WEIGHTS": reference, "RUN": tmp_path / "run", "LOCAL_NORMS": "all"}
    done = frameworks.mindformers(tmp_path, change={"runner_wrapper.local_norm": True}, **fed).succeeded()
    (tmp_path / "log").write_text(done.output)
    convert(tmp_path / "log", tmp_path / "converted", tmp_path / "run")
    recorded, converted = open_run(tmp_path / "run"), open_run(tmp_path / "converted")
    for step in recorded.steps:
        assert converted.local_norms(step) == pytest.approx(recorded.local_norms(step), rel=1e-6)
    compared = frameworks.compare(reference, tmp_path / "converted")
    assert compared.code == 0, compared.output
    assert "21 tensors, at step 0" in compared.output
