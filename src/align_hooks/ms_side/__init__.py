"""MindFormers on MindSpore, GRAPH_MODE. Only this package imports mindspore and mindformers; importing the package imports neither.

Start a script with ``python -m align_hooks.ms_side run_mindformer.py …`` (``msrun … python -m …``), or write ``import
align_hooks.ms_side`` anywhere before the Trainer is built. That import attaches when an ``ALIGN_HOOKS_*`` variable is set, and is the only
import in this package with an effect. With no variable set it only has ``NumpyDataloader`` registered, once MindFormers is imported, for a
YAML that names the class. Sites that may not use hooks call the public functions from a patch of their own.
"""

from __future__ import annotations

import importlib
import sys
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from align_hooks.ms_side.patching import SaveSteps, capture, local_norms, save_batch, save_gradients
    from align_hooks.ms_side.seeds import seed_all, set_deterministic

PUBLIC = {"seeds": ("seed_all", "set_deterministic"), "patching": ("save_batch", "local_norms", "save_gradients", "capture", "SaveSteps")}
"""Module of this package to the public functions and classes that it defines."""
__all__ = ["SaveSteps", "capture", "local_norms", "save_batch", "save_gradients", "seed_all", "set_deterministic"]


def __getattr__(name: str) -> object:
    for module, names in PUBLIC.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _is_what_was_imported() -> bool:
    """Return whether the caller imports this package itself, and not a module in it, for which Python executes the package first."""
    asked: str = __name__  # the outermost frame of the import system has the requested name
    frame: FrameType | None = sys._getframe(2)  # above this function and this module
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        asked = frame.f_locals["name"] if frame.f_code.co_name == "_find_and_load" else asked
        frame = frame.f_back
    return asked == __name__


# Under ``python -m align_hooks.ms_side`` the launcher attaches; argv[0] is "-m" while python locates the module.
if _is_what_was_imported() and not (sys.argv[0] == "-m" and any(word.endswith(__name__) for word in sys.orig_argv)):
    from align_hooks.job.entry import attach_on_import

    attach_on_import("ms")
