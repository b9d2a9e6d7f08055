"""Find where random generators of two runs first have different states, of generators that the model draws from.

A generator is drawn from where its own states move from a micro-batch, or a step, to the next. A kernel may move a generator and use
nothing of it, so runs that are known to draw nothing (no dropout) are left out. Generators of two layouts cannot be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from msgspec import Struct

from align_hooks.comparison.finding import when
from align_hooks.comparison.pair import Pair
from align_hooks.messages import Message, message, terms

OF_DATA = ("python", "numpy")
"""Generators of data sets, whose draws show in the batches."""
States = Sequence[dict[str, str]]


class Drawn(Struct, frozen=True):
    """Where both runs first drew from generators in different states."""

    step: int
    micro_batch: int | None
    """None where the step already begins so."""
    rank: int
    generators: tuple[str, ...]

    @property
    def words(self) -> Message:
        """Return the difference in words."""
        where = when(self.step)
        if self.micro_batch is not None:
            where = message("random_states.micro_batch", number=self.micro_batch, step=self.step, iteration=self.step + 1)
        return message("random_states.differ", where=where, generators=terms(self.generators), rank=self.rank)


def first_difference(pair: Pair) -> Drawn | None:
    """Return where generators that are drawn from first have different states; None where they never do, or none is known."""
    if not pair.has_one_layout or all(run.facts.training.draws is False for run in pair.runs):
        return None
    steps: list[int] = [row.step for row, _ in pair.rows]
    following_of = dict(zip_longest(steps, steps[1:]))
    kept: dict[int | None, Sequence[Mapping[int, States]]] = {None: [{}, {}]}
    for step in pair.may_differ("random"):
        states, later = (kept[at] if at in kept else [run.random_states(at) for run in pair.runs] for at in (step, following_of[step]))
        kept = {None: kept[None], following_of[step]: later}
        for rank in states[0]:
            reference, candidate = (by_rank[rank] for by_rank in states)
            following = [by_rank.get(rank, [])[:1] for by_rank in later]
            used = drawn_from([*reference, *following[0]]) | drawn_from([*candidate, *following[1]])
            for index in range(max(len(reference), len(candidate)) if reference and candidate else 0):
                a, b = (of_run[min(index, len(of_run) - 1)] for of_run in (reference, candidate))
                if differing := tuple(sorted(name for name in used if a.get(name) != b.get(name))):
                    return Drawn(step, index - 1 if index else None, rank, differing)
    return None


def drawn_from(states: States) -> set[str]:
    """Return the generators whose states move."""
    names = {name for state in states for name in state} - set(OF_DATA)
    return {name for name in names if len({state.get(name) for state in states}) > 1}
