"""What the two frameworks do otherwise by design: that it is told, and that what is told makes it go."""

import pytest

from align_hooks.checklist.result import check
from checklist.exercises import EXPERTS, LATENT, NEW, megatron, mindformers, row
from checklist.test_first_weights import source
from worded import ids

# ---- latent attention


def test_what_latent_attention_of_the_frameworks_is_scaled_by_is_so() -> None:
    assert "_yarn_get_mscale(self.config.rotary_scaling_factor, self.config.mscale_all_dim)" in source(
        "megatron", "core/transformer/multi_latent_attention.py"
    )
    assert "_yarn_get_mscale(self.config.rotary_scaling_factor, self.config.mscale)" in source(
        "mindformers", "parallel_core/training_graph/transformer/multi_latent_attention.py"
    )


def test_telechat3_passes_the_sizes_of_its_heads_by_deepseeks_names_over() -> None:
    found = check(
        megatron(LATENT, {}), mindformers(LATENT, {"m.model_type": "telechat3_moe", "m.qk_nope_head_dim": 48, "m.qk_rope_head_dim": 16})
    )
    assert [row(found, name).candidate.canonical for name in ("qk_head_dim", "qk_pos_emb_head_dim")] == [128, 64]


# ---- tying, scaling, the bias, and a loss of every token alike


def test_a_router_without_a_scale_does_not_compile() -> None:
    trapped = check(megatron(EXPERTS, {}), mindformers(EXPERTS, {"m.routed_scaling_factor": None})).sides[1].pitfalls
    assert "pitfall.no_scaling" in ids(trapped)
    for style in (EXPERTS, LATENT, NEW):
        assert "pitfall.no_scaling" not in ids(check(megatron(style, {}), mindformers(style, {})).sides[1].pitfalls)
    assert "pitfall.no_scaling" not in ids(
        check(megatron(LATENT, {}), mindformers(LATENT, {"m.routed_scaling_factor": None})).sides[1].pitfalls
    )


@pytest.mark.parametrize("place", ["runner_wrapper.calculate_per_token_loss", "m.calculate_per_token_loss"])
def test_a_loss_of_every_token_alike_elsewhere_than_at_the_top_level_is_a_trap(place: str) -> None:
    before = check(megatron(EXPERTS, {"calculate-per-token-loss": ""}), mindformers(EXPERTS, {place: True}))
    assert {"pitfall.top_level_alone", "pitfall.no_effect"} & set(ids(before.sides[1].pitfalls))
