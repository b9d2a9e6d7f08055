"""``pretrain_gpt.py`` with one misalignment of :mod:`zoo.of_families`, named by the variable PLANTED."""

import copy
import os
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as functional
from megatron.core.models.gpt import gpt_model
from planted_megatron import PLANTS, around, built, core_attentions, inputs, output, plant, plants


def attentions(change: Callable[[Any], None]) -> None:
    """Hand the attention of every layer of the decoder to ``change``."""
    built(lambda model: [change(layer.self_attention) for layer in model.decoder.layers])


def with_experts(change: Callable[[Any], None]) -> None:
    """Hand every layer of experts of the decoder to ``change``."""
    built(lambda model: [change(mlp) for mlp in layers_of_experts(model)])


def layers_of_experts(model: Any) -> Iterator[Any]:
    """The layers of experts of a model's decoder."""
    return (layer.mlp for layer in model.decoder.layers if hasattr(layer.mlp, "router"))


def weighed(norm: Any, weight: Callable[[], Any]) -> None:
    """Let a norm weigh by other numbers than its own."""
    norm.forward = lambda x: functional.rms_norm(x, norm.normalized_shape, weight(), norm.eps)


plants(
    attentions,
    changes={
        # as a port of Qwen2 that knows Llama alone
        "qkv_bias_not_added": lambda attention: setattr(
            attention.linear_qkv, "forward", lambda x: (x @ attention.linear_qkv.weight.t(), None)
        )
    },
)
plants(
    with_experts,
    changes={
        "shared_experts_left_out": lambda mlp: output(mlp.shared_experts, lambda x: x * 0),
        "scores_by_sigmoid": lambda mlp: setattr(mlp.router, "score_function", "sigmoid"),
        "scores_by_softmax": lambda mlp: setattr(mlp.router, "score_function", "softmax"),
    },
)


@plant(attentions)
def norms_after_rotary(attention: Any) -> None:
    """Queries and keys are normalised after they are turned."""
    norms = [attention.q_layernorm, attention.k_layernorm]
    queries, keys = (norm.forward for norm in norms)
    for norm in norms:
        norm.forward = lambda x: x
    inputs(attention.core_attention, lambda query, key, *rest: (queries(query), keys(key), *rest))


@plant(attentions)
def latent_norms_exchanged(attention: Any) -> None:
    """Compressed queries and keys are each weighed by the other's norm, cut or repeated to their length."""
    queries, keys = attention.q_layernorm, attention.kv_layernorm
    weighed(queries, lambda: torch.cat([keys.weight, keys.weight])[: queries.weight.shape[0]])
    weighed(keys, lambda: queries.weight[: keys.weight.shape[0]])


@plant(core_attentions, None)
def scale_of_hidden_size(core: Any) -> None:
    """Scores are divided by the root of hidden size over heads, which is the size of a head in most models."""
    core.softmax_scale = (core.config.hidden_size / core.config.num_attention_heads) ** -0.5


@plant(with_experts)
def groups_ignored(mlp: Any) -> None:
    """A token chooses among the experts of all groups."""
    mlp.router.config = copy.copy(mlp.router.config)
    mlp.router.config.moe_router_num_groups = mlp.router.config.moe_router_group_topk = None


@plant(built)
def experts_exchanged(model: Any) -> None:
    """The last layer's experts 0 and 1 each compute what the other should."""
    *_, mlp = layers_of_experts(model)
    first, second, *_ = mlp.experts.local_experts
    first.forward, second.forward = second.forward, first.forward


@plant(with_experts)
def experts_in_reverse(mlp: Any) -> None:
    """The last expert computes first."""

    def forward(tokens: Any, counts: Any, weights: Any) -> Any:
        parts = list(zip(mlp.experts.local_experts, *(x.split(counts.tolist()) for x in (tokens, weights)), strict=True))
        return torch.cat([expert(*given)[0] for expert, *given in reversed(parts)][::-1]), None

    mlp.experts.forward = forward


@plant(around, gpt_model, "process_mtp_loss")
def mtp_labels_shifted(original: Any, *args: Any, labels: Any, **kwargs: Any) -> Any:
    """The predicting layer is asked for the token behind the one that it should predict."""
    return original(*args, labels=labels.roll(-1, dims=1), **kwargs)


if __name__ == "__main__":
    PLANTS[os.environ["PLANTED"]]()
    runpy.run_path(str(Path(__file__).parents[2] / "launch" / "pretrain_gpt.py"), run_name="__main__")
