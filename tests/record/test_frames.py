"""A run's numbers as pandas DataFrames: a row a step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from align_hooks import open_run
from sharded import Grid, Model
from sharded import write as write_sharded
from synthetic import NAMES, STEPS, Synthetic, by_hand, row, scalars_only


def test_scalars_have_a_row_a_step_and_a_column_a_number(tmp_path: Path) -> None:
    run = open_run(Synthetic().write(tmp_path / "run"))
    frame = run.to_frame()
    assert frame.index.name == "step" and list(frame.index) == run.steps
    assert list(frame.loss) == [scalars.loss for scalars in run.rows]
    assert frame.loc[1, "consumed_samples"] == run.scalars()[1]["consumed_samples"]
    assert str(frame.skipped.dtype) == "boolean"
    assert frame.dtypes["loss"] == frame.dtypes["grad_norm"] == "float64"
    assert "terms" not in frame and frame.notna().all().all()


def test_what_no_row_has_is_no_column(tmp_path: Path) -> None:
    frame = open_run(scalars_only((9.0, None, 8.8)).write(tmp_path / "run")).to_frame()
    assert frame.loss.isna().tolist() == [False, True, False]
    made = scalars_only()
    for scalars in made.rows:
        scalars["grad_norm"] = None
    assert "grad_norm" not in open_run(made.write(tmp_path / "other")).to_frame()


def test_rates_of_groups_and_terms_of_the_loss_have_columns_of_their_own(tmp_path: Path) -> None:
    made = scalars_only()
    made.rows = [row(step, learning_rate=[1e-3, 2e-3], terms={"load_balancing": 0.5}) for step in range(STEPS)]  # type: ignore[arg-type]
    frame = open_run(made.write(tmp_path / "run")).to_frame()
    assert "learning_rate" not in frame
    assert frame["learning_rate.1"].tolist() == [2e-3] * STEPS
    assert frame["terms.load_balancing"].tolist() == [0.5] * STEPS


@pytest.mark.parametrize("grid", [Grid(), Grid(tp=2, pp=2, dp=2), Grid(dp=2, distributed=True)], ids=["one", "copies", "distributed"])
def test_norms_have_a_column_a_tensor(tmp_path: Path, grid: Grid) -> None:
    run = open_run(write_sharded(tmp_path / "run", grid, Model().tensors(1)))
    frame = run.to_frame("local_norms")
    assert list(frame.index) == [0] and frame.columns.name == "name"
    assert frame.loc[0].to_dict() == run.local_norms(0)


def test_norms_are_in_the_order_of_the_model(tmp_path: Path) -> None:
    frame = open_run(Synthetic().write(tmp_path / "run")).to_frame("local_norms")
    assert list(frame) == NAMES
    assert frame.shape == (STEPS, len(NAMES))


def test_a_run_without_any_has_an_empty_frame(tmp_path: Path) -> None:
    for run in (open_run(scalars_only().write(tmp_path / "run")), open_run(by_hand(tmp_path / "hand"))):
        frame = run.to_frame("local_norms")
        assert isinstance(frame, pd.DataFrame) and frame.empty
    assert open_run(tmp_path / "hand").to_frame().empty


def test_without_pandas_the_extra_is_named(tmp_path: Path) -> None:
    Synthetic().write(tmp_path / "run")
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "import align_hooks\n"
        "try: align_hooks.open_run(sys.argv[1]).to_frame()\n"
        "except align_hooks.errors.AlignHooksError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "a DataFrame needs pandas, which is not installed; pip install 'pandas>=2.1.1'\n"
