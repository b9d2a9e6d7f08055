"""The state at a step's start beside weights and moments (:mod:`~align_hooks.record.format.state` and its ``random_states``).

A checkpoint holds all of it: the samples consumed, which are the data sampler's position, the counts of scheduler, optimizer and loss
scaler, and buffers. Counts are on the host. Buffers are copied on the device, for a step may change them, and come to the host when the
step has ended.

Dropout draws from the device's generator, under tensor parallelism from the states of Megatron's tracker; data sets draw from numpy's and
torch's generators. The state of a CUDA generator, a seed and an offset on the host, may not be read while a CUDA graph is captured with it.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import torch
from megatron.core.tensor_parallel import get_cuda_rng_tracker

from align_hooks.record.format.random_states import PythonAndNumpy, digest
from align_hooks.record.format.state import ABSENT, GROWTH, HYSTERESIS, SAMPLES, SCHEDULER, UPDATES
from align_hooks.torch_side.objects import Module, Optimizer, Scheduler
from align_hooks.torch_side.optimizer import updates_made
from align_hooks.torch_side.run_arguments import get_args

States: TypeAlias = Mapping[str, torch.Tensor]
"""Generator to its state on the host."""
DELAYED = "delayed"
"""The recipe of FP8 that scales by the largest values of earlier steps; other recipes keep nothing from step to step."""
SCALINGS = ("scaling_fwd", "scaling_bwd")
MOST = 1 << 22
"""Most elements of buffers to copy; a model with more keeps other things in them."""
PYTHON_AND_NUMPY = PythonAndNumpy()
SCALERS = {GROWTH: "_growth_tracker", HYSTERESIS: "_hysteresis_tracker"}
"""The counts of ``DynamicGradScaler``; a constant scale has none."""


def at_step(leaves: Sequence[Optimizer], schedule: Scheduler) -> dict[str, torch.Tensor | float | str]:
    """Return the counts at a step's start; counts of the device stay there."""
    state: dict[str, torch.Tensor | float | str] = {SAMPLES: float(get_args().consumed_train_samples)}
    if (steps := getattr(schedule, "num_steps", None)) is not None:
        state[SCHEDULER] = float(steps)
    if leaves:
        made = updates_made(leaves)
        state[UPDATES] = made if isinstance(made, torch.Tensor) else float(made)
        scaler = next((leaf.grad_scaler for leaf in leaves if getattr(leaf, "grad_scaler", None) is not None), None)
        state |= {name: float(getattr(scaler, attribute)) for name, attribute in SCALERS.items() if hasattr(scaler, attribute)}
    return state


def buffers_of(chunks: Sequence[Module]) -> list[tuple[str, Module, str]]:
    """Return the name of each persistent buffer, its module and its key there; none of a model whose buffers have too many elements."""
    places = [
        (f"{path}.{key}", module, key)
        for path, module in named_modules(chunks)
        for key, _ in module.named_buffers(recurse=False)
        if key not in module._non_persistent_buffers_set
    ]
    return places if sum(getattr(module, key).numel() for _, module, key in places) <= MOST else []


def named_modules(chunks: Sequence[Module]) -> Iterator[tuple[str, Module]]:
    """Yield every module with its name, which begins with the number of the chunk where there are several."""
    for number, chunk in enumerate(chunks):
        yield from ((f"{number}.{path}" if len(chunks) > 1 else path, module) for path, module in chunk.named_modules())


def scaled_modules(chunks: Sequence[Module]) -> list[tuple[str, Module]]:
    """Return the modules, with their names, in which Transformer Engine keeps scales and earlier largest values of FP8."""
    args = get_args()
    if not args.fp8 or args.fp8_recipe != DELAYED:
        return []
    kept = ("fp8_meta", "_fp8_metas")
    return [(path, module) for path, module in named_modules(chunks) if any(hasattr(module, name) for name in kept)]


def scalings(path: str, module: Module) -> dict[str, torch.Tensor | str]:
    """Map names to scales and histories of a module, a flat copy for each direction; :data:`ABSENT` before its first pass or resumption.

    A resumed run whose checkpoint brought none begins without them, and scales otherwise."""
    held: dict[str, torch.Tensor | str] = {}
    for key in SCALINGS:
        metas = [getattr(module, "fp8_meta", None), *(getattr(module, "_fp8_metas", None) or {}).values()]
        kept = next((meta[key] for meta in metas if meta is not None and key in meta), None)
        parts = [getattr(kept, name, None) for name in ("scale", "amax_history")]
        if kept is None:
            held[f"{path}.{key}"] = ABSENT
        elif all(isinstance(part, torch.Tensor) for part in parts):
            held[f"{path}.{key}"] = torch.cat([part.detach().reshape(-1) for part in parts if part is not None])
    return held


def generators() -> dict[str, str]:
    """Map each generator to the digest of its state, without advancing it or waiting for a device."""
    return PYTHON_AND_NUMPY.read() | digests(generators_at_micro_batch())


def generators_at_micro_batch() -> States:
    """Map torch's generators, from which a forward pass draws, to their states."""
    on_cuda = torch.cuda.is_initialized()  # never in a rehearsal, where the CPU's generator is CUDA's too
    capturing = on_cuda and torch.cuda.is_current_stream_capturing()
    states = {"torch": torch.get_rng_state()}
    if on_cuda and not capturing:
        states["cuda"] = torch.cuda.get_rng_state()
    if "torch_npu" in sys.modules and torch.npu.is_initialized():
        states["npu"] = torch.npu.get_rng_state()
    for name, state in get_cuda_rng_tracker().get_states().items():
        if isinstance(state, torch.Generator):  # of a tracker that CUDA graphs can follow
            state = None if capturing else state.get_state()
        if isinstance(state, torch.Tensor):
            states[name] = state if state.is_cpu else state.cpu()
    return states


def digests(states: States) -> dict[str, str]:
    """Map each generator to the digest of its state."""
    return {name: digest(state.numpy()) for name, state in states.items()}
