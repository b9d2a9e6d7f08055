"""One row of the CheckList: how each side says a quantity, how the two correspond, and what a difference does.

A row is data. Each side's settings are brought to a canonical value, such as ``intermediate_size`` in elements, whether that was
set or computed from ``multiple_of``. These are compared; both are shown as they were written, with their places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from align_hooks.checklist.canonical_values import UNSET, ValueOrigin, Words, plain, same, show
from align_hooks.checklist.lookup import Read
from align_hooks.checklist.resolver import ODD, Resolved, Resolver, Write, one_key, resolved
from align_hooks.configuration.values import MINDFORMERS, Configuration, Setting, SourceLocation, Value
from align_hooks.data_file import sections
from align_hooks.messages import Argument, Message, message
from align_hooks.record.batch_statistics import BatchStatistics


class Effect(Enum):
    """What a difference does."""

    RESULT = "result"
    ROUNDING = "rounding"
    NOTHING = "nothing"


class RowGroup(Enum):
    """What rows are about, in the order of the guides."""

    STRUCTURE = "structure"
    EXPERTS = "experts"
    OPTIMIZER = "optimizer"
    PRECISION = "precision"
    PARALLEL_LAYOUT = "parallel_layout"
    DATA = "data"
    KERNELS_AND_FUSIONS = "kernels_and_fusions"
    ENVIRONMENT = "environment"
    TRAINING_CONTROL = "training_control"
    SET_UPS = "set_ups"


class Occasion(Enum):
    """What the guide has a set-up for."""

    FINDING_A_FAULT = "finding_a_fault"
    ACCEPTANCE = "acceptance"


ToCanonical: TypeAlias = Callable[[Setting], Setting]
Keeps: TypeAlias = Callable[[Setting], bool]
Explain: TypeAlias = Callable[[Configuration, Configuration], "Words | None"]
BatchPair: TypeAlias = "tuple[BatchStatistics | None, BatchStatistics | None]"
"""Statistics of the recorded batches of reference and candidate; None of a side without any."""
InBatches: TypeAlias = Callable[[BatchPair, Configuration, Configuration], "SettingEvidence | None"]
Instead: TypeAlias = Callable[[Configuration, Configuration], "tuple[str, Message] | None"]
Cannot: TypeAlias = Callable[[Configuration], "Words | None"]


class Worded(str):
    """The id of a row whose title is words; any other row is called by its parameter's name, the same in every language."""

    __slots__ = ()


def _sources() -> Mapping[str, Sequence[str]]:
    """Return the id of a row to the rows of the guides that ask for it."""
    asked: dict[str, list[str]] = {}
    for table, lines in sections(Path(__file__).parent / "guides.txt").items():
        for name, _, ids in (line.rpartition(": ") for line in lines):
            for id in ids.split():
                asked.setdefault(id, []).append(f"{table}: {name}" if name else table)
    return asked


SOURCES = _sources()


class SettingEvidence(Struct, frozen=True):
    """What recorded batches show of a difference."""

    harmless: bool
    """Whether the difference does no harm to these batches."""
    words: Words


class SideSpec(Struct, frozen=True):
    """How one side says a quantity."""

    keys: tuple[str, ...] = ()
    """The names that say the quantity, of which the first that is set wins; with ``read`` all names that it reads."""
    default: Setting = UNSET
    """The value where no key is set, or a reader of it."""
    read: Read | None = None
    """Computes the quantity where no single key says it; a resolver has its writer too."""
    fixed: Setting = UNSET
    """What the framework does where nothing can be configured."""
    beside: tuple[str, ...] = ()
    """Names that belong to the quantity and do not say it, such as how something is done that another key switches on."""
    writer: Write | None = None
    """Writes the quantity where a key that says it is not given the wanted value itself."""
    cannot: Cannot | None = None
    """Says why no edit of this configuration changes the quantity; None where one can."""

    @property
    def is_there(self) -> bool:
        """Whether the side has the quantity at all."""
        return bool(self.keys) or self.read is not None or self.fixed is not UNSET or self.default is not UNSET

    def resolve(self, configuration: Configuration) -> Resolved:
        """Return the value as written, before the row's form makes a canonical one of it, with the names that it is made of."""
        return resolved(self._written, configuration)

    def _written(self, configuration: Configuration) -> Setting:
        if self.fixed is not UNSET:
            return self.fixed
        if self.read is not None:
            return self.read(configuration)
        if (value := configuration.find(self.keys)) is not None:
            return value.value
        return self.default(configuration) if callable(self.default) else self.default

    @property
    def write(self) -> Write:
        """The ways of writing the quantity."""
        return self.writer or (self.read.write if isinstance(self.read, Resolver) else one_key)


class SideValue(Struct, frozen=True):
    """One side's value of a row."""

    canonical: Setting
    """The value in the form that both sides have in common; UNSET where the side does not say it, or it is not known."""
    shown: Argument
    place: SourceLocation | ValueOrigin | None
    """Where the value was set; None where it is not known."""
    why: Argument = None
    """Why the value is not known; None where it is."""
    keys: frozenset[str] = frozenset()
    """The names that the value was asked of, set or not, and those that belong to the quantity."""

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


class Recommendation(Struct, frozen=True):
    """What the guide recommends where precision is compared."""

    text: Argument
    """A message, or the value itself."""
    keeps: Keeps
    setup: Occasion | None = None
    """The occasion that the advice is for; None where it always holds."""
    kept_by: Explain | None = None
    """Says why both sides keep to the advice although a value of one does not; None where they do not."""


class CheckRow(Struct, frozen=True):
    """One quantity to check."""

    id: str
    """The parameter's name, or that of the title, ``row.ID`` of the catalogues, of a ``Worded`` one."""
    megatron: SideSpec
    mindformers: SideSpec
    group: RowGroup
    effect: Effect = Effect.RESULT
    form: ToCanonical | None = plain
    """Brings a written value to its canonical one; None for a path or a version, of which no number is made."""
    fact: str = ""
    """Where a record's ``run.json`` has the quantity as built."""
    when: str = ""
    """The row without which this one means nothing, by its id (``expert_num``), or a value of it (``compute_dtype=float16``)."""
    describe: Callable[[Setting, Setting], Words | None] | None = None
    """Says how two values differ that are too long to be shown."""
    harmless_if: Explain | None = None
    """Says why a difference does no harm to these two sides; None where it does harm."""
    implied_by: Explain | None = None
    """Says why two sides differ although one of them does not say the quantity."""
    uncertain_if: Explain | None = None
    """Says why nobody knows whether a difference of these two sides matters: the row is then checked by hand."""
    batches: InBatches | None = None
    """Says what recorded batches show of a difference."""
    way_out: Message | None = None
    """What to set on both sides where no setting of one of them makes the two agree."""
    instead: Instead | None = None
    """The key by which a reader makes two sides agree that no value known here does, and how; None where there is none."""
    advice: Recommendation | None = None
    by_hand: Message | None = None
    """How to check the row where neither configuration nor record says it."""
    weighs: bool = False
    """Whether the row says how tokens weigh in the loss, which recorded batches show."""

    @property
    def name(self) -> Argument:
        """The title."""
        return message(f"row.{self.id}") if isinstance(self.id, Worded) else self.id

    @property
    def depends_on(self) -> str:
        """The id of the row in ``when``; empty without one."""
        return self.when.partition("=")[0]

    @property
    def sources(self) -> Sequence[str]:
        """The tables and rows of the guides that ask for it, as ``guides.txt`` has them."""
        return SOURCES.get(self.id, ())

    @property
    def one_sided(self) -> bool:
        """Whether one side has no such quantity, so that the other is compared with the advice only."""
        return not (self.megatron.is_there and self.mindformers.is_there)

    def spec(self, configuration: Configuration) -> SideSpec:
        """Return how the side of a configuration says the quantity."""
        return self.mindformers if configuration.side == MINDFORMERS else self.megatron

    def read(self, configuration: Configuration) -> SideValue:
        """Return one side's value."""
        spec = self.spec(configuration)
        resolved = spec.resolve(configuration)
        written, why = resolved.value, resolved.why
        deciding = self._deciding(configuration, resolved)
        if (fact := configuration.fact(self.fact) if self.fact else None) is not None:
            written, deciding, why = fact, deciding or Value(fact, configuration.account), None
        try:
            canonical = written if written is UNSET or self.form is None else self.form(written)
        except ODD:
            canonical = written
        if isinstance(canonical, float) and not math.isfinite(canonical):
            source = deciding.where if deciding is not None else configuration.source
            canonical, why = UNSET, message("held.not_finite", place=source, value=str(written))
        place: SourceLocation | ValueOrigin | None = ValueOrigin.NOT_CONFIGURABLE if spec.fixed is not UNSET else ValueOrigin.DEFAULT
        if canonical is UNSET:
            place = None
        elif deciding is not None:
            place = deciding.place
        elif configuration.facts is not None:
            place = configuration.account
        return SideValue(canonical, show(canonical), place, why, resolved.keys.union(spec.keys, spec.beside))

    def _deciding(self, configuration: Configuration, resolved: Resolved) -> Value | None:
        """Return the setting without which the value would be another; else that of the first key that is set."""
        spec, values = self.spec(configuration), configuration.values
        names = spec.keys or sorted(resolved.keys)
        keys = [key for key in names if key in values and key not in configuration.passed_over]
        if spec.read is not None and (len(keys) > 1 or not spec.keys) and configuration.facts is None:
            itself = next((key for key in keys if not values[key].unknown and same(values[key].value, resolved.value)), None)
            if itself is not None:
                return values[itself]
            for key in keys:
                without = spec.resolve(replace(configuration, values={name: value for name, value in values.items() if name != key}))
                if without.why is not None or not same(without.value, resolved.value):
                    return values[key]
        return values[keys[0]] if keys and spec.keys else None
