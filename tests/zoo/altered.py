"""What a run is fed, altered: checkpoints that were converted wrongly, batches that were prepared wrongly."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from align_hooks import open_run

Tensors = dict[str, np.ndarray[Any, Any]]
LAYER = "model.layers.{}."


def checkpoint(name: str, reference: Path, where: Path) -> Path:
    """A copy of the reference's initial weights, altered by the function ``name``."""
    shutil.copytree(reference / "step_0" / "rank_0" / "weights", where, dirs_exist_ok=True)
    tensors = load_file(where / "model.safetensors")
    WEIGHTS[name](tensors)
    save_file({key: np.ascontiguousarray(one) for key, one in tensors.items()}, where / "model.safetensors")
    return where


def exchange(tensors: Tensors, one: str, other: str) -> None:
    tensors[one], tensors[other] = tensors[other], tensors[one]


def keys_as_values(tensors: Tensors) -> None:
    exchange(tensors, *(f"{LAYER.format(0)}self_attn.{name}_proj.weight" for name in "kv"))


def queries_transposed(tensors: Tensors) -> None:
    name = LAYER.format(1) + "self_attn.q_proj.weight"
    tensors[name] = tensors[name].T


def queries_interleaved(tensors: Tensors) -> None:
    for name, one in tensors.items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = one.reshape(-1, 2, 8, one.shape[1])  # heads of 16: two halves of 8
            tensors[name] = heads.swapaxes(1, 2).reshape(one.shape)


def gate_as_up(tensors: Tensors) -> None:
    exchange(tensors, *(f"{LAYER.format(1)}mlp.{name}_proj.weight" for name in ("gate", "up")))


def values_negated(tensors: Tensors) -> None:
    tensors[LAYER.format(0) + "self_attn.v_proj.weight"] *= -1


def norm_not_loaded(tensors: Tensors) -> None:
    """Initial norm weights are 1 anyway, so the wrong ones are what another checkpoint would have."""
    tensors[LAYER.format(1) + "input_layernorm.weight"] *= 1.01


def embedding_rolled(tensors: Tensors) -> None:
    tensors["model.embed_tokens.weight"] = np.roll(tensors["model.embed_tokens.weight"], 1, axis=0)


def head_of_embedding(tensors: Tensors) -> None:
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()


def layers_exchanged(tensors: Tensors) -> None:
    for name in [name for name in tensors if name.startswith(LAYER.format(0))]:
        exchange(tensors, name, name.replace(LAYER.format(0), LAYER.format(1)))


def through_bfloat16(tensors: Tensors) -> None:
    for name, one in tensors.items():
        bits = one.astype(np.float32).view(np.uint32)
        tensors[name] = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)


WEIGHTS: dict[str, Callable[[Tensors], None]] = {
    one.__name__: one
    for one in (
        keys_as_values,
        queries_transposed,
        queries_interleaved,
        gate_as_up,
        values_negated,
        norm_not_loaded,
        embedding_rolled,
        head_of_embedding,
        layers_exchanged,
        through_bfloat16,
    )
}


def batches(name: str, reference: Path, where: Path) -> Path:
    """The reference's batches as the guide's snippet would have left them, altered by the function ``name``."""
    run = open_run(reference)
    every = [{key: array.copy() for key, array in run.batch(step).arrays().items() if key != "attention_mask"} for step in run.steps]
    BATCHES[name](every)
    for step, arrays in enumerate(every):
        place = where / f"step_{step}" / "rank_0"
        place.mkdir(parents=True, exist_ok=True)
        for key, array in arrays.items():
            np.save(place / f"{key}.npy", array)
    return where


def labels_rolled(every: list[Tensors]) -> None:
    for one in every:
        one["labels"] = np.roll(one["labels"], -1, axis=1)


def one_token(every: list[Tensors]) -> None:
    every[0]["tokens"][1, 7] = (every[0]["tokens"][1, 7] + 1) % 256


def mask_shorter(every: list[Tensors]) -> None:
    for one in every:
        one["loss_mask"][1, -8:] = 0


def rows_swapped(every: list[Tensors]) -> None:
    for one in every:
        for key in one:
            one[key] = one[key][::-1]


def second_step(every: list[Tensors]) -> None:
    every[1] = every[2]


def masked(every: list[Tensors]) -> None:
    """A mask that leaves each row another number of tokens: what the reference ``masked`` is trained on."""
    for one in every:
        one["loss_mask"] = (np.arange(one["tokens"].shape[1]) < np.array([[60], [128], [100], [90]])).astype(np.float32)


BATCHES: dict[str, Callable[[list[Tensors]], None]] = {
    one.__name__: one for one in (labels_rolled, one_token, mask_shorter, rows_swapped, second_step, masked)
}
