"""What a run is fed, altered: checkpoints that were converted wrongly, batches that were prepared wrongly."""

import fnmatch
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from align_hooks import open_run
from synthetic import save_by_hand

Tensors = dict[str, np.ndarray]
LAYER = "model.layers.{}."


def by_name(*functions: Callable[..., None]) -> dict[str, Callable[..., None]]:
    return {function.__name__: function for function in functions}


def checkpoint(name: str, reference: Path, where: Path) -> Path:
    """A copy of the reference's initial weights, altered by the function ``name``."""
    shutil.copytree(reference / "step_0" / "rank_0" / "weights", where, dirs_exist_ok=True)
    tensors = load_file(where / "model.safetensors")
    WEIGHTS[name](tensors)
    save_file({key: np.ascontiguousarray(tensor) for key, tensor in tensors.items()}, where / "model.safetensors")
    return where


EXCHANGED = {
    "keys_as_values": ("model.layers.0.self_attn.k_proj.weight", "k_proj", "v_proj"),
    "gate_as_up": ("model.layers.1.mlp.gate_proj.weight", "gate_proj", "up_proj"),
    "layers_exchanged": ("model.layers.0.*", "layers.0.", "layers.1."),
    "experts_permuted": ("model.layers.1.mlp.experts.0.*", "experts.0.", "experts.1."),
    "expert_gate_as_up": ("*.experts.*gate_proj.weight", "gate_proj", "up_proj"),
    "query_and_key_norms": ("*q_norm.weight", "q_norm", "k_norm"),
}
"""Which tensors change places with others: a pattern of their names, and what stands in the others' names for what in theirs."""


def exchanged(pattern: str, ours: str, theirs: str, tensors: Tensors) -> None:
    for name in fnmatch.filter([*tensors], pattern):
        other = name.replace(ours, theirs)
        tensors[name], tensors[other] = tensors[other], tensors[name]


def queries_transposed(tensors: Tensors) -> None:
    name = LAYER.format(1) + "self_attn.q_proj.weight"
    tensors[name] = tensors[name].T


def queries_interleaved(tensors: Tensors) -> None:
    for name, tensor in tensors.items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = tensor.reshape(-1, 2, 8, tensor.shape[1])  # heads of 16: two halves of 8
            tensors[name] = heads.swapaxes(1, 2).reshape(tensor.shape)


def values_negated(tensors: Tensors) -> None:
    tensors[LAYER.format(0) + "self_attn.v_proj.weight"] *= -1


def norm_not_loaded(tensors: Tensors) -> None:
    """Initial norm weights are 1 anyway, so the wrong ones are what another checkpoint would have."""
    tensors[LAYER.format(1) + "input_layernorm.weight"] *= 1.01


def embedding_rolled(tensors: Tensors) -> None:
    tensors["model.embed_tokens.weight"] = np.roll(tensors["model.embed_tokens.weight"], 1, axis=0)


def head_of_embedding(tensors: Tensors) -> None:
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()


def through_bfloat16(tensors: Tensors) -> None:
    for name, tensor in tensors.items():
        bits = tensor.astype(np.float32).view(np.uint32)
        tensors[name] = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)


def scattered(tensors: Tensors) -> None:
    """Norms that are not 1, and biases that are not 0, as in a trained checkpoint: exchanged or lost, they are seen."""
    generator = np.random.default_rng(0)
    for name, tensor in sorted(tensors.items()):
        if tensor.ndim == 1:
            noise = generator.standard_normal(tensor.shape).astype(tensor.dtype)
            size = 0.02 if name.endswith("e_score_correction_bias") else 0.2
            tensors[name] = tensor + size * noise


def biases_lost(tensors: Tensors) -> None:
    """A conversion script that knows Llama's tensors alone."""
    for name in tensors:
        if name.endswith("_proj.bias"):
            tensors[name] = np.zeros_like(tensors[name])


WEIGHTS = by_name(queries_transposed, queries_interleaved, values_negated, norm_not_loaded, embedding_rolled, head_of_embedding)
WEIGHTS |= by_name(through_bfloat16, scattered, biases_lost)
WEIGHTS |= {name: partial(exchanged, *names) for name, names in EXCHANGED.items()}


def batches(name: str, reference: Path, where: Path) -> Path:
    """The reference's batches as the guide's snippet would have left them, altered by the function ``name``."""
    run = open_run(reference)
    steps = [{key: array.copy() for key, array in run.batch(step).arrays().items() if key != "attention_mask"} for step in run.steps]
    BATCHES[name](steps)
    for step, arrays in enumerate(steps):
        save_by_hand(where, step, arrays)
    return where


def labels_rolled(steps: list[Tensors]) -> None:
    for arrays in steps:
        arrays["labels"] = np.roll(arrays["labels"], -1, axis=1)


def one_token(steps: list[Tensors]) -> None:
    steps[0]["tokens"][1, 7] = (steps[0]["tokens"][1, 7] + 1) % 256


def mask_shorter(steps: list[Tensors]) -> None:
    for arrays in steps:
        arrays["loss_mask"][1, -8:] = 0


def rows_swapped(steps: list[Tensors]) -> None:
    for arrays in steps:
        arrays.update({key: array[::-1] for key, array in arrays.items()})


def second_step(steps: list[Tensors]) -> None:
    steps[1] = steps[2]


def masked(steps: list[Tensors]) -> None:
    """A mask that leaves each row another number of tokens: what the reference ``masked`` is trained on."""
    for arrays in steps:
        arrays["loss_mask"] = (np.arange(arrays["tokens"].shape[1]) < np.array([[60], [128], [100], [90]])).astype(np.float32)


def row_masked(steps: list[Tensors]) -> None:
    """A row of the second step of which no token counts: a whole micro-batch where these are of one row."""
    steps[1]["loss_mask"][1] = 0


BATCHES = by_name(labels_rolled, one_token, mask_shorter, rows_swapped, second_step, masked, row_masked)
