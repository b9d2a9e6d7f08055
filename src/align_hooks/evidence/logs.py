"""Losses, gradient norms and rates of every step, as Megatron-LM and MindFormers print them.

Megatron-LM prints the learning rate of the *next* step. From 0.16 on the loss that a process prints after its second iteration is the mean
of its first two, because it prints after the first without starting the mean anew (``training_log`` with ``is_first_iteration``); these
versions are known by the microseconds that they print. A process begins with iteration 1, or with the one after its checkpoint. Each row
of ours has the numbers of its own step, and None where a log does not have them.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import Enum
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from align_hooks.errors import RecordError
from align_hooks.evidence.recording import Row, Scalars, row_of

COUNT = r"[0-9]{1,18}"
"""A number of steps, in ASCII digits."""
DIGITS = r"[0-9]{1,400}(?:\.[0-9]{0,400})?(?:[eE][-+]?[0-9]{1,3})?"
"""A number as a framework prints it; the longest is the largest double without an exponent."""
MEGATRON_LINE = re.compile(rf"\[(?P<when>[0-9:. -]+)\]\s+iteration\s+(?P<step>{COUNT})/\s*{COUNT} \|(?P<rest>.*)")
MINDFORMERS_LINE = re.compile(
    rf"\{{ (?:Epoch:\[\s*(?P<epoch>{COUNT})/[^{{]*?)?step:\[\s*(?P<step>{COUNT})/\s*(?P<steps>{COUNT})\], (?P<rest>.*)"
)
"""The PyNative trainer (2.0, 2.1) prints no epoch, and steps of the whole training."""
PYNATIVE_NORM = "grad_norm: "
"""The name of the norm in the lines of MindFormers' PyNative trainer; its other trainer prints ``global_norm``."""
NUMBER = rf"(?:\[\s*)?([-+]?(?:{DIGITS}(?![0-9.eE])|nan|inf))"
START = "[before the start of training step]"
"""The text that a process of Megatron-LM prints once, on its first rank, before its first iteration."""
RESTART = 2.0
"""Least seconds from the end of a process to the first iteration of the next."""
LINE = re.compile(r"^(.{0,65536}).*", re.MULTILINE)
"""A line, and as many of its characters as a line of a step may have."""
TIMED = re.compile(r"(elapsed time per iteration \(ms\)|per_step_time|throughput[^:|,]{0,60}|samples/s)\s{0,8}:?\s{0,8}[\d.]+")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
Printed: TypeAlias = tuple[float, float] | None
"""A number of a log, and half a unit of its last digit; None where the log has no number."""


class TrainingLog(Scalars, frozen=True):
    """The rows of a log, without a gap."""

    lines: list[tuple[int, int]] = field(default_factory=list)
    """Number and step of each line of a step, repeated ones included."""


class Line(Struct, frozen=True):
    """A line of a step."""

    step: int
    """Number of the step, from 0."""
    number: int
    """Number of the line in the log, from 1."""
    text: str
    """The numbers that were printed."""
    when: str = ""
    """When Megatron-LM printed the line, with microseconds since 0.16."""
    started: bool = False
    """Whether the log shows a process to begin between the line before and this one."""
    repeated: bool = False
    """Whether a second process, which began with this step, printed its line again."""


class LossOf(Enum):
    """The steps whose mean a line of Megatron-LM has as its loss."""

    THIS_STEP = 1
    FIRST_TWO = 2
    UNKNOWN = 3


def read_log(text: str, name: str) -> TrainingLog:
    """Read the log of either framework; raises RecordError unless it has every step, and no step twice with different numbers."""
    text = COLOURS.sub("", text)
    for side, rows_of in (("torch", _megatron_rows), ("ms", _mindformers_rows)):
        parsed = list(_of_steps(text, side))
        if once := _once(parsed, name):
            for line, following in itertools.pairwise(once):
                if following.step != line.step + 1:
                    way = "--log-interval 1: its losses are means of several steps" if side == "torch" else "per_print_times: 1"
                    gap = f"goes from iteration {line.step + 1} to {following.step + 1}"
                    raise RecordError(f"{name}:{following.number} {gap}; record or print every step, with {way}")
            return replace(rows_of(once), lines=[(line.number, line.step) for line in parsed])
    raise RecordError(
        f"{name} holds no line of a step, neither Megatron-LM's (iteration 1/ 100 | ...) nor MindFormers' "
        f"({{ Epoch:[ 1/ 1], ... or {{ step:[ 1/ 1], ...)"
    )


def _of_steps(text: str, side: str) -> Iterator[Line]:
    started = False
    for number, found in enumerate(LINE.finditer(text), 1):
        line = found[1]
        started |= START in line
        if side == "torch" and (match := MEGATRON_LINE.search(line)):
            yield Line(int(match["step"]) - 1, number, match["rest"], match["when"].strip(), started)
            started = False
        if side == "ms" and (match := MINDFORMERS_LINE.search(line)):
            yield Line((int(match["epoch"] or 1) - 1) * int(match["steps"]) + int(match["step"]) - 1, number, match["rest"])


def _once(lines: Iterable[Line], name: str) -> list[Line]:
    """Return one line for each step: two handlers or two processes may have printed the same line."""
    by_step: dict[int, Line] = {}
    for line in lines:
        first = by_step.get(line.step, line)
        if TIMED.sub("", first.text) != TIMED.sub("", line.text):
            both = f"lines {first.number} and {line.number} are both of iteration {line.step + 1}, and differ"
            raise RecordError(f"{name} has two runs in it: {both}; give the log of one")
        repeated = first.repeated or line.when != first.when
        by_step[line.step] = replace(line, started=first.started or line.started, repeated=repeated)
    return [by_step[step] for step in sorted(by_step)]


def _megatron_rows(lines: list[Line]) -> TrainingLog:
    rows: list[Row] = []
    resolution: dict[str, float] = {}
    begins = _beginnings(lines)
    means = list(_means(lines, begins))
    for before, line, begun, mean in zip([None, *lines], lines, begins, means, strict=False):
        loss, skipped = _loss_of(before, line, mean)
        # a process that resumes may have been given another schedule than the one before it
        rate = _value(before.text, r"(?<!decoupled )learning rate: ") if before and begun is False else None
        if rate:  # relative; of 0 every digit is known
            rate = rate[0], rate[1] / abs(rate[0]) if rate[0] else 0.0
        scale, samples = _number(line.text, "loss scale: "), _number(line.text, "consumed samples:")
        consumed = int(samples) if samples is not None and math.isfinite(samples) else None
        printed = {"loss": loss, "grad_norm": _value(line.text, "grad norm: "), "learning_rate": rate}
        rows.append(_row(line.step, printed, resolution, skipped=skipped, loss_scale=scale, consumed_samples=consumed))
    notes = ["Megatron-LM prints the learning rate of the step after: that of the first step is not known"]
    if LossOf.FIRST_TWO in means:
        notes.append("the loss of a second step is worked out of what 0.16 and newer print there, the mean of the first two")
    if unknown := [line.step + 1 for line, mean in zip(lines, means, strict=True) if mean is LossOf.UNKNOWN]:
        listed = ", ".join(map(str, unknown[:4])) + (" and more" if unknown[4:] else "")
        why = "it may be the mean of several, for the log does not show with which a process began"
        notes.append(f"no loss is known of iteration {listed}: {why}")
    if set(means) != {LossOf.UNKNOWN}:  # a record begins with a step whose loss is known
        rows = list(itertools.compress(rows, itertools.accumulate(mean is not LossOf.UNKNOWN for mean in means)))
    return TrainingLog("torch", rows, resolution, notes)


def _beginnings(lines: Sequence[Line]) -> list[bool | None]:
    """Return whether each line is the first of a process; None where the log does not show it."""
    shown = any(line.started for line in lines)  # without this text, only iteration 1 and short times between lines show it
    first = lines[0]
    begins: list[bool | None] = [first.started or first.repeated or first.step == 0 or None]
    for before, line in itertools.pairwise(lines):
        took, passed = _number(line.text, r"elapsed time per iteration \(ms\):"), math.inf
        with suppress(ValueError):
            passed = (datetime.fromisoformat(line.when) - datetime.fromisoformat(before.when)).total_seconds()
        paused = took is None or not passed - took / 1000 < RESTART  # long enough for another process to begin
        begins.append(True if line.started or line.repeated else False if shown or not paused else None)
    return begins


def _means(lines: Sequence[Line], begins: Sequence[bool | None]) -> Iterator[LossOf]:
    """Yield the steps of which the loss of each line is the mean."""
    after = {True: LossOf.FIRST_TWO, False: LossOf.THIS_STEP, None: LossOf.UNKNOWN}
    for line, before, begun in zip(lines, [None, *begins], begins, strict=False):
        if "." not in line.when:  # before 0.16: the steps since the line before, of which a single line does not show the number
            yield LossOf.UNKNOWN if len(lines) == 1 and line.step else LossOf.THIS_STEP
        else:  # the first of a process is its own, and so is what follows any but a first, whether it is one or not
            yield LossOf.THIS_STEP if begun or (begun is None and before is False) else after[before]


def _loss_of(before: Line | None, line: Line, mean: LossOf) -> tuple[Printed, bool | None]:
    """Return the loss of a line's own step, and whether the step was skipped; None for either where unknown."""
    loss, skips = _value(line.text, "lm loss: "), _number(line.text, "number of skipped iterations:") or 0
    if mean is LossOf.UNKNOWN:
        return None, None if skips else False
    if mean is LossOf.THIS_STEP or before is None:
        return None if skips else loss, bool(skips)  # a skipped step adds nothing, and since 0.17 the mean of nothing prints as 0
    first, skips_before = _value(before.text, "lm loss: "), _number(before.text, "number of skipped iterations:") or 0
    if skips - skips_before or loss is None:
        return None, bool(skips - skips_before)
    if skips_before:
        return loss, False
    return first and (2 * loss[0] - first[0], 2 * loss[1] + first[1]), False


def _mindformers_rows(lines: list[Line]) -> TrainingLog:
    rows: list[Row] = []
    resolution: dict[str, float] = {}
    if PYNATIVE_NORM in lines[0].text:
        return _pynative_rows(lines)
    for line in lines:
        overflow = re.search(r"overflow cond: \[?\s*(True|False)", line.text)
        skipped = bool(overflow and overflow[1] == "True")
        # a rate has every digit of an fp32 number (numpy.array2string), so that nothing of it is open
        rate, scale = _number(line.text, r"\blr: "), _number(line.text, "loss_scale: ")
        printed = {"loss": _value(line.text, "loss: ?"), "grad_norm": _value(line.text, "global_norm: ")}
        rows.append(_row(line.step, printed, resolution, skipped=skipped, learning_rate=rate, loss_scale=scale))
    note = "MindFormers prints the loss of its own rank, which is that of the run where there is one rank"
    return TrainingLog("ms", rows, resolution, [note])


def _pynative_rows(lines: list[Line]) -> TrainingLog:
    rows: list[Row] = []
    resolution: dict[str, float] = {}
    for before, line in zip([None, *lines], lines, strict=False):
        rate = _value(before.text, r"\blr: ") if before else None
        if rate:  # relative; of 0 every digit is known
            rate = rate[0], rate[1] / abs(rate[0]) if rate[0] else 0.0
        samples = _number(line.text, "consumed_samples: ")
        norm = _value(line.text, PYNATIVE_NORM)
        printed = {"loss": _value(line.text, r"(?<![a-z_])loss: "), "grad_norm": norm, "learning_rate": rate}
        consumed = None if samples is None else int(samples)
        skipped = False if norm is not None and math.isfinite(norm[0]) else None  # it may skip where the norm is not finite
        rows.append(_row(line.step, printed, resolution, skipped=skipped, consumed_samples=consumed))
    notes = ["MindFormers' PyNative trainer prints the learning rate of the step after: that of the first step is not known"]
    return TrainingLog("ms", rows, resolution, notes)


def _row(step: int, printed: Mapping[str, Printed], resolution: MutableMapping[str, float], **known: float | bool | None) -> Row:
    """Return a row of ``printed`` and ``known`` values, and keep the coarsest resolution of each quantity that is printed."""
    for quantity, value in printed.items():
        if value is not None:
            resolution[quantity] = max(resolution.get(quantity, 0.0), value[1])
    return row_of(step, **{quantity: value and value[0] for quantity, value in printed.items()}, **known)


def _number(text: str, before: str) -> float | None:
    value = _value(text, before)
    return value and value[0]


def _value(text: str, before: str) -> Printed:
    """Return the number behind some words, and half a unit of its last digit."""
    match = re.search(before + r"\s*" + NUMBER, text)
    return (float(match[1]), half_of_last_digit(match[1])) if match else None


def half_of_last_digit(word: str) -> float:
    """Return half a unit of the last digit of a printed number; 0 for one that is not finite."""
    digits, _, power = word.lower().partition("e")
    half = float(f"5e{int(power or 0) - len(digits.partition('.')[2]) - 1}")
    return half if math.isfinite(float(word)) and math.isfinite(half) else 0.0
