"""One row of the CheckList: how each side says a quantity, how the two correspond, and what a difference does.

A row is data. What either side says is brought to one meaning, such as ``intermediate_size`` in elements whether it was given, or
computed from ``multiple_of``; the meanings are compared, and both values are shown as they were written, with the place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from align_hooks.checklist.meaning import Words
from align_hooks.configuration.values import MINDFORMERS, Configuration, Setting
from align_hooks.messages import Argument, Message


class Effect(Enum):
    """What a difference does."""

    RESULT = "result"
    ROUNDING = "rounding"
    NOTHING = "nothing"


class Group(Enum):
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
    """A value that nobody gave; None is one that frameworks give."""

    UNSET = "not set"


UNSET = Unset.UNSET
Read: TypeAlias = Callable[[Configuration], Setting]
Form: TypeAlias = Callable[[Setting], Setting]
Keeps: TypeAlias = Callable[[Setting], bool]
Name: TypeAlias = "Message | str"
"""What a row goes by: words, or the parameter that it is, which is the same in every language."""


@dataclass(frozen=True, slots=True)
class Says:
    """How one side says a quantity.

    ``keys`` are the names that mean it, the first that is set wins; ``default`` holds where none is, a value or a function of the
    configuration; ``read`` works the quantity out where one key does not say it, and then ``keys`` are all that it looks at. ``fixed``
    is what a framework does that cannot be configured, and ``note`` what is to be known of it. ``beside`` are names that belong to the
    quantity and do not say it, such as how a thing is done that another key switches on; ``choices`` are all that may be written, where
    it is not what it means.
    """

    keys: tuple[str, ...] = ()
    default: Setting = UNSET
    read: Read | None = None
    fixed: Setting = UNSET
    note: Message | None = None
    beside: tuple[str, ...] = ()
    choices: tuple[Setting, ...] = ()


def _speaks(says: Says) -> bool:
    return bool(says.keys) or says.read is not None or says.fixed is not UNSET or says.default is not UNSET


@dataclass(frozen=True, slots=True)
class Advice:
    """What the guide recommends of a quantity where precision is compared, and whether a value keeps to it.

    ``text`` is a message, or the value itself. ``setup`` is the occasion that it is for, None where it always holds.
    """

    text: Argument
    keeps: Keeps
    setup: Occasion | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One thing to check.

    ``form`` brings what was written to one meaning. ``fact`` is where a record's ``run.json`` says it as built. ``when`` is the id of the
    row that must hold something on either side for this one to mean anything (there are no experts in a dense model), or a value of it
    (``compute_dtype=float16``). ``tell`` says how two meanings differ that are too long to be shown; ``unless`` says why a difference
    does no harm to these two sides, None where it does. ``sources`` are the tables and rows of the guides that ask for it; ``by_hand``
    is how to check it where neither configuration nor record can tell.
    """

    name: Name
    megatron: Says
    mindformers: Says
    group: Group
    effect: Effect = Effect.RESULT
    form: Form | None = None
    fact: str = ""
    when: str = ""
    tell: Callable[[Setting, Setting], Words | None] | None = None
    unless: Callable[[Configuration, Configuration], Words | None] | None = None
    advice: Advice | None = None
    sources: Sequence[str] = ()
    by_hand: Message | None = None

    @property
    def id(self) -> str:
        """What code and programs know it by: the parameter's name, or that of its message."""
        return self.name.id.partition(".")[2] if isinstance(self.name, Message) else self.name

    @property
    def alone(self) -> bool:
        """Whether one side has nothing to say, so that the other is only held against the advice."""
        return not (_speaks(self.megatron) and _speaks(self.mindformers))

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
    said = configuration.find(("use_legacy",))
    return said is not None and said.value is False


def boolean(value: Setting) -> Setting:
    """True and False as both sides write them."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return value


TYPES = {
    "float32": ("float32", "fp32", "torch.float32", "float", "torch.float"),
    "bfloat16": ("bfloat16", "bf16", "torch.bfloat16"),
    "float16": ("float16", "fp16", "torch.float16", "half", "torch.half"),
    "float64": ("float64", "fp64", "torch.float64", "double"),
}
_TYPES = {one: name for name, all_of in TYPES.items() for one in all_of}


def dtype(value: Setting) -> Setting:
    """A type by one name, whatever the framework calls it."""
    return _TYPES.get(str(value).lower().replace("mstype.", "").replace("mindspore.", ""), value) if value is not None else None


def text(value: Setting) -> Setting:
    """Names without case and without the difference of dashes and underscores."""
    return value.lower().replace("-", "_") if isinstance(value, str) else value


def numeric(value: Setting) -> Setting:
    """A number, also where YAML made text of it."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value
