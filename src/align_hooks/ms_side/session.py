"""The session of a MindFormers run: the session of both sides, and the built objects that hooks hand to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from align_hooks.ms_side.objects import Cell, Config
from align_hooks.session import Session

if TYPE_CHECKING:
    from align_hooks.ms_side.choice import Choice
    from align_hooks.ms_side.feeding import Sizes
    from align_hooks.ms_side.model import Model, Parameters
    from align_hooks.ms_side.points import Point
    from align_hooks.ms_side.reducer import CaptureGradients
    from align_hooks.ms_side.shard_reducer import CaptureShards
    from align_hooks.ms_side.token_losses import CaptureTokenLosses


@dataclass
class MsSession(Session):
    """``train_cell`` is the built MFTrainOneStepCell and ``model`` the model in it, ``reducer`` the capturing Cell, None where nothing is
    captured. ``data_loader`` is the class of recorded batches, and ``config`` what the Trainer builds everything from.

    ``sizes`` are those of a semi-automatic job, whose parameters are known once the cell is compiled; None for another job. ``fed`` is the
    number of rows that this rank of such a job is fed per step. ``terms`` are those of a newer model's loss in the step that ends,
    empty where they are not told apart.
    ``choices`` are those of the routers, and ``points`` those of the model, once they are compiled in. ``random`` are digests of the
    generators' states at the start of the step, and ``state`` is what else it starts from."""

    parameters: Parameters | None = None
    model: Model | None = None
    config: Config = None
    data_loader: type | None = None
    train_cell: Cell = None
    reducer: CaptureGradients | CaptureShards | None = None
    token_losses: CaptureTokenLosses | None = None
    sizes: Sizes | None = None
    fed: int = 0
    terms: dict[str, float] = field(default_factory=dict)
    choices: list[Choice] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    random: dict[str, str] = field(default_factory=dict)
    state: dict[str, float | str] = field(default_factory=dict)
