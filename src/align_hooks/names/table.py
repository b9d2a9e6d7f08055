"""From a framework's own parameters to canonical pieces and back, by a table of rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from align_hooks.errors import RefusedRun
from align_hooks.names.blocks import PADDING, UNFUSED, WHOLE, Cut, Dims, Division, FusedLayout
from align_hooks.names.fused import Fused, Piece


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of parameter: its native name, the canonical names of its pieces, and how they are laid out in it.

    ``{layer}`` and ``{expert}`` stand for their numbers, counted over the whole model. A rule of the layout ``VOCABULARY`` names
    one piece: the padding, where there is any, is that name with ``#padding``. ``axis`` is the one that tensor parallelism cuts.
    """

    native: str
    canonical: tuple[str, ...]
    layout: FusedLayout = UNFUSED
    axis: int = 0


def any_layer(name: str) -> str:
    """A canonical name with ``*`` in place of the number of its layer, and of its expert."""
    return re.sub(r"\.\d+(?=\.)", ".*", name)


@dataclass(frozen=True, slots=True)
class Table:
    """The rules of one framework for the parameters of ``model``, which is as a refusal names it.

    ``ignored`` are state entries that are no parameters (full-match patterns).
    """

    framework: str
    model: str
    rules: tuple[Rule, ...]
    ignored: tuple[str, ...] = ()

    def native(self, canonical: str) -> str:
        """The framework's own name of the parameter that holds one canonical tensor and nothing else."""
        return next(rule.native for rule in self.rules if rule.canonical == (canonical,))

    def fused(
        self, native: str, shape: Sequence[int], dims: Dims, *, cut: Cut = WHOLE, first_layer: int = 0, first_expert: int = 0
    ) -> Fused | None:
        """The pieces of one native parameter of ``shape`` on this rank, None for an entry that holds none.

        ``cut`` says which part of the whole parameter that is. ``first_layer`` and ``first_expert`` are the numbers, in the whole
        model, of what this rank calls 0. Raises RefusedRun for an unknown name and for a layout that does not fit.
        """
        for rule in self.rules:
            local = _numbers(_pattern(rule.native), native)
            if local is not None:
                numbers = {"layer": local.get("layer", 0) + first_layer, "expert": local.get("expert", 0) + first_expert}
                names = [name.format(**numbers) for name in rule.canonical]
                return _fused(
                    native,
                    names,
                    rule.layout,
                    tuple(shape),
                    dims,
                    replace(cut, axis=rule.axis) if cut.axis is None and cut.count > 1 else cut,
                )
        if any(re.fullmatch(pattern, native) for pattern in self.ignored):
            return None
        raise RefusedRun(
            f"{self.framework} parameter {native!r} has no canonical name; known are those of {self.model} "
            f"(add a rule to align_hooks/families for another family)"
        )

    def elsewhere(self, here: Collection[str], *, layers: int, experts: int = 0) -> Callable[[str], bool]:
        """Whether another rank holds a name, where this one holds ``here``, in a model of ``layers`` layers and ``experts`` experts.

        Of a layer that is here only experts can be elsewhere.
        """
        patterns = [_pattern(canonical) for rule in self.rules for canonical in rule.canonical]
        matches = [_numbers(pattern, name) for name in here for pattern in patterns]
        layers_here = {numbers["layer"] for numbers in matches if numbers and "layer" in numbers}

        def is_elsewhere(name: str) -> bool:
            for pattern in patterns:
                numbers = _numbers(f"{pattern}({re.escape(PADDING)})?", name)
                if numbers is not None:
                    there = "expert" in numbers or numbers.get("layer") not in layers_here
                    return there and numbers.get("layer", -1) < layers and numbers.get("expert", -1) < experts
            return False

        return is_elsewhere


def _numbers(pattern: str, name: str) -> dict[str, int] | None:
    match = re.fullmatch(pattern, name)
    return {key: int(number) for key, number in match.groupdict().items()} if match else None


def _pattern(name: str) -> str:
    return re.escape(name).replace(r"\{layer\}", r"(?P<layer>\d+)").replace(r"\{expert\}", r"(?P<expert>\d+)")


def _fused(native: str, names: list[str], layout: FusedLayout, shape: tuple[int, ...], dims: Dims, cut: Cut) -> Fused:
    axis = cut.axis or 0
    lengths = list(shape)
    lengths[axis] *= cut.count
    whole = layout.whole(dims, lengths[0])
    if layout.division is Division.ROWS and len(whole.rows) == 2:
        names = [names[0], names[0] + PADDING]
    full = [(0, whole.repeats * rows) for rows in whole.rows]
    local, bounds = layout.part(whole, cut) if axis == 0 else (whole, full)
    tail = [(0, length) for length in lengths[1:]]
    if axis:
        tail[axis - 1] = (cut.index * shape[axis], (cut.index + 1) * shape[axis])
    parts = (Piece(name, (total, *lengths[1:]), (rows, *tail)) for name, (_, total), rows in zip(names, full, bounds, strict=True))
    return Fused(native, tuple(parts), local)
