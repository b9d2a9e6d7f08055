"""Teacher forcing: what a recorded run's points put out, and what was handed back to them, in the place of another run's own.

An error of a block is handed on, and behind it everything is wrong. Where each block is given what the other run's was given, and its
output the gradient that the other run's had, the error of each block is its own: every faulty block shows, in one run. Numbers that are
recorded stay the run's own, before they are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from align_hooks.errors import RefusedRun
from align_hooks.names import points
from align_hooks.names.blocks import Array
from align_hooks.names.points import GRADIENT
from align_hooks.replay.handed import ReplaySource

BLOCKS = re.compile(r"model\.embed_tokens|.*\blayers\.\d+")
"""The points that are given unless others are named: what the embedding and each block put out, which is what the next one is given."""
RECORD = "ALIGN_HOOKS_ACTIVATIONS_TENSORS='model.embed_tokens,model.layers.*[0-9]'"


@dataclass
class Teacher(ReplaySource):
    """The run that ``ALIGN_HOOKS_TEACHER`` names, and ``patterns`` of the points that it gives; without any those of :data:`BLOCKS`."""

    quantity, words, recorder = "activations", "activations", "ALIGN_HOOKS_ACTIVATIONS"
    beside = f" and {RECORD}"
    patterns: tuple[str, ...] = ()
    _kept: dict[tuple[int, str], Array] = field(default_factory=dict)

    def forces(self, name: str) -> bool:
        """Whether a point is given."""
        return points.chosen(self.patterns)(name) if self.patterns else BLOCKS.fullmatch(name) is not None

    def check(self, widths: Mapping[str, int], planned: range, rows: int | None, length: int | None, *, every: bool = True) -> None:
        """Refuse, before training, tensors that do not fit the points of this rank, by their whole ``widths``, or the ``planned`` steps of
        so many ``rows`` of ``length`` positions, None where these change.

        See :meth:`ReplaySource.plan` for the steps.
        """
        self.refuse_missing_ranks()
        looked_at = self.plan(planned, every=every)
        if not widths:
            raise RefusedRun(f"ALIGN_HOOKS_TEACHER_POINTS={','.join(self.patterns)}: no point of this model that can be given is called so")
        for step in looked_at:
            self._fits(step, widths, rows, length)

    def _fits(self, step: int, widths: Mapping[str, int], rows: int | None, length: int | None) -> None:
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
                f"{where} has {there[0]} rows of {there[1]} positions, this run {rows} of {length} a step; train on the batches of that run"
            )

    def tensor(self, step: int, name: str) -> Array:
        """The value of a point, or with ``#gradient`` its gradient, fp32 ``[rows, sequence, width]``, the job's whole batch, as that run's
        objective has it: read once a step."""
        if (step, name) not in self._kept:
            self._kept = {key: tensor for key, tensor in self._kept.items() if key[0] == step}
            self._kept[step, name] = self.at(step).tensor(name)
        return self._kept[step, name]
