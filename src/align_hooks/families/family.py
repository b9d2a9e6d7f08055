"""What a model family is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from align_hooks.names.blocks import Dims
from align_hooks.names.table import Table

GPTModel: TypeAlias = Any
"""A built GPTModel of Megatron-LM."""
Args: TypeAlias = Any
"""Megatron-LM's arguments; None where they are not at hand."""
ModelConfig: TypeAlias = Any
"""What MindFormers builds a model from, such as a LlamaConfig."""
Level = Mapping[str, tuple[str, ...]]
"""Canonical tensors that a forward pass uses side by side, each with the names of the sizes of its axes."""
SIZES: Mapping[str, tuple[str, ...]] = {
    "vocabulary": ("rows_of_the_embedding",),
    "hidden": ("hidden_size",),
    "queries": ("num_heads", "head_dim"),
    "keys": ("n_kv_heads", "head_dim"),
    "head": ("head_dim",),
    "ffn": ("intermediate_size",),
    "experts": ("expert_num",),
    "expert_ffn": ("size_of_an_expert",),
    "layers": ("num_layers",),
}
"""Short names of sizes, each a product of rows of the CheckList; any other name of a size is itself a row."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """The facts of a built decoder, of either framework, that its ``config.json`` needs."""

    dims: Dims
    hidden: int
    layers: int
    epsilon: float
    rotary_base: float
    positions: int
    tied: bool
    experts: int = 0
    chosen_experts: int = 0


@dataclass(frozen=True, slots=True)
class InMegatron:
    """How Megatron-LM builds a family.

    ``misfits`` lists in what a built model differs from the family. ``dims`` and ``decoder`` read the model's sizes; ``dims`` takes
    the vocabulary without padding, and works for a model of another family too.
    """

    table: Table
    misfits: Callable[[GPTModel, Args], list[str]]
    dims: Callable[[GPTModel, int], Dims]
    decoder: Callable[[GPTModel, Dims], Decoder]


@dataclass(frozen=True, slots=True)
class InMindFormers:
    """How MindFormers builds a family.

    ``network`` is the class of the built model, defined in ``module``. ``configuration`` is the class of its configuration, which
    MindFormers calls ``model_type``. ``legacy`` says whether the model is of ``use_legacy: True``. ``misfits`` lists in what the model of
    a configuration differs from the family. ``dims`` and ``decoder`` read its sizes; ``dims`` takes the vocabulary without padding, None
    where that is not known.
    """

    network: str
    module: str
    configuration: str
    model_type: str
    legacy: bool
    table: Table
    misfits: Callable[[ModelConfig], list[str]]
    dims: Callable[[ModelConfig, int | None], Dims]
    decoder: Callable[[ModelConfig, Dims], Decoder]


@dataclass(frozen=True, slots=True)
class Family:
    """A family of models with canonical names, which are Hugging Face's.

    ``kind`` says in what it differs from other Llamas, ``experts`` whether its layers have experts. A side that is None has no canonical
    names yet. ``levels`` are its tensors in the order of a forward pass, where ``{layer}`` and ``{expert}`` stand for numbers.
    ``configured`` maps rows of the CheckList to the values that the family allows. ``embedding`` and ``output`` are the model's ends;
    a tied model has the embedding only.
    """

    name: str
    kind: str
    experts: bool
    levels: tuple[Level, ...]
    configured: Mapping[str, tuple[object, ...]]
    huggingface: Callable[[Decoder], dict[str, object]]
    megatron: InMegatron | None = None
    mindformers: InMindFormers | None = None
    embedding: str = "model.embed_tokens.weight"
    output: str = "lm_head.weight"

    def shapes(self, *, tied: bool) -> dict[str, tuple[str, ...]]:
        """Every tensor of a model, tied or not, with the names of the sizes of its axes."""
        return {name: axes for level in self.levels for name, axes in level.items() if not (tied and name == self.output)}

    def elements(self, sizes: Callable[[str], int], *, tied: bool) -> int:
        """Number of trainable elements of a model; ``sizes`` gives the size of an axis, and the numbers of ``layers`` and ``experts``."""
        return sum(
            math.prod(map(sizes, axes)) * _times(name, "layer", sizes) * _times(name, "expert", sizes)
            for name, axes in self.shapes(tied=tied).items()
        )

    def kinds(self) -> Iterator[tuple[str, ...]]:
        """The kinds of its tensors, level by level: names without their layer, and with ``*`` for the number of an expert."""
        for level in self.levels:
            yield tuple(kind_of(name) for name in level)


def rows_of(size: str) -> tuple[str, ...]:
    """The rows of the CheckList whose product is this size."""
    return SIZES.get(size, (size,))


def kind_of(name: str) -> str:
    """The kind of a canonical tensor whose name has ``{layer}`` and ``{expert}`` for numbers."""
    inner = name.partition(".{layer}.")[2] or name.removeprefix("model.")
    return inner.replace("{expert}", "*").removesuffix(".weight")


def _times(name: str, numbered: str, sizes: Callable[[str], int]) -> int:
    return sizes(numbered + "s") if f"{{{numbered}}}" in name else 1
