"""Cases that every run of the tests tries, of many of a kind; the others are for the slow one."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def slow_but(cases: Iterable[object], *quick: object) -> list[object]:
    """Cases as parameters: ``quick`` ones for every run of the tests, the others, which are of their kind, for the slow one."""
    return [case if case in quick else slow(case) for case in cases]


def every(nth: int, cases: Iterable[object]) -> list[object]:
    """Cases as parameters: each ``nth``, the first among them, for every run of the tests, the others for the slow one."""
    return [case if number % nth == 0 else slow(case) for number, case in enumerate(cases)]


def slow(case: object) -> object:
    """A case, or one of several values, for the slow run."""
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
