"""The types of a record's ``run.json`` and manifests, each checked once, where its file is read.

A record may come from a stranger. A value of a calculation has a type; a value for display stands in a ``Table``.
Unknown keys are a later version's and ignored. A key that is null counts as absent.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from align_hooks.quantities.optimizer_state import MOMENTS
from align_hooks.quantities.registry import SWITCHES
from align_hooks.record.format import layout
from align_hooks.record.format.ending import HowEnded
from align_hooks.record.format.shard import Shard
from align_hooks.settings import Steps

Json: TypeAlias = object
"""A value of JSON for comparison or display; no code calculates with it."""
Table: TypeAlias = dict[str, Json]
Id: TypeAlias = Annotated[str, Meta(pattern=r"\A[^\W_]{1,64}\Z")]
"""The id of a run."""
Step: TypeAlias = Annotated[int, Meta(ge=0, lt=10**15)]
"""No run has more steps; a directory's name can hold the number."""
Count: TypeAlias = Annotated[int, Meta(ge=-(2**53), le=2**53)]
Rate: TypeAlias = float | list[float]
"""A learning rate, or a rate for each parameter group where they differ."""


class MuonMatrix(Struct, frozen=True):
    """A matrix that Muon orthogonalises: tensors one below the other, in blocks each by itself."""

    parameters: tuple[str, ...]
    blocks: Count = 1
    """The number of equal parts along ``axis``."""
    axis: Count = 0


class ParameterGroup(Struct, frozen=True):
    """Hyper-parameters that some parameters share, as in the optimizer at the start; None is unknown."""

    parameters: tuple[str, ...]
    learning_rate: float | None = None
    betas: tuple[float, ...] | None = None
    eps: float | None = None
    bias_correction: bool | None = None
    weight_decay: float | None = None
    optimizer: str | None = None
    """The class that updates the group; the optimizer's own where None."""
    moments: tuple[str, ...] | None = None
    """The moments that are recorded of its parameters; Adam's where None."""
    momentum: float | None = None
    dampening: float | None = None
    """Muon's momentum becomes momentum · itself + (1 - dampening) · gradient."""
    nesterov: bool | None = None
    coefficients: tuple[tuple[float, float, float], ...] | None = None
    """Of each step of the Newton-Schulz iteration."""
    scale_mode: str | None = None
    """How the scale of an update follows from the shape of its matrix."""
    extra_scale_factor: float | None = None
    products: str | None = None
    """The type in which the iteration multiplies matrices."""
    weight_decay_method: str | None = None
    matrices: tuple[MuonMatrix, ...] | None = None

    def keeps(self, moment: str) -> bool:
        """Return whether a moment of its parameters is recorded."""
        return moment in (MOMENTS if self.moments is None else self.moments)


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


BESIDE_FORMULA = ("qk_clip",)
"""Arguments of Megatron-LM with which weights move by more than the optimizer's formula."""
CLIPPED_APART = "mtp_detach_heads"
"""Its argument with which layers that predict further tokens are clipped by a norm of their own."""


class MatrixProducts(Struct, frozen=True):
    """The format to which the factors of matrix products are rounded."""

    format: str = ""
    """Megatron-LM's name, such as ``hybrid`` for E4M3 and, of gradients, E5M2; empty for the compute type."""
    recipe: str = ""
    """How factors are scaled, such as ``delayed``."""
    weight_gradients: bool = True
    """Whether products that make gradients of weights have it too."""
    exempt_layers: tuple[int, int] = (0, 0)
    """Layers at either end whose products have the compute type."""
    attention: bool = False
    """Whether products of queries, keys and values have it."""
    output_layer: bool = False
    parameters: bool = False
    """Whether the model's own weights are kept in it."""

    def __str__(self) -> str:
        flags = {
            "--no-fp8-wgrad": not self.weight_gradients,
            f"--first-last-layers-bf16 {'+'.join(map(str, self.exempt_layers))}": any(self.exempt_layers),
            "--fp8-dot-product-attention": self.attention,
            "--fp8-output-proj": self.output_layer,
            "--param-gather": self.parameters,
        }
        return " ".join(filter(None, (self.format, self.recipe, *(flag for flag, said in flags.items() if said))))


class Training(Struct, frozen=True):
    """How the run trained."""

    micro_batch_size: Count | None = None
    global_batch_size: Count | None = None
    sequence_length: Json = None
    train_steps: Json = None
    per_token_loss: bool | None = None
    mean_over_sequence: bool | None = None
    """Whether a mean of losses is over all context-parallel ranks of a sequence, and not over each rank's own tokens."""
    compute_type: str | None = None
    """Of everything but matrix products with a format of their own."""
    products: MatrixProducts | None = None
    gradients_summed_over_ranks: bool | None = None
    draws: bool | None = None
    """Whether the model draws random numbers."""

    @property
    def precision(self) -> str:
        """Return the compute type with the format of products, ``bfloat16 (hybrid delayed)``; empty where not on record."""
        of_products = f"({self.products})" if self.products and self.products.format else ""
        return " ".join(filter(None, (self.compute_type, of_products)))


class ReplayedSteps(Struct, frozen=True):
    """The run whose gradients, experts or activations were replayed, and the steps of the replay."""

    run: str | None = None
    run_id: str | None = None
    steps: tuple[int, ...] = ()


class DistilledFacts(Struct, frozen=True):
    """The parts of a run that its distilled record (:mod:`.record.distill`) lacks."""

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
    trainer: str | None = None
    """The framework's trainer where it has several and this is not the usual one: ``PyNative`` of MindFormers."""
    versions: Table = {}
    commits: Table = {}
    """Module to the commit of the sources that it was imported from; only of checkouts, and of what was installed from a commit."""
    device: str | None = None
    """The accelerator, or processor, of rank 0 by name; None where unknown."""
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
    forced: ReplayedSteps = ReplayedSteps()
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
