"""Teacher forcing: activations and their gradients of a recorded run, in the place of another run's own.

As each block gets the inputs and output gradients of the recorded run, its errors are not passed on: one run shows every faulty block.
What is recorded are the run's own values, before they are replaced.
"""

import re
from collections.abc import Mapping

from align_hooks.errors import RefusedRun
from align_hooks.names import points
from align_hooks.names.blocks import Array
from align_hooks.names.points import GRADIENT
from align_hooks.replay.source import ReplaySource

BLOCKS = re.compile(r"model\.embed_tokens|.*\blayers\.\d+")
"""The points that are forced by default: the outputs of the embedding and of each block."""
RECORD = "ALIGN_HOOKS_ACTIVATIONS_TENSORS='model.embed_tokens,model.layers.*[0-9]'"


class Teacher(ReplaySource):
    """The activations that ``ALIGN_HOOKS_TEACHER`` names."""

    quantity, words, recorder = "activations", "activations", "ALIGN_HOOKS_ACTIVATIONS"
    beside = f" and {RECORD}"
    patterns: tuple[str, ...] = ()
    """Of the points to force; without any :data:`BLOCKS`."""

    def forces(self, name: str) -> bool:
        """Return whether a point is forced."""
        return points.chosen(self.patterns)(name) if self.patterns else BLOCKS.fullmatch(name) is not None

    def check(self, widths: Mapping[str, int], planned: range, rows: int | None, length: int | None, *, every: bool = True) -> None:
        """Raise RefusedRun unless the tensors fit this rank's points and the ``planned`` steps (:meth:`ReplaySource.plan`).

        ``widths`` is point to global width. A step has ``rows`` rows of ``length`` positions; None where these change.
        """
        self.refuse_missing_ranks()
        checked = self.plan(planned, every=every)
        if not widths:
            raise RefusedRun(f"ALIGN_HOOKS_TEACHER_POINTS={','.join(self.patterns)}: no point of this model that can be given is called so")
        for step in checked:
            recorded, where = self.at(step), f"{self.source}: step {step}"
            for name, width in widths.items():
                for each in (name, name + GRADIENT):
                    if each not in recorded.names or not recorded.has_tensor(each):
                        raise RefusedRun(f"{where} keeps no whole tensor of {each}; record it with {RECORD}")
                if recorded.width(name) != width:
                    raise RefusedRun(f"{where}: {name} is {recorded.width(name)} wide, here {width}; take a run of this model")
            there = recorded.size
            if (rows, length) != (None, None) and there != (rows, length):
                raise RefusedRun(
                    f"{where} has {there[0]} rows of {there[1]} positions, this run {rows} of {length} a step; "
                    f"train on the batches of that run"
                )

    def tensor(self, step: int, name: str) -> Array:
        """Read the value of a point, or with ``#gradient`` its gradient: fp32 ``[rows, sequence, width]`` of the global batch."""
        recorded = self.at(step)
        if name not in self._read:
            self._read[name] = recorded.tensor(name)
        return self._read[name]
