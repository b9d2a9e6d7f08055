"""The arguments of a loop that has configurations only, by Megatron-LM's names."""

from types import SimpleNamespace

import pytest

from align_hooks.torch_side.run_arguments import UNSTATED, OwnArguments, texts


@pytest.fixture
def parts() -> tuple[SimpleNamespace, SimpleNamespace]:
    model = SimpleNamespace(num_moe_experts=4, persist_layer_norm=False, bf16=True, seed=3)
    return model, SimpleNamespace(bf16=False, lr=1e-3)


def test_the_first_object_that_has_a_member_states_it(parts: tuple[SimpleNamespace, ...]) -> None:
    own = OwnArguments(None, *parts, iteration=2)
    assert (own.bf16, own.lr, own.iteration, own.seed) == (True, 1e-3, 2, 3)


def test_members_of_other_names_and_of_the_opposite_are_found(parts: tuple[SimpleNamespace, ...]) -> None:
    own = OwnArguments(*parts)
    assert (own.num_experts, own.no_persist_layer_norm) == (4, True)
    own.num_experts, own.no_persist_layer_norm, own.lr = 8, False, 2e-3
    assert (parts[0].num_moe_experts, parts[0].persist_layer_norm, parts[1].lr) == (8, True, 2e-3)


def test_what_nobody_states_is_unknown_or_not_there(parts: tuple[SimpleNamespace, ...]) -> None:
    own = OwnArguments(*parts)
    assert [getattr(own, name) for name in UNSTATED if name != "seed"] == [None] * (len(UNSTATED) - 1)
    assert not hasattr(own, "fp8")
    with pytest.raises(AttributeError):
        own.fp8 = "e4m3"
    own.train_iters = 5
    assert own.train_iters == 5


def test_only_parsed_arguments_are_recorded_as_texts(parts: tuple[SimpleNamespace, ...]) -> None:
    assert texts(OwnArguments(*parts)) is None
    assert texts(SimpleNamespace(lr=1e-3, bf16=True)) == {"bf16": "True", "lr": "0.001"}
