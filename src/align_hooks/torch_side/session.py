"""The session of a Megatron run: the shared one, and what a step gathers before it is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from align_hooks.session import Session

if TYPE_CHECKING:
    from align_hooks.torch_side.model import Parameters


@dataclass
class TorchSession(Session):
    """``micro_batches``, ``losses`` and ``norms`` belong to the step under way and hold device tensors until it ends."""

    parameters: Parameters | None = None
    optimizer: Any = None
    model_config: dict[str, Any] = field(default_factory=dict)
    micro_batches: list[dict[str, Any]] = field(default_factory=list)
    losses: list[tuple[Any, Any]] = field(default_factory=list)
    norms: dict[str, Any] = field(default_factory=dict)
    update: dict[str, Any] = field(default_factory=dict)

    def forget_attempt(self) -> None:
        """Drop what a forward-backward gathered: a repeated one replaces it."""
        self.micro_batches.clear()
        self.losses.clear()
