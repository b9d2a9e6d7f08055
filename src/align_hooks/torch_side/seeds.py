"""The guide's ``seed_all`` for PyTorch, corrected.

The guide's snippet sets PYTHONHASHSEED in a running interpreter, without effect; the launcher starts the interpreter again instead. The
snippet's ``torch.backends.cudnn.enable`` is a typo and sets nothing. Megatron seeds everything again from ``--seed``, so
``ALIGN_HOOKS_SEED`` becomes Megatron's own seed, with its offsets for pipeline and data-parallel ranks and its tensor-parallel trackers.

``torch.npu`` exists once the script, or MindSpeed, has imported torch_npu; without it no NPU is in use.
"""

import random

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Seed python, numpy, torch and every accelerator; for patches, after the last other seeding and the import of torch_npu."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # CUDA included
    if hasattr(torch, "npu"):
        torch.npu.manual_seed_all(seed)


def set_deterministic() -> None:
    """Switch torch's deterministic kernels on, those of an NPU included; the environment variables must have been set at start."""
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    # Filling fresh memory only helps to find uninitialised use. It costs a pass, and raced communication kernels.
    torch.utils.deterministic.fill_uninitialized_memory = False


def read_back() -> dict[str, object]:
    """Return torch's present switches; of an NPU in use also its seed, and whether it may compute 32-bit floats as HF32."""
    switches = {
        "torch.are_deterministic_algorithms_enabled": torch.are_deterministic_algorithms_enabled(),
        "torch.backends.cudnn.deterministic": torch.backends.cudnn.deterministic,
        "torch.backends.cudnn.benchmark": torch.backends.cudnn.benchmark,
        "torch.initial_seed": torch.initial_seed(),
    }
    if not (hasattr(torch, "npu") and torch.npu.is_initialized()):  # asking an NPU for its seed would start it
        return switches
    return switches | {
        "torch.npu.initial_seed": torch.npu.initial_seed(),
        "torch.npu.matmul.allow_hf32": torch.npu.matmul.allow_hf32,
        "torch.npu.conv.allow_hf32": torch.npu.conv.allow_hf32,
    }
