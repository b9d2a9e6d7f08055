"""The points of a forward pass at which values and gradients are recorded: their names, their order, and their inputs.

A point has Hugging Face's name of the module whose output it is, ``model.layers.0.self_attn.q_proj``, or a name of ours,
``model.layers.0.residual``. A value is ``[rows, sequence, width]``, whatever the framework's order of axes; its gradient is the total
derivative of the objective. Where a point is missing, later points are made from what it is made from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from msgspec import Struct

from align_hooks.data_file import sections

GRADIENT = "#gradient"
"""Suffix of the name of a gradient; no name of a module has it."""
BLOCK = "."
"""The kind of a block's output, which has the block's name."""
BEFORE = "<"
"""The output of the block before, or of the embedding, in :attr:`PointSpec.reads`."""
EMBEDDED, NORMALISED = "@", "^"
"""What a predicting block reads there: the embedding of the tokens, and normalised hidden states (``multi_token_prediction.py``,
``MultiTokenPredictionBlock.forward``)."""


class PointSpec(Struct, frozen=True):
    """A kind of point."""

    name: str
    """In a block, or in the model."""
    reads: tuple[str, ...] = ()
    """The kinds from which it is made, as in ``points.txt``."""


EMBEDDING, FINAL_NORM, LOGITS, TOKEN_LOSSES = "model.embed_tokens", "model.norm", "lm_head", "token_losses"
NORM, SECOND_NORM = "input_layernorm", "post_attention_layernorm"
LINES = (line.partition(" <- ") for line in sections(Path(__file__).parent / "points.txt")[""])
OF_BLOCK = tuple(PointSpec(name, tuple(reads.split())) for name, _, reads in LINES)
"""The kinds of a block, in the order of a forward pass."""
PREDICTING = ("enorm", "hnorm", "eh_proj", "shared_head.norm", "shared_head.head")
"""Kinds that only blocks for multi-token prediction have."""
ENDS = (PointSpec(FINAL_NORM, (BEFORE,)), PointSpec(LOGITS, (FINAL_NORM,)), PointSpec(TOKEN_LOSSES, (LOGITS,)))
"""The kinds behind the last block."""
BY_KIND = {kind.name: kind for kind in (*OF_BLOCK, *ENDS)}
ORDER = {kind.name: index for index, kind in enumerate(OF_BLOCK)}
LAST = {kind.name: index for index, kind in enumerate(ENDS)}
IN_BLOCK = re.compile(r"(?P<block>.*\blayers\.(?P<layer>\d{1,6}))(?:\.(?P<kind>.+))?")
EXPERT = re.compile(r"(?<=\.experts\.)\d{1,6}$")


class PointPosition(Struct, frozen=True, order=True):
    """The position of a point in a forward pass."""

    stage: int
    """0 before the blocks, 1 in a block, 2 behind them."""
    layer: int
    order: int
    """The order in a block, or behind the last; unknown kinds come last."""
    expert: int
    name: str
    block: str = ""
    """The name of the block; empty outside."""
    kind: str = ""


def place(name: str) -> PointPosition:
    """Return the position of a point, by its name without :data:`GRADIENT`."""
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
    """Return whether a point is the output of an expert, whose tokens have no order."""
    return EXPERT.search(name.removesuffix(GRADIENT)) is not None


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names of points in the order of a forward pass."""
    return sorted(names, key=place)


def sources(names: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return each point with the points among ``names`` from which it is made, directly or through missing points."""
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
        """Return the block and the kind of what a point in ``block`` reads."""
        if kind not in (BEFORE, EMBEDDED, NORMALISED):
            return block, kind
        earlier = before[block] if block else last
        if kind == NORMALISED:
            return (earlier, "shared_head.norm") if earlier in predicting else ("", FINAL_NORM)
        if kind == EMBEDDED:
            return "", EMBEDDING
        return (earlier, BLOCK) if earlier else ("", EMBEDDING)

    @cache  # paths through missing points fork in every block
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
    """Return each point with the points that are made from it, the inverse of :func:`sources`."""
    users: dict[str, list[str]] = {name: [] for name in made_from}
    for name, read in made_from.items():
        for source in read:
            users[source].append(name)
    return {name: tuple(of_name) for name, of_name in users.items()}


def chosen(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Return a predicate: whether any of the patterns matches a point's name."""
    asked = tuple(patterns)
    return lambda name: any(fnmatchcase(name, pattern) for pattern in asked)
