"""Several ranks put together: tensors from their shards, batches from their data-parallel ranks, losses and norms."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert

from align_hooks import Run, open_run
from align_hooks.errors import RecordError
from align_hooks.record.ending import HowEnded
from align_hooks.record.norms import squared_sum
from align_hooks.record.self_check import Kind
from align_hooks.record.shard import Shard
from align_hooks.replay.batches import filled
from synthetic import CAUSAL, SEQUENCE, batch, begun, job, norm, row

WHOLE = np.arange(48, dtype=np.float32).reshape(8, 6)
DP2 = ({"dp": 0}, {"dp": 1})


def part(shard: Shard) -> np.ndarray:
    """What a rank that holds ``shard`` of WHOLE writes."""
    box = WHOLE[tuple(slice(*bounds) for bounds in shard.box)]
    return (box.reshape(-1)[slice(*shard.flat)] if shard.flat else box).copy()


def box(*bounds: tuple[int, int], counted: bool = True) -> Shard:
    return Shard("w", WHOLE.shape, "w", "float32", box=bounds, counted=counted)


def flat(start: int, stop: int, *bounds: tuple[int, int]) -> Shard:
    return Shard("w", WHOLE.shape, "w", "float32", box=bounds, flat=(start, stop))


def sharded(path: Path, shards: Sequence[Sequence[Shard]], held: Mapping[int, Any] | None = None) -> Run:
    """One rank for each sequence of shards, with gradients, weights and norms of step 0."""
    for rank, mine in enumerate(shards):
        writer = begun(path, job(rank, len(shards)), gradients="all", weights="all", local_norms="all")
        writer.describe(place={"dp": rank}, shards=mine, facts={}, steps=range(1))
        data = {shard.name: (held or {}).get(rank, part(shard)) for shard in mine}
        writer.gradients(0, data)
        writer.weights(0, data, {})
        writer.local_norms(0, "reduced", {name: squared_sum(array) for name, array in data.items()})
        writer.scalars(row(0))
        writer.finish(HowEnded("finished"), hooks={})
    return open_run(path)


GOOD = {
    "rows over tensor-parallel ranks": [[box((0, 4), (0, 6))], [box((4, 8), (0, 6))]],
    "columns over tensor-parallel ranks": [[box((0, 8), (0, 2))], [box((0, 8), (2, 6))]],
    "a grid of boxes": [[box((r, r + 4), (c, c + 3))] for r in (0, 4) for c in (0, 3)],
    "flat ranges that cut rows": [[flat(0, 11)], [flat(11, 40)], [flat(40, 48)]],
    "flat ranges of a box that cut rows": [[flat(0, 7, (0, 8), (0, 2))], [flat(7, 16, (0, 8), (0, 2))], [box((0, 8), (2, 6))]],
    "an empty flat range": [[flat(0, 0)], [flat(0, 48)]],
    "a copy that does not count": [[box((0, 8), (0, 6))], [box((0, 8), (0, 6), counted=False)]],
    "a pipeline stage without it": [[box((0, 8), (0, 6))], []],
}
BAD = {
    "a part is missing": [[box((0, 4), (0, 6))], [box((4, 7), (0, 6))]],
    "a part came twice": [[box((0, 4), (0, 6))], [box((4, 8), (0, 6))], [box((4, 8), (0, 6))]],
    "a flat range is missing": [[flat(0, 11)], [flat(12, 48)]],
    "all copies count": [[box((0, 8), (0, 6))], [box((0, 8), (0, 6))]],
    "a part came twice and another never": [[box((0, 4), (0, 6))], [box((0, 4), (0, 6))]],
    "flat ranges overlap and leave a gap": [[flat(0, 20)], [flat(10, 38)]],
}


@pytest.mark.parametrize("shards", GOOD.values(), ids=GOOD.keys())
def test_shards_are_put_together_each_element_once(tmp_path: Path, shards: list[list[Shard]]) -> None:
    run = sharded(tmp_path / "run", shards)
    for found in (run.gradients(0), run.weights(0)):
        assert list(found) == ["w"]
        assert found.shape("w") == WHOLE.shape
        np.testing.assert_array_equal(found["w"], WHOLE, strict=True)


@pytest.mark.parametrize("shards", BAD.values(), ids=BAD.keys())
def test_shards_that_are_not_exactly_the_whole_are_refused(tmp_path: Path, shards: list[list[Shard]]) -> None:
    run = sharded(tmp_path / "run", shards)
    with pytest.raises(RecordError):
        run.gradients(0)["w"]


@pytest.mark.parametrize("shards", GOOD.values(), ids=GOOD.keys())
def test_norms_of_shards_add_up_to_the_whole_one(tmp_path: Path, shards: list[list[Shard]]) -> None:
    assert sharded(tmp_path / "run", shards).local_norms(0) == {"w": pytest.approx(norm(WHOLE), rel=1e-6)}


@settings(max_examples=15)
@given(cuts=st.lists(st.integers(0, 48), max_size=3))
def test_any_cut_into_flat_ranges_is_put_together(tmp_path_factory: pytest.TempPathFactory, cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), 48]
    shards = [[flat(start, stop)] for start, stop in pairwise(bounds)]
    run = sharded(tmp_path_factory.mktemp("cut") / "run", shards)
    np.testing.assert_array_equal(run.gradients(0)["w"], WHOLE)


def test_a_part_of_another_shape_than_the_manifest_says_is_refused(tmp_path: Path) -> None:
    run = sharded(tmp_path / "run", [[box((0, 4), (0, 6))], [box((4, 8), (0, 6))]], held={1: WHOLE[4:].T.copy()})
    with pytest.raises(RecordError, match=r"w is \[6, 4\], the manifest says \[4, 6\]"):
        run.gradients(0)["w"]


def test_the_reader_keeps_no_whole_tensor(tmp_path: Path) -> None:
    found = sharded(tmp_path / "run", GOOD["a grid of boxes"]).gradients(0)
    assert found["w"] is not found["w"]


@given(st.lists(st.integers(1, 5), max_size=3).map(tuple), st.booleans(), st.data())
def test_a_shard_survives_its_manifest(shape: tuple[int, ...], counted: bool, data: st.DataObject) -> None:
    bounds = tuple(sorted(data.draw(st.tuples(st.integers(0, size), st.integers(0, size)))) for size in shape)
    shard = Shard("a", shape, "b", "bfloat16", box=tuple((low, high) for low, high in bounds), flat=(0, 0), counted=counted)
    assert convert(json.loads(json.dumps(shard.facts())), Shard) == shard


def data_parallel(path: Path, batches: Sequence[Mapping[str, Any]], rows: Sequence[list[int]], places: Sequence[dict[str, int]]) -> Run:
    for rank, (arrays, counts, place) in enumerate(zip(batches, rows, places, strict=True)):
        writer = begun(path, job(rank, len(batches)), batches="all")
        writer.describe(place=place, shards=[], facts={}, steps=range(1))
        writer.batch(0, arrays, counts)
        writer.scalars(row(0))
        writer.finish(HowEnded("finished"), hooks={})
    return open_run(path)


def labelled(dp: int, rows: int) -> dict[str, Any]:
    """A batch whose tokens say where they come from: 100 × data-parallel rank + row."""
    return batch(dp, rows) | {"tokens": np.repeat(100 * dp + np.arange(rows), SEQUENCE).reshape(rows, SEQUENCE)}


def test_rows_are_joined_in_the_order_micro_batch_data_parallel_rank_row(tmp_path: Path) -> None:
    run = data_parallel(tmp_path / "run", [labelled(0, 4), labelled(1, 4)], [[2, 2], [2, 2]], DP2)
    found = run.batch(0)
    assert found.tokens is not None
    assert found.tokens[:, 0].tolist() == [0, 1, 100, 101, 2, 3, 102, 103]
    assert found.rows == ((2, 2), (2, 2))


def test_micro_batches_of_unequal_rows_keep_their_order(tmp_path: Path) -> None:
    run = data_parallel(tmp_path / "run", [labelled(0, 4), labelled(1, 4)], [[3, 1], [1, 3]], DP2)
    assert run.batch(0).tokens[:, 0].tolist() == [0, 1, 2, 100, 3, 101, 102, 103]  # type: ignore[index]


def test_the_order_is_by_data_parallel_rank_not_by_global_rank(tmp_path: Path) -> None:
    run = data_parallel(tmp_path / "run", [labelled(1, 2), labelled(0, 2)], [[2], [2]], [{"dp": 1}, {"dp": 0}])
    assert run.batch(0).tokens[:, 0].tolist() == [0, 1, 100, 101]  # type: ignore[index]


def test_tensor_parallel_ranks_hold_one_batch(tmp_path: Path) -> None:
    places = [{"dp": dp, "tp": tp} for dp in (0, 1) for tp in (0, 1)]
    run = data_parallel(tmp_path / "run", [labelled(place["dp"], 2) for place in places], [[2]] * 4, places)
    assert run.batch(0).tokens[:, 0].tolist() == [0, 1, 100, 101]  # type: ignore[index]
    assert run.batch_facts(0).rows == 4


def test_pipeline_stages_complete_each_other(tmp_path: Path) -> None:
    whole = batch(0)
    first = {name: whole[name] for name in ("tokens", "position_ids")}
    last = {name: whole[name] for name in ("labels", "loss_mask", "token_losses")}
    run = data_parallel(tmp_path / "run", [first, last], [[4], [4]], [{"dp": 0, "pp": 0}, {"dp": 0, "pp": 1}])
    assert run.batch(0).arrays().keys() == whole.keys()


def test_an_array_of_some_data_parallel_ranks_only_is_refused(tmp_path: Path) -> None:
    lacking = {name: array for name, array in batch(1).items() if name != "labels"}
    run = data_parallel(tmp_path / "run", [batch(0), lacking], [[4], [4]], DP2)
    with pytest.raises(RecordError, match="labels is recorded by some data-parallel ranks and not by others"):
        run.batch(0)


def blocked(rows: int) -> np.ndarray:
    """A mask that is not causal: the last position may not look at the first."""
    mask = np.repeat(CAUSAL, rows, axis=0)
    mask[:, 0, -1, 0] = True
    return mask


def test_one_mask_for_all_rows_of_each_rank_fits_the_global_rows(tmp_path: Path) -> None:
    batches = [batch(dp) | {"attention_mask": blocked(1)} for dp in (0, 1)]
    run = data_parallel(tmp_path / "run", batches, [[2, 2], [2, 2]], DP2)
    assert filled(run.batch(0))["attention_mask"].shape == (8, 1, SEQUENCE, SEQUENCE)


def test_a_causal_rank_beside_one_with_its_own_mask_is_read(tmp_path: Path) -> None:
    masks = (np.repeat(CAUSAL, 4, axis=0), blocked(4))
    run = data_parallel(tmp_path / "run", [batch(dp) | {"attention_mask": masks[dp]} for dp in (0, 1)], [[4], [4]], DP2)
    found = run.batch(0)
    assert not found.causal
    np.testing.assert_array_equal(found.attention_mask, np.concatenate(masks))


def losses(path: Path, rows: Sequence[dict[str, Any]], places: Sequence[dict[str, int]]) -> dict[str, Any]:
    for rank, (one, place) in enumerate(zip(rows, places, strict=True)):
        writer = begun(path, job(rank, len(rows)))
        writer.describe(place=place, shards=[], facts={}, steps=range(1))
        writer.scalars(one)
        writer.finish(HowEnded("finished"), hooks={})
    (found,) = open_run(path).scalars()
    return found


def test_the_loss_weighs_every_valid_token_alike(tmp_path: Path) -> None:
    rows = [row(0, loss=2.0, objective_loss=2.0, valid_tokens=30), row(0, loss=4.0, objective_loss=4.0, valid_tokens=10)]
    found = losses(tmp_path / "run", rows, DP2)
    assert (found["loss"], found["objective_loss"], found["valid_tokens"]) == (2.5, 3.0, 40)


def test_the_loss_of_the_last_pipeline_stage_is_the_runs(tmp_path: Path) -> None:
    rows = [row(0, loss=None, objective_loss=None, valid_tokens=0), row(0, loss=4.0, objective_loss=4.5, valid_tokens=10)]
    found = losses(tmp_path / "run", rows, [{"dp": 0, "pp": 0}, {"dp": 0, "pp": 1}])
    assert (found["loss"], found["objective_loss"], found["valid_tokens"]) == (4.0, 4.5, 10)


def test_tensor_parallel_ranks_of_one_batch_count_its_tokens_once(tmp_path: Path) -> None:
    rows = [row(0, loss=4.0, objective_loss=4.0, valid_tokens=10)] * 2
    found = losses(tmp_path / "run", rows, [{"dp": 0, "tp": 0}, {"dp": 0, "tp": 1}])
    assert (found["loss"], found["valid_tokens"]) == (4.0, 10)


def test_nan_on_one_rank_is_nan_for_the_run(tmp_path: Path) -> None:
    found = losses(tmp_path / "run", [row(0), row(0, loss=float("nan"))], DP2)
    assert found["loss"] != found["loss"]


def joined_first(path: Path, batches: Sequence[Mapping[str, Any]], places: Sequence[dict[str, int]], *, whole: bool, count: int) -> Run:
    """Ranks of a compiled graph, which joins their rows before it cuts them into micro-batches."""
    for rank, (arrays, place) in enumerate(zip(batches, places, strict=True)):
        writer = begun(path, job(rank, len(batches)), batches="all")
        writer.describe(place=place, shards=[], facts={}, steps=range(1))
        writer.batch(0, arrays, [len(arrays["tokens"])], joined_first={"micro_batches": count, "whole": whole})
        loss = float(arrays["token_losses"].mean(dtype=np.float64))
        writer.scalars(row(0, loss=loss, **({"whole": True} if whole else {})))
        writer.finish(HowEnded("finished"), hooks={})
    return open_run(path)


GRID = [{"dp": dp, "cp": cp, "tp": tp} for dp in (0, 1) for cp in (0, 1) for tp in (0, 1)]


def test_rows_that_are_joined_first_keep_the_order_of_ranks_and_are_cut_then(tmp_path: Path) -> None:
    run = joined_first(tmp_path / "run", [labelled(place["dp"], 4) for place in GRID], GRID, whole=False, count=4)
    found = run.batch(0)
    assert found.tokens is not None
    assert found.tokens[:, 0].tolist() == [0, 1, 2, 3, 100, 101, 102, 103]
    assert found.rows == ((2, 2, 2, 2),)
    assert run.batch_facts(0).rows == 8


def test_a_whole_batch_on_every_rank_is_one_batch(tmp_path: Path) -> None:
    run = joined_first(tmp_path / "run", [labelled(0, 4)] * len(GRID), GRID, whole=True, count=2)
    found = run.batch(0)
    assert found.tokens is not None
    assert found.tokens[:, 0].tolist() == [0, 1, 2, 3]
    assert found.rows == ((2, 2),)
    assert run.batch_facts(0).rows == 4
    assert run.scalars()[0]["valid_tokens"] == row(0)["valid_tokens"]
    assert not run.self_check.contradictions


def test_whole_batches_that_differ_are_named_with_the_rank(tmp_path: Path) -> None:
    run = joined_first(tmp_path / "run", [labelled(place["dp"], 4) for place in GRID], GRID, whole=True, count=2)
    assert (Kind.BATCH, "tokens", 0) in {(one.kind, one.name, one.place) for one in run.self_check.contradictions}


def test_joined_rows_that_make_no_equal_micro_batches_are_refused(tmp_path: Path) -> None:
    run = joined_first(tmp_path / "run", [labelled(0, 4)] * len(GRID), GRID, whole=True, count=3)
    with pytest.raises(RecordError, match="4 rows are no 3 equal micro-batches"):
        run.batch(0)


def test_a_loss_of_the_whole_batch_counts_once(tmp_path: Path) -> None:
    rows = [row(0, loss=None, objective_loss=None, valid_tokens=0, whole=True)] * 2 + [row(0, loss=4.0, valid_tokens=10, whole=True)] * 2
    found = losses(tmp_path / "run", rows, [{"dp": dp, "pp": pp} for pp in (0, 1) for dp in (0, 1)])
    assert (found["loss"], found["valid_tokens"]) == (4.0, 10)
