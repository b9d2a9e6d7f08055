"""Losses, gradient norms and rates of every step, as Megatron-LM and MindFormers print them.

A log says less than a record, and not always what it seems to. Megatron-LM prints the learning rate of the *next* step. From 0.16 on the
loss that it prints after the second iteration is the mean of the first two, because it prints after the first without starting the mean
anew (``training_log`` with ``is_first_iteration``); these versions are known by the microseconds that they print. Each row of ours has the
numbers of its own step, and None where a log does not say.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from align_hooks.errors import RecordError
from align_hooks.evidence.rows import Row, Scalars

COUNT = r"[0-9]{1,18}"
"""A number of steps. Digits of other scripts do not count, nor numbers that no run reaches."""
DIGITS = r"[0-9]{1,400}\.?[0-9]{0,400}(?:[eE][-+]?[0-9]{1,3})?"
"""A number as a framework prints it; the longest is the largest double without an exponent."""
MEGATRON_LINE = re.compile(rf"\[(?P<when>[0-9:. -]+)\]\s+iteration\s+(?P<step>{COUNT})/\s*{COUNT} \|(?P<rest>.*)")
MINDFORMERS_LINE = re.compile(rf"\{{ Epoch:\[\s*(?P<epoch>{COUNT})/.*?step:\[\s*(?P<step>{COUNT})/\s*(?P<steps>{COUNT})\], (?P<rest>.*)")
NUMBER = rf"\[?\s*([-+]?(?:{DIGITS}(?![0-9.eE])|nan|inf))"
TIMED = re.compile(r"(elapsed time per iteration \(ms\)|per_step_time|throughput[^:|,]*|samples/s)\s*:?\s*[\d.]+")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
Printed: TypeAlias = tuple[float, float] | None
"""A number of a log and half of what its last digit stands for; None where the log has none."""


@dataclass(frozen=True)
class Log(Scalars):
    """What a log says, without a gap. ``lines`` are the numbers of the lines of steps, each with its step, twice where a step stands
    twice."""

    lines: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a step: the step from 0, the line's number, its numbers, and whether it begins a mean that the next line goes on with."""

    step: int
    number: int
    text: str
    goes_on: bool = False


def read_log(text: str, name: str) -> Log:
    """The log of either framework.

    :raises RecordError: it holds no step, not every step, or a step twice and differently.
    """
    lines = list(enumerate(COLOURS.sub("", text).split("\n"), 1))
    for side, rows_of in (("torch", _megatron_rows), ("ms", _mindformers_rows)):
        parsed = list(_of_steps(lines, side))
        if once := _once(parsed, name):
            _refuse_gaps(once, name, side)
            return replace(rows_of(once), lines=[(line.number, line.step) for line in parsed])
    raise RecordError(
        f"{name} holds no line of a step, neither Megatron-LM's (iteration 1/ 100 | ...) nor MindFormers' ({{ Epoch:[ 1/ 1], ...)"
    )


def _of_steps(lines: Iterable[tuple[int, str]], side: str) -> Iterator[Line]:
    for number, line in lines:
        if side == "torch" and (match := MEGATRON_LINE.search(line)):
            yield Line(int(match["step"]) - 1, number, match["rest"], goes_on="." in match["when"])
        if side == "ms" and (match := MINDFORMERS_LINE.search(line)):
            yield Line((int(match["epoch"]) - 1) * int(match["steps"]) + int(match["step"]) - 1, number, match["rest"])


def _once(lines: Iterable[Line], name: str) -> list[Line]:
    """Each step once; a line that stands twice, from two handlers say, counts once."""
    by_step: dict[int, Line] = {}
    for line in lines:
        first = by_step.setdefault(line.step, line)
        if TIMED.sub("", first.text) != TIMED.sub("", line.text):
            raise RecordError(
                f"{name} has two runs in it: lines {first.number} and {line.number} are both of iteration {line.step + 1}, and differ; "
                f"give the log of one"
            )
    return [by_step[step] for step in sorted(by_step)]


def _refuse_gaps(lines: list[Line], name: str, side: str) -> None:
    for line, following in itertools.pairwise(lines):
        if following.step != line.step + 1:
            way = "--log-interval 1: its losses are means of several steps" if side == "torch" else "per_print_times: 1"
            raise RecordError(
                f"{name}:{following.number} goes from iteration {line.step + 1} to {following.step + 1}; "
                f"record or print every step, with {way}"
            )


def _megatron_rows(lines: list[Line]) -> Log:
    rows: list[Row] = []
    resolution: dict[str, float] = {}
    for before, line in zip([None, *lines], lines, strict=False):
        loss, skipped = _value(line.text, "lm loss: "), _value(line.text, "number of skipped iterations:")
        if before is lines[0] and line.goes_on:
            loss, skipped = _of_the_second(before, line)
        rate = _value(before.text, r"(?<!decoupled )learning rate: ") if before else None
        if rate:  # relative; of 0 every digit is known
            rate = rate[0], rate[1] / abs(rate[0]) if rate[0] else 0.0
        samples = _value(line.text, "consumed samples:")
        rows.append(
            _row(line.step, _noted("loss", loss, resolution), skipped=bool(skipped and skipped[0]))
            | {
                "grad_norm": _noted("grad_norm", _value(line.text, "grad norm: "), resolution),
                "learning_rate": _noted("learning_rate", rate, resolution),
                "loss_scale": _number(line.text, "loss scale: "),
                "consumed_samples": int(samples[0]) if samples and math.isfinite(samples[0]) else None,
            }
        )
    notes = ["Megatron-LM prints the learning rate of the step after: that of the first step is not known"]
    if len(lines) > 1 and lines[1].goes_on:
        notes.append("the loss of the second step is worked out of what 0.16 and newer print there, the mean of the first two")
    return Log("torch", rows, resolution, notes)


def _of_the_second(before: Line, line: Line) -> tuple[Printed, Printed]:
    """Loss of the second step, of which the mean of both is printed, and how many of it alone were skipped."""
    first, mean = (_value(each.text, "lm loss: ") for each in (before, line))
    skipped_first, skipped = (_number(each.text, "number of skipped iterations:") for each in (before, line))
    alone = None if skipped is None or skipped_first is None else (skipped - skipped_first, 0.5)
    if first is None or mean is None or skipped:
        return None, alone
    return (2 * mean[0] - first[0], 2 * mean[1] + first[1]), alone


def _mindformers_rows(lines: list[Line]) -> Log:
    rows: list[Row] = []
    resolution: dict[str, float] = {}
    for line in lines:
        overflow = re.search(r"overflow cond: \[?\s*(True|False)", line.text)
        loss = _noted("loss", _value(line.text, "loss: ?"), resolution)
        rows.append(
            _row(line.step, loss, skipped=bool(overflow and overflow[1] == "True"))
            | {
                "grad_norm": _noted("grad_norm", _value(line.text, "global_norm: "), resolution),
                "learning_rate": _number(line.text, r"\blr: "),  # every digit of an fp32 number (numpy.array2string): nothing is open
                "loss_scale": _number(line.text, "loss_scale: "),
                "consumed_samples": None,
            }
        )
    note = "MindFormers prints the loss of its own rank, which is that of the run where there is one rank"
    return Log("ms", rows, resolution, [note])


def _row(step: int, loss: float | None, *, skipped: bool) -> Row:
    nothing = dict.fromkeys(("objective_loss", "valid_tokens", "clip_coefficient", "seconds"))
    return {"step": step, "loss": loss, "skipped": skipped} | nothing


def _noted(quantity: str, value: Printed, resolution: MutableMapping[str, float]) -> float | None:
    """The number, whose resolution is kept where it is the coarsest of its quantity."""
    if value is None:
        return None
    resolution[quantity] = max(resolution.get(quantity, 0.0), value[1])
    return value[0]


def _number(text: str, before: str) -> float | None:
    value = _value(text, before)
    return value and value[0]


def _value(text: str, before: str) -> Printed:
    """The number behind some words, and half of its last digit."""
    match = re.search(before + r"\s*" + NUMBER, text)
    return (float(match[1]), half_of_last_digit(match[1])) if match else None


def half_of_last_digit(word: str) -> float:
    """Half of what the last digit of a printed number stands for; 0 where it is not finite."""
    digits, _, power = word.lower().partition("e")
    half = float(f"5e{int(power or 0) - len(digits.partition('.')[2]) - 1}")
    return half if math.isfinite(float(word)) and math.isfinite(half) else 0.0
