"""The session of a Megatron run: the session of both sides, the built objects, and what the step under way gathers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from align_hooks.messages import rendered
from align_hooks.process.streams import say
from align_hooks.record.format.missing_batch import Unseen, known
from align_hooks.session import Session
from align_hooks.torch_side.gathered import CurrentStep
from align_hooks.torch_side.objects import Module, Optimizer

if TYPE_CHECKING:
    from align_hooks.torch_side.micro_batch import MicroBatch
    from align_hooks.torch_side.model import Parameters
    from align_hooks.torch_side.probes import ProbePoint
    from align_hooks.torch_side.state import Buffers


@dataclass
class TorchSession(Session):
    """The built objects of a Megatron run, and what the step under way gathers until it ends."""

    parameters: Parameters | None = None
    optimizer: Optimizer = None
    place: Mapping[str, int] = field(default_factory=dict)
    """This rank's index and the size along each parallel axis."""
    chunks: Sequence[Module] = ()
    """The chunks of the model on this pipeline stage."""
    routers: dict[Module, str] = field(default_factory=dict)
    """The modules that choose experts, with their names."""
    probe_points: Sequence[ProbePoint] = ()
    """Where the points of the model are seen that are wanted."""
    buffers: Buffers | None = None
    """What a checkpoint holds of the model beside parameters."""
    under_way: list[tuple[int, MicroBatch]] | None = None
    """The passes of the forward step under way, with the number of their chunk; None between forward steps."""
    said: set[Unseen] = field(default_factory=set)
    """What of a batch was not seen and has been said."""
    digests: bool | None = None
    """Whether the device takes the tokens' digest rightly; None before that was tried."""
    current: CurrentStep = field(default_factory=CurrentStep)

    def see_unseen(self, reasons: Iterable[Unseen]) -> None:
        """Keep what of the step's batch was not seen, for its row, and say what is new in a line, of ranks that are alike from the first:
        only ranks of the last stage see what is done with token losses, and rank 0 may be none of them."""
        unseen = self.current.unseen
        unseen.update(reasons)
        new, self.said = unseen - self.said, self.said | unseen
        if not any(self.place.get(axis, 0) for axis in ("dp", "tp", "cp")):
            for reason in known(reason.value for reason in new):
                say(f"align_hooks: rank {self.launch.rank}: {rendered(reason.words)}", sys.stdout)
