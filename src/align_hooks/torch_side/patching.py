"""The functions behind the hooks, for sites that call them from a patch of their own instead of attaching hooks.

They write the same files in the same places, so that records made either way replay and read alike; a directory written
only by them has batches and tensors but no manifest, like one made by hand with the guide's snippet.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from align_hooks.record.writer import write_batch, write_tensors
from align_hooks.torch_side.arrays import squared_sum, to_numpy
from align_hooks.torch_side.model import parameters_of, pieces


def save_batch(run: str | Path, step: int, batch: Mapping[str, torch.Tensor | None], *, rank: int = 0) -> None:
    """Write ``run/step_N/rank_M/{tokens,labels,loss_mask,attention_mask,position_ids}.npy`` (guide, appendix).

    ``batch`` maps those names to ``[rows, sequence]`` tensors (``attention_mask`` bool ``[rows or 1, 1, sequence,
    sequence]``); None is left out. Call it once a step with micro-batches joined. Raises KeyError without tokens.
    """
    arrays = {name: to_numpy(tensor) for name, tensor in batch.items() if tensor is not None}
    write_batch(Path(run), step, rank, arrays, [len(arrays["tokens"])])


def local_norms(model: torch.nn.Module, vocabulary: int) -> dict[str, float]:
    """Canonical name to gradient norm of a built GPTModel, between ``prepare_grads`` and clipping; one transfer.

    ``vocabulary`` is the tokenizer's size, without padding. Raises RefusedRun for a model that no name table knows and
    where a parameter has no gradient.
    """
    norms = {
        name: squared_sum(piece)
        for fused, gradient in parameters_of([model], vocabulary).gradients()
        for name, piece in fused.split(gradient)
    }
    return dict(zip(norms, torch.stack(list(norms.values())).sqrt().tolist(), strict=True))


def save_gradients(run: str | Path, step: int, model: torch.nn.Module, vocabulary: int, *, rank: int = 0) -> None:
    """Write ``run/step_N/rank_M/gradients.safetensors``, canonical name to fp32, between ``prepare_grads`` and clipping.

    The guide's snippet of this purpose saves the weights. Arguments and errors as in :func:`local_norms`.
    """
    found: list[tuple[Any, torch.Tensor]] = parameters_of([model], vocabulary).gradients()
    write_tensors(Path(run), step, rank, "gradients.safetensors", pieces(found))
