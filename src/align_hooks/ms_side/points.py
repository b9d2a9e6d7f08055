"""Cells that are compiled into a model, pass a tensor on, and keep what is made of it and of its gradient.

Seam: the class of a Cell. Graph mode compiles ``construct`` from the text of the Cell's class, so a wrapper around it is never called,
while a subclass whose ``construct`` calls that of its base is compiled as it stands. The Cell itself stays where it is, with its parameters
and their names. An operator, or a Cell whose ``construct`` calls its own base, gets a Cell of ours around it instead.

The gradient is seen by ``InsertGradientOf``, which the graph calls with the derivative by the tensor, summed over all its users. A
``bprop`` of our own may not hold Parameters. As with gradients of weights the copies are made in every step, for a compiled graph has no
free branch; only those of selected steps cross to the host. A CPU keeps whole tensors, which cost it nothing but memory, and the host makes
their numbers in fp64 on selected steps; MindSpore's products in fp64 take sixteen times a step. A device keeps numbers that its graph makes
in fp32, and whole tensors where they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops

from align_hooks.ms_side.objects import Cell
from align_hooks.ms_side.own_parameters import own_parameter, set_unregistered, switch
from align_hooks.names.blocks import Array
from align_hooks.record.format.sketch import PROJECTIONS
from align_hooks.record.read.activations import (
    COUNT,
    LEAST,
    MOST,
    NOT_FINITE,
    NUMBERS,
    SQUARES,
    SUM,
    column_signs,
    measured,
    places,
    row_signs,
)

IN_GRAPH = 5 + PROJECTIONS
"""Numbers that the graph makes of a value; how many elements there are is known outside."""
LARGEST = 3.4e38
"""Of fp32, in the place of what is not finite."""


@dataclass(frozen=True, slots=True)
class View:
    """A value in a tensor that a Cell shows: each token's part of the tensor looked at as ``shape``, of whose last axis [start, stop) is
    the value."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def width(self) -> int:
        """Elements of the value of a token."""
        return int(np.prod(self.shape[:-1], dtype=int)) * (self.stop - self.start)


@dataclass(frozen=True, slots=True)
class TokenLayout:
    """How the tokens of a batch lie in the tensors of a model: ``rows`` of ``length`` positions, position after position where
    ``by_position``, or row after row. ``first`` is the number of the first row in the job's batch. With ``heads`` a tensor is ``[rows,
    heads, positions, size]``."""

    rows: int
    length: int
    first: int = 0
    by_position: bool = True
    heads: int = 0

    def signs(self) -> Array:
        """The signs of the tokens, ``[tokens, PROJECTIONS]``, in the order of the tensor."""
        rows = range(self.first, self.first + self.rows)
        where = places(rows, np.arange(self.length), self.length)
        if not self.by_position:
            where = where.reshape(self.length, self.rows).T.reshape(-1)
        return row_signs(where)

    def in_order(self, tensor: Array, view: View) -> Array:
        """A value of a whole tensor on the host, ``[rows, positions, width]``."""
        if self.heads:
            return tensor.reshape(self.rows, self.heads, self.length, -1).transpose(0, 2, 1, 3).reshape(self.rows, self.length, -1)
        value = tensor.reshape(-1, *view.shape)[..., view.start : view.stop].reshape(-1, view.width)
        if self.by_position:
            return value.reshape(self.length, self.rows, view.width).transpose(1, 0, 2)
        return value.reshape(self.rows, self.length, view.width)

    def numbers(self, value: Array) -> Array:
        """The numbers of a whole value ``[rows, positions, width]`` on the host."""
        rows = range(self.first, self.first + self.rows)
        where = places(rows, np.arange(self.length), self.length).reshape(self.length, self.rows).T.reshape(-1)
        return measured(value.reshape(-1, value.shape[2]), row_signs(where), column_signs((0, value.shape[2])))

    def out_of_order(self, value: Array) -> Array:
        """The other way round: a whole value ``[rows, positions, width]`` as the elements of a tensor that holds it alone."""
        if self.heads:
            return np.ascontiguousarray(value.reshape(self.rows, self.length, self.heads, -1).transpose(0, 2, 1, 3)).reshape(-1)
        return np.ascontiguousarray(value.transpose(1, 0, 2) if self.by_position else value).reshape(-1)


class Numbers(nn.Cell):
    """The numbers of :mod:`align_hooks.record.read.activations` of each value in a tensor, ``[values, IN_GRAPH]``, fp32: devices have no
    fp64. Sums are taken of each token first, so that few roundings add up."""

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
        self.finite, self.product, self.select = ops.IsFinite(), ops.MatMul(), ops.Select()
        self.cat, self.stack = ops.Concat(), ops.Stack()

    def construct(self, x):  # type: ignore[no-untyped-def]
        """One row of numbers a value; compiled from this text."""
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
    """Passes a tensor on, and keeps it and its gradient: ``whole``, or the numbers of its values.

    Where it ``forces``, the value that is passed on is ``given`` where its switch is on, and so is the gradient that is handed back; what
    is kept is what arrives. Assignments stand alone: tied to the gradient by ``depend`` they close a circle where a layer is recomputed."""

    def __init__(
        self, views: Sequence[View], layout: TokenLayout, shape: tuple[int, ...], *, whole: bool, keeps: bool, forces: bool
    ) -> None:
        super().__init__(auto_prefix=False)
        self.views, self.layout, self.whole, self.keeps, self.forces = tuple(views), layout, whole, keeps, forces
        self.numbers = Numbers(layout, views) if keeps and not whole else nn.Identity()
        self.assign, self.cast, self.select = ops.Assign(), ops.Cast(), ops.Select()
        self.taught = ForcedActivation()
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
        """What is handed on of a gradient; compiled from this text."""
        if self.keeps and self.whole:
            self.assign(self.gradient, self.cast(gradient, mindspore.float32).reshape((-1,)))
        if self.keeps and not self.whole:
            self.assign(self.gradient, self.numbers(gradient))
        if self.forces:
            gradient = self.select(self.giving, self.cast(self.given_gradient, gradient.dtype).reshape(gradient.shape), gradient)
        return gradient

    def construct(self, x):  # type: ignore[no-untyped-def]
        """The tensor, or what is given in its place; compiled from this text."""
        if self.keeps and self.whole:
            self.assign(self.value, self.cast(x, mindspore.float32).reshape((-1,)))
        if self.keeps and not self.whole:
            self.assign(self.value, self.numbers(x))
        if self.forces:
            x = self.taught(x, self.select(self.giving, self.cast(self.given, x.dtype).reshape(x.shape), x))
        return self.insert(x)

    def give(self, value: Array | None, gradient: Array | None = None) -> None:
        """Have the next step pass on a whole ``value``, and hand back a ``gradient``, ``[rows, positions, width]``; its own with None."""
        self.giving.set_data(Tensor(value is not None))
        if value is not None and gradient is not None:
            for buffer, array in ((self.given, value), (self.given_gradient, gradient)):
                buffer.set_data(Tensor(self.layout.out_of_order(array).astype(np.float32)))

    @property
    def bytes(self) -> int:
        """Device memory that its buffers take."""
        return sum(int(kept.nbytes) for kept in (self.value, self.gradient, self.given, self.given_gradient))

    def values(self, *, backward: bool) -> Iterator[tuple[str, Array, Array | None]]:
        """Of the last step each value's name, its numbers, fp64 ``[1, NUMBERS]``, and where it is kept whole fp32 ``[rows, positions,
        width]``: one transfer."""
        kept = (self.gradient if backward else self.value).asnumpy()
        for index, view in enumerate(self.views if self.keeps else ()):
            if self.whole:
                tensor = np.ascontiguousarray(self.layout.in_order(kept, view), np.float32)
                yield view.name, self.layout.numbers(tensor)[None], tensor
            else:
                yield view.name, with_count(kept[index].astype(np.float64), self.layout.rows * self.layout.length * view.width), None


def with_count(row: Array, count: int) -> Array:
    """The numbers of a value as a record has them, from those that the graph made."""
    numbers = np.empty((1, NUMBERS))
    numbers[0, COUNT] = count
    numbers[0, [NOT_FINITE, LEAST, MOST, SUM, SQUARES]] = row[:5]
    numbers[0, NUMBERS - PROJECTIONS :] = row[5:]
    return numbers


class ForcedActivation(nn.Cell):
    """The value of the second of two tensors; the gradient goes to the first, as if it had been its value."""

    def construct(self, x, given):  # type: ignore[no-untyped-def]
        """Compiled from this text."""
        return given

    def bprop(self, x, given, out, dout):  # type: ignore[no-untyped-def]
        """Compiled from this text."""
        return dout, ops.zeros_like(given)


# ---- how a point is put into a Cell: subclasses, made of the Cell's own class


def of_output(base: type) -> type:
    """Pass what a Cell puts out, the first of several, through its ``point_out``."""

    class Pointed(base):  # type: ignore[misc]
        def construct(self, *args, **kwargs):  # type: ignore[no-untyped-def]
            out = super().construct(*args, **kwargs)
            if isinstance(out, tuple):
                return (self.point_out(out[0]), *out[1:])
            return self.point_out(out)

    return Pointed


def of_input_and_output(base: type) -> type:
    """Pass the first argument of a Cell through its ``point_in`` too."""

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


def turned(cell: Cell, make: Callable[[type], type], **points: Cell) -> None:
    """Give a Cell points of ours, and the subclass of its class that passes them."""
    base = type(cell)
    subclass = make(base)
    subclass.__name__ = base.__name__  # by which others, and the record, know the Cell
    for name, point in points.items():
        setattr(cell, name, point)
    cell.__class__ = subclass


def put(owner: Cell, name: str, cell: Cell) -> None:
    """Put a Cell of ours in the place of an attribute. A Cell that takes another in would rename the parameters inside."""
    prefix, owner._auto_prefix = owner._auto_prefix, False
    setattr(owner, name, cell)
    owner._auto_prefix = prefix
