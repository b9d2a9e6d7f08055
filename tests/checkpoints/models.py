"""Tiny models with every bit pattern, spelled out and written by nobody's code but this: what a conversion is held against."""

import json
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from align_hooks.checkpoints.convert import convert_weights
from align_hooks.names.blocks import PADDING
from align_hooks.record.format.ending import HowEnded
from synthetic import begun, row, whole_shards

Tensors = dict[str, tuple[str, np.ndarray]]
"""Name to type, as safetensors call it, and the numbers' bits."""
UNSIGNED = {"F64": "<u8", "F32": "<u4", "F16": "<u2", "BF16": "<u2"}


@dataclass(frozen=True)
class Sizes:
    layers: int = 2
    heads: int = 4
    groups: int = 2
    head_dim: int = 4
    hidden: int = 8
    ffn: int = 6
    vocabulary: int = 11
    experts: int = 0
    tied: bool = False


DENSE, EXPERTS = Sizes(), Sizes(experts=3)
MODELS = {"Llama": DENSE, "Mixtral": EXPERTS, "tied Llama": Sizes(tied=True)}


class Calls:
    """An object whose pickle calls a function."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.function, self.arguments


def config(sizes: Sizes) -> dict[str, object]:
    kind = "Mixtral" if sizes.experts else "Llama"
    own = {"num_local_experts": sizes.experts, "num_experts_per_tok": 2} if sizes.experts else {}
    return {
        **{"architectures": [f"{kind}ForCausalLM"], "model_type": kind.lower(), "tie_word_embeddings": sizes.tied},
        **{"hidden_size": sizes.hidden, "intermediate_size": sizes.ffn, "num_hidden_layers": sizes.layers, "head_dim": sizes.head_dim},
        **{"num_attention_heads": sizes.heads, "num_key_value_heads": sizes.groups},
        **{"vocab_size": sizes.vocabulary, "max_position_embeddings": 16, **own},
    }


def shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    hidden, ffn, rows = sizes.hidden, sizes.ffn, sizes.heads * sizes.head_dim
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (sizes.vocabulary, hidden)}
    for layer in range(sizes.layers):
        here = f"model.layers.{layer}"
        for name, count in (("q", rows), ("k", sizes.groups * sizes.head_dim), ("v", sizes.groups * sizes.head_dim)):
            found[f"{here}.self_attn.{name}_proj.weight"] = (count, hidden)
        found[f"{here}.self_attn.o_proj.weight"] = (hidden, rows)
        if sizes.experts:
            found[f"{here}.block_sparse_moe.gate.weight"] = (sizes.experts, hidden)
        for expert in range(sizes.experts):
            for name, shape in (("w1", (ffn, hidden)), ("w2", (hidden, ffn)), ("w3", (ffn, hidden))):
                found[f"{here}.block_sparse_moe.experts.{expert}.{name}.weight"] = shape
        if not sizes.experts:
            for name, shape in (("gate", (ffn, hidden)), ("up", (ffn, hidden)), ("down", (hidden, ffn))):
                found[f"{here}.mlp.{name}_proj.weight"] = shape
        found |= {f"{here}.{name}_layernorm.weight": (hidden,) for name in ("input", "post_attention")}
    found["model.norm.weight"] = (hidden,)
    return found if sizes.tied else found | {"lm_head.weight": (sizes.vocabulary, hidden)}


def tensors(sizes: Sizes, kind: str = "F32", seed: int = 0) -> Tensors:
    """Every tensor of a model; bits are drawn, so NaNs, infinities and numbers below the normal range are among them."""
    random = np.random.default_rng(seed)
    return {name: (kind, bits(random, shape, kind)) for name, shape in shapes(sizes).items()}


def bits(random: np.random.Generator, shape: tuple[int, ...], kind: str = "F32") -> np.ndarray:
    unsigned = np.dtype(UNSIGNED[kind])
    return random.integers(0, 2 ** (8 * unsigned.itemsize), shape, dtype=unsigned.newbyteorder("=").type).astype(unsigned)


def write_file(path: Path, content: Tensors) -> None:
    """A safetensors file, spelled out."""
    header, end = {}, 0
    for name, (kind, numbers) in content.items():
        header[name] = {"dtype": kind, "shape": list(numbers.shape), "data_offsets": [end, end + numbers.nbytes]}
        end += numbers.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(numbers.tobytes() for _, numbers in content.values()))


def read_file(path: Path) -> Tensors:
    """A safetensors file, taken apart."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    found = {}
    for name, facts in header.items():
        begin, end = facts["data_offsets"]
        numbers = np.frombuffer(content[start + begin : start + end], UNSIGNED[facts["dtype"]])
        found[name] = facts["dtype"], numbers.reshape(facts["shape"])
    return found


def huggingface(path: Path, sizes: Sizes, content: Tensors | None = None) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config(sizes)))
    write_file(path / "model.safetensors", tensors(sizes) if content is None else content)
    return path


def record(path: Path, sizes: Sizes, content: Tensors, padding: Mapping[str, np.ndarray] | None = None) -> Path:
    """A run that recorded its weights, of which those after 2 updates are these; bits as fp32."""
    numbers = {name: own.view("<f4") for name, (_, own) in content.items()}
    numbers |= {name + PADDING: rows.view("<f4") for name, rows in (padding or {}).items()}
    writer = begun(path, weights="0,2")
    shards = whole_shards({name: array.shape for name, array in numbers.items()})
    writer.describe(place={"dp": 0, "tp": 0, "pp": 0}, shards=shards, facts={"model": config(sizes)}, steps=range(2))
    writer.weights(0, {name: np.zeros_like(array) for name, array in numbers.items()}, config(sizes))
    writer.scalars(row(0))
    writer.weights(2, numbers, config(sizes))
    writer.scalars(row(1))
    writer.finish(HowEnded("finished"), hooks={})
    return path


def peak_of_converting(*arguments: Any) -> int:
    """The most bytes that a conversion holds at once."""
    tracemalloc.start()
    try:
        convert_weights(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def assert_same(found: Tensors, wanted: Tensors) -> None:
    """The same names, types, shapes and bits."""
    assert found.keys() == wanted.keys()
    for name, (kind, numbers) in wanted.items():
        assert found[name][0] == kind, name
        np.testing.assert_array_equal(found[name][1], numbers, err_msg=name, strict=True)
