"""One row of the CheckList: how each side says a quantity, how the two correspond, and what a difference does.

A row is data. What a side says is brought to a meaning, such as ``intermediate_size`` in elements, whether it was set or computed from
``multiple_of``. The meanings are compared; both values are shown as they were written, with their places.
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
from align_hooks.messages import Argument, Message
from align_hooks.record.read.batch_statistics import BatchStatistics


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
    """A value that nobody set, for None is a value that frameworks set."""

    UNSET = "not set"


UNSET = Unset.UNSET
Read: TypeAlias = Callable[[Configuration], Setting]
Form: TypeAlias = Callable[[Setting], Setting]
Keeps: TypeAlias = Callable[[Setting], bool]
Unless: TypeAlias = Callable[[Configuration, Configuration], "Words | None"]
Looks: TypeAlias = "tuple[BatchStatistics | None, BatchStatistics | None]"
"""Looks at the recorded batches of reference and candidate; None of a side without any."""
InBatches: TypeAlias = Callable[[Looks, Configuration, Configuration], "SettingEvidence | None"]
Edits: TypeAlias = Mapping[str, Setting]
"""Keys and what to give them, which are written together; None takes a key out."""
Instead: TypeAlias = Callable[[Configuration, Configuration], "tuple[str, Message] | None"]
Cannot: TypeAlias = Callable[[Configuration], "Words | None"]
Tries: TypeAlias = Callable[["EditRequest"], Iterable[Edits]]
Name: TypeAlias = "Message | str"
"""What a row goes by: words, or the parameter that it is, which is the same in every language."""


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
    """A Boolean as both sides write it, or a number, also where YAML made text of it; everything else stays as it is."""
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
    """A type by one name, whatever the framework calls it."""
    return _TYPES.get(str(value).lower().replace("mstype.", "").replace("mindspore.", ""), value) if value is not None else None


def text(value: Setting) -> Setting:
    """Names without case and without the difference of dashes and underscores."""
    return value.lower().replace("-", "_") if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class EditRequest:
    """A row that is to be mended: both sides, what the reference means, and the candidate's keys that may be written, those that stand
    there first."""

    reference: Configuration
    candidate: Configuration
    wanted: Setting
    keys: Sequence[str]


@dataclass(frozen=True, slots=True)
class SettingEvidence:
    """What recorded batches show of a difference: whether it does no harm to them, and what was seen."""

    harmless: bool
    words: Words


@dataclass(frozen=True, slots=True)
class Says:
    """How one side says a quantity.

    ``keys`` are the names that mean it; the first that is set wins. ``default`` holds where none is set: a value, or a function of the
    configuration. ``read`` works the quantity out where one key does not say it; ``keys`` are then all the names that it looks at.
    ``fixed`` is what a framework does that cannot be configured, and ``note`` what a reader should know of it. ``beside`` are names that
    belong to the quantity and do not say it, such as how a thing is done that another key switches on. ``tries`` are all the ways of
    writing a meaning, where it is not one key that is given the meaning itself. ``cannot`` says why a side as it stands cannot be told at
    all, None where it can.
    """

    keys: tuple[str, ...] = ()
    default: Setting = UNSET
    read: Read | None = None
    fixed: Setting = UNSET
    note: Message | None = None
    beside: tuple[str, ...] = ()
    tries: Tries | None = None
    cannot: Cannot | None = None

    @property
    def speaks(self) -> bool:
        """Whether the side has anything to say."""
        return bool(self.keys) or self.read is not None or self.fixed is not UNSET or self.default is not UNSET


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What the guide recommends where precision is compared, and whether a value keeps to it.

    ``text`` is a message, or the value itself. ``setup`` is the occasion that the advice is for; None where it always holds. ``kept_by``
    says why both sides keep to it although a value of one does not; None where they do not.
    """

    text: Argument
    keeps: Keeps
    setup: Occasion | None = None
    kept_by: Unless | None = None


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One thing to check.

    ``form`` brings what was written to one meaning; it is None for a path or a version, of which no number is made. ``fact`` is where a
    record's ``run.json`` says it as built. ``when`` is the id of the row that must hold something on either side for this one to mean
    anything (there are no experts in a dense model), or a value of that row (``compute_dtype=float16``). ``tell`` says how two meanings
    differ that are too long to be shown. ``unless`` says why a difference does no harm to these two sides; None where it does harm.
    ``proof`` says what makes two sides differ although one of them does not say the quantity. ``unsure`` says why it cannot be told of
    these two sides whether a difference matters: it is then checked by hand. ``batches`` says what recorded batches show of a
    difference. ``way_out`` is what both sides are to be told where no setting of one of them makes the two agree. ``by_hand``
    is how to check the row where neither configuration nor record can tell. ``weighs``: it says how tokens weigh in the loss, which
    recorded batches show.
    """

    name: Name
    megatron: Says
    mindformers: Says
    group: RowGroup
    effect: Effect = Effect.RESULT
    form: Form | None = plain
    fact: str = ""
    when: str = ""
    tell: Callable[[Setting, Setting], Words | None] | None = None
    unless: Unless | None = None
    proof: Unless | None = None
    unsure: Unless | None = None
    batches: InBatches | None = None
    way_out: Message | None = None
    instead: Instead | None = None
    """The key by which a reader makes two sides agree that no value known here does, and how; None where there is none."""
    advice: Recommendation | None = None
    by_hand: Message | None = None
    weighs: bool = False

    @property
    def id(self) -> str:
        """The name by which code and programs know the row: the parameter's, or that of its message."""
        return self.name.id.partition(".")[2] if isinstance(self.name, Message) else self.name

    @property
    def depends_on(self) -> str:
        """The id of the row that must hold something, or a value, for this one to mean anything; empty where none must."""
        return self.when.partition("=")[0]

    @property
    def sources(self) -> Sequence[str]:
        """The tables and rows of the guides that ask for it, as ``guides.txt`` has them."""
        return SOURCES.get(self.id, ())

    @property
    def alone(self) -> bool:
        """Whether one side has nothing to say, so that the other is only held against the advice."""
        return not (self.megatron.speaks and self.mindformers.speaks)

    def says(self, configuration: Configuration) -> Says:
        """How the side of a configuration says it."""
        return self.mindformers if configuration.side == MINDFORMERS else self.megatron


MODEL = "model.model_config."
"""What names of MindFormers' models begin with."""


def model(*names: str) -> tuple[str, ...]:
    """Keys of MindFormers' ``model_config``."""
    return tuple(MODEL + name for name in names)


def is_new(configuration: Configuration) -> bool:
    """Whether a MindFormers configuration builds one of the newer models, ``use_legacy: False``."""
    legacy = configuration.find(("use_legacy",))
    return legacy is not None and legacy.value is False
