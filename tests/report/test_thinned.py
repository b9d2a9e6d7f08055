"""Long curves on a page: nothing that stands out is left out."""

import math

import numpy as np

from align_hooks.comparison.verdict import Curve
from align_hooks.report.thinned import MOST, drawn

LONG = 100_000


def curve(length: int = LONG) -> Curve:
    values = np.random.default_rng(1).standard_normal(length).tolist()
    return Curve("loss", list(range(length)), values, list(values))


def test_a_short_curve_is_drawn_whole() -> None:
    assert drawn(curve(MOST)) == list(range(MOST))


def test_of_a_long_one_no_more_than_a_browser_takes() -> None:
    kept = drawn(curve())
    assert MOST // 4 <= len(kept) <= MOST + 2
    assert kept == sorted(set(kept))
    assert (kept[0], kept[-1]) == (0, LONG - 1)


def test_what_stands_out_is_always_drawn() -> None:
    long = curve()
    long.reference[7_123], long.candidate[51_234], long.candidate[81_111] = 50.0, 3.0 + long.reference[51_234], math.nan  # type: ignore[index]
    long.reference[33_333] = None  # type: ignore[index]
    assert {7_123, 51_234, 81_111} <= set(drawn(long))


def test_a_curve_of_one_run_and_one_of_nothing() -> None:
    for sides in (([1.0] * LONG,), ([None] * LONG, [None] * LONG)):
        assert len(drawn(Curve("loss", list(range(LONG)), *sides))) <= MOST + 2
