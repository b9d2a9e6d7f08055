"""The families with canonical names, and functions over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from align_hooks.families import megatron
from align_hooks.families.deepseek_v3 import DEEPSEEK_V3
from align_hooks.families.family import Args, Family, GPTModel, kind_of
from align_hooks.families.glm4_moe import GLM4_MOE
from align_hooks.families.gpt_oss import GPT_OSS
from align_hooks.families.llama import LLAMA
from align_hooks.families.minimax_m2 import MINIMAX_M2
from align_hooks.families.mixtral import MIXTRAL
from align_hooks.families.qwen2 import QWEN2
from align_hooks.families.qwen3 import QWEN3
from align_hooks.families.qwen3_moe import QWEN3_MOE

T = TypeVar("T")
FAMILIES: tuple[Family, ...] = (LLAMA, QWEN2, QWEN3, MIXTRAL, QWEN3_MOE, DEEPSEEK_V3, GLM4_MOE, GPT_OSS, MINIMAX_M2)


def switched_off() -> dict[str, object]:
    """Return the properties of Megatron-LM's models that are off by default, each with that value."""
    return {name: allowed[0] for name, allowed in {**megatron.PLAIN, **megatron.ROUTER}.items() if not allowed[0]}


def closest(families: Iterable[Family], misfits: Callable[[Family], list[T]], *, experts: bool | None) -> tuple[Family, list[T]]:
    """Return the family from which a model differs least, and how it differs.

    ``experts``: whether the model has experts, None for unknown. Families of the other sort count only where there are no others.
    """
    candidates = list(families)
    alike = [family for family in candidates if experts in (None, family.experts)]
    return min(((family, misfits(family)) for family in alike or candidates), key=lambda pair: len(pair[1]))


def nearest(gpt: GPTModel, args: Args) -> tuple[Family, list[str]]:
    """Return the family from which a model built by Megatron-LM differs least, and how it differs."""
    return closest(FAMILIES, lambda family: megatron.misfits(family, gpt, args), experts=bool(megatron.config_of(gpt).num_moe_experts))


def levels() -> tuple[tuple[str, ...], ...]:
    """Return the kinds of tensors of all families in the order of a forward pass, level by level.

    Levels that share a kind are one. A level that only some families have comes right behind the one that it follows there.
    """
    merged: list[dict[str, None]] = []
    for family in FAMILIES:
        behind = 0
        for level in family.kinds():
            at = next((at for at, there in enumerate(merged) if any(kind in there for kind in level)), None)
            if at is None:
                merged.insert(behind, {})
                at = behind
            merged[at].update(dict.fromkeys(level))
            behind = at + 1
    return tuple(map(tuple, merged))


def routers() -> tuple[str, ...]:
    """Return the kinds of routers, which choose experts."""
    return tuple(kind for level in levels() for kind in level if kind.endswith((".gate", ".router")))


def embeddings() -> frozenset[str]:
    """Return the canonical names of embeddings."""
    return frozenset(family.embedding for family in FAMILIES)


def outputs() -> frozenset[str]:
    """Return the canonical names of output layers."""
    return frozenset(family.output for family in FAMILIES)


def stacks() -> dict[str, tuple[str, ...]]:
    """Return Hugging Face's stacks of experts of all families, as :attr:`Family.stacks` has them."""
    return {stack: pieces for family in FAMILIES for stack, pieces in family.stacks.items()}


def end_kinds() -> frozenset[str]:
    """Return the kinds of embeddings and output layers."""
    return frozenset(map(kind_of, embeddings() | outputs()))
