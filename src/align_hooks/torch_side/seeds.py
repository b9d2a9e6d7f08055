"""The guide's ``seed_all`` for PyTorch, corrected.

What the guide's snippet gets wrong: PYTHONHASHSEED set in a running interpreter does nothing (the launcher starts it
again instead); ``torch.backends.cudnn.enable`` is a typo and sets nothing; and Megatron seeds everything again from
``--seed``, so a call before ``pretrain()`` alone is overwritten. ``ALIGN_HOOKS_SEED`` therefore becomes Megatron's own
seed, which keeps its offsets for pipeline and data-parallel ranks and its tensor-parallel trackers.

``torch.npu`` is there when the script, or MindSpeed, has imported torch_npu; it is not imported here, and then no NPU is in use.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Seed python, numpy, torch and every accelerator. For patches; call it where nothing seeds again afterwards, on NPUs below the
    import of torch_npu."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # CUDA included
    if hasattr(torch, "npu"):
        torch.npu.manual_seed_all(seed)


def set_deterministic() -> None:
    """Ask torch for deterministic kernels, of an NPU too, and of its collectives where no variable says otherwise; the environment
    variables must have been there at start."""
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    # Filling fresh memory is only for finding its uninitialised use, costs a pass, and raced communication kernels.
    torch.utils.deterministic.fill_uninitialized_memory = False


def read_back() -> dict[str, Any]:
    """The switches as torch holds them now; of an NPU that is in use also its seed, and whether it may take 32-bit floats as HF32."""
    found = {
        "torch.are_deterministic_algorithms_enabled": torch.are_deterministic_algorithms_enabled(),
        "torch.backends.cudnn.deterministic": torch.backends.cudnn.deterministic,
        "torch.backends.cudnn.benchmark": torch.backends.cudnn.benchmark,
        "torch.initial_seed": torch.initial_seed(),
    }
    if not (hasattr(torch, "npu") and torch.npu.is_initialized()):  # asking one for its seed would start it
        return found
    return found | {
        "torch.npu.initial_seed": torch.npu.initial_seed(),
        "torch.npu.matmul.allow_hf32": torch.npu.matmul.allow_hf32,
        "torch.npu.conv.allow_hf32": torch.npu.conv.allow_hf32,
    }
