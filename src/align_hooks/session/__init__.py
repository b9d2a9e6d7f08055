"""One training process with hooks: its state (``session``), its record (``recording``, ``step``), and how it ended (``accounting``)."""

# ``accounting`` is imported here, not when the process ends: making a dataclass executes text, after which Python forgets that it was
# interrupted, and exits with 1 instead of ending by the signal.
from align_hooks.session import accounting
from align_hooks.session.session import Session

__all__ = ["Session", "accounting"]
