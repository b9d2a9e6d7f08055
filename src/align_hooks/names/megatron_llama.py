"""A Llama in Megatron-LM, with the ``local`` and the Transformer Engine layer specs; with experts it is a Mixtral.

Transformer Engine fuses the norm into the linear layer that follows it, hence the two names of the same two norms, and
keeps ``_extra_state`` entries, which are bytes of its own and no parameters.
"""

from __future__ import annotations

from align_hooks.names.table import Rule, Table

_LAYER, _HF = "decoder.layers.{layer}", "model.layers.{layer}"
_MOE = f"{_HF}.block_sparse_moe"
_GATE_UP, _DOWN = tuple(f"{_MOE}.experts.{{expert}}.{name}.weight" for name in ("w1", "w3")), (f"{_MOE}.experts.{{expert}}.w2.weight",)

MEGATRON_LLAMA = Table(
    framework="Megatron",
    rules=(
        Rule("embedding.word_embeddings.weight", ("model.embed_tokens.weight",), "vocabulary"),
        Rule(f"{_LAYER}.input_layernorm.weight", (f"{_HF}.input_layernorm.weight",)),
        Rule(f"{_LAYER}.self_attention.linear_qkv.layer_norm_weight", (f"{_HF}.input_layernorm.weight",)),
        Rule(
            f"{_LAYER}.self_attention.linear_qkv.weight",
            tuple(f"{_HF}.self_attn.{name}_proj.weight" for name in "qkv"),
            "qkv_per_group",
        ),
        Rule(f"{_LAYER}.self_attention.linear_proj.weight", (f"{_HF}.self_attn.o_proj.weight",), axis=1),
        Rule(f"{_LAYER}.pre_mlp_layernorm.weight", (f"{_HF}.post_attention_layernorm.weight",)),
        Rule(f"{_LAYER}.mlp.linear_fc1.layer_norm_weight", (f"{_HF}.post_attention_layernorm.weight",)),
        Rule(f"{_LAYER}.mlp.linear_fc1.weight", tuple(f"{_HF}.mlp.{name}_proj.weight" for name in ("gate", "up")), "gate_then_up"),
        Rule(f"{_LAYER}.mlp.linear_fc2.weight", (f"{_HF}.mlp.down_proj.weight",), axis=1),
        Rule(f"{_LAYER}.mlp.router.weight", (f"{_MOE}.gate.weight",)),
        Rule(f"{_LAYER}.mlp.experts.local_experts.{{expert}}.linear_fc1.weight", _GATE_UP, "expert_gate_then_up"),
        Rule(f"{_LAYER}.mlp.experts.local_experts.{{expert}}.linear_fc2.weight", _DOWN, axis=1),
        Rule(f"{_LAYER}.mlp.experts.linear_fc1.weight{{expert}}", _GATE_UP, "expert_gate_then_up"),
        Rule(f"{_LAYER}.mlp.experts.linear_fc2.weight{{expert}}", _DOWN, axis=1),
        Rule("decoder.final_layernorm.weight", ("model.norm.weight",)),
        Rule("output_layer.weight", ("lm_head.weight",), "vocabulary"),
    ),
    ignored=(r".*\._extra_state", r"rotary_pos_emb\.inv_freq"),
)
