"""The two sides of a comparison or a check, which every room's messages name."""

from __future__ import annotations

from enum import Enum


class Side(str, Enum):
    """Who is held against whom."""

    REFERENCE = "reference"
    CANDIDATE = "candidate"

    __str__ = str.__str__
