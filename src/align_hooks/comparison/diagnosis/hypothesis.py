"""Causes of faults as hypotheses, and which of those that hold is the likelier.

A hypothesis in a file of ``hypotheses`` is known by names (of patterns, settings, points, tensors), by a test, or by both. The order in
which hypotheses are written means nothing. Of those that hold where the fault is

* the one on stronger grounds comes first (:class:`Grounds`), and alone where these are :data:`CERTAIN`;
* on equal grounds, one that ``outranks`` another comes first, and at one point alone;
* then the one of the earlier point at which an error arises, and then the one whose name is first.

Only causes at the place of the first difference in training are tested (:mod:`.location`): what shows later may follow from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, IntEnum

from msgspec import Struct
from msgspec.structs import replace

from align_hooks.comparison.context import ComparisonContext
from align_hooks.comparison.diagnosis.advice import Advice, Situation
from align_hooks.comparison.diagnosis.observations import Observations, is_like
from align_hooks.comparison.stage_result import FaultLocation
from align_hooks.comparison.verdict import Suspect
from align_hooks.messages import Message

CAUSES = 2
"""The most causes that are named, unless an error arises at more points."""


class Grounds(IntEnum):
    """Evidence by which a cause is assumed, the strongest first."""

    PATTERN = 1
    """A stage recognised what this cause alone leaves."""
    TOKENS = 2
    """The tokens, rows or steps that differ, or another state at their start."""
    SETTING = 3
    """A setting, or a term of updates, that differs and acts where the fault is."""
    BRANCH = 4
    """A kind of tensors from which on gradients differ."""
    POINT = 5
    """The point at which the error arises."""
    POSITIONS = 6
    """The positions of a sequence that differ."""
    PART = 7
    """The tensors of a part of the model, which differ most."""
    KIND = 8
    """Tensors of one kind, which many parts have."""
    BLOCK = 9
    """Tensors of a block, which has many parts."""
    EXTENT = 10
    """How many tensors differ, and whether their errors have a boundary."""


CERTAIN = (Grounds.PATTERN, Grounds.SETTING)
"""Grounds on which the cause itself is on record. Tokens come before settings, for no setting singles out rows or steps."""


class Fault(Struct, frozen=True):
    """A fault whose place is known."""

    seen: Observations
    location: FaultLocation
    suspects: Sequence[Suspect]
    """What to suspect, the likeliest first."""
    points: tuple[str, ...] = ()
    """Kinds of the points at which the error arises, in the order of their pass; empty where no pass with points has the fault."""
    point: str = ""
    """One of these; empty where there is none."""

    @property
    def suspect(self) -> Suspect:
        """Return what is suspected first."""
        return self.suspects[0] if self.suspects else Suspect("")

    def is_of(self, *tensors: str) -> bool:
        """Return whether one of some tensors is the first suspect, and no point is known, which says more than a tensor."""
        return not self.point and is_like(self.suspect.name, tensors)

    def is_at(self, *points: str) -> bool:
        """Return whether the error arises at a point of one of some kinds."""
        return bool(self.point) and is_like(self.point, points)


Test = Callable[[Fault], bool]
"""Says whether a fault has a cause, where names do not."""


class Hypothesis(Struct, frozen=True):
    """A cause, how it is known, and what to do about it."""

    cause: str
    """The end of the ids of its words: ``cause.…`` says what it is, ``look.…`` what to look at."""
    locations: tuple[FaultLocation, ...]
    """Where a fault with this cause is."""
    patterns: tuple[Enum, ...] = ()
    """Patterns of the first suspect by which it is known."""
    settings: tuple[str, ...] = ()
    """Settings and terms of updates by which it is known, if the first suspect is one; these names and the following may be patterns."""
    points: tuple[str, ...] = ()
    """Kinds of points at which its error arises."""
    part: tuple[str, ...] = ()
    """Tensors of one part of a model that differ most."""
    kind: tuple[str, ...] = ()
    """Tensors of one kind that differ most."""
    block: tuple[str, ...] = ()
    """Tensors of a block that differ most."""
    grounds: Grounds = Grounds.PATTERN
    """The grounds on which ``test`` decides."""
    test: Test | None = None
    """None where names say all."""
    source: str = "zoo"
    """Where the cause is known from."""
    outranks: tuple[str, ...] = ()
    """Causes on equal grounds that are less likely."""
    advice: Callable[[Situation], Advice | None] | None = None
    """What to do where this is the likeliest cause; None, and what returns None, where the place says it."""
    detail: Callable[[ComparisonContext], Message | None] | None = None
    """What else the pair shows of the cause; None where nothing does."""
    is_of_one_tensor: bool = False
    """Whether no point between layers explains it further."""

    def grounds_for(self, fault: Fault) -> Grounds | None:
        """Return the strongest grounds on which a fault has this cause; None where it has another."""
        held = {
            Grounds.PATTERN: fault.suspect.pattern in self.patterns,
            Grounds.SETTING: is_like(fault.suspect.name, self.settings),
            Grounds.POINT: fault.is_at(*self.points),
            Grounds.PART: fault.is_of(*self.part),
            Grounds.KIND: fault.is_of(*self.kind),
            Grounds.BLOCK: fault.is_of(*self.block),
        }
        if self.test is not None and self.test(fault):
            held[self.grounds] = True
        return min((grounds for grounds, holds in held.items() if holds), default=None)

    def by(self, grounds: Grounds) -> Callable[[Test], Hypothesis]:
        """Return a decorator that makes a hypothesis with a test, which decides on some grounds."""
        return lambda test: replace(self, grounds=grounds, test=test)


Rank = tuple[Grounds, bool, int, str]
"""Grounds, whether another cause outranks it, the number of its point, and its name: the least is the likeliest."""


def likeliest(fault: Fault, hypotheses: Sequence[Hypothesis]) -> tuple[Hypothesis, ...]:
    """Return the causes of a fault, the likeliest first."""
    best: dict[str, Rank] = {}
    known = {one.cause: one for one in hypotheses}
    for order, point in enumerate(fault.points or ("",)):
        for cause, rank in ranks(replace(fault, point=point), order, hypotheses).items():
            best[cause] = min(rank, best.get(cause, rank))
    causes = sorted(best, key=lambda cause: best[cause])
    if causes and best[causes[0]][0] in CERTAIN:
        return (known[causes[0]],)
    return tuple(known[cause] for cause in causes[: max(CAUSES, len(fault.points))])


def ranks(fault: Fault, order: int, hypotheses: Sequence[Hypothesis]) -> dict[str, Rank]:
    """Return the rank of each cause that holds for one point; of several causes at a point only those that no other outranks."""
    held = {one: grounds for one in hypotheses if fault.location in one.locations and (grounds := one.grounds_for(fault)) is not None}
    below = {(cause, grounds) for one, grounds in held.items() for cause in one.outranks}
    found = {one.cause: (grounds, (one.cause, grounds) in below, order, one.cause) for one, grounds in held.items()}
    return {cause: rank for cause, rank in found.items() if rank[:2] != (Grounds.POINT, True)}
