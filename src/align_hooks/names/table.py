"""A table of rules from a framework's parameter names to canonical pieces, and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from align_hooks.errors import RefusedRun
from align_hooks.names.blocks import PADDING, UNFUSED, WHOLE, Cut, Dims, Division, FusedLayout
from align_hooks.names.fused import Fused, Piece


class Rule(Struct, frozen=True):
    """A kind of parameter. ``{layer}`` and ``{expert}`` in its names stand for numbers, counted over the whole model.

    ``{mtp}`` is the number of a layer for multi-token prediction, which Hugging Face counts on after the decoder's, ``{after}``.
    """

    native: str
    canonical: tuple[str, ...]
    """The names of its pieces; padding of a vocabulary is not among them."""
    layout: FusedLayout = UNFUSED
    axis: int = 0
    """The axis that tensor parallelism cuts."""


def any_layer(name: str) -> str:
    """Return a canonical name with ``*`` for the numbers of its layer and its expert."""
    return re.sub(r"\.\d+(?=\.)", ".*", name)


class NameTable(Struct, frozen=True):
    """A framework's rules for the parameters of a model."""

    framework: str
    model: str
    """For messages."""
    rules: tuple[Rule, ...]
    ignored: tuple[str, ...] = ()
    """Patterns that fully match names of state entries that are no parameters."""

    def native(self, canonical: str) -> str:
        """Return the framework's name of the parameter that holds exactly this canonical tensor."""
        return next(rule.native for rule in self.rules if rule.canonical == (canonical,))

    def knows(self, native: str) -> bool:
        """Return whether a rule matches a state entry, or the entry is no parameter."""
        return any(numbers_in(native, pattern_of(rule.native)) is not None for rule in self.rules) or self.is_ignored(native)

    def is_ignored(self, native: str) -> bool:
        """Return whether a state entry is no parameter."""
        return any(re.fullmatch(pattern, native) for pattern in self.ignored)

    def fused(
        self, native: str, shape: Sequence[int], dims: Dims, *, cut: Cut = WHOLE, first_layer: int = 0, first_expert: int = 0
    ) -> Fused | None:
        """Return a native parameter of local ``shape`` with its canonical pieces; None for an entry that is no parameter.

        ``first_layer`` and ``first_expert`` are the numbers, in the whole model, of this rank's layer and expert 0. Raises RefusedRun for
        an unknown name and for a layout that does not fit.
        """
        for rule in self.rules:
            local = numbers_in(native, pattern_of(rule.native))
            if local is not None:
                along = replace(cut, axis=rule.axis) if cut.axis is None and cut.count > 1 else cut
                layer, after = local.get("layer", 0) + first_layer, local.get("mtp", 0) + dims.layers
                first = local.get("expert", 0) + first_expert
                experts = range(first, first + dims.experts) if rule.layout.of_experts else (first,)
                names = [name.format(layer=layer, after=after, expert=expert) for expert in experts for name in rule.canonical]
                return fuse(native, names, rule.layout, tuple(shape), dims, along)
        if self.is_ignored(native):
            return None
        raise RefusedRun(
            f"{self.framework} parameter {native!r} has no canonical name; known are those of {self.model} "
            f"(add a rule to align_hooks/families for another family)"
        )

    def elsewhere(self, here: Collection[str], *, layers: int, experts: int = 0, predicted: int = 0) -> Callable[[str], bool]:
        """Return a predicate: whether another rank holds a tensor, by its name and by the names ``here``, on this rank.

        ``predicted`` counts layers for multi-token prediction, which ``layers`` excludes.
        """
        patterns = [pattern_of(canonical) for rule in self.rules for canonical in rule.canonical]
        matches = [numbers for name in here for numbers in (numbers_in(name, pattern) for pattern in patterns) if numbers]
        layers_here = {numbers["layer"] for numbers in matches if numbers.get("layer", layers) < layers}
        after_here = {numbers["after"] for numbers in matches if numbers.get("after", -1) >= layers}

        def is_elsewhere(name: str) -> bool:
            for pattern in patterns:
                numbers = numbers_in(name, f"{pattern}({re.escape(PADDING)})?")
                if numbers is None or numbers.get("layer", -1) >= layers:
                    continue
                if "after" in numbers and not layers <= numbers["after"] < layers + predicted:
                    continue
                is_here = numbers["after"] in after_here if "after" in numbers else numbers.get("layer") in layers_here
                # a layer of which any name is here lacks at most experts
                return ("expert" in numbers or not is_here) and numbers.get("expert", -1) < experts
            return False

        return is_elsewhere


def numbers_in(name: str, pattern: str) -> dict[str, int] | None:
    """Return the numbers in a name by the names of the pattern's groups; None where the name does not match."""
    match = re.fullmatch(pattern, name)
    return {key: int(number) for key, number in match.groupdict().items()} if match else None


def pattern_of(name: str) -> str:
    """Return a rule's name as a regular expression, with a group for each number."""
    return re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>\\d+)", re.escape(name))


def fuse(native: str, names: list[str], layout: FusedLayout, shape: tuple[int, ...], dims: Dims, cut: Cut) -> Fused:
    """Return a native parameter of local ``shape``, with pieces of these ``names`` in a layout."""
    axis = cut.axis or 0
    lengths = list(shape)
    lengths[axis] *= cut.count
    whole = layout.whole(dims, lengths)
    if layout.division is Division.ROWS and len(whole.rows) == 2:
        names = [names[0], names[0] + PADDING]
    shapes = whole.shapes(lengths)
    local, bounds = layout.part(whole, cut if axis == 0 else WHOLE)
    parts: list[Piece] = []
    for name, full, rows in zip(names, shapes, bounds, strict=True):
        tail = [(0, length) for length in full[1:]]
        if axis:
            tail[axis - 1] = (cut.index * shape[axis], (cut.index + 1) * shape[axis])
        parts.append(Piece(name, full, (rows, *tail)))
    return Fused(native, tuple(parts), local)
