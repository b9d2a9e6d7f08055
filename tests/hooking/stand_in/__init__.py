"""A framework of a few lines, laid out like the real ones: a defining module, a re-export, a consumer that copies names."""

from stand_in.seams import train
from stand_in.version import __version__

__all__ = ["__version__", "train"]
