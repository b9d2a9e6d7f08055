"""What a step of a Megatron run starts from beside weights and moments (:mod:`align_hooks.record.format.state`, and of its random
generators :mod:`align_hooks.record.format.random_states`).

All of it is what a checkpoint holds: the samples consumed, which are the data sampler's position, the scheduler's and the optimizer's
counts, the loss scaler's, and buffers. The numbers lie on the host. Buffers are copied on the device, for a step may move them, and come to
the host with everything else when the step has ended.

Dropout draws from the device's generator, inside tensor parallelism from the states that Megatron's tracker keeps beside it. Data sets draw
from numpy's and torch's generators. The state of a CUDA generator is a seed and an offset, which lie on the host. While a CUDA graph is
captured with a generator its state may not be read, and it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from megatron.core.tensor_parallel import get_cuda_rng_tracker
from megatron.training import get_args

from align_hooks.record.format.random_states import digest, of_python_and_numpy
from align_hooks.record.format.state import GROWTH, HYSTERESIS, SAMPLES, SCHEDULER, UPDATES
from align_hooks.torch_side.objects import Module, Optimizer, Scheduler
from align_hooks.torch_side.optimizer import chain, updates_made

MOST = 1 << 22
"""Elements of buffers that are copied; a model with more keeps something else in them."""
SCALERS = {GROWTH: "_growth_tracker", HYSTERESIS: "_hysteresis_tracker"}
"""The counts of ``DynamicGradScaler``; a constant scale has none."""


def at_step(optimizer: Optimizer, schedule: Scheduler) -> dict[str, torch.Tensor | float | str]:
    """The numbers that a step starts from; what is counted on the device is left there."""
    state: dict[str, torch.Tensor | float | str] = {SAMPLES: float(get_args().consumed_train_samples)}
    if (steps := getattr(schedule, "num_steps", None)) is not None:
        state[SCHEDULER] = float(steps)
    if optimizer is not None:
        made = updates_made(optimizer)
        state[UPDATES] = made if isinstance(made, torch.Tensor) else float(made)
        scaler = next((leaf.grad_scaler for leaf in chain(optimizer) if getattr(leaf, "grad_scaler", None) is not None), None)
        state |= {name: float(getattr(scaler, attribute)) for name, attribute in SCALERS.items() if hasattr(scaler, attribute)}
    return state


@dataclass(frozen=True, slots=True)
class Buffers:
    """What a checkpoint holds of a model and is no parameter: each buffer's name, its module and the module's name for it."""

    places: tuple[tuple[str, Module, str], ...]

    @classmethod
    def of(cls, chunks: Sequence[Module]) -> Buffers:
        """The buffers of a model's chunks; none where there are too many elements of them."""
        places = tuple(_persistent(chunks))
        elements = sum(getattr(module, key).numel() for _, module, key in places)
        return cls(places if elements <= MOST else ())

    def copies(self) -> dict[str, torch.Tensor]:
        """A copy of each, by name."""
        return {name: getattr(module, key).detach().clone() for name, module, key in self.places}


def _persistent(chunks: Sequence[Module]) -> Iterator[tuple[str, Module, str]]:
    for number, chunk in enumerate(chunks):
        for path, module in chunk.named_modules():
            for key, _ in module.named_buffers(recurse=False):
                if key not in module._non_persistent_buffers_set:
                    yield f"{f'{number}.' if len(chunks) > 1 else ''}{path}.{key}", module, key


def generators() -> dict[str, str]:
    """Name of each generator to the digest of its state, read at the start of every step. Reading moves none and waits for no device."""
    return of_python_and_numpy() | generators_at_micro_batch()


def generators_at_micro_batch() -> dict[str, str]:
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
