"""The session of a Megatron run: the session of both sides, and what a step gathers before it is written."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from align_hooks.messages import rendered
from align_hooks.process.streams import say
from align_hooks.record.unseen import Unseen, known
from align_hooks.session import Session
from align_hooks.torch_side.objects import Module, Optimizer, Tensor

if TYPE_CHECKING:
    from align_hooks.torch_side.activations import Seam, Watch
    from align_hooks.torch_side.hooks.norm import Taken
    from align_hooks.torch_side.micro_batch import MicroBatch
    from align_hooks.torch_side.model import Parameter, Parameters
    from align_hooks.torch_side.norms import Norms
    from align_hooks.torch_side.sketches import Sketches
    from align_hooks.torch_side.state import Buffers
    from align_hooks.torch_side.token_digest import TokenDigest


@dataclass
class TorchSession(Session):
    """The built objects of a Megatron run, and device tensors that the step under way gathers until it ends.

    ``losses`` are what the loss function returned by micro-batch: a sum of losses and the tokens that count, or a mean and None.
    ``objectives`` are the part of each that was differentiated. ``micro_batches`` are kept by model chunk, under the stage's own number of
    the chunk; ``under_way`` are the passes of the forward step under way, with that number, None between forward steps. ``unseen`` is what
    of the step's batch was not seen, ``told`` what of that was printed. ``norms`` and ``sketches`` are those of the
    gradients, ``normed`` the gradients themselves, ``total`` the norms of those that an update without clipping used. ``taken`` are the
    norms that the framework took of the gradients, each with those that it took it of. ``rate`` is the learning rate of the update, or each
    group's; ``update`` are its other numbers. ``terms`` are the other terms of the loss, added up over micro-batches. ``routers`` are the
    modules that choose experts, with their names; by these ``counts`` are the tokens that each expert was given so far, ``choices`` the
    experts of each micro-batch's tokens, and ``passes`` the forward passes, with gradients or without. ``seams`` show the points of the
    model, and ``watch`` is what they show in a step that is selected. ``random`` are digests of the generators' states at the start of the
    step and of each forward pass, ``tokens`` is that of what it trains on, and ``digests`` whether the
    device takes it rightly, None before that was tried. ``state`` are the numbers that the step started from,
    ``buffers`` what a checkpoint holds of the model beside parameters, and ``moved`` a copy of each of these as the step started.
    """

    parameters: Parameters | None = None
    optimizer: Optimizer = None
    place: Mapping[str, int] = field(default_factory=dict)
    chunks: Sequence[Module] = ()
    micro_batches: dict[int, list[MicroBatch]] = field(default_factory=dict)
    under_way: list[tuple[int, MicroBatch]] | None = None
    unseen: set[Unseen] = field(default_factory=set)
    told: set[Unseen] = field(default_factory=set)
    losses: list[tuple[Tensor, Tensor | None]] = field(default_factory=list)
    objectives: list[Tensor] = field(default_factory=list)
    norms: Norms | None = None
    normed: Sequence[tuple[Parameter, Tensor]] = ()
    sketches: Sketches | None = None
    total: Norms | None = None
    taken: list[Taken] = field(default_factory=list)
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
    tokens: TokenDigest | None = None
    digests: bool | None = None
    state: dict[str, Tensor | float | str] = field(default_factory=dict)
    buffers: Buffers | None = None
    moved: dict[str, Tensor] = field(default_factory=dict)

    def forget_attempt(self) -> None:
        """Drop everything that a forward-backward pass gathered: a repeated pass replaces it."""
        for gathered in (self.micro_batches, self.losses, self.objectives, self.terms, self.counts, self.choices, self.passes):
            gathered.clear()
        if self.watch is not None:
            self.watch.forget()
        del self.random[1:]
        self.tokens = None

    def forget_step(self) -> None:
        """Drop everything that the last step gathered."""
        self.forget_attempt()
        self.rate = self.norms = self.sketches = self.total = None
        self.normed = ()
        for gathered in (self.taken, self.update, self.random, self.state, self.moved, self.unseen):
            gathered.clear()

    def see_unseen(self, reasons: Iterable[Unseen]) -> None:
        """Keep what of the step's batch was not seen, for its row, and say what is new in a line, of ranks that are alike from the first:
        only ranks of the last stage see what is done with token losses, and rank 0 may be none of them."""
        self.unseen.update(reasons)
        new, self.told = self.unseen - self.told, self.told | self.unseen
        if not any(self.place.get(axis, 0) for axis in ("dp", "tp", "cp")):
            for reason in known(reason.value for reason in new):
                say(f"align_hooks: rank {self.launch.rank}: {rendered(reason.words)}", sys.stdout)
