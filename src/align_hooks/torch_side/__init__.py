"""Megatron-LM on PyTorch. Only this room imports torch and megatron; importing it imports neither.

Start a script with ``python -m align_hooks.torch_side pretrain_gpt.py …``. Sites that may not use hooks call the public
functions below from a patch of their own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from align_hooks.torch_side.patching import local_norms, save_batch, save_gradients, watch, watched
    from align_hooks.torch_side.seeds import seed_all, set_deterministic

PUBLIC = {
    "seed_all": "seeds",
    "set_deterministic": "seeds",
    "save_batch": "patching",
    "local_norms": "patching",
    "save_gradients": "patching",
    "watch": "patching",
    "watched": "patching",
}
__all__ = ["local_norms", "save_batch", "save_gradients", "seed_all", "set_deterministic", "watch", "watched"]


def __getattr__(name: str) -> Any:
    if name in PUBLIC:
        return getattr(importlib.import_module(f"{__name__}.{PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
