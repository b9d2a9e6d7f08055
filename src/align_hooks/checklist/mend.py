"""What to set in the candidate so that every row agrees: tried row by row, each on the candidate as the rows before it leave it.

So two rows that live on one key are told the same value of it, and all that is told can be written together.
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
"""Row to what reference and candidate hold of it."""
NOT_WORTH = ("", None, False, 0, "none", UNSET)
"""What a row holds where those that depend on it mean nothing."""
MOST = 256
"""Ways of writing a row that are tried."""
WITHOUT_A_WAY = (Action.NONE, Action.COME_TO)
"""What a row may come to that another row's edits give a way."""
MOST_SETS = 2
"""Rows whose edits are written together with those of a row that cannot be mended alone."""


def mend(reference: Configuration, candidate: Configuration, values: Values, apart: Sequence[CheckRow]) -> Mapping[str, SuggestedEdit]:
    """What to do about each of the rows that are ``apart``, in their order. Those that part another row, or have no way, are tried once
    more when the rest is mended. Rows that change the rounding alone come last and leave the candidate as it is for each other."""
    changes: dict[str, SuggestedEdit] = {}
    untouched = mended = replace(candidate, facts=None, used=set())  # of a record, what it was told: that is what can be changed
    written: dict[str, Edit] = {}
    asked_for: dict[str, dict[Argument, Setting]] = {}  # a key to the rows that would change the rounding by it, and the value of each
    result = [row for row in apart if row.effect is Effect.RESULT]
    for row in (*result, *result, *(row for row in apart if row not in result)):
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
    for row in result:  # what a later row made of the same setting
        done = changes[row.id]
        changes[row.id] = replace(
            done, edits=tuple(replace(edit, value=written[edit.key].value) if done.keeps else edit for edit in done.edits)
        )
    return changes


def _change(
    row: CheckRow, reference: Configuration, candidate: Configuration, values: Values, written: Mapping[str, Edit]
) -> SuggestedEdit:
    """What to do about one row of a candidate that ``written`` has changed already."""
    says, (wanted, was) = row.says(candidate), values[row.id]
    framework = candidate.side
    if says.fixed is not UNSET and row.way_out is None:
        return SuggestedEdit(Action.CHANGE_REFERENCE, framework, value=was.shown)
    if written and (same(read_row(row, candidate).meaning, wanted.meaning) or answer(row.unless, reference, candidate) is not None):
        together = tuple(edit for key, edit in written.items() if key in says.keys)
        return SuggestedEdit(Action.WRITE if together else Action.FOLLOWS, framework, together)
    if (why := answer(says.cannot, candidate)) is not None:
        return SuggestedEdit(Action.CHANGE_REFERENCE, framework, value=was.shown, why=why)
    asked = EditRequest(reference, candidate, wanted.meaning, usable(says.keys, candidate))
    parting = None
    for edits in _tried(row, asked):
        changed = applied(candidate, edits)
        if same(read_row(row, changed).meaning, wanted.meaning):
            done = SuggestedEdit(Action.WRITE, framework, as_edits(edits, candidate))
            parted = _parted(edits, row, reference, candidate, changed, values)
            if parted is None:
                return done
            parting = parting or replace(done, parts=parted.name, worth=row.effect is not Effect.ROUNDING)
    if row.way_out is not None:
        return SuggestedEdit(Action.BOTH_SIDES, framework, value=row.way_out)
    if parting is not None:
        return parting
    if (instead := answer(row.instead, reference, candidate)) is not None:
        return SuggestedEdit(Action.COME_TO, framework, value=wanted.shown, key=instead[0], why=instead[1])
    if says.tries is nothing and asked.keys:
        return SuggestedEdit(Action.COME_TO, framework, value=wanted.shown, key=asked.keys[0])
    return SuggestedEdit(Action.NONE, framework, value=wanted.shown)  # all that may be written was tried


def _followed(row: CheckRow, reference: Configuration, candidate: Configuration, values: Values, written: Mapping[str, Edit]) -> Argument:
    """Return the names of the edits that a row needs to agree; of all of them where none is needed more than another."""

    def agrees(edits: Iterable[Edit]) -> bool:
        changed = applied(candidate, {edit.key: edit.value for edit in edits})
        return same(read_row(row, changed).meaning, values[row.id][0].meaning) or answer(row.unless, reference, changed) is not None

    needed = [edit for edit in written.values() if not agrees(other for other in written.values() if other is not edit)]
    return terms(edit.name.removeprefix(MODEL) for edit in needed or written.values())


def _together(
    row: CheckRow, alone: SuggestedEdit, reference: Configuration, candidate: Configuration, values: Values, apart: Sequence[CheckRow]
) -> SuggestedEdit:
    """Return a change with the edits of other rows that must be written at the same time, or ``alone`` where there are none."""

    def mended(edits: Edits, sets: int) -> Edits | None:
        changed = applied(candidate, edits)
        meant = same(read_row(row, changed).meaning, values[row.id][0].meaning)
        wrong = _parted(edits, row, reference, candidate, changed, values) if meant else row
        if wrong is None or not sets:
            return edits if wrong is None else None
        beside = [other for other in apart if set(other.says(changed).keys) & set(wrong.says(changed).keys)]
        more = (way for other in (wrong, *beside) for way in _ways(other, reference, changed, values))
        return next(filter(None, (mended({**edits, **way}, sets - 1) for way in more)), None)

    ways = list(_ways(row, reference, candidate, values))
    for sets, way in itertools.product(range(1, MOST_SETS + 1), ways):  # the fewest sets first
        if (edits := mended(way, sets)) is not None:
            return replace(alone, edits=as_edits(edits, candidate), parts=None, worth=True)
    return alone


def _ways(row: CheckRow, reference: Configuration, candidate: Configuration, values: Values) -> Iterator[Edits]:
    """Return the edits that bring a row alone to what the reference means."""
    says, wanted = row.says(candidate), values[row.id][0].meaning
    if says.fixed is UNSET and wanted is not UNSET and answer(says.cannot, candidate) is None:
        for edits in _tried(row, EditRequest(reference, candidate, wanted, usable(says.keys, candidate))):
            if same(read_row(row, applied(candidate, edits)).meaning, wanted):
                yield edits


def _tried(row: CheckRow, asked: EditRequest) -> Iterator[Edits]:
    """Ways of writing what a row wants, each once and without what stands there already."""
    says = row.says(asked.candidate)
    ways: Iterable[Edits] = says.tries(asked) if says.tries is not None else of_one_key(asked)
    tried: list[Edits] = []
    try:
        for way in itertools.chain(ways, left_out(asked)):
            typed = {key: as_taken(key, value, asked.candidate) for key, value in way.items()}
            edits = {key: value for key, value in typed.items() if not _stands(asked.candidate, key, value)}
            edits = {**_carried(edits, asked.candidate), **edits}
            if edits and edits not in tried and not is_refused(edits, asked.candidate):
                tried.append(edits)
                yield edits
            if len(tried) == MOST:
                return
    except (Unknown, *ODD):
        return


def _stands(candidate: Configuration, key: str, value: object) -> bool:
    """Whether a candidate gives a key such a value already; None is a key that is not there."""
    standing = candidate.values.get(key)
    if standing is None or standing.written is None:
        return value is None
    return not standing.unknown and type(standing.value) is type(value) and bool(standing.value == value)


def _carried(edits: Edits, candidate: Configuration) -> Edits:
    """What else stands in a table that the model's ``config.json`` alone holds: a table of the YAML takes its place as a whole."""
    tables = {key.rpartition(".")[0] + "." for key in edits if key.startswith(MODEL)} - {MODEL}
    inner = {name: value for name, value in candidate.values.items() if name.startswith(tuple(tables))}
    of_model = all(value.place is not None and value.place.is_json for value in inner.values())
    return {name: value.value for name, value in inner.items()} if of_model else {}


def tied(edits: Edits, candidate: Configuration) -> dict[str, tuple[Setting, str]]:
    """Return the keys that anchors give the values of some edits too, each with what it comes to and the anchor."""
    held: dict[str, tuple[Setting, str]] = {}
    for key, value in edits.items():
        tie = candidate.values[key].tie if key in candidate.values and value is not UNSET else None
        if tie is None or any(edits.get(other, value) != value for other, path in tie.members if not path):
            continue  # what parts keys that were tied moves no third one
        for other, path in tie.members:
            if other in candidate.values and other not in edits:
                standing = held[other][0] if other in held else candidate.values[other].written
                held[other] = (_with_member(standing, path, value), tie.anchor)
    return held


def _with_member(standing: Setting, path: KeyPath, value: Setting) -> Setting:
    """Return a value with another one at the end of a path into its lists and tables, which stay as they are."""
    if not path:
        return value
    whole: Setting = list(standing) if isinstance(standing, list) else dict(standing)
    whole[path[0]] = _with_member(whole[path[0]], path[1:], value)
    return whole


def as_edits(edits: Edits, candidate: Configuration) -> tuple[Edit, ...]:
    """Return edits as they are advised, with those of the keys that an anchor ties to theirs."""
    own = tuple(Edit(candidate.side, key, value) for key, value in edits.items())
    return (*own, *(Edit(candidate.side, key, value, anchor) for key, (value, anchor) in tied(edits, candidate).items()))


def with_ties(edits: Edits, candidate: Configuration) -> dict[str, Setting]:
    """Return edits with what anchors make of other keys by them."""
    return {**edits, **{key: value for key, (value, _) in tied(edits, candidate).items()}}


def applied(candidate: Configuration, edits: Edits) -> Configuration:
    """A candidate with some settings written, and what anchors tie to them: a value takes the place of a table, and a table that of a
    value; UNSET takes a key out."""
    values = dict(candidate.values)
    for key, value in with_ties(edits, candidate).items():
        above = [key[:at] for at, letter in enumerate(key) if letter == "."]
        for name in [name for name in values if name in above or name.startswith(f"{key}.")] if candidate.side == MINDFORMERS else ():
            del values[name]
        values[key] = Value(value, tie=values[key].tie if key in values else None)
        if value is UNSET:
            del values[key]
    return replace(candidate, values=values, facts=None, used=set())


def _parted(
    edits: Edits, row: CheckRow, reference: Configuration, candidate: Configuration, changed: Configuration, values: Values
) -> CheckRow | None:
    """A row that agrees, changes the result, and would differ after these edits; None where there is none."""
    touched = with_ties(edits, candidate).keys()
    for neighbour in ROWS:
        if neighbour.effect is not Effect.RESULT or neighbour is row or neighbour.id not in values:
            continue
        says = neighbour.says(changed)
        if touched.isdisjoint((*says.keys, *says.beside)):
            continue
        ours, before, after = values[neighbour.id][0].meaning, read_row(neighbour, candidate).meaning, read_row(neighbour, changed).meaning
        if UNSET in (ours, before) or not same(ours, before) or same(after, ours) or not _means_anything(neighbour, changed, values):
            continue
        if answer(neighbour.unless, reference, changed) is None:
            return neighbour
    return None


def _means_anything(row: CheckRow, candidate: Configuration, values: Values) -> bool:
    """Whether a row means anything of the reference and a changed candidate."""
    name = row.depends_on
    return name not in values or is_asked(row, (values[name][0], read_row(ROW[name], candidate))) is not False


def is_asked(row: CheckRow, held: Sequence[SideValue]) -> bool | None:
    """Whether a row means anything, by what both sides hold of the row that it depends on; None where that is not known.

    The reference decides where it holds anything: what the candidate alone has goes with the difference of that row.
    """
    _, _, wanted = row.when.partition("=")
    deciding = held if held[0].meaning is UNSET and not held[0].why else held[:1]
    if any(value.meaning == wanted if wanted else value.meaning not in NOT_WORTH for value in deciding):
        return True
    return None if any(value.why for value in deciding) else False


def missing(row: CheckRow, reference: Configuration, candidate: Configuration) -> Argument:
    """Return what is not known and decides whether a difference of these two sides does harm; None where all of it is known."""
    for question in filter(None, (row.unless, row.unsure)):
        try:
            question(reference, candidate)
        except Unknown as unknown:
            return unknown.why
        except ODD:
            continue
    return None


def answer(question: Callable[..., A] | None, *asked: Looks | Configuration) -> A | None:
    """Return the answer to a question of a row; None without a question, or where something that decides it is not known."""
    try:
        return question(*asked) if question is not None else None
    except (Unknown, *ODD):
        return None
