"""Gradients of a recorded run, handed to another run's optimizer.

With equal gradients going in, whatever differs in the weights that come out is the optimizer's doing. Tensors are found
by canonical name, never by position, and are read one by one: a model's gradients are never on the host at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from align_hooks.errors import RecordError, RefusedRun
from align_hooks.names.blocks import Array
from align_hooks.names.fused import Fused
from align_hooks.replay.handed import ReplaySource
from align_hooks.replay.unfit import refuse_unfit


@dataclass
class Injection(ReplaySource):
    """The gradients that ``ALIGN_HOOKS_INJECT_GRADIENTS`` names. ``steps`` are those to inject at, known after :meth:`check`."""

    quantity, words, recorder = "gradients", "gradients", "ALIGN_HOOKS_GRADIENTS"

    @cached_property
    def recorded(self) -> list[int]:
        """The chosen steps whose gradients are recorded and made an update: those of a skipped step hold infinities or NaN.

        Raises RefusedRun where a skipped step was named, RecordError where no step is left.
        """
        skipped = {row.step for row in self.run.rows if row.skipped}
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

    def check(
        self,
        wanted: Mapping[str, tuple[int, ...]],
        planned: range,
        *,
        elsewhere: Callable[[str], bool] = lambda name: False,
        every: bool = True,
    ) -> None:
        """Refuse, before training, gradients that do not fit the model or the ``planned`` steps.

        ``wanted`` is canonical name to whole shape of every trainable piece that this rank holds any of, ``elsewhere`` says of
        another name whether another rank of this job does. In steps that are not injected the run's own gradients stay; see
        :meth:`ReplaySource.plan`.
        """
        for step in self.plan(planned, every=every):
            tensors = self.at(step)
            given = {name: tensors.shape(name) for name in tensors}
            refuse_unfit(wanted, given, f"gradients of {self.source.path} step {step}", elsewhere=elsewhere)

    def is_finite(self, step: int) -> bool:
        """Whether the source's gradients of ``step`` are finite, by the norm that it took of them: with loss scaling that, and not the
        run's own overflow, decides over the update. Every rank finds the same, whatever part of the gradients it holds.
        """
        row = self.run.row(step)
        return row is None or row.grad_norm is None or math.isfinite(row.grad_norm)

    def read(self, step: int, fused: Fused) -> Array:
        """One parameter's gradient of ``step``, fp32, in its native layout; raises RecordError where its file is not whole."""
        return fused.join(self.at(step))
