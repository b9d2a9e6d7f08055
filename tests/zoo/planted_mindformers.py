"""``run_mindformer.py`` with one misalignment, named by the variable PLANTED."""

import os
import runpy
from pathlib import Path
from typing import Any

from mindformers.models.llama import llama, llama_transformer
from mindformers.trainer import base_trainer
from mindspore import nn, ops
from msgspec.structs import replace

from align_hooks.families import registry
from align_hooks.families.family import Family, InMindFormers
from align_hooks.families.llama import LLAMA
from align_hooks.families.qwen3 import QWEN3
from align_hooks.families.qwen3_moe import GATE_UP, QWEN3_MOE
from align_hooks.names.table import NameTable

LOSS = llama.CrossEntropyLoss


def exchanged(family: Family, first: str, second: str) -> None:
    """Our own name table exchanges two tensors of every layer, as a conversion script may."""
    other = {first: second, second: first}

    def renamed(table: NameTable) -> NameTable:
        rules = tuple(replace(rule, canonical=tuple(other.get(name, name) for name in rule.canonical)) for rule in table.rules)
        assert rules != table.rules
        return replace(table, rules=rules)

    def changed(built: InMindFormers) -> InMindFormers:
        variant = built.variant
        return replace(built, table=renamed(built.table), variant=variant and (lambda config: renamed(variant(config))))

    swapped = replace(family, mindformers=tuple(map(changed, family.mindformers)))
    registry.FAMILIES = tuple(swapped if each is family else each for each in registry.FAMILIES)


def keys_as_values() -> None:
    """Keys and values."""
    exchanged(LLAMA, *(f"model.layers.{{layer}}.self_attn.{name}_proj.weight" for name in "kv"))


def query_norms_as_key_norms() -> None:
    """The norms of queries and keys."""
    exchanged(QWEN3, *(f"model.layers.{{layer}}.self_attn.{name}_norm.weight" for name in "qk"))


def expert_gates_as_ups() -> None:
    """The gate and up projections of experts."""
    exchanged(QWEN3_MOE, *GATE_UP)


class Shifted(nn.Cell):  # type: ignore[misc]
    """MindFormers' loss, of labels that stand one position on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.loss = LOSS(*args, **kwargs)
        self.concat = ops.Concat()  # an attribute: run_path hides this module's globals from the compiler

    def construct(self, logits, labels, mask):  # type: ignore[no-untyped-def]
        return self.loss(logits, self.concat((labels[1:], labels[:1])), mask)


def labels_shifted() -> None:
    """The loss reads labels one position on."""
    llama.CrossEntropyLoss = Shifted


def norms_decayed() -> None:
    """Every parameter group decays."""
    original = base_trainer.get_optimizer_grouped_parameters

    def grouped(*args: Any, **kwargs: Any) -> Any:
        groups = original(*args, **kwargs)
        highest = max(group["weight_decay"] for group in groups if "weight_decay" in group)
        return [group | {"weight_decay": highest} if "weight_decay" in group else group for group in groups]

    base_trainer.get_optimizer_grouped_parameters = grouped


class Unturned(nn.Cell):  # type: ignore[misc]
    """Queries and keys as they were before they were turned."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def construct(self, query, key, angles):  # type: ignore[no-untyped-def]
        return query, key


def rope_not_assigned() -> None:
    """What rotary positions put out is thrown away."""
    llama_transformer.RotaryEmbedding = Unturned


class Scaled(nn.Cell):  # type: ignore[misc]
    """The product of gate and up; nine tenths of the gradient reach either."""

    def construct(self, up, gate):  # type: ignore[no-untyped-def]
        return up * gate

    def bprop(self, up, gate, product, gradient):  # type: ignore[no-untyped-def]
        return gradient * gate * 0.9, gradient * up * 0.9


def mlp_gradient_scaled() -> None:
    """Layer 1's activation gets nine tenths of its gradient."""
    original, made = llama_transformer.LlamaFeedForward, []

    def feed_forward(*args: Any, **kwargs: Any) -> Any:
        made.append(original(*args, **kwargs))
        if len(made) == 2:
            made[-1].mul = Scaled()
        return made[-1]

    llama_transformer.LlamaFeedForward = feed_forward


PLANTS = (
    *(keys_as_values, query_norms_as_key_norms, expert_gates_as_ups),
    *(labels_shifted, norms_decayed, rope_not_assigned, mlp_gradient_scaled),
)

if __name__ == "__main__":
    {function.__name__: function for function in PLANTS}[os.environ["PLANTED"]]()
    runpy.run_path(str(Path(__file__).parents[2] / "launch" / "run_mindformer.py"), run_name="__main__")
