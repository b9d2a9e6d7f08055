"""The types of a record's JSON: ``run.json``, a rank's manifest and a row of scalars, each checked once, where its file is read.

A record may come from a stranger. A value that code calculates with has a type; a value that is only shown stands in a ``Table``. An
unknown key is a later version's and is ignored. A key that is null counts as absent.
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
from align_hooks.record.format.shard import Shard
from align_hooks.record.format.sketch import PROJECTIONS
from align_hooks.record.read.files import QUOTED, TensorFile
from align_hooks.settings import Steps

Json: TypeAlias = object
"""A value of JSON as it was written, to be compared or shown; no code calculates with it."""
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
    """Hyper-parameters that some parameters share, as the optimizer held them at the start; None is unknown."""

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
        """Canonical name to its group."""
        return {name: group for group in self.groups for name in group.parameters}

    def rates(self, rate: Rate) -> dict[str, float] | None:
        """Canonical name to the learning rate of a row; None where the row has one a group, and the groups are others."""
        groups = [group for group in self.groups if group.parameters]
        rates = rate if isinstance(rate, list) else [rate] * len(groups)
        if len(rates) != len(groups):
            return None
        return {name: number for number, group in zip(rates, groups, strict=True) for name in group.parameters}


class Training(Struct, frozen=True):
    """How the run trained. ``draws`` says whether the model draws random numbers."""

    micro_batch_size: Count | None = None
    global_batch_size: Count | None = None
    sequence_length: Json = None
    train_steps: Json = None
    per_token_loss: bool | None = None
    compute_type: str | None = None
    gradients_summed_over_ranks: bool | None = None
    draws: bool | None = None


class ReplayedSteps(Struct, frozen=True):
    """The run that handed on its gradients, or the experts of its tokens, and the steps at which it did."""

    run: str | None = None
    run_id: str | None = None
    steps: tuple[int, ...] = ()


class DistilledFacts(Struct, frozen=True):
    """What a record that was made of another (:mod:`.distill`) lacks of it. ``left_out`` has the steps, as text, of each quantity that the
    run recorded and this record does not hold; ``batches`` has of each batch among them, by its step, the digests of its arrays."""

    left_out: dict[str, str] = {}
    batches: dict[str, dict[str, str]] = {}


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
    """``run.json``: the run and its settings. Of a run without the file nothing is known."""

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
    """The command that started the run, as a shell takes it, without its variables; None where it is unknown."""
    directory: str | None = None
    """Where that command was given."""
    converted: Json = None
    """What the record was made of, where no run wrote it: a ``log``, ``curves``, or a ``dump`` of a ``tool``."""
    resolution: dict[str, float] = {}
    distilled: DistilledFacts | None = None

    def __post_init__(self) -> None:
        long = next((key for key, value in self.model.items() if isinstance(value, int) and abs(value) > 1 << 1000), None)
        if long is not None:
            raise ValueError(f"model.{long} is larger than any number that a run has")
        for kind in (switch.name for switch in SWITCHES):
            self.asked(kind)

    @property
    def is_there(self) -> bool:
        """Whether the run has a ``run.json``."""
        return self.format is not None

    @property
    def are_of_some_steps(self) -> bool:
        """Whether steps between others may be missing: curves are of those that another tool kept."""
        return isinstance(self.converted, dict) and "curves" in self.converted

    def asked(self, kind: str) -> Steps:
        """For which steps the run was asked to record ``kind``, the name of a recording setting."""
        try:
            return Steps.parse(self.settings.get(kind) or "none")
        except ValueError as error:
            raise ValueError(f"settings.{kind}: {error}") from None


class Launched(Struct, frozen=True):
    """A rank's process, as its launcher had it."""

    world_size: int
    rank: int = 0
    job: str = ""
    host: str = ""
    launchers: dict[str, int] = {}
    """The launchers that may start the process again, each with the number of this start."""


class HookCount(Struct, frozen=True):
    """The state of one hook, and how often it was called."""

    state: str = ""
    calls: int = 0


class Segment(Struct, frozen=True, rename={"id": "segment"}):
    """One start of a job. Of an earlier segment the steps before ``stop`` count, and the states of number ``stop``, except the kinds that
    the later segment recorded ``again``."""

    id: str
    started: str | None = None
    ended: str | None = None
    recorded: dict[str, int] | None = None
    stop: int | None = None
    again: tuple[str, ...] = ()

    @property
    def rows(self) -> int | None:
        """How many rows it wrote; None where it did not record that."""
        return (self.recorded or {}).get("scalars")

    def counts(self, name: str, number: int) -> bool:
        """Whether the entry ``name`` of a row's list is part of the record; ``scalars`` is the row itself."""
        if self.stop is None or number < self.stop:
            return True
        return number == self.stop and layout.is_state(name) and not name.startswith(self.again)


class Manifest(Struct, frozen=True, kw_only=True):
    """The facts of one rank. ``place`` is its index on each axis, ``dp``, and the axis's size, ``dp_size``; ``groups`` are the
    optimizer's on this rank; ``deleting`` are steps of an earlier record that its start was to delete."""

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
    parameters: tuple[Shard, ...] = ()
    groups: tuple[ParameterGroup, ...] = ()
    first_step: Step = 0
    storage_limitations: tuple[str, ...] = ()
    hooks: dict[str, HookCount] = {}
    recorded: dict[str, int] = {}
    files: dict[str, str] = {}
    deleting: tuple[Step, ...] = ()
    restarts: Count = 0
    """How often the launcher of the job started it again, and the record was continued or replaced for that."""

    def starts(self) -> tuple[Segment, ...]:
        """The starts of the job that the rank's record is made of, earliest first."""
        return (*self.segments, Segment(self.segment, self.started, self.ended, self.recorded))

    def size(self, axis: str) -> int:
        """How many ranks there are along an axis of the layout."""
        return self.place.get(f"{axis}_size", 1)


class ScalarRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step's scalars; None is unknown. ``terms`` are those of the loss beside the language model's, by :mod:`.terms`, with their
    coefficients; ``objective_loss`` has them in it where they are known."""

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

    def __post_init__(self) -> None:
        if self.learning_rate == []:
            raise ValueError("learning_rate is of no group")


class RankRow(ScalarRow, frozen=True, kw_only=True):
    """One rank's row. ``whole`` says that its loss is that of all ranks, ``squared`` is its part of the global norm's square,
    ``micro_batches`` holds each micro-batch's loss, tokens (None where the loss is a mean already) and part of the objective, ``unseen``
    words of :mod:`.missing_batch`, ``random`` is explained in
    :mod:`.random_states`, ``state`` in :mod:`.state`, ``token_digest`` in :mod:`.token_digest`."""

    whole: bool = False
    squared: float | None = None
    micro_batches: tuple[tuple[float | None, float | None, float | None], ...] = ()
    random: tuple[dict[str, str], ...] = ()
    state: dict[str, float | str] = {}
    token_digest: str = ""
    unrecorded_inputs: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()

    def of_job(self) -> ScalarRow:
        """The row without the fields of this rank alone."""
        return ScalarRow(**{name: getattr(self, name) for name in ScalarRow.__struct_fields__})


class SealedRow(RankRow, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A row as nearly every row is, and what a sealed row has beside it. ``random`` and ``state`` stay text,
    which :mod:`.sealed_rows` holds against their types."""

    consumed_samples: int | float | None = None
    random: Raw = Raw()  # type: ignore[assignment]
    state: Raw = Raw()  # type: ignore[assignment]
    files: dict[str, str]
    rank: int
    segment: str
    digest: str


class Norm(Struct, frozen=True):
    """A global norm that the framework took, and this rank's part of its square, summed in the framework's way (``same``) and in ours
    (``exact``). ``ranks`` is how many ranks' parts make the norm, and ``first`` the lowest of these ranks."""

    norm: float
    same: float | None = None
    exact: float | None = None
    first: RankNumber = 0
    ranks: RankNumber = 1

    def __post_init__(self) -> None:
        _refuse_negative({"norm": self.norm, "same": self.same or 0.0, "exact": self.exact or 0.0})


class NormRow(Struct, frozen=True):
    """A row of local norms: canonical name to squared sum, and the norms that the framework took."""

    squared: dict[str, float]
    taken: tuple[Norm, ...] = ()

    def __post_init__(self) -> None:
        _refuse_negative(self.squared)


class SketchRow(Struct, frozen=True):
    """A row of sketches: canonical name to squared sum and signed sums. ``definition`` is that of :mod:`.sketch`."""

    sums: dict[str, Annotated[tuple[float, ...], Meta(min_length=1 + PROJECTIONS, max_length=1 + PROJECTIONS)]]
    definition: Annotated[int, Meta(ge=1)]

    def __post_init__(self) -> None:
        _refuse_negative({name: numbers[0] for name, numbers in self.sums.items()})


LARGEST = 1e300
"""Finite squared sums are smaller, so that a sum of them is finite."""


def _refuse_negative(squares: Mapping[str, float]) -> None:
    """Raise ValueError for a number that is no sum of squares, or is finite and so large that its sum with others is not."""
    for name, square in squares.items():
        if square < 0 or LARGEST <= square < math.inf:
            raise ValueError(f"{name} is {square:g}, which is no squared sum")


def _refuse_no_positions(slices: Slices | None) -> None:
    """Raise ValueError for slices that are no positions of a sequence."""
    if not all(0 <= start < stop < 1 << 31 for start, stop in slices or ()):
        raise ValueError("slices: they are no positions")


class StoredArray(Struct, frozen=True):
    """One array of a batch. ``sha256`` is of its numbers, ``file`` of its file."""

    dtype: str
    shape: tuple[Size, ...]
    sha256: str
    file: str


class JoinedFirst(Struct, frozen=True):
    """For ranks whose rows are one batch before it is cut: the number of micro-batches, and whether each rank was fed the whole batch."""

    micro_batches: Annotated[int, Meta(ge=1)]
    whole: bool


class Description(Struct, frozen=True, kw_only=True):
    """``batch.json``, of one rank's batch: rows of each micro-batch, lowest and highest id, positions of a context-parallel rank, and by
    the name of a layer's router how many of the tokens that this rank routed each expert was given."""

    rows: tuple[Size, ...]
    arrays: dict[str, StoredArray]
    attention_mask: str | None
    ids: tuple[int, int] | None
    slices: Slices | None = None
    joined_first: JoinedFirst | None = None
    experts: dict[str, tuple[Count, ...]] = {}

    def __post_init__(self) -> None:
        if strange := self.arrays.keys() - set(layout.BATCH_ARRAYS):
            raise ValueError(f"arrays: {min(strange)[:QUOTED]} is no array of a batch")
        for name, array in self.arrays.items():
            if len(array.shape) != (4 if name == "attention_mask" else 2):
                raise ValueError(f"arrays.{name}: {array.shape} is no shape of it")
        _refuse_no_positions(self.slices)


class Routed(Struct, frozen=True, kw_only=True):
    """What the header of ``routing.safetensors`` says of one rank's part: rows of each micro-batch, positions of the sequence."""

    rows: tuple[Size, ...] = ()
    slices: Slices | None = None

    def __post_init__(self) -> None:
        _refuse_no_positions(self.slices)


class Extent(Struct, frozen=True):
    """The part of a point's value that a rank has: columns [start, stop) of its ``width``, positions of the sequence, None for all.
    ``counted`` is False for a copy of what another rank accounts for."""

    width: Size
    columns: Bounds
    slices: Slices | None = None
    counted: bool = True

    def __post_init__(self) -> None:
        _refuse_no_positions(self.slices)
        if not 0 <= self.columns[0] <= self.columns[1] <= self.width < 1 << 40:
            raise ValueError("columns: they are no part of the width")


class ActivationHeader(Struct, frozen=True, kw_only=True):
    """What the header of ``activations/sums.safetensors`` says: rows of each micro-batch on this rank, positions of a whole sequence, the
    ``extents`` that there are and which of them each point has. Gradients are multiplied by ``scale``, and with ``by_tokens`` divided by
    the step's valid tokens on all ranks. ``unseen`` are the points of this rank that were asked for and that no hook saw."""

    rows: tuple[Size, ...] = ()
    length: Annotated[int, Meta(ge=0, lt=1 << 31)] = 0
    extents: tuple[Extent, ...] = ()
    extent_of: dict[str, int] = {}
    scale: Annotated[float, Meta(gt=0)] = 1.0
    by_tokens: bool = False
    unseen: tuple[str, ...] = ()


class OptimizerStateFacts(Struct, frozen=True):
    """``state.json``: how many updates the optimizer counted, and the type in which it keeps each moment, where that is known."""

    updates: Annotated[int, Meta(ge=0, lt=2**53)]
    dtypes: dict[str, str] = {}


Structure = TypeVar("Structure", bound=Struct)


def structured(kind: type[Structure], content: Mapping[str, Json], where: object, *, numbers: Container[str] = ()) -> Structure:
    """The content of a file, or of a row, as a structure; ``numbers`` are the keys below which NaN and the infinities may stand. Raises
    RecordError where a value is wrong; the error names ``where``, the file or the row, and the key."""
    try:
        known = {key: number(value) if key in numbers else value for key, value in content.items()}
        return convert({key: value for key, value in known.items() if value is not None or key in _required(kind)}, kind)
    except (ValueError, RecursionError, OverflowError) as error:  # a name that is no text is a ValueError, a long integer an OverflowError
        why, _, at = str(error).replace("`", "").partition(" - at $")
        named = f"{at.lstrip('.')}: {why}" if at.lstrip(".") else why
        raise RecordError(f"{where}: {named[:QUOTED]}; copy it again, or record the run again") from None


def in_header(kind: type[Structure], file: TensorFile, of: str, way: str) -> Structure:
    """Return what the header of a file says ``of`` its tensors; raises RecordError, with a ``way`` out."""
    try:
        said = {key: json.loads(file.metadata[key]) for key in kind.__struct_fields__ if key in file.metadata}
    except (ValueError, RecursionError, TypeError) as error:
        raise RecordError(f"{file.path}: what its header says of {of} cannot be read ({str(error)[:80]}); {way}") from None
    return structured(kind, said, file.path)


def number(value: Json) -> Json:
    """A value with numbers in place of the strings for NaN and the infinities in strict JSON; names of parameters stay names."""
    if isinstance(value, list):
        return [number(item) for item in value]
    if isinstance(value, dict):
        return {key: item if key == "parameters" else number(item) for key, item in value.items()}
    return float(value) if isinstance(value, str) and value in ("nan", "inf", "-inf") else value


@cache
def _required(kind: type[Struct]) -> frozenset[str]:
    return frozenset(field.encode_name for field in fields(kind) if field.required)
