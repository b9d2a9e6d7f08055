"""Load-balancing losses by what they count, not by what they are called: where two are one, where not, and what makes them one."""

from typing import Any

import pytest

from align_hooks.checklist.canonical_values import Counts, Shares
from align_hooks.checklist.edits import Action
from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.result import CLEAN, DIFFERS, UNDECIDED, Checklist, check
from align_hooks.configuration.recorded import recorded
from align_hooks.messages import message
from checklist.exercises import EXPERTS, LATENT, megatron, mindformers, row, to_change
from checklist.test_first_weights import source
from worded import ids

AUX = {"moe-aux-loss-coeff": 0.01}
OF_MINDFORMERS = {"m.moe_aux_loss_coeff": 0.01}
SEQUENTIAL = {"tensor-model-parallel-size": 2, "sequence-parallel": ""}
TENSOR = {"use_parallel": True, "parallel_config.model_parallel": 2, "parallel_config.use_seq_parallel": True}
CONTEXT = {"use_parallel": True, "parallel_config.context_parallel": 2}


def balanced(kind: str, rows: int, flags: dict[str, Any], other: str, keys: dict[str, Any]) -> Checklist:
    """A check of a loss of Megatron-LM over so many rows of a micro-batch, and one of MindFormers."""
    told = AUX | {"moe-router-load-balancing-type": kind, "micro-batch-size": rows, "global-batch-size": 4} | flags
    return check(megatron(EXPERTS, told), mindformers(EXPERTS, OF_MINDFORMERS | {"m.moe_router_load_balancing_type": other} | keys))


def rows(count: int) -> dict[str, Any]:
    """So many rows of a micro-batch in MindFormers, with as many micro-batches as make a step of four."""
    return {"use_parallel": True, "runner_config.batch_size": count, "runner_config.gradient_accumulation_steps": 4 // count}


CASES = """
aux_loss | 4 | sub_seq_aux_loss | 4 | one device | same
aux_loss | 4 | seq_aux_loss | 4 | one device | same
aux_loss | 4 | gbs_aux_loss | 4 | one device | apart
seq_aux_loss | 4 | seq_aux_loss | 4 | one device | apart
seq_aux_loss | 4 | sub_seq_aux_loss | 4 | one device | apart
seq_aux_loss | 1 | seq_aux_loss | 1 | one device | same
seq_aux_loss | 1 | sub_seq_aux_loss | 1 | one device | same
seq_aux_loss | 4 | sub_seq_aux_loss | 1 | one device | same
aux_loss | 1 | sub_seq_aux_loss | 1 | one device | same
aux_loss | 4 | sub_seq_aux_loss | 2 | one device | apart
aux_loss | 4 | sub_seq_aux_loss | 1 | one device | apart
aux_loss | 4 | sub_seq_aux_loss | 4 | tensor | apart
aux_loss | 4 | seq_aux_loss | 4 | tensor | same
seq_aux_loss | 1 | sub_seq_aux_loss | 1 | tensor | apart
seq_aux_loss | 1 | seq_aux_loss | 1 | tensor | same
aux_loss | 4 | sub_seq_aux_loss | 4 | context | apart
aux_loss | 4 | seq_aux_loss | 4 | context | apart
global_aux_loss | 4 | gbs_aux_loss | 4 | one device | same
global_aux_loss | 4 | gbs_aux_loss | 4 | tensor | same
global_aux_loss | 4 | gbs_aux_loss | 4 | context | same
global_aux_loss | 4 | sub_seq_aux_loss | 4 | one device | apart
"""
"""Megatron-LM's kind and rows of a micro-batch, MindFormers' kind and rows, how MindFormers cuts sequences, and whether the two are one."""
CUT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one device": ({}, {}),
    "tensor": (SEQUENTIAL, TENSOR),
    "context": ({"context-parallel-size": 2}, CONTEXT),
}


@pytest.mark.parametrize("case", CASES.strip().splitlines())
def test_two_losses_are_one_where_they_count_among_the_same_tokens(case: str) -> None:
    kind, of_megatron, other, of_mindformers, cut, told = (cell.strip() for cell in case.split("|"))
    flags, keys = CUT[cut]
    found = row(balanced(kind, int(of_megatron), flags, other, rows(int(of_mindformers)) | keys), "load_balancing_type")
    assert found.outcome is (RowOutcome.SAME if told == "same" else RowOutcome.DIFFERENT)


def test_megatron_is_told_too() -> None:
    reference = mindformers(EXPERTS, OF_MINDFORMERS | rows(2))
    flags = AUX | {"moe-router-load-balancing-type": "seq_aux_loss", "micro-batch-size": 2, "global-batch-size": 4}
    assert to_change(row(check(reference, megatron(EXPERTS, flags)), "load_balancing_type")) == "--moe-router-load-balancing-type aux_loss"


def test_over_all_ranks_of_an_unknown_number_nothing_is_told() -> None:
    flags = AUX | {"moe-router-load-balancing-type": "global_aux_loss", "global-batch-size": 4}
    keys = OF_MINDFORMERS | rows(1) | {"m.moe_router_load_balancing_type": "gbs_aux_loss"}
    found = check(megatron(EXPERTS, flags), mindformers(EXPERTS, keys))
    assert {one.row.id for one in found.of(RowOutcome.UNKNOWN)} == {"aux_loss_factor", "load_balancing_type"}
    assert found.exit_code == UNDECIDED


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"callbacks": [{"type": "CheckpointMonitor"}]}, "pitfall.never_forgotten"),
        ({"callbacks": [{"type": "MFLossMonitor"}]}, ""),
        ({"callbacks": [{"type": "MFLossMonitor"}], "m.num_nextn_predict_layers": 1}, "pitfall.not_forgotten_further"),
        ({"callbacks": [{"type": "CheckpointMonitor"}], "m.moe_aux_loss_coeff": 0.0}, ""),
    ],
)
def test_what_is_counted_over_a_step_is_forgotten_by_a_callback(keys: dict[str, Any], told: str) -> None:
    other = mindformers(LATENT, OF_MINDFORMERS | {"m.moe_router_load_balancing_type": "gbs_aux_loss"} | keys)
    found = [pitfall for pitfall in ids(check(megatron(LATENT, AUX), other).sides[1].pitfalls) if "forgotten" in pitfall]
    assert found == ([told] if told else [])


# ---- which choices are counted


def test_a_record_of_an_older_core_counted_what_was_chosen() -> None:
    arguments = {"num_experts": 8, "moe_aux_loss_coeff": 0.01, "moe_router_enable_expert_bias": True, "micro_batch_size": 1}
    for version, counts in (("0.12.3", Counts.AS_ROUTED), ("0.19.2", Counts.BY_SCORES)):
        facts = {"side": "torch", "arguments": arguments, "versions": {"megatron-core": version}}
        found = check(recorded(facts, "run"), mindformers(LATENT, OF_MINDFORMERS))
        assert row(found, "choices_that_this_loss_counts").reference.canonical is counts


def test_the_loss_of_further_tokens_where_every_token_counts_alike() -> None:
    name = "tokens_that_the_loss_of_further_tokens_is_divided_by"
    flags, keys = {"mtp-num-layers": 1}, {"m.num_nextn_predict_layers": 1, "m.mtp_loss_factor": 0.1}
    assert check(megatron(LATENT, flags), mindformers(LATENT, keys)).exit_code == CLEAN
    ours, theirs = {"calculate-per-token-loss": ""}, {"calculate_per_token_loss": True}
    alike = check(megatron(LATENT, flags | ours), mindformers(LATENT, keys | theirs))
    assert (alike.differing, alike.exit_code) == ([name], DIFFERS)
    assert row(alike, name).candidate.canonical is Shares.ALL_TOKENS
    change = row(alike, name).change
    assert (change.action, change.value) == (Action.BOTH_SIDES, message("way_out.no_loss_of_every_token_alike"))
    assert check(megatron(LATENT, ours), mindformers(LATENT, theirs)).exit_code == CLEAN


# ---- what the frameworks' own text says


def test_what_is_read_of_the_frameworks_is_so() -> None:
    """Where a release counts otherwise, this says so."""
    core = source("megatron", "core/transformer/moe/router.py")
    for name, group in (("aux", "tp_cp_group"), ("seq_aux", "tp_cp_group"), ("global_aux", "tp_dp_cp_group")):
        body = core[core.index(f"def _apply_{name}_loss") :]
        assert f"reduce_group=self.{group}" in body[: body.index("get_tokens_per_expert_and_token_count(") + 300]
    assert "compute_routing_scores_for_aux_loss(" in core
    assert "reset_global_aux_loss_tracker" in source("megatron", "core/distributed/finalize_model_grads.py")
    assert "original_num_tokens / num_tokens_safe" in source("megatron", "core/transformer/multi_token_prediction.py")
    assert "float('-inf')" in source("megatron", "core/transformer/moe/moe_utils.py")
    router = source("mindformers", "parallel_core/training_graph/transformer/moe/router.py")
    assert "fi.reshape(self.dp // self.original_tp, self.original_tp, -1)" in router
    assert "self.dp = config.data_parallel_size * config.tensor_model_parallel_size * config.context_parallel_size" in router
    assert "masked_fill(router_prob_with_bias, ~score_mask.bool(), 0.0)" in router
    assert "for i in range(num_layers):" in source("mindformers", "parallel_core/training_graph/base_models/gpt/gpt_model.py")
    assert "mtp_loss = numerator1 / denominator0" in source("mindformers", "wrapper/wrapper.py")
