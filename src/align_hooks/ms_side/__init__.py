"""MindFormers on MindSpore, GRAPH_MODE. Only this room imports mindspore and mindformers; importing it imports neither.

Start a script with ``python -m align_hooks.ms_side run_mindformer.py …`` (``msrun … python -m …``), or write ``import
align_hooks.ms_side`` anywhere before the Trainer is built: it attaches when an ``ALIGN_HOOKS_*`` variable is set, the
one import effect of this package. Sites that may not use hooks call the public functions from a patch of their own.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from align_hooks.ms_side.patching import SaveSteps, capture, local_norms, save_batch, save_gradients
    from align_hooks.ms_side.seeds import seed_all, set_deterministic

PUBLIC = {
    "seed_all": "seeds",
    "set_deterministic": "seeds",
    "save_batch": "patching",
    "local_norms": "patching",
    "save_gradients": "patching",
    "capture": "patching",
    "SaveSteps": "patching",
}
__all__ = ["SaveSteps", "capture", "local_norms", "save_batch", "save_gradients", "seed_all", "set_deterministic"]


def __getattr__(name: str) -> Any:
    if name in PUBLIC:
        return getattr(importlib.import_module(f"{__name__}.{PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# Under ``python -m align_hooks.ms_side`` the launcher attaches; argv[0] is "-m" while python locates the module.
if not (sys.argv[0] == "-m" and any(word.endswith(__name__) for word in sys.orig_argv)):
    from align_hooks.launcher import attach_on_import

    attach_on_import("ms")
