"""MindFormers' own local norms, logged with ``runner_wrapper.local_norm: True``: of each parameter one squared sum, with no name.

They have the order of the optimizer's groups, and are of gradients before data-parallel reduction and clipping (``LocalNorm`` in its
``wrapper.py``; ``_get_loss_output`` logs them just above the step's own line). A record of the same model gives the names; the logged
numbers of elements show whether the model is the same.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from align_hooks.errors import RecordError
from align_hooks.evidence.logs import COUNT, DIGITS, half_of_last_digit
from align_hooks.record.reader import Run

BLOCK = re.compile(r"\bnorm_size: [(\[](?P<sizes>[^()\[\]\n]*)[)\]]\s*\nlocal_norm:\s*\n\[(?P<sums>[^\[\]{|]*)\]")
NUMBER = re.compile(rf"(?:{DIGITS}|nan|inf)\Z")
Norms: TypeAlias = Mapping[int, Mapping[str, float]]
SEVERAL, ALONE = "'use_parallel': True", "'use_parallel': False"
"""Texts of the configuration that MindFormers prints at its start, but not into its own log file."""


def local_norms(text: str, lines: Sequence[tuple[int, int]], names: Run, log: str) -> tuple[Norms, float, list[str]]:
    """Return the local norms of a log (squared sums by step and canonical name), a norm's relative resolution, and notes.

    :param lines: the number and the step of every line of a step, ascending.
    :param names: a record of the same model by MindFormers.
    :raises RecordError: the log has no local norms, two of a step, those of one rank of several, or those of another model.
    """
    if SEVERAL in text:
        why = "whose local norms are of gradients not yet reduced; give the log of a run on one"
        raise RecordError(f"{log} is of one of several ranks, {why}")
    order, coarsest, line, before = ordered(names), 0.0, 1, 0
    by_step: dict[int, dict[str, float]] = {}
    for block in BLOCK.finditer(text):
        line, before = line + text.count("\n", before, block.start()), block.start()
        after = bisect.bisect(lines, (line, math.inf))
        if after == len(lines):  # the log ends before the step's own line
            break
        squared, step = _named(block, order, f"{log}:{line}", names), lines[after][1]
        if repr(by_step.setdefault(step, squared)) != repr(squared):
            others = f"other local norms of iteration {step + 1} than stand above"
            raise RecordError(f"{log}:{line} has {others}: give the log of one run, and one rank")
        coarsest = max([coarsest, *map(coarse, block["sums"].split())])
    if not by_step:
        broken = next((line for line in text.splitlines() if "norm_size:" in line), "")
        why = f"its line {broken.strip()[:80]!r} cannot be read" if broken else "MindFormers logs them with runner_wrapper.local_norm: True"
        raise RecordError(f"{log} has no local norms; {why}")
    unsaid = "nothing in the log says that it is of a run on one rank: of several, MindFormers logs norms of gradients not yet reduced"
    return by_step, coarsest, [] if ALONE in text else [unsaid]


def _named(block: re.Match[str], order: Mapping[str, int], where: str, names: Run) -> dict[str, float]:
    """Return one step's squared sums by canonical name."""
    sizes = [int(size) for size in re.findall(COUNT, block["sizes"])]
    if len(sizes) != len(order):
        counts = f"{len(sizes)} parameters, the model of {names.path} has {len(order)}"
        raise RecordError(f"{where} has local norms of {counts}: name another record")
    for (name, elements), size in zip(order.items(), sizes, strict=True):
        if elements != size:
            raise RecordError(f"{where} has {size} elements where {name} of {names.path} has {elements}: name a record of the same model")
    words = block["sums"].split()
    if wrong := next((word for word in words if not NUMBER.match(word)), None):
        why = "numpy prints no more than a thousand numbers" if wrong == "..." else "which is no sum of squares"
        raise RecordError(f"{where} holds {wrong[:40]!r} among its local norms, {why}; nothing can be made of them")
    if len(words) != len(order):
        raise RecordError(f"{where} has {len(words)} local norms of {len(order)} parameters; give a log that is whole")
    return dict(zip(order, map(float, words), strict=True))


def ordered(names: Run) -> dict[str, int]:
    """Return canonical name to number of elements of every trained tensor, in the optimizer's order; raises RecordError where unknown."""
    if names.facts.side != "ms" or names.world_size != 1:
        raise RecordError(f"{names.path} is no record by MindFormers on one rank, whose order its local norms have; name one with --names")
    shards = {shard.name: shard for shard in names.shards(0) if shard.trainable}
    listed = list(names.facts.optimizer.by_parameter()) if names.facts.optimizer else []
    native: dict[str, str] = {}
    for name, shard in shards.items():
        if (first := native.setdefault(shard.native, name)) != name:
            both = f"{shard.native} holds {first} and {name} as one, and the log has one number of both"
            raise RecordError(f"{names.path}: {both}; it cannot tell")
    return {name: shards[name].elements for name in listed if name in shards}


def coarse(word: str) -> float:
    """Return the relative resolution of a norm from a printed squared sum; 0 where unknown."""
    half, value = half_of_last_digit(word), abs(float(word))
    return half / 2 / value if half and value else 0.0
