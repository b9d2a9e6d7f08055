"""What a run has at every step, as pandas DataFrames."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from align_hooks.errors import RecordError, shown
from align_hooks.extras import needing
from align_hooks.record.format.rows import ScalarRow
from align_hooks.record.read.run_rows import RunRows
from align_hooks.record.read.sums import norm_columns

if TYPE_CHECKING:
    import pandas as pd


def of_run(run: RunRows, quantity: str) -> pd.DataFrame:
    """The frame of a quantity, one of :data:`FRAMES`; raises RecordError for any other, and AlignHooksError without pandas."""
    if quantity not in FRAMES:
        raise RecordError(f"there is no frame of {shown(str(quantity))}; there are frames of {' and '.join(FRAMES)}")
    return FRAMES[quantity](run)


def scalars(run: RunRows) -> pd.DataFrame:
    """A column a number of :class:`.rows.ScalarRow`, without those that no row has. Of learning rates that differ between parameter
    groups there is a column a group, ``learning_rate.0``, and of the loss's other terms one a term, ``terms.NAME``."""
    pandas = imported()
    table = pandas.DataFrame([_flat(row) for row in run.rows], index=pandas.Index(run.steps if run.rows else [], name="step"))
    if "skipped" in table:
        table["skipped"] = table["skipped"].astype("boolean")
    return table.dropna(axis="columns", how="all")


def _flat(row: ScalarRow) -> dict[str, Any]:
    """A row's numbers by column."""
    numbers = {name: getattr(row, name) for name in ScalarRow.__struct_fields__ if name not in ("step", "terms")}
    if isinstance(numbers["learning_rate"], list):
        numbers |= {f"learning_rate.{group}": rate for group, rate in enumerate(numbers.pop("learning_rate"))}
    return numbers | {f"terms.{name}": value for name, value in (row.terms or {}).items()}


def local_norms(run: RunRows) -> pd.DataFrame:
    """A column a tensor, by its canonical name, in the order of the parameter tables: the norm of its whole gradient."""
    pandas, steps = imported(), run.local_norm_steps()
    columns = norm_columns(run, steps) if steps else {}
    return pandas.DataFrame(columns, index=pandas.Index(steps, name="step", dtype="int64")).rename_axis(columns="name")


def imported() -> Any:
    """The module ``pandas``; raises AlignHooksError, which names the extra, where it is not installed."""
    with needing("pandas", "a DataFrame"):
        import pandas
    return pandas


FRAMES: dict[str, Callable[[RunRows], pd.DataFrame]] = {"scalars": scalars, "local_norms": local_norms}
