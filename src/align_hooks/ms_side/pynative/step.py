"""The PyNative step that just ended, as a :class:`align_hooks.session.step.Step`."""

from collections.abc import Callable, Iterable
from functools import cached_property

import mindspore
import numpy as np
from mindspore.graph.api import _no_grad
from msgspec import Struct

from align_hooks.ms_side.arrays import local, to_numpy
from align_hooks.ms_side.hooks.step import of_start
from align_hooks.ms_side.objects import Tensor
from align_hooks.ms_side.pynative.cell_recorder import CellRecorder
from align_hooks.ms_side.pynative.current import PynativeStepValues, token_mean
from align_hooks.ms_side.pynative.sparse import chosen
from align_hooks.ms_side.session import MsSession
from align_hooks.names.blocks import Array
from align_hooks.quantities.local_norms import POINT
from align_hooks.record.format.token_digest import digest
from align_hooks.record.write.step_files import StepActivations, StepBatch, StepChoices
from align_hooks.session.step import LocalNorms

LOSS, NORM = "loss", "norm"


class PynativeStep(Struct, frozen=True, dict=True):
    """The step that just ended."""

    session: MsSession
    step: int
    current: PynativeStepValues
    loss: Tensor
    """The mean of the micro-batches' means, without the terms that differentiate themselves."""
    seconds: float
    skipped: bool
    consumed: int
    """Samples until the step's end; 0 where the trainer does not count them."""
    recorder: CellRecorder | None
    """The hooks at the model's points; None in a step in which none is recorded or forced."""

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """Arrays ``[rows, sequence]`` by name, the micro-batches one below the other."""
        parts = [micro_batch.arrays for micro_batch in self.current.micro_batches]
        return {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}

    @property
    def rows(self) -> list[int]:
        """Rows of each micro-batch."""
        return [micro_batch.rows for micro_batch in self.current.micro_batches]

    @cached_property
    def experts(self) -> dict[str, Array]:
        """The experts of each token by the name of a router, int16 ``[rows, sequence, experts a token]``, ascending."""
        parts = [(name, choice, part.rows) for part in self.current.micro_batches for name, choice in part.experts.items()]
        by_position = ((name, to_numpy(choice).reshape(-1, rows, choice.shape[-1])) for name, choice, rows in parts)
        return joined_by_name((name, np.sort(choice.transpose(1, 0, 2), axis=2).astype(np.int16)) for name, choice in by_position)

    def batch(self) -> StepBatch:
        """Return the batch that the model consumed, with token losses where a function shows them."""
        parts = self.current.micro_batches
        arrays = dict(self.arrays)
        if all(part.token_losses is not None and part.token_losses.size == part.arrays["tokens"].size for part in parts):
            arrays["token_losses"] = np.concatenate([to_numpy(part.token_losses).reshape(part.arrays["tokens"].shape) for part in parts])
        counts = {
            name: np.bincount(experts.ravel(), minlength=self.session.routers[name].experts).tolist()
            for name, experts in self.experts.items()
        }
        return StepBatch(arrays, self.rows, experts=counts)

    def routing(self) -> StepChoices | None:
        """Return the experts that the routers chose, and the positions that sparse attention chose."""
        parts = [kept for part in self.current.micro_batches for kept in part.positions.items()]
        choices = self.experts | joined_by_name((name, chosen(*choice)) for name, choice in parts)
        return StepChoices(choices, self.rows) if choices else None

    def activations(self) -> StepActivations | None:
        """Return the values that hooks of the model's Cells saw."""
        return None if self.recorder is None else self.recorder.made()

    def local_norms(self) -> LocalNorms | None:
        """Return the norms of the gradients."""
        squared, parameters = self.current.squared, self.session.parameters
        if not squared or parameters is None:
            return None
        prints = any(parameter.counted for parameter in parameters)
        parts = {name for parameter in parameters for name in parameter.fused.cut}
        return LocalNorms(self.session.settings.choice(POINT), squared, squared if prints else (), parts, self.framework_norms())

    def framework_norms(self) -> list[dict[str, float]]:
        """Return the trainer's global norm, where it is of the gradients whose norms are recorded."""
        norm = self.current.norm
        return [] if norm is None else [{"norm": self.numbers[NORM], "first": 0, "ranks": self.session.launch.world_size}]

    def gradient_sketches(self) -> Callable[[], dict[str, list[float]]] | None:
        """Return the sketches of the gradients, read already."""
        made = self.current.sketches
        return None if made is None else lambda: made

    @cached_property
    def numbers(self) -> dict[str, float]:
        """Loss, global norm and terms by name, and the part of each micro-batch by its number: in one transfer, those that there are."""
        current = self.current
        parts = {str(index): micro_batch.part for index, micro_batch in enumerate(current.micro_batches)}
        known = {LOSS: self.loss, NORM: current.norm, **current.terms, **parts}
        tensors = {name: local(tensor).reshape((1,)).astype(mindspore.float32) for name, tensor in known.items() if tensor is not None}
        with _no_grad():
            return dict(zip(tensors, mindspore.mint.cat(tuple(tensors.values())).asnumpy().astype(float).tolist(), strict=True))

    def row(self) -> tuple[Callable[[], dict[str, object]], int]:
        """Return the step's scalars, at full precision."""
        session, current = self.session, self.current
        clip, numbers, arrays = clip_norm(session), self.numbers, self.arrays
        norm, parts = numbers.get(NORM), [numbers[str(index)] for index in range(len(self.rows)) if str(index) in numbers]
        weights = np.array([part.arrays["loss_mask"].sum(dtype=np.float64) for part in current.micro_batches])
        is_alone = session.launch.world_size == 1
        row = {
            "step": self.step,
            "loss": token_mean(numbers[LOSS] if is_alone else None, parts, weights),
            "objective_loss": numbers[LOSS],
            "valid_tokens": int((arrays["loss_mask"] > 0).sum()),
            "consumed_samples": self.consumed or sum(self.rows) * session.data_parallel[1] * (self.step + 1),
            "grad_norm": norm,
            "clip_coefficient": min(1.0, clip / (norm + 1e-6)) if clip is not None and norm is not None else 1.0,
            "learning_rate": current.rate,
            "loss_scale": 1.0,
            # of several ranks each has terms of its own tokens, and which of them are sums over all nobody says
            "terms": ({name: numbers[name] / len(self.rows) for name in current.terms} or None) if is_alone else None,
            "skipped": self.skipped,
            "seconds": self.seconds,
            **of_start(session, arrays, lambda: digest(arrays["tokens"])),
        }
        return lambda: row, 0


def joined_by_name(parts: Iterable[tuple[str, Array]]) -> dict[str, Array]:
    """Return arrays by name, those of the micro-batches one below the other."""
    named: dict[str, list[Array]] = {}
    for name, array in parts:
        named.setdefault(name, []).append(array)
    return {name: np.concatenate(arrays) for name, arrays in named.items()}


def clip_norm(session: MsSession) -> float | None:
    """Return the norm at which the trainer clips gradients; None without clipping."""
    clip = session.config.training.max_norm
    return float(clip) if clip is not None else None
