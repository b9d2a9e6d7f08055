"""Points made and put into the Cells of a model, and those that newer and older models share."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from mindspore import nn
from msgspec import Struct, field

from align_hooks.ms_side import points as compiled
from align_hooks.ms_side.objects import Cell
from align_hooks.ms_side.points import ExpertWeightsPoint, OfExperts, Point, TokenLayout, View, put, subclass
from align_hooks.names import points


class Builder(Struct):
    """Makes points and puts them into Cells."""

    layout: TokenLayout
    """The layout of most tensors."""
    vocabulary: int
    wanted: Callable[[str], bool]
    """Whether a point's numbers are recorded."""
    whole: Callable[[str], bool]
    """Whether a point's tensor is recorded."""
    forced: Callable[[str], bool]
    """Whether a teacher replaces a point's value."""
    on_host: bool
    prefix: str = ""
    """The beginning of the names of a model of no family."""
    made: list[Point | ExpertWeightsPoint | OfExperts] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    """The names of all points, made or not."""

    def point(self, names: str | Sequence[str], width: int, layout: TokenLayout | None = None, views: Sequence[View] = ()) -> Point | None:
        """Make a point of one value of a ``width``, or of several ``views``; None where no name is recorded or forced."""
        named = [self.prefix + name for name in ([names] if isinstance(names, str) else names)]
        views = views or [View("", (width,), 0, width) for _ in named]
        shown = [View(name, view.shape, view.start, view.stop) for name, view in zip(named, views, strict=True)]
        self.known += named
        where, is_one_value = layout or self.layout, len({(view.start, view.stop) for view in shown}) == 1
        shape = (where.rows * where.length * int(np.prod(shown[0].shape)),)
        keeps, forces = any(map(self.wanted, named)), is_one_value and any(map(self.forced, named))
        if not (forces or keeps):
            return None
        whole = keeps and (self.on_host or any(map(self.whole, named)))
        point = Point(shown, where, shape, whole=whole, keeps=keeps, forces=forces)
        self.made.append(point)
        return point

    def expert_weights(self, name: str, router: Cell, layout: TokenLayout) -> ExpertWeightsPoint | None:
        """Make the point of a router's weights of experts; None where it is not recorded."""
        named = self.prefix + name
        self.known.append(named)
        if not self.wanted(named):
            return None
        whole = self.whole(named) or self.on_host
        point = ExpertWeightsPoint(named, int(router.expert_dim), int(router.num_experts_chosen), layout, whole=whole)
        self.made.append(point)
        return point

    def experts(self, name: str, experts: int, hidden: int, layout: TokenLayout) -> OfExperts | None:
        """Make the point of a layer's experts; None where no expert is recorded."""
        names = [f"{self.prefix}{name}.experts.{expert}" for expert in range(experts)]
        self.known += names
        if not any(map(self.wanted, names)):
            return None
        point = OfExperts(names, hidden, layout)
        self.made.append(point)
        return point

    def subclass(self, cell: Cell, make: Callable[[type], type], **wanted: Point | None) -> None:
        """Put points into a Cell, with identities in the place of missing points; nothing where all are missing."""
        if any(point is not None for point in wanted.values()):
            subclass(cell, make, **{name: point or nn.Identity() for name, point in wanted.items()})

    def output(self, cell: Cell, names: str | Sequence[str], width: int, views: Sequence[View] = ()) -> None:
        """Put a point behind a Cell, of its output or of the ``views`` in it."""
        self.subclass(cell, compiled.of_output, point_out=self.point(names, width, views=views))

    def input_and_output(self, cell: Cell, given: str, given_width: int, out: str, width: int) -> None:
        """Put points before and behind a Cell."""
        self.subclass(cell, compiled.of_input_and_output, point_in=self.point(given, given_width), point_out=self.point(out, width))

    def around(self, owner: Cell, name: str, point: Point | None) -> None:
        """Put a point behind an attribute whose own class cannot be changed."""
        if point is not None:
            put(owner, name, compiled.Around(getattr(owner, name), point))


def of_points(widths: Mapping[str, int], rows: Sequence[int], length: int, scale: float, *, by_tokens: bool) -> dict[str, object]:
    """Return the facts of a step's recorded values, by the ``widths`` of their points, and the ``rows`` of its micro-batches."""
    extents = sorted(set(widths.values()))
    return {
        "rows": list(rows),
        "length": length,
        "extents": [{"width": width, "columns": [0, width], "slices": None, "counted": True} for width in extents],
        "extent_of": {name: extents.index(width) for name, width in widths.items()},
        "scale": scale,
        "by_tokens": by_tokens,
    }


def of_logits(build: Builder, cell: Cell, name: str, rows: int) -> None:
    """Put a point of logits behind a Cell, without padded rows."""
    build.output(cell, name, rows, [View("", (rows,), 0, build.vocabulary)])


def of_losses(build: Builder, core: Cell) -> None:
    """Put a point behind the token losses, ordered row by row."""
    loss = getattr(core, "loss", None)
    if hasattr(loss, "_nllloss"):
        build.around(loss, "_nllloss", build.point(points.TOKEN_LOSSES, 1, by_rows(build.layout)))


def by_rows(layout: TokenLayout) -> TokenLayout:
    """Return the layout of tensors whose tokens are ordered row by row."""
    return TokenLayout(layout.rows, layout.length, layout.first, by_position=False)


def in_two(shape: tuple[int, ...], middle: int) -> list[View]:
    """Return the views of two values that lie side by side on the last axis of ``shape``, the second from ``middle`` on."""
    return [View("", shape, 0, middle), View("", shape, middle, shape[-1])]


def of_qkv(heads: int, groups: int, size: int, contiguous: bool) -> list[View]:
    """Return the views of queries, keys and values in a fused projection."""
    if contiguous:
        stops = np.cumsum([0, heads * size, groups * size, groups * size]).tolist()
        return [View("", (stops[3],), stops[index], stops[index + 1]) for index in range(3)]
    stops = np.cumsum([0, heads // groups * size, size, size]).tolist()
    return [View("", (groups, stops[3]), stops[index], stops[index + 1]) for index in range(3)]
