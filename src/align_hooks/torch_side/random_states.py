"""The random generators that a Megatron run draws from, read at the start of a step and of every micro-batch.

Dropout draws from the device's generator, inside tensor parallelism from the states that Megatron's tracker keeps beside it; data sets from
numpy's and torch's. Reading a state moves nothing and waits for no device: of a CUDA generator it is a seed and an offset, which lie on
the host. Of generators that a CUDA graph is being captured with, nothing may be asked; they are left out then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from megatron.core.tensor_parallel import get_cuda_rng_tracker

from align_hooks.record.random_states import digest, of_python_and_numpy


def at_step() -> dict[str, str]:
    """Name of each generator to the digest of its state."""
    return of_python_and_numpy() | at_micro_batch()


def at_micro_batch() -> dict[str, str]:
    """The same of torch's generators alone: those that a forward pass draws from."""
    return {name: digest(state.numpy().tobytes()) for name, state in _states()}


def _states() -> Iterator[tuple[str, Any]]:
    on_cuda = torch.cuda.is_initialized()  # never in a rehearsal, where both are one
    capturing = on_cuda and torch.cuda.is_current_stream_capturing()
    yield "torch", torch.get_rng_state()
    if on_cuda and not capturing:
        yield "cuda", torch.cuda.get_rng_state()
    if hasattr(torch, "npu") and torch.npu.is_initialized():
        yield "npu", torch.npu.get_rng_state()
    tracker = get_cuda_rng_tracker()
    for name, state in tracker.get_states().items():
        if isinstance(state, torch.Generator):  # of a tracker that CUDA graphs can follow
            state = None if capturing else state.get_state()
        if isinstance(state, torch.Tensor):
            yield name, state.cpu()
