"""Points of experts: the weights of each token's experts, and the output of each expert."""

from collections.abc import Iterator, Sequence

import mindspore
import numpy as np
from mindspore import nn, ops

from align_hooks.ms_side.own_parameters import own_array, own_parameter, set_unregistered
from align_hooks.ms_side.points import TokenLayout, View
from align_hooks.names.blocks import Array
from align_hooks.record.read.activations import column_signs, measured, row_signs


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
        """Yield values as :meth:`.Point.values` does, of all experts."""
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
        """Yield values as :meth:`.Point.values` does, of each expert's own tokens, without order, so with row signs of +1."""
        outputs = self.value.asnumpy()
        kept = self.gradient.asnumpy() if backward else outputs
        for view, output, tensor in zip(self.views, outputs, kept, strict=True):
            mine = tensor[(output != 0).any(axis=1)]
            yield view.name, measured(mine, row_signs(None, len(mine)), column_signs((0, view.width)))[None], None

    whole, forces, bytes = False, False, 0
