"""The whole check of two sides, as data that every report is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np

from align_hooks.checklist.batches import Look, side_by_side
from align_hooks.checklist.held import ODD, show
from align_hooks.checklist.judge import Checked, Outcome, judge
from align_hooks.checklist.meaning import Words
from align_hooks.checklist.rates import learning_rate, weight_decay
from align_hooks.checklist.readings.said import Unknown
from align_hooks.checklist.schedule import RATE, NotTold, Schedule, differences
from align_hooks.checklist.traps import passed_over, traps
from align_hooks.configuration.values import Configuration, ConfigurationError, Contradiction
from align_hooks.messages import Argument, Message, Side, message, sentences

NEWEST = "1.9"
"""MindFormers that the tables are of, where nothing says which one reads a YAML."""
CLEAN, DIFFERS, UNREADABLE, UNDECIDED = 0, 1, 3, 4


class Judgement(Enum):
    """How a check came out; the value is the exit code."""

    CLEAN = CLEAN
    DIFFERS = DIFFERS
    INCONCLUSIVE = UNDECIDED


class Scheduled(Enum):
    """What a schedule gives every step."""

    LEARNING_RATE = "learning_rate"
    WEIGHT_DECAY = "weight_decay"


@dataclass(frozen=True, slots=True)
class Course:
    """What a schedule makes of every step on both sides.

    ``text`` says how it came out; ``schedules`` are those of reference and candidate. ``steps`` and the two series are empty where a side
    does not say enough. ``same`` is None then. ``differing`` is how many steps differ, ``first`` the first of them, and ``most`` the one
    at which the two are furthest apart.
    """

    name: Scheduled
    same: bool | None
    text: Words
    schedules: tuple[Argument, Argument] = (None, None)
    steps: Sequence[int] = ()
    reference: Sequence[float] = ()
    candidate: Sequence[float] = ()
    differing: int = 0
    first: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class CheckedSide:
    """One side of a check: its framework, what it was read from, how, what it walks into, and what nobody looked at: name, value, place."""

    framework: str
    source: str
    notes: tuple[Argument, ...]
    traps: tuple[Message, ...]
    not_covered: tuple[tuple[str, Argument, str], ...]
    recorded: bool
    look: Look | None = None
    gaps: tuple[Argument, ...] = ()


@dataclass(frozen=True, slots=True)
class Checklist:
    """Everything a report needs. ``data`` says how the two runs' batches relate, and ``alike`` whether they are the same; None where they
    were not looked at. ``unlike`` are settings that no row covers and that differ: name, and either side's value."""

    sides: tuple[CheckedSide, CheckedSide]
    checked: tuple[Checked, ...]
    courses: tuple[Course, ...]
    data: Message | None = None
    alike: bool | None = None
    unlike: tuple[tuple[str, Argument, Argument], ...] = field(default=())

    def of(self, outcome: Outcome) -> tuple[Checked, ...]:
        """The rows that came out so, in the order of the CheckList."""
        return tuple(one for one in self.checked if one.outcome is outcome)

    @property
    def problems(self) -> list[tuple[Side, Message]]:
        """What is wrong with the recorded batches, each with its side."""
        return [(name, problem) for name, side in zip(Side, self.sides, strict=True) if side.look for problem in side.look.problems]

    @property
    def differing(self) -> list[str]:
        """Ids of what differs and changes the result: rows, schedules, and ``batches``."""
        rows, courses = self.of(Outcome.DIFFERENT), [one for one in self.courses if one.same is False]
        return [*(one.row.id for one in rows), *(one.name.value for one in courses), *(["batches"] if self.alike is False else [])]

    @property
    def gaps(self) -> list[Argument]:
        """Where a side may say more that could not be followed."""
        return [gap for side in self.sides for gap in side.gaps]

    @property
    def judgement(self) -> Judgement:
        """Whether something differs, and if nothing does, whether all that matters is told."""
        if self.differing or self.problems:
            return Judgement.DIFFERS
        untold = self.of(Outcome.NOT_TOLD) or self.gaps or any(one.same is None for one in self.courses)
        return Judgement.INCONCLUSIVE if untold else Judgement.CLEAN

    @property
    def exit_code(self) -> int:
        """0 nothing differs, 1 something does, 4 nothing does but something that matters could not be told."""
        return self.judgement.value


def check(
    reference: Configuration, candidate: Configuration, looks: tuple[Look | None, Look | None] = (None, None), mindformers: str = NEWEST
) -> Checklist:
    """Hold two sides against the CheckList; ``looks`` are at their recorded batches, ``mindformers`` the version that reads a YAML.

    :raises ConfigurationError: a side says nothing that the CheckList asks for, so nothing can be held against anything.
    """
    reference, candidate = (as_read(one, mindformers) for one in (reference, candidate))
    checked = judge(reference, candidate)
    for configuration in (reference, candidate):
        if configuration.facts is None and not configuration.used & configuration.values.keys():
            raise ConfigurationError(
                f"{configuration.source} says nothing that the CheckList asks for; name the script or YAML of a training"
            )
    courses = (
        course(Scheduled.LEARNING_RATE, learning_rate, reference, candidate),
        course(Scheduled.WEIGHT_DECAY, weight_decay, reference, candidate),
    )
    both = [look for look in looks if look is not None]
    sides = (side(reference, looks[0]), side(candidate, looks[1]))
    data, alike = side_by_side(both[0], both[1]) if len(both) == 2 else (None, None)
    return Checklist(sides, checked, courses, data, alike, unlike(reference, candidate))


def as_read(configuration: Configuration, mindformers: str) -> Configuration:
    """A configuration without what its framework passes over: a record's own version counts, else that of MindFormers."""
    version = str((configuration.fact("versions") or {}).get("mindformers") or mindformers)
    return replace(configuration, passed_over=passed_over(configuration, version))


def course(name: Scheduled, of: Any, reference: Configuration, candidate: Configuration) -> Course:
    """What a schedule comes to on both sides, compared point by point."""
    found: list[Schedule] = []
    steps, series = np.arange(0), []
    for where, configuration in zip(Side, (reference, candidate), strict=True):
        try:
            found.append(of(configuration))
        except (NotTold, Unknown, Contradiction) as unknown:
            return Course(name, None, message("course.untold_of", side=where, why=unknown.why))
        except ODD as error:
            return Course(name, None, message("course.odd", side=where, error=str(error)))
    one, other = found
    try:
        steps, apart = differences(one, other)
        series = [schedule.at(steps) for schedule in found]
    except NotTold as unknown:
        return Course(name, None, message("course.untold", why=unknown.why))
    except ODD as error:
        return Course(name, None, message("course.untold", why=str(error)))
    ours, theirs = (rates.tolist() for rates in series)
    if not len(steps) or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return Course(name, None, message("course.no_numbers"))
    beyond = np.flatnonzero(apart > RATE).tolist()
    most = int(np.argmax(apart))
    text = _how_they_differ(steps.tolist(), ours, theirs, beyond, most, whole=bool(one.steps or other.steps))
    lengths = None
    if one.steps and other.steps and one.steps != other.steps:
        lengths = message("course.lengths", reference=one.steps, candidate=other.steps)
    return Course(
        name,
        not beyond,
        sentences(text, lengths),
        (one.text, other.text),
        steps.tolist(),
        ours,
        theirs,
        len(beyond),
        int(steps[beyond[0]]) if beyond else None,
        int(steps[most]) if beyond else None,
    )


def _how_they_differ(
    steps: Sequence[int], ours: Sequence[float], theirs: Sequence[float], beyond: Sequence[int], most: int, *, whole: bool
) -> Words:
    """Two series in a sentence; ``beyond`` are the places at which they differ, ``whole`` whether ``steps`` are those of a whole run."""
    if beyond:
        first = beyond[0]
        numbers = {
            "differing": len(beyond),
            "steps": len(steps),
            "step": steps[first],
            "reference": ours[first],
            "candidate": theirs[first],
        }
        return sentences(
            message("course.differs" if whole else "course.differs_in_the_first", **numbers),
            message("course.most", step=steps[most], reference=ours[most], candidate=theirs[most]),
        )
    if len({*ours, *theirs}) <= 2 and len(set(ours)) == len(set(theirs)) == 1:
        return message("course.constant", rate=ours[0])
    return message("course.same" if whole else "course.same_in_the_first", steps=len(steps))


def side(configuration: Configuration, look: Look | None) -> CheckedSide:
    """One side, with what no row looked at."""
    return CheckedSide(
        configuration.side,
        configuration.source,
        tuple(configuration.notes),
        tuple(traps(configuration)),
        tuple((name, show(value.value), value.where) for name, value in not_covered(configuration)),
        configuration.facts is not None,
        look,
        configuration.gaps,
    )


def not_covered(configuration: Configuration) -> list[tuple[str, Any]]:
    """Names that were set and that no row looked at; one that a YAML repeats by an alias is named once."""
    last = {(value.where, name.rpartition(".")[2]) for name, value in configuration.values.items() if name in configuration.used}
    found: list[tuple[str, Any]] = []
    for name, value in configuration.not_covered(("launcher.",)):
        place = (value.where, name.rpartition(".")[2])
        if configuration.facts is None and value.where:
            if place in last:
                continue
            last.add(place)
        found.append((name, value))
    return found


def unlike(reference: Configuration, candidate: Configuration) -> tuple[tuple[str, Argument, Argument], ...]:
    """Of two sides of one framework, settings that no row looks at and that differ: all of them, for they have the same names."""
    if reference.side != candidate.side:
        return ()
    seen = reference.used | candidate.used
    names = [name for name in {**reference.values, **candidate.values} if name not in seen]
    held = [(name, reference.values.get(name), candidate.values.get(name)) for name in names]
    return tuple(
        (name, show(one.value) if one else "–", show(other.value) if other else "–")
        for name, one, other in held
        if (one.value if one else None) != (other.value if other else None)
    )


def counts(checklist: Checklist) -> Mapping[Outcome, int]:
    """How many rows came out how."""
    return {outcome: len(checklist.of(outcome)) for outcome in Outcome}
