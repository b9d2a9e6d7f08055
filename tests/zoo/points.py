"""At which points a fault of the zoo comes about: ``points.txt``."""

from collections.abc import Iterator
from pathlib import Path

from align_hooks.data_file import sections


def points() -> Iterator[tuple[str, tuple[str, ...]]]:
    """The cases of the table, each with the patterns of its points."""
    for line in sections(Path(__file__).with_name("points.txt"))[""]:
        cases, _, patterns = line.partition(" | ")
        yield from dict.fromkeys(cases.split(", "), tuple(patterns.split(", "))).items()


POINTS = dict(points())
"""Name of a case to the points at which its fault comes about."""
