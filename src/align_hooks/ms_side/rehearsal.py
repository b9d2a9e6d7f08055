"""MindFormers' newer models on a machine with no accelerator: operators that MindSpore's CPU lacks, replaced by plain ones.

Each twin has the original's arguments and result. MindSpore's CPU kernels of exponentials, logarithms, softmax and sigmoids are
approximations in fp32 (1e-7 to 1e-6), so the twins compute them in fp64, whose kernels are right to the last bit of fp32.

Patch point: names in the modules of ``mindformers.parallel_core`` from which a model is built, before it is built. Graph mode compiles
``construct`` from its text, so it would ignore a wrapper, while it compiles a class in the place of another.
"""

from __future__ import annotations

import importlib

import mindspore
from mindspore import Tensor, mint, nn, ops

from align_hooks.ms_side.objects import Cell
from align_hooks.ms_side.session import MsSession

GRAPH = "mindformers.parallel_core.training_graph"
WHY = "ALIGN_HOOKS_DEVICE=cpu"
HIDDEN = -10000.0
"""The score of a masked position, as in Megatron-LM's own attention."""


class Plain(nn.Cell):
    """A twin that, like an operator, can be cut over devices, recomputed and given attributes, all without effect on a CPU."""

    def shard(self, *args: object, **kwargs: object) -> Plain:
        """Return the twin itself: there is one device."""
        return self

    recompute = add_prim_attr = shard


class InDouble(Plain):
    """An operator, taken in fp64."""

    def __init__(self, operator: Cell) -> None:
        super().__init__(auto_prefix=False)
        self.operator = operator
        self.cast = ops.Cast()

    def construct(self, x):  # type: ignore[no-untyped-def]
        """The operator of ``x``, in the type of ``x``; compiled from this text."""
        return self.cast(self.operator(self.cast(x, mindspore.float64)), x.dtype)


class Exp(InDouble):
    """``Exp`` of the loss."""

    def __init__(self) -> None:
        super().__init__(ops.Exp())


class LogOperator(InDouble):
    """``Log`` of the loss."""

    def __init__(self) -> None:
        super().__init__(ops.Log())


class SiLU(Plain):
    """``x · sigmoid(x)``."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self.sigmoid, self.cast = ops.Sigmoid(), ops.Cast()

    def construct(self, x):  # type: ignore[no-untyped-def]
        """Compiled from this text."""
        wide = self.cast(x, mindspore.float64)
        return self.cast(wide * self.sigmoid(wide), x.dtype)


class Swiglu(Plain):
    """The first half along an axis, by SiLU, times the other: ``mlp.py`` asks for the last axis, or for the last but one."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self.silu = SiLU()

    def construct(self, x, axis):  # type: ignore[no-untyped-def]
        """Compiled from this text."""
        half = x.shape[axis] // 2
        if axis == -1:
            return self.silu(x[..., :half]) * x[..., half:]
        return self.silu(x[..., :half, :]) * x[..., half:, :]


class Attention(nn.Cell):
    """``FlashAttention`` with ``use_flash_attention: False``: ``[sequence, batch, heads, dim]`` in, ``[sequence, batch, hidden]`` out.

    MindFormers repeats keys and values as if they were ``[batch, heads, sequence, dim]`` (``Attention._repeat_kv``), originals first."""

    def __init__(self, config: Cell, layer_number: int, softmax_scale: float | None = None, **options: object) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.latent = config.multi_latent_attention
        self.groups = self.heads if self.latent else config.num_query_groups
        self.repeats = self.heads // self.groups
        size = config.qk_head_dim + config.qk_pos_emb_head_dim if self.latent else config.kv_channels
        self.scale = size**-0.5 if softmax_scale is None else softmax_scale
        self.softmax = InDouble(ops.Softmax(axis=-1))
        self.scores, self.values, self.select, self.cast = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul(), ops.Select(), ops.Cast()

    def construct(self, query, key, value, attention_mask, actual_seq_qlen=None, actual_seq_kvlen=None):  # type: ignore[no-untyped-def]
        """Matrix product, mask, softmax, matrix product; compiled from this text."""
        length, rows, heads, size = query.shape
        width = value.shape[-1]
        if self.repeats > 1:
            key = key.reshape((length, rows, self.repeats, self.groups, size))[:, :, 0]
            value = value.reshape((length, rows, self.repeats, self.groups, size))[:, :, 0]
            key = ops.tile(key.reshape((length, rows, self.groups, 1, size)), (1, 1, 1, self.repeats, 1))
            value = ops.tile(value.reshape((length, rows, self.groups, 1, size)), (1, 1, 1, self.repeats, 1))
            key = key.reshape((length, rows, heads, size))
            value = value.reshape((length, rows, heads, size))
        scores = self.scores(ops.transpose(query, (1, 2, 0, 3)), ops.transpose(key, (1, 2, 0, 3))) * self.scale
        hidden = ops.broadcast_to(self.cast(attention_mask, mindspore.float32) > 0.5, scores.shape)
        scores = self.select(hidden, ops.full_like(scores, HIDDEN), scores)
        seen = self.values(self.softmax(scores), ops.transpose(value, (1, 2, 0, 3)))
        return ops.transpose(seen, (2, 0, 1, 3)).reshape((length, rows, heads * width))


class Outer(Plain):
    """The outer product of two vectors."""

    def construct(self, x, y):  # type: ignore[no-untyped-def]
        """A broadcast product; compiled from this text."""
        return x.reshape((-1, 1)) * y.reshape((1, -1))


class TopK(Plain):
    """The largest ``count`` elements of the last axis, descending, and their indices."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self.operator = ops.TopK(sorted=True)

    def construct(self, x, count):  # type: ignore[no-untyped-def]
        """Compiled from this text."""
        return self.operator(x, count)


def embedding(ids: Tensor, weight: Tensor) -> Tensor:
    """Return rows of an embedding by ``Gather``, whose backward pass a CPU has."""
    return ops.Gather()(weight, ids, 0)


def experts(original: type) -> type:
    """Make a twin of ``FFNGroupedGEMM`` without permutation or padding: every expert sees every token, with weight 0 if not chosen."""

    class Experts(original):  # type: ignore[misc]
        def __init__(self, config: Cell) -> None:
            super().__init__(config)
            self.sigmoid, self.one_hot = ops.Sigmoid(), ops.OneHot()
            self.one, self.zero = Tensor(1.0, mindspore.float32), Tensor(0.0, mindspore.float32)
            self.product = ops.BatchMatMul()
            self.weighed = nn.Identity()  # where a point can see what each expert makes of each token

        def construct(self, tokens, probs, routing_map):  # type: ignore[no-untyped-def]
            """The weighed sum of the experts of each token; compiled from this text."""
            shape, dtype = tokens.shape, tokens.dtype
            count, width, size = self.num_local_experts, self.hidden_size, self.moe_ffn_hidden_size
            x = self.cast_op(tokens, self.compute_dtype).reshape((-1, width))
            chosen = routing_map.reshape((-1, routing_map.shape[-1]))
            weights = self.one_hot(chosen, count, self.one, self.zero) * probs.reshape((chosen.shape[0], chosen.shape[1], 1))
            weights = weights.sum(axis=1)
            first = self.cast_op(self.weight1, self.compute_dtype).reshape((count, width, 2 * size))
            second = self.cast_op(self.weight2, self.compute_dtype).reshape((count, size, width))
            inner = self.product(ops.broadcast_to(x.reshape((1, x.shape[0], width)), (count, x.shape[0], width)), first)
            gate = self.cast_op(inner[:, :, :size], mindspore.float64)
            active = self.cast_op(gate * self.sigmoid(gate), inner.dtype) * inner[:, :, size:]
            outer = self.product(active, second)
            weighed = self.weighed(outer * self.cast_op(ops.transpose(weights, (1, 0)), outer.dtype).reshape((count, x.shape[0], 1)))
            return self.cast_op(weighed.sum(axis=0), dtype).reshape(shape)

    return Experts


TWINS: tuple[tuple[str, str, object, str], ...] = (
    ("loss_func", "Exp", Exp, "an approximation in fp32"),
    ("loss_func", "Log", LogOperator, "an approximation in fp32"),
    ("activation", "SiLU_op", SiLU, "an approximation in fp32"),
    ("activation", "Swiglu_op", Swiglu, "Swiglu has no kernel"),
    ("base_models.gpt.gpt_layer_specs", "FlashAttention", Attention, "FlashAttentionScore has no kernel"),
    ("base_models.common.embeddings.rotary_pos_embedding", "Outer", Outer, "Outer has no kernel"),
    ("base_models.common.embeddings.yarn_rotary_pos_embedding", "Outer", Outer, "Outer has no kernel"),
    ("transformer.moe.router", "TopkExt", TopK, "TopkExt has no kernel"),
)
"""Module of MindFormers' training graph, name in the module, twin, and the CPU's shortcoming."""


def install(session: MsSession) -> None:
    """Put the twins in place, logged for undoing, each listed under ``overrides``."""

    def put(owner: object, path: str, name: str, twin: object, why: str) -> None:
        session.patch_log.replace(owner, name, twin)
        session.override(f"{path}.{name}", why, "a plain operator of the same arithmetic", WHY)

    for path, name, twin, why in TWINS:
        module = importlib.import_module(f"{GRAPH}.{path}")
        if hasattr(module, name):
            put(module, path, name, twin, why)
    norm = importlib.import_module(f"{GRAPH}.transformer.norm")
    put(norm, "transformer.norm", "FusedRMSNorm", norm.RMSNorm, "RmsNorm has no kernel")
    specs = importlib.import_module(f"{GRAPH}.base_models.gpt.moe_module_specs")
    put(specs, "transformer.moe", "FFNGroupedGEMM", experts(specs.FFNGroupedGEMM), "GroupedMatmul has no kernel")
    put(mint.nn.functional, "mint.nn.functional", "embedding", embedding, "its backward pass has no kernel")
    router = importlib.import_module(f"{GRAPH}.transformer.moe.router")
    scores = {"softmax": InDouble(ops.Softmax(axis=-1)), "sigmoid": InDouble(ops.Sigmoid())}
    put(router, "transformer.moe.router", "GATING_ACTIVATION", scores, "an approximation in fp32")
