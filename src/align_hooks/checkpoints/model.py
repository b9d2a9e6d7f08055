"""The model of a checkpoint and its sizes, by Hugging Face's ``config.json``, to which every other description is converted.

Hugging Face's ``model_type`` is a family's name in small letters. A family reads Megatron-LM's arguments through a stand-in of the built
model, whose attributes have the arguments' names but for :data:`BUILT`.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec import Struct

from align_hooks.checkpoints.pickles import plain
from align_hooks.errors import RecordError, shown
from align_hooks.families.family import Family
from align_hooks.families.megatron import decoder, dims
from align_hooks.families.own import described
from align_hooks.families.registry import FAMILIES, nearest, switched_off
from align_hooks.names.blocks import PADDING, Dims
from align_hooks.names.table import any_layer
from align_hooks.quantities.weights import UNKNOWN
from align_hooks.record.format.files import in_words, read_json

MOST, MOST_COUNTED = 1 << 40, 10_000
"""Largest size of a model; largest count of layers, or of a layer's experts."""
NAME_THE_CONFIGURATION = "name its Hugging Face configuration with --config DIRECTORY or --config config.json"


class ConfiguredModel(Struct, frozen=True, dict=True):
    """A model of a family, described by a ``config.json``."""

    family: Family
    config: Mapping[str, Any]
    path: Path
    """Where the configuration is, for messages."""

    @property
    def words(self) -> str:
        """The model in words, for messages."""
        return f"a {self.family.name} of {self.layers} layers"

    @property
    def layers(self) -> int:
        """Number of layers of the decoder."""
        return self._counted("num_hidden_layers")

    @property
    def experts(self) -> int:
        """Number of experts of a layer."""
        names = ("num_local_experts", "num_experts", "n_routed_experts")
        return next((self._counted(name) for name in names if self.config.get(name)), 0)

    @property
    def tied(self) -> bool:
        """Whether the output layer is the embedding."""
        return self.config.get("tie_word_embeddings", False) is True

    @cached_property
    def sizes(self) -> Mapping[str, int | None]:
        """Name of an axis in a family to its size; None for a size that is not in the configuration."""
        heads, hidden = self._number("num_attention_heads"), self._number("hidden_size")
        head = self._number("head_dim", hidden // heads)
        of_expert = self._number("moe_intermediate_size", self._known("intermediate_size"))
        latent = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
        rank, turned, head_of_key, value = map(self._known, latent)
        return {
            "vocabulary": self._number("vocab_size"),
            "hidden": hidden,
            "twice_hidden": 2 * hidden,
            "queries": heads * head,
            "keys": self._number("num_key_value_heads", heads) * head,
            "head": head,
            "heads": heads,
            "ffn": self._known("intermediate_size"),
            "experts": self.experts,
            "expert_ffn": of_expert,
            "shared_ffn": _of_known(math.prod, of_expert, self._known("n_shared_experts")),
            "query_rank": self._known("q_lora_rank"),
            "key_rank": rank,
            "key_rank_and_turned": _of_known(sum, rank, turned),
            "latent_queries": _of_known(math.prod, heads, _of_known(sum, head_of_key, turned)),
            "latent_keys_and_values": _of_known(math.prod, heads, _of_known(sum, head_of_key, value)),
            "latent_values": _of_known(math.prod, heads, value),
        }

    def dims(self, padded: int | None = None) -> Dims:
        """Return the sizes on which layouts depend, with an embedding of ``padded`` rows."""
        sizes, heads = {name: size or 0 for name, size in self.sizes.items()}, self._number("num_attention_heads")
        return Dims(
            heads=heads,
            groups=self._number("num_key_value_heads", heads),
            head_dim=sizes["head"],
            ffn=sizes["ffn"],
            vocabulary=sizes["vocabulary"],
            padded=max(padded or 0, sizes["vocabulary"]),
            expert_ffn=sizes["expert_ffn"],
            experts=self.experts,
            layers=self.layers,
            q_lora=sizes["query_rank"],
        )

    def shape(self, name: str) -> tuple[int | None, ...] | None:
        """Return the shape of a canonical tensor, with None for an unknown size; None for a name that the model does not have."""
        numbers = [int(number) for number in re.findall(r"\.(\d{1,9})(?=\.)", name)]
        counted = {"expert": range(self.experts), "after": range(self.layers, MOST)}  # after: layers that predict further tokens
        for pattern, axes in self._patterns.get(any_layer(name), ()):
            words = re.findall(r"\{(\w+)\}", pattern)
            ranges = [counted.get(word, range(self.layers)) for word in words]
            if len(words) == len(numbers) and all(number in one for number, one in zip(numbers, ranges, strict=True)):
                return tuple(self.sizes.get(axis, self._known(axis)) for axis in axes)
        return None

    def allows(self, name: str, shape: tuple[int, ...]) -> bool:
        """Return whether a tensor may have a shape; padding may have any number of rows."""
        wanted = self.shape(name.removesuffix(PADDING))
        free = name.endswith(PADDING)
        return wanted is not None and fits(shape[free:], wanted[free:])

    def required(self) -> Iterator[str]:
        """Yield the canonical tensors that every model of the family's has, in each layer and expert."""
        counts = {"layer": self.layers, "expert": self.experts}
        for pattern, _ in chain.from_iterable(self._patterns.values()):
            words = re.findall(r"\{(\w+)\}", pattern)
            if all(word in counts for word in words):
                for numbers in product(*(range(counts[word]) for word in words)):
                    yield pattern.format(**dict(zip(words, numbers, strict=True)))

    @cached_property
    def _patterns(self) -> Mapping[str, list[tuple[str, tuple[str, ...]]]]:
        """Names with ``*`` for numbers to the names with placeholders, and the names of their axes; no output layer of a tied model."""
        patterns: dict[str, list[tuple[str, tuple[str, ...]]]] = defaultdict(list)
        for name, axes in chain.from_iterable(level.items() for level in self.family.levels):
            lacked = name in self.family.optional and not self.config.get(self.family.optional[name][1])
            if not (lacked or (self.tied and name == self.family.output)):
                patterns[re.sub(r"\{\w+\}", "*", name)].append((name, axes))
        return patterns

    def _known(self, name: str) -> int | None:
        value = self.config.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MOST:
            raise RecordError(f"{self.path}: {name} is {shown(str(value))}, which is no size of a model")
        return value

    def _counted(self, name: str) -> int:
        count = self._number(name)
        if count > MOST_COUNTED:
            raise RecordError(f"{self.path}: {name} is {count}, more than any model has; copy its configuration again")
        return count

    def _number(self, name: str, default: int | None = None) -> int:
        value = self._known(name)
        value = default if value is None else value
        if not value:
            raise RecordError(f"{self.path} does not tell {name}, which a model of this family needs; copy its configuration again")
        return value


def fits(shape: Sequence[int], wanted: Sequence[int | None]) -> bool:
    """Return whether a shape is the wanted one, in which None is an unknown size."""
    return len(shape) == len(wanted) and all(size in (None, own) for size, own in zip(wanted, shape, strict=True))


def _of_known(of: Callable[[list[int]], int], *parts: int | None) -> int | None:
    """Return a sum or a product of sizes; None where a size is unknown."""
    known = [part for part in parts if part is not None]
    return of(known) if len(known) == len(parts) else None


def model_type(family: Family) -> str:
    """Return Hugging Face's name of a family."""
    return family.name.lower().replace("-", "_")


def model_of(config: Mapping[str, Any], path: Path) -> ConfiguredModel:
    """Return the model of a ``config.json``; raises RecordError for a model of no family."""
    kind = config.get("model_type")
    family = next((family for family in FAMILIES if kind in (model_type(family), *family.aliases)), None)
    if family is None:
        known = ", ".join(map(model_type, FAMILIES))
        raise RecordError(f"{path}: model_type is {shown(repr(kind))}, which has no family here (there are {known}); convert one of these")
    if unknown := config.get(UNKNOWN):
        raise RecordError(f"{path} does not tell {shown(str(unknown))} of the model; {NAME_THE_CONFIGURATION}")
    model = ConfiguredModel(family, config, path)
    _ = model.sizes, model.layers  # raises for wrong sizes before anything else is read
    return model


def open_model(path: Path) -> ConfiguredModel:
    """Return the model of a Hugging Face configuration: a file, or the directory that has it."""
    file = path / "config.json" if path.is_dir() else path
    return model_of(read_json(file, within=file.parent), file)


BUILT: Mapping[str, str] = {
    "num_moe_experts": "num_experts",
    "gated_linear_unit": "swiglu",
    "layernorm_epsilon": "norm_epsilon",
    "layernorm_zero_centered_gamma": "apply_layernorm_1p",
    "heterogeneous_block_specs": "heterogeneous_layers_config_path",
}
"""Attribute of a built model to the argument of Megatron-LM of another name."""


def of_arguments(args: Mapping[str, Any], rows: int | None, path: Path) -> ConfiguredModel:
    """Return the model of Megatron-LM's arguments with an embedding of ``rows`` rows; raises RecordError for arguments of no family."""
    try:
        off = switched_off()
        own = {name: off.get(name) if args.get(word) is None else args[word] for name, word in BUILT.items() if args.get(name) is None}
        if args.get("group_query_attention") is False:
            own["num_query_groups"] = args["num_attention_heads"]  # the argument's own default is 1
        activation = SimpleNamespace(__name__="silu" if args.get("swiglu") else "gelu", __module__="torch")
        gpt = SimpleNamespace(
            config=SimpleNamespace(**{**off, **args, **own, "activation_func": activation}),
            vocab_size=rows or args["padded_vocab_size"],
            rotary_base=args["rotary_base"],
            rotary_percent=args.get("rotary_percent"),
            max_sequence_length=args["max_position_embeddings"],
            position_embedding_type=args.get("position_embedding_type"),
            share_embeddings_and_output_weights=not args.get("untie_embeddings_and_output_weights"),
        )
        namespace = SimpleNamespace(**args)
        family, differences = nearest(gpt, namespace)
        if differences:
            raise RecordError(f"{path}: its arguments are of no family: {shown('; '.join(differences))}; convert a model of a family")
        sizes = dims(gpt, args.get("vocab_size") or gpt.vocab_size)
        return model_of(plain(described(family, decoder(gpt, sizes, namespace), ())), path)
    except (AttributeError, TypeError, ValueError, KeyError, IndexError, ZeroDivisionError, OverflowError) as error:
        raise RecordError(f"{path}: its arguments do not describe a model ({shown(in_words(error))}); {NAME_THE_CONFIGURATION}") from None
