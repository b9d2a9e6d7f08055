"""The functions behind the hooks, for sites that call them from a patch of their own instead of attaching hooks.

They write the files of the hooks, so both records replay and read alike; without hooks a directory has batches and tensors but no manifest,
like a directory made by the guide's snippet. ``patches/`` has the diffs that call these functions.
"""

import math
import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from megatron.core import parallel_state

from align_hooks.errors import RefusedRun
from align_hooks.names.blocks import Array
from align_hooks.names.fused import Fused
from align_hooks.record.read.batch import joined
from align_hooks.record.write.step_files import StepBatch, write_batch, write_tensors
from align_hooks.torch_side.arrays import to_numpy
from align_hooks.torch_side.model import on_host, parameters_of, pieces
from align_hooks.torch_side.norms import NormPlan
from align_hooks.torch_side.place import AXES, SINGLE_RANK, place


def save_batch(run: str | Path, step: int, batch: Mapping[str, torch.Tensor | None], *, rank: int = 0) -> None:
    """Write ``run/step_N/rank_M/{tokens,labels,loss_mask,attention_mask,position_ids}.npy`` (guide, appendix).

    ``batch`` maps those names to ``[rows, sequence]`` tensors (``attention_mask`` bool ``[rows or 1, 1, sequence,
    sequence]``); None is left out. Call it once a micro-batch: all of a step are joined along the batch axis. Raises KeyError without
    tokens."""
    saved = (Path(run), step, rank)
    if _micro_batches.keys() != {saved}:
        _micro_batches.clear()
    parts = _micro_batches.setdefault(saved, [])
    parts.append({name: to_numpy(tensor) for name, tensor in batch.items() if tensor is not None})
    write_batch(*saved, StepBatch(*joined(parts)))


_micro_batches: dict[tuple[Path, int, int], list[dict[str, Array]]] = {}
"""Micro-batches of the step that was saved last."""


def watch(model: torch.nn.Module, vocabulary: int) -> None:
    """Remember the built GPTModel for :func:`watched`. Raises RefusedRun for a second model: virtual pipeline stages."""
    if _watched and _watched[0][0] is not model:
        raise RefusedRun("virtual pipeline stages are not recorded in this version; run with one model chunk a rank")
    _watched[:] = [(model, vocabulary)]


def watched() -> tuple[torch.nn.Module, int]:
    """Return model and vocabulary for :func:`local_norms` and :func:`save_gradients`, which a patched optimizer does not have.

    Raises RefusedRun where no model was watched."""
    if not _watched:
        raise RefusedRun("no model was watched before its gradients were asked for; call watch(model, vocabulary) in its forward")
    return _watched[0]


_watched: list[tuple[torch.nn.Module, int]] = []


def local_norms(model: torch.nn.Module, vocabulary: int) -> dict[str, float]:
    """Map canonical names to gradient norms of a built GPTModel, between ``prepare_grads`` and clipping; one transfer.

    ``vocabulary`` is the tokenizer's size, without padding. Raises RefusedRun for a model that no name table knows and where a parameter
    has no gradient."""
    norms = NormPlan().norms(_gradients(model, vocabulary))
    return {name: math.sqrt(squared) for name, squared in norms.named(norms.squares(on_host(norms.numbers))).items()}


def save_gradients(run: str | Path, step: int, model: torch.nn.Module, vocabulary: int, *, rank: int = 0) -> None:
    """Write ``run/step_N/rank_M/gradients.safetensors``, canonical name to fp32, between ``prepare_grads`` and clipping.

    Arguments and errors as in :func:`local_norms`. The guide's snippet of this purpose saves the weights."""
    write_tensors(Path(run), step, rank, "gradients.safetensors", pieces(_gradients(model, vocabulary)))


def _gradients(model: torch.nn.Module, vocabulary: int) -> list[tuple[Fused, torch.Tensor]]:
    """Return the gradients of a model; raise RefusedRun where ranks hold parts, whose places only a manifest could say."""
    sizes = place() if parallel_state.model_parallel_is_initialized() else SINGLE_RANK
    cut = [f"{AXES[axis].replace('_', ' ')} size {sizes[f'{axis}_size']}" for axis in ("tp", "pp", "cp", "ep") if sizes[f"{axis}_size"] > 1]
    training = sys.modules.get("megatron.training.global_vars")  # not imported here: a patched megatron.core may be importing us
    if getattr(getattr(training, "_GLOBAL_ARGS", None), "use_distributed_optimizer", False):
        cut.append("--use-distributed-optimizer")
    if cut:
        raise RefusedRun(f"a patched site records ranks that hold all of the model; this job has {', '.join(cut)}: use the hooks")
    return [(parameter.fused, gradient) for parameter, gradient in parameters_of([model], vocabulary).gradients()]
