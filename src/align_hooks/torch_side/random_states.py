"""The random generators from which a Megatron run draws, read at the start of every step and of every micro-batch.

Dropout draws from the device's generator, inside tensor parallelism from the states that Megatron's tracker keeps beside it. Data sets draw
from numpy's and torch's generators. Reading moves no generator and waits for no device: the state of a CUDA generator is a seed and an
offset, which lie on the host. While a CUDA graph is captured with a generator its state may not be read, and it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from megatron.core.tensor_parallel import get_cuda_rng_tracker

from align_hooks.record.random_states import digest, of_python_and_numpy


def at_step() -> dict[str, str]:
    """Name of each generator to the digest of its state."""
    return of_python_and_numpy() | at_micro_batch()


def at_micro_batch() -> dict[str, str]:
    """The same for torch's generators alone, from which a forward pass draws."""
    return {name: digest(state.numpy().tobytes()) for name, state in _states()}


def _states() -> Iterator[tuple[str, torch.Tensor]]:
    on_cuda = torch.cuda.is_initialized()  # never in a rehearsal, where the CPU's generator is CUDA's too
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
