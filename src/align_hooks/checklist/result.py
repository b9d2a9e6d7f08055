"""The whole check of two sides, as data that every report is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from align_hooks.checklist.batches import Look, side_by_side
from align_hooks.checklist.held import ODD, show
from align_hooks.checklist.judge import Checked, Outcome, judge
from align_hooks.checklist.rates import learning_rate, weight_decay
from align_hooks.checklist.readings.said import Unknown
from align_hooks.checklist.schedule import RATE, NotTold, Schedule, differences
from align_hooks.checklist.traps import passed_over, traps
from align_hooks.configuration.values import Configuration, ConfigurationError

NEWEST = "1.9"
"""MindFormers that the tables are of, where nothing says which one reads a YAML."""
CLEAN, DIFFERS, UNREADABLE, UNDECIDED = 0, 1, 3, 4


@dataclass(frozen=True, slots=True)
class Course:
    """What a schedule makes of every step on both sides: the learning rate, or the weight decay.

    ``text`` says how it came out; ``steps`` and the two series are empty where a side does not say enough. ``same`` is None then.
    """

    name: str
    same: bool | None
    text: str
    schedules: tuple[str, str] = ("", "")
    steps: Sequence[int] = ()
    reference: Sequence[float] = ()
    candidate: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a check: its framework, what it was read from, how, what it walks into, and what nobody looked at."""

    framework: str
    source: str
    notes: tuple[str, ...]
    traps: tuple[str, ...]
    not_covered: tuple[tuple[str, str, str], ...]
    recorded: bool
    look: Look | None = None
    gaps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checklist:
    """Everything a report needs. ``data`` says how the two runs' batches relate, and ``alike`` whether they are the same; empty and None
    where they were not looked at."""

    sides: tuple[Side, Side]
    checked: tuple[Checked, ...]
    courses: tuple[Course, ...]
    data: str = ""
    alike: bool | None = None
    unlike: tuple[tuple[str, str, str], ...] = field(default=())

    def of(self, outcome: Outcome) -> tuple[Checked, ...]:
        """The rows that came out so, in the order of the CheckList."""
        return tuple(one for one in self.checked if one.outcome is outcome)

    @property
    def problems(self) -> list[str]:
        """What is wrong with the recorded batches, each with its side."""
        named = zip(("reference", "candidate"), self.sides, strict=True)
        return [f"{name}: {problem}" for name, side in named if side.look for problem in side.look.problems]

    @property
    def differing(self) -> list[str]:
        """Names of what differs and changes the result."""
        found = [one.row.name for one in self.of(Outcome.DIFFERENT)] + [one.name for one in self.courses if one.same is False]
        return found + (["recorded batches"] if self.alike is False else [])

    @property
    def gaps(self) -> list[str]:
        """Where a side may say more that could not be followed."""
        return [gap for side in self.sides for gap in side.gaps]

    @property
    def exit_code(self) -> int:
        """0 nothing differs, 1 something does, 4 nothing does but something that matters could not be told."""
        if self.differing or self.problems:
            return DIFFERS
        untold = self.of(Outcome.NOT_TOLD) or self.gaps or any(one.same is None for one in self.courses)
        return UNDECIDED if untold else CLEAN


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
        course("learning rate of every step", learning_rate, reference, candidate),
        course("weight decay of every step", weight_decay, reference, candidate),
    )
    both = [look for look in looks if look is not None]
    sides = (side(reference, looks[0]), side(candidate, looks[1]))
    data, alike = side_by_side(both[0], both[1]) if len(both) == 2 else ("", None)
    return Checklist(sides, checked, courses, data, alike, unlike(reference, candidate))


def as_read(configuration: Configuration, mindformers: str) -> Configuration:
    """A configuration without what its framework passes over: a record's own version counts, else that of MindFormers."""
    version = str((configuration.fact("versions") or {}).get("mindformers") or mindformers)
    return replace(configuration, passed_over=passed_over(configuration, version))


def course(name: str, of: Any, reference: Configuration, candidate: Configuration) -> Course:
    """What a schedule comes to on both sides, compared point by point."""
    found: list[Schedule] = []
    steps, series = np.arange(0), []
    for where, configuration in (("reference", reference), ("candidate", candidate)):
        try:
            found.append(of(configuration))
        except (NotTold, Unknown, ConfigurationError) as why:
            return Course(name, None, f"not told: of the {where} {why}")
        except ODD as error:
            return Course(name, None, f"not told: the {where}'s schedule cannot be worked out ({error})")
    one, other = found
    try:
        steps, apart = differences(one, other)
        series = [schedule.at(steps) for schedule in found]
    except (NotTold, *ODD) as error:
        return Course(name, None, f"not told: {error}")
    ours, theirs = series
    if not len(steps) or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return Course(name, None, "not told: a side makes no step, or rates that are no numbers")
    beyond = steps[apart > RATE]
    counted = f"{len(steps)} steps" if one.steps or other.steps else f"the first {len(steps)} steps"
    if len(beyond):
        at = int(np.argmax(apart))
        first = int(np.searchsorted(steps, beyond[0]))
        text = (
            f"differs at {len(beyond)} of {counted}, first at step {beyond[0]}: {ours[first]:.7g} against {theirs[first]:.7g}; "
            f"most at step {steps[at]}: {ours[at]:.7g} against {theirs[at]:.7g}"
        )
    elif len({*ours.tolist(), *theirs.tolist()}) <= 2 and np.ptp(ours) == np.ptp(theirs) == 0:
        text = f"{ours[0]:.7g} on both sides at every step"
    else:
        text = f"the same at {counted}"
    if one.steps and other.steps and one.steps != other.steps:
        text += f"; the runs are {one.steps} and {other.steps} steps long"
    schedules = (one.text, other.text)
    return Course(name, not len(beyond), text, schedules, steps.tolist(), ours.tolist(), theirs.tolist())


def side(configuration: Configuration, look: Look | None) -> Side:
    """One side, with what no row looked at."""
    return Side(
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


def unlike(reference: Configuration, candidate: Configuration) -> tuple[tuple[str, str, str], ...]:
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


def counts(checklist: Checklist) -> Mapping[str, int]:
    """How many rows came out how."""
    return {outcome.value: len(checklist.of(outcome)) for outcome in Outcome}
