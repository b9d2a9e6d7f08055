"""align_hooks records what a Megatron-LM and a MindFormers run do, feeds one to the other, and says where they part.

Importing this package imports no framework and attaches nothing. ``open_run`` reads a record with numpy alone.
"""

from align_hooks.record.reader import Batch, Run, open_run

__version__ = "0.1.0"
__all__ = ["Batch", "Run", "__version__", "open_run"]
