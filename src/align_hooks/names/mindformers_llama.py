"""A dense Llama in MindFormers: ``LlamaForCausalLM`` of ``mindformers.models.llama``, 1.3 to 1.9.

With ``qkv_concat`` the projections are fused: queries, keys and values per query group, gate and up row by row
(``mindformers.utils.convert_utils``: ``qkv_concat_hf2mg``, ``ffn_concat_hf2mg``). In 1.3 they lie one whole projection after the
other, and are refused (:func:`align_hooks.ms_side.model.llama`).
"""

from __future__ import annotations

from align_hooks.names.table import Rule, Table

_LAYER = _HF = "model.layers.{layer}"

MINDFORMERS_LLAMA = Table(
    framework="MindFormers",
    rules=(
        Rule("model.tok_embeddings.embedding_weight", ("model.embed_tokens.weight",), "vocabulary"),
        Rule(f"{_LAYER}.attention_norm.weight", (f"{_HF}.input_layernorm.weight",)),
        Rule(f"{_LAYER}.attention.wq.weight", (f"{_HF}.self_attn.q_proj.weight",)),
        Rule(f"{_LAYER}.attention.wk.weight", (f"{_HF}.self_attn.k_proj.weight",)),
        Rule(f"{_LAYER}.attention.wv.weight", (f"{_HF}.self_attn.v_proj.weight",)),
        Rule(
            f"{_LAYER}.attention.w_qkv.weight",
            tuple(f"{_HF}.self_attn.{name}_proj.weight" for name in "qkv"),
            "qkv_per_group",
        ),
        Rule(f"{_LAYER}.attention.wo.weight", (f"{_HF}.self_attn.o_proj.weight",), axis=1),
        Rule(f"{_LAYER}.ffn_norm.weight", (f"{_HF}.post_attention_layernorm.weight",)),
        Rule(f"{_LAYER}.feed_forward.w1.weight", (f"{_HF}.mlp.gate_proj.weight",)),
        Rule(f"{_LAYER}.feed_forward.w3.weight", (f"{_HF}.mlp.up_proj.weight",)),
        Rule(
            f"{_LAYER}.feed_forward.w_gate_hidden.weight",
            tuple(f"{_HF}.mlp.{name}_proj.weight" for name in ("gate", "up")),
            "gate_up_by_row",
        ),
        Rule(f"{_LAYER}.feed_forward.w2.weight", (f"{_HF}.mlp.down_proj.weight",), axis=1),
        Rule("model.norm_out.weight", ("model.norm.weight",)),
        Rule("lm_head.weight", ("lm_head.weight",), "vocabulary"),
    ),
)
