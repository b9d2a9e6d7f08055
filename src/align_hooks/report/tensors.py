"""The tensors of a page: the rows of its table, and pictures of the places in the model where errors arise."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import TypeAlias

from align_hooks.comparison.finding import Finding, Unit
from align_hooks.comparison.metrics.model_positions import place
from align_hooks.comparison.stage_result import StageInfo
from align_hooks.comparison.stages import registry
from align_hooks.comparison.verdict import ComparisonResult
from align_hooks.record.format.schema import Table
from align_hooks.report.console import plain
from align_hooks.report.curve_plots import rounded

PICTURED = tuple(stage for stage in registry.LADDER if stage.is_pictured)
"""Stages that make a picture of the model."""
TENSORS = tuple(stage for stage in registry.LADDER if stage.is_of_tensors)
"""Stages with one finding for each tensor; PICTURED are the first of them."""
WITHIN, OF_THE_WORST = 0.1, (1e-3, 1e-2, 1 / 30, 0.1, 1 / 3, 2 / 3)
"""Bounds of the colours: of error over limit up to 1, and of its share of the picture's largest above 1."""
STARS, NEAR = 3, 0.8
"""At most STARS cells of a picture are framed, those within NEAR of its worst; where more are so near, none is."""


class Bin(IntEnum):
    """A colour of the picture: error over limit up to 1, and above 1 its share of the largest, as an error starts where it is largest."""

    EQUAL = 0
    FAR_WITHIN = 1
    WITHIN = 2
    THOUSANDTH = 3
    HUNDREDTH = 4
    THIRTIETH = 5
    TENTH = 6
    THIRD = 7
    TWO_THIRDS = 8
    WORST = 9
    NOT_FINITE = 10


Rows: TypeAlias = Sequence[tuple[StageInfo, Finding]]
"""Findings of tensors, each with its stage."""


def tensor_rows(comparison: ComparisonResult) -> Rows:
    """Return every finding of a tensor: the rows of the table."""
    return [
        (result.stage, finding)
        for result in comparison.stages
        if result.stage in TENSORS
        for finding in result.findings
        if finding.name and finding.error is not None and finding.unit is Unit.RELATIVE
    ]


def columns(rows: Rows) -> Table:
    """Return the rows column by column, for the page's script; names once, stages by their place in :data:`TENSORS`."""
    names = {name: index for index, name in enumerate(dict.fromkeys(finding.name for _, finding in rows))}
    numbers = ("error", "limit", "limit_ratio", "scale", "direction")
    return {
        "names": [plain(name) for name in names],
        "name": [names[finding.name] for _, finding in rows],
        "stage": [TENSORS.index(stage) for stage, _ in rows],
        "step": [finding.step for _, finding in rows],
        **{key: [rounded(getattr(finding, key), 7) for _, finding in rows] for key in numbers},
    }


def pictures_of(comparison: ComparisonResult, rows: Rows) -> list[Table]:
    """Return a picture of each stage that has tensors; shown first is the deciding stage, else the last differing one."""
    with_rows = {stage for stage, _ in rows}
    pictured = [stage for stage in PICTURED if stage in with_rows]
    beyond = {stage for stage, finding in rows if finding.limit_ratio > 1}
    differing = [stage for stage in pictured if stage in beyond]
    deciding = [stage for stage in pictured if comparison.first and stage is comparison.first.stage]
    walked = [stage for stage in differing if stage in (registry.activation_gradients, registry.activations)]
    reduced = [stage for stage in differing if stage in (registry.gradients, registry.local_norms)]  # gradients say more than norms
    usual = [stage for stage in pictured if stage is registry.gradients]
    order = deciding or walked[:1] or reduced or differing or usual or pictured
    origins = {result.stage: {origin.finding.name for origin in result.origins} for result in comparison.stages}
    return [{**picture(stage, rows, origins.get(stage, ())), "chosen": stage is order[-1]} for stage in pictured]


def picture(stage: StageInfo, rows: Rows, origins: Collection[str] = ()) -> Table:
    """Return error over limit by layer and kind of parameter.

    A cell is its column, its row, the index in ``rows`` of the worst finding in it, the colour, and whether it is framed: the
    places in ``origins``, or the worst of all where these are not known.
    """
    places = {index: place(finding.name) for index, (row_stage, finding) in enumerate(rows) if row_stage is stage}
    cells: dict[tuple[str, str], int] = {}
    for index, where in places.items():
        worst_index = cells.setdefault((where.column, where.kind), index)
        if rows[index][1].limit_ratio > rows[worst_index][1].limit_ratio:
            cells[where.column, where.kind] = index
    ratios = {index: rows[index][1].limit_ratio for index in cells.values()}
    largest = max(filter(math.isfinite, ratios.values()), default=0.0)
    across = list(dict.fromkeys(where.column for where in sorted(places.values())))
    down = list(dict.fromkeys(where.kind for where in sorted(places.values(), key=lambda where: (where.order, where.kind))))
    near = [index for index, ratio in ratios.items() if ratio > max(1.0, NEAR * largest)]
    starred = [index for index in cells.values() if rows[index][1].name in origins] or (near if len(near) <= STARS else [])
    return {
        "title": stage.title,
        "stage": TENSORS.index(stage),
        "columns": across,
        "rows": down,
        "cells": [
            [across.index(column), down.index(kind), index, bin_of(rows[index][1], largest), index in starred]
            for (column, kind), index in cells.items()
        ],
    }


def bin_of(finding: Finding, largest: float) -> Bin:
    """Return the colour of a finding; ``largest`` is the largest finite limit_ratio of its picture."""
    if finding.error is None or not math.isfinite(finding.error):
        return Bin.NOT_FINITE
    if finding.limit_ratio <= 1:
        return Bin.EQUAL if finding.error == 0 else Bin.FAR_WITHIN if finding.limit_ratio <= WITHIN else Bin.WITHIN
    return Bin(Bin.THOUSANDTH + bisect_left(OF_THE_WORST, finding.limit_ratio / largest if math.isfinite(finding.limit_ratio) else 1.0))
