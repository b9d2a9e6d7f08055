"""The session of a MindFormers run: the shared one, and the built objects that hooks hand to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from align_hooks.session import Session

if TYPE_CHECKING:
    from align_hooks.ms_side.feeding import Sizes
    from align_hooks.ms_side.model import Parameters
    from align_hooks.ms_side.reducer import CaptureGradients
    from align_hooks.ms_side.shard_reducer import CaptureShards
    from align_hooks.ms_side.token_losses import CaptureTokenLosses


@dataclass
class MsSession(Session):
    """``train_cell`` is the built MFTrainOneStepCell, ``reducer`` the capturing Cell in it, where one was asked for.

    ``sizes`` are those of a semi-automatic job, whose parameters are known when the cell is compiled; None for another. ``fed`` is how
    many rows a step this rank of it is fed. ``random`` are digests of the generators' states at the start of the step.
    """

    parameters: Parameters | None = None
    model_config: dict[str, Any] = field(default_factory=dict)
    config: Any = None
    train_cell: Any = None
    reducer: CaptureGradients | CaptureShards | None = None
    token_losses: CaptureTokenLosses | None = None
    sizes: Sizes | None = None
    fed: int = 0
    random: dict[str, str] = field(default_factory=dict)
