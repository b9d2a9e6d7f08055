"""What to set in the candidate so that every row agrees: row by row, each on the candidate as the rows before it leave it.

So two rows of one key ask for the same value, and all edits can be written together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from align_hooks.checklist.canonical_values import UNSET, same
from align_hooks.checklist.edits import Action, Edit, SuggestedEdit, flag_of
from align_hooks.checklist.lookup import MODEL, has, is_new, model
from align_hooks.checklist.mindformers_models import DEEPSEEK, class_of, family, ignored, keys_read, refused, refuses, unread
from align_hooks.checklist.resolver import GROUP_LIST, ODD, EditRequest, Edits, as_accepted, is_choice, no_edits, type_of
from align_hooks.checklist.resolvers.data import LOADER, OF_MEGATRON, RESETS, reader, sequence
from align_hooks.checklist.resolvers.hybrid import in_pattern
from align_hooks.checklist.resolvers.precision import mindformers_flash
from align_hooks.checklist.resolvers.schedule import GROUPED
from align_hooks.checklist.row import BatchPair, CheckRow, Effect, SideSpec, SideValue
from align_hooks.checklist.tables import ROW, ROWS
from align_hooks.configuration import mindspeed
from align_hooks.configuration.hybrid import PATTERNS, as_blocks
from align_hooks.configuration.megatron import defaults_of, flags_of
from align_hooks.configuration.values import MEGATRON, MINDFORMERS, Configuration, KeyPath, Setting, Unknown, Value
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
OF_DEEPSEEK = tuple(f"moe_config.{name}" for name in ("moe_intermediate_size", "aux_loss_factors", "aux_loss_types"))
"""Settings of experts that no other older family reads."""
BETWEEN = {**dict.fromkeys(("optimizer.betas", "optimizer.beta1", "optimizer.beta2"), (0.0, 1.0)), "optimizer.eps": (0.0, math.inf)}
"""AdamW's exclusive bounds of a setting."""
GROUPED_EXPERTS = model("n_group", "topk_group")
"""The groups of experts, and how many of them a token may choose."""
COMPRESSED, SHORTEST = (*RESETS, *model("use_attn_mask_compression", "use_eod_attn_mask_compression")), 2048
"""Settings that compress a mask, and the shortest sequence for that, in flash attention only (1.9, ``mask_generate.py:66``)."""


def suggest_edits(
    reference: Configuration, candidate: Configuration, values: Values, differing: Sequence[CheckRow]
) -> Mapping[str, SuggestedEdit]:
    """Return what to do about each of the rows that differ, in their order."""
    search, changes = EditSearch(reference, values), dict[str, SuggestedEdit]()
    untouched = edited = replace(candidate, facts=None)  # of a record only what was set can be changed
    written: dict[str, Edit] = {}
    of_rounding: dict[str, dict[Argument, Setting]] = {}  # a key to the rows that would change the rounding by it, and the value of each
    result = [row for row in differing if row.effect is Effect.RESULT]
    # twice, for the edits of one row may give another its way; rows of rounding leave the candidate unchanged for each other
    for row in (*result, *result, *(row for row in differing if row not in result)):
        if row.id in changes and changes[row.id].breaks is None and changes[row.id].action not in WITHOUT_A_WAY:
            continue
        follows = not search.agrees(row, untouched)
        done = search.change(row, edited, written if follows else {})
        if done.action is Action.FOLLOWS:
            done = replace(done, value=search.followed(row, untouched, written))
        if row.id in changes and done.breaks is not None:
            done = search.together(row, done, edited, result)
        rival = next((other for edit in done.edits for other, value in of_rounding.get(edit.key, {}).items() if value != edit.value), None)
        if row.effect is Effect.ROUNDING and done.is_safe and rival is not None:
            done = replace(done, breaks=rival, worthwhile=False)
        changes[row.id] = done = replace(done, optional=row.effect is Effect.ROUNDING)
        if done.optional and done.is_safe:
            for edit in done.edits:
                of_rounding.setdefault(edit.key, {})[row.name] = edit.value
        elif row.effect is Effect.RESULT and done.is_safe:
            edited = applied(edited, {edit.key: edit.value for edit in done.edits})
            written.update((edit.key, edit) for edit in done.edits)
    for row in result:  # a later row may have given the same setting another value
        if (done := changes[row.id]).is_safe:
            edits = tuple(replace(edit, value=written[edit.key].value) for edit in done.edits)
            changes[row.id] = replace(done, edits=edits)
    return changes


class EditSearch(Struct, frozen=True):
    """The search for edits by which rows of a candidate agree with the reference."""

    reference: Configuration
    values: Values

    def agrees(self, row: CheckRow, candidate: Configuration) -> bool:
        """Return whether a candidate has the reference's value of a row."""
        return same(row.read(candidate).canonical, self.values[row.id][0].canonical)

    def is_settled(self, row: CheckRow, candidate: Configuration) -> bool:
        """Return whether a candidate agrees in a row, or differs without harm."""
        return self.agrees(row, candidate) or answer(row.harmless_if, self.reference, candidate) is not None

    def change(self, row: CheckRow, candidate: Configuration, written: Mapping[str, Edit]) -> SuggestedEdit:
        """Return what to do about one row of a candidate that has the edits of ``written`` already."""
        spec, (wanted, was) = row.spec(candidate), self.values[row.id]
        framework = candidate.side
        if spec.fixed is not UNSET and row.way_out is None:
            return SuggestedEdit(Action.CHANGE_REFERENCE, framework, value=was.shown)
        if written and self.is_settled(row, candidate):
            together = tuple(edit for key, edit in written.items() if key in spec.keys)
            return SuggestedEdit(Action.WRITE if together else Action.FOLLOWS, framework, together)
        if (why := answer(spec.cannot, candidate)) is not None:
            return SuggestedEdit(Action.CHANGE_REFERENCE, framework, value=was.shown, why=why)
        harmful = None
        for edits, changed in self.ways(row, candidate):
            done = SuggestedEdit(Action.WRITE, framework, as_edits(self.written(edits, candidate), candidate))
            if (broken := self.broken_row(row, edits, candidate, changed)) is None:
                return done
            harmful = harmful or replace(done, breaks=broken.name, worthwhile=row.effect is not Effect.ROUNDING)
        if row.way_out is not None:
            return SuggestedEdit(Action.BOTH_SIDES, framework, value=row.way_out)
        if harmful is not None:
            return harmful
        if (instead := answer(row.instead, self.reference, candidate)) is not None:
            return SuggestedEdit(Action.COME_TO, framework, value=wanted.shown, key=instead[0], why=instead[1])
        if spec.write is no_edits and (keys := usable(spec.keys, candidate)):
            return SuggestedEdit(Action.COME_TO, framework, value=wanted.shown, key=keys[0])
        return SuggestedEdit(Action.NONE, framework, value=wanted.shown)  # all that may be written was tried

    def followed(self, row: CheckRow, candidate: Configuration, written: Mapping[str, Edit]) -> Argument:
        """Return the names of the edits without which a row would not agree; of all where no single one is needed."""

        def settles(edits: Iterable[Edit]) -> bool:
            return self.is_settled(row, applied(candidate, {edit.key: edit.value for edit in edits}))

        needed = [edit for edit in written.values() if not settles(other for other in written.values() if other is not edit)]
        return terms(edit.name.removeprefix(MODEL) for edit in needed or written.values())

    def together(self, row: CheckRow, done: SuggestedEdit, candidate: Configuration, others: Sequence[CheckRow]) -> SuggestedEdit:
        """Return a change with the edits of other rows that must be written at the same time; ``done`` where there are none."""

        def completed(edits: Edits, sets: int) -> Edits | None:
            changed = applied(candidate, edits)
            wrong = self.broken_row(row, edits, candidate, changed) if self.agrees(row, changed) else row
            if wrong is None or not sets:
                return edits if wrong is None else None
            beside = [other for other in others if set(other.spec(changed).keys) & set(wrong.spec(changed).keys)]
            more = (way for other in (wrong, *beside) for way, _ in self.ways(other, changed))
            return next(filter(None, (completed({**edits, **way}, sets - 1) for way in more)), None)

        ways = [way for way, _ in self.ways(row, candidate)]
        for sets, way in itertools.product(range(1, MOST_SETS + 1), ways):  # the fewest sets first
            if (edits := completed(way, sets)) is not None:
                return replace(done, edits=as_edits(self.written(edits, candidate), candidate), breaks=None, worthwhile=True)
        return done

    def written(self, edits: Edits, candidate: Configuration) -> Edits:
        """Return edits as the candidate can be given them."""
        return in_pattern(edits, candidate, {row: wanted.canonical for row, (wanted, _) in self.values.items()})

    def ways(self, row: CheckRow, candidate: Configuration) -> Iterator[tuple[Edits, Configuration]]:
        """Yield the edits that bring a row by itself to the reference's value, each with the candidate that they lead to."""
        spec, wanted = row.spec(candidate), self.values[row.id][0].canonical
        if spec.fixed is not UNSET or wanted is UNSET or answer(spec.cannot, candidate) is not None:
            return
        for edits in candidate_edits(spec, EditRequest(self.reference, candidate, wanted, usable(spec.keys, candidate))):
            changed = applied(candidate, edits)
            if self.agrees(row, changed):
                yield edits, changed

    def broken_row(self, row: CheckRow, edits: Edits, candidate: Configuration, changed: Configuration) -> CheckRow | None:
        """Return a row that agrees, changes the result, and would differ after these edits of another; None without one."""
        touched = with_ties(edits, candidate).keys()
        for neighbour in ROWS:
            if neighbour.effect is not Effect.RESULT or neighbour is row or neighbour.id not in self.values:
                continue
            spec = neighbour.spec(changed)
            if touched.isdisjoint((*spec.keys, *spec.beside)):
                continue
            ours, before = self.values[neighbour.id][0].canonical, neighbour.read(candidate).canonical
            if UNSET in (ours, before) or not same(ours, before) or self.agrees(neighbour, changed):
                continue
            name = neighbour.depends_on
            means = name not in self.values or has_meaning(neighbour, (self.values[name][0], ROW[name].read(changed))) is not False
            if means and answer(neighbour.harmless_if, self.reference, changed) is None:
                return neighbour
        return None


def candidate_edits(spec: SideSpec, request: EditRequest) -> Iterator[Edits]:
    """Yield the ways of writing what is wanted, each once and without settings that have their value already."""
    tried: list[Edits] = []
    try:
        for way in itertools.chain(spec.write(request), _left_out(request)):
            typed = {key: as_accepted(key, value, request.candidate) for key, value in way.items()}
            edits = {key: value for key, value in typed.items() if not _is_set_to(request.candidate, key, value)}
            edits = {**_table_rest(edits, request.candidate), **edits}
            if edits and edits not in tried and not is_refused(edits, request.candidate):
                tried.append(edits)
                yield edits
            if len(tried) == MOST:
                return
    except (Unknown, *ODD):
        return


def _left_out(request: EditRequest) -> Iterator[Edits]:
    """Yield a flag of Megatron's left out, any that is set where the row names no keys."""
    if request.candidate.side == MEGATRON:
        set_flags = request.keys or usable([*request.candidate.values], request.candidate)
        yield from ({key: UNSET} for key in set_flags if key in request.candidate.values)


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
    trainer = candidate.trainer
    own = tuple(Edit(candidate.side, key, value, trainer=trainer) for key, value in edits.items())
    return (*own, *(Edit(candidate.side, key, value, anchor, trainer) for key, (value, anchor) in tied(edits, candidate).items()))


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
    return replace(candidate, values=as_blocks(values) if not edits.keys().isdisjoint(PATTERNS) else values, facts=None)


def has_meaning(row: CheckRow, held: Sequence[SideValue]) -> bool | None:
    """Return whether a row means anything, by both values of the row that it depends on; None where that is not known."""
    _, _, wanted = row.when.partition("=")
    # the reference decides: what only the candidate has goes with the difference of the other row
    deciding = held if held[0].canonical is UNSET and not held[0].why else held[:1]
    if any(value.canonical == wanted if wanted else value.canonical not in NOT_WORTH for value in deciding):
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


def answer(question: Callable[..., A] | None, *asked: BatchPair | Configuration) -> A | None:
    """Return the answer to a question of a row; None without a question, or where something decisive is not known."""
    try:
        return question(*asked) if question is not None else None
    except (Unknown, *ODD):
        return None


# ---- what may be written


def usable(keys: Sequence[str], candidate: Configuration) -> list[str]:
    """Return the names that a candidate's framework reads, those that are set first."""
    newer, of_family, kind = False, None, ""
    try:
        newer = candidate.side == MINDFORMERS and is_new(candidate)
        of_family = family(candidate) if candidate.side == MINDFORMERS else None
        kind = class_of(candidate)
    except Unknown:  # without the class of the model nobody knows which of its keys are read
        keys = [key for key in keys if not key.startswith((MODEL, "moe_config."))]
    unfit = {f"{MODEL}{name}" for name in ignored(of_family) | refused(of_family) | unread(of_family)} if newer else set()
    grouped = GROUP_LIST in candidate.values or has(candidate, GROUPED)  # MindFormers wants all of a group then

    def fits(key: str) -> bool:
        if candidate.side == MEGATRON:
            known = flag_of(key)[0].replace("_", "-") in flags_of(candidate.fork)
            return known and (key not in mindspeed.ARGUMENTS or key in defaults_of(candidate.fork))
        if key.startswith(f"{LOADER}.config.") and reader(candidate) not in ("", OF_MEGATRON):
            return False  # other readers refuse a section of that name
        if key in OF_DEEPSEEK and of_family not in DEEPSEEK:
            return False
        if key in unfit or (newer and key.startswith("moe_config.")) or (key.startswith(GROUPED) and not grouped):
            return False
        own = key.removeprefix(MODEL) if key.startswith(MODEL) else ""
        read = not kind or not own or own in keys_read(kind, candidate.version)
        return key not in candidate.passed_over and (read or key in candidate.values)

    return sorted(filter(fits, keys), key=lambda key: key not in candidate.values)


def is_refused(edits: Edits, candidate: Configuration) -> bool:
    """Return whether a framework ends a training for one of these values."""
    if candidate.side != MINDFORMERS:
        return any(value is not UNSET and not is_choice(key, value, candidate) for key, value in edits.items())
    no_integer = any(type_of(key) == "integer" and isinstance(value, float) for key, value in edits.items())
    outside = any(not below < number < above for key, (below, above) in BETWEEN.items() for number in _numbers(edits.get(key)))
    if no_integer or outside or (any(edits.get(key) is True for key in COMPRESSED) and _takes_no_compressed_mask(candidate)):
        return True
    if not is_new(candidate):
        return False
    said = {name.removeprefix(MODEL): value.written for name, value in candidate.values.items()}
    said |= {name.removeprefix(MODEL): value for name, value in edits.items()}
    groups, chosen = said.get("n_group"), said.get("topk_group")
    too_many = isinstance(groups, int) and isinstance(chosen, int) and chosen > groups and not edits.keys().isdisjoint(GROUPED_EXPERTS)
    return too_many or any(refuses(family(candidate), key.removeprefix(MODEL), value, said) for key, value in edits.items())


def _takes_no_compressed_mask(candidate: Configuration) -> bool:
    """Return whether a sequence is known to be too short for a compressed mask, or no flash attention is known to read it."""
    try:
        return any(length < SHORTEST for length in _numbers(sequence(candidate))) or mindformers_flash(candidate) is False
    except Unknown:
        return False


def _numbers(value: Setting) -> list[float]:
    return [number for number in (value if isinstance(value, list) else [value]) if isinstance(number, int | float)]
