"""The description of a model family."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct, field

from align_hooks.data_file import columns, sections
from align_hooks.names import blocks
from align_hooks.names.blocks import Dims
from align_hooks.names.table import NameTable, Rule

GPTModel: TypeAlias = Any
"""A built GPTModel of Megatron-LM."""
Args: TypeAlias = Any
"""Megatron-LM's arguments; None where they are unknown."""
ModelConfig: TypeAlias = Any
"""A model's configuration in MindFormers, such as a LlamaConfig."""
Allowed: TypeAlias = Mapping[str, tuple[object, ...]]
"""Name of a property to the values that a family allows, the usual value first."""
Level = Mapping[str, tuple[str, ...]]
"""Canonical tensors that a forward pass uses in parallel, each with the names of the sizes of its axes."""
SIZES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "vocabulary": (("rows_of_the_embedding",),),
    "hidden": (("hidden_size",),),
    "twice_hidden": (("hidden_size", "hidden_size"),),
    "queries": (("num_heads",), ("head_dim",)),
    "keys": (("n_kv_heads",), ("head_dim",)),
    "head": (("head_dim",),),
    "heads": (("num_heads",),),
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
"""Name of a size to a product of sums of rows of the CheckList; any other name of a size is a row."""
NUMBERS: Mapping[str, str] = {
    "layer": "layers",
    "dense": "dense_layers",
    "sparse": "sparse_layers",
    "after": "mtp_layers",
    "expert": "experts",
}
"""Placeholder of a number in a family's names to the size that counts it; ``sparse`` layers have experts."""


class RoutingConfig(Struct, frozen=True):
    """How tokens choose among experts. None is unknown."""

    experts: int
    chosen: int | None
    """Experts of a token."""
    sparse: tuple[bool, ...]
    """Whether each layer has experts."""
    normalised: bool | None = True
    """Whether the weights of a token's experts add up to one."""
    factor: float | None = 1.0
    groups: int | None = 1
    chosen_groups: int | None = 1
    shared: int | None = 0
    """The size of all shared experts."""


class Decoder(Struct, frozen=True):
    """The facts of a built decoder that ``config.json`` needs. None is unknown where no line says otherwise."""

    dims: Dims
    hidden: int | None
    layers: int
    epsilon: float | None
    rotary_base: float | None
    positions: int | None
    tied: bool | None
    routing: RoutingConfig | None = None
    """None without experts."""
    latent: Mapping[str, object] | None = None
    """Sizes of latent attention as in ``config.json``, each None where unknown; None for other attention."""
    predicted: int | None = 0
    """Layers for multi-token prediction."""
    rope_scaling: Mapping[str, object] | None = None
    """``rope_scaling`` of ``config.json``; None where positions are not scaled."""
    rotary_part: float | None = 1.0
    """The rotated part of a head."""
    normalised_heads: bool | None = False
    """Whether queries and keys are normalised, head by head."""
    window: int | None = None
    """Positions that a token sees in a layer with a sliding window, its own among them; None where no layer has one."""
    windowed: tuple[bool, ...] = ()
    """Whether each layer has a sliding window."""


class InMindFormers(Struct, frozen=True):
    """A class by which MindFormers builds a family."""

    network: str
    """The class of the built model, defined in ``module``."""
    module: str
    configuration: str
    """The class of its configuration; a newer model is built from a ``TransformerConfig``."""
    model_type: str
    legacy: bool
    """Whether it needs ``use_legacy: True``."""
    table: NameTable
    """The names in the default layouts."""
    misfits: Callable[[ModelConfig], list[str]]
    """How the model of a configuration differs from the family, in words."""
    dims: Callable[[ModelConfig, int | None], Dims]
    """The sizes, by the vocabulary without padding, None where unknown."""
    decoder: Callable[[ModelConfig, Dims], Decoder]
    variant: Callable[[ModelConfig], NameTable] | None = None
    """The names in the layouts that a configuration chooses; None where there are no other layouts."""
    as_built: Callable[[GPTModel, Decoder], Decoder] | None = None
    """Replaces facts of the configuration by those of the built model; None where the two agree."""

    def table_of(self, config: ModelConfig) -> NameTable:
        """Return the names in the model of a configuration."""
        return self.table if self.variant is None else self.variant(config)


class Family(Struct, frozen=True):
    """A family of models with canonical names, which are Hugging Face's."""

    name: str
    experts: bool
    """Whether layers have experts."""
    levels: tuple[Level, ...]
    """Its tensors in the order of a forward pass, with the placeholders of :data:`NUMBERS`."""
    configured: Allowed
    """By row of the CheckList."""
    huggingface: Callable[[Decoder], dict[str, object]]
    """``config.json``."""
    megatron: NameTable
    holds: Allowed
    """By property of a model that Megatron-LM built."""
    mindformers: tuple[InMindFormers, ...] = ()
    """In a static graph."""
    pynative: tuple[InMindFormers, ...] = ()
    """In MindFormers' PyNative trainer."""
    embedding: str = "model.embed_tokens.weight"
    output: str = "lm_head.weight"
    """A tied model does not have it."""
    buffers: frozenset[str] = frozenset()
    """Tensors that training moves without gradients."""
    aliases: tuple[str, ...] = ()
    """Other values of Hugging Face's ``model_type`` for models of the family."""
    by_specification: bool = False
    """Whether Megatron-LM builds it by a layer specification of its own only (``--spec``)."""
    stacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Tensors of Hugging Face that hold those of all experts of a layer (:mod:`align_hooks.names.stacks`), each with an expert's."""
    optional: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Tensors that a model may lack, each with the row of the CheckList and the key of ``config.json`` that are set where it has them."""

    @property
    def mixes(self) -> bool:
        """Whether dense layers may stand beside layers with experts."""
        return any("{dense}" in name for level in self.levels for name in level)

    def lacked(self, value: Callable[[str], object]) -> set[str]:
        """Return the optional tensors that a model lacks; ``value`` returns what it holds in a row of the CheckList."""
        return {name for name, (row, _) in self.optional.items() if not value(row)}

    def shapes(self, *, tied: bool, buffers: bool = False, lacked: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
        """Return every parameter of a model, and on request every buffer, with the names of the sizes of its axes."""
        left_out = ({self.output} if tied else set()) | (set() if buffers else self.buffers) | set(lacked)
        return {name: axes for level in self.levels for name, axes in level.items() if name not in left_out}

    def elements(self, sizes: Callable[[str], int], *, tied: bool, lacked: Collection[str] = ()) -> int:
        """Return the number of trainable elements of a model; ``sizes`` maps the names of sizes to numbers."""
        return sum(
            math.prod(map(sizes, axes)) * math.prod(sizes(size) for word, size in NUMBERS.items() if f"{{{word}}}" in name)
            for name, axes in self.shapes(tied=tied, lacked=lacked).items()
        )

    def kinds(self) -> Iterator[tuple[str, ...]]:
        """Yield the kinds of its tensors, level by level, as :func:`kind_of` names them."""
        for level in self.levels:
            yield tuple(dict.fromkeys(map(kind_of, level)))


def tables(file: str) -> dict[str, Allowed]:
    """Return the tables of a file in this folder by their heads; a line is the name of a property and its values, each in JSON."""
    rows = {head: [line.partition(": ") for line in lines] for head, lines in sections(Path(__file__).with_name(file)).items()}
    return {head: {name: tuple(json.loads(f"[{allowed}]")) for name, _, allowed in of_head} for head, of_head in rows.items()}


def without(allowed: Allowed, *names: str) -> Allowed:
    """Return a table without some properties, which may then have any value."""
    return {name: values for name, values in allowed.items() if name not in names}


def rows_of(size: str) -> tuple[str, ...]:
    """Return the rows of the CheckList from which a size is computed."""
    return tuple(row for factor in SIZES.get(size, ((size,),)) for row in factor)


def size_of(size: str, row: Callable[[str], int]) -> int:
    """Compute a size; ``row`` returns the number in a row of the CheckList."""
    return math.prod(sum(map(row, factor)) for factor in SIZES.get(size, ((size,),)))


def kind_of(name: str) -> str:
    """Return the kind of a tensor by its name with placeholders: without the layer, and with ``*`` for an expert's number."""
    inner = re.split(r"\.\{(?:layer|dense|sparse|after)\}\.", name)[-1]
    return inner.removeprefix("model.").replace("{expert}", "*").removesuffix(".weight")


NATIVE, CANONICAL = "decoder.layers.{layer}", "model.layers.{layer}"
"""Prefixes of the names of a layer's parameters: Megatron's, and Hugging Face's."""
_LAYOUTS = (
    *(blocks.UNFUSED, blocks.VOCABULARY, blocks.QKV_PER_GROUP, blocks.HALVES),
    *(blocks.GATE_THEN_UP, blocks.GATE_UP_BY_ROW, blocks.EXPERT_GATE_THEN_UP, blocks.HEADS, blocks.ALL_QUERIES, blocks.ALL_KEYS),
)
LAYOUTS = {layout.name: layout for layout in _LAYOUTS}


def _rule(line: str) -> Rule:
    words = columns(line.split(), ("", "<-", "in", "axis"))
    (native,), (layout,), (axis,) = words[""], words["in"] or ("whole",), words["axis"] or ("0",)
    canonical = tuple(CANONICAL + name if name.startswith(".") else name for name in words["<-"])
    return Rule(NATIVE + native if native.startswith(".") else native, canonical, LAYOUTS[layout], int(axis))


RULES = {head: tuple(map(_rule, lines)) for head, lines in sections(Path(__file__).with_name("rules.txt")).items()}
"""Kinds of parameters to their rules, from names in a framework to Hugging Face's."""
