"""The tensors of the model that a configuration describes: canonical name to global shape, as the built model would load them.

The names are from the model's family, the sizes from the CheckList's rows with their aliases and defaults.
A tensor with an unknown size is left out.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from packaging.version import InvalidVersion, Version

from align_hooks.checklist.canonical_values import UNSET, ExpertLayers
from align_hooks.checklist.family_match import misfits, named_families, of_side
from align_hooks.checklist.lookup import MODEL, is_new, known
from align_hooks.checklist.mindformers_models import keys_read
from align_hooks.checklist.tables import ROW
from align_hooks.configuration.values import MINDFORMERS, Configuration, Value
from align_hooks.data_file import sections
from align_hooks.families.family import NUMBERS, Family, rows_of, size_of
from align_hooks.families.registry import FAMILIES
from align_hooks.names.blocks import PADDING
from align_hooks.names.table import any_layer

SECTIONS = sections(Path(__file__).with_name("shapes.txt"))
KNOWN_BY = {row: [side.split() for side in names.split(" | ")] for row, _, names in (line.partition(": ") for line in SECTIONS["known by"])}
"""Row to the names on each side that must be set where the configuration may go on elsewhere."""
ADAPTED = f"{MODEL}pet_config."
DATA = "train_dataset.data_loader."
"""Prefix of the data set's own keys, which the model does not read."""
COUNTS_END = (0, 18)
"""The Megatron-LM since which ``--vocab-size`` of NullTokenizer includes the end of a document; earlier ones added an id.

Development trees from March 2026 to April, which call themselves 0.18.0 and add one too, are taken for the release."""
BIAS = "bias_of_the_experts"
"""The row that says whether experts have a bias, a tensor without a gradient."""
BUFFERS = tuple(name.rpartition("}")[2] for family in FAMILIES for name in family.buffers)
"""Endings of the names of such tensors."""
COUNTED, MOST = ("num_layers", "expert_num"), 100_000
"""Sizes that are numbers of tensors, and the number above which such a size is a typing error and counts as unknown."""


class Shapes(Struct, frozen=True):
    """The tensors of a model, as far as known."""

    whole: Mapping[str, tuple[int, ...]]
    """Canonical name to global shape."""
    unknown: frozenset[str]
    """Names of tensors of unknown existence or shape, with ``*`` for the number of a layer or an expert."""
    padded: int | None
    """Rows of the embedding with padding; None where they are not known."""

    @property
    def trained(self) -> dict[str, tuple[int, ...]]:
        """The tensors that have gradients, without the biases of experts."""
        return {name: shape for name, shape in self.whole.items() if not name.endswith(BUFFERS)}

    def is_unknown(self, name: str) -> bool:
        """Return whether a tensor's existence or shape is unknown."""
        return any_layer(name) in self.unknown


def shapes(configuration: Configuration, elsewhere: str, *, vocabulary: int | None = None, megatron: str = "") -> Shapes:
    """Return the shapes of the model that ``configuration`` describes, which may go on ``elsewhere``; empty where it cannot.

    ``vocabulary`` is the size without padding that MindFormers takes from its sources; ``megatron`` is megatron-core's version, or empty.
    """
    tensors = _tensors(configuration, elsewhere)
    wanted = {axis for axes in tensors.values() for axis in axes or ()} - {"vocabulary"}
    sizes = _sizes(wanted, configuration, elsewhere, vocabulary, megatron)
    numbers = _numbers(configuration, elsewhere, sizes)
    whole: dict[str, tuple[int, ...]] = {}
    unknown: set[str] = set()
    for name, axes in tensors.items():
        lengths = [sizes[axis] for axis in axes or ()]
        known = [length for length in lengths if length is not None]
        words = [word for word in NUMBERS if f"{{{word}}}" in name]
        if axes is None or len(known) < len(lengths) or any(numbers[word] is None for word in words):
            unknown |= {name.format(**dict.fromkeys(NUMBERS, "*")), name + PADDING}
            continue
        for chosen in itertools.product(*(numbers[word] or () for word in words)):
            whole[name.format(**dict(zip(words, chosen, strict=True)))] = tuple(known)
        padding = sizes["padding"] if axes[0] == "vocabulary" else 0
        if padding is None:
            unknown.add(name + PADDING)
        elif padding:
            whole[name + PADDING] = (padding, *known[1:])
    return Shapes(whole, frozenset(unknown), sizes["padded"])


def _tensors(configuration: Configuration, elsewhere: str) -> dict[str, tuple[str, ...] | None]:
    """Return the tensors that a model may have, with the sizes of their axes; None for a tensor that the model may lack."""
    tied, number, biased = (canonical(row, configuration, elsewhere) for row in ("tied_embeddings", "expert_num", BIAS))
    partly, experts = bool(elsewhere), None if number is UNSET else bool(number)
    families = named_families(configuration) or of_side(configuration)
    families = [family for family in families if experts in (None, family.experts)] or families
    fitting: list[Family] = []
    for dense in (True, False):  # of either kind those from which the configuration differs least
        counts = [(len(misfits(family, configuration, partly=partly)), family) for family in families if family.experts is not dense]
        fewest = min((count for count, _ in counts), default=0)
        fitting += [family for count, family in counts if count == fewest]
    meaning = partial(canonical, configuration=configuration, elsewhere=elsewhere)
    shapes = [family.shapes(tied=tied is True, buffers=biased is not False, lacked=family.lacked(meaning)) for family in fitting]
    possible = {family.output for family in fitting} if tied is UNSET else set()
    possible |= {name for family in fitting for name in family.buffers} if biased is UNSET else set()
    possible |= {name for family in fitting for name, (row, _) in family.optional.items() if meaning(row) is UNSET}
    names = dict.fromkeys(name for tensors in shapes for name in tensors)
    return {  # where several families fit, only tensors that all of them have are certain
        name: shapes[0][name] if name not in possible and all(tensors.get(name) == shapes[0].get(name) for tensors in shapes) else None
        for name in names
    }


def canonical(row: str, configuration: Configuration, elsewhere: str) -> object:
    """Return the meaning of a row, UNSET where it is not known: ``elsewhere`` may change each that :data:`KNOWN_BY` does not settle."""
    names = KNOWN_BY[row][configuration.side == MINDFORMERS] if row in KNOWN_BY else []
    if elsewhere and not (names and all(name in configuration.values for name in names)):
        return UNSET
    return ROW[row].read(as_read(configuration)).canonical


def as_read(configuration: Configuration) -> Configuration:
    """Return a configuration with only the names that its framework reads: ``LlamaConfig`` ignores every other name."""
    if configuration.side != MINDFORMERS or is_new(configuration):
        return configuration
    keys, values = keys_read("LlamaConfig", ""), configuration.values
    of_model = {name for name in values if name.startswith(MODEL)}
    ignored = {name for name in of_model if name.removeprefix(MODEL).partition(".")[0] not in keys}
    ignored |= {name for name in values.keys() - of_model if name.startswith(DATA)}
    return replace(configuration, values={name: value for name, value in values.items() if name not in ignored})


def whole_number(value: object) -> int | None:
    """Return a value that is a count above 0; None for any other value."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 and value == int(value) else None


def _sizes(axes: set[str], configuration: Configuration, elsewhere: str, vocabulary: int | None, megatron: str) -> Mapping[str, int | None]:
    """Return the sizes of axes, and the numbers of layers and experts; None for a size that is not known."""
    if any(name.startswith(ADAPTED) or name in SECTIONS["built otherwise"] for name in configuration.values):
        return defaultdict(lambda: None)

    def of(row: str) -> int | None:
        value = whole_number(canonical(row, configuration, elsewhere))
        return None if value is None or (row in COUNTED and value > MOST) else value

    def product(size: str) -> int | None:
        known = {row: number for row in rows_of(size) if (number := of(row)) is not None}
        return size_of(size, known.__getitem__) if known.keys() == set(rows_of(size)) else None

    padded, own = _vocabulary(configuration, elsewhere, megatron)
    if configuration.side == MINDFORMERS:
        own = vocabulary or padded
    real = own if own is None or padded is None else min(own, padded)
    padding = None if padded is None or real is None else padded - real
    sizes = {size: product(size) for size in {*axes, "layers", "experts"}}
    return sizes | {"vocabulary": real, "padding": padding, "padded": padded}


def _vocabulary(configuration: Configuration, elsewhere: str, megatron: str) -> tuple[int | None, int | None]:
    """Return the rows of the embedding with and without padding; None where the configuration does not have them."""
    if configuration.side == MINDFORMERS:
        return whole_number(canonical("rows_of_the_embedding", configuration, elsewhere)), None
    given, kind = configuration.values.get("padded_vocab_size"), known(configuration, "tokenizer_type")
    own = whole_number(canonical("vocab_size", configuration, elsewhere))
    # Megatron takes the tokenizer's size, which only for NullTokenizer is --vocab-size
    ids = None
    if kind == "NullTokenizer" and own is not None:
        with suppress(InvalidVersion):  # else the version is not known
            ids = own + (Version(megatron).release < COUNTS_END)
    # scripts differ in whether they obey --no-pad-vocab-size
    if given is None and (ids is None or "pad_vocab_size" in configuration.values):
        return None, ids
    counted = replace(configuration, values={**configuration.values, "vocab_size": Value(ids)})
    return whole_number(canonical("rows_of_the_embedding", counted, elsewhere)), ids


def _numbers(configuration: Configuration, elsewhere: str, sizes: Mapping[str, int | None]) -> Mapping[str, Sequence[int] | None]:
    """Return the numbers for each placeholder in a family's names; None where they are not known."""
    layers, experts = sizes["layers"], sizes["experts"]
    which, predicted = canonical("layers_with_experts", configuration, elsewhere), canonical("mtp_num_layers", configuration, elsewhere)
    sparse: list[bool] | None = None
    if isinstance(which, ExpertLayers) and layers is not None and which.sparse + which.dense <= MOST:
        sparse = [has for has, count in which.runs or ((False, layers),) for _ in range(count)]
    return {
        "layer": None if layers is None else range(layers),
        "dense": None if sparse is None else [layer for layer, has in enumerate(sparse) if not has],
        "sparse": None if sparse is None else [layer for layer, has in enumerate(sparse) if has],
        "after": None if layers is None or predicted is UNSET else range(layers, layers + (whole_number(predicted) or 0)),
        "expert": range(experts or 0),
    }
