"""One training process with hooks: what was asked (``session``), what a step leaves (``recording``, ``step``), what came of it
(``accounting``)."""

# Nothing is imported for the first time when the process ends: a dataclass executes text when it is made, and Python then forgets that it
# was interrupted and exits with 1, where it would have ended by the signal.
from align_hooks.session import accounting
from align_hooks.session.session import Session

__all__ = ["Session", "accounting"]
