"""What the two frameworks do otherwise by design: that it is told, and that what is told makes it go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from align_hooks.checklist.change import Action
from align_hooks.checklist.judge import Outcome
from align_hooks.checklist.result import CLEAN, check
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.messages import message
from checklist.exercises import EXPERTS, LATENT, NEW, megatron, mindformers, mindformers_tree, row, to_change
from checklist.test_first_weights import source
from worded import ids

STRETCH = "stretch_of_latent_attentions_scores"
PLAIN: dict[str, Any] = {"rope-type": "rope"}
NO_YARN: dict[str, Any] = dict.fromkeys(mindformers_tree(LATENT, {})["model"]["model_config"]["rope_scaling"])
NO_YARN = {f"m.rope_scaling.{key}": None for key in NO_YARN} | {"m.position_embedding_type": "rope"}


def mended(style: str, keys: dict[str, Any], block: str, folder: Path) -> Any:
    """The YAML with what was told to write standing over it."""
    (folder / f"{style}.yaml").write_text(yaml.safe_dump(mindformers_tree(style, keys)), encoding="utf-8")
    return read_yaml(block, "mended.yaml", folder)


# ---- latent attention


def test_plain_positions_are_stretched_too_unless_the_factor_is_one(tmp_path: Path) -> None:
    """(0.1 × 0.707 × ln 40 + 1)² is 1.59; of mscale 1 it is 1.87."""
    before = check(megatron(LATENT, PLAIN), mindformers(LATENT, NO_YARN))
    assert before.differing == [STRETCH]
    assert row(before, STRETCH).candidate.meaning == pytest.approx(1.5895, abs=1e-3)
    assert to_change(row(before, STRETCH)) == "rotary_scaling_factor: 1.0"
    assert check(megatron(LATENT, PLAIN), mended(LATENT, NO_YARN, before.block, tmp_path)).exit_code == CLEAN
    assert check(megatron(LATENT, PLAIN), mindformers(LATENT, NO_YARN | {"m.rotary_scaling_factor": 1.0})).exit_code == CLEAN


def test_a_stretch_of_plain_positions_is_written_as_megatron_has_it(tmp_path: Path) -> None:
    flags = PLAIN | {"rotary-scaling-factor": 40, "mscale-all-dim": 1.0}
    before = check(megatron(LATENT, flags), mindformers(LATENT, NO_YARN))
    assert to_change(row(before, STRETCH)) == "rotary_scaling_factor: 40.0; mscale: 1.0"
    assert check(megatron(LATENT, flags), mended(LATENT, NO_YARN, before.block, tmp_path)).exit_code == CLEAN


def test_under_yarn_both_scales_are_to_be_one() -> None:
    """Megatron-LM squares what mscale_all_dim makes, MindFormers what mscale makes; Hugging Face is with Megatron-LM."""
    flags, keys = {"rotary-scaling-factor": 40}, {"m.rope_scaling.factor": 40}
    assert check(megatron(LATENT, flags), mindformers(LATENT, keys)).exit_code == CLEAN
    apart = check(megatron(LATENT, flags | {"mscale-all-dim": 0.0}), mindformers(LATENT, keys | {"m.rope_scaling.mscale_all_dim": 0.0}))
    assert apart.differing == [STRETCH]
    change = row(apart, STRETCH).change
    assert change is not None and (change.action, change.value) == (Action.BOTH_SIDES, message("way_out.mscale"))


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


@pytest.mark.parametrize("family", ["deepseek_v3", "telechat3", "telechat3_moe"])
def test_a_family_that_passes_tying_on_to_nobody_is_told(family: str) -> None:
    keys = {"m.model_type": family, "m.tie_word_embeddings": True}
    one = row(check(megatron(LATENT, {"untie-embeddings-and-output-weights": None}), mindformers(LATENT, keys)), "tied_embeddings")
    assert (one.outcome, one.candidate.meaning) == (Outcome.DIFFERENT, False)
    assert one.change is not None and one.change.action is Action.NONE
    untied = row(check(megatron(LATENT, {}), mindformers(LATENT, keys)), "tied_embeddings")
    assert untied.outcome is Outcome.SAME


def test_a_router_without_a_scale_does_not_compile() -> None:
    trapped = check(megatron(EXPERTS, {}), mindformers(EXPERTS, {"m.routed_scaling_factor": None})).sides[1].traps
    assert "trap.no_scaling" in ids(trapped)
    for style in (EXPERTS, LATENT, NEW):
        assert "trap.no_scaling" not in ids(check(megatron(style, {}), mindformers(style, {})).sides[1].traps)
    assert "trap.no_scaling" not in ids(check(megatron(LATENT, {}), mindformers(LATENT, {"m.routed_scaling_factor": None})).sides[1].traps)


def test_a_bias_that_nothing_moves_is_told(tmp_path: Path) -> None:
    flags, keys = {"moe-router-enable-expert-bias": ""}, {"m.moe_router_enable_expert_bias": True, "callbacks": [{"type": "MFLossMonitor"}]}
    before = check(megatron(LATENT, flags), mindformers(LATENT, keys))
    assert before.differing == ["that_bias_is_moved"]
    assert to_change(row(before, "that_bias_is_moved")) == "callbacks: [{type: MFLossMonitor}, {type: TopkBiasBalanceCallback}]"
    assert check(megatron(LATENT, flags), mended(LATENT, keys, before.block, tmp_path)).exit_code == CLEAN


@pytest.mark.parametrize("place", ["runner_wrapper.calculate_per_token_loss", "m.calculate_per_token_loss"])
def test_a_loss_of_every_token_alike_counts_at_the_top_level_alone(place: str, tmp_path: Path) -> None:
    before = check(megatron(EXPERTS, {"calculate-per-token-loss": ""}), mindformers(EXPERTS, {place: True}))
    assert before.differing == ["loss_of_every_token_alike"]
    assert to_change(row(before, "loss_of_every_token_alike")) == "calculate_per_token_loss: True"
    assert {"trap.top_level_alone", "trap.no_effect"} & set(ids(before.sides[1].traps))
    after = check(megatron(EXPERTS, {"calculate-per-token-loss": ""}), mended(EXPERTS, {place: True}, before.block, tmp_path))
    assert after.differing == []


# ---- first weights of two files that load none


def test_first_weights_that_both_draw_are_left_to_a_person() -> None:
    found = check(megatron(EXPERTS, {"load": None}), mindformers(EXPERTS, {"load_checkpoint": None}))
    one = row(found, "initial_scale_of_output_projections")
    assert (one.outcome, one.by_hand, found.exit_code) == (Outcome.BY_HAND, message("by_hand.first_weights"), CLEAN)
    assert row(check(megatron(EXPERTS, {"load": None}), mindformers(EXPERTS, {})), one.row.id).outcome is Outcome.DIFFERENT
    xavier = {"load": None, "init-method-xavier-uniform": ""}
    assert row(check(megatron(EXPERTS, xavier), mindformers(EXPERTS, {"load_checkpoint": None})), one.row.id).outcome is Outcome.DIFFERENT
