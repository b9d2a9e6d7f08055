"""What a step gathers before it is written: numbers and tensors that are still on the device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from align_hooks.record.format.missing_batch import Unseen
from align_hooks.torch_side.objects import Tensor

if TYPE_CHECKING:  # a session is there before the framework is imported
    from align_hooks.torch_side.micro_batch import MicroBatch
    from align_hooks.torch_side.model import Parameter
    from align_hooks.torch_side.norms import Norms
    from align_hooks.torch_side.probe_recorder import ProbeRecorder
    from align_hooks.torch_side.sketches import Sketches
    from align_hooks.torch_side.token_digest import TokenDigest


@dataclass(frozen=True, slots=True)
class FrameworkNorm:
    """A norm of gradients that Megatron took."""

    norm: Tensor | float
    """Of all ranks."""
    same: Tensor
    """This rank's part of it, as Megatron took it."""
    of: list[int]
    """Which of the gradients whose norms we took it includes, by their indices."""
    others: Tensor
    """The squared norm, fp64, of everything else in it."""
    first: int
    """The lowest of the ranks whose squares were added up."""
    ranks: int
    """How many these are."""


@dataclass
class ForwardBackward:
    """What one forward-backward pass over all micro-batches gathers."""

    micro_batches: dict[int, list[MicroBatch]] = field(default_factory=dict)
    """By model chunk, under the stage's own number of the chunk."""
    losses: list[tuple[Tensor, Tensor | None]] = field(default_factory=list)
    """What the loss function returned, a micro-batch each: a sum of losses and the tokens that count, or a mean and None."""
    objectives: list[Tensor] = field(default_factory=list)
    """The part of each loss that was differentiated."""
    terms: dict[str, Tensor] = field(default_factory=dict)
    """The other terms of the loss, added up over micro-batches."""
    expert_counts: dict[str, Tensor] = field(default_factory=dict)
    """How many tokens each expert was given so far, by router."""
    chosen_experts: dict[str, list[Tensor]] = field(default_factory=dict)
    """The experts of the tokens of each micro-batch, by router."""
    passes: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """Forward passes of each router, with gradients or without."""
    random: list[dict[str, str]] = field(default_factory=list)
    """Digests of the generators' states at the start of each forward pass."""
    tokens: TokenDigest | None = None
    """The digest of the tokens; None before the first micro-batch."""


@dataclass
class CurrentStep:
    """What the step under way gathers."""

    attempt: ForwardBackward = field(default_factory=ForwardBackward)
    """The forward-backward pass; a repeated one begins anew."""
    norms: Norms | None = None
    """Norms of the gradients; None where they are not wanted, as all that follows."""
    gradients: Sequence[tuple[Parameter, Tensor]] = ()
    """The gradients whose norms were taken."""
    sketches: Sketches | None = None
    """Sketches of the gradients."""
    update_norms: Norms | None = None
    """Norms of the gradients that an update without clipping used."""
    framework_norms: list[FrameworkNorm] = field(default_factory=list)
    """The norms that Megatron took of the gradients."""
    learning_rate: float | list[float] | None = None
    """The rate of the update, or each parameter group's."""
    update: dict[str, Tensor | float | None] = field(default_factory=dict)
    """Other numbers of the update."""
    random: dict[str, str] = field(default_factory=dict)
    """Digests of the generators' states at the start of the step."""
    state: dict[str, Tensor | float | str] = field(default_factory=dict)
    """Numbers that the step started from."""
    buffers: dict[str, Tensor] = field(default_factory=dict)
    """A copy of each of the model's buffers as the step started."""
    unseen: set[Unseen] = field(default_factory=set)
    """What of the batch was not seen."""
    probes: ProbeRecorder | None = None
    """What the points of the model show; None where the step is not selected."""

    def repeat(self) -> None:
        """Begin a forward-backward pass that replaces the last one."""
        self.attempt = ForwardBackward()
        if self.probes is not None:
            self.probes.forget()
