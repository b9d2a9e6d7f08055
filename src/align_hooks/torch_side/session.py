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
    buffers: Buffers | None = None
    """The model's persistent buffers; None before the first step."""
    under_way: list[tuple[int, MicroBatch]] | None = None
    """The passes of the forward step under way, with the number of their chunk; None between forward steps."""
    said: set[Unseen] = field(default_factory=set)
    """Reasons for missing parts of a batch that have been printed."""
    digests: bool | None = None
    """Whether the device computes the tokens' digest correctly; None before the first test."""
    current: CurrentStep = field(default_factory=CurrentStep)

    def see_unseen(self, reasons: Iterable[Unseen]) -> None:
        """Keep why parts of the step's batch are missing, for its row, and print new reasons."""
        unseen = self.current.unseen
        unseen.update(reasons)
        new, self.said = unseen - self.said, self.said | unseen
        # one of equal ranks prints: only the last stage sees what becomes of token losses, and rank 0 may not be in it
        if not any(self.place.get(axis, 0) for axis in ("dp", "tp", "cp")):
            for reason in known(reason.value for reason in new):
                say(f"align_hooks: rank {self.launch.rank}: {rendered(reason.words)}", sys.stdout)
