"""Where the states of two runs' random generators part, of those generators that the model draws from.

States that differ are no fault where nothing is drawn: a run without dropout does not depend on its seed. Whether a generator is drawn from
shows in its own states, which move from one micro-batch, or one step, to the next. A kernel may move one and use nothing of it, so runs
that say that they draw nothing (no dropout) are not asked. Generators of two frameworks, or of two layouts, have nothing to do with each
other and are not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from align_hooks.compare.pair import Pair
from align_hooks.compare.verdict import when
from align_hooks.messages import Message, message, terms

OF_DATA = ("python", "numpy")
"""Generators of data sets; what these draw shows in the batches."""
States = Sequence[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Drawn:
    """The first place where both runs drew from generators in different states: the step, the micro-batch, None where the step already
    begins so, the rank, and the generators."""

    step: int
    micro_batch: int | None
    rank: int
    generators: tuple[str, ...]

    @property
    def told(self) -> Message:
        """The same in words."""
        where = when(self.step)
        if self.micro_batch is not None:
            where = message("random_states.micro_batch", number=self.micro_batch, step=self.step, iteration=self.step + 1)
        return message("random_states.differ", where=where, generators=terms(self.generators), rank=self.rank)


def first_difference(pair: Pair) -> Drawn | None:
    """Where generators that are drawn from first stand in different states; None where they never do, or nothing tells."""
    ours, theirs = pair.both
    if (ours.facts.framework, ours.world_size) != (theirs.facts.framework, theirs.world_size) or not ours.manifests:
        return None
    if any(rank not in theirs.manifests or one.place != theirs.manifests[rank].place for rank, one in ours.manifests.items()):
        return None
    if all(run.facts.training.draws is False for run in pair.both):
        return None
    steps: list[int] = [row.step for row, _ in pair.rows]
    states = [run.random_states(steps[0]) for run in pair.both] if steps else []
    for step, after in zip_longest(steps, steps[1:]):
        later = [run.random_states(after) if after is not None else {} for run in pair.both]
        for rank in states[0]:
            one, other = (run[rank] for run in states)
            following = [run.get(rank, [])[:1] for run in later]
            used = drawn_from([*one, *following[0]]) | drawn_from([*other, *following[1]])
            for at in range(max(len(one), len(other)) if one and other else 0):
                here, there = one[min(at, len(one) - 1)], other[min(at, len(other) - 1)]
                if apart := tuple(sorted(name for name in used if here.get(name) != there.get(name))):
                    return Drawn(step, at - 1 if at else None, rank, apart)
        states = later
    return None


def drawn_from(states: States) -> set[str]:
    """Generators whose states move."""
    names = {name for one in states for name in one} - set(OF_DATA)
    return {name for name in names if len({one.get(name) for one in states}) > 1}
