"""The session of a Megatron run: the shared one, and what a step gathers before it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from align_hooks.session import Session

if TYPE_CHECKING:
    from align_hooks.torch_side.model import Parameters


@dataclass
class TorchSession(Session):
    """What a Megatron run has built, and what the step under way has gathered: device tensors, until it ends.

    ``losses`` are (sum of losses, tokens that count) a micro-batch, ``objectives`` what was differentiated of each;
    ``micro_batches`` are kept a model chunk, by the stage's own number. ``taken`` are the norms that the framework took of the
    gradients, each with how we take the same. ``random`` are digests of the generators' states at the start of the step and of each
    forward pass.
    """

    parameters: Parameters | None = None
    optimizer: Any = None
    place: Mapping[str, int] = field(default_factory=dict)
    chunks: Sequence[Any] = ()
    model_config: dict[str, Any] = field(default_factory=dict)
    micro_batches: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    losses: list[tuple[Any, Any]] = field(default_factory=list)
    objectives: list[Any] = field(default_factory=list)
    norms: dict[str, Any] = field(default_factory=dict)
    sketches: dict[str, Any] = field(default_factory=dict)
    taken: list[dict[str, Any]] = field(default_factory=list)
    update: dict[str, Any] = field(default_factory=dict)
    random: list[dict[str, str]] = field(default_factory=list)

    def forget_attempt(self) -> None:
        """Drop what a forward-backward gathered: a repeated one replaces it."""
        self.micro_batches.clear()
        self.losses.clear()
        self.objectives.clear()
        del self.random[1:]

    def forget_step(self) -> None:
        """Drop everything that the last step gathered."""
        self.forget_attempt()
        self.norms.clear()
        self.sketches.clear()
        self.taken.clear()
        self.update.clear()
        self.random.clear()
