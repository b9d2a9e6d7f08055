"""What a model family is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from align_hooks.names.blocks import Dims
from align_hooks.names.table import Table

Level = Mapping[str, tuple[str, ...]]
"""Canonical tensors that stand side by side in a forward pass, each with the names of the sizes of its axes."""
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
"""Short names of sizes, each the product of rows of the CheckList; any other name of a size is a row itself."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """What a built decoder says of itself, whichever framework built it: all that its ``config.json`` is made of."""

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

    ``misfits`` says, of a built GPTModel and Megatron's arguments (None where they are not at hand), in what it is none of the family;
    ``dims`` and ``decoder`` read its sizes, the first whether it is of the family or not.
    """

    table: Table
    misfits: Callable[[Any, Any], list[str]]
    dims: Callable[[Any, int], Dims]
    decoder: Callable[[Any, Dims], Decoder]


@dataclass(frozen=True, slots=True)
class InMindFormers:
    """How MindFormers builds a family.

    ``network`` is the class of the built model and stands in ``module``; ``configuration`` is the class of what it was built from.
    ``model_type`` is MindFormers' name of that, and ``legacy`` whether it is of the models of ``use_legacy: True``. ``misfits`` says, of
    such a configuration, in what the model is none of the family; ``dims`` and ``decoder`` read its sizes, of a vocabulary without
    padding where that is known.
    """

    network: str
    module: str
    configuration: str
    model_type: str
    legacy: bool
    table: Table
    misfits: Callable[[Any], list[str]]
    dims: Callable[[Any, int | None], Dims]
    decoder: Callable[[Any, Dims], Decoder]


@dataclass(frozen=True, slots=True)
class Family:
    """One family of models with canonical names, which are Hugging Face's.

    ``kind`` says in what it differs from other Llamas, and ``experts`` whether its layers have them. A side that is None has no way to
    canonical names yet. ``levels`` are its tensors in the order of a forward pass, where ``{layer}`` and ``{expert}`` stand for numbers.
    ``configured`` is, by row of the CheckList, what a configuration of the family holds. ``embedding`` and ``output`` are the model's
    ends; a tied model has the first only.
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
        """Trainable elements of a model; ``sizes`` gives the size of an axis, and the numbers of ``layers`` and ``experts``."""
        return sum(
            math.prod(map(sizes, axes)) * _times(name, "layer", sizes) * _times(name, "expert", sizes)
            for name, axes in self.shapes(tied=tied).items()
        )

    def kinds(self) -> Iterator[tuple[str, ...]]:
        """The kinds of its tensors, level by level: names without layer and with ``*`` for the number of an expert."""
        for level in self.levels:
            yield tuple(kind_of(name) for name in level)


def rows_of(size: str) -> tuple[str, ...]:
    """The rows of the CheckList whose product a size is."""
    return SIZES.get(size, (size,))


def kind_of(name: str) -> str:
    """The kind of a canonical tensor whose numbers are still to be filled in."""
    inner = name.partition(".{layer}.")[2] or name.removeprefix("model.")
    return inner.replace("{expert}", "*").removesuffix(".weight")


def _times(name: str, numbered: str, sizes: Callable[[str], int]) -> int:
    return sizes(numbered + "s") if f"{{{numbered}}}" in name else 1
