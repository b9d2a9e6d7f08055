"""A framework's own names, for parameters without a canonical name.

They do not depend on the layout of ranks: layers and experts are counted over the whole model, and a gated projection and a padded
vocabulary are two pieces. So two runs of one framework compare in full. A name begins with its framework, ``megatron:decoder.layers.0.…``,
as equal names may have different layouts in the other.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

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
    """Return a parameter's own name, with its layer and expert counted over the whole model."""
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
    """Return a native parameter of local ``shape`` under canonical names where ``table`` has its layout, else under its own name.

    None stands for an entry that is no parameter. ``gated``: whether first projections hold a gate too. ``axis``: the axis of the cut
    where no table states it.
    """
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
    """Return a predicate of names, canonical or own: :meth:`NameTable.elsewhere` or :func:`own_elsewhere`."""
    known = table.elsewhere(here, layers=layers, experts=experts, predicted=predicted)
    own = own_elsewhere(framework, here, layers=layers, experts=experts)
    return lambda name: known(name) or own(name)


def own_elsewhere(framework: str, here: Collection[str], *, layers: int, experts: int = 0) -> Callable[[str], bool]:
    """Return a predicate: whether a name is an own name of another rank, in a model of so many layers and experts.

    ``here`` are the names on this rank, canonical or own. A tensor in no layer may be another rank's, if that has other layers.
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
