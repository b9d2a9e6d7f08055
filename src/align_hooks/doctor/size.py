"""How large a training is, as far as its configuration, or a record of it, tells before it is started."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from align_hooks.checklist.held import hold
from align_hooks.checklist.row import UNSET
from align_hooks.checklist.tables import ROW
from align_hooks.configuration.values import Configuration
from align_hooks.doctor.belongs import described, layers_with_experts
from align_hooks.families.family import Family, rows_of
from align_hooks.record.reader import Run


@dataclass(frozen=True, slots=True)
class Size:
    """Trainable ``elements`` of the whole model, ``tokens`` of a step, ``steps``, and into how many parts tensor and pipeline
    parallelism cut the model; None where ``source`` does not say it."""

    elements: int | None
    tokens: int | None
    steps: int | None
    parts: int
    source: str


def of_run(run: Run) -> Size:
    """The size of a recorded run: what its ranks held."""
    elements = sum(shard.elements for rank in run.manifests for shard in run.shards(rank) if shard.counted)
    parts = max((manifest.size("tp") * manifest.size("pp") for manifest in run.manifests.values()), default=1)
    rows, sequence = run.facts.training.global_batch_size, run.facts.training.sequence_length
    tokens = rows * sequence if rows is not None and isinstance(sequence, int) else None
    return Size(elements or None, tokens, run.facts.planned_steps, parts, str(run.path))


def of_configuration(configuration: Configuration) -> Size:
    """The size that a configuration describes; parameters are those of a decoder with usual or latent attention, dense or of experts."""
    said = {name: _number(name, configuration) for name in ("global_batch_size", "seq_length", "train-iters")}
    parts = [_number(name, configuration) or 1 for name in ("model_parallel", "pipeline_stage")]
    tokens = said["global_batch_size"] and said["seq_length"] and said["global_batch_size"] * said["seq_length"]
    try:
        elements = parameters(configuration)
    except TypeError:  # something that it is made of is not said
        elements = None
    return Size(elements, tokens, said["train-iters"], math.prod(parts), configuration.source)


def parameters(configuration: Configuration) -> int:
    """Trainable elements of the model that a configuration describes: its family's, or those of the decoder that it comes to.

    :raises TypeError: a size that it takes is not known.
    """

    def of(name: str) -> Any:
        return _held(name, configuration)

    family = described(configuration)
    return _of_any_decoder(of, configuration) if family is None else _of_family(of, family)


def _of_family(of: Any, family: Family) -> int:
    """Elements of a model of a family, by the sizes that its tensors have."""
    return int(family.elements(lambda size: math.prod(map(of, rows_of(size))), tied=of("tied_embeddings") is True))


def _of_any_decoder(of: Any, configuration: Configuration) -> int:
    """Elements of a decoder with usual or latent attention, dense or of experts, without layers for multi-token prediction."""
    hidden, layers, rows = of("hidden_size"), of("num_layers"), of("rows_of_the_embedding")
    norm = hidden * (2 if of("normalization") == "layernorm" else 1)
    attention = _latent(of, hidden) if of("multi_latent_attention") is True else _usual(of, hidden)
    gates, bias = (3 if of("gated_linear_unit") else 2), bool(of("bias_of_linear_layers"))

    def mlp(size: Any) -> Any:
        return gates * hidden * size + bias * ((gates - 1) * size + hidden)

    experts, sparse = of("expert_num"), 0
    total = layers * (attention + 2 * norm) + norm + rows * hidden * (1 if of("tied_embeddings") is True else 2)
    if of("position_embedding_type") == "learned_absolute":
        total += of("max_position_embeddings") * hidden
    if experts:
        among = layers_with_experts(configuration)
        if among is None:
            raise TypeError("which layers have experts is not known")
        sparse = among.sparse
        shared = of("size_of_the_shared_experts")
        total += sparse * (experts * (mlp(of("size_of_an_expert")) + hidden) + (mlp(shared) if shared else 0))
    dense = layers - sparse
    return int(total + (dense * mlp(of("intermediate_size")) if dense else 0))


def _usual(of: Any, hidden: int) -> int:
    """Elements of one layer's attention with queries, keys and values."""
    heads, groups, size = of("num_heads"), of("n_kv_heads"), of("head_dim")
    biases = bool(of("bias_of_queries_keys_and_values")) * (heads + 2 * groups) * size + bool(of("bias_of_linear_layers")) * hidden
    return int(hidden * size * (2 * heads + 2 * groups) + biases + bool(of("norm_of_queries_and_keys") is True) * 2 * size)


def _latent(of: Any, hidden: int) -> int:
    """Elements of one layer's latent attention."""
    heads, query, key = of("num_heads"), of("q_lora_rank"), of("kv_lora_rank")
    own, turned, value = of("qk_head_dim"), of("qk_pos_emb_head_dim"), of("v_head_dim")
    queries = heads * (own + turned)
    asked = hidden * query + query + query * queries if query else hidden * queries
    return int(asked + hidden * (key + turned) + key + key * heads * (own + value) + heads * value * hidden)


def _held(name: str, configuration: Configuration) -> Any:
    found = hold(ROW[name], configuration).meaning
    return None if found is UNSET else found


def _number(name: str, configuration: Configuration) -> int | None:
    found = _held(name, configuration)
    return int(found) if isinstance(found, int | float) and not isinstance(found, bool) and found > 0 else None
