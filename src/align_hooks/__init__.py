"""align_hooks records what a Megatron-LM and a MindFormers run do, feeds one to the other, and says where they part.

Importing this package imports no framework, nor numpy, and attaches nothing. ``open_run`` reads a record without a framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from align_hooks.record.batch import Batch
    from align_hooks.record.reader import Run, open_run

__version__ = "0.1.0"
__all__ = ["Batch", "Run", "__version__", "open_run"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from align_hooks.record import batch, reader

        return getattr(batch if name == "Batch" else reader, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
