"""What a side means where no value of its configuration says it: typed, with the words that a reader meets.

Two meanings are held against each other, and code asks their fields; the words are for reports alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from align_hooks.messages import Argument, Joined, Message, message, terms

Words: TypeAlias = "Message | Joined"


class ValueOrigin(Enum):
    """Where a value comes from that nobody set."""

    DEFAULT = "default"
    NOT_CONFIGURABLE = "not_configurable"


class Decays(Enum):
    """Which weights decay, where a framework's own rule says it."""

    NOTHING = "nothing"
    RULE = "rule"
    RULE_AND_NORMS = "rule_and_norms"


class Drops(Enum):
    """Which tokens an expert drops, where Megatron has no name for it: all stay, or those that chose it first stay before those that chose
    it second."""

    NOTHING = "nothing"
    BY_CHOICE = "by_choice"


class Spread(Enum):
    """How far the first weights of output projections, the last layers of attention, MLPs and experts, spread beside all others.

    All but ``ALIKE`` divide by a square root: of twice the number of layers, or of that number.
    """

    ALIKE = "alike"
    BY_DEPTH = "by_depth"
    BY_DEPTH_BUT_EXPERTS = "by_depth_but_experts"
    BY_DEPTH_ONCE = "by_depth_once"


class OptimizerKind(Enum):
    """Optimizers whose updates are not what their names say. MindSpore's ``AdamWeightDecay`` does not correct the bias, so that its first
    update is three times Adam's, at beta2 = 0.999 thirty times."""

    ADAMW_UNCORRECTED = "adamw_uncorrected"
    ADAM_COUPLED = "adam_coupled"


class Counts(Enum):
    """Which choices of experts a load-balancing loss counts: those that the router made, or those that the scores alone would make, without
    the bias of the experts and without groups."""

    AS_ROUTED = "as_routed"
    BY_SCORES = "by_scores"


class Shares(Enum):
    """What the loss of further tokens is divided by, where every token counts alike: its own tokens, or those of the main loss, of which
    there are more."""

    OWN_TOKENS = "own_tokens"
    ALL_TOKENS = "all_tokens"


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
    """In which order the samples of a data set are trained on: as the data set has them, which Megatron's orders by its own seed, shuffled
    by MindFormers' reader, by Megatron's cyclic one, or by MindSpeed-LLM, which shuffles instructions."""

    OF_THE_DATA = "of_the_data"
    SHUFFLED = "shuffled"
    CYCLIC = "cyclic"
    INSTRUCTIONS = "instructions"


class Meaning:
    """A meaning that a reader meets in ``words``; ``numbers`` are the numbers in it that a single setting may hold."""

    __slots__ = ()

    @property
    def words(self) -> Argument:
        """As a report shows it."""
        raise NotImplementedError

    @property
    def numbers(self) -> Sequence[int]:
        """What to try in a setting that takes a number."""
        return ()


@dataclass(frozen=True, slots=True)
class ExpertLayers(Meaning):
    """Which layers have experts: ``runs`` are the numbers of layers in a row that do, or do not; no run where no layer has any."""

    runs: tuple[tuple[bool, int], ...] = ()

    @property
    def sparse(self) -> int:
        """Layers with experts."""
        return sum(count for experts, count in self.runs if experts)

    @property
    def dense(self) -> int:
        """Layers without, beside those with experts."""
        return sum(count for experts, count in self.runs if not experts)

    @property
    def words(self) -> Argument:
        """``3 dense, 58 with experts``."""
        runs = [message("meaning.layers_with_experts" if experts else "meaning.layers_dense", count=count) for experts, count in self.runs]
        return terms(runs) if runs else "none"

    @property
    def numbers(self) -> Sequence[int]:
        """How many of each."""
        return [count for _, count in self.runs]


@dataclass(frozen=True, slots=True)
class Balanced(Meaning):
    """The tokens among which a load-balancing loss counts how often an expert is chosen: those of ``sequences`` together, cut into
    ``parts`` that count apart, or with ``of_step`` those of all ranks and of the micro-batches before in the step.

    ``kind`` is what the framework calls it, which says nothing by itself: the names mean other tokens on the other side.
    """

    sequences: int
    parts: int = 1
    of_step: bool = False
    kind: str = field(default="", compare=False)

    @property
    def words(self) -> Argument:
        """``aux_loss, of 4 sequences together``."""
        if self.of_step:
            return message("meaning.balanced_step", kind=self.kind, count=self.sequences)
        if self.parts > 1:
            return message("meaning.balanced_part", kind=self.kind, count=self.sequences, parts=self.parts)
        return message("meaning.balanced", kind=self.kind, count=self.sequences)


@dataclass(frozen=True, slots=True)
class Dynamic(Meaning):
    """A loss scale that moves, and where it starts."""

    start: float

    @property
    def words(self) -> Argument:
        """``dynamic from 65536``."""
        return message("meaning.dynamic", start=self.start)

    @property
    def numbers(self) -> Sequence[int]:
        """The start, where it is whole."""
        return [int(self.start)] if self.start.is_integer() else []


@dataclass(frozen=True, slots=True)
class RopeWavelengths:
    """Between which wavelengths Llama 3.1's scaling takes hold: an original length over two factors. The defaults are Megatron-LM's."""

    low: object = 1.0
    high: object = 4.0
    length: object = 8192.0


@dataclass(frozen=True, slots=True)
class Scaling(Meaning):
    """How rotary positions are scaled, by what, and of Llama 3.1's scaling within which bounds."""

    kind: str
    factor: object
    bounds: RopeWavelengths = RopeWavelengths()

    @property
    def words(self) -> Argument:
        """``llama3, factor 8``, and bounds that are not the usual ones."""
        factor = _number(self.factor)
        if self.bounds == RopeWavelengths():
            return message("meaning.scaling", kind=self.kind, factor=factor)
        low, high, length = map(_number, (self.bounds.low, self.bounds.high, self.bounds.length))
        return message("meaning.scaling_bounds", kind=self.kind, factor=factor, low=low, high=high, length=length)

    @property
    def numbers(self) -> Sequence[int]:
        """The factor and the bounds, where they are whole."""
        numbers = (self.factor, self.bounds.low, self.bounds.high, self.bounds.length)
        return [int(number) for number in numbers if isinstance(number, int) or (isinstance(number, float) and number.is_integer())]


def _number(value: object) -> str:
    """A number without digits that say nothing, or whatever stands in its place."""
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class OwnRates(Meaning):
    """Groups of parameters that have a schedule of their own."""

    groups: int

    @property
    def words(self) -> Argument:
        """``2 groups with schedules of their own``."""
        return message("meaning.own_rates", count=self.groups)


@dataclass(frozen=True, slots=True)
class Hidden(Meaning):
    """The token id that a model takes out, and of what: no query attends to such a token, the loss leaves it out, or both. Without an id
    nothing is taken out."""

    id: int | None = None
    attention: bool = False
    loss: bool = False

    @property
    def words(self) -> Argument:
        """``0, out of attention and loss``."""
        if self.id is None:
            return "none"
        if self.attention and self.loss:
            return message("meaning.hidden", id=self.id)
        return message("meaning.hidden_attention" if self.attention else "meaning.hidden_loss", id=self.id)

    @property
    def numbers(self) -> Sequence[int]:
        """The id."""
        return [] if self.id is None else [self.id]


@dataclass(frozen=True, slots=True)
class TwoLengths(Meaning):
    """A sequence length that the model and its data do not agree on."""

    model: object
    data: object

    @property
    def words(self) -> Argument:
        """``4096 in the model, 8192 in the data``."""
        return message("meaning.two_lengths", model=str(self.model), data=str(self.data))

    @property
    def numbers(self) -> Sequence[int]:
        """Both lengths."""
        return [length for length in (self.model, self.data) if isinstance(length, int)]


@dataclass(frozen=True, slots=True)
class Released(Meaning):
    """The MindSpore beside a MindFormers, and the one that this was released with, None where that is not known."""

    mindformers: str
    mindspore: str
    wanted: str | None

    @property
    def fits(self) -> bool:
        """Whether nothing is known against the pair."""
        return self.wanted is None or self.mindspore.startswith(self.wanted)

    @property
    def words(self) -> Argument:
        """The version, or what it should be."""
        if self.wanted is None:
            return message("meaning.pair_unknown", mindformers=self.mindformers, mindspore=self.mindspore)
        return self.mindspore if self.fits else message("meaning.pair_wrong", wanted=self.wanted, found=self.mindspore)


@dataclass(frozen=True, slots=True)
class Switched(Meaning):
    """What is on: settings by their names, or ways in which a model is split over ranks."""

    on: tuple[str | ParallelAxis, ...]

    @property
    def words(self) -> Argument:
        """``tensor, pipeline``."""
        return terms(self.on) if self.on else "none"
