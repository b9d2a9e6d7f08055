"""The types of a record's JSON, each checked once, where its file is read.

A record may come from a stranger. A value of a calculation has a type; a value for display stands in a ``Table``.
Unknown keys are a later version's and ignored. A key that is null counts as absent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container, Mapping
from functools import cache
from typing import Annotated, TypeAlias, TypeVar

from msgspec import Meta, Raw, Struct, convert
from msgspec.structs import fields

from align_hooks.errors import RecordError
from align_hooks.quantities.registry import SWITCHES
from align_hooks.record.format import layout
from align_hooks.record.format.ending import HowEnded
from align_hooks.record.format.files import QUOTED, TensorFile
from align_hooks.record.format.shard import Shard
from align_hooks.record.format.sketch import PROJECTIONS
from align_hooks.settings import Steps

Json: TypeAlias = object
"""A value of JSON for comparison or display; no code calculates with it."""
Table: TypeAlias = dict[str, Json]
Id: TypeAlias = Annotated[str, Meta(pattern=r"\A[^\W_]{1,64}\Z")]
"""The id of a run."""
Step: TypeAlias = Annotated[int, Meta(ge=0, lt=10**15)]
"""No run has more steps; a directory's name can hold the number."""
Count: TypeAlias = Annotated[int, Meta(ge=-(2**53), le=2**53)]
Size: TypeAlias = Annotated[int, Meta(ge=0)]
RankNumber: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]
Bounds: TypeAlias = Annotated[list[int], Meta(min_length=2, max_length=2)]
Slices: TypeAlias = Annotated[list[Bounds], Meta(min_length=1)]
"""Positions [start, stop) of a sequence that a rank has."""
Rate: TypeAlias = float | list[float]
"""A learning rate, or a rate for each parameter group where they differ."""


class ParameterGroup(Struct, frozen=True):
    """Hyper-parameters that some parameters share, as in the optimizer at the start; None is unknown."""

    parameters: tuple[str, ...]
    learning_rate: float | None = None
    betas: tuple[float, ...] | None = None
    eps: float | None = None
    bias_correction: bool | None = None
    weight_decay: float | None = None


class OptimizerFacts(Struct, frozen=True):
    """The optimizer as it was built, with the parameter groups of all ranks."""

    groups: tuple[ParameterGroup, ...]
    type: str | None = None
    decoupled_weight_decay: bool | None = None
    clip_grad: float | None = None
    loss_scale: float | None = None

    def by_parameter(self) -> dict[str, ParameterGroup]:
        """Return canonical name to group."""
        return {name: group for group in self.groups for name in group.parameters}

    def rates(self, rate: Rate) -> dict[str, float] | None:
        """Return canonical name to a row's learning rate; None where its rates do not match the groups."""
        groups = [group for group in self.groups if group.parameters]
        rates = rate if isinstance(rate, list) else [rate] * len(groups)
        if len(rates) != len(groups):
            return None
        return {name: number for number, group in zip(rates, groups, strict=True) for name in group.parameters}


class Training(Struct, frozen=True):
    """How the run trained."""

    micro_batch_size: Count | None = None
    global_batch_size: Count | None = None
    sequence_length: Json = None
    train_steps: Json = None
    per_token_loss: bool | None = None
    compute_type: str | None = None
    gradients_summed_over_ranks: bool | None = None
    draws: bool | None = None
    """Whether the model draws random numbers."""


class ReplayedSteps(Struct, frozen=True):
    """The run whose gradients, experts or activations were replayed, and the steps of the replay."""

    run: str | None = None
    run_id: str | None = None
    steps: tuple[int, ...] = ()


class DistilledFacts(Struct, frozen=True):
    """The parts of a run that its distilled record (:mod:`.distill`) lacks."""

    left_out: dict[str, str] = {}
    """Quantity to the steps, as text, that the run recorded and this record lacks."""
    batches: dict[str, dict[str, str]] = {}
    """Step of a batch left out to the digests of its arrays."""


OPTIMIZER_STATE = "optimizer state"
"""The name of an override of the optimizer's state on either side."""


class Override(Struct, frozen=True):
    """A property of the run that one of our settings changed."""

    what: str | None = None
    before: Json = None
    after: Json = None
    why: Json = None

    @property
    def loads_optimizer_state(self) -> bool:
        """Whether the optimizer goes on from a recorded state."""
        return self.what == OPTIMIZER_STATE and self.after != "reset"


class Facts(Struct, frozen=True, kw_only=True):
    """``run.json``: the run and its settings; the defaults of a run without the file."""

    format: int | None = None
    run_id: Id | None = None
    segment: str | None = None
    side: str | None = None
    world_size: int | None = None
    created: str | None = None
    settings: dict[str, str | None] = {}
    planned_steps: Step | None = None
    framework: str | None = None
    versions: Table = {}
    model: Table = {}
    padded_vocabulary: Count | None = None
    optimizer: OptimizerFacts | None = None
    training: Training = Training()
    determinism: Table = {}
    layers: Json = None
    classes: Json = None
    arguments: Table | None = None
    environment: Table = {}
    overrides: tuple[Override, ...] = ()
    injected: ReplayedSteps = ReplayedSteps()
    routed: ReplayedSteps = ReplayedSteps()
    taught: ReplayedSteps = ReplayedSteps()
    command: str | None = None
    """The shell command that started the run, without variables; None where unknown."""
    directory: str | None = None
    """The working directory of the command."""
    converted: Json = None
    """The source of a record that no run wrote: a ``log``, ``curves``, or a ``dump`` of a ``tool``."""
    resolution: dict[str, float] = {}
    distilled: DistilledFacts | None = None

    def __post_init__(self) -> None:
        long = next((key for key, value in self.model.items() if isinstance(value, int) and abs(value) > 1 << 1000), None)
        if long is not None:
            raise ValueError(f"model.{long} is larger than any number that a run has")
        for switch in SWITCHES:
            self.asked(switch.name)

    @property
    def is_there(self) -> bool:
        """Whether the run has a ``run.json``."""
        return self.format is not None

    @property
    def are_of_some_steps(self) -> bool:
        """Whether the record has the steps of another tool's curves only."""
        return isinstance(self.converted, dict) and "curves" in self.converted

    def asked(self, kind: str) -> Steps:
        """Return the steps for which a recording setting, by its name, asked."""
        try:
            return Steps.parse(self.settings.get(kind) or "none")
        except ValueError as error:
            raise ValueError(f"settings.{kind}: {error}") from None


class Launched(Struct, frozen=True):
    """A rank's process by its launcher."""

    world_size: int
    rank: int = 0
    job: str = ""
    host: str = ""
    launchers: dict[str, int] = {}
    """Launchers that may restart the process, each with the number of this start."""


class HookCount(Struct, frozen=True):
    """The state and the number of calls of one hook."""

    state: str = ""
    calls: int = 0


class Segment(Struct, frozen=True, rename={"id": "segment"}):
    """One start of a job."""

    id: str
    started: str | None = None
    ended: str | None = None
    recorded: dict[str, int] | None = None
    stop: int | None = None
    """The end of the steps that count, and the last state that counts; None for all."""
    again: tuple[str, ...] = ()
    """Kinds of states that a later segment recorded again at ``stop``."""

    @property
    def rows(self) -> int | None:
        """The number of rows written; None where unknown."""
        return (self.recorded or {}).get("scalars")

    def counts(self, name: str, number: int) -> bool:
        """Whether the entry ``name`` of a row's list is part of the record; ``scalars`` is the row itself."""
        if self.stop is None or number < self.stop:
            return True
        return number == self.stop and layout.is_state(name) and not name.startswith(self.again)


class Manifest(Struct, frozen=True, kw_only=True):
    """The facts of one rank."""

    launch: Launched
    format: int | None = None
    side: str | None = None
    rank: int | None = None
    run_id: Id | None = None
    segment: str = ""
    segments: tuple[Segment, ...] = ()
    started: str | None = None
    ended: str | None = None
    end: HowEnded | None = None
    place: dict[str, int] = {}
    """The rank's index on each axis, ``dp``, and the axis's size, ``dp_size``."""
    parameters: tuple[Shard, ...] = ()
    groups: tuple[ParameterGroup, ...] = ()
    """The optimizer's groups on this rank."""
    first_step: Step = 0
    storage_limitations: tuple[str, ...] = ()
    hooks: dict[str, HookCount] = {}
    recorded: dict[str, int] = {}
    files: dict[str, str] = {}
    deleting: tuple[Step, ...] = ()
    """Steps of an earlier record that this start was to delete."""
    restarts: Count = 0
    """How often the job's launcher restarted the job into this record."""

    def starts(self) -> tuple[Segment, ...]:
        """Return the segments of the rank's record, earliest first."""
        return (*self.segments, Segment(self.segment, self.started, self.ended, self.recorded))

    def size(self, axis: str) -> int:
        """Return the number of ranks along an axis of the layout."""
        return self.place.get(f"{axis}_size", 1)


class ScalarRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step's scalars; None is unknown."""

    step: Step
    loss: float | None
    objective_loss: float | None
    valid_tokens: Count | float | None
    consumed_samples: Json = None
    grad_norm: float | None
    clip_coefficient: float | None
    learning_rate: Rate | None
    loss_scale: float | None = None
    skipped: bool | None
    seconds: float | None = None
    terms: dict[str, float] | None = None
    """The other terms of the loss (:mod:`.terms`) times their coefficients; part of a job's ``objective_loss``."""

    def __post_init__(self) -> None:
        if self.learning_rate == []:
            raise ValueError("learning_rate is of no group")


class RankRow(ScalarRow, frozen=True, kw_only=True):
    """One rank's row; see also :mod:`.random_states`, :mod:`.state` and :mod:`.token_digest`."""

    whole: bool = False
    """Whether the loss is that of all ranks."""
    squared: float | None = None
    """The rank's part of the global norm's square."""
    micro_batches: tuple[tuple[float | None, float | None, float | None], ...] = ()
    """Loss, tokens (None where the loss is a mean) and part of the objective of each."""
    random: tuple[dict[str, str], ...] = ()
    state: dict[str, float | str] = {}
    token_digest: str = ""
    unrecorded_inputs: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    """Words of :mod:`.missing_batch`."""

    def of_job(self) -> ScalarRow:
        """Return the row without the rank's own fields."""
        return ScalarRow(**{name: getattr(self, name) for name in ScalarRow.__struct_fields__})


class SealedRow(RankRow, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A row in the usual form, with all keys of its line; :mod:`.sealed_rows` checks ``random`` and ``state``."""

    consumed_samples: int | float | None = None
    random: Raw = Raw()  # type: ignore[assignment]
    state: Raw = Raw()  # type: ignore[assignment]
    files: dict[str, str]
    rank: int
    segment: str
    digest: str


class Norm(Struct, frozen=True):
    """A global norm by the framework."""

    norm: float
    same: float | None = None
    """This rank's part of the square, summed as the framework does."""
    exact: float | None = None
    """This rank's part of the square, summed by the definition of :mod:`.norms`."""
    first: RankNumber = 0
    """The lowest rank of the norm."""
    ranks: RankNumber = 1
    """The number of ranks of the norm."""

    def __post_init__(self) -> None:
        _refuse_negative({"norm": self.norm, "same": self.same or 0.0, "exact": self.exact or 0.0})


class NormRow(Struct, frozen=True):
    """A row of local norms, with the framework's own norms."""

    squared: dict[str, float]
    """Canonical name to squared sum."""
    taken: tuple[Norm, ...] = ()

    def __post_init__(self) -> None:
        _refuse_negative(self.squared)


class SketchRow(Struct, frozen=True):
    """A row of sketches: canonical name to squared sum and signed sums, of a definition of :mod:`.sketch`."""

    sums: dict[str, Annotated[tuple[float, ...], Meta(min_length=1 + PROJECTIONS, max_length=1 + PROJECTIONS)]]
    definition: Annotated[int, Meta(ge=1)]

    def __post_init__(self) -> None:
        _refuse_negative({name: numbers[0] for name, numbers in self.sums.items()})


LARGEST = 1e300
"""Finite squared sums are smaller, so that a sum of them is finite."""


def _refuse_negative(squares: Mapping[str, float]) -> None:
    """Raise ValueError for a negative square, and for a finite one of :data:`LARGEST` or more."""
    for name, square in squares.items():
        if square < 0 or LARGEST <= square < math.inf:
            raise ValueError(f"{name} is {square:g}, which is no squared sum")


def _refuse_no_positions(slices: Slices | None) -> None:
    """Raise ValueError for slices outside any sequence."""
    if not all(0 <= start < stop < 1 << 31 for start, stop in slices or ()):
        raise ValueError("slices: they are no positions")


class StoredArray(Struct, frozen=True):
    """One array of a batch, with the digests of its numbers (``sha256``) and of its ``file``."""

    dtype: str
    shape: tuple[Size, ...]
    sha256: str
    file: str


class JoinedFirst(Struct, frozen=True):
    """The cut of a batch that the rows of all data-parallel ranks form together."""

    micro_batches: Annotated[int, Meta(ge=1)]
    whole: bool
    """Whether each rank received the full batch."""


class Description(Struct, frozen=True, kw_only=True):
    """``batch.json``, of one rank's batch."""

    rows: tuple[Size, ...]
    """Rows of each micro-batch."""
    arrays: dict[str, StoredArray]
    attention_mask: str | None
    ids: tuple[int, int] | None
    """Lowest and highest id that counts."""
    slices: Slices | None = None
    """Positions of a context-parallel rank; None for all."""
    joined_first: JoinedFirst | None = None
    experts: dict[str, tuple[Count, ...]] = {}
    """Name of a layer's router to the number of this rank's tokens on each expert."""

    def __post_init__(self) -> None:
        if strange := self.arrays.keys() - set(layout.BATCH_ARRAYS):
            raise ValueError(f"arrays: {min(strange)[:QUOTED]} is no array of a batch")
        for name, array in self.arrays.items():
            if len(array.shape) != (4 if name == "attention_mask" else 2):
                raise ValueError(f"arrays.{name}: {array.shape} is no shape of it")
        _refuse_no_positions(self.slices)


class Routed(Struct, frozen=True, kw_only=True):
    """The header of ``routing.safetensors``: the rank's rows of each micro-batch, and its positions."""

    rows: tuple[Size, ...] = ()
    slices: Slices | None = None

    def __post_init__(self) -> None:
        _refuse_no_positions(self.slices)


class Extent(Struct, frozen=True):
    """A rank's part of a point's value."""

    width: Size
    columns: Bounds
    """Columns [start, stop) of the width."""
    slices: Slices | None = None
    """Positions of the sequence; None for all."""
    counted: bool = True
    """False for a copy of another rank's part."""

    def __post_init__(self) -> None:
        _refuse_no_positions(self.slices)
        if not 0 <= self.columns[0] <= self.columns[1] <= self.width < 1 << 40:
            raise ValueError("columns: they are no part of the width")


class ActivationHeader(Struct, frozen=True, kw_only=True):
    """The header of ``activations/sums.safetensors``."""

    rows: tuple[Size, ...] = ()
    """This rank's rows of each micro-batch."""
    length: Annotated[int, Meta(ge=0, lt=1 << 31)] = 0
    """Positions of a full sequence."""
    extents: tuple[Extent, ...] = ()
    extent_of: dict[str, int] = {}
    """Point to an index in ``extents``."""
    scale: Annotated[float, Meta(gt=0)] = 1.0
    """The factor of gradients."""
    by_tokens: bool = False
    """Whether gradients are also divided by the step's valid tokens of all ranks."""
    unseen: tuple[str, ...] = ()
    """Requested points of this rank that no hook observed."""


class OptimizerStateFacts(Struct, frozen=True):
    """``state.json``: the optimizer's count of updates, and moment to dtype where known."""

    updates: Annotated[int, Meta(ge=0, lt=2**53)]
    dtypes: dict[str, str] = {}


Structure = TypeVar("Structure", bound=Struct)


def structured(kind: type[Structure], content: Mapping[str, Json], where: object, *, numbers: Container[str] = ()) -> Structure:
    """Convert the content of a file or a row to a structure; NaN and infinities are allowed below the keys ``numbers``.

    Raises RecordError for a wrong value; the error names ``where``, the file or the row, and the key.
    """
    try:
        known = {key: number(value) if key in numbers else value for key, value in content.items()}
        return convert({key: value for key, value in known.items() if value is not None or key in _required(kind)}, kind)
    except (ValueError, RecursionError, OverflowError) as error:  # a name that is no text is a ValueError, a long integer an OverflowError
        why, _, at = str(error).replace("`", "").partition(" - at $")
        named = f"{at.lstrip('.')}: {why}" if at.lstrip(".") else why
        raise RecordError(f"{where}: {named[:QUOTED]}; copy it again, or record the run again") from None


def in_header(kind: type[Structure], file: TensorFile, of: str, way: str) -> Structure:
    """Return a structure from a file's header; the RecordError names its subject ``of`` and a ``way`` out."""
    try:
        said = {key: json.loads(file.metadata[key]) for key in kind.__struct_fields__ if key in file.metadata}
    except (ValueError, RecursionError, TypeError) as error:
        raise RecordError(f"{file.path}: what its header says of {of} cannot be read ({str(error)[:80]}); {way}") from None
    return structured(kind, said, file.path)


def number(value: Json) -> Json:
    """Replace strict JSON's strings for NaN and infinities by numbers, except in names of parameters."""
    if isinstance(value, list):
        return [number(item) for item in value]
    if isinstance(value, dict):
        return {key: item if key == "parameters" else number(item) for key, item in value.items()}
    return float(value) if isinstance(value, str) and value in ("nan", "inf", "-inf") else value


@cache
def _required(kind: type[Struct]) -> frozenset[str]:
    return frozenset(field.encode_name for field in fields(kind) if field.required)
