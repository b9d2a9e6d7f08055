"""What a MindFormers run can say of the step that just ended, as :class:`align_hooks.session.step.Step` asks for it.

The training cell's outputs are read at full precision; MindFormers prints three to six decimals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from align_hooks.ms_side.arrays import to_numpy
from align_hooks.ms_side.model import Parameter, is_per_token, sketches
from align_hooks.ms_side.place import place, summed
from align_hooks.ms_side.session import MsSession
from align_hooks.quantities.local_norms import POINT
from align_hooks.session.step import Batch, LocalNorms

LOSS, OVERFLOW, GLOBAL_NORM = 0, 1, 4
"""Places in the output of MFTrainOneStepCell, 1.3 to 1.9. Its loss scale, place 2, is already the next step's."""


@dataclass(frozen=True, slots=True)
class Update:
    """What the update of a step was made with: the learning rate, or one a group, the loss scale, and the global norm of the gradients
    that were injected, None where none were."""

    rate: float | list[float]
    loss_scale: float
    injected_norm: float | None


@dataclass
class Ended:
    """The step that just ended: ``outputs`` are the training cell's, ``fed`` reads what the model consumed, ``squared`` are the squared
    sums of the gradients once they were read."""

    session: MsSession
    step: int
    outputs: Any
    fed: Callable[[], dict[str, Any]]
    update: Update
    seconds: float
    squared: dict[str, float] = field(default_factory=dict)

    @cached_property
    def consumed(self) -> dict[str, Any]:
        """Arrays ``[rows, sequence]`` by name, read once."""
        return self.fed()

    def batch(self) -> Batch:
        """What the model consumed, and each token's loss where it is kept."""
        session, arrays = self.session, dict(self.consumed)
        losses = session.token_losses.read(arrays["tokens"].shape) if session.token_losses is not None else None
        if losses is not None:
            arrays["token_losses"] = losses
        joined_first = session.sizes.joined_first() if session.sizes is not None else None
        return Batch(arrays, [len(arrays["tokens"])], joined_first=joined_first)

    def local_norms(self) -> LocalNorms | None:
        """The norms that the capturing Cell took; a rank that holds copies alone prints none."""
        reducer, parameters = self.session.reducer, self.session.parameters
        if reducer is None or parameters is None:
            return None
        self.squared = reducer.squared_sums()
        prints = reducer.local or any(parameter.counted for parameter in parameters)
        parts = {name for parameter in parameters for name in parameter.fused.cut}
        return LocalNorms(self.session.settings.choice(POINT), self.squared, self.squared if prints else (), parts, self.taken())

    def gradient_sketches(self) -> dict[str, list[float]] | None:
        """Signed sums of the gradients that the capturing Cell kept."""
        if self.session.reducer is None or self.session.parameters is None:
            return None
        return sketches(counted(self.session))

    def taken(self) -> list[dict[str, Any]]:
        """The global norm that the training cell clipped by, where it is of the gradients whose norms are recorded."""
        session, norm = self.session, self.outputs[GLOBAL_NORM]
        injected = session.injection is not None and self.step in session.injection.steps
        if norm is None or injected or session.settings.choice(POINT) == "local":
            return []
        together = {"first": session.launch.rank, "ranks": 1}
        if session.sizes is not None:
            together = {"first": 0, "ranks": session.launch.world_size}
        return [{"norm": number(norm)} | together]

    def row(self) -> dict[str, Any]:
        """The step's scalars."""
        session, cell = self.session, self.session.train_cell
        clip = float(cell.clip_grad_norm.clip_norm.asnumpy().reshape(())) if cell.use_clip_grad else None
        norm, part = self.global_norm()
        overflow = self.outputs[OVERFLOW]
        return {
            "step": self.step,
            **self.losses(),
            "grad_norm": norm,
            "clip_coefficient": min(1.0, clip / (max(norm, clip) + 1e-6)) if clip and norm is not None else 1.0,
            "learning_rate": self.update.rate,
            "loss_scale": self.update.loss_scale,
            "skipped": bool(number(overflow)) if hasattr(overflow, "asnumpy") else bool(overflow),
            "seconds": self.seconds,
            "random": [session.random],
            "unrecorded_inputs": sorted(session.unrecorded),
            **part,
        }

    def losses(self) -> dict[str, Any]:
        """Loss and objective of the step, the number of its tokens that count, and the samples that were consumed until its end."""
        session, loss = self.session, number(self.outputs[LOSS])
        ranks, rows = session.launch.world_size, len(self.consumed["tokens"])
        tokens = int((self.consumed["loss_mask"] > 0).sum())
        if session.sizes is None:
            samples = rows * ranks
            losses = {"loss": loss, "objective_loss": loss * ranks if summed(session.launch) else loss, "valid_tokens": tokens}
        else:
            samples = session.sizes.rows(rows)
            where = place(session.launch, session.sizes)
            losses = session.sizes.losses(loss, tokens, where, per_token=is_per_token(session.train_cell))
        return losses | {"consumed_samples": samples * (self.step + 1)}

    def global_norm(self) -> tuple[float | None, dict[str, float]]:
        """The global norm, and this rank's squared part of it where gradients are cut, which the reader adds up.

        MindFormers takes none without clipping: then it is ours, of what the optimizer was given.
        """
        session, norm = self.session, self.outputs[GLOBAL_NORM]
        if norm is not None:
            return number(norm), {}
        if session.sizes is not None:
            return None, self.part_of_norm()
        if self.update.injected_norm is not None:
            return self.update.injected_norm, {}
        if session.reducer is not None and session.reducer.norms:
            return sum(session.reducer.squared_sums().values()) ** 0.5, {}
        return None, {}

    def part_of_norm(self) -> dict[str, float]:
        """This rank's squared part of the global norm, where this step has it."""
        if self.update.injected_norm is not None:
            return {"squared": self.update.injected_norm**2}
        if self.session.parameters is None or not self.squared:
            return {}
        names = (name for parameter in self.session.parameters if parameter.counted for name in parameter.fused.pieces)
        return {"squared": sum(self.squared[name] for name in names)}


def counted(session: MsSession) -> list[tuple[Parameter, Any]]:
    """Each parameter that counts, with the buffer that holds its gradient."""
    assert session.parameters is not None and session.reducer is not None
    both = zip(session.parameters, session.reducer.buffers, strict=True)
    return [(parameter, buffer) for parameter, buffer in both if parameter.counted]


def number(tensor: Any) -> float:
    """A tensor of one element."""
    return float(to_numpy(tensor).reshape(-1)[0])
