"""One row of the CheckList: how each side says a quantity, how the two correspond, and what a difference does.

A row is data. Each side's settings are brought to a meaning, such as ``intermediate_size`` in elements, whether that was
set or computed from ``multiple_of``. Meanings are compared; both values are shown as they were written, with their places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from align_hooks.checklist.meaning import Words
from align_hooks.configuration.values import MINDFORMERS, Configuration, Setting
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


class Unset(Enum):
    """A value that nobody set; None is a value that frameworks set."""

    UNSET = "not set"


UNSET = Unset.UNSET
Read: TypeAlias = Callable[[Configuration], Setting]
Form: TypeAlias = Callable[[Setting], Setting]
Keeps: TypeAlias = Callable[[Setting], bool]
Explain: TypeAlias = Callable[[Configuration, Configuration], "Words | None"]
Looks: TypeAlias = "tuple[BatchStatistics | None, BatchStatistics | None]"
"""Statistics of the recorded batches of reference and candidate; None of a side without any."""
InBatches: TypeAlias = Callable[[Looks, Configuration, Configuration], "SettingEvidence | None"]
Edits: TypeAlias = Mapping[str, Setting]
"""Keys to the values that they are given together; None takes a key out."""
Instead: TypeAlias = Callable[[Configuration, Configuration], "tuple[str, Message] | None"]
Cannot: TypeAlias = Callable[[Configuration], "Words | None"]
Tries: TypeAlias = Callable[["EditRequest"], Iterable[Edits]]
Name: TypeAlias = "Message | str"
"""A row's title: words, or a parameter's name, which is the same in every language."""


def _sources() -> Mapping[str, Sequence[str]]:
    """Return the id of a row to the rows of the guides that ask for it."""
    asked: dict[str, list[str]] = {}
    for table, lines in sections(Path(__file__).parent / "guides.txt").items():
        for name, _, ids in (line.rpartition(": ") for line in lines):
            for id in ids.split():
                asked.setdefault(id, []).append(f"{table}: {name}" if name else table)
    return asked


SOURCES = _sources()


def plain(value: Setting) -> Setting:
    """Return a Boolean or number as both sides write it, also where YAML made text of it; else the value unchanged."""
    if not isinstance(value, str):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    try:
        return float(value)
    except ValueError:
        return value


TYPES = {
    "float32": ("float32", "fp32", "torch.float32", "float", "torch.float"),
    "bfloat16": ("bfloat16", "bf16", "torch.bfloat16"),
    "float16": ("float16", "fp16", "torch.float16", "half", "torch.half"),
    "float64": ("float64", "fp64", "torch.float64", "double"),
}
_TYPES = {alias: name for name, aliases in TYPES.items() for alias in aliases}


def dtype(value: Setting) -> Setting:
    """Return the one name of a type, whatever the framework calls it."""
    return _TYPES.get(str(value).lower().replace("mstype.", "").replace("mindspore.", ""), value) if value is not None else None


def text(value: Setting) -> Setting:
    """Return a name in lower case with underscores for dashes; else the value unchanged."""
    return value.lower().replace("-", "_") if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class EditRequest:
    """A row whose candidate is to be edited."""

    reference: Configuration
    candidate: Configuration
    wanted: Setting
    """The reference's meaning."""
    keys: Sequence[str]
    """The candidate's keys that may be written, those that are set first."""


@dataclass(frozen=True, slots=True)
class SettingEvidence:
    """What recorded batches show of a difference."""

    harmless: bool
    """Whether the difference does no harm to these batches."""
    words: Words


@dataclass(frozen=True, slots=True)
class Says:
    """How one side says a quantity."""

    keys: tuple[str, ...] = ()
    """The names that mean the quantity, of which the first that is set wins; with ``read`` all names that it reads."""
    default: Setting = UNSET
    """The value where no key is set, or a function of the configuration."""
    read: Read | None = None
    """Computes the quantity where no single key says it."""
    fixed: Setting = UNSET
    """What the framework does where nothing can be configured."""
    note: Message | None = None
    beside: tuple[str, ...] = ()
    """Names that belong to the quantity and do not say it, such as how something is done that another key switches on."""
    tries: Tries | None = None
    """All ways of writing a meaning; None where one key is given the meaning itself."""
    cannot: Cannot | None = None
    """Says why no edit of this configuration changes the quantity; None where one can."""

    @property
    def speaks(self) -> bool:
        """Whether the side says the quantity at all."""
        return bool(self.keys) or self.read is not None or self.fixed is not UNSET or self.default is not UNSET


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What the guide recommends where precision is compared."""

    text: Argument
    """A message, or the value itself."""
    keeps: Keeps
    setup: Occasion | None = None
    """The occasion that the advice is for; None where it always holds."""
    kept_by: Explain | None = None
    """Says why both sides keep to the advice although a value of one does not; None where they do not."""


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One quantity to check."""

    name: Name
    megatron: Says
    mindformers: Says
    group: RowGroup
    effect: Effect = Effect.RESULT
    form: Form | None = plain
    """Brings a written value to its meaning; None for a path or a version, of which no number is made."""
    fact: str = ""
    """Where a record's ``run.json`` has the quantity as built."""
    when: str = ""
    """The row without which this one means nothing, by its id (``expert_num``), or a value of it (``compute_dtype=float16``)."""
    describe: Callable[[Setting, Setting], Words | None] | None = None
    """Says how two meanings differ that are too long to be shown."""
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
    def id(self) -> str:
        """The parameter's name, or that of the row's message."""
        return self.name.id.partition(".")[2] if isinstance(self.name, Message) else self.name

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
        return not (self.megatron.speaks and self.mindformers.speaks)

    def says(self, configuration: Configuration) -> Says:
        """Return how the side of a configuration says the quantity."""
        return self.mindformers if configuration.side == MINDFORMERS else self.megatron


NEVER = Says(fixed=False, note=message("note.none"))
"""A side that has no such setting, so that it is off."""
MODEL = "model.model_config."
"""The beginning of MindFormers' names for settings of a model."""


def model(*names: str) -> tuple[str, ...]:
    """Return keys of MindFormers' ``model_config``."""
    return tuple(MODEL + name for name in names)


def is_new(configuration: Configuration) -> bool:
    """Return whether a MindFormers configuration builds one of the newer models, ``use_legacy: False``."""
    return (legacy := configuration.find(("use_legacy",))) is not None and legacy.value is False
