"""A framework's own names, for parameters of which no family has a canonical name.

What is recorded under them is complete, and two runs of one framework compare in full: the names count layers and experts over the whole
model, a gated projection is two pieces, and a padded vocabulary's dummy rows are one of their own, so that the layout of the ranks does not
show. Each begins with the framework, ``megatron:decoder.layers.0.…``, for across frameworks equal names may hold other layouts.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from align_hooks.errors import RefusedRun
from align_hooks.names.blocks import HALVES, UNFUSED, VOCABULARY, WHOLE, Cut, Dims
from align_hooks.names.fused import Fused
from align_hooks.names.table import NameTable, fuse

ENDS = re.compile(r"(?:.*\.)?(?:word_embeddings|output_layer)\.weight")
GATED = re.compile(r".*\.linear_fc1\.(?:weight|bias)\d*")
LAYER, EXPERT = re.compile(r"(?<=decoder\.layers\.)\d+"), re.compile(r"(?<=local_experts\.)\d+|(?<=\.weight)\d+$|(?<=\.bias)\d+$")
GATE, UP = "#gate", "#up"
"""Suffixes of the two halves of a gated projection."""


def own_name(framework: str, native: str, first_layer: int, first_expert: int) -> str:
    """A parameter's own name, with its layer and its expert counted over the whole model."""
    name = f"{framework}:" + LAYER.sub(lambda number: str(int(number[0]) + first_layer), native, count=1)
    return EXPERT.sub(lambda number: str(int(number[0]) + first_expert), name, count=1) if ".experts." in name else name


def canonical_or_own(
    table: NameTable | None,
    framework: str,
    native: str,
    shape: Sequence[int],
    dims: Dims,
    *,
    gated: bool,
    cut: Cut = WHOLE,
    axis: int | None = None,
    first_layer: int = 0,
    first_expert: int = 0,
) -> Fused | None:
    """The pieces of a native parameter of ``shape`` on this rank: canonical where the family's ``table`` knows it in this layout, else
    under its own name, which begins with ``framework``; None for an entry that is no parameter.

    ``gated`` says whether the model's first projections hold a gate too; ``axis`` is the one along which a parameter is cut of which no
    table says that.
    """
    if table is not None and table.is_ignored(native):
        return None
    if table is not None and table.knows(native):
        with contextlib.suppress(RefusedRun):  # another layout
            return table.fused(native, shape, dims, cut=cut, first_layer=first_layer, first_expert=first_expert)
    along = cut if axis is None or cut.count == 1 else replace(cut, axis=axis)
    name = own_name(framework, native, first_layer, first_expert)
    layout, names = UNFUSED, [name]
    if ENDS.fullmatch(native) and shape[0] * (along.count if not along.axis else 1) == dims.padded:
        layout = VOCABULARY
    elif gated and GATED.fullmatch(native):
        layout, names = HALVES, [name + GATE, name + UP]
    fused = fuse(native, names, layout, tuple(shape), dims, along)
    return replace(fused, parts=tuple(replace(part, own=True) for part in fused.parts))


def held_elsewhere(
    table: NameTable, framework: str, here: Collection[str], *, layers: int, experts: int, predicted: int
) -> Callable[[str], bool]:
    """Says of a name, canonical or own, whether another rank holds it; see :meth:`NameTable.elsewhere` and :func:`own_elsewhere`."""
    known = table.elsewhere(here, layers=layers, experts=experts, predicted=predicted)
    own = own_elsewhere(framework, here, layers=layers, experts=experts)
    return lambda name: known(name) or own(name)


def own_elsewhere(framework: str, here: Collection[str], *, layers: int, experts: int = 0) -> Callable[[str], bool]:
    """Says of a name whether it is an own name that another rank holds, in a model of ``layers`` layers and ``experts`` experts.

    ``here`` are the names on this rank, canonical or not. What stands in no layer can be another rank's where stages share the layers.
    """
    layers_here = {int(number[1]) for name in here if (number := re.match(r"(?:\w+:decoder|model)\.layers\.(\d+)\.", name))}

    def is_elsewhere(name: str) -> bool:
        if not name.startswith(f"{framework}:"):
            return False
        layer = LAYER.search(name)
        if layer is None:
            return any(number not in layers_here for number in range(layers))
        if int(layer[0]) not in layers_here:
            return int(layer[0]) < layers
        expert = EXPERT.search(name.partition("#")[0]) if ".experts." in name else None
        return expert is not None and int(expert[0]) < experts

    return is_elsewhere
