"""What a record takes on disk: ``python benchmarks/disk.py`` prints bytes of each kind a step, at 1 B, 8 B and 671 B parameters.

Names and shapes are those of the public models' configurations. Rows, and the file of points' numbers, are made by the functions that
make a run's, of drawn numbers, and counted. Tensors are counted by their elements. All is of the whole job without copies: ranks that
hold the same rows of a tensor, or tensor-parallel parts of it, have rows of their own each.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator, Mapping
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, to_builtins

from align_hooks.checkpoints.model import ConfiguredModel, model_of
from align_hooks.doctor.size import billions
from align_hooks.names.points import GRADIENT
from align_hooks.record.format.rows import RankRow
from align_hooks.record.format.sketch import DEFINITION, PROJECTIONS, as_stored
from align_hooks.record.read.activations import NUMBERS
from align_hooks.record.write import atomic
from align_hooks.record.write.step_files import StepActivations, write_activations

MICRO_BATCHES, TOKENS = 32, 1 << 20
"""Of a rank, and of a global batch of 256 samples of 4,096 tokens, as a step has them."""
FP32, INT64, INT16 = 4, 8, 2
LLAMA = {"model_type": "llama", "vocab_size": 128256, "num_key_value_heads": 8}
MODELS: Mapping[str, Mapping[str, Any]] = {
    "1 B (Llama 3.2)": LLAMA
    | {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "intermediate_size": 8192, "tie_word_embeddings": True},
    "8 B (Llama 3.1)": LLAMA | {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 14336},
    "671 B (DeepSeek-V3)": {"model_type": "deepseek_v3", "vocab_size": 129280, "hidden_size": 7168, "num_hidden_layers": 61}
    | {"num_attention_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256}
    | {"n_shared_experts": 1, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
    | {"first_k_dense_replace": 3, "num_experts_per_tok": 8},
}
ATTENTION = ("q_proj", "k_proj", "v_proj", "query", "key", "value", "core", "o_proj")
LATENT = ("q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", *ATTENTION[3:])
MLP = ("gate_proj", "up_proj", "activation", "down_proj")


class Shapes(Struct, frozen=True):
    """The tensors and the points of a model."""

    tensors: Mapping[str, int]
    """Canonical name to elements."""
    points: tuple[str, ...]
    routed: int
    """Experts that each token is given to, over all layers."""


def shapes(model: ConfiguredModel) -> Shapes:
    """Return what a configuration makes; layers from ``first_k_dense_replace`` on have experts."""
    dense = model.config.get("first_k_dense_replace", model.layers)

    def elements(name: str) -> int:
        shape = model.shape(name)
        return 0 if shape is None else math.prod(size or 0 for size in shape)

    of_block = [f"self_attn.{kind}" for kind in (LATENT if model.config.get("q_lora_rank") else ATTENTION)]
    of_block += ["input", "input_layernorm", "residual", "post_attention_layernorm"]
    of_experts = [f"shared_experts.{kind}" for kind in MLP] + ["gate", "gate.weights", "shared_experts"]
    of_experts += [f"experts.{expert}" for expert in range(model.experts)]

    def points() -> Iterator[str]:
        yield from ("model.embed_tokens", "model.norm", "lm_head", "token_losses")
        for layer in range(model.layers):
            inner = [f"mlp.{kind}" for kind in (MLP if layer < dense else of_experts)] + ["mlp"] * (layer >= dense)
            yield f"model.layers.{layer}"
            yield from (f"model.layers.{layer}.{kind}" for kind in (*of_block, *inner))

    ranges = {"layer": range(model.layers), "dense": range(dense), "sparse": range(dense, model.layers), "expert": range(model.experts)}
    names = []
    for pattern in chain.from_iterable(model.family.levels):
        words = re.findall(r"\{(\w+)\}", pattern)
        for at in product(*(ranges.get(word, ()) for word in words)):  # none behind the last layer, which predict further tokens
            names.append(pattern.format(**dict(zip(words, at, strict=True))))
    tensors = {name: size for name in names if (size := elements(name))}
    return Shapes(tensors, tuple(points()), model.config.get("num_experts_per_tok", 0) * (model.layers - dense))


def sizes(model: Shapes, folder: Path) -> Iterator[tuple[str, int]]:
    """Yield each kind with its bytes a step."""
    draw = np.random.default_rng(0)
    elements, parts = sum(model.tensors.values()), [tuple(draw.random(3).tolist()) for _ in range(MICRO_BATCHES)]
    numbers = {name: draw.random() for name in ("loss", "objective_loss", "grad_norm", "clip_coefficient", "learning_rate", "seconds")}
    scalars = RankRow(
        step=1000,
        valid_tokens=TOKENS,
        consumed_samples=256_000,
        skipped=False,
        micro_batches=tuple(parts),
        segment="8f99be3648d075de",
        **numbers,
    )

    def line(content: Mapping[str, object]) -> int:
        return len(atomic.json_text({"step": 1000, **content}, indent=None)) + 1

    yield "scalars, a rank (every step)", line(to_builtins(scalars))
    yield "norms of gradients", line({"point": "main", "squared": {name: draw.random() for name in model.tensors}})
    sketches = as_stored({name: draw.random(1 + PROJECTIONS) for name in model.tensors})
    yield "sketches of gradients, or of weights", line({"definition": DEFINITION, "sums": sketches})
    both = (*model.points, *(f"{name}{GRADIENT}" for name in model.points))
    made = StepActivations(
        {name: draw.random((MICRO_BATCHES, NUMBERS)) for name in both}, {}, {"extent_of": dict.fromkeys(model.points, 0)}
    )
    write_activations(folder, 0, 0, made)
    yield "activations: numbers of all points, a rank", sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    yield "batch: tokens, labels, positions, mask", TOKENS * (3 * INT64 + FP32)
    yield "losses of tokens", TOKENS * FP32
    if model.routed:
        yield "routing", TOKENS * INT16 * model.routed
    yield "gradients, or weights", FP32 * elements
    yield "state of Adam", 2 * FP32 * elements


def main() -> None:
    """Print the table."""
    columns, counts = {}, {}
    for name, config in MODELS.items():
        model = shapes(model_of(config, Path(name)))
        size = billions(sum(model.tensors.values()))
        counts[name] = f"{name}: {size} parameters in {len(model.tensors):,} tensors, {len(model.points):,} points"
        with tempfile.TemporaryDirectory() as folder:
            columns[name] = dict(sizes(model, Path(folder)))
    print(*counts.values(), sep="\n")
    print("", f"| a step | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}", sep="\n")
    for kind in columns[[*columns][-1]]:
        print(f"| {kind} | {' | '.join(f'{billions(of[kind])}B' if kind in of else '' for of in columns.values())} |")


if __name__ == "__main__":
    main()
