"""The points of a forward pass at which values and their gradients are recorded: their names, their order, and what each is made from.

A point is named as Hugging Face names the module whose output it is, ``model.layers.0.self_attn.q_proj``. What no module puts out has a
name of ours in the same place, ``model.layers.0.residual``. A value is ``[rows, sequence, width]``, whatever the framework's order of axes.
Its gradient, the total derivative of the objective by it, has the point's name with :data:`GRADIENT` behind it.

Points of a family stand in its order of a forward pass. A point that a side does not have, or that a filter left out, is passed over: then
a later point is made from what that one is made from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from align_hooks.data_file import sections

GRADIENT = "#gradient"
"""Suffix of the name of a gradient; no name of a module has it."""
BLOCK = "."
"""The kind of a block's own output, which has the block's name alone."""
BEFORE = "<"
"""What stands, in :attr:`PointSpec.reads`, for the output of the block before, or of the embedding."""


@dataclass(frozen=True, slots=True)
class PointSpec:
    """A kind of point: its ``name`` in a block, or in the model, and the kinds that it is made from (``points.txt``)."""

    name: str
    reads: tuple[str, ...] = ()


EMBEDDING, FINAL_NORM, LOGITS, TOKEN_LOSSES = "model.embed_tokens", "model.norm", "lm_head", "token_losses"
NORM, SECOND_NORM = "input_layernorm", "post_attention_layernorm"
LINES = (line.partition(" <- ") for line in sections(Path(__file__).parent / "points.txt")[""])
OF_BLOCK = tuple(PointSpec(name, tuple(reads.split())) for name, _, reads in LINES)
"""The kinds of a block, in the order of a forward pass."""
PREDICTING = ("enorm", "hnorm", "eh_proj", "shared_head.norm", "shared_head.head")
"""Kinds that a block alone has that predicts further tokens."""
ENDS = (PointSpec(FINAL_NORM, (BEFORE,)), PointSpec(LOGITS, (FINAL_NORM,)), PointSpec(TOKEN_LOSSES, (LOGITS,)))
"""The kinds behind the last block."""
BY_KIND = {kind.name: kind for kind in (*OF_BLOCK, *ENDS)}
ORDER = {kind.name: index for index, kind in enumerate(OF_BLOCK)}
LAST = {kind.name: index for index, kind in enumerate(ENDS)}
IN_BLOCK = re.compile(r"(?P<block>.*\blayers\.(?P<layer>\d{1,6}))(?:\.(?P<kind>.+))?")
EXPERT = re.compile(r"(?<=\.experts\.)\d{1,6}$")


@dataclass(frozen=True, slots=True, order=True)
class PointPosition:
    """Where a point stands in a forward pass; ``block`` is the name of its block, empty outside."""

    stage: int
    layer: int
    order: int
    expert: int
    name: str
    block: str = ""
    kind: str = ""


def place(name: str) -> PointPosition:
    """The place of a point, by its name without :data:`GRADIENT`; what no table knows stands behind what is known in its block."""
    if name == EMBEDDING or name.endswith("embedding"):
        return PointPosition(0, 0, 0, 0, name, kind=EMBEDDING)
    if name in LAST:
        return PointPosition(2, 0, LAST[name], 0, name, kind=name)
    found = IN_BLOCK.fullmatch(name)
    if found is None:
        return PointPosition(2, 0, len(LAST), 0, name, kind=name)
    kind = found["kind"] or BLOCK
    expert = EXPERT.search("." + kind)
    known = EXPERT.sub("*", "." + kind)[1:]
    return PointPosition(1, int(found["layer"]), ORDER.get(known, len(ORDER)), int(expert[0]) if expert else 0, name, found["block"], known)


def is_of_experts(name: str) -> bool:
    """Whether a point is the output of an expert, whose tokens have no order."""
    return EXPERT.search(name.removesuffix(GRADIENT)) is not None


def in_order(names: Iterable[str]) -> list[str]:
    """The names of points in the order of a forward pass."""
    return sorted(names, key=place)


def sources(names: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Each point to the points among ``names`` that it is made from, through those that are not among them."""
    known = set(names)
    places = {name: place(name) for name in names}
    blocks = sorted({(at.layer, at.block) for at in places.values() if at.block})
    before = {block: blocks[index - 1][1] if index else "" for index, (_, block) in enumerate(blocks)}
    predicting = {at.block for at in places.values() if at.kind in PREDICTING}
    last = next((block for _, block in reversed(blocks) if block not in predicting), "")
    experts: dict[str, list[str]] = {}
    for name, at in places.items():
        if at.kind == "mlp.experts.*":
            experts.setdefault(at.block, []).append(name)

    def named(block: str, kind: str) -> list[str]:
        if kind == "mlp.experts.*":
            return experts.get(block, [])
        name = block if kind == BLOCK else f"{block}.{kind}" if kind in ORDER else kind
        return [name] if name in known else []

    def moved(block: str, kind: str) -> tuple[str, str]:
        """The block and the kind of what is read there."""
        if kind != BEFORE:
            return block, kind
        earlier = before[block] if block else last
        return (earlier, BLOCK) if earlier else ("", EMBEDDING)

    @cache  # paths through points that are not known fork in every block
    def of(block: str, kind: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(read_by(block, kind)))

    def read_by(block: str, kind: str) -> Iterator[str]:
        for read in BY_KIND[kind].reads if kind in BY_KIND else ():
            ways = [moved(block, way) for way in read.removesuffix("?").split("|")]
            there = next((found for way in ways if (found := named(*way))), [])
            yield from there
            if not there and not read.endswith("?"):
                yield from of(*ways[-1])

    return {name: of(at.block, at.kind) for name, at in places.items()}


def consumers(made_from: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The other way round: each point to the points that are made from it."""
    users: dict[str, list[str]] = {name: [] for name in made_from}
    for name, read in made_from.items():
        for source in read:
            users[source].append(name)
    return {name: tuple(of_name) for name, of_name in users.items()}


def chosen(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Says of a point whether one of some patterns matches its name."""
    asked = tuple(patterns)
    return lambda name: any(fnmatchcase(name, pattern) for pattern in asked)
