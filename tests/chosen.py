"""Cases that every run of the tests tries, of many of a kind, the others being for the slow one; and many cases as one test."""

from collections.abc import Callable, Iterable
from typing import Any

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


def in_one(cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Make one test of a test of many cases, each of which takes less than to collect and report it; a row is several arguments."""
    all_cases = list(cases)

    def of_all(test: Callable[..., None]) -> Callable[[], None]:
        def tried() -> None:
            skipped = None
            for case in all_cases:
                try:
                    test(*(case if isinstance(case, tuple | list) else (case,)))
                except pytest.skip.Exception as reason:
                    skipped = reason  # and all others are tried first
                except BaseException as error:
                    error.add_note(f"the case: {case}")
                    raise
            if skipped is not None:
                raise skipped

        tried.__name__, tried.__doc__, tried.__module__ = test.__name__, test.__doc__, test.__module__
        return tried

    return of_all
