"""A HybridModel's pattern of layers as the blocks of a GPTModel."""

import itertools

import pytest

from align_hooks.configuration.hybrid import as_blocks
from align_hooks.configuration.megatron import read_command
from align_hooks.names.hybrid import feed_forward, in_blocks, pattern_of_blocks
from chosen import in_one

NO_BLOCKS = ("", "*", "-*", "**--", "*-*", "M-*-", "*-M", "-", "*-/*", "*-/*-*-", "*-/", "/*-", "*M", "E*")


@in_one(NO_BLOCKS)
def test_a_pattern_of_other_layers_makes_no_blocks(pattern: str) -> None:
    assert feed_forward(pattern) is None


def test_every_pattern_of_up_to_six_letters_makes_blocks_where_each_pair_is_one() -> None:
    for length in range(7):
        for letters in itertools.product("M*-E", repeat=length):
            pairs = ["".join(letters[at : at + 2]) for at in range(0, length, 2)]
            makes = bool(pairs) and all(pair in ("*-", "*E") for pair in pairs)
            made = feed_forward("".join(letters))
            assert made == ((tuple(pair == "*E" for pair in pairs), ()) if makes else None)


def test_stages_part_a_pattern_anywhere_and_predicting_layers_come_behind() -> None:
    assert feed_forward("+-+|E|+E/+E/+E") == ((False, True, True), (True, True))
    assert pattern_of_blocks((False, True, True), predicted=2, latent=True) == "+-+E+E/+E/+E"


@pytest.mark.parametrize(
    ("native", "first", "name"),
    [
        ("decoder.layers.0.self_attention.linear_qkv.weight", 0, "decoder.layers.0.self_attention.linear_qkv.weight"),
        ("decoder.layers.1.mlp.linear_fc1.weight", 0, "decoder.layers.0.mlp.linear_fc1.weight"),
        ("decoder.layers.0.mlp.linear_fc1.weight", 3, "decoder.layers.1.mlp.linear_fc1.weight"),
        (
            "decoder.layers.5.mlp.experts.local_experts.3.linear_fc2.weight",
            2,
            "decoder.layers.3.mlp.experts.local_experts.3.linear_fc2.weight",
        ),
        ("mtp.layers.1.mtp_model_layer.layers.1.mlp.router.weight", 4, "mtp.layers.1.mtp_model_layer.mlp.router.weight"),
        ("mtp.layers.0.enorm.weight", 4, "mtp.layers.0.enorm.weight"),
        ("output_layer.weight", 4, "output_layer.weight"),
    ],
)
def test_half_a_block_has_the_names_of_the_block(native: str, first: int, name: str) -> None:
    assert in_blocks(native, first) == name


def test_a_pattern_counts_where_layers_are_given_too() -> None:
    words = "pretrain_hybrid.py --hidden-size 8 --num-layers 9 --mtp-num-layers 3 --num-experts 4 --hybrid-layer-pattern"
    told = {name: value.written for name, value in read_command(f"{words} '*-*E'", {}).values.items()}
    assert (told["num_layers"], told["moe_layer_freq"], told["mtp_num_layers"]) == (2, "[0, 1]", None)
    untold = read_command(f"{words} '*M*-'", {}).values
    assert (untold["num_layers"].written, as_blocks(untold)) == (9, untold)
