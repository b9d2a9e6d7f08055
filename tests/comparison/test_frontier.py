"""Where an error comes into the backward pass, and rows that get no gradient."""

from __future__ import annotations

import numpy as np
import pytest

from align_hooks.comparison.frontier import Frontier, frontier
from align_hooks.comparison.sharding import sides, spans, unused
from align_hooks.comparison.verdict import Finding
from align_hooks.messages import Side, all_of, message, sentences

QKV, MLP = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
LAYER = ("input_layernorm", *QKV, "self_attn.o_proj", "post_attention_layernorm", *MLP)
NAMES = [
    "model.embed_tokens.weight",
    *(f"model.layers.{layer}.{kind}.weight" for layer in range(3) for kind in LAYER),
    "model.norm.weight",
    "lm_head.weight",
]


def gradients(*wrong: str, step: int = 0) -> list[Finding]:
    return [Finding(name, error=1.0 if name in wrong else 0.0, limit=0.1, name=name, step=step) for name in NAMES]


def below(name: str) -> list[str]:
    """Everything that a forward pass meets before ``name``."""
    return NAMES[: NAMES.index(name)]


def at(layer: int, *kinds: str) -> tuple[str, ...]:
    return tuple(f"model.layers.{layer}.{kind}.weight" for kind in kinds)


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (below("model.layers.1.input_layernorm.weight"), Frontier(at(1, "input_layernorm"), at(0, "mlp.down_proj"))),
        (below("model.layers.2.mlp.down_proj.weight"), Frontier(at(2, "mlp.down_proj"), at(2, "mlp.gate_proj", "mlp.up_proj"))),
        ([*below("model.layers.1.self_attn.q_proj.weight"), *at(1, QKV[1])], Frontier(at(1, "self_attn.o_proj"), at(1, QKV[1]))),
        (NAMES, Frontier((), ("lm_head.weight",))),
        (below("lm_head.weight"), Frontier(("lm_head.weight",), ("model.norm.weight",))),
        ([], None),
        (["model.layers.1.mlp.up_proj.weight"], None),
        (["model.embed_tokens.weight"], None),
        ([f"model.layers.{layer}.input_layernorm.weight" for layer in range(3)], None),
    ],
)
def test_the_boundary_of_an_error(wrong: list[str], found: Frontier | None) -> None:
    assert frontier(gradients(*wrong)) == found


def test_it_is_looked_for_in_the_first_step_that_differs() -> None:
    wrong = below("model.layers.1.input_layernorm.weight")
    outcome = frontier([*gradients(step=0), *gradients(*wrong, step=1), *gradients(*NAMES, step=2)])
    assert outcome == Frontier(at(1, "input_layernorm"), at(0, "mlp.down_proj"))
    above, below_it = "model.layers.1.input_layernorm.weight", "model.layers.0.mlp.down_proj.weight"
    assert outcome.words == message("frontier.boundary", above=above, below=below_it)


def test_rows_and_columns_without_a_gradient_are_told_with_their_side() -> None:
    name = "model.layers.0.self_attn.k_proj.weight"
    ours, theirs = np.ones((32, 8)), np.ones((32, 8))
    theirs[16:] = 0
    wrong = [Finding(name, error=1.0, limit=0.1, name=name)]
    span = message("unused.span", first=16, last=31)
    rows = {side: message("unused.rows", name=name, places=all_of(span), side=side) for side in Side}
    assert unused([{name: ours}, {name: theirs}], wrong) == sentences(rows[Side.CANDIDATE])
    assert unused([{name: theirs}, {name: ours}], wrong) == sentences(rows[Side.REFERENCE])
    assert list(sides(name, ours.T, theirs.T)) == [message("unused.columns", name=name, places=all_of(span), side=Side.CANDIDATE)]
    assert list(sides(name, ours, np.zeros_like(ours))) == []  # nothing of it is used: that is no part of it
    assert list(sides(name, ours, ours)) == []
    assert unused([{name: ours}, {name: theirs}], [Finding(name, error=0.0, limit=0.1, name=name)]) is None


def test_places_in_a_row_are_joined() -> None:
    assert spans(np.array([3])) == all_of(3)
    rows = [message("unused.span", first=first, last=last) for first, last in ((0, 2), (8, 9))]
    assert spans(np.array([0, 1, 2, 8, 9, 12])) == message("unused.and_further", places=all_of(*rows))
