"""One side's value of a row, whether two meanings are the same, and how a value is shown."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum

from align_hooks.checklist.meaning import Meaning, ValueOrigin
from align_hooks.checklist.row import UNSET, CheckRow
from align_hooks.configuration.values import Configuration, Setting, SourceLocation, Unknown, Value
from align_hooks.messages import Argument, message, terms

SAME_NUMBER = 1e-6
"""Relative difference of two numbers that count as one: 0.1 in float32 is 0.1."""
LONGEST_SHOWN = 2_000
"""Letters of a value that a report shows."""
ODD = (TypeError, ValueError, ArithmeticError, AttributeError, LookupError)
"""Exceptions that a value of a wrong kind raises in a reading."""


@dataclass(frozen=True, slots=True)
class SideValue:
    """One side's value of a row."""

    meaning: Setting
    shown: Argument
    place: SourceLocation | ValueOrigin | None
    """Where the value was set; None where it is not known."""
    why: Argument = None

    @property
    def where(self) -> str | ValueOrigin:
        """The place in words, empty where there is none."""
        return self.place if isinstance(self.place, ValueOrigin) else str(self.place or "")

    def place_beside(self, source: str) -> Argument:
        """Return the place without its option; only the line where the file is ``source``."""
        if not isinstance(self.place, SourceLocation):
            return self.where
        in_source = self.place.line is not None and self.place.source == source
        return message("place.line", line=str(self.place.line)) if in_source else str(replace(self.place, name=""))


def read_row(row: CheckRow, configuration: Configuration) -> SideValue:
    """Return one side's value of a row."""
    says, asked = row.says(configuration), replace(configuration, used=set())
    written: Setting = UNSET
    why: Argument = None
    try:
        written = _written(row, asked)
    except Unknown as unknown:
        why = unknown.why
    except ODD as odd:
        why = message("held.odd", source=configuration.source, error=str(odd))
    configuration.used.update((*says.keys, *says.beside, *asked.used))
    deciding = _deciding(row, asked, written)
    if (fact := configuration.fact(row.fact) if row.fact else None) is not None:
        written, deciding, why = fact, deciding or Value(fact, configuration.account), None
    try:
        meaning = written if written is UNSET or row.form is None else row.form(written)
    except ODD:
        meaning = written
    if isinstance(meaning, float) and not math.isfinite(meaning):
        source = deciding.where if deciding is not None else configuration.source
        meaning, why = UNSET, message("held.not_finite", place=source, value=str(written))
    place: SourceLocation | ValueOrigin | None = ValueOrigin.NOT_CONFIGURABLE if says.fixed is not UNSET else ValueOrigin.DEFAULT
    if meaning is UNSET:
        place = None
    elif deciding is not None:
        place = deciding.place
    elif configuration.facts is not None:
        place = configuration.account
    return SideValue(meaning, show(meaning), place, why)


def _deciding(row: CheckRow, configuration: Configuration, written: Setting) -> Value | None:
    """Return the value without which the meaning would be another; else that of the row's first key that is set."""
    says, values = row.says(configuration), configuration.values
    # a row without keys has a reading, which noted those that it used
    keys = [key for key in says.keys or sorted(configuration.used) if key in values and key not in configuration.passed_over]
    if says.read is not None and (len(keys) > 1 or not says.keys) and configuration.facts is None:
        itself = next((key for key in keys if not values[key].unknown and same(values[key].value, written)), None)
        if itself is not None:
            return values[itself]
        for key in keys:
            without = {name: value for name, value in values.items() if name != key}
            try:
                if not same(_written(row, replace(configuration, values=without, used=set())), written):
                    return values[key]
            except (Unknown, *ODD):
                return values[key]
    return values[keys[0]] if keys and says.keys else None


def _written(row: CheckRow, configuration: Configuration) -> Setting:
    """Return a row's value on one side before ``form`` makes a meaning of it."""
    says = row.says(configuration)
    if says.fixed is not UNSET:
        return says.fixed
    if says.read is not None:
        return says.read(configuration)
    if (value := configuration.find(says.keys)) is not None:
        return value.value
    return says.default(configuration) if callable(says.default) else says.default


def same(a: Setting, b: Setting) -> bool:
    """Return whether two meanings are the same."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        try:
            return a == b or abs(a - b) <= SAME_NUMBER * max(abs(a), abs(b))
        except OverflowError:
            return False  # a whole number that no float holds
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def show(value: Setting) -> Argument:
    """Return a value as people write it, or its words; of a table how often each value occurs, the commonest first."""
    if value is UNSET:
        return "–"
    if isinstance(value, Meaning):
        return value.words
    if isinstance(value, Enum):
        return value
    if isinstance(value, frozenset):
        return message("meaning.weights", count=len(value))
    if isinstance(value, dict):
        counts = Counter(map(str, value.values())).most_common()
        if len(counts) < 2:
            return counts[0][0] if counts else "–"
        return terms(message("meaning.of", value=name, count=count) for name, count in counts)
    written = as_written(value)
    return written if len(written) <= LONGEST_SHOWN else f"{written[:LONGEST_SHOWN]}…"


def as_written(value: Setting) -> str:
    """Return a value as somebody wrote it."""
    if isinstance(value, float):
        return f"{value:.7g}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(as_written, value)) + "]"
    return str(value)
