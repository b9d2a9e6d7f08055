"""The session of a Megatron run: the session of both sides, the built objects, and what the step under way gathers on the device."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from align_hooks.messages import rendered
from align_hooks.process.streams import say
from align_hooks.record.format.missing_batch import MissingBatchReason, known
from align_hooks.session import Session
from align_hooks.torch_side.objects import Module, Optimizer, Scheduler, Tensor

if TYPE_CHECKING:  # a session is there before the framework is imported
    from align_hooks.torch_side.micro_batch import MicroBatch
    from align_hooks.torch_side.model import Parameter, Parameters
    from align_hooks.torch_side.norms import Norms
    from align_hooks.torch_side.probe_recorder import ProbeRecorder
    from align_hooks.torch_side.probes import ProbePoint
    from align_hooks.torch_side.sketches import Sketches
    from align_hooks.torch_side.state import States
    from align_hooks.torch_side.token_digest import TokenDigest


@dataclass(frozen=True, slots=True)
class FrameworkNorm:
    """A norm of gradients that Megatron computed."""

    norm: Tensor | float
    """Over all ranks."""
    same: Tensor
    """This rank's part, as Megatron computed it."""
    of: list[int]
    """Indices of the included gradients among those whose norms we computed."""
    others: Tensor
    """The squared norm of all other included gradients, fp64."""
    first: int
    """The lowest of the ranks whose squares were added up."""
    ranks: int
    """The number of these ranks."""
    tensors: frozenset[tuple[int, int]]
    """Address and number of elements of each included gradient."""

    def repeats(self, other: FrameworkNorm) -> bool:
        """Return whether a norm is of the same gradients."""
        return (self.first, self.ranks, self.tensors) == (other.first, other.ranks, other.tensors)


@dataclass
class ForwardBackward:
    """The gathered values of one forward-backward pass over all micro-batches."""

    micro_batches: dict[int, list[MicroBatch]] = field(default_factory=dict)
    """By model chunk, under the stage's own number of the chunk."""
    losses: list[tuple[Tensor, Tensor | None]] = field(default_factory=list)
    """The loss function's results, a micro-batch each: a sum of losses and the number of counted tokens, or a mean and None."""
    sums: dict[int, Tensor] = field(default_factory=dict)
    """Index of a loss to what its loss function summed over context-parallel ranks, ``[2, elements]``, before and after."""
    objectives: list[Tensor] = field(default_factory=list)
    """The part of each loss that was differentiated."""
    terms: dict[str, Tensor] = field(default_factory=dict)
    """The other terms of the loss, summed over micro-batches."""
    expert_counts: dict[str, Tensor] = field(default_factory=dict)
    """Router name to the number of each expert's tokens so far."""
    chosen_experts: dict[str, list[Tensor]] = field(default_factory=dict)
    """Router name to the experts of each micro-batch's tokens."""
    passes: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """The number of forward passes by router, with gradients or without."""
    random: list[States] = field(default_factory=list)
    """The generators' states at the start of each forward pass."""
    calls: int = 0
    """The number of calls of a schedule, in a loop that is not Megatron-LM's."""
    tokens: TokenDigest | None = None
    """The digest of the tokens; None before the first micro-batch."""


@dataclass
class CurrentStep:
    """The gathered values of the step under way; a value that is not wanted stays None or empty."""

    attempt: ForwardBackward = field(default_factory=ForwardBackward)
    norms: Norms | None = None
    """Norms of the gradients."""
    computed: Norms | None = None
    """Norms of the weights that the step computes with; None where no other rank has copies."""
    gradients: Sequence[tuple[Parameter, Tensor]] = ()
    """The gradients of ``norms``."""
    sketches: Sketches | None = None
    update_norms: Norms | None = None
    """Norms of the gradients that an update without clipping used."""
    framework_norms: list[FrameworkNorm] = field(default_factory=list)
    learning_rate: float | list[float] | None = None
    """The rate of the update, or each parameter group's."""
    update: dict[str, Tensor | float | None] = field(default_factory=dict)
    """Other numbers of the update."""
    random: Mapping[str, str] = field(default_factory=dict)
    """Digests of Python's and numpy's generators' states at the start of the step."""
    state: dict[str, Tensor | float | str] = field(default_factory=dict)
    """Counts at the start of the step."""
    buffers: dict[str, Tensor] = field(default_factory=dict)
    """A copy of each of the model's buffers at the start of the step."""
    unseen: set[MissingBatchReason] = field(default_factory=set)
    """Why parts of the batch were not seen."""
    started: float = 0.0
    """When the step began, in seconds of ``time.perf_counter``."""
    probes: ProbeRecorder | None = None
    in_z_loss: bool = False
    """Whether a router adds its z-loss."""

    def let_go(self) -> None:
        """Let go of everything that a row of scalars does not need beside the numbers on the host."""
        tokens = self.attempt.tokens
        self.attempt = ForwardBackward(random=self.attempt.random, tokens=tokens)
        if tokens is not None:
            tokens.of_rows = []
        self.norms = self.computed = self.sketches = self.probes = None
        self.buffers, self.gradients, self.framework_norms = {}, (), []

    def repeat(self) -> None:
        """Begin a forward-backward pass that replaces the last pass."""
        self.attempt = ForwardBackward()
        if self.probes is not None:
            self.probes.forget()


@dataclass(eq=False)
class BuiltModel:
    """A model and its optimizer, built by a loop that is not Megatron-LM's, and the steps that it made."""

    chunks: tuple[Module, ...]
    """The chunks of the model on this pipeline stage, in their wrappers."""
    optimizer: Optimizer
    scheduler: Scheduler = None
    """None where the loop has none of megatron.core."""
    fed: Sequence[Iterator[object]] = ()
    """The iterators over recorded micro-batches, one for each chunk; none before the first step, and where none are replayed."""
    made: int = 0
    """The number of steps that ended."""


@dataclass
class TorchSession(Session):
    """The built objects of a Megatron run, and the values of the step under way."""

    parameters: Parameters | None = None
    optimizer: Optimizer = None
    place: Mapping[str, int] = field(default_factory=dict)
    """This rank's index and the size along each parallel axis."""
    chunks: Sequence[Module] = ()
    """The chunks of the model on this pipeline stage."""
    routers: dict[Module, str] = field(default_factory=dict)
    """The modules that choose experts, with their names."""
    probe_points: Sequence[ProbePoint] = ()
    """The probe points of recorded and forced points."""
    buffers: list[tuple[str, Module, str]] | None = None
    """The model's persistent buffers by name, each with its module and its key there; None before the first step."""
    leaves: Sequence[Optimizer] = ()
    """The optimizers that hold parameters on this rank."""
    scaled: Sequence[tuple[str, Module]] = ()
    """The modules with scales of FP8 that a step carries to the next, with their names."""
    under_way: list[tuple[int, MicroBatch]] | None = None
    """The passes of the forward step under way, with the number of their chunk; None between forward steps."""
    packed: bool = False
    """Whether the forward pass under way is of packed samples, whose rows lie behind each other in one row."""
    said: set[MissingBatchReason] = field(default_factory=set)
    """Reasons for missing parts of a batch that have been printed."""
    digests: bool | None = None
    """Whether the device computes the tokens' digest correctly; None before the first test."""
    current: CurrentStep = field(default_factory=CurrentStep)
    built: list[BuiltModel] = field(default_factory=list)
    """What a loop that is not Megatron-LM's may train."""
    own_loop: BuiltModel | None = None
    """That of ``built`` which is recorded; None before its first step, and in Megatron-LM's own loop."""

    def see_packed(self, packed: bool) -> None:
        """Note whether the forward pass that begins is of packed samples."""
        self.packed = packed
        if self.current.probes is not None:
            self.current.probes.packed = packed

    def see_unseen(self, reasons: Iterable[MissingBatchReason]) -> None:
        """Keep why parts of the step's batch are missing, for its row, and print new reasons."""
        unseen = self.current.unseen
        unseen.update(reasons)
        new, self.said = unseen - self.said, self.said | unseen
        # one of equal ranks prints: only the last stage sees what becomes of token losses, and rank 0 may not be in it
        if not any(self.place.get(axis, 0) for axis in ("dp", "tp", "cp")):
            for reason in known(reason.value for reason in new):
                say(f"align_hooks: rank {self.launch.rank}: {rendered(reason.words)}", sys.stdout)
