"""One reference, and a way to lay a bent candidate beside it."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import StageResult
from align_hooks.comparison.verdict import ComparisonResult
from synthetic import Synthetic, grown, optimizer

HONEST = Synthetic()
Compared = Callable[..., ComparisonResult]


def stage(comparison: ComparisonResult, name: str) -> StageResult:
    (result,) = (result for result in comparison.stages if result.name == name)
    return result


def scale_row(run: Synthetic, step: int, key: str, factor: float) -> None:
    run.rows[step][key] *= factor


def scale(named: dict[str, Any], name: str, factor: float) -> None:
    named[name] = (named[name] * np.float32(factor)) if isinstance(named[name], np.ndarray) else named[name] * factor


def change_id(run: Synthetic, name: str, step: int) -> None:
    run.batches[step][name][1, 2] += 1


def asking(run: Synthetic, **switches: str) -> Synthetic:
    """The run with other switches than it had; tensors that nobody asked for are not written."""
    run.settings |= switches
    return run


def with_one_more(name: str) -> Synthetic:
    """The honest run of a model that has one more tensor, which is in no group of its optimizer."""
    run = grown(HONEST.shapes | {name: (2,)})
    run.optimizer = optimizer()
    return run


@pytest.fixture(scope="package", autouse=True)
def unsynced() -> Iterator[None]:
    """Hundreds of small runs, none of which has to outlive a power cut; tests/record keeps the real thing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The honest run, written once and never changed."""
    return HONEST.write(tmp_path_factory.mktemp("reference") / "run")


@pytest.fixture
def candidate() -> Synthetic:
    """An honest other side, apart by rounding, to be bent and written."""
    return HONEST.drifted()


@pytest.fixture
def compared(tmp_path: Path, reference: Path) -> Compared:
    """Compare candidates (data or directories) with the reference, or ``against`` another one."""
    numbers: Iterator[int] = count()

    def written(run: Synthetic | Path) -> Path:
        return run if isinstance(run, Path) else run.write(tmp_path / f"run_{next(numbers)}")

    def compare_with(run: Synthetic | Path, against: Synthetic | Path | None = None, **options: Any) -> ComparisonResult:
        return compare(open_run(written(against or reference)), open_run(written(run)), **options)

    return compare_with
