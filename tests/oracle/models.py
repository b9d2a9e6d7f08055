"""Small models of every family that is judged, with random weights, and a batch: inputs as a record would have given them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from align_hooks.families.registry import stacks
from align_hooks.names.stacks import slots
from align_hooks.oracle.inputs import Inputs, objective
from align_hooks.record.format.schema import Facts, Training
from align_hooks.record.read.batch import Batch

ROWS, SEQUENCE, VOCABULARY = 3, 11, 40
OF_ATTENTION = {"num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 10000.0, "max_position_embeddings": 64}
OF_LAYERS = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "hidden_act": "silu", "rms_norm_eps": 1e-5}
WITHOUT_HEAD_DIM = OF_ATTENTION | OF_LAYERS | {"vocab_size": VOCABULARY, "tie_word_embeddings": False}
PLAIN = WITHOUT_HEAD_DIM | {"head_dim": 6}
DEEPSEEK = {
    **WITHOUT_HEAD_DIM,
    **{"model_type": "deepseek_v3", "rms_norm_eps": 1e-6, "num_key_value_heads": 4},
    **{"q_lora_rank": 10, "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 6, "v_head_dim": 5},
    **{"moe_intermediate_size": 12, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 3, "first_k_dense_replace": 1},
    **{"n_group": 4, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 2.5},
}
OF_ROUTER = {
    "n_routed_experts",
    "n_shared_experts",
    "num_experts_per_tok",
    "first_k_dense_replace",
    "n_group",
    "topk_group",
    "norm_topk_prob",
}
GLM = {
    **PLAIN,
    **{name: DEEPSEEK[name] for name in (*OF_ROUTER, "routed_scaling_factor", "moe_intermediate_size")},
    **{"model_type": "glm4_moe", "attention_bias": True, "use_qk_norm": True, "partial_rotary_factor": 0.5, "head_dim": 8},
}
GPT_OSS = {
    **{**PLAIN, "head_dim": 8, "model_type": "gpt_oss", "attention_bias": True, "num_local_experts": 6, "num_experts_per_tok": 2},
    **{"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]},
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "truncate": False},
}
EXPERTS = {"model_type": "qwen3_moe", "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "norm_topk_prob": True}
FAMILIES: Mapping[str, Mapping[str, object]] = {
    "llama": {**PLAIN, "model_type": "llama"},
    "qwen2": {**WITHOUT_HEAD_DIM, "model_type": "qwen2"},
    "qwen3": {**PLAIN, "model_type": "qwen3"},
    "qwen3_tied": {**PLAIN, "model_type": "qwen3", "tie_word_embeddings": True},
    "qwen3_moe": {**PLAIN, **EXPERTS, "mlp_only_layers": []},
    "qwen3_moe_dense_first": {**PLAIN, **EXPERTS, "mlp_only_layers": [0], "norm_topk_prob": False},
    "deepseek_v3": DEEPSEEK,
    "glm4_moe": GLM,
    "glm4_moe_plain_heads": {**GLM, "use_qk_norm": False},
    "gpt_oss": GPT_OSS,
    "deepseek_v3_mtp": {**DEEPSEEK, "num_nextn_predict_layers": 1},
}
ARGUMENTS = {
    "moe_router_load_balancing_type": "aux_loss",
    "moe_aux_loss_coeff": "0.05",
    "moe_z_loss_coeff": "None",
    "mtp_loss_scaling_factor": "0.3",
}


class Weights(dict[str, np.ndarray]):
    """Tensors as a record has them, all of them at hand."""

    def shape(self, name: str) -> tuple[int, ...]:
        return self[name].shape


def model_of(configuration: Mapping[str, object], seed: int = 0) -> Any:
    """Hugging Face's model with random weights, fp32; norms and biases too."""
    import torch
    import transformers

    from real.huggingface import predicting_layer

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    config = transformers.AutoConfig.for_model(**configuration)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for layer in range(int(str(configuration.get("num_nextn_predict_layers", 0)))):
        model.model.layers.append(predicting_layer(model.model, config.num_hidden_layers + layer))
    for tensor in (*model.parameters(), *(buffer for name, buffer in model.named_buffers() if name.endswith("correction_bias"))):
        spread = 0.3 if tensor.ndim > 1 else 0.1
        tensor.data.copy_(torch.randn(tensor.shape) * spread + (1.0 if tensor.ndim == 1 and spread == 0.1 and tensor.mean() == 1 else 0.0))
    return model


def token_losses(logits: Any, labels: Any) -> Any:
    """The loss of each token, as torch calculates it."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)


def weights_of(model: Any) -> Weights:
    """A model's weights under canonical names."""
    tied = bool(model.config.tie_word_embeddings)
    stored = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items() if not (tied and name == "lm_head.weight")}
    return Weights(unstacked(stored))


def unstacked(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tensors of Hugging Face's model under canonical names, of one expert each."""
    places = slots({name: tensor.shape for name, tensor in tensors.items()}, stacks())
    whole = {slot.stack for slot in places.values()}
    pieces = {name: slot.cut(tensors[slot.stack]) for name, slot in places.items()}
    return {name: tensor for name, tensor in tensors.items() if name not in whole} | pieces


def batch_of(seed: int = 0, rows: tuple[tuple[int, ...], ...] = ((2, 1),)) -> Batch:
    """Tokens, labels and a mask that leaves each row another number of tokens."""
    ids = np.random.default_rng(seed).integers(0, VOCABULARY, (ROWS, SEQUENCE + 1))
    mask = (np.arange(SEQUENCE) < np.array([[SEQUENCE], [7], [9]])).astype(np.float32)
    return Batch(0, rows, ids[:, :-1], ids[:, 1:], mask)


def facts_of(configuration: Mapping[str, object], **training: object) -> Facts:
    """The facts of a run of Megatron-LM of a model."""
    return Facts(side="torch", model=dict(configuration), arguments=dict(ARGUMENTS), training=Training(draws=False, **training))  # type: ignore[arg-type]


def inputs_of(configuration: Mapping[str, object], weights: Weights, batch: Batch | None = None, **training: object) -> Inputs:
    """What a step stands on."""
    facts, batch = facts_of(configuration, **training), batch or batch_of()
    return Inputs(facts, weights, batch, objective(facts, batch))  # type: ignore[arg-type]
