"""Rows fed, micro-batches and losses, held against MindFormers' own formula of the batch size."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.feeding import Sizes, is_fed_whole, is_semi_auto, sizes_of

few = st.sampled_from([1, 2, 3])


def config(*, pp: int = 1, micro: int = 1, accumulated: int = 1, **parallel: int) -> dict[str, Any]:
    return {
        "parallel_config": {"pipeline_stage": pp, "micro_batch_num": micro} | parallel,
        "runner_config": {"gradient_accumulation_steps": accumulated},
        "micro_batch_interleave_num": 2,
    }


def fed_by_mindformers(size: int, one: Sizes, *, micro: int, accumulated: int) -> int:
    """``_check_global_batch_size_for_auto_parallel``: rows of a rank's element."""
    rows = size * one.interleave * (micro if one.pp > 1 else accumulated)
    return rows * one.dp if one.whole else rows


@given(size=few, dp=few, pp=few, micro=few, accumulated=few, whole=st.booleans())
def test_batch_sizes_are_those_of_which_mindformers_makes_the_rows(
    size: int, dp: int, pp: int, micro: int, accumulated: int, whole: bool
) -> None:
    one = sizes_of(config(pp=pp, micro=micro, accumulated=accumulated, data_parallel=dp), whole=whole)
    fed = fed_by_mindformers(size, one, micro=micro, accumulated=accumulated)
    assert one.batch_size(one.rows(fed), "run") == size


def test_a_built_configuration_has_the_same_sizes() -> None:
    plain = config(pp=2, micro=4, data_parallel=2, model_parallel=3, context_parallel=5)
    built = plain | {"parallel_config": SimpleNamespace(**plain["parallel_config"])}
    assert sizes_of(plain, whole=True) == sizes_of(built, whole=True) == Sizes(2, 5, 3, 2, 4, 2, True)


def test_a_rank_is_fed_its_block_or_the_whole() -> None:
    where = Sizes(dp=2, mp=2).place(3, 4)
    assert Sizes(dp=2, mp=2).share(where) == (1, 2)
    assert Sizes(dp=2, mp=2, whole=True).share(where) == (0, 1)


def test_the_loss_is_a_mean_over_micro_batches_and_pieces_and_the_gradient_over_micro_batches() -> None:
    one = Sizes(micro_batches=4, interleave=2)
    assert one.losses(16.0, 9, one.place(0, 1), per_token=False) == {"loss": 2.0, "objective_loss": 4.0, "valid_tokens": 9}
    assert one.losses(16.0, 9, one.place(0, 1), per_token=True) == {"loss": 16.0, "objective_loss": 16.0, "valid_tokens": 9}


@pytest.mark.parametrize(("whole", "holders"), [(False, [4, 5]), (True, [4, 5, 6, 7])])
def test_the_last_stage_holds_the_loss_and_counts_the_tokens_that_it_was_fed_once(whole: bool, holders: list[int]) -> None:
    one = Sizes(mp=2, cp=2, pp=2, whole=whole)
    rows = {rank: one.losses(2.0, 9, one.place(rank, 8), per_token=False) for rank in range(8)}
    assert [rank for rank, row in rows.items() if row["loss"] is not None] == holders
    assert {row["valid_tokens"] for rank, row in rows.items() if rank not in holders} == {0}
    assert all(row.get("whole", False) == whole for rank, row in rows.items() if rank in holders)


def test_rows_that_do_not_divide_and_experts_are_refused() -> None:
    with pytest.raises(RefusedRun, match="run has 6 rows a step, which 2 data-parallel ranks, 2 micro-batches"):
        Sizes(dp=2, micro_batches=2).batch_size(6, "run")
    with pytest.raises(RefusedRun, match="expert_parallel is above 1"):
        sizes_of(config(expert_parallel=2), whole=False)


def test_the_mode_and_what_is_fed_are_read_before_anything_is_built() -> None:
    semi = {(True, 1): True, (True, 0): False, (False, 1): False, (False, 2): False}
    assert {one: is_semi_auto({"use_parallel": one[0], "parallel": {"parallel_mode": one[1]}}) for one in semi} == semi
    assert is_fed_whole({"full_batch": True})
    assert is_fed_whole({"dataset_strategy": "full_batch"})
    assert not is_fed_whole({"full_batch": False, "dataset_strategy": [[2, 1]]})


@pytest.mark.parametrize("mode", [2, "AUTO_PARALLEL", "hybrid_parallel"])
def test_a_mode_of_which_nobody_knows_what_ranks_are_fed_is_refused(mode: int | str) -> None:
    with pytest.raises(RefusedRun, match=f"parallel.parallel_mode, now {mode}"):
        is_semi_auto({"use_parallel": True, "parallel": {"parallel_mode": mode}})
