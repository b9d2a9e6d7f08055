"""The size of a training, from its configuration or from a record, before the training is started."""

from __future__ import annotations

import math
from dataclasses import dataclass

from align_hooks.checklist.canonical_values import UNSET
from align_hooks.checklist.family_match import described, layers_with_experts
from align_hooks.checklist.tables import ROW
from align_hooks.configuration.values import Configuration
from align_hooks.families.family import size_of
from align_hooks.record.reader import Run

BEYOND = 10**15
"""A number above every size of a training; a float represents each smaller integer exactly."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a training; None where its source does not have a number."""

    elements: int | None
    """Trainable elements of the model, over all ranks."""
    tokens: int | None
    """Tokens of a step."""
    steps: int | None
    parts: int
    """Parts into which tensor and pipeline parallelism divide the model."""
    source: str
    choices: int = 0
    """Experts of a token, over all layers."""
    rows: int | None = None
    """Rows of the embedding."""
    micro_batch: int | None = None
    """Sequences of a micro-batch."""
    sequence: int | None = None
    """Tokens of a sequence."""


def of_run(run: Run) -> Size:
    """Return the size of a recorded run."""
    shards = [shard for rank in run.manifests for shard in run.shards(rank)]
    elements = sum(shard.elements for shard in shards if shard.counted)
    parts = max((manifest.size("tp") * manifest.size("pp") for manifest in run.manifests.values()), default=1)
    rows, length = run.facts.training.global_batch_size, run.facts.training.sequence_length
    sequence = length if isinstance(length, int) else None
    tokens = rows * sequence if rows is not None and sequence is not None else None
    layers = {shard.name.partition(".experts.")[0] for shard in shards if ".experts." in shard.name}
    chosen = run.facts.model.get("num_experts_per_tok")
    choices = len(layers) * chosen if isinstance(chosen, int) else 0
    of_pass = run.facts.padded_vocabulary, run.facts.training.micro_batch_size, sequence
    return Size(elements or None, tokens, run.facts.planned_steps, parts, str(run.path), choices, *of_pass)


def of_configuration(configuration: Configuration) -> Size:
    """Return the size that a configuration describes, of a decoder with usual or latent attention, dense or with experts."""
    rows = ConfigurationReader(configuration)
    batch, sequence, steps = (rows.count(name) for name in ("global_batch_size", "seq_length", "train-iters"))
    parts = math.prod(rows.count(name) or 1 for name in ("model_parallel", "pipeline_stage"))
    try:
        elements = parameters(configuration)
    except TypeError:  # a size is not known
        elements = None
    layers = layers_with_experts(configuration)
    choices = (layers.sparse if layers is not None else 0) * (rows.count("num_experts_chosen") or 0)
    of_pass = rows.count("rows_of_the_embedding"), rows.count("micro_batch_size"), sequence
    return Size(elements, batch and sequence and batch * sequence, steps, parts, configuration.source, choices, *of_pass)


def parameters(configuration: Configuration) -> int:
    """Return the trainable elements of a configuration's model, of a family or not; raises TypeError where a size is not known."""
    family, rows = described(configuration), ConfigurationReader(configuration)
    if family is None:
        return _of_any_decoder(rows)
    sparse = layers_with_experts(configuration)
    counted = {"sparse_layers": sparse.sparse, "dense_layers": rows.number("num_layers") - sparse.sparse} if sparse is not None else {}

    def size(name: str) -> int:
        if name == "mtp_layers":
            return rows.count("mtp_num_layers") or 0
        return counted[name] if name in counted else size_of(name, rows.number)

    return family.elements(size, tied=rows.value("tied_embeddings") is True)


@dataclass(frozen=True, slots=True)
class ConfigurationReader:
    """A reader of a configuration by rows of the CheckList."""

    configuration: Configuration

    def value(self, name: str) -> object:
        """Return the meaning of a row; None where it is not known."""
        canonical = ROW[name].read(self.configuration).canonical
        return None if canonical is UNSET else canonical

    def number(self, name: str) -> int:
        """Return the number of a row; raises TypeError where it is not known."""
        value = self.value(name)
        if not isinstance(value, int | float) or not abs(value) < BEYOND:
            raise TypeError(f"{name} is not known")
        return int(value)

    def count(self, name: str) -> int | None:
        """Return the number of a row if it is above 0; None for any other value."""
        value = self.value(name)
        return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < BEYOND else None


def _of_any_decoder(rows: ConfigurationReader) -> int:
    """Return the elements of a decoder with usual or latent attention, dense or with experts, without multi-token prediction."""
    hidden, layers = rows.number("hidden_size"), rows.number("num_layers")
    norm = hidden * (2 if rows.value("normalization") == "layernorm" else 1)
    attention = _latent(rows, hidden) if rows.value("multi_latent_attention") is True else _usual(rows, hidden)
    gates, bias = (3 if rows.value("gated_linear_unit") else 2), bool(rows.value("bias_of_linear_layers"))

    def mlp(size: int) -> int:
        return gates * hidden * size + bias * ((gates - 1) * size + hidden)

    embeddings = 1 if rows.value("tied_embeddings") is True else 2
    total = layers * (attention + 2 * norm) + norm + rows.number("rows_of_the_embedding") * hidden * embeddings
    if rows.value("position_embedding_type") == "learned_absolute":
        total += rows.number("max_position_embeddings") * hidden
    dense = layers
    if rows.value("expert_num"):
        which = layers_with_experts(rows.configuration)
        if which is None:
            raise TypeError("which layers have experts is not known")
        dense -= which.sparse
        shared = mlp(rows.number("size_of_the_shared_experts")) if rows.value("size_of_the_shared_experts") else 0
        total += which.sparse * (rows.number("expert_num") * (mlp(rows.number("size_of_an_expert")) + hidden) + shared)
    return total + (dense * mlp(rows.number("intermediate_size")) if dense else 0)


def _usual(rows: ConfigurationReader, hidden: int) -> int:
    """Return the elements of a layer's attention with queries, keys and values."""
    heads, groups, size = map(rows.number, ("num_heads", "n_kv_heads", "head_dim"))
    biases = bool(rows.value("bias_of_queries_keys_and_values")) * (heads + 2 * groups) * size
    biases += bool(rows.value("bias_of_linear_layers")) * hidden
    norms = 2 * size if rows.value("norm_of_queries_and_keys") is True else 0
    return hidden * size * (2 * heads + 2 * groups) + biases + norms


def _latent(rows: ConfigurationReader, hidden: int) -> int:
    """Return the elements of a layer's latent attention."""
    heads, key = rows.number("num_heads"), rows.number("kv_lora_rank")
    plain, rotary, value = map(rows.number, ("qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"))
    query = rows.number("q_lora_rank") if rows.value("q_lora_rank") else 0
    queries = heads * (plain + rotary)
    projected = hidden * query + query + query * queries if query else hidden * queries
    return projected + hidden * (key + rotary) + key + key * heads * (plain + value) + heads * value * hidden
