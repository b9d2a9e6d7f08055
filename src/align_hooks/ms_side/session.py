"""The session of a MindFormers run: the session of both sides, and the built objects that hooks share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from align_hooks.ms_side.objects import Cell, Config
from align_hooks.session import Session

if TYPE_CHECKING:
    from align_hooks.ms_side.choice import Choice
    from align_hooks.ms_side.feeding import Sizes
    from align_hooks.ms_side.model import CellParameters, Model
    from align_hooks.ms_side.points import Point
    from align_hooks.ms_side.pynative.cell_points import CellPoint
    from align_hooks.ms_side.pynative.current import PynativeMicroBatch, PynativeStepValues
    from align_hooks.ms_side.reducer import CaptureGradients, CaptureShards
    from align_hooks.ms_side.sums import GradientSums
    from align_hooks.ms_side.token_losses import CaptureTokenLosses
    from align_hooks.replay.routing import Router


@dataclass
class MsSession(Session):
    """The built objects of a MindFormers run, and the values of the step under way."""

    parameters: CellParameters | None = None
    """None before a semi-automatic job is compiled."""
    model: Model | None = None
    config: Config = None
    data_loader: type | None = None
    """The class of recorded batches."""
    train_cell: Cell = None
    reducer: CaptureGradients | CaptureShards | None = None
    token_losses: CaptureTokenLosses | None = None
    sizes: Sizes | None = None
    """The sizes of a semi-automatic job; None for another job."""
    rank_rows: int = 0
    """Rows a step in this rank's data set, of a semi-automatic job."""
    terms: dict[str, float] = field(default_factory=dict)
    """The terms of a newer model's loss; empty where they are not separate."""
    current: PynativeStepValues | None = None
    """The values of a step of the PyNative trainer; None between steps."""
    place: dict[str, int] = field(default_factory=dict)
    """This process's place in a PyNative job, see :meth:`.feeding.Sizes.place`."""
    groups: tuple[int, ...] = ()
    """The index of the first parameter of each of the PyNative optimizer's groups."""
    gradient_sums: GradientSums | None = None
    routers: dict[str, Router] = field(default_factory=dict)
    """Name of a PyNative model's router to its numbers of experts."""
    indexers: dict[str, Router] = field(default_factory=dict)
    """Name of an indexer of sparse attention to its numbers of positions, and of those that it chooses."""
    router_names: dict[int, str] = field(default_factory=dict)
    """Id of such a router or indexer to its name."""
    cell_points: list[CellPoint] = field(default_factory=list)
    """The points of a PyNative model that are recorded or forced."""
    choices: list[Choice] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    random: dict[str, str] = field(default_factory=dict)
    """Digests of the generators' states at the start of the step."""
    state: dict[str, float | str] = field(default_factory=dict)
    """Counts and digests at the start of the step."""

    @property
    def data_parallel(self) -> tuple[int, int]:
        """This process's data-parallel rank in a PyNative job, and the number of such ranks."""
        return self.place["dp"], self.place["dp_size"]

    def rows_of(self, micro_batch: int) -> slice:
        """Return the rows of a PyNative micro-batch of this rank among those of the job's step."""
        assert self.current is not None
        # a step's rows are in the order micro-batch, data-parallel rank, row, and all micro-batches have as many
        (rank, ranks), rows = self.data_parallel, self.current.micro_batches[micro_batch].rows
        first = (micro_batch * ranks + rank) * rows
        return slice(first, first + rows)

    @property
    def micro_batch(self) -> PynativeMicroBatch | None:
        """The micro-batch under way of the PyNative trainer; None between steps, and before a step's first."""
        return self.current.micro_batches[-1] if self.current is not None and self.current.micro_batches else None
