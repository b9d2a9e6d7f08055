"""A reading of Python's and numpy's generators is another one exactly where the generator would draw otherwise."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from align_hooks.record.format.random_states import PythonAndNumpy

MOVES: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "uniform": np.random.rand,
    "normal": np.random.randn,  # makes two, and keeps one
    "normals": lambda: np.random.randn(3),
    "integers": lambda: np.random.randint(10, size=700),
    "seed": lambda: np.random.seed(7),
    "Python": random.random,
    "Python's normal": lambda: random.gauss(0.0, 1.0),
    "Python's seed": lambda: random.seed(7),
}


def next_draws() -> dict[str, list[float]]:
    """Return what either generator would draw next, and put its state back."""
    states = random.getstate(), np.random.get_state()
    drawn = {"python": [random.random(), random.gauss(0.0, 1.0)], "numpy": [*np.random.rand(1), *np.random.randn(1)]}
    random.setstate(states[0])
    np.random.set_state(states[1])
    return drawn


@pytest.fixture(autouse=True)
def _restored() -> object:
    states = random.getstate(), np.random.get_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])


@settings(max_examples=200)
@given(st.lists(st.sampled_from(sorted(MOVES)), max_size=12))
def test_a_reading_changes_with_what_would_be_drawn(moves: list[str]) -> None:
    random.seed(0)
    np.random.seed(0)
    kept = PythonAndNumpy()
    read, drawn = [kept.read()], [next_draws()]
    for move in moves:
        MOVES[move]()
        read.append(kept.read())
        drawn.append(next_draws())
        assert read[-1] == PythonAndNumpy().read()  # as one that has read nothing before
    for name in ("python", "numpy"):
        for one in range(len(read)):
            assert [each[name] == read[one][name] for each in read] == [each[name] == drawn[one][name] for each in drawn]


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.Philox, np.random.SFC64, np.random.MT19937])
def test_every_generator_behind_numpy_is_read(kind: Any) -> None:
    before = np.random.get_bit_generator()
    kept = PythonAndNumpy()
    first = kept.read()["numpy"]
    try:
        np.random.set_bit_generator(kind(3))
        other = kept.read()["numpy"]
        assert kept.read()["numpy"] == other != first
        np.random.rand()
        assert kept.read()["numpy"] not in (first, other)
    finally:
        np.random.set_bit_generator(before)


def test_a_numpy_without_a_way_to_its_generator_is_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("get_bit_generator", "no such name"):
        monkeypatch.delattr(np.random, name, raising=False)  # before numpy 1.24
        kept = PythonAndNumpy()
        first = kept.read()
        np.random.rand()
        assert kept.read()["numpy"] != first["numpy"]
