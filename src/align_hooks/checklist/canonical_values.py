"""Values that both sides have in common, whatever each writes for them: how they are made, compared and shown.

Most are plain numbers and names. Where no single value says it, a type of its own does, with words for reports only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from align_hooks.configuration.values import Setting
from align_hooks.messages import Argument, Joined, Message, message, terms

Words: TypeAlias = "Message | Joined"
SAME_NUMBER = 1e-6
"""Relative difference of two numbers that count as one: 0.1 in float32 is 0.1."""
LONGEST_SHOWN = 2_000
"""Letters of a value that a report shows."""


class Unset(Enum):
    """A value that nobody set; None is a value that frameworks set."""

    UNSET = "not set"


UNSET = Unset.UNSET


class ValueOrigin(Enum):
    """Where a value that nobody set comes from."""

    DEFAULT = "default"
    NOT_CONFIGURABLE = "not_configurable"


class Decays(Enum):
    """Which weights decay by a framework's own rule."""

    NOTHING = "nothing"
    RULE = "rule"
    RULE_AND_NORMS = "rule_and_norms"


class Drops(Enum):
    """Which tokens an expert drops, where Megatron has no name for it."""

    NOTHING = "nothing"
    BY_CHOICE = "by_choice"
    """Tokens that chose the expert second, before those that chose it first."""


class Spread(Enum):
    """The standard deviation of the first weights of output projections, relative to all others."""

    ALIKE = "alike"
    BY_DEPTH = "by_depth"
    """Divided by the square root of twice the number of layers."""
    BY_DEPTH_BUT_EXPERTS = "by_depth_but_experts"
    BY_DEPTH_ONCE = "by_depth_once"
    """Divided by the square root of the number of layers."""


class OptimizerKind(Enum):
    """Optimizers whose updates are not what their names say."""

    ADAMW_UNCORRECTED = "adamw_uncorrected"
    """MindSpore's ``AdamWeightDecay``: without bias correction its first update is three times Adam's, at beta2 = 0.999 thirty times."""
    ADAM_COUPLED = "adam_coupled"


class Counts(Enum):
    """Which choices of experts a load-balancing loss counts."""

    AS_ROUTED = "as_routed"
    BY_SCORES = "by_scores"
    """The choices by scores only, without the bias of the experts and without groups."""


class Shares(Enum):
    """What the loss of further tokens is divided by, where every token counts alike."""

    OWN_TOKENS = "own_tokens"
    ALL_TOKENS = "all_tokens"
    """The tokens of the main loss, of which there are more."""


class Printed(Enum):
    """What a framework prints as its loss."""

    LANGUAGE_MODEL = "language_model"
    SUM = "sum"


class Unchosen(Enum):
    """The score of an expert whose group was not chosen."""

    LOWEST = "lowest"
    ZERO = "zero"


class ParallelAxis(Enum):
    """A way of splitting a model over ranks."""

    TENSOR = "tensor"
    PIPELINE = "pipeline"
    CONTEXT = "context"
    SEQUENCE = "sequence"
    OPTIMIZER = "optimizer"


class Order(Enum):
    """The order in which the samples of a data set are trained on."""

    OF_THE_DATA = "of_the_data"
    """The data set's, which Megatron's makes by its own seed."""
    SHUFFLED = "shuffled"
    """Shuffled by MindFormers' reader."""
    CYCLIC = "cyclic"
    """Shuffled by Megatron's cyclic loader."""
    INSTRUCTIONS = "instructions"
    """Instructions, which MindSpeed-LLM shuffles in each epoch."""


class CanonicalValue:
    """A value with words for reports."""

    __slots__ = ()

    @property
    def words(self) -> Argument:
        """The value as a report shows it."""
        raise NotImplementedError

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of the value that a single setting may hold."""
        return ()


class ExpertLayers(CanonicalValue, Struct, frozen=True):
    """Which layers have experts."""

    runs: tuple[tuple[bool, int], ...] = ()
    """Whether consecutive layers have experts, and how many these are; empty where no layer has any."""

    @property
    def sparse(self) -> int:
        """The number of layers with experts."""
        return sum(count for experts, count in self.runs if experts)

    @property
    def dense(self) -> int:
        """The number of layers without, in a model with experts."""
        return sum(count for experts, count in self.runs if not experts)

    @property
    def words(self) -> Argument:
        """``3 dense, 58 with experts``."""
        runs = [
            message("canonical_value.layers_with_experts" if experts else "canonical_value.layers_dense", count=count)
            for experts, count in self.runs
        ]
        return terms(runs) if runs else "none"

    @property
    def numbers(self) -> Sequence[int]:
        """How many of each."""
        return [count for _, count in self.runs]


@dataclass(frozen=True, slots=True)
class Balanced(CanonicalValue):
    """The tokens among which a load-balancing loss counts how often an expert is chosen."""

    sequences: int
    """How many sequences are counted together."""
    parts: int = 1
    """How many parts each sequence is cut into, which are counted separately."""
    of_step: bool = False
    """Whether all ranks and the step's earlier micro-batches are counted together."""
    kind: str = field(default="", compare=False)
    """The framework's name of the loss, which means other tokens on the other side."""

    @property
    def words(self) -> Argument:
        """``aux_loss, of 4 sequences together``."""
        if self.of_step:
            return message("canonical_value.balanced_step", kind=self.kind, count=self.sequences)
        if self.parts > 1:
            return message("canonical_value.balanced_part", kind=self.kind, count=self.sequences, parts=self.parts)
        return message("canonical_value.balanced", kind=self.kind, count=self.sequences)


class Dynamic(CanonicalValue, Struct, frozen=True):
    """A loss scale that moves."""

    start: float

    @property
    def words(self) -> Argument:
        """``dynamic from 65536``."""
        return message("canonical_value.dynamic", start=self.start)

    @property
    def numbers(self) -> Sequence[int]:
        """The start, where that is an integer."""
        return [int(self.start)] if self.start.is_integer() else []


class RopeWavelengths(Struct, frozen=True):
    """The wavelengths between which Llama 3.1's scaling takes hold; the defaults are Megatron-LM's."""

    low: object = 1.0
    """A factor that divides ``length``, as ``high``."""
    high: object = 4.0
    length: object = 8192.0


class Scaling(CanonicalValue, Struct, frozen=True):
    """How rotary positions are scaled."""

    kind: str
    factor: object
    bounds: RopeWavelengths = RopeWavelengths()

    @property
    def words(self) -> Argument:
        """``llama3, factor 8``, and bounds that are not the usual ones."""
        factor = _number(self.factor)
        if self.bounds == RopeWavelengths():
            return message("canonical_value.scaling", kind=self.kind, factor=factor)
        low, high, length = map(_number, (self.bounds.low, self.bounds.high, self.bounds.length))
        return message("canonical_value.scaling_bounds", kind=self.kind, factor=factor, low=low, high=high, length=length)

    @property
    def numbers(self) -> Sequence[int]:
        """The factor and the bounds, where these are integers."""
        numbers = (self.factor, self.bounds.low, self.bounds.high, self.bounds.length)
        return [int(number) for number in numbers if isinstance(number, int) or (isinstance(number, float) and number.is_integer())]


def _number(value: object) -> str:
    """Return a float without needless digits; any other value as text."""
    return f"{value:g}" if isinstance(value, float) else str(value)


class OwnRates(CanonicalValue, Struct, frozen=True):
    """Groups of parameters that have a schedule of their own."""

    groups: int

    @property
    def words(self) -> Argument:
        """``2 groups with schedules of their own``."""
        return message("canonical_value.own_rates", count=self.groups)


class Hidden(CanonicalValue, Struct, frozen=True):
    """The token id that a model leaves out of attention, of the loss, or of both."""

    id: int | None = None
    """None where no token is left out."""
    attention: bool = False
    loss: bool = False

    @property
    def words(self) -> Argument:
        """``0, out of attention and loss``."""
        if self.id is None:
            return "none"
        if self.attention and self.loss:
            return message("canonical_value.hidden", id=self.id)
        return message("canonical_value.hidden_attention" if self.attention else "canonical_value.hidden_loss", id=self.id)

    @property
    def numbers(self) -> Sequence[int]:
        """The id."""
        return [] if self.id is None else [self.id]


class TwoLengths(CanonicalValue, Struct, frozen=True):
    """Two sequence lengths, the model's and its data's."""

    model: object
    data: object

    @property
    def words(self) -> Argument:
        """``4096 in the model, 8192 in the data``."""
        return message("canonical_value.two_lengths", model=str(self.model), data=str(self.data))

    @property
    def numbers(self) -> Sequence[int]:
        """Both lengths."""
        return [length for length in (self.model, self.data) if isinstance(length, int)]


class Released(CanonicalValue, Struct, frozen=True):
    """The versions of a MindFormers and of the MindSpore beside it."""

    mindformers: str
    mindspore: str
    wanted: str | None
    """The MindSpore that this MindFormers was released with; None where that is not known."""

    @property
    def fits(self) -> bool:
        """Whether nothing is known against the pair."""
        return self.wanted is None or self.mindspore.startswith(self.wanted)

    @property
    def words(self) -> Argument:
        """The version, or what it should be."""
        if self.wanted is None:
            return message("canonical_value.pair_unknown", mindformers=self.mindformers, mindspore=self.mindspore)
        return self.mindspore if self.fits else message("canonical_value.pair_wrong", wanted=self.wanted, found=self.mindspore)


class Switched(CanonicalValue, Struct, frozen=True):
    """Settings that are on, or the ways in which a model is split over ranks."""

    on: tuple[str | ParallelAxis, ...]

    @property
    def words(self) -> Argument:
        """``tensor, pipeline``."""
        return terms(self.on) if self.on else "none"


# ---- how written values are brought to one form


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


def or_else(otherwise: Setting) -> Callable[[Setting], Setting]:
    """Return a form in which nothing and 0 are a value."""
    return lambda value: plain(value) or otherwise


def one_if_none(value: Setting) -> Setting:
    """Return a factor, 1 where there is none."""
    return 1.0 if value is None else plain(value)


def several(value: Setting) -> Setting:
    """Return a number or factor; None for 0 and 1, which change nothing."""
    return None if plain(value) in (0, 1) else plain(value)


def in_callback(kind: str, key: str) -> Callable[[Setting], Setting]:
    """Return a form that finds a setting of a callback in MindFormers' list; Megatron's value stays unchanged."""

    def form(value: Setting) -> Setting:
        if not isinstance(value, list):
            return value
        return next((callback.get(key) for callback in value if isinstance(callback, dict) and callback.get("type") == kind), None)

    return form


# ---- comparing and showing


def same(a: Setting, b: Setting) -> bool:
    """Return whether two values are the same."""
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
    if isinstance(value, CanonicalValue):
        return value.words
    if isinstance(value, Enum):
        return value
    if isinstance(value, frozenset):
        return message("canonical_value.weights", count=len(value))
    if isinstance(value, dict):
        counts = Counter(map(str, value.values())).most_common()
        if len(counts) < 2:
            return counts[0][0] if counts else "–"
        return terms(message("canonical_value.of", value=name, count=count) for name, count in counts)
    written = as_written(value)
    return written if len(written) <= LONGEST_SHOWN else f"{written[:LONGEST_SHOWN]}…"


def as_written(value: Setting) -> str:
    """Return a value as somebody wrote it."""
    if isinstance(value, float):
        return f"{value:.7g}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(as_written, value)) + "]"
    return str(value)
