"""What a model family is."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from align_hooks.data_file import sections
from align_hooks.names.blocks import Dims
from align_hooks.names.table import NameTable

GPTModel: TypeAlias = Any
"""A built GPTModel of Megatron-LM."""
Args: TypeAlias = Any
"""Megatron-LM's arguments; None where they are not at hand."""
ModelConfig: TypeAlias = Any
"""What MindFormers builds a model from, such as a LlamaConfig."""
Allowed: TypeAlias = Mapping[str, tuple[object, ...]]
"""Name of a property to the values that a family allows, the usual value first."""
Level = Mapping[str, tuple[str, ...]]
"""Canonical tensors that a forward pass uses side by side, each with the names of the sizes of its axes."""
SIZES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "vocabulary": (("rows_of_the_embedding",),),
    "hidden": (("hidden_size",),),
    "twice_hidden": (("hidden_size", "hidden_size"),),
    "queries": (("num_heads",), ("head_dim",)),
    "keys": (("n_kv_heads",), ("head_dim",)),
    "head": (("head_dim",),),
    "ffn": (("intermediate_size",),),
    "experts": (("expert_num",),),
    "expert_ffn": (("size_of_an_expert",),),
    "shared_ffn": (("size_of_the_shared_experts",),),
    "query_rank": (("q_lora_rank",),),
    "key_rank": (("kv_lora_rank",),),
    "key_rank_and_turned": (("kv_lora_rank", "qk_pos_emb_head_dim"),),
    "latent_queries": (("num_heads",), ("qk_head_dim", "qk_pos_emb_head_dim")),
    "latent_keys_and_values": (("num_heads",), ("qk_head_dim", "v_head_dim")),
    "latent_values": (("num_heads",), ("v_head_dim",)),
    "layers": (("num_layers",),),
    "mtp_layers": (("mtp_num_layers",),),
}
"""Short names of sizes, each a product of sums of rows of the CheckList; any other name of a size is itself a row."""
NUMBERS: Mapping[str, str] = {
    "layer": "layers",
    "dense": "dense_layers",
    "sparse": "sparse_layers",
    "after": "mtp_layers",
    "expert": "experts",
}
"""What stands for a number in a family's names, and the size that counts it: all layers of the decoder, those without and with experts,
those for multi-token prediction, and experts."""


@dataclass(frozen=True, slots=True)
class RoutingConfig:
    """How tokens choose among experts: ``sparse`` has one member a layer. ``normalised`` says that the weights of the chosen add up to one,
    ``shared`` is the size of the shared experts together. None is unknown."""

    experts: int
    chosen: int | None
    sparse: tuple[bool, ...]
    normalised: bool | None = True
    factor: float | None = 1.0
    groups: int | None = 1
    chosen_groups: int | None = 1
    shared: int | None = 0


@dataclass(frozen=True, slots=True)
class Decoder:
    """The facts of a built decoder, of either framework, that its ``config.json`` needs. ``predicted`` counts layers for multi-token
    prediction. A fact above ``routing`` that is None is unknown, and so is ``predicted``."""

    dims: Dims
    hidden: int | None
    layers: int
    epsilon: float | None
    rotary_base: float | None
    positions: int | None
    tied: bool | None
    routing: RoutingConfig | None = None
    latent: Mapping[str, object] | None = None
    """The sizes of latent attention as ``config.json`` has them, None of one that is unknown; None where attention is not latent."""
    predicted: int | None = 0
    rope_scaling: Mapping[str, object] | None = None
    """``rope_scaling`` of ``config.json``; None where positions are not scaled."""


@dataclass(frozen=True, slots=True)
class InMindFormers:
    """How MindFormers builds a family.

    ``network`` is the class of the built model, defined in ``module``. ``configuration`` is the class of its configuration, which
    MindFormers calls ``model_type``. ``legacy`` says whether the model is of ``use_legacy: True``. ``table`` is that of the default
    layouts, ``variant`` makes the table of a configuration that chooses others. ``misfits`` lists in what the model of a configuration
    differs from the family. ``dims`` and ``decoder`` read its sizes; ``dims`` takes the vocabulary without padding, None where that is not
    known. Of a newer model the configuration is what it is built from, a ``TransformerConfig``.
    """

    network: str
    module: str
    configuration: str
    model_type: str
    legacy: bool
    table: NameTable
    misfits: Callable[[ModelConfig], list[str]]
    dims: Callable[[ModelConfig, int | None], Dims]
    decoder: Callable[[ModelConfig, Dims], Decoder]
    variant: Callable[[ModelConfig], NameTable] | None = None
    as_built: Callable[[GPTModel, Decoder], Decoder] | None = None
    """Puts what the built model says in the place of what its configuration does; None where that is all it is built from."""

    def table_of(self, config: ModelConfig) -> NameTable:
        """The table of the model of a configuration."""
        return self.table if self.variant is None else self.variant(config)


@dataclass(frozen=True, slots=True)
class Family:
    """A family of models with canonical names, which are Hugging Face's.

    ``experts`` says whether its layers have experts, ``levels`` are its tensors in the order of a forward pass, where the words of
    :data:`NUMBERS` stand for numbers; ``buffers`` are those that training moves without gradients. ``configured`` maps rows of the
    CheckList to the values that the family allows. ``megatron`` is the table of its names in Megatron-LM, and ``holds`` the values that it
    allows of a built model's properties there. MindFormers may build a family by several classes, or by none yet. ``embedding`` and
    ``output`` are the model's ends; a tied model has the embedding only.
    """

    name: str
    experts: bool
    levels: tuple[Level, ...]
    configured: Allowed
    huggingface: Callable[[Decoder], dict[str, object]]
    megatron: NameTable
    holds: Allowed
    mindformers: tuple[InMindFormers, ...] = ()
    embedding: str = "model.embed_tokens.weight"
    output: str = "lm_head.weight"
    buffers: frozenset[str] = frozenset()

    @property
    def mixes(self) -> bool:
        """Whether some layers may have no experts where others have."""
        return any("{dense}" in name for level in self.levels for name in level)

    def shapes(self, *, tied: bool, buffers: bool = False) -> dict[str, tuple[str, ...]]:
        """Every parameter of a model, tied or not, with the names of the sizes of its axes; its buffers too where they are asked for."""
        left_out = {self.output} if tied else set()
        left_out |= set() if buffers else self.buffers
        return {name: axes for level in self.levels for name, axes in level.items() if name not in left_out}

    def elements(self, sizes: Callable[[str], int], *, tied: bool) -> int:
        """Number of trainable elements of a model; ``sizes`` gives the size of an axis, and the numbers of :data:`NUMBERS`."""
        return sum(
            math.prod(map(sizes, axes)) * math.prod(sizes(size) for word, size in NUMBERS.items() if f"{{{word}}}" in name)
            for name, axes in self.shapes(tied=tied).items()
        )

    def kinds(self) -> Iterator[tuple[str, ...]]:
        """The kinds of its tensors, level by level: names without their layer, and with ``*`` for the number of an expert."""
        for level in self.levels:
            yield tuple(dict.fromkeys(map(kind_of, level)))


def tables(file: str) -> dict[str, Allowed]:
    """Return the tables of a file in this folder by their heads; a row is a name and the values that are allowed, each as JSON has it."""
    rows = {head: [line.partition(": ") for line in lines] for head, lines in sections(Path(__file__).with_name(file)).items()}
    return {head: {name: tuple(json.loads(f"[{allowed}]")) for name, _, allowed in of_head} for head, of_head in rows.items()}


def rows_of(size: str) -> tuple[str, ...]:
    """The rows of the CheckList of which this size is made."""
    return tuple(row for factor in SIZES.get(size, ((size,),)) for row in factor)


def size_of(size: str, row: Callable[[str], int]) -> int:
    """A size, by the numbers of the rows of which it is made."""
    return math.prod(sum(map(row, factor)) for factor in SIZES.get(size, ((size,),)))


def kind_of(name: str) -> str:
    """The kind of a canonical tensor whose name has words of :data:`NUMBERS` for numbers."""
    inner = re.split(r"\.\{(?:layer|dense|sparse|after)\}\.", name)[-1]
    return inner.removeprefix("model.").replace("{expert}", "*").removesuffix(".weight")
