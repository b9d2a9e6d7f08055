"""align_hooks records what a Megatron-LM and a MindFormers run do, feeds one to the other, and says where they part.

Importing this package imports no framework, nor numpy, and attaches nothing. ``open_run`` reads a record without a framework, and
``compare`` compares two (docs/python.md).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from align_hooks._version import __version__

if TYPE_CHECKING:
    from align_hooks.comparison.verdict import Verdict
    from align_hooks.python import Comparison, compare
    from align_hooks.record.read.batch import Batch
    from align_hooks.record.reader import Run, open_run

__all__ = ["Batch", "Comparison", "Run", "Verdict", "__version__", "compare", "open_run"]
HOMES = {
    "Batch": "record.read.batch",
    "Comparison": "python",
    "Run": "record.reader",
    "Verdict": "comparison.verdict",
    "compare": "python",
    "open_run": "record.reader",
}
"""The module of each public name, imported when the name is first used."""


def __getattr__(name: str) -> Any:
    if name in HOMES:
        return getattr(import_module(f"align_hooks.{HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
