"""What the two frameworks do otherwise by design: that it is told, and that what is told makes it go."""

from __future__ import annotations

from typing import Any

import pytest

from align_hooks.checklist.judge import Outcome
from align_hooks.checklist.result import CLEAN, check
from align_hooks.messages import message
from checklist.exercises import EXPERTS, LATENT, NEW, megatron, mindformers, mindformers_tree, row, to_change
from checklist.test_first_weights import source
from worded import ids

STRETCH = "stretch_of_latent_attentions_scores"
PLAIN: dict[str, Any] = {"rope-type": "rope"}
NO_YARN: dict[str, Any] = dict.fromkeys(mindformers_tree(LATENT, {})["model"]["model_config"]["rope_scaling"])
NO_YARN = {f"m.rope_scaling.{key}": None for key in NO_YARN} | {"m.position_embedding_type": "rope"}


# ---- latent attention


def test_what_latent_attention_of_the_frameworks_is_scaled_by_is_so() -> None:
    assert "_yarn_get_mscale(self.config.rotary_scaling_factor, self.config.mscale_all_dim)" in source(
        "megatron", "core/transformer/multi_latent_attention.py"
    )
    assert "_yarn_get_mscale(self.config.rotary_scaling_factor, self.config.mscale)" in source(
        "mindformers", "parallel_core/training_graph/transformer/multi_latent_attention.py"
    )


def test_telechat3_takes_the_sizes_of_its_heads_by_other_names() -> None:
    """qk_nope_head_dim and qk_rope_head_dim are passed over; qk_head_dim and qk_pos_emb_head_dim are read."""
    passed_over = {"m.model_type": "telechat3_moe", "m.qk_nope_head_dim": 48, "m.qk_rope_head_dim": 16}
    flags = {"qk-head-dim": 48, "qk-pos-emb-head-dim": 16}
    found = check(megatron(LATENT, flags), mindformers(LATENT, passed_over))
    assert {"qk_head_dim", "qk_pos_emb_head_dim"} <= set(found.differing)
    assert [row(found, name).candidate.meaning for name in ("qk_head_dim", "qk_pos_emb_head_dim")] == [128, 64]
    assert to_change(row(found, "qk_head_dim")) == "qk_head_dim: 48"
    assert to_change(row(found, "qk_pos_emb_head_dim")) == "qk_pos_emb_head_dim: 16"
    read = {"m.model_type": "telechat3_moe", "m.qk_head_dim": 48, "m.qk_pos_emb_head_dim": 16}
    found = check(megatron(LATENT, flags), mindformers(LATENT, read))
    assert [row(found, name).outcome for name in ("qk_head_dim", "qk_pos_emb_head_dim")] == [Outcome.SAME, Outcome.SAME]
    of_deepseek = check(megatron(LATENT, flags), mindformers(LATENT, {**passed_over, "m.model_type": "deepseek_v3"}))
    assert row(of_deepseek, "qk_head_dim").outcome is Outcome.SAME


# ---- tying, scaling, the bias, and a loss of every token alike


def test_a_router_without_a_scale_does_not_compile() -> None:
    trapped = check(megatron(EXPERTS, {}), mindformers(EXPERTS, {"m.routed_scaling_factor": None})).sides[1].traps
    assert "trap.no_scaling" in ids(trapped)
    for style in (EXPERTS, LATENT, NEW):
        assert "trap.no_scaling" not in ids(check(megatron(style, {}), mindformers(style, {})).sides[1].traps)
    assert "trap.no_scaling" not in ids(check(megatron(LATENT, {}), mindformers(LATENT, {"m.routed_scaling_factor": None})).sides[1].traps)


@pytest.mark.parametrize("place", ["runner_wrapper.calculate_per_token_loss", "m.calculate_per_token_loss"])
def test_a_loss_of_every_token_alike_elsewhere_than_at_the_top_level_is_a_trap(place: str) -> None:
    before = check(megatron(EXPERTS, {"calculate-per-token-loss": ""}), mindformers(EXPERTS, {place: True}))
    assert {"trap.top_level_alone", "trap.no_effect"} & set(ids(before.sides[1].traps))


# ---- first weights of two files that load none


def test_first_weights_that_both_draw_are_left_to_a_person() -> None:
    found = check(megatron(EXPERTS, {"load": None}), mindformers(EXPERTS, {"load_checkpoint": None}))
    one = row(found, "initial_scale_of_output_projections")
    assert (one.outcome, one.by_hand, found.exit_code) == (Outcome.BY_HAND, message("by_hand.first_weights"), CLEAN)
    assert row(check(megatron(EXPERTS, {"load": None}), mindformers(EXPERTS, {})), one.row.id).outcome is Outcome.DIFFERENT
    xavier = {"load": None, "init-method-xavier-uniform": ""}
    assert row(check(megatron(EXPERTS, xavier), mindformers(EXPERTS, {"load_checkpoint": None})), one.row.id).outcome is Outcome.DIFFERENT
