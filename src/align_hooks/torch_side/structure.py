"""The structure of a built Megatron model: the classes that can be recorded, and the blocks of their layers."""

import itertools
from collections.abc import Iterator

from msgspec import Struct

from align_hooks.errors import RefusedRun
from align_hooks.families.megatron import makes_blocks, pattern_of
from align_hooks.torch_side.objects import Module

DECODERS = {
    "megatron.core.models.gpt.gpt_model.GPTModel": "megatron.core.transformer.transformer_block.TransformerBlock",
    "megatron.core.models.hybrid.hybrid_model.HybridModel": "megatron.core.models.hybrid.hybrid_block.HybridStack",
    "megatron.core.models.mamba.mamba_model.MambaModel": "megatron.core.ssm.mamba_block.MambaStack",  # in 0.17
}
"""The classes of models that can be recorded, each to that of its decoder; by name, as no version has all of them."""


class LayersOfBlock(Struct, frozen=True):
    """What a GPTModel has as one layer: there both halves are the same module."""

    number: int
    """Counted over the whole model, from 0."""
    mixer: Module
    """The layer that mixes positions; None where another pipeline stage has it."""
    feed_forward: Module
    """The layer behind it; None where another pipeline stage has it."""

    @property
    def is_whole(self) -> bool:
        """Whether this pipeline stage has both halves."""
        return self.mixer is not None and self.feed_forward is not None


def blocks_of(model: Module, decoder: Module) -> Iterator[LayersOfBlock]:
    """Yield the blocks of a decoder, or of a layer for multi-token prediction, of a built model."""
    if pattern_of(model) is None or not makes_blocks(model):
        yield from (LayersOfBlock(layer.layer_number - 1, layer, layer) for layer in decoder.layers)
        return
    for number, halves in itertools.groupby(decoder.layers, lambda layer: (layer.layer_number - 1) // 2):
        here = {(layer.layer_number - 1) % 2: layer for layer in halves}
        yield LayersOfBlock(number, here.get(0), here.get(1))


def unwrap(model: Module) -> Module:
    """Return the model inside Megatron's data-parallel and half-precision wrappers."""
    while hasattr(model, "module"):
        model = model.module
    return model


def refuse_unknown(model: Module) -> None:
    """Refuse a model that is none of ``DECODERS``, or whose decoder is no stack of consecutively numbered layers."""
    # a user's derived class has the structure of its base; a class that Megatron derives (RetroModel) has another
    names = list(map(class_name, type(model).__mro__))
    known = [name for name in names if name in DECODERS]
    others = [name for name in itertools.takewhile(lambda name: name not in known, names) if name.startswith("megatron.core.models.")]
    older = bool(known) and "GPTModel" not in known[0] and not (pattern_of(model) and hasattr(model, "mtp_pattern"))
    if others or not known or older:  # until 0.16 a MambaModel has another kind of pattern
        raise RefusedRun(
            f"the model is a {known[0] if older else (others or names)[0]}: only megatron.core's GPTModel, its HybridModel since 0.17, "
            "or a class of your own that derives from one, can be recorded; train the same layers as a GPTModel (pretrain_gpt.py)"
        )
    decoder: Module = getattr(model, "decoder", None)
    stacks = [DECODERS[name] for name in known]
    if not set(stacks) & set(map(class_name, type(decoder).__mro__)):
        raise RefusedRun(
            f"the decoder of the model is a {class_name(type(decoder))}: only layers of megatron.core's "
            f"{stacks[-1].rpartition('.')[2]}, or of a class derived from it, have names; build the model with one"
        )
    numbers = [getattr(layer, "layer_number", None) for layer in decoder.layers]
    first = numbers[0] if numbers and isinstance(numbers[0], int) else 0
    if numbers and (first < 1 or numbers != list(range(first, first + len(numbers)))):
        raise RefusedRun(
            f"the decoder's layers are numbered {', '.join(map(str, numbers[:8]))}: names need a layer_number that counts them one by one, "
            "from 1 over the whole model; set it in your layers"
        )


def class_name(kind: type) -> str:
    """Return the name of a class with its module."""
    return f"{kind.__module__}.{kind.__qualname__}"
