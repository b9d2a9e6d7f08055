"""A framework of a few lines, laid out like the real ones: a defining module, a re-export, a consumer that copies names."""

from stand_in.seams import train

__all__ = ["train"]
