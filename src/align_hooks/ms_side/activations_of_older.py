"""The points of ``LlamaForCausalLM`` (``use_legacy: True``, 1.5 to 1.9), whose tensors all order tokens row by row."""

from mindspore import nn

from align_hooks.errors import RefusedRun
from align_hooks.ms_side import points as compiled
from align_hooks.ms_side.model import Model
from align_hooks.ms_side.objects import Cell
from align_hooks.ms_side.point_builder import Builder, in_two, of_logits, of_losses, of_qkv
from align_hooks.ms_side.points import TokenLayout, put
from align_hooks.names import points
from align_hooks.settings import PREFIX


def of_older(build: Builder, model: Model) -> None:
    """Put points into a LlamaForCausalLM; raise RefusedRun where its layers have other parts."""
    network, config, hidden = model.network, model.config, model.config.hidden_size
    llama = network.model
    build.output(llama.tok_embeddings, points.EMBEDDING, hidden)
    for number, layer in enumerate(llama.layers):
        if not all(hasattr(layer, name) for name in ("attention_norm", "attention", "ffn_norm", "feed_forward", "add")):
            raise RefusedRun(f"{PREFIX}ACTIVATIONS: a {type(layer).__name__} has parts that this version does not know; unset it")
        of_block(build, layer, f"model.layers.{number}", config, hidden)
    build.output(llama.norm_out, points.FINAL_NORM, hidden)
    of_logits(build, network.lm_head, points.LOGITS, int(config.vocab_size))
    of_losses(build, network)


def of_block(build: Builder, layer: Cell, name: str, config: Cell, hidden: int) -> None:
    """Put points into a layer and its parts."""
    given, residual, out = (build.point(each, hidden) for each in (f"{name}.input", f"{name}.residual", name))
    build.subclass(layer, pointed_layer, point_in=given, point_residual=residual, point_out=out)
    build.output(layer.attention_norm, f"{name}.{points.NORM}", hidden)
    build.output(layer.ffn_norm, f"{name}.{points.SECOND_NORM}", hidden)
    of_attention(build, layer.attention, f"{name}.self_attn", config, hidden)
    of_feed_forward(build, layer.feed_forward, f"{name}.mlp", hidden)


def pointed_layer(base: type) -> type:
    """Make a layer with the text of ``LLamaDecodeLayer.construct`` and points in it, since no part of the layer shows the residual."""

    class Pointed(base):  # type: ignore[misc]
        def construct(  # type: ignore[no-untyped-def]
            self,
            x,
            freqs_cis,
            mask=None,
            batch_valid_length=None,
            block_tables=None,
            slot_mapping=None,
            prefix_keys_values=None,
            q_seq_lens=None,
            kv_mask=None,
            seq_chunk=None,
            actual_seq_len=None,
        ):
            x = self.point_in(x)
            attended = self.attention(
                self.attention_norm(x),
                freqs_cis,
                mask,
                batch_valid_length,
                block_tables,
                slot_mapping,
                prefix_keys_values,
                q_seq_lens,
                actual_seq_len=actual_seq_len,
            )
            if self.residual_cast_flag:
                x = self.cast(x, self.residual_dtype)
                attended = self.cast(attended, self.residual_dtype)
            residual = self.add(x, attended)
            if self.residual_cast_flag:
                residual = self.cast(residual, self.dtype)
            residual = self.point_residual(residual)
            fed = self.feed_forward(self.ffn_norm(residual))
            if self.residual_cast_flag:
                residual = self.cast(residual, self.residual_dtype)
                fed = self.cast(fed, self.residual_dtype)
            out = self.add(residual, fed)
            if self.residual_cast_flag:
                out = self.cast(out, self.dtype)
            return self.point_out(out)

    return Pointed


def of_attention(build: Builder, attention: Cell, name: str, config: Cell, hidden: int) -> None:
    """Put points into attention, whose projections are separate or fused per group of queries (``qkv_concat``)."""
    heads = config.num_heads
    groups = config.n_kv_heads or heads
    size = hidden // heads
    if attention.qkv_concat:
        build.output(attention.w_qkv, [f"{name}.{which}_proj" for which in "qkv"], 0, of_qkv(heads, groups, size, contiguous=False))
    else:
        for which, count in (("q", heads), ("k", groups), ("v", groups)):
            build.output(getattr(attention, f"w{which}"), f"{name}.{which}_proj", count * size)
    query, key, value = (
        build.point(f"{name}.{which}", count * size, of_heads(build.layout, count))
        for which, count in (("query", heads), ("key", groups), ("value", groups))
    )
    if query is not None or key is not None:
        put(attention, "apply_rotary_emb", Rotated(attention.apply_rotary_emb, query or nn.Identity(), key or nn.Identity()))
    build.subclass(attention, pointed_values, point_value=value)
    build.input_and_output(attention.wo, f"{name}.core", heads * size, f"{name}.o_proj", hidden)


def of_heads(layout: TokenLayout, heads: int) -> TokenLayout:
    """Return the layout of ``[rows, heads, positions, size]``."""
    return TokenLayout(layout.rows, layout.length, layout.first, by_position=False, heads=heads)


class Rotated(nn.Cell):
    """``apply_rotary_emb`` with a point at each output."""

    def __init__(self, original: Cell, query: Cell, key: Cell) -> None:
        super().__init__(auto_prefix=False)
        self.original, self.point_query, self.point_key = original, query, key

    def construct(self, query, key, freqs):  # type: ignore[no-untyped-def]
        """Compiled from this text."""
        query, key = self.original(query, key, freqs)
        return self.point_query(query), self.point_key(key)


def pointed_values(base: type) -> type:
    """Attention whose values pass a point before the core."""

    class Pointed(base):  # type: ignore[misc]
        def _cat_prefix(self, key, value, prefix_keys_values):  # type: ignore[no-untyped-def]
            key, value = super()._cat_prefix(key, value, prefix_keys_values)
            return key, self.point_value(value)

    return Pointed


def of_feed_forward(build: Builder, mlp: Cell, name: str, hidden: int) -> None:
    """Put points into a feed-forward part, whose gate and up are separate or interleaved by row (``ffn_concat``)."""
    size = int(mlp.hidden_dim)
    if mlp.ffn_concat:
        build.output(mlp.w_gate_hidden, [f"{name}.gate_proj", f"{name}.up_proj"], 2 * size, in_two((size, 2), 1))
    else:
        gate = build.point(f"{name}.gate_proj", size)
        if gate is not None:  # the gate's activation is inside its projection
            put(mlp.w1, "activation", compiled.Before(mlp.w1.activation, gate))
        build.output(mlp.w3, f"{name}.up_proj", size)
    build.input_and_output(mlp.w2, f"{name}.activation", size, f"{name}.down_proj", hidden)
