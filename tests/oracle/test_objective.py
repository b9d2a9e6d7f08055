"""What a step differentiates, by its record."""

from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import torch
from msgspec.structs import replace

from align_hooks.oracle.inputs import moved, objective, pieces_of
from align_hooks.oracle.model import router_terms
from align_hooks.oracle.points import Recorded
from align_hooks.record.format.schema import Facts
from align_hooks.record.read.batch import Batch
from oracle.models import ARGUMENTS, FAMILIES, batch_of, facts_of

MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], np.float32)


def batch(*rows: tuple[int, ...]) -> Batch:
    ids = np.zeros(MASK.shape, np.int64)
    return Batch(0, rows, ids, ids, MASK)


def told(family: str, **arguments: str) -> Facts:
    return msgspec.structs.replace(facts_of(FAMILIES[family]), arguments={**ARGUMENTS, **arguments})


def test_pieces_are_micro_batches_of_data_parallel_ranks_in_the_order_of_a_batch() -> None:
    assert pieces_of(((2, 1),)) == (slice(0, 2), slice(2, 3))
    assert pieces_of(((1, 2), (3, 4))) == (slice(0, 1), slice(1, 4), slice(4, 6), slice(6, 10))


def test_the_loss_is_the_mean_of_the_means_of_micro_batches() -> None:
    found = objective(told("llama"), batch((2, 1))).tokens
    assert found == pytest.approx(np.array([[1 / 12] * 4, [1 / 12] * 2 + [0] * 2, [1 / 2, 0, 0, 0]]))
    assert found.sum() == pytest.approx(1)


def test_a_loss_per_token_weighs_all_tokens_alike() -> None:
    found = objective(facts_of(FAMILIES["llama"], per_token_loss=True), batch((2, 1))).tokens
    assert found == pytest.approx(MASK / 7)


def test_what_is_predicted_further_on_is_weighed_by_the_tokens_that_have_it() -> None:
    found = objective(told("deepseek_v3_mtp"), batch((2, 1)))
    (predicted,) = found.predicted
    assert predicted == pytest.approx(0.3 * np.array([[1 / 8] * 3 + [0], [1 / 8, 0, 0, 0], [0] * 4]))


def test_predictions_of_a_loss_per_token_are_weighed_as_each_framework_does() -> None:
    facts = facts_of(FAMILIES["deepseek_v3_mtp"], per_token_loss=True)
    megatron = objective(facts, batch((3,))).predicted[0]
    assert megatron.sum() == pytest.approx(0.3)
    there = msgspec.structs.replace(facts, side="ms", arguments={"model.model_config.mtp_loss_factor": 0.3})
    assert objective(there, batch((3,))).predicted[0].sum() == pytest.approx(0.3 * 4 / 7)


def test_the_balance_of_experts_has_its_coefficient_and_a_share_of_each_piece() -> None:
    found = objective(told("qwen3_moe"), batch_of())
    assert found.shares == (0.025, 0.025)
    assert not found.by_sequence
    assert objective(told("qwen3_moe", moe_router_load_balancing_type="seq_aux_loss"), batch_of()).by_sequence
    assert objective(told("qwen3_moe", moe_router_load_balancing_type="none"), batch_of()).shares is None
    assert objective(told("llama"), batch_of()).shares is None


@pytest.mark.parametrize(
    "arguments",
    [{"moe_router_load_balancing_type": "global_aux_loss"}, {"moe_z_loss_coeff": "[0.1, 0.2]"}, {"moe_aux_loss_coeff": "[0.1, 0.2]"}],
)
def test_gradients_of_an_objective_that_is_not_known_are_not_judged(arguments: dict[str, str]) -> None:
    assert objective(told("qwen3_moe", **arguments), batch_of()).unknown is not None
    assert objective(told("qwen3_moe"), batch_of()).unknown is None


def test_a_z_loss_of_a_loss_per_token_is_not_known() -> None:
    facts = told("qwen3_moe", moe_aux_loss_coeff="0", moe_z_loss_coeff="0.001")
    assert objective(facts, batch_of()).unknown is None
    per_token = msgspec.structs.replace(facts, training=msgspec.structs.replace(facts.training, per_token_loss=True))
    assert objective(per_token, batch_of()).unknown.id == "arbitrate.unknown_logits_loss"


def test_a_z_loss_is_the_mean_square_of_the_logits_size_and_pulls_them_by_their_softmax() -> None:
    found = objective(told("qwen3_moe", moe_aux_loss_coeff="0", moe_z_loss_coeff="0.001"), batch_of())
    assert (found.shares, found.logits_shares) == (None, (0.0005, 0.0005))
    logits = [torch.randn(11, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(row)) for row in range(3)]
    terms = router_terms(found, logits, None)
    sizes = [each.exp().sum(-1).log() for each in logits]
    means = [torch.cat(sizes[:2]).square().mean(), sizes[2].square().mean()]  # two micro-batches, of two rows and of one
    assert terms.z_loss == pytest.approx(0.0005 * float(sum(means)), rel=1e-12)
    assert terms.balance == 0.0
    pull = 0.0005 * 2 * sizes[2][:, None] * logits[2].softmax(-1) / 11
    torch.testing.assert_close(terms.derivatives[2], pull, rtol=1e-12, atol=0)


def test_a_batch_without_a_mask_counts_all_tokens() -> None:
    found = objective(told("llama"), replace(batch((3,)), loss_mask=None)).tokens
    assert found == pytest.approx(np.full(MASK.shape, 1 / 12))


def test_an_objective_is_the_same_whatever_micro_batches_it_is_made_of() -> None:
    whole = replace(batch((3,)), loss_mask=None)
    cut = replace(whole, rows=((1, 1, 1),))
    assert objective(told("llama"), whole).same(objective(told("llama"), cut))
    assert not objective(told("qwen3_moe"), whole).same(objective(told("qwen3_moe"), cut))
    assert not objective(told("llama"), batch((3,))).same(objective(told("llama"), batch((2, 1))))


def test_rows_move_on_and_end_with_nothing() -> None:
    assert moved(np.array([[1, 2, 3]]), 1).tolist() == [[2, 3, 0]]
    assert moved(np.array([[1, 2, 3]]), 0).tolist() == [[1, 2, 3]]


def test_a_point_has_tensor_where_its_tensor_is_on_record() -> None:
    whole, sums = (SimpleNamespace(has_tensor=lambda name, there=there: there) for there in (True, False))
    runs = [SimpleNamespace(activations=activations) for activations in (whole, sums, None)]
    assert [Recorded._has_tensor(run, "model.norm", SimpleNamespace(tokens=None)) for run in runs] == [True, False, False]
