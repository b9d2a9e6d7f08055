"""Gradients of a recorded run, injected into another run's optimizer: then differences of the weights are the optimizer's.

Tensors are found by canonical name and read one by one, so that the host never holds all of them.
"""

import math
from collections.abc import Callable
from functools import cached_property

from align_hooks.errors import RecordError, RefusedRun
from align_hooks.names.blocks import Array
from align_hooks.names.fused import Fused
from align_hooks.replay.source import ReplaySource
from align_hooks.replay.weights import Shapes, refuse_unfit


class Injection(ReplaySource, dict=True):
    """The gradients that ``ALIGN_HOOKS_INJECT_GRADIENTS`` names."""

    quantity, words, recorder = "gradients", "gradients", "ALIGN_HOOKS_GRADIENTS"

    @cached_property
    def recorded(self) -> list[int]:
        """The chosen steps with recorded gradients; raises RefusedRun for a skipped step that was named, RecordError where none is left."""
        skipped = {row.step for row in self.run.rows if row.skipped}  # their gradients hold infinities or NaN
        if refused := sorted(filter(self.source.steps.names, skipped)):
            raise RefusedRun(
                f"{self.source}: step {refused[0]} was skipped there, its gradients made no update; leave it out, or choose @all"
            )
        there = [step for step in self.run.gradient_steps() if step not in skipped]
        chosen = [step for step in there if step in self.source.steps]
        if not chosen:
            found = (", ".join(map(str, there)) or "none") + (f"; {len(skipped)} skipped" if skipped else "")
            raise RecordError(f"{self.source} holds no gradients (recorded: {found}); record them with ALIGN_HOOKS_GRADIENTS")
        return chosen

    def check(self, wanted: Shapes, planned: range, *, elsewhere: Callable[[str], bool] = lambda name: False, every: bool = True) -> None:
        """Raise RefusedRun unless the gradients fit the ``planned`` steps (:meth:`ReplaySource.plan`) and the model (:func:`refuse_unfit`).

        ``wanted`` are the trainable tensors on this rank.
        """
        for step in self.plan(planned, every=every):
            tensors = self.at(step)
            given = {name: tensors.shape(name) for name in tensors}
            refuse_unfit(wanted, given, f"gradients of {self.source.path} step {step}", elsewhere=elsewhere)

    def is_finite(self, step: int) -> bool:
        """Return whether the source's gradient norm of ``step`` is finite: with loss scaling it decides whether to update."""
        # not the gradients that this rank holds: every rank must decide the same
        row = self.run.row(step)
        return row is None or row.grad_norm is None or math.isfinite(row.grad_norm)

    def read(self, step: int, fused: Fused) -> Array:
        """Read one parameter's gradient of ``step``, fp32, in its native layout; raises RecordError where its file is incomplete."""
        return fused.join(self.at(step))
