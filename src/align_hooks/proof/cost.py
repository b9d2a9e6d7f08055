"""What recording costs on the job itself: ratios of steps, waits of the host, and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from msgspec import Struct

from align_hooks.proof.training import Trained


class Cost(Struct, frozen=True):
    """What one way costs beside the same job without hooks."""

    way: str
    ratio: float | None
    """Median of its steps to the median of those without hooks; None without a step to measure."""
    low: float | None
    """Least of its steps to that median."""
    high: float | None
    waits: int | None
    """Times that the host waited for the device in a step, beyond those without hooks; None where the device does not tell."""
    lines: Mapping[str, int]
    """Line of code that waited more often than without hooks, to how much more often in a step."""
    device_memory: int | None
    """Further bytes at the device's peak, of the rank with most; None where the device does not say."""
    host_memory: int
    """Further bytes at the peak of a process, of the rank with most."""


def seconds(trained: Trained) -> list[float]:
    """Return the seconds of each step, of its slowest rank; without steps that compile or are counted."""
    steps = zip(*(seen.steps for seen in trained.witnessed), strict=False)
    times = [[step.seconds for step in ranks] for ranks in steps]
    return [max(each for each in step if each is not None) for step in times[1:] if None not in step]


def cost(plain: Sequence[Trained], other: Trained) -> Cost:
    """Return the cost of a way beside trainings without hooks."""
    without = [each for trained in plain for each in seconds(trained)]
    base = median(without) if without else 0.0
    ratios = [each / base for each in seconds(other)] if base else []
    waits, before = waits_of(other), [known for known in map(waits_of, plain) if known is not None]
    lines = {line: count - max((known.get(line, 0) for known in before), default=0) for line, count in (waits or {}).items()}
    return Cost(
        other.way.name,
        median(ratios) if ratios else None,
        min(ratios, default=None),
        max(ratios, default=None),
        None if waits is None or not before else most(other) - max(map(most, plain)),
        {line: count for line, count in lines.items() if count > 0},
        further(plain, other, "device_memory"),
        further(plain, other, "host_memory") or 0,
    )


def most(trained: Trained) -> int:
    """Return the waits of the rank with most, in its counted step."""
    return max((sum((seen.waits or {}).values()) for seen in trained.witnessed), default=0)


def waits_of(trained: Trained) -> Mapping[str, int] | None:
    """Return the line of code to the most waits of a rank in its counted step; None where a device does not tell."""
    waits: dict[str, int] = {}
    for seen in trained.witnessed:
        if seen.waits is None:
            return None
        waits |= {line: max(count, waits.get(line, 0)) for line, count in seen.waits.items()}
    return waits


def further(plain: Sequence[Trained], other: Trained, memory: str) -> int | None:
    """Return how much higher the peak of a ``memory`` is than without hooks, of the rank with most; None where a rank does not know it."""
    peaks = [[getattr(seen, memory) for seen in trained.witnessed] for trained in (other, *plain)]
    if any(None in of_ranks for of_ranks in peaks):
        return None
    first, *others = map(max, peaks)
    return int(first - max(others))
