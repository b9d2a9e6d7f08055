"""Cells that are compiled into a model, pass a tensor on, and keep numbers of the tensor and of its gradient, or both themselves.

Patch point: the class of a Cell. Graph mode compiles ``construct`` from the text of the Cell's class, so a wrapper is never called, while a
subclass whose ``construct`` calls its base's is compiled. The Cell keeps its place, its parameters and their names. An operator, or a Cell
whose ``construct`` calls its own base, gets a Cell of ours around it instead.

``InsertGradientOf`` shows the derivative by the tensor, summed over all users; a ``bprop`` of our own may not hold Parameters. Copies are
made in every step, for a compiled graph has no free branch; only copies of selected steps cross to the host. A CPU keeps full tensors, and
the host makes their numbers in fp64 on selected steps, since MindSpore's products in fp64 take sixteen times a step. A device keeps numbers
that its graph makes in fp32, and full tensors where wanted."""

from collections.abc import Callable, Iterator, Sequence

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops
from msgspec import Struct

from align_hooks.ms_side.objects import Cell
from align_hooks.ms_side.own_parameters import own_array, own_parameter, set_unregistered, switch
from align_hooks.names.blocks import Array
from align_hooks.record.format.sketch import PROJECTIONS
from align_hooks.record.read import activations
from align_hooks.record.read.activations import NUMBERS, column_signs, measured, places, row_signs

IN_GRAPH = 5 + PROJECTIONS
"""Numbers that the graph makes of a value: all but the count of elements."""
LARGEST = 3.4e38
"""The fp32 number in the place of infinities and NaN."""


class View(Struct, frozen=True):
    """A value in a Cell's tensor."""

    name: str
    shape: tuple[int, ...]
    """The shape of a token's part of the tensor."""
    start: int
    """The beginning of the value on the last axis."""
    stop: int

    @property
    def width(self) -> int:
        """The number of elements of a token's value."""
        return int(np.prod(self.shape[:-1], dtype=int)) * (self.stop - self.start)


class TokenLayout(Struct, frozen=True):
    """The order of a batch's tokens in the tensors of a model."""

    rows: int
    length: int
    first: int = 0
    """The number of the first row in the job's batch."""
    by_position: bool = True
    """Whether tokens are ordered position by position, and not row by row."""
    heads: int = 0
    """Heads of a tensor ``[rows, heads, positions, size]``; 0 for other tensors."""

    def signs(self) -> Array:
        """Return the signs of the tokens, ``[tokens, PROJECTIONS]``, in the order of the tensor."""
        rows = range(self.first, self.first + self.rows)
        where = places(rows, np.arange(self.length), self.length)
        if not self.by_position:
            where = where.reshape(self.length, self.rows).T.reshape(-1)
        return row_signs(where)

    def in_order(self, tensor: Array, view: View) -> Array:
        """Return a value of a full tensor on the host, ``[rows, positions, width]``."""
        if self.heads:
            return tensor.reshape(self.rows, self.heads, self.length, -1).transpose(0, 2, 1, 3).reshape(self.rows, self.length, -1)
        value = tensor.reshape(-1, *view.shape)[..., view.start : view.stop].reshape(-1, view.width)
        if self.by_position:
            return value.reshape(self.length, self.rows, view.width).transpose(1, 0, 2)
        return value.reshape(self.rows, self.length, view.width)

    def numbers(self, value: Array) -> Array:
        """Return the numbers of a full value ``[rows, positions, width]`` on the host."""
        rows = range(self.first, self.first + self.rows)
        where = places(rows, np.arange(self.length), self.length).reshape(self.length, self.rows).T.reshape(-1)
        return measured(value.reshape(-1, value.shape[2]), row_signs(where), column_signs((0, value.shape[2])))

    def out_of_order(self, value: Array) -> Array:
        """Return a value ``[rows, positions, width]`` as the elements of a tensor with no other value."""
        if self.heads:
            return np.ascontiguousarray(value.reshape(self.rows, self.length, self.heads, -1).transpose(0, 2, 1, 3)).reshape(-1)
        return np.ascontiguousarray(value.transpose(1, 0, 2) if self.by_position else value).reshape(-1)


class Numbers(nn.Cell):
    """The numbers of :mod:`align_hooks.record.read.activations` of each value in a tensor, fp32 ``[values, IN_GRAPH]``.

    Devices have no fp64, so sums are taken of each token first, for few roundings."""

    def __init__(self, layout: TokenLayout, views: Sequence[View]) -> None:
        super().__init__(auto_prefix=False)
        self.tokens = layout.rows * layout.length
        self.shapes = tuple((self.tokens, *view.shape) for view in views)
        self.bounds = tuple((view.start, view.stop, view.width) for view in views)
        self.count, self.heads = len(views), layout.heads
        self.by_heads = (layout.rows, layout.heads, layout.length, -1)
        self.rows = Tensor(layout.signs().astype(np.float32))
        self.columns = tuple(Tensor(column_signs((0, view.width)).astype(np.float32)) for view in views)
        self.cast, self.least, self.most, self.sum = ops.Cast(), ops.ReduceMin(), ops.ReduceMax(), ops.ReduceSum()
        self.finite, self.product, self.select, self.cat, self.stack = ops.IsFinite(), ops.MatMul(), ops.Select(), ops.Concat(), ops.Stack()

    def construct(self, x):  # type: ignore[no-untyped-def]
        """Return a row of numbers for each value; compiled from this text."""
        numbers: tuple[Tensor, ...] = ()
        if self.heads:
            x = ops.transpose(x.reshape(self.by_heads), (0, 2, 1, 3))
        for index in range(self.count):
            start, stop, width = self.bounds[index]
            value = x.reshape(self.shapes[index])[..., start:stop].reshape((self.tokens, width))
            value = self.cast(value, mindspore.float32)
            finite = self.finite(value)
            least = self.least(self.select(finite, value, ops.full_like(value, LARGEST)))
            most = self.most(self.select(finite, value, ops.full_like(value, -LARGEST)))
            lost = self.sum(self.cast(ops.logical_not(finite), mindspore.float32))
            heads = (lost, least, most, self.sum(self.sum(value, 1)), self.sum(self.sum(value * value, 1)))
            signed = self.sum(self.product(value, self.columns[index]) * self.rows, 0)
            numbers += (self.cat((self.stack(heads), signed)),)
        return self.stack(numbers)


class Point(nn.Cell):
    """Passes a tensor on, and keeps the tensor and its gradient, ``whole``, or the numbers of both.

    Where the point ``forces`` and its switch is on, ``given`` takes the place of the value, and ``given_gradient`` of the gradient; the
    arriving ones are kept. No ``depend`` ties assignments to the gradient: a recomputed layer would then have a cycle."""

    def __init__(
        self, views: Sequence[View], layout: TokenLayout, shape: tuple[int, ...], *, whole: bool, keeps: bool, forces: bool
    ) -> None:
        super().__init__(auto_prefix=False)
        self.views, self.layout, self.whole, self.keeps, self.forces = tuple(views), layout, whole, keeps, forces
        self.numbers = Numbers(layout, views) if keeps and not whole else nn.Identity()
        self.assign, self.cast, self.select = ops.Assign(), ops.Cast(), ops.Select()
        self.forced = StraightThrough()
        name = views[0].name
        kept = (1,) if not keeps else shape if whole else (len(views), IN_GRAPH)
        given = shape if forces else (1,)
        set_unregistered(
            self,
            value=own_parameter(f"value.{name}", kept),
            gradient=own_parameter(f"gradient.{name}", kept),
            given=own_parameter(f"given.{name}", given),
            given_gradient=own_parameter(f"given_gradient.{name}", given),
            giving=switch(f"giving.{name}"),
        )
        self.insert = ops.InsertGradientOf(self.keep_gradient)

    def keep_gradient(self, gradient):  # type: ignore[no-untyped-def]
        """Return the gradient, or the given one in its place; compiled from this text."""
        if self.keeps and self.whole:
            self.assign(self.gradient, self.cast(gradient, mindspore.float32).reshape((-1,)))
        if self.keeps and not self.whole:
            self.assign(self.gradient, self.numbers(gradient))
        if self.forces:
            gradient = self.select(self.giving, self.cast(self.given_gradient, gradient.dtype).reshape(gradient.shape), gradient)
        return gradient

    def construct(self, x):  # type: ignore[no-untyped-def]
        """Return the tensor, or the given one in its place; compiled from this text."""
        if self.keeps and self.whole:
            self.assign(self.value, self.cast(x, mindspore.float32).reshape((-1,)))
        if self.keeps and not self.whole:
            self.assign(self.value, self.numbers(x))
        if self.forces:
            x = self.forced(x, self.select(self.giving, self.cast(self.given, x.dtype).reshape(x.shape), x))
        return self.insert(x)

    def give(self, value: Array | None, gradient: Array | None = None) -> None:
        """Replace the next step's value and gradient, both ``[rows, positions, width]``; with None replace nothing."""
        self.giving.set_data(Tensor(value is not None))
        if value is not None and gradient is not None:
            for buffer, array in ((self.given, value), (self.given_gradient, gradient)):
                buffer.set_data(Tensor(self.layout.out_of_order(array).astype(np.float32)))

    @property
    def bytes(self) -> int:
        """The device memory of the buffers."""
        return sum(int(kept.nbytes) for kept in (self.value, self.gradient, self.given, self.given_gradient))

    def values(self, *, backward: bool) -> Iterator[tuple[str, Array, Array | None]]:
        """Yield each value of the last step in one transfer: name, numbers fp64 ``[1, NUMBERS]``, tensor fp32 or None."""
        kept = (self.gradient if backward else self.value).asnumpy()
        for index, view in enumerate(self.views if self.keeps else ()):
            if self.whole:
                tensor = np.ascontiguousarray(self.layout.in_order(kept, view), np.float32)
                yield view.name, self.layout.numbers(tensor)[None], tensor
            else:
                yield view.name, with_count(kept[index].astype(np.float64), self.layout.rows * self.layout.length * view.width), None


class ExpertWeightsPoint(nn.Cell):
    """A point of the weights of each token's experts, read as weights of all experts, 0 for experts not chosen."""

    def __init__(self, name: str, experts: int, chosen: int, layout: TokenLayout, *, whole: bool) -> None:
        super().__init__(auto_prefix=False)
        self.layout, self.whole, self.views = layout, whole, (View(name, (experts,), 0, experts),)
        self.assign, self.cast = ops.Assign(), ops.Cast()
        self.shape = (layout.rows * layout.length, chosen)
        set_unregistered(
            self,
            index=own_array(f"index.{name}", np.zeros(self.shape, np.int32)),
            value=own_parameter(f"value.{name}", self.shape),
            gradient=own_parameter(f"gradient.{name}", self.shape),
        )
        self.insert = ops.InsertGradientOf(self.keep_gradient)

    def keep_gradient(self, gradient):  # type: ignore[no-untyped-def]
        """Compiled from this text."""
        self.assign(self.gradient, self.cast(gradient, mindspore.float32).reshape(self.shape))
        return gradient

    def construct(self, weights, index):  # type: ignore[no-untyped-def]
        """Compiled from this text."""
        self.assign(self.index, self.cast(index, mindspore.int32).reshape(self.shape))
        self.assign(self.value, self.cast(weights, mindspore.float32).reshape(self.shape))
        return self.insert(weights)

    def values(self, *, backward: bool) -> Iterator[tuple[str, Array, Array | None]]:
        """Yield values as :meth:`Point.values` does, of all experts."""
        dense = np.zeros((self.shape[0], self.views[0].width), np.float32)
        np.put_along_axis(dense, self.index.asnumpy(), (self.gradient if backward else self.value).asnumpy(), axis=1)
        tensor = self.layout.in_order(dense, self.views[0])
        yield self.views[0].name, self.layout.numbers(tensor)[None], tensor if self.whole else None

    forces, bytes = False, 0


class OfExperts(nn.Cell):
    """A point of the weighed outputs of a rehearsal's experts, ``[experts, tokens, hidden]``, 0 for tokens of other experts."""

    def __init__(self, names: Sequence[str], hidden: int, layout: TokenLayout) -> None:
        super().__init__(auto_prefix=False)
        self.layout, self.views = layout, tuple(View(name, (hidden,), 0, hidden) for name in names)
        self.assign, self.cast = ops.Assign(), ops.Cast()
        shape = (len(names), layout.rows * layout.length, hidden)
        value, gradient = (own_parameter(f"{which}.{names[0]}", shape) for which in ("experts", "experts_gradient"))
        set_unregistered(self, value=value, gradient=gradient)
        self.insert = ops.InsertGradientOf(self.keep_gradient)

    def keep_gradient(self, gradient):  # type: ignore[no-untyped-def]
        """Compiled from this text."""
        self.assign(self.gradient, self.cast(gradient, mindspore.float32))
        return gradient

    def construct(self, tensor):  # type: ignore[no-untyped-def]
        """Compiled from this text."""
        self.assign(self.value, self.cast(tensor, mindspore.float32))
        return self.insert(tensor)

    def values(self, *, backward: bool) -> Iterator[tuple[str, Array, Array | None]]:
        """Yield values as :meth:`Point.values` does, of each expert's own tokens, without order, so with row signs of +1."""
        outputs = self.value.asnumpy()
        kept = self.gradient.asnumpy() if backward else outputs
        for view, output, tensor in zip(self.views, outputs, kept, strict=True):
            mine = tensor[(output != 0).any(axis=1)]
            yield view.name, measured(mine, row_signs(None, len(mine)), column_signs((0, view.width)))[None], None

    forces, bytes = False, 0


def with_count(row: Array, count: int) -> Array:
    """Return a record's numbers of a value from the graph's."""
    numbers = np.empty((1, NUMBERS))
    numbers[0, activations.COUNT] = count
    of_graph = [activations.NOT_FINITE, activations.LEAST, activations.MOST, activations.SUM, activations.SQUARES]
    numbers[0, of_graph] = row[:5]
    numbers[0, NUMBERS - PROJECTIONS :] = row[5:]
    return numbers


class StraightThrough(nn.Cell):
    """The value of the second of two tensors; the gradient goes to the first, as if it had been its value."""

    def construct(self, x, given):  # type: ignore[no-untyped-def]
        """Compiled from this text."""
        return given

    def bprop(self, x, given, out, dout):  # type: ignore[no-untyped-def]
        """Compiled from this text."""
        return dout, ops.zeros_like(given)


def of_output(base: type) -> type:
    """Make a subclass that passes a Cell's output, the first of several, through its ``point_out``."""

    class Pointed(base):  # type: ignore[misc]
        def construct(self, *args, **kwargs):  # type: ignore[no-untyped-def]
            out = super().construct(*args, **kwargs)
            if isinstance(out, tuple):
                return (self.point_out(out[0]), *out[1:])
            return self.point_out(out)

    return Pointed


def of_input_and_output(base: type) -> type:
    """Make a subclass that also passes a Cell's first argument through its ``point_in``."""

    class Pointed(base):  # type: ignore[misc]
        # a block of the newer models is called with this argument by its name
        def construct(self, hidden_states, *args, **kwargs):  # type: ignore[no-untyped-def]
            out = super().construct(self.point_in(hidden_states), *args, **kwargs)
            if isinstance(out, tuple):
                return (self.point_out(out[0]), *out[1:])
            return self.point_out(out)

    return Pointed


class Around(nn.Cell):
    """An operator, or a Cell with a derivative of its own, whose output, the first of several, passes a point."""

    def __init__(self, original: Cell, point: Cell) -> None:
        super().__init__(auto_prefix=False)
        self.original, self.point_out = original, point

    def construct(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        """Compiled from this text."""
        out = self.original(*args, **kwargs)
        if isinstance(out, tuple):
            return (self.point_out(out[0]), *out[1:])
        return self.point_out(out)


class Before(nn.Cell):
    """An operator of one argument, which passes a point first."""

    def __init__(self, original: Cell, point: Cell) -> None:
        super().__init__(auto_prefix=False)
        self.original, self.point_in = original, point

    def construct(self, x):  # type: ignore[no-untyped-def]
        """Compiled from this text."""
        return self.original(self.point_in(x))


def subclass(cell: Cell, make: Callable[[type], type], **points: Cell) -> None:
    """Give a Cell points of ours, and the subclass of its class that passes them."""
    base = type(cell)
    subclass = make(base)
    subclass.__name__ = base.__name__  # by which others, and the record, know the Cell
    for name, point in points.items():
        setattr(cell, name, point)
    cell.__class__ = subclass


def put(owner: Cell, name: str, cell: Cell) -> None:
    """Put a Cell of ours in the place of an attribute, without renaming the parameters inside."""
    prefix, owner._auto_prefix = owner._auto_prefix, False
    setattr(owner, name, cell)
    owner._auto_prefix = prefix
