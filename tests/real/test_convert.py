"""Logs that the real frameworks printed, against the records of the same runs."""

from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import Status
from align_hooks.evidence.convert import convert
from comparison.conftest import stage
from real import frameworks


def test_a_log_says_what_the_record_says_of_each_step(reference: Path, candidate: Path, tmp_path: Path) -> None:
    for name, run in (("reference", reference), ("candidate", candidate)):
        converted, _ = convert(run.parent / "log", tmp_path / name)
        recorded = open_run(run).scalars()
        for quantity in ("loss", "grad_norm"):
            logged = [row[quantity] for row in converted.rows]
            # beside what printing takes: fp32 on its way to the log
            assert logged == pytest.approx([row[quantity] for row in recorded], abs=converted.resolution[quantity] + 1e-6), quantity
        rates = [(row["learning_rate"], right["learning_rate"]) for row, right in zip(converted.rows, recorded, strict=True)]
        logged_rates = [(logged, right) for logged, right in rates if logged is not None]
        assert all(logged == pytest.approx(right, rel=1e-5) for logged, right in logged_rates)
        assert len(logged_rates) == frameworks.STEPS - (name == "reference")
    frameworks.aligned(tmp_path / "reference", tmp_path / "candidate")
    frameworks.aligned(reference, tmp_path / "candidate")


def test_a_log_without_its_first_line_says_no_loss_that_is_not_the_records(reference: Path, candidate: Path, tmp_path: Path) -> None:
    for name, run in (("reference", reference), ("candidate", candidate)):
        lines = [line for line in (run.parent / "log").read_text().splitlines() if "iteration  " in line or "step:[" in line]
        (tmp_path / name).write_text("\n".join(lines[1:]))
        converted, _ = convert(tmp_path / name, tmp_path / f"{name}_run")
        for row in converted.rows:
            recorded = open_run(run).row(int(row["step"] or 0)).loss
            assert row["loss"] in (None, pytest.approx(recorded, abs=converted.resolution.get("loss", 0.0) + 1e-6))
        assert [row["loss"] is None for row in converted.rows] == [name == "reference"] * (frameworks.STEPS - 1)


@pytest.mark.slow
def test_the_local_norms_that_mindformers_logs_are_those_of_the_record(reference: Path, tmp_path: Path) -> None:
    """In the order of the optimizer's groups, which the record of another run of the model knows."""
    variables = frameworks.fed_by(reference) | {"RUN": tmp_path / "run", "LOCAL_NORMS": "all"}
    done = frameworks.mindformers(tmp_path, change={"runner_wrapper.local_norm": True}, **variables).succeeded()
    (tmp_path / "log").write_text(done.output)
    convert(tmp_path / "log", tmp_path / "converted", tmp_path / "run")
    recorded, converted = open_run(tmp_path / "run"), open_run(tmp_path / "converted")
    for step in recorded.steps:
        assert converted.local_norms(step) == pytest.approx(recorded.local_norms(step), rel=1e-6)
    frameworks.aligned(reference, tmp_path / "converted")
    assert stage(compare(open_run(reference), converted), "local norms").status is Status.SAME
