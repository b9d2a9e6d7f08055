"""A check of two sides, as the data from which every report is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from align_hooks.checklist.canonical_values import UNSET, Words
from align_hooks.checklist.edits import Edit, Form, block
from align_hooks.checklist.family_match import odd
from align_hooks.checklist.judge import JudgedRow, RowOutcome, judge
from align_hooks.checklist.lookup import MODEL, is_since
from align_hooks.checklist.mindformers_models import TEMPLATE_SINCE, names_passed_over, of_template
from align_hooks.checklist.pitfalls import Refusal, pitfalls, refusals
from align_hooks.checklist.resolver import ODD, traced
from align_hooks.checklist.schedules import RATE, Floats, Schedule, differences, learning_rate, relative_differences, weight_decay
from align_hooks.checklist.uncovered import Uncovered, uncovered, uncovered_differences
from align_hooks.configuration.values import MINDFORMERS, Configuration, ConfigurationError, IncompleteSide, MissingArgument, Unknown, Value
from align_hooks.messages import Argument, Message, Side, message, sentences
from align_hooks.quantities.weights import NO_FAMILY, not_compared
from align_hooks.record.batch_statistics import BatchStatistics, side_by_side, weigh_alike
from align_hooks.record.format.schema import Table

NEWEST = "1.9"
"""The version of MindFormers that reads a YAML where nothing says which one does."""
CLEAN, DIFFERS, UNDECIDED = 0, 1, 4
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


class Course(Struct, frozen=True):
    """A schedule's value of every step on both sides."""

    name: Scheduled
    same: bool | None
    """None where a side does not say enough."""
    text: Words
    schedules: tuple[Argument, Argument] = (None, None)
    steps: Sequence[int] = ()
    """The steps compared, as the two series; empty where a side does not say enough."""
    reference: Sequence[float] = ()
    candidate: Sequence[float] = ()
    differing: int = 0
    first: int | None = None
    most: int | None = None
    """The step of the largest relative difference."""
    keys: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    """The names that either side's schedule was made of, set or not."""


class CheckedSide(Struct, frozen=True):
    """One side of a check."""

    framework: str
    source: str
    notes: tuple[Argument, ...]
    """How the configuration was read."""
    pitfalls: tuple[Message, ...]
    """What the configuration says and its framework does not do."""
    not_covered: tuple[Uncovered, ...]
    """The settings that no row reads."""
    recorded: bool
    refusals: tuple[Refusal, ...] = ()
    """What MindFormers refuses of a YAML."""
    statistics: BatchStatistics | None = None
    """Statistics of the recorded batches; None without any."""
    gaps: tuple[Argument, ...] = ()
    """The places that could not be followed and may say more."""
    without_model_file: bool = False
    """Whether the model's ``config.json`` is not on this machine."""

    @property
    def incomplete(self) -> tuple[Argument, ...]:
        """The notes on a part of the side that was not read, for want of a file or of arguments."""
        return tuple(note for note in self.notes if isinstance(note, IncompleteSide))


class Checklist(Struct, frozen=True):
    """Everything that a report needs."""

    sides: tuple[CheckedSide, CheckedSide]
    checked: tuple[JudgedRow, ...]
    courses: tuple[Course, ...]
    data: Message | None = None
    """How the batches of the two runs relate; None where no batches were read."""
    same_batches: bool | None = None
    """Whether the batches are the same; None where no batches were read."""
    setting_differences: tuple[tuple[str, Argument, Argument], ...] = ()
    """Settings that no row covers and that differ: name, and either side's value."""
    built: tuple[tuple[str, Argument, Argument], ...] = ()
    """Settings of the two models that were built, by their names in ``config.json``, that differ although nothing that was set does."""

    def of(self, outcome: RowOutcome) -> tuple[JudgedRow, ...]:
        """Return the rows of an outcome, in the order of the CheckList."""
        return tuple(checked for checked in self.checked if checked.outcome is outcome)

    @property
    def problems(self) -> list[tuple[Side, Message]]:
        """The faults of the recorded batches, each with its side."""
        return [
            (name, problem) for name, side in zip(Side, self.sides, strict=True) if side.statistics for problem in side.statistics.problems
        ]

    @property
    def differing(self) -> list[str]:
        """Ids of the rows and schedules that differ and change the result, and ``batches`` and ``built`` where these do."""
        rows = [checked.row.id for checked in self.of(RowOutcome.DIFFERENT)]
        courses = [course.name.value for course in self.courses if course.same is False]
        return [*rows, *courses, *(["batches"] if self.same_batches is False else []), *(["built"] if self.built else [])]

    @property
    def seed_that_counts(self) -> JudgedRow | None:
        """The row of the seeds where these differ and decide the first weights of a side; else None."""
        rows = {checked.row.id: checked for checked in self.checked}
        differs = "seed" in rows and rows["seed"].outcome is RowOutcome.HARMLESS
        return rows["seed"] if differs and rows["load"].advised else None

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits, a setting once, by which rows that change the result agree and nothing is refused."""
        differing = (*self.of(RowOutcome.DIFFERENT), *self.of(RowOutcome.UNKNOWN))
        changes = [checked.change for checked in differing if checked.change is not None and checked.change.is_safe]
        mended = [Edit(MINDFORMERS, key, value) for refusal in self.sides[1].refusals for key, value in refusal.edits.items()]
        return tuple({edit.key: edit for edit in (*mended, *(edit for change in changes for edit in change.edits))}.values())

    @property
    def base(self) -> str:
        """The YAML that a file of edits may name as its base; empty for a record, and where a key is taken out."""
        over = self.sides[1].recorded or any(
            edit.value is UNSET or edit.trainer for edit in self.edits
        )  # only the static graph reads a base
        return "" if over else self.sides[1].source

    @property
    def block(self) -> str:
        """The edits as a YAML of their own that overrides the candidate's; empty where no YAML has to change."""
        return block(self.edits, self.base) if self.edits and self.sides[1].framework == MINDFORMERS else ""

    @property
    def gaps(self) -> list[Argument]:
        """The places of both sides that could not be followed and may say more."""
        return [gap for side in self.sides for gap in side.gaps]

    @property
    def uncovered(self) -> list[tuple[CheckedSide, Uncovered]]:
        """The settings that no row reads and that may change the result; of two sides of one framework, those that differ."""
        one_framework, differ = self.sides[0].framework == self.sides[1].framework, {name for name, *_ in self.setting_differences}
        settings = [(side, setting) for side in self.sides for setting in side.not_covered if setting.matters]
        return [(side, one) for side, one in settings if not one_framework or one.unknown or one.name in differ]

    @property
    def judgement(self) -> CheckVerdict:
        """Whether something differs or is refused, and if not, whether all that matters is known."""
        if self.differing or self.problems or any(side.refusals for side in self.sides):
            return CheckVerdict.DIFFERS
        unknown = self.of(RowOutcome.UNKNOWN) or self.gaps or self.uncovered or any(course.same is None for course in self.courses)
        return CheckVerdict.INCONCLUSIVE if unknown else CheckVerdict.CLEAN

    @property
    def exit_code(self) -> int:
        """0: nothing differs; 1: something does; 4: nothing does, but something that matters is not known, or read by no row."""
        return self.judgement.value


def check(
    reference: Configuration,
    candidate: Configuration,
    statistics: tuple[BatchStatistics | None, BatchStatistics | None] = (None, None),
    mindformers: str = NEWEST,
    megatron: str = "",
    rates: tuple[Rates | None, Rates | None] = (None, None),
    models: tuple[Table, Table] = ({}, {}),
) -> Checklist:
    """Compare two sides by the CheckList.

    ``looks`` are statistics of the recorded batches, ``rates`` the learning rates on record, ``models`` the models as built;
    ``mindformers`` and ``megatron`` the versions that read a YAML and a script, empty where that is not known.

    :raises ConfigurationError: a side says nothing that the CheckList asks for, so there is nothing to compare.
    """
    reference, candidate = (as_read(side, mindformers, megatron) for side in (reference, candidate))
    repairs = {key: value for refusal in refusals(candidate) for key, value in refusal.edits.items()}
    checked = judge(reference, candidate, statistics=statistics, weigh_alike=weigh_alike(*statistics), repairs=repairs)
    courses = (learning_rates(reference, candidate, rates), course(Scheduled.WEIGHT_DECAY, weight_decay, reference, candidate))
    ours = frozenset[str]().union(*(row.reference.keys for row in checked), *(one.keys[0] for one in courses))
    theirs = frozenset[str]().union(*(row.candidate.keys for row in checked), *(one.keys[1] for one in courses))
    for side, covered in ((reference, ours), (candidate, theirs)):
        if side.facts is None and covered.isdisjoint(side.values):
            raise ConfigurationError(f"{side.source} says nothing that the CheckList asks for; name the script or YAML of a training")
    unread = any(row.reference.why or row.candidate.why for row in checked if row.outcome is RowOutcome.UNKNOWN)
    lacks = reference.gaps or candidate.gaps or unread or None in [one.same for one in courses]
    if not lacks:  # a run of a script would show nothing more
        reference, candidate = replace(reference, by_a_run=None), replace(candidate, by_a_run=None)
    sides = (checked_side(reference, ours, statistics[0]), checked_side(candidate, theirs, statistics[1]))
    differences_beside = uncovered_differences(reference, candidate, ours | theirs)
    checklist = Checklist(sides, checked, courses, *side_by_side(*statistics), differences_beside)
    checklist = _without_needless_removals(checklist, candidate)
    return checklist if checklist.of(RowOutcome.DIFFERENT) else replace(checklist, built=built_differences(*models))


def _without_needless_removals(checklist: Checklist, candidate: Configuration) -> Checklist:
    """Return a check that takes out no key that is not set."""
    # a repair would have set the key, and a row's change, say to another class of optimizer, makes the repair needless
    changes = {one.row.id: one.change for one in checklist.checked if one.change is not None}
    taken_out = {edit.key for change in changes.values() for edit in change.edits if edit.form is Form.LEAVE_OUT}
    if not (needless := taken_out - candidate.values.keys()):
        return checklist
    kept = {name: replace(one, edits=tuple(edit for edit in one.edits if edit.key not in needless)) for name, one in changes.items()}
    repairs = [{key: value for key, value in one.edits.items() if key not in needless} for one in checklist.sides[1].refusals]
    refusals = tuple(replace(one, edits=edits) for one, edits in zip(checklist.sides[1].refusals, repairs, strict=True))
    checked = tuple(replace(one, change=kept.get(one.row.id)) for one in checklist.checked)
    return replace(checklist, checked=checked, sides=(checklist.sides[0], replace(checklist.sides[1], refusals=refusals)))


def built_differences(reference: Table, candidate: Table) -> tuple[tuple[str, Argument, Argument], ...]:
    """Return the settings that differ of two models on record, both of a family: name or table's entry, and either value."""
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
    """Return a configuration with the version that reads it, a record's own if known, and the names that this version ignores."""
    versions = configuration.fact("versions") or {}
    if configuration.side != MINDFORMERS:  # nobody knows which Megatron-LM a fork is built on
        return replace(configuration, version=str(versions.get("megatron-core") or ("" if configuration.fork else megatron)))
    version = str(versions.get("mindformers") or mindformers)
    if configuration.facts is None and is_since(version, *TEMPLATE_SINCE):
        configuration = replace(configuration, values={**configuration.values, **of_template(configuration.values)})
    try:
        return replace(configuration, version=version, passed_over=names_passed_over(configuration, version))
    except Unknown as unknown:  # without the class of the model nobody knows which of its keys count
        of_model = {name: value for name, value in configuration.values.items() if name.startswith(MODEL)}
        of_model = {name: Value(value.written, value.place, unknown.why) for name, value in of_model.items()}
        return replace(configuration, version=version, values={**configuration.values, **of_model})


def course(name: Scheduled, schedule_of: ScheduleOf, reference: Configuration, candidate: Configuration) -> Course:
    """Return a schedule of both sides, compared step by step."""
    ours, theirs = traced(reference), traced(candidate)
    compared = _course(name, schedule_of, ours, theirs)
    return replace(compared, keys=(frozenset(ours.asked), frozenset(theirs.asked)))


def _course(name: Scheduled, schedule_of: ScheduleOf, reference: Configuration, candidate: Configuration) -> Course:
    schedules: list[Schedule] = []
    for side, configuration in zip(Side, (reference, candidate), strict=True):
        try:
            schedules.append(schedule_of(configuration))
        except Unknown as unknown:
            return Course(name, None, message("course.untold_of", side=side, why=unknown.why))
        except ODD as error:
            return Course(name, None, message("course.odd", side=side, error=str(error)))
    try:
        at, errors = differences(*schedules)
        ours, theirs = (schedule.at(at).tolist() for schedule in schedules)
    except (Unknown, *ODD) as error:
        return Course(name, None, message("course.untold", why=error.why if isinstance(error, Unknown) else str(error)))
    if not (steps := at.tolist()) or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return Course(name, None, message("course.no_numbers"))
    one, other = (schedule.steps for schedule in schedules)
    lengths = message("course.lengths", reference=one, candidate=other) if one and other and one != other else None
    compared = compare_series(name, (steps, ours, theirs), errors, all_steps=any((one, other)))
    return replace(compared, text=sentences(compared.text, lengths), schedules=(schedules[0].text, schedules[1].text))


def learning_rates(reference: Configuration, candidate: Configuration, rates: tuple[Rates | None, Rates | None]) -> Course:
    """Return the learning rates on record where these differ, or the settings do not say them; else those of the settings."""
    on_record, derived = recorded_rates(*rates), course(Scheduled.LEARNING_RATE, learning_rate, reference, candidate)
    if on_record is None or (on_record.same is not False and derived.same is not None):
        return derived
    return replace(on_record, keys=derived.keys)


def recorded_rates(reference: Rates | None, candidate: Rates | None) -> Course | None:
    """Return the learning rates of two records at their common steps, compared; None where there is no such step."""
    ours, theirs = reference or {}, candidate or {}
    steps = sorted(step for step in ours.keys() & theirs.keys() if math.isfinite(ours[step]) and math.isfinite(theirs[step]))
    if not steps:
        return None
    both = [ours[step] for step in steps], [theirs[step] for step in steps]
    compared = compare_series(Scheduled.LEARNING_RATE, (steps, *both), relative_differences(*map(np.asarray, both)), all_steps=True)
    return replace(compared, text=message("course.on_record", text=compared.text))


def compare_series(name: Scheduled, series: tuple[list[int], list[float], list[float]], errors: Floats, *, all_steps: bool) -> Course:
    """Return steps with the reference's values, the candidate's and their relative differences as a course."""
    steps, ours, theirs = series

    def at(index: int) -> dict[str, float]:
        return {"step": steps[index], "iteration": steps[index] + 1, "reference": ours[index], "candidate": theirs[index]}

    violations, most = np.flatnonzero(errors > RATE).tolist(), int(np.argmax(errors))
    if violations:
        head = "course.differs" if all_steps else "course.differs_in_the_first"
        differs = message(head, differing=len(violations), steps=len(steps), **at(violations[0]))
        words = sentences(differs, message("course.most", **at(most)))
        compared = Course(name, False, words, steps=steps, reference=ours, candidate=theirs)
        return replace(compared, differing=len(violations), first=steps[violations[0]], most=steps[most])
    text: Words = message("course.same" if all_steps else "course.same_in_the_first", count=len(steps))
    if len(set(ours)) == len(set(theirs)) == 1:
        text = message("course.constant", rate=ours[0])
    return Course(name, True, text, steps=steps, reference=ours, candidate=theirs)


def checked_side(configuration: Configuration, covered: frozenset[str], statistics: BatchStatistics | None) -> CheckedSide:
    """Return one side, with the settings that are not ``covered`` by a row."""
    unknown = [value.unknown for value in configuration.values.values() if isinstance(value.unknown, MissingArgument)]
    notes: list[Argument] = [IncompleteSide("configuration.arguments_missing", {"script": unknown[0].script})] if unknown else []
    notes += [*configuration.notes, *([configuration.by_a_run] if configuration.by_a_run is not None else [])]
    if not configuration.unread and (wrong := odd(configuration)):
        notes.append(message("note.of_no_family", why=sentences(*wrong)))
    texts, recorded = tuple(pitfall.text for pitfall in pitfalls(configuration, covered)), configuration.facts is not None
    refused, names = tuple(refusals(configuration)), tuple(uncovered(configuration, covered))
    common = configuration.side, configuration.source, tuple(notes), texts, names, recorded, refused, statistics
    return CheckedSide(*common, configuration.gaps, bool(configuration.unread))


def counts(checklist: Checklist) -> Mapping[RowOutcome, int]:
    """Return the number of rows of each outcome."""
    return {outcome: len(checklist.of(outcome)) for outcome in RowOutcome}
