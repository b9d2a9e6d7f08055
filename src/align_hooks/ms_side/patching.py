"""The functions behind the hooks, for sites that call them from a patch of their own instead of attaching hooks.

They take tensors, so they belong where gradients are at hand in Python: a PyNative step, or after a compiled cell that
returns them. Inside a ``construct`` that graph mode compiles no Python function runs: there :func:`capture` puts a Cell in
the place of the training cell's ``grad_reducer``, and :class:`SaveSteps` writes what it kept from a callback, which is
Python again. ``patches/`` has the diff that does so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mindspore.train.callback import Callback
from numpy.typing import NDArray

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.arrays import to_numpy
from align_hooks.ms_side.batch import consumed
from align_hooks.ms_side.model import config_of, parameters_of
from align_hooks.ms_side.reducer import CaptureGradients
from align_hooks.patched import asked
from align_hooks.record.norms import print_norms, squared_sum
from align_hooks.record.pieces import write_batch, write_tensors


def save_batch(run: str | Path, step: int, batch: Mapping[str, Any], *, rank: int = 0) -> None:
    """Write ``run/step_N/rank_M/{tokens,labels,loss_mask,attention_mask,position_ids}.npy`` (guide, appendix).

    ``batch`` maps those names to ``[rows, sequence]`` tensors or arrays; None is left out. Raises KeyError without tokens.
    """
    given = {name: array for name, array in batch.items() if array is not None}
    arrays = {name: array if isinstance(array, np.ndarray) else to_numpy(array) for name, array in given.items()}
    write_batch(Path(run), step, rank, arrays, [len(arrays["tokens"])])


def local_norms(weights: Sequence[Any], gradients: Sequence[Any], config: Any, vocabulary: int | None = None) -> dict[str, float]:
    """Canonical name to gradient norm.

    ``weights`` are the Parameters that the optimizer updates, ``gradients`` theirs in the same order, ``config`` the
    LlamaConfig; ``vocabulary`` excludes padding. Raises RefusedRun for a parameter that no name table knows.
    """
    return {name: squared_sum(piece) ** 0.5 for name, piece in _pieces(weights, gradients, config, vocabulary)}


def save_gradients(
    run: str | Path,
    step: int,
    weights: Sequence[Any],
    gradients: Sequence[Any],
    config: Any,
    vocabulary: int | None = None,
    *,
    rank: int = 0,
) -> None:
    """Write ``run/step_N/rank_M/gradients.safetensors``, canonical name to fp32; arguments as in :func:`local_norms`."""
    write_tensors(Path(run), step, rank, "gradients.safetensors", dict(_pieces(weights, gradients, config, vocabulary)))


def capture(cell: Any, vocabulary: int | None = None) -> None:
    """Keep every step's gradients of a built ``MFTrainOneStepCell``: reduced, unscaled, not yet clipped.

    Call it in ``__init__``, once ``weights`` and ``grad_reducer`` stand there, and hand :class:`SaveSteps` to the training.
    It takes device memory for one set of fp32 gradients. Raises RefusedRun for a model that no name table knows.
    """
    parameters = parameters_of(cell.weights, config_of(cell), vocabulary)
    cell.grad_reducer = CaptureGradients(cell.grad_reducer, parameters, point="reduced", norms=True, gradients=True, inject=False)


class SaveSteps(Callback):  # type: ignore[misc]
    """Writes batch and gradients of the steps that ``ALIGN_PATCH_STEPS`` names, and prints their local norms.

    ``first`` is the step that a resumed run begins with. Raises RefusedRun where the training cell was not captured.
    """

    def __init__(self, first: int = 0) -> None:
        super().__init__()
        self.first = first
        self.columns: list[str] = []

    def on_train_begin(self, run_context: Any) -> None:
        """Find out, before the first step, whether there will be anything to write."""
        arguments = run_context.original_args()
        cell = arguments.train_network
        if not isinstance(getattr(cell, "grad_reducer", None), CaptureGradients):
            raise RefusedRun(f"the training cell {type(cell).__name__} was not captured: only MFTrainOneStepCell, without sink mode, is")
        self.columns = arguments.train_dataset.get_col_names()

    def on_train_step_end(self, run_context: Any) -> None:
        """Write the step that just ended, where it is asked for."""
        arguments = run_context.original_args()
        here = asked(self.first + arguments.cur_step_num - 1)
        if here is None:
            return
        cell = arguments.train_network
        save_batch(here.run, here.step, consumed(arguments.train_dataset_element, self.columns, cell), rank=here.rank)
        save_gradients(here.run, here.step, cell.weights, cell.grad_reducer.buffers, config_of(cell), rank=here.rank)
        print_norms(here.rank, here.step, {name: squared**0.5 for name, squared in cell.grad_reducer.squared_sums().items()})


def _pieces(weights: Sequence[Any], gradients: Sequence[Any], config: Any, vocabulary: int | None) -> Iterator[tuple[str, NDArray[Any]]]:
    for parameter, gradient in zip(parameters_of(weights, config, vocabulary), gradients, strict=True):
        yield from parameter.fused.split(to_numpy(gradient))
