"""One row of the CheckList: how each side says a quantity, how the two correspond, and what a difference does.

A row is data. What either side says is brought to one meaning, such as ``intermediate_size`` in elements whether it was given, or
computed from ``multiple_of``; the meanings are compared, and both values are shown as they were written, with the place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from align_hooks.configuration.values import MINDFORMERS, Configuration


class Effect(Enum):
    """What a difference does; the value is what people read."""

    RESULT = "the result"
    ROUNDING = "the rounding"
    NOTHING = "no number"


class Unset(Enum):
    """A value that nobody gave; None is one that frameworks give."""

    UNSET = "not set"


UNSET = Unset.UNSET
Read = Callable[[Configuration], Any]


@dataclass(frozen=True, slots=True)
class Says:
    """How one side says a quantity.

    ``keys`` are the names that mean it, the first that is set wins; ``default`` holds where none is, a value or a function of the
    configuration; ``read`` works the quantity out where one key does not say it, and then ``keys`` are all that it looks at. ``fixed``
    is what a framework does that cannot be configured, and ``note`` says so in words. ``beside`` are names that belong to the quantity
    and do not say it, such as how a thing is done that another key switches on; ``choices`` are all that may be written, where it is
    not what it means.
    """

    keys: tuple[str, ...] = ()
    default: Any = UNSET
    read: Read | None = None
    fixed: Any = UNSET
    note: str = ""
    beside: tuple[str, ...] = ()
    choices: tuple[Any, ...] = ()


def _speaks(says: Says) -> bool:
    return bool(says.keys) or says.read is not None or says.fixed is not UNSET or says.default is not UNSET


@dataclass(frozen=True, slots=True)
class Advice:
    """What the guide recommends of a quantity where precision is compared, and whether a value keeps to it.

    ``setup`` names the occasion that it is for, ``finding a fault`` or ``acceptance``; empty where it always holds.
    """

    text: str
    keeps: Callable[[Any], bool]
    setup: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One thing to check.

    ``form`` brings what was written to one meaning. ``fact`` is where a record's ``run.json`` says it as built. ``when`` names the row
    that must hold something on either side for this one to mean anything (there are no experts in a dense model), or a value of it
    (``compute_dtype=float16``). ``tell`` says in words how two meanings differ that are too long to be shown; ``unless`` says why a
    difference does no harm to these two sides, empty where it does. ``sources`` are the tables and rows of the guides that ask for it;
    ``by_hand`` is how to check it where neither configuration nor record can tell.
    """

    name: str
    group: str
    megatron: Says
    mindformers: Says
    effect: Effect = Effect.RESULT
    form: Callable[[Any], Any] | None = None
    fact: str = ""
    when: str = ""
    tell: Callable[[Any, Any], str] | None = None
    unless: Callable[[Configuration, Configuration], str] | None = None
    advice: Advice | None = None
    sources: Sequence[str] = ()
    by_hand: str = ""

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


def boolean(value: Any) -> Any:
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


def dtype(value: Any) -> Any:
    """A type by one name, whatever the framework calls it."""
    return _TYPES.get(str(value).lower().replace("mstype.", "").replace("mindspore.", ""), value) if value is not None else None


def text(value: Any) -> Any:
    """Names without case and without the difference of dashes and underscores."""
    return value.lower().replace("-", "_") if isinstance(value, str) else value


def numeric(value: Any) -> Any:
    """A number, also where YAML made text of it."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value
