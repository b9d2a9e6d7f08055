"""Steps as people write them."""

from __future__ import annotations

from collections.abc import Sequence


def ranges(steps: Sequence[int]) -> str:
    """Return ascending steps in the syntax of a variable: ``0-9,20``, with a stride ``0-100/10``."""
    parts: list[str] = []
    begin = 0
    while begin < len(steps):
        stride = steps[begin + 1] - steps[begin] if begin + 1 < len(steps) else 1
        end = begin + 1
        while end < len(steps) and steps[end] - steps[end - 1] == stride:
            end += 1
        if end - begin == 2 and stride > 1:  # two steps make no stride
            end -= 1
        last = f"-{steps[end - 1]}" if end - begin > 1 else ""
        parts.append(f"{steps[begin]}{last}" + (f"/{stride}" if last and stride > 1 else ""))
        begin = end
    return ",".join(parts)
