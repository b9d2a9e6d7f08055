"""Hugging Face's own model on the weights and a batch of a record, opened with no help from us: a third opinion."""

import re
from typing import Any

import numpy as np
import pytest

from align_hooks import Run

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("plain_minimax")  # a model that transformers lacks
Tensor = Any


def opinion(run: Run, step: int, *, balance: float = 0.0, prediction: float = 0.0) -> tuple[float, dict[str, np.ndarray]]:
    """The language model's loss on the weights and the batch of a ``step``, and the gradients of the whole loss.

    The record must have exactly the model's parameters and buffers. ``balance`` and ``prediction`` weigh the other terms of the loss: that
    of unevenly used experts, and that of the layers for multi-token prediction.
    """
    model = opened(run, step)
    batch = run.batch(step)
    tokens, labels, mask = (torch.tensor(array) for array in (batch.tokens, batch.labels, batch.loss_mask))
    seen = model.model(tokens, **({"output_router_logits": True} if balance else {}))
    loss = whole = mean_loss(model.lm_head(seen.last_hidden_state), labels, mask)
    for logits in seen.router_logits if balance else ():
        whole = whole + balance * imbalance(logits, model.config.num_experts_per_tok)
    hidden = seen.last_hidden_state
    for layer in model.model.layers[model.config.num_hidden_layers :]:
        tokens, labels, mask = map(next_ones, (tokens, labels, mask))
        hidden = predicted(model.model, layer, hidden, tokens)
        whole = whole + prediction * mean_loss(model.lm_head(layer.shared_head["norm"](hidden)), labels, mask)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)  # an expert that no token chooses is not in the graph
    whole.backward()
    return float(loss.detach()), {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}


def opened(run: Run, step: int) -> Any:
    """The model of a record's configuration with its weights after ``step`` updates, and behind its layers those for prediction."""
    config = transformers.AutoConfig.for_model(**run.manifest["model"])
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    for layer in range(run.manifest["model"].get("num_nextn_predict_layers", 0)):
        model.model.layers.append(predicting_layer(model.model, config.num_hidden_layers + layer))
    weights = in_stacks(run.weights(step))
    loaded = model.load_state_dict({name: torch.tensor(weights[name]) for name in weights}, strict=False)
    assert loaded.unexpected_keys == []
    assert loaded.missing_keys == (["lm_head.weight"] if config.tie_word_embeddings else [])
    return model


def in_stacks(tensors: Any) -> dict[str, np.ndarray]:
    """Canonical tensors as gpt-oss has them: those of all experts in one, transposed, and the rows of gate and up in turn."""
    found, experts = {}, {}
    for name in tensors:
        own = re.fullmatch(r"(.*\.mlp\.experts)\.(\d+)\.(gate|up|down)_proj\.(weight|bias)", name)
        if own is not None and "model.layers.0.self_attn.sinks" in tensors:
            experts.setdefault((own[1], own[4]), {})[own[3], int(own[2])] = tensors[name]
        else:
            found[name] = tensors[name]
    for (name, kind), of_experts in experts.items():
        count, end = len(of_experts) // 3, "" if kind == "weight" else "_bias"
        gate, up, down = (np.stack([of_experts[part, expert] for expert in range(count)]) for part in ("gate", "up", "down"))
        joined = np.empty((count, 2 * gate.shape[1], *gate.shape[2:]), gate.dtype)
        joined[:, ::2], joined[:, 1::2] = gate, up
        found[f"{name}.gate_up_proj{end}"] = joined.swapaxes(1, -1) if kind == "weight" else joined
        found[f"{name}.down_proj{end}"] = down.swapaxes(1, -1) if kind == "weight" else down
    return found


def predicting_layer(decoder: Any, number: int) -> Any:
    """A layer for multi-token prediction, which transformers leaves out, of its own parts and under the names of DeepSeek's checkpoint."""
    config, norm = decoder.config, type(decoder.norm)
    layer = type(decoder.layers[-1])(config, number)
    layer.enorm, layer.hnorm, last = (norm(config.hidden_size, config.rms_norm_eps) for _ in range(3))
    layer.eh_proj = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
    layer.shared_head = torch.nn.ModuleDict({"norm": last})
    return layer


def predicted(model: Any, layer: Any, hidden: Tensor, tokens: Tensor) -> Tensor:
    """What a layer for prediction makes of what was seen of each token and of the token behind it (DeepSeek-V3's report, 2.2)."""
    joined = torch.cat([layer.enorm(model.embed_tokens(tokens)), layer.hnorm(hidden)], dim=-1)
    positions = torch.arange(tokens.shape[1])[None]
    future = torch.full((1, 1, *tokens.shape[1:] * 2), float("-inf")).triu(1)
    turned = model.rotary_emb(hidden, positions)
    return layer(layer.eh_proj(joined), attention_mask=future, position_ids=positions, position_embeddings=turned)


def next_ones(array: Tensor) -> Tensor:
    """Each row one place on; at its end there is nothing, which counts nowhere."""
    return torch.nn.functional.pad(array[:, 1:], (0, 1))


def mean_loss(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """The mean loss of the tokens that count."""
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return (losses * mask.flatten()).sum() / mask.sum()


def imbalance(logits: Tensor, chosen: int) -> Tensor:
    """How unevenly a layer's experts are used (Switch Transformers, 4 to 6); 1 where all are used alike."""
    scores = logits.softmax(-1)
    used = torch.nn.functional.one_hot(scores.topk(chosen).indices, scores.shape[-1]).sum(1).float().mean(0) / chosen
    return scores.shape[-1] * (used * scores.mean(0)).sum()
