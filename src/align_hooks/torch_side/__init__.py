"""Megatron-LM on PyTorch. Only this package imports torch and megatron; importing the package itself imports neither.

Start a script with ``python -m align_hooks.torch_side pretrain_gpt.py …``. Sites that may not use hooks call the public
functions below from a patch of their own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from align_hooks.torch_side.patching import local_norms, save_batch, save_gradients, watch, watched
    from align_hooks.torch_side.seeds import seed_all, set_deterministic

PUBLIC = {"seeds": ("seed_all", "set_deterministic"), "patching": ("save_batch", "local_norms", "save_gradients", "watch", "watched")}
"""Module of this package to the public functions and classes that it defines."""
__all__ = ["local_norms", "save_batch", "save_gradients", "seed_all", "set_deterministic", "watch", "watched"]


def __getattr__(name: str) -> object:
    for module, names in PUBLIC.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
