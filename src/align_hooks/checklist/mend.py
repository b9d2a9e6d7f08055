"""What to set in the candidate so that every row agrees: row by row, each on the candidate as the rows before it leave it.

So two rows of one key ask for the same value, and all edits can be written together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

from align_hooks.checklist.change import Action, Edit, SuggestedEdit
from align_hooks.checklist.row import MODEL, UNSET, CheckRow, EditRequest, Edits, Effect, Looks
from align_hooks.checklist.side_value import ODD, SideValue, read_row, same
from align_hooks.checklist.tables import ROW, ROWS
from align_hooks.checklist.tries import left_out, nothing, of_one_key
from align_hooks.checklist.writable import as_taken, is_refused, usable
from align_hooks.configuration.values import MINDFORMERS, Configuration, KeyPath, Setting, Unknown, Value
from align_hooks.messages import Argument, terms

A = TypeVar("A")
Values: TypeAlias = Mapping[str, tuple[SideValue, SideValue]]
"""Row to the values of reference and candidate."""
NOT_WORTH = ("", None, False, 0, "none", UNSET)
"""Values of a row without which its dependent rows mean nothing."""
MOST = 256
"""Ways of writing a row that are tried."""
WITHOUT_A_WAY = (Action.NONE, Action.COME_TO)
"""Actions of a row that another row's edits may still replace."""
MOST_SETS = 2
"""Other rows whose edits are written together with a row's."""


def mend(reference: Configuration, candidate: Configuration, values: Values, differing: Sequence[CheckRow]) -> Mapping[str, SuggestedEdit]:
    """Return what to do about each of the rows that differ, in their order."""
    changes: dict[str, SuggestedEdit] = {}
    untouched = mended = replace(candidate, facts=None, used=set())  # of a record only what was set can be changed
    written: dict[str, Edit] = {}
    asked_for: dict[str, dict[Argument, Setting]] = {}  # a key to the rows that would change the rounding by it, and the value of each
    result = [row for row in differing if row.effect is Effect.RESULT]
    # twice, for the edits of one row may give another its way; rows of rounding leave the candidate unchanged for each other
    for row in (*result, *result, *(row for row in differing if row not in result)):
        if row.id in changes and changes[row.id].parts is None and changes[row.id].action not in WITHOUT_A_WAY:
            continue
        follows = not same(read_row(row, untouched).meaning, values[row.id][0].meaning)
        done = _change(row, reference, mended, values, written if follows else {})
        if done.action is Action.FOLLOWS:
            done = replace(done, value=_followed(row, reference, untouched, values, written))
        if row.id in changes and done.parts is not None:
            done = _together(row, done, reference, mended, values, result)
        rival = next((other for edit in done.edits for other, value in asked_for.get(edit.key, {}).items() if value != edit.value), None)
        if row.effect is Effect.ROUNDING and done.keeps and rival is not None:
            done = replace(done, parts=rival, worth=False)
        done = replace(done, optional=row.effect is Effect.ROUNDING)
        if done.optional and done.keeps:
            for edit in done.edits:
                asked_for.setdefault(edit.key, {})[row.name] = edit.value
        changes[row.id] = done
        if row.effect is Effect.RESULT and done.keeps:
            mended = applied(mended, {edit.key: edit.value for edit in done.edits})
            written.update((edit.key, edit) for edit in done.edits)
    for row in result:  # a later row may have given the same setting another value
        if (done := changes[row.id]).keeps:
            edits = tuple(replace(edit, value=written[edit.key].value) for edit in done.edits)
            changes[row.id] = replace(done, edits=edits)
    return changes


def _change(
    row: CheckRow, reference: Configuration, candidate: Configuration, values: Values, written: Mapping[str, Edit]
) -> SuggestedEdit:
    """Return what to do about one row of a candidate that has the edits of ``written`` already."""
    says, (wanted, was) = row.says(candidate), values[row.id]
    framework = candidate.side
    if says.fixed is not UNSET and row.way_out is None:
        return SuggestedEdit(Action.CHANGE_REFERENCE, framework, value=was.shown)
    if written and (same(read_row(row, candidate).meaning, wanted.meaning) or answer(row.harmless_if, reference, candidate) is not None):
        together = tuple(edit for key, edit in written.items() if key in says.keys)
        return SuggestedEdit(Action.WRITE if together else Action.FOLLOWS, framework, together)
    if (why := answer(says.cannot, candidate)) is not None:
        return SuggestedEdit(Action.CHANGE_REFERENCE, framework, value=was.shown, why=why)
    asked = EditRequest(reference, candidate, wanted.meaning, usable(says.keys, candidate))
    harmful = None
    for edits in _tried(row, asked):
        changed = applied(candidate, edits)
        if same(read_row(row, changed).meaning, wanted.meaning):
            done = SuggestedEdit(Action.WRITE, framework, as_edits(edits, candidate))
            if (broken := _broken_row(edits, row, reference, candidate, changed, values)) is None:
                return done
            harmful = harmful or replace(done, parts=broken.name, worth=row.effect is not Effect.ROUNDING)
    if row.way_out is not None:
        return SuggestedEdit(Action.BOTH_SIDES, framework, value=row.way_out)
    if harmful is not None:
        return harmful
    if (instead := answer(row.instead, reference, candidate)) is not None:
        return SuggestedEdit(Action.COME_TO, framework, value=wanted.shown, key=instead[0], why=instead[1])
    if says.tries is nothing and asked.keys:
        return SuggestedEdit(Action.COME_TO, framework, value=wanted.shown, key=asked.keys[0])
    return SuggestedEdit(Action.NONE, framework, value=wanted.shown)  # all that may be written was tried


def _followed(row: CheckRow, reference: Configuration, candidate: Configuration, values: Values, written: Mapping[str, Edit]) -> Argument:
    """Return the names of the edits without which a row would not agree; of all where no single one is needed."""

    def agrees(edits: Iterable[Edit]) -> bool:
        changed = applied(candidate, {edit.key: edit.value for edit in edits})
        return same(read_row(row, changed).meaning, values[row.id][0].meaning) or answer(row.harmless_if, reference, changed) is not None

    needed = [edit for edit in written.values() if not agrees(other for other in written.values() if other is not edit)]
    return terms(edit.name.removeprefix(MODEL) for edit in needed or written.values())


def _together(
    row: CheckRow, done: SuggestedEdit, reference: Configuration, candidate: Configuration, values: Values, others: Sequence[CheckRow]
) -> SuggestedEdit:
    """Return a change with the edits of other rows that must be written at the same time; ``done`` where there are none."""

    def mended(edits: Edits, sets: int) -> Edits | None:
        changed = applied(candidate, edits)
        agrees = same(read_row(row, changed).meaning, values[row.id][0].meaning)
        wrong = _broken_row(edits, row, reference, candidate, changed, values) if agrees else row
        if wrong is None or not sets:
            return edits if wrong is None else None
        beside = [other for other in others if set(other.says(changed).keys) & set(wrong.says(changed).keys)]
        more = (way for other in (wrong, *beside) for way in _ways(other, reference, changed, values))
        return next(filter(None, (mended({**edits, **way}, sets - 1) for way in more)), None)

    ways = list(_ways(row, reference, candidate, values))
    for sets, way in itertools.product(range(1, MOST_SETS + 1), ways):  # the fewest sets first
        if (edits := mended(way, sets)) is not None:
            return replace(done, edits=as_edits(edits, candidate), parts=None, worth=True)
    return done


def _ways(row: CheckRow, reference: Configuration, candidate: Configuration, values: Values) -> Iterator[Edits]:
    """Yield the edits that bring a row by itself to the reference's meaning."""
    says, wanted = row.says(candidate), values[row.id][0].meaning
    if says.fixed is UNSET and wanted is not UNSET and answer(says.cannot, candidate) is None:
        for edits in _tried(row, EditRequest(reference, candidate, wanted, usable(says.keys, candidate))):
            if same(read_row(row, applied(candidate, edits)).meaning, wanted):
                yield edits


def _tried(row: CheckRow, asked: EditRequest) -> Iterator[Edits]:
    """Yield the ways of writing what a row wants, each once and without settings that have their value already."""
    says = row.says(asked.candidate)
    ways: Iterable[Edits] = says.tries(asked) if says.tries is not None else of_one_key(asked)
    tried: list[Edits] = []
    try:
        for way in itertools.chain(ways, left_out(asked)):
            typed = {key: as_taken(key, value, asked.candidate) for key, value in way.items()}
            edits = {key: value for key, value in typed.items() if not _is_set_to(asked.candidate, key, value)}
            edits = {**_table_rest(edits, asked.candidate), **edits}
            if edits and edits not in tried and not is_refused(edits, asked.candidate):
                tried.append(edits)
                yield edits
            if len(tried) == MOST:
                return
    except (Unknown, *ODD):
        return


def _is_set_to(candidate: Configuration, key: str, value: object) -> bool:
    """Return whether a candidate sets a key to a value of this type; None is a key that is not set."""
    if (current := candidate.values.get(key)) is None or current.written is None:
        return value is None
    return not current.unknown and type(current.value) is type(value) and bool(current.value == value)


def _table_rest(edits: Edits, candidate: Configuration) -> Edits:
    """Return all settings of the edited tables that only the model's ``config.json`` has."""
    # a table of the YAML replaces that of config.json
    tables = {key.rpartition(".")[0] + "." for key in edits if key.startswith(MODEL)} - {MODEL}
    inner = {name: value for name, value in candidate.values.items() if name.startswith(tuple(tables))}
    of_model = all(value.place is not None and value.place.is_json for value in inner.values())
    return {name: value.value for name, value in inner.items()} if of_model else {}


def tied(edits: Edits, candidate: Configuration) -> dict[str, tuple[Setting, str]]:
    """Return the keys that anchors give the values of some edits too, each with its value and the anchor."""
    held: dict[str, tuple[Setting, str]] = {}
    for key, value in edits.items():
        tie = candidate.values[key].tie if key in candidate.values and value is not UNSET else None
        if tie is None or any(edits.get(other, value) != value for other, path in tie.members if not path):
            continue  # edits that untie two keys move no third one
        for other, path in tie.members:
            if other in candidate.values and other not in edits:
                current = held[other][0] if other in held else candidate.values[other].written
                held[other] = (_with_member(current, path, value), tie.anchor)
    return held


def _with_member(container: Setting, path: KeyPath, value: Setting) -> Setting:
    """Return a copy of nested lists and tables with another value at a path."""
    if not path:
        return value
    copied: Setting = list(container) if isinstance(container, list) else dict(container)
    copied[path[0]] = _with_member(copied[path[0]], path[1:], value)
    return copied


def as_edits(edits: Edits, candidate: Configuration) -> tuple[Edit, ...]:
    """Return edits as they are advised, with those of the keys that anchors tie to theirs."""
    own = tuple(Edit(candidate.side, key, value) for key, value in edits.items())
    return (*own, *(Edit(candidate.side, key, value, anchor) for key, (value, anchor) in tied(edits, candidate).items()))


def with_ties(edits: Edits, candidate: Configuration) -> dict[str, Setting]:
    """Return edits with the values that anchors give other keys."""
    return {**edits, **{key: value for key, (value, _) in tied(edits, candidate).items()}}


def applied(candidate: Configuration, edits: Edits) -> Configuration:
    """Return a candidate with edits and their ties; a value replaces a table, a table a value, and UNSET takes a key out."""
    values = dict(candidate.values)
    for key, value in with_ties(edits, candidate).items():
        above = [key[:at] for at, letter in enumerate(key) if letter == "."]
        for name in [name for name in values if name in above or name.startswith(f"{key}.")] if candidate.side == MINDFORMERS else ():
            del values[name]
        values[key] = Value(value, tie=values[key].tie if key in values else None)
        if value is UNSET:
            del values[key]
    return replace(candidate, values=values, facts=None, used=set())


def _broken_row(
    edits: Edits, row: CheckRow, reference: Configuration, candidate: Configuration, changed: Configuration, values: Values
) -> CheckRow | None:
    """Return a row that agrees, changes the result, and would differ after these edits; None without one."""
    touched = with_ties(edits, candidate).keys()
    for neighbour in ROWS:
        if neighbour.effect is not Effect.RESULT or neighbour is row or neighbour.id not in values:
            continue
        says = neighbour.says(changed)
        if touched.isdisjoint((*says.keys, *says.beside)):
            continue
        ours, before, after = values[neighbour.id][0].meaning, read_row(neighbour, candidate).meaning, read_row(neighbour, changed).meaning
        if UNSET in (ours, before) or not same(ours, before) or same(after, ours):
            continue
        name = neighbour.depends_on
        asked = name not in values or is_asked(neighbour, (values[name][0], read_row(ROW[name], changed))) is not False
        if asked and answer(neighbour.harmless_if, reference, changed) is None:
            return neighbour
    return None


def is_asked(row: CheckRow, held: Sequence[SideValue]) -> bool | None:
    """Return whether a row means anything, by both values of the row that it depends on; None where that is not known."""
    _, _, wanted = row.when.partition("=")
    # the reference decides: what only the candidate has goes with the difference of the other row
    deciding = held if held[0].meaning is UNSET and not held[0].why else held[:1]
    if any(value.meaning == wanted if wanted else value.meaning not in NOT_WORTH for value in deciding):
        return True
    return None if any(value.why for value in deciding) else False


def missing(row: CheckRow, reference: Configuration, candidate: Configuration) -> Argument:
    """Return what is not known and decides whether a difference does harm to these two sides; None where nothing is missing."""
    for question in filter(None, (row.harmless_if, row.uncertain_if)):
        try:
            question(reference, candidate)
        except Unknown as unknown:
            return unknown.why
        except ODD:
            continue
    return None


def answer(question: Callable[..., A] | None, *asked: Looks | Configuration) -> A | None:
    """Return the answer to a question of a row; None without a question, or where something decisive is not known."""
    try:
        return question(*asked) if question is not None else None
    except (Unknown, *ODD):
        return None
