"""The functions behind the hooks, for sites that call them from a patch of their own instead of attaching hooks.

They take tensors, so they belong where Python has the gradients: in a PyNative step, or after a compiled cell that returns them.
Inside a ``construct`` that graph mode compiles no Python function runs. There :func:`capture` puts a Cell in the place of the
training cell's ``grad_reducer``, and :class:`SaveSteps`, a callback, writes what the Cell kept. ``patches/`` has the diff for that.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from mindspore.train.callback import Callback

from align_hooks.errors import RefusedRun
from align_hooks.families.family import ModelConfig
from align_hooks.ms_side.arrays import to_numpy
from align_hooks.ms_side.batch import consumed
from align_hooks.ms_side.model import model_of, model_of_config, parameters_of
from align_hooks.ms_side.objects import Cell, RunContext, Tensor, Weight
from align_hooks.ms_side.reducer import CaptureGradients, Tasks
from align_hooks.names.blocks import Array
from align_hooks.patched import asked
from align_hooks.record.format.norms import print_norms, squared_sum
from align_hooks.record.write.step_files import StepBatch, write_batch, write_tensors


def save_batch(run: str | Path, step: int, batch: Mapping[str, Tensor | Array | None], *, rank: int = 0) -> None:
    """Write ``run/step_N/rank_M/{tokens,labels,loss_mask,attention_mask,position_ids}.npy`` (guide, appendix).

    ``batch`` maps those names to ``[rows, sequence]`` tensors or arrays; None is left out. Raises KeyError without tokens."""
    present = {name: value for name, value in batch.items() if value is not None}
    arrays = {name: value if isinstance(value, np.ndarray) else to_numpy(value) for name, value in present.items()}
    write_batch(Path(run), step, rank, StepBatch(arrays, [len(arrays["tokens"])]))


def local_norms(
    weights: Sequence[Weight], gradients: Sequence[Tensor], config: ModelConfig, vocabulary: int | None = None
) -> dict[str, float]:
    """Map canonical names to gradient norms.

    ``weights`` are the Parameters that the optimizer updates, ``gradients`` their gradients in the same order, ``config`` is the
    LlamaConfig, or the training cell; ``vocabulary`` excludes padding. A parameter that no family knows has its own name."""
    return {name: squared_sum(piece) ** 0.5 for name, piece in _pieces(weights, gradients, config, vocabulary)}


def save_gradients(
    run: str | Path,
    step: int,
    weights: Sequence[Weight],
    gradients: Sequence[Tensor],
    config: ModelConfig,
    vocabulary: int | None = None,
    *,
    rank: int = 0,
) -> None:
    """Write ``run/step_N/rank_M/gradients.safetensors``, canonical name to fp32; arguments as in :func:`local_norms`."""
    write_tensors(Path(run), step, rank, "gradients.safetensors", dict(_pieces(weights, gradients, config, vocabulary)))


def capture(cell: Cell, vocabulary: int | None = None) -> None:
    """Keep every step's gradients of a built ``MFTrainOneStepCell``: reduced, unscaled, not yet clipped.

    Call it in ``__init__``, once ``weights`` and ``grad_reducer`` are set, and hand :class:`SaveSteps` to the training. It takes
    device memory for a set of fp32 gradients. A model of no family has its own names."""
    parameters = parameters_of(cell.weights, model_of(cell), vocabulary)
    cell.grad_reducer = CaptureGradients(cell.grad_reducer, parameters, Tasks(norms=True, gradients=True))


class SaveSteps(Callback):  # type: ignore[misc]
    """Writes batch and gradients of the steps that ``ALIGN_PATCH_STEPS`` names, and prints their local norms.

    ``first`` is the step with which a resumed run begins. Raises RefusedRun where :func:`capture` was not called."""

    def __init__(self, first: int = 0) -> None:
        super().__init__()
        self.first = first
        self.columns: list[str] = []

    def on_train_begin(self, run_context: RunContext) -> None:
        """Refuse, before the first step, a training cell of which nothing is kept."""
        arguments = run_context.original_args()
        cell = arguments.train_network
        if not isinstance(getattr(cell, "grad_reducer", None), CaptureGradients):
            raise RefusedRun(f"the training cell {type(cell).__name__} was not captured: only MFTrainOneStepCell, without sink mode, is")
        self.columns = arguments.train_dataset.get_col_names()

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Write the step that just ended, where it is asked for."""
        arguments = run_context.original_args()
        request = asked(self.first + arguments.cur_step_num - 1)
        if request is None:
            return
        (run, step, rank), cell = request, arguments.train_network
        save_batch(run, step, consumed(arguments.train_dataset_element, self.columns, cell), rank=rank)
        save_gradients(run, step, cell.weights, cell.grad_reducer.buffers, cell, rank=rank)
        print_norms(rank, step, {name: squared**0.5 for name, squared in cell.grad_reducer.squared_sums().items()})


def _pieces(
    weights: Sequence[Weight], gradients: Sequence[Tensor], config: ModelConfig, vocabulary: int | None
) -> Iterator[tuple[str, Array]]:
    model = model_of(config) if hasattr(config, "network") else model_of_config(config)
    for parameter, gradient in zip(parameters_of(weights, model, vocabulary), gradients, strict=True):
        yield from parameter.fused.split(to_numpy(gradient))
