"""The whole check of two sides, as the data from which every report is made."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

import numpy as np

from align_hooks.checklist.belongs import odd
from align_hooks.checklist.change import Edit, Form, block
from align_hooks.checklist.judge import JudgedRow, RowOutcome, judge
from align_hooks.checklist.meaning import Words
from align_hooks.checklist.rates import learning_rate, weight_decay
from align_hooks.checklist.readings.lookup import is_since
from align_hooks.checklist.refusals import Refusal, refusals
from align_hooks.checklist.row import MODEL, UNSET
from align_hooks.checklist.schedule import RATE, Floats, Schedule, differences, relative_differences
from align_hooks.checklist.side_value import ODD
from align_hooks.checklist.template import TEMPLATE_SINCE, of_template
from align_hooks.checklist.traps import passed_over, traps
from align_hooks.checklist.uncovered import Uncovered, uncovered, unlike
from align_hooks.configuration.values import MINDFORMERS, Configuration, ConfigurationError, Unknown, Value
from align_hooks.messages import Argument, Joined, Message, Side, message, sentences
from align_hooks.quantities.weights import NO_FAMILY, not_compared
from align_hooks.record.format.schema import Table
from align_hooks.record.read.batch_statistics import BatchStatistics, side_by_side, weigh_alike

NEWEST = "1.9"
"""MindFormers that the tables are of, where nothing says which one reads a YAML."""
CLEAN, DIFFERS, UNDECIDED = 0, 1, 4
OF_A_RUN = ("configuration.told_by_a_run", "configuration.run_does_harm")
"""Notes that a run of a script would tell what could not be followed."""
ScheduleOf: TypeAlias = Callable[[Configuration], Schedule]
Rates: TypeAlias = Mapping[int, float]
"""Step to the learning rate that its update used."""


class CheckVerdict(Enum):
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

    ``text`` says how it came out; ``schedules`` are those of reference and candidate. Where a side does not say enough, ``steps`` and the
    two series are empty, and ``same`` is None. ``differing`` is how many steps differ, ``first`` the first of them, and ``most`` the step
    at which the two sides are furthest apart.
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
    """One side of a check: its framework, its source, notes on how it was read, the traps that it walks into, and what no row looked at."""

    framework: str
    source: str
    notes: tuple[Argument, ...]
    traps: tuple[Message, ...]
    not_covered: tuple[Uncovered, ...]
    recorded: bool
    refusals: tuple[Refusal, ...] = ()
    """What MindFormers refuses of a YAML."""
    look: BatchStatistics | None = None
    gaps: tuple[Argument, ...] = ()


@dataclass(frozen=True, slots=True)
class Checklist:
    """Everything that a report needs. ``data`` says how the two runs' batches relate, and ``alike`` whether they are the same; both are
    None where nobody looked at batches. ``unlike`` are settings that no row covers and that differ: name, and either side's value."""

    sides: tuple[CheckedSide, CheckedSide]
    checked: tuple[JudgedRow, ...]
    courses: tuple[Course, ...]
    data: Message | None = None
    alike: bool | None = None
    unlike: tuple[tuple[str, Argument, Argument], ...] = field(default=())
    built: tuple[tuple[str, Argument, Argument], ...] = field(default=())
    """Settings of the two models that were built, by their names in ``config.json``, that differ although nothing that was set does."""

    def of(self, outcome: RowOutcome) -> tuple[JudgedRow, ...]:
        """The rows that came out so, in the order of the CheckList."""
        return tuple(checked for checked in self.checked if checked.outcome is outcome)

    @property
    def problems(self) -> list[tuple[Side, Message]]:
        """What is wrong with the recorded batches, each with its side."""
        return [(name, problem) for name, side in zip(Side, self.sides, strict=True) if side.look for problem in side.look.problems]

    @property
    def differing(self) -> list[str]:
        """Ids of what differs and changes the result: rows, schedules, and ``batches``."""
        rows = [checked.row.id for checked in self.of(RowOutcome.DIFFERENT)]
        courses = [course.name.value for course in self.courses if course.same is False]
        return [*rows, *courses, *(["batches"] if self.alike is False else []), *(["built"] if self.built else [])]

    @property
    def seed_that_counts(self) -> JudgedRow | None:
        """The row of the seeds where these differ and a side loads no weights, so that they decide the first ones; else None."""
        rows = {checked.row.id: checked for checked in self.checked}
        differs = "seed" in rows and rows["seed"].outcome is RowOutcome.HARMLESS
        return rows["seed"] if differs and rows["load"].advised else None

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All that is to be written into the candidate, so that rows that change the result agree and nothing is refused; each setting
        once."""
        differing = (*self.of(RowOutcome.DIFFERENT), *self.of(RowOutcome.NOT_TOLD))
        changes = [checked.change for checked in differing if checked.change is not None and checked.change.keeps]
        mended = [Edit(MINDFORMERS, key, value) for refusal in self.sides[1].refusals for key, value in refusal.edits.items()]
        return tuple({edit.key: edit for edit in (*mended, *(edit for change in changes for edit in change.edits))}.values())

    @property
    def base(self) -> str:
        """The name of the YAML that is to be mended; empty where the candidate is a record, or no file over it takes a key out."""
        alone = self.sides[1].recorded or any(edit.value is UNSET for edit in self.edits)
        return "" if alone else self.sides[1].source

    @property
    def block(self) -> str:
        """The edits as sections of a YAML: a file of its own that stands over the candidate's. Empty where no YAML has to change."""
        return block(self.edits, self.base) if self.edits and self.sides[1].framework == MINDFORMERS else ""

    @property
    def gaps(self) -> list[Argument]:
        """Where a side may say more that could not be followed."""
        return [gap for side in self.sides for gap in side.gaps]

    @property
    def uncovered(self) -> list[tuple[CheckedSide, Uncovered]]:
        """What no row looks at and may change the result, with its side; of two sides of one framework, where they differ."""
        alike = self.sides[0].framework == self.sides[1].framework
        differ = {name for name, *_ in self.unlike}
        return [
            (side, setting)
            for side in self.sides
            for setting in side.not_covered
            if setting.matters and (not alike or setting.unknown or setting.name in differ)
        ]

    @property
    def judgement(self) -> CheckVerdict:
        """Whether something differs or is refused, and if nothing does, whether all that matters is told."""
        if self.differing or self.problems or any(side.refusals for side in self.sides):
            return CheckVerdict.DIFFERS
        untold = self.of(RowOutcome.NOT_TOLD) or self.gaps or self.uncovered or any(course.same is None for course in self.courses)
        return CheckVerdict.INCONCLUSIVE if untold else CheckVerdict.CLEAN

    @property
    def exit_code(self) -> int:
        """0 nothing differs, 1 something does, 4 nothing does but something that matters could not be told, or is looked at by no row."""
        return self.judgement.value


def check(
    reference: Configuration,
    candidate: Configuration,
    looks: tuple[BatchStatistics | None, BatchStatistics | None] = (None, None),
    mindformers: str = NEWEST,
    megatron: str = "",
    rates: tuple[Rates | None, Rates | None] = (None, None),
    models: tuple[Table, Table] = ({}, {}),
) -> Checklist:
    """Compare two sides by the CheckList; ``looks`` are at their recorded batches, ``mindformers`` and ``megatron`` the versions that
    read a YAML and a script, empty where that is not known. ``rates`` are the learning rates on record, which say more than settings do,
    ``models`` the models that were built.

    :raises ConfigurationError: a side says nothing that the CheckList asks for, so there is nothing to compare.
    """
    reference, candidate = (as_read(side, mindformers, megatron) for side in (reference, candidate))
    repairs = {key: value for refusal in refusals(candidate) for key, value in refusal.edits.items()}
    checked = judge(reference, candidate, looks=looks, weigh_alike=weigh_alike(*looks), repairs=repairs)
    for configuration in (reference, candidate):
        if configuration.facts is None and not configuration.used & configuration.values.keys():
            raise ConfigurationError(
                f"{configuration.source} says nothing that the CheckList asks for; name the script or YAML of a training"
            )
    courses = (learning_rates(reference, candidate, rates), course(Scheduled.WEIGHT_DECAY, weight_decay, reference, candidate))
    sides = (checked_side(reference, looks[0]), checked_side(candidate, looks[1]))
    if not any(side.gaps for side in sides) and not any(map(_a_run_may_tell, checked)) and None not in [one.same for one in courses]:
        sides = (_without_run(sides[0]), _without_run(sides[1]))
    data, alike = side_by_side(*looks)
    checklist = _without_what_is_not_set(Checklist(sides, checked, courses, data, alike, unlike(reference, candidate)), candidate)
    return checklist if checklist.of(RowOutcome.DIFFERENT) else replace(checklist, built=built_otherwise(*models))


def _without_what_is_not_set(checklist: Checklist, candidate: Configuration) -> Checklist:
    """Return a check that takes out no key which stands nowhere: a repair would have set it, and a row's change, to another class of
    optimizer say, makes that repair needless."""
    changes = {one.row.id: one.change for one in checklist.checked if one.change is not None}
    taken_out = {edit.key for change in changes.values() for edit in change.edits if edit.form is Form.LEAVE_OUT}
    if not (needless := taken_out - candidate.values.keys()):
        return checklist
    kept = {name: replace(one, edits=tuple(edit for edit in one.edits if edit.key not in needless)) for name, one in changes.items()}
    repairs = [{key: value for key, value in one.edits.items() if key not in needless} for one in checklist.sides[1].refusals]
    refusals = tuple(replace(one, edits=edits) for one, edits in zip(checklist.sides[1].refusals, repairs, strict=True))
    checked = tuple(replace(one, change=kept.get(one.row.id)) for one in checklist.checked)
    return replace(checklist, checked=checked, sides=(checklist.sides[0], replace(checklist.sides[1], refusals=refusals)))


def built_otherwise(reference: Table, candidate: Table) -> tuple[tuple[str, Argument, Argument], ...]:
    """Return the settings of two models on record that differ, where both are of a family and say them: name, and either side's value. Of
    two tables those are the entries that differ."""
    if NO_FAMILY in reference or NO_FAMILY in candidate:
        return ()
    pairs: dict[str, tuple[object, object]] = {}
    for name in reference.keys() & candidate.keys() - not_compared(reference, candidate):
        ours, theirs = reference[name], candidate[name]
        if isinstance(ours, dict) and isinstance(theirs, dict):
            pairs |= {f"{name}.{key}": (ours.get(key), theirs.get(key)) for key in ours | theirs}
        else:
            pairs[name] = ours, theirs
    differing = {name: pair for name, pair in sorted(pairs.items()) if pair[0] != pair[1]}
    return tuple((name, str(ours), str(theirs)) for name, (ours, theirs) in differing.items())


def as_read(configuration: Configuration, mindformers: str, megatron: str = "") -> Configuration:
    """A configuration with the version of what reads it, and without what that passes over: a record's own version counts, else those that
    are given. Which Megatron-LM a fork stands on is not known."""
    versions = configuration.fact("versions") or {}
    if configuration.side != MINDFORMERS:
        version = str(versions.get("megatron-core") or ("" if configuration.fork else megatron))
        return replace(configuration, version=version)
    version = str(versions.get("mindformers") or mindformers)
    if configuration.facts is None and is_since(version, *TEMPLATE_SINCE):
        configuration = replace(configuration, values={**configuration.values, **of_template(configuration.values)})
    try:
        return replace(configuration, version=version, passed_over=passed_over(configuration, version))
    except Unknown as unknown:  # without the class of the model nobody knows which of its keys count
        of_model = {
            name: Value(value.written, value.place, unknown.why) for name, value in configuration.values.items() if name.startswith(MODEL)
        }
        return replace(configuration, version=version, values={**configuration.values, **of_model})


def course(name: Scheduled, schedule_of: ScheduleOf, reference: Configuration, candidate: Configuration) -> Course:
    """What a schedule comes to on both sides, compared point by point."""
    schedules: list[Schedule] = []
    for side, configuration in zip(Side, (reference, candidate), strict=True):
        try:
            schedules.append(schedule_of(configuration))
        except Unknown as unknown:
            return Course(name, None, message("course.untold_of", side=side, why=unknown.why))
        except ODD as error:
            return Course(name, None, message("course.odd", side=side, error=str(error)))
    lengths = [schedule.steps for schedule in schedules]
    try:
        at, apart = differences(*schedules)
        ours, theirs = (schedule.at(at).tolist() for schedule in schedules)
    except Unknown as unknown:
        return Course(name, None, message("course.untold", why=unknown.why))
    except ODD as error:
        return Course(name, None, message("course.untold", why=str(error)))
    steps = at.tolist()
    if not steps or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return Course(name, None, message("course.no_numbers"))
    of_lengths = (
        message("course.lengths", reference=lengths[0], candidate=lengths[1]) if all(lengths) and lengths[0] != lengths[1] else None
    )
    compared = laid_beside(name, (steps, ours, theirs), apart, whole=any(lengths))
    return replace(compared, text=sentences(compared.text, of_lengths), schedules=(schedules[0].text, schedules[1].text))


def learning_rates(reference: Configuration, candidate: Configuration, rates: tuple[Rates | None, Rates | None]) -> Course:
    """Return what is on record of the learning rates where that differs, or the settings do not tell; else what the settings come to."""
    on_record, derived = recorded_rates(*rates), course(Scheduled.LEARNING_RATE, learning_rate, reference, candidate)
    return on_record if on_record is not None and (on_record.same is False or derived.same is None) else derived


def recorded_rates(reference: Rates | None, candidate: Rates | None) -> Course | None:
    """Return the learning rates that two records hold of their common steps, compared; None where they have no such step in common."""
    ours, theirs = reference or {}, candidate or {}
    steps = sorted(step for step in ours.keys() & theirs.keys() if math.isfinite(ours[step]) and math.isfinite(theirs[step]))
    if not steps:
        return None
    both = [ours[step] for step in steps], [theirs[step] for step in steps]
    compared = laid_beside(Scheduled.LEARNING_RATE, (steps, *both), relative_differences(*map(np.asarray, both)), whole=True)
    return replace(compared, text=message("course.on_record", text=compared.text))


def laid_beside(name: Scheduled, series: tuple[list[int], list[float], list[float]], apart: Floats, *, whole: bool) -> Course:
    """Return a course of steps, the reference's values and the candidate's, which are ``apart`` by so much, relative; ``whole`` where
    these are all steps and not only the first."""
    steps, ours, theirs = series
    beyond, most = np.flatnonzero(apart > RATE).tolist(), int(np.argmax(apart))
    text: Words = message("course.same" if whole else "course.same_in_the_first", count=len(steps))
    if len(set(ours)) == len(set(theirs)) == 1:
        text = message("course.constant", rate=ours[0])
    if beyond:
        first = beyond[0]
        rates = {"step": steps[first], "iteration": steps[first] + 1, "reference": ours[first], "candidate": theirs[first]}
        text = sentences(
            message("course.differs" if whole else "course.differs_in_the_first", differing=len(beyond), steps=len(steps), **rates),
            message("course.most", step=steps[most], iteration=steps[most] + 1, reference=ours[most], candidate=theirs[most]),
        )
    same = Course(name, not beyond, text, steps=steps, reference=ours, candidate=theirs)
    return replace(same, differing=len(beyond), first=steps[beyond[0]], most=steps[most]) if beyond else same


def checked_side(configuration: Configuration, look: BatchStatistics | None) -> CheckedSide:
    """One side, with what no row looked at."""
    traps_of_side, recorded = tuple(sorted(traps(configuration), key=_line)), configuration.facts is not None
    wrong, gaps = () if configuration.unread else odd(configuration), configuration.gaps
    notes = (*configuration.notes, *([message("note.of_no_family", why=sentences(*wrong))] if wrong else []))
    untold = [value.unknown for value in configuration.values.values() if isinstance(value.unknown, Message)]
    if (argument := next((why for why in untold if why.id == "configuration.argument"), None)) is not None:
        notes = (message("configuration.arguments_missing", script=argument.arguments["script"]), *notes)
    refused, names = tuple(refusals(configuration)), tuple(uncovered(configuration))
    return CheckedSide(configuration.side, configuration.source, notes, traps_of_side, names, recorded, refused, look, gaps)


def _a_run_may_tell(checked: JudgedRow) -> bool:
    """Whether a row is open for want of a value of a script."""
    return checked.outcome is RowOutcome.NOT_TOLD and any(side.why for side in (checked.reference, checked.candidate))


def _without_run(side: CheckedSide) -> CheckedSide:
    """Return a side without the note by which a run of its script would tell more."""
    words = [(note.parts[0] if isinstance(note, Joined) else note, note) for note in side.notes]
    return replace(side, notes=tuple(note for first, note in words if not (isinstance(first, Message) and first.id in OF_A_RUN)))


def _line(trap: Message) -> float:
    """The line of a trap's place; behind all lines where it has none."""
    found = re.search(r":(\d+)", str(trap.arguments.get("place", "")))
    return int(found[1]) if found else math.inf


def counts(checklist: Checklist) -> Mapping[RowOutcome, int]:
    """How many rows came out how."""
    return {outcome: len(checklist.of(outcome)) for outcome in RowOutcome}
