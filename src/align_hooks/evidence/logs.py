"""Losses, gradient norms and rates of every step, as Megatron-LM and MindFormers print them.

A log says less than a record, and not always what it seems to: Megatron-LM prints the learning rate of the *next* step, and from 0.16 on
the loss that it prints after the second iteration is the mean of the first two, because it prints after the first without starting the
mean anew (``training_log`` with ``is_first_iteration``; those versions print microseconds, by which they are told apart). Here each row
holds what belongs to its step; what a log does not say is None.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from align_hooks.errors import RecordError

COUNT = r"[0-9]{1,18}"
"""A number of steps. Digits of other scripts and numbers that no run comes to are none."""
DIGITS = r"[0-9]{1,400}\.?[0-9]{0,400}(?:[eE][-+]?[0-9]{1,3})?"
"""A number as a framework prints one; the longest is the largest double without an exponent."""
MEGATRON_LINE = re.compile(rf"\[(?P<when>[0-9:. -]+)\]\s+iteration\s+(?P<step>{COUNT})/\s*{COUNT} \|(?P<rest>.*)")
MINDFORMERS_LINE = re.compile(rf"\{{ Epoch:\[\s*(?P<epoch>{COUNT})/.*?step:\[\s*(?P<step>{COUNT})/\s*(?P<steps>{COUNT})\], (?P<rest>.*)")
NUMBER = rf"\[?\s*([-+]?(?:{DIGITS}(?![0-9.eE])|nan|inf))"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Log:
    """What a log says. ``side`` is ``torch`` or ``ms``; ``rows`` are as a record keeps them, ascending and without a gap; ``lines`` are
    the numbers of the lines that tell of a step, and the step, also where one stands twice.

    ``resolution`` is half of the last printed digit of ``loss`` and ``grad_norm``, the largest of all rows, and that of ``learning_rate``
    relative to each; ``notes`` say what a reader should know.
    """

    side: str
    rows: list[Row]
    lines: list[tuple[int, int]]
    resolution: Mapping[str, float]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Line:
    """One line: the step from 0, where it stands, the rest of it, and whether it begins a mean that the next line goes on with."""

    step: int
    at: int
    text: str
    goes_on: bool = False


def read_log(text: str, name: str) -> Log:
    """The log of either framework.

    :raises RecordError: it holds no step, not every step, or a step twice and differently.
    """
    lines = list(enumerate(COLOURS.sub("", text).split("\n"), 1))
    for side, of_steps, rows_of in (("torch", _megatron, _megatron_rows), ("ms", _mindformers, _mindformers_rows)):
        told = list(of_steps(lines))
        if found := _once(told, name):
            _refuse_gaps(found, name, side)
            return replace(rows_of(found), lines=[(line.at, line.step) for line in told])
    raise RecordError(
        f"{name} holds no line of a step, neither Megatron-LM's (iteration 1/ 100 | ...) nor MindFormers' ({{ Epoch:[ 1/ 1], ...)"
    )


def _megatron(lines: Iterable[tuple[int, str]]) -> Iterator[Line]:
    for at, line in lines:
        if found := MEGATRON_LINE.search(line):
            yield Line(int(found["step"]) - 1, at, found["rest"], goes_on="." in found["when"])


def _mindformers(lines: Iterable[tuple[int, str]]) -> Iterator[Line]:
    for at, line in lines:
        if found := MINDFORMERS_LINE.search(line):
            yield Line((int(found["epoch"]) - 1) * int(found["steps"]) + int(found["step"]) - 1, at, found["rest"])


TIMED = re.compile(r"(elapsed time per iteration \(ms\)|per_step_time|throughput[^:|,]*|samples/s)\s*:?\s*[\d.]+")


def _once(lines: Iterable[Line], name: str) -> list[Line]:
    """Each step once; a line that stands twice, from two handlers say, is one."""
    found: dict[int, Line] = {}
    for line in lines:
        first = found.setdefault(line.step, line)
        if TIMED.sub("", first.text) != TIMED.sub("", line.text):
            raise RecordError(
                f"{name} has two runs in it: lines {first.at} and {line.at} are both of iteration {line.step + 1}, and differ; "
                f"give the log of one"
            )
    return [found[step] for step in sorted(found)]


def _refuse_gaps(lines: list[Line], name: str, side: str) -> None:
    for one, other in itertools.pairwise(lines):
        if other.step != one.step + 1:
            way = "--log-interval 1: its losses are means of several steps" if side == "torch" else "per_print_times: 1"
            raise RecordError(
                f"{name}:{other.at} goes from iteration {one.step + 1} to {other.step + 1}; record or print every step, with {way}"
            )


def _megatron_rows(lines: list[Line]) -> Log:
    rows, widest = [], _Widest()
    for before, line in zip([None, *lines], lines, strict=False):
        loss, skipped = _value(line.text, "lm loss: "), _value(line.text, "number of skipped iterations:")
        if before is lines[0] and line.goes_on:
            loss, skipped = _of_the_second(before, line)
        scale, rate = _value(line.text, "loss scale: "), _value(before.text, r"(?<!decoupled )learning rate: ") if before else None
        rows.append(
            _row(line.step, widest("loss", loss), skipped=bool(skipped and skipped[0]))
            | {
                "grad_norm": widest("grad_norm", _value(line.text, "grad norm: ")),
                "learning_rate": widest.relative("learning_rate", rate),
                "loss_scale": scale and scale[0],
                "consumed_samples": _whole(line.text, "consumed samples:"),
            }
        )
    notes = ["Megatron-LM prints the learning rate of the step after: that of the first step is not known"]
    if len(lines) > 1 and lines[1].goes_on:
        notes.append("the loss of the second step is worked out of what 0.16 and newer print there, the mean of the first two")
    return Log("torch", rows, [], widest.found, notes)


def _of_the_second(before: Line, line: Line) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    """Loss of the second step, of which the mean of both is printed, and how many of it alone were skipped."""
    first, mean = (_value(one.text, "lm loss: ") for one in (before, line))
    both, one = (_value(one.text, "number of skipped iterations:") for one in (line, before))
    alone = (both[0] - one[0], 0.5) if both and one else None
    if first is None or mean is None or (both and both[0]):
        return None, alone
    return (2 * mean[0] - first[0], 2 * mean[1] + first[1]), alone


def _mindformers_rows(lines: list[Line]) -> Log:
    rows, widest = [], _Widest()
    for line in lines:
        overflow = re.search(r"overflow cond: \[?\s*(True|False)", line.text)
        scale, rate = _value(line.text, "loss_scale: "), _value(line.text, r"\blr: ")
        rows.append(
            _row(line.step, widest("loss", _value(line.text, "loss: ?")), skipped=bool(overflow and overflow[1] == "True"))
            | {
                "grad_norm": widest("grad_norm", _value(line.text, "global_norm: ")),
                "learning_rate": rate and rate[0],  # as many digits as an fp32 number takes (numpy.array2string): nothing is open
                "loss_scale": scale and scale[0],
                "consumed_samples": None,
            }
        )
    note = "MindFormers prints the loss of its own rank, which is that of the run where there is one rank"
    return Log("ms", rows, [], widest.found, [note])


def _row(step: int, loss: float | None, *, skipped: bool) -> Row:
    nothing = dict.fromkeys(("objective_loss", "valid_tokens", "clip_coefficient", "seconds"))
    return {"step": step, "loss": loss, "skipped": skipped} | nothing


class _Widest:
    """Keeps the coarsest resolution of each quantity that passes through."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}

    def __call__(self, quantity: str, value: tuple[float, float] | None) -> float | None:
        if value is None:
            return None
        self.found[quantity] = max(self.found.get(quantity, 0.0), value[1])
        return value[0]

    def relative(self, quantity: str, value: tuple[float, float] | None) -> float | None:
        """The same where the resolution is kept relative to the value; of 0 every digit is known."""
        if value is None:
            return None
        return self(quantity, (value[0], value[1] / abs(value[0]) if value[0] else 0.0))


def _value(text: str, before: str) -> tuple[float, float] | None:
    """The number behind some words, and half of its last digit."""
    found = re.search(before + r"\s*" + NUMBER, text)
    if found is None:
        return None
    return float(found[1]), half_of_last_digit(found[1])


def half_of_last_digit(word: str) -> float:
    """Half of what the last digit of a printed number stands for; 0 of a number that is not finite, or is none."""
    digits, _, power = word.lower().partition("e")
    half = float(f"5e{int(power or 0) - len(digits.partition('.')[2]) - 1}")
    return half if math.isfinite(float(word)) and math.isfinite(half) else 0.0


def _whole(text: str, before: str) -> int | None:
    found = _value(text, before)
    return int(found[0]) if found is not None and math.isfinite(found[0]) else None
