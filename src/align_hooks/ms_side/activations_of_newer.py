"""The points of newer models (``use_legacy: False``), of ``mindformers.parallel_core.training_graph``."""

from align_hooks.families.family import ModelConfig
from align_hooks.ms_side.model import Model
from align_hooks.ms_side.objects import Cell
from align_hooks.ms_side.point_builder import Builder, by_rows, in_two, of_logits, of_losses, of_qkv
from align_hooks.ms_side.points import View
from align_hooks.names import points


def of_newer(build: Builder, model: Model) -> None:
    """Put points into a GPTModel of ``mindformers.parallel_core.training_graph``."""
    core, config, hidden = model.core, model.config, model.config.hidden_size
    build.output(core.embedding, points.EMBEDDING, hidden)
    for number, layer in enumerate(core.decoder.layers):
        of_block(build, layer, f"model.layers.{number}", config)
    build.output(core.decoder.final_layernorm, points.FINAL_NORM, hidden)
    of_logits(build, core.output_layer, points.LOGITS, int(core.vocab_size))
    of_losses(build, core)
    if getattr(core, "mtp_process", False):
        of_predicting(build, core, config)


def of_predicting(build: Builder, core: Cell, config: ModelConfig) -> None:
    """Put points into the layers for multi-token prediction; ``eh_proj`` is the only source of their transformer layer's input."""
    hidden = config.hidden_size
    for index, layer in enumerate(core.mtp.layers):
        name = f"model.layers.{config.num_layers + index}"
        for norm in ("enorm", "hnorm"):
            build.output(getattr(layer, norm), f"{name}.{norm}", hidden)
        views = [View("", (hidden,), 0, hidden)] * 2
        build.output(layer.eh_proj, [f"{name}.eh_proj", f"{name}.input"], hidden, views)
        of_block(build, layer.transformer_layer, name, config, predicts=True)
        build.output(layer.final_layernorm, f"{name}.shared_head.norm", hidden)
        if len(core.mtp.layers) == 1:  # it is one Cell for all of them
            of_logits(build, core.mtp.output_layer, f"{name}.shared_head.head", int(core.vocab_size))


def of_block(build: Builder, layer: Cell, name: str, config: ModelConfig, *, predicts: bool = False) -> None:
    """Put points into a block. ``pre_cross_attn_layernorm`` is an identity, behind which norm and addition read the residual."""
    hidden = config.hidden_size
    if predicts:
        build.output(layer, name, hidden)
    else:
        build.input_and_output(layer, f"{name}.input", hidden, name, hidden)
    norms = {"input_layernorm": points.NORM, "pre_cross_attn_layernorm": "residual", "pre_mlp_layernorm": points.SECOND_NORM}
    for attribute, kind in norms.items():
        build.output(getattr(layer, attribute), f"{name}.{kind}", hidden)
    if config.multi_latent_attention:
        of_latent_attention(build, layer.self_attention, f"{name}.self_attn", config)
    else:
        of_attention(build, layer.self_attention, f"{name}.self_attn", hidden)
    if hasattr(layer.mlp, "router"):
        of_experts(build, layer.mlp, f"{name}.mlp", hidden)
    else:
        of_feed_forward(build, layer.mlp, f"{name}.mlp", hidden, config.ffn_hidden_size)


def of_attention(build: Builder, attention: Cell, name: str, hidden: int) -> None:
    """Put points into attention whose projections are fused per group of queries or consecutively."""
    heads, groups, size = attention.num_heads, attention.kv_num_heads, attention.head_dim
    fused = [f"{name}.{which}_proj" for which in "qkv"]
    width = (heads + 2 * groups) * size
    contiguous = "Contiguous" in type(attention).__name__
    build.output(attention.linear_qkv, fused, width, of_qkv(heads, groups, size, contiguous))
    for which, count in (("q", heads), ("k", groups)):
        norm = getattr(attention, f"{which}_layernorm", None)
        if norm is not None and type(norm).__name__ != "IdentityOp":
            build.output(norm, f"{name}.{which}_norm", count * size)
    widths = {"query": heads * size, "key": groups * size, "value": groups * size}
    build.subclass(
        attention, pointed_attention, **{f"point_{which}": build.point(f"{name}.{which}", width) for which, width in widths.items()}
    )
    build.input_and_output(attention.linear_proj, f"{name}.core", heads * size, f"{name}.o_proj", hidden)


def pointed_attention(base: type) -> type:
    """Attention whose queries, keys and values pass a point before the core: rotated, and not yet repeated for their queries."""

    class Pointed(base):  # type: ignore[misc]
        def _apply_rotary_pos_emb(self, query, key, rotary_pos_emb):  # type: ignore[no-untyped-def]
            query, key = super()._apply_rotary_pos_emb(query, key, rotary_pos_emb)
            return self.point_query(query), key

        def _cat_prefix(self, key, value, prefix_keys_values):  # type: ignore[no-untyped-def]
            key, value = super()._cat_prefix(key, value, prefix_keys_values)
            return self.point_key(key), self.point_value(value)

    return Pointed


def of_latent_attention(build: Builder, attention: Cell, name: str, config: ModelConfig) -> None:
    """Put points into latent attention, whose first projections are joined or separate (``mla_qkv_concat``)."""
    heads, head, turned_part = config.num_attention_heads, config.qk_head_dim, config.qk_pos_emb_head_dim
    rank, keys, size = config.q_lora_rank, config.kv_lora_rank + turned_part, head + turned_part
    width = heads * size
    first = f"{name}.{'q_a_proj' if rank else 'q_proj'}"
    if hasattr(attention, "linear_qkv"):
        queries = rank or width
        build.output(attention.linear_qkv, [first, f"{name}.kv_a_proj_with_mqa"], queries + keys, in_two((queries + keys,), queries))
        cells = {"q_layernorm": "q_layernorm", "k_layernorm": "k_layernorm", "up": "linear_qb", "kv_up": "linear_kvb"}
    else:
        down = "linear_q_down_proj" if rank else "linear_q_proj"
        build.output(getattr(attention, down), first, rank or width)
        build.output(attention.linear_kv_down_proj, f"{name}.kv_a_proj_with_mqa", keys)
        cells = {"q_layernorm": "q_layernorm", "k_layernorm": "kv_layernorm", "up": "linear_q_up_proj", "kv_up": "linear_kv_up_proj"}
    if rank:
        build.output(getattr(attention, cells["q_layernorm"]), f"{name}.q_a_layernorm", rank)
        build.output(getattr(attention, cells["up"]), f"{name}.q_b_proj", width)
    build.output(getattr(attention, cells["k_layernorm"]), f"{name}.kv_a_layernorm", config.kv_lora_rank)
    build.output(getattr(attention, cells["kv_up"]), f"{name}.kv_b_proj", heads * (head + config.v_head_dim))
    widths = {"query": width, "key": width, "value": heads * config.v_head_dim}
    build.subclass(attention, pointed_latent, **{f"point_{which}": build.point(f"{name}.{which}", wide) for which, wide in widths.items()})
    build.input_and_output(attention.linear_proj, f"{name}.core", heads * config.v_head_dim, f"{name}.o_proj", config.hidden_size)


def pointed_latent(base: type) -> type:
    """Latent attention whose queries, keys and values pass a point before the core."""

    class Pointed(base):  # type: ignore[misc]
        def get_query_key_value_tensors(self, hidden_states, rotary_pos_emb=None):  # type: ignore[no-untyped-def]
            query, key, value = super().get_query_key_value_tensors(hidden_states, rotary_pos_emb)
            return self.point_query(query), self.point_key(key), self.point_value(value)

    return Pointed


def of_feed_forward(build: Builder, mlp: Cell, name: str, hidden: int, size: int) -> None:
    """Put points into a dense feed-forward part, whose gate and up are interleaved by row or consecutive."""
    by_row = "Interleaved" in type(mlp).__name__
    views = in_two((size, 2), 1) if by_row else in_two((2 * size,), size)
    build.output(mlp.linear_fc1, [f"{name}.gate_proj", f"{name}.up_proj"], 2 * size, views)
    build.input_and_output(mlp.linear_fc2, f"{name}.activation", size, f"{name}.down_proj", hidden)


def of_experts(build: Builder, mlp: Cell, name: str, hidden: int) -> None:
    """Put points into a layer with experts; in router and experts tokens are ordered row by row."""
    router, layout = mlp.router, by_rows(build.layout)
    logits = build.point(f"{name}.gate", int(router.expert_dim), layout)
    weights = build.expert_weights(f"{name}.gate.weights", router, layout)
    build.subclass(router, pointed_router, point_logits=logits, point_weights=weights)  # type: ignore[arg-type]
    if getattr(mlp, "use_shared_expert", False):
        shared = mlp.shared_experts
        of_feed_forward(build, shared, f"{name}.shared_experts", hidden, int(shared.linear_fc2.input_size))
        build.around(mlp, "shared_experts", build.point(f"{name}.shared_experts", hidden))
    build.output(mlp, name, hidden)
    if hasattr(mlp.experts, "weighed"):  # a rehearsal's; the device's own operator puts permuted tokens out
        of_each = build.experts(name, int(router.expert_dim), hidden, layout)
        if of_each is not None:
            mlp.experts.weighed = of_each


def pointed_router(base: type) -> type:
    """A router whose scores and whose weights pass a point."""

    class Pointed(base):  # type: ignore[misc]
        def gating(self, inputs):  # type: ignore[no-untyped-def]
            return self.point_logits(super().gating(inputs))

        def construct(self, inputs):  # type: ignore[no-untyped-def]
            index, weights, aux = super().construct(inputs)
            return index, self.point_weights(weights, index), aux

    return Pointed
