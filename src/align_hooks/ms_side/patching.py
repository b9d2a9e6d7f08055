"""The functions behind the hooks, for sites that call them from a patch of their own instead of attaching hooks.

They take tensors, so they belong where gradients are at hand in Python: a PyNative step, or after a compiled cell that
returns them. Inside a ``construct`` that graph mode compiles no Python function runs; there, put
:class:`align_hooks.ms_side.reducer.CaptureGradients` in the place of the cell's ``grad_reducer``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from align_hooks.ms_side.arrays import to_numpy
from align_hooks.ms_side.model import parameters_of
from align_hooks.norms import squared_sum
from align_hooks.record.writer import write_batch, write_tensors


def save_batch(run: str | Path, step: int, batch: Mapping[str, Any], *, rank: int = 0) -> None:
    """Write ``run/step_N/rank_M/{tokens,labels,loss_mask,attention_mask,position_ids}.npy`` (guide, appendix).

    ``batch`` maps those names to ``[rows, sequence]`` tensors; None is left out. Raises KeyError without tokens.
    """
    arrays = {name: to_numpy(tensor) for name, tensor in batch.items() if tensor is not None}
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


def _pieces(weights: Sequence[Any], gradients: Sequence[Any], config: Any, vocabulary: int | None) -> Iterator[tuple[str, NDArray[Any]]]:
    for parameter, gradient in zip(parameters_of(weights, config, vocabulary), gradients, strict=True):
        yield from parameter.fused.split(to_numpy(gradient))
