"""The PyNative trainer on a machine with no accelerator: plain operators in the place of those that a CPU lacks or computes wrongly.

A twin has its original's arguments and result, and MindSpore differentiates it, unless it deals in whole numbers only. Twins of numpy have
no gradient.

Patch point: the names of MindSpore that models take when they are built, and those that modules of MindFormers took when they were
imported. Nothing is replaced before a PyNative trainer is being made, as the static graph compiles the originals.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops
from mindspore.ops import auto_generate
from mindspore.ops.operations import nn_ops

from align_hooks.ms_side.objects import Cell
from align_hooks.ms_side.session import MsSession
from align_hooks.names.blocks import Array

WHY = "ALIGN_HOOKS_DEVICE=cpu"
PACKAGE = "mindformers"
NONE = "no kernel"
COARSE = "an approximation in fp32"
SILENT = "does nothing, without an error"
STRIDES = "its gradient loses its strides where it goes straight into mint.cat"
OF_NEWER = "MindSpore 2.10 has it"
HIDDEN = -10000.0
"""The score of a masked position, as in Megatron-LM's own attention."""
DOUBLE, SINGLE = mindspore.float64, mindspore.float32
_exp, _log, _softmax, _meta = mint.exp, mint.log, mint.nn.functional.softmax, mindspore.DeviceCtx


def tensor(array: Array, dtype: Any = None) -> Tensor:
    """Return a tensor of an array, in its own type unless ``dtype`` is given."""
    made = Tensor(np.ascontiguousarray(array))
    return made if dtype is None or made.dtype == dtype else made.astype(dtype)


def sizes(size: Sequence[Any]) -> tuple[int, ...]:
    """Return the sizes that were given one by one, or as one sequence."""
    first = size[0] if len(size) == 1 and isinstance(size[0], tuple | list) else size
    return tuple(int(length) for length in first)


def assign(own: Tensor, array: Array) -> Tensor:
    """Set the values of a tensor or a parameter, and return it."""
    made = tensor(array, own.dtype)
    own.set_data(made) if isinstance(own, Parameter) else own.assign_value(made)
    return own


def filled(value: float) -> Callable[..., Tensor]:
    """Return a maker of tensors that are filled with a value, fp32 by default."""
    return lambda *size, dtype=None, **others: tensor(np.full(sizes(size), value, np.float32), dtype or SINGLE)


def like(value: float) -> Callable[..., Tensor]:
    """Return a maker of tensors that are filled with a value, in shape and type as another."""
    return lambda x, dtype=None, **others: filled(value)(*x.shape, dtype=dtype or x.dtype)


def full(size: int | Sequence[int], value: float, *others: object, dtype: Any = None, **options: object) -> Tensor:
    """Return a tensor that is filled with a value."""
    usual = SINGLE if isinstance(value, float) else mindspore.int64
    return tensor(np.full(size if isinstance(size, int) else tuple(size), value), dtype or usual)


def triangle(keep: Callable[..., Array]) -> Callable[..., Tensor]:
    """Return an operator that keeps one triangle of the last two axes."""
    return lambda x, diagonal=0: x * tensor(keep(np.ones(x.shape[-2:], np.float32), diagonal), x.dtype)


def normal_(own: Tensor, mean: float = 0.0, std: float = 1.0, *others: object, **options: object) -> Tensor:
    """Fill with numpy's normal draws."""
    return assign(own, np.random.normal(mean, std, own.shape).astype(np.float32))


def fill_(own: Tensor, value: float = 0.0, *others: object, **options: object) -> Tensor:
    """Fill with a value."""
    return assign(own, np.full(own.shape, value, np.float32))


def add_(own: Tensor, other: Tensor, *others: object, alpha: float = 1, **options: object) -> Tensor:
    """Add in place, by ``copy_``, which works."""
    return own.copy_((own + other * alpha if alpha != 1 else own + other).astype(own.dtype))


def scatter_(own: Tensor, dim: int, index: Tensor, value: Any, **options: object) -> Tensor:
    """Set the elements at an index, in place."""
    array = own.asnumpy().copy()
    np.put_along_axis(array, index.asnumpy(), value.asnumpy() if isinstance(value, Tensor) else value, dim)
    return assign(own, array)


def split(x: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Cut an axis, by ``ops.split``, whose gradient is right."""
    parts: tuple[Tensor, ...] = ops.split(
        x, split_size_or_sections if isinstance(split_size_or_sections, int) else list(split_size_or_sections), dim
    )
    return parts


def roll(x: Tensor, shift: int, dim: int) -> Tensor:
    """Move elements along an axis, round its end."""
    size = x.shape[dim]
    moved = shift % size
    return mint.cat([mint.narrow(x, dim, size - moved, moved), mint.narrow(x, dim, 0, size - moved)], dim) if moved else x


def in_double(operator: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return an operator taken in fp64, in the type of its argument."""
    return lambda x, *others, **options: operator(x.astype(DOUBLE)).astype(x.dtype)


def softmax(x: Tensor, dim: int = -1, **options: object) -> Tensor:
    """Softmax along an axis."""
    return _softmax(x.astype(DOUBLE), dim).astype(x.dtype)


def _sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + _exp(-x))


def silu(x: Tensor, *others: object, **options: object) -> Tensor:
    """``x · sigmoid(x)``."""
    wide = x.astype(DOUBLE)
    return (wide * _sigmoid(wide)).astype(x.dtype)


def swiglu(x: Tensor, dim: int = -1) -> Tensor:
    """The first half along an axis, by SiLU, times the other."""
    gate, up = mint.chunk(x, 2, dim)
    return silu(gate) * up


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """The normalised tensor, and what it was multiplied by."""
    scale = mint.rsqrt(mint.mean(mint.square(x), -1, True) + eps)
    return x * scale * weight, scale


def norm(x: Tensor, p: int = 2, dim: int | None = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The Euclidean norm."""
    squares = mint.square(x.astype(dtype or x.dtype))
    return mint.sqrt(mint.sum(squares) if dim is None else mint.sum(squares, dim=dim, keepdim=keepdim))


def floor_divide(a: Tensor, b: Tensor | int) -> Tensor:
    """Divide whole numbers."""
    return tensor(a.asnumpy() // (b.asnumpy() if isinstance(b, Tensor) else b), a.dtype)


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """The highest elements along an axis and their indices; of equal elements the first."""
    values = x.asnumpy()
    index = tensor(np.argsort(-values if largest else values, dim, kind="stable").take(range(k), dim), mindspore.int64)
    return mint.gather(x, dim if dim >= 0 else x.ndim + dim, index), index


def argsort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The order of the elements along an axis."""
    return tensor(np.argsort(-x.asnumpy() if descending else x.asnumpy(), dim, kind="stable"), mindspore.int64)


def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How often each whole number below ``bins`` occurs."""
    return tensor(np.bincount(x.asnumpy().reshape(-1).astype(np.int64), minlength=bins)[:bins].astype(np.float32))


class FlashAttention:
    """``FlashAttentionScore`` in the layouts SBH, BSH and BNSD: mask, softmax and two products.

    Heads of queries may share a head of keys and values. The mask is 1 where attention is forbidden."""

    ORDER = {"SBH": (1, 2, 0, 3), "BSH": (0, 2, 1, 3), "BNSD": (0, 1, 2, 3)}
    BACK = {"SBH": (2, 0, 1, 3), "BSH": (0, 2, 1, 3)}

    def __init__(self, head_num: int, scale_value: float = 1.0, input_layout: str = "BNSD", **options: object) -> None:
        self.heads, self.scale, self.layout = head_num, scale_value, input_layout

    def by_head(self, x: Tensor, heads: int) -> Tensor:
        """Return ``[rows, heads, positions, size]``."""
        by_head = x if self.layout == "BNSD" else mint.reshape(x, (x.shape[0], x.shape[1], heads, -1))
        return mint.permute(by_head, self.ORDER[self.layout])

    def shared(self, x: Tensor, groups: int) -> Tensor:
        """Return keys or values, repeated for the queries that share them."""
        rows, _, length, size = x.shape
        repeats = self.heads // groups
        tiled = mint.tile(mint.reshape(x, (rows, groups, 1, length, size)), (1, 1, repeats, 1, 1))
        return x if repeats == 1 else mint.reshape(tiled, (rows, self.heads, length, size))

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *others: Tensor, attn_mask: Tensor = None, **options: object) -> Any:
        """Return what the operator does: three results for its own backward pass, None here, and the output."""
        hidden = attn_mask if attn_mask is not None else others[2]
        groups = key.shape[1] if self.layout == "BNSD" else self.heads * key.shape[-1] // query.shape[-1]
        queries, keys, values = self.by_head(query, self.heads), self.by_head(key, groups), self.by_head(value, groups)
        scores = mint.matmul(queries, mint.permute(self.shared(keys, groups), (0, 1, 3, 2))) * self.scale
        scores = mint.where(hidden.astype(SINGLE) > 0.5, tensor(np.array(HIDDEN, np.float32), scores.dtype), scores)
        out = mint.matmul(softmax(scores), self.shared(values, groups))
        if self.layout in self.BACK:
            out = mint.permute(out, self.BACK[self.layout])
            out = mint.reshape(out, (out.shape[0], out.shape[1], -1))
        return None, None, None, out


class MatmulByExpert:
    """``GroupedMatmul``: the rows of each expert times its matrix; the last argument has the experts' last rows, cumulated."""

    def __init__(self, **options: object) -> None:
        pass

    def __call__(self, x: Sequence[Tensor], weight: Sequence[Tensor], *others: Tensor) -> tuple[Tensor]:
        """Return the joined products."""
        stops = [int(stop) for stop in others[-1].asnumpy()]
        bounds = zip([0, *stops], stops, range(len(stops)), strict=False)
        parts = [mint.matmul(x[0][start:stop], weight[0][expert]) for start, stop, expert in bounds if stop > start]
        return (mint.cat(parts, 0),)


def permute_tokens(tokens: Tensor, indices: Tensor, *others: object, **options: object) -> tuple[Tensor, Tensor]:
    """Return tokens in the order of their experts, each as often as it has experts, and the way back."""
    flat = indices.asnumpy().reshape(-1)
    order = np.argsort(flat, kind="stable")
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return ops.gather(tokens, tensor((order // indices.shape[-1]).astype(np.int32)), 0), tensor(back.astype(np.int32))


def unpermute_tokens(permuted: Tensor, back: Tensor, weights: Tensor, *others: object, **options: object) -> Tensor:
    """Return the weighed sum of each token's experts, in the order of tokens."""
    rows = mint.reshape(ops.gather(permuted, back.astype(mindspore.int32), 0), (-1, weights.shape[-1], permuted.shape[-1]))
    return mint.sum(rows * mint.unsqueeze(weights, -1), 1)


def device_context(name: str) -> AbstractContextManager[Any]:
    """Return the context of the device ``meta``, and of any other device none."""
    return _meta(name) if name == "meta" else contextlib.nullcontext()


IN_PLACE: dict[str, tuple[object, str]] = {
    "normal_": (normal_, NONE),
    "fill_": (fill_, NONE),
    "zero_": (lambda own: fill_(own, 0.0), NONE),
    "scatter_": (scatter_, NONE),
    "add_": (add_, SILENT),
    "sub_": (lambda own, other, *, alpha=1: add_(own, other, alpha=-alpha), SILENT),
    "mul_": (lambda own, other: own.copy_((own * other).astype(own.dtype)), SILENT),
    "div_": (lambda own, other: own.copy_((own / other).astype(own.dtype)), SILENT),
    "exp_": (lambda own: own.copy_(in_double(_exp)(own)), SILENT),
}
"""Methods of tensors and parameters, each with its twin and the CPU's shortcoming."""
OPERATORS: dict[str, tuple[object, str]] = {
    "full": (full, NONE),
    "ones": (filled(1), NONE),
    "zeros": (filled(0), NONE),
    "ones_like": (like(1), NONE),
    "zeros_like": (like(0), NONE),
    "arange": (lambda *bounds, dtype=None, **others: tensor(np.arange(*map(int, bounds)), dtype or mindspore.int64), NONE),
    "tril": (triangle(np.tril), NONE),
    "triu": (triangle(np.triu), NONE),
    "index_select": (lambda x, dim, index: ops.gather(x, index, dim), NONE),
    "stack": (lambda tensors, dim=0: mint.cat([mint.unsqueeze(part, dim) for part in tensors], dim), NONE),
    "split": (split, STRIDES),
    "roll": (roll, NONE),
    "outer": (lambda a, b: mint.reshape(a, (-1, 1)) * mint.reshape(b, (1, -1)), NONE),
    "scatter_add": (
        lambda x, dim, index, source, **others: ops.tensor_scatter_elements(x, index.astype(mindspore.int32), source, dim, "add"),
        NONE,
    ),
    "scatter": (lambda x, dim, index, value, **others: scatter_(tensor(x.asnumpy()), dim, index, value), NONE),
    "exp": (in_double(_exp), COARSE),
    "log": (in_double(_log), COARSE),
    "sigmoid": (in_double(_sigmoid), COARSE),
    "cos": (in_double(mint.cos), COARSE),
    "sin": (in_double(mint.sin), COARSE),
    "softmax": (softmax, COARSE),
    "addcmul": (lambda a, b, c, value=1: a + b * c * value, NONE),
    "floor_divide": (floor_divide, NONE),
    "cumsum": (lambda x, dim=0, dtype=None, **others: tensor(np.cumsum(x.asnumpy(), dim), dtype or x.dtype), NONE),
    "norm": (norm, NONE),
    "topk": (topk, NONE),
    "histc": (histc, NONE),
    "argsort": (argsort, NONE),
}
"""Functions of ``mindspore.mint``, each with its twin and the CPU's shortcoming."""
FUNCTIONS: dict[str, tuple[object, str]] = {
    "softmax": (softmax, COARSE),
    "sigmoid": (in_double(_sigmoid), COARSE),
    "silu": (silu, COARSE),
    "softplus": (in_double(lambda x: _log(_exp(x) + 1)), NONE),
}
"""Functions of ``mindspore.mint.nn.functional``."""
OTHERS: tuple[tuple[object, str, object, str], ...] = (
    (Tensor, "clone", lambda own: own + 0, NONE),  # a parameter has a method of its own
    (ops, "full", full, NONE),
    (ops, "ones", lambda size, dtype=None: filled(1)(size, dtype=dtype), NONE),
    (ops, "zeros", lambda size, dtype=None: filled(0)(size, dtype=dtype), NONE),
    (ops, "swiglu", swiglu, NONE),
    (ops, "rms_norm", rms_norm, NONE),
    (ops, "moe_token_permute", permute_tokens, NONE),
    (ops, "moe_token_unpermute", unpermute_tokens, NONE),
    (nn_ops, "FlashAttentionScore", FlashAttention, NONE),
    (auto_generate, "GroupedMatmul", MatmulByExpert, NONE),
    (mindspore, "DeviceCtx", device_context, "knows 'meta' alone"),
)


def twins() -> Iterator[tuple[Any, str, object, str]]:
    """Yield what to replace: the owner, the name, the twin, and the CPU's shortcoming."""
    for kind in (Tensor, Parameter):
        yield from ((kind, name, twin, why) for name, (twin, why) in IN_PLACE.items())
    yield from ((mint, name, twin, why) for name, (twin, why) in OPERATORS.items())
    yield from ((mint.nn.functional, name, twin, why) for name, (twin, why) in FUNCTIONS.items())
    yield from OTHERS
    if not hasattr(nn.Cell, "to_empty"):
        yield nn.Cell, "to_empty", lambda cell, *others, **options: cell, OF_NEWER


def rehearse(session: MsSession) -> None:
    """Choose the CPU, and put the operators in place, logged for undoing."""
    mindspore.set_device("CPU")
    # kernels that run behind the next operator's back read memory that it has freed already
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE, pynative_synchronize=True)
    named, replace = set(), session.patch_log.replace
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == PACKAGE]
    for owner, name, twin, _ in list(twins()):
        original = getattr(owner, name, None)
        replace(owner, name, twin)
        named.add(name)
        for module in modules if original is not None else ():
            for alias in [alias for alias, held in vars(module).items() if held is original]:
                replace(module, alias, twin)
    from mindformers.pynative.transformers.attention import Attention

    # it repeats keys as if they were [batch, heads, ...]; the operator takes keys that queries share
    replace(Attention, "_repeat_kv", lambda attention, x, repeats: x)
    session.override(f"{len(named) + 1} operators of MindSpore", "no kernel or a wrong one", "plain ones of the same arithmetic", WHY)


def contiguous(network: Cell) -> None:
    """Have gradients stored row by row: one that comes through a view is otherwise added up in the wrong order from the second time on."""
    for parameter in network.trainable_params():
        parameter.register_hook(lambda gradient: gradient.contiguous())
