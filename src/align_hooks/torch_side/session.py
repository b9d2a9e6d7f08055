"""The session of a Megatron run: the session of both sides, and what a step gathers before it is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from align_hooks.names.blocks import Array
from align_hooks.session import Session
from align_hooks.torch_side.objects import Module, Optimizer, Tensor

if TYPE_CHECKING:
    from align_hooks.torch_side.activations import Seam, Watch
    from align_hooks.torch_side.model import Parameters


@dataclass
class TorchSession(Session):
    """The built objects of a Megatron run, and device tensors that the step under way gathers until it ends.

    ``losses`` are (sum of losses, tokens that count) by micro-batch, ``objectives`` the part of each that was differentiated.
    ``micro_batches`` are kept by model chunk, under the stage's own number of the chunk. ``taken`` are the norms that the framework took of
    the gradients, each with our norm of the same gradients. ``rate`` is the learning rate of the update, or each group's; ``update`` are
    its other numbers. ``terms`` are the other terms of the loss, added up over micro-batches. ``routers`` are the modules that choose
    experts, with their names; by these ``counts`` are the tokens that each expert was given so far, ``choices`` the experts of each
    micro-batch's tokens, and ``passes`` the forward passes, with gradients or without. ``seams`` show the points of the model, and
    ``watch`` is what they show in a step that is selected. ``random`` are digests of the generators' states at the start of the step and of
    each forward pass.
    """

    parameters: Parameters | None = None
    optimizer: Optimizer = None
    place: Mapping[str, int] = field(default_factory=dict)
    chunks: Sequence[Module] = ()
    micro_batches: dict[int, list[dict[str, Array]]] = field(default_factory=dict)
    losses: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    objectives: list[Tensor] = field(default_factory=list)
    norms: dict[str, Tensor] = field(default_factory=dict)
    sketches: dict[str, Tensor] = field(default_factory=dict)
    taken: list[dict[str, Tensor | float]] = field(default_factory=list)
    rate: float | list[float] | None = None
    update: dict[str, Tensor | float | None] = field(default_factory=dict)
    terms: dict[str, Tensor] = field(default_factory=dict)
    routers: dict[Module, str] = field(default_factory=dict)
    counts: dict[str, Tensor] = field(default_factory=dict)
    choices: dict[str, list[Tensor]] = field(default_factory=dict)
    passes: Counter[tuple[str, bool]] = field(default_factory=Counter)
    seams: Sequence[Seam] = ()
    watch: Watch | None = None
    random: list[dict[str, str]] = field(default_factory=list)

    def forget_attempt(self) -> None:
        """Drop everything that a forward-backward pass gathered: a repeated pass replaces it."""
        for gathered in (self.micro_batches, self.losses, self.objectives, self.terms, self.counts, self.choices, self.passes):
            gathered.clear()
        if self.watch is not None:
            self.watch.forget()
        del self.random[1:]

    def forget_step(self) -> None:
        """Drop everything that the last step gathered."""
        self.forget_attempt()
        self.rate = None
        for gathered in (self.norms, self.sketches, self.taken, self.update, self.random):
            gathered.clear()
