"""Several ranks put together: tensors from their shards, batches from their data-parallel ranks, losses, their terms, and norms."""

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
from msgspec.structs import asdict

from align_hooks import Run, open_run
from align_hooks.comparison.pipeline import compare
from align_hooks.errors import RecordError
from align_hooks.messages import rendered
from align_hooks.record.check.contradictions import ContradictionKind
from align_hooks.record.format.norms import squared_sum
from align_hooks.record.format.shard import Shard
from align_hooks.record.format.terms import AUXILIARY, PREDICTION
from align_hooks.record.write.step_files import StepBatch
from align_hooks.record.write.writer import Writer
from align_hooks.replay.batches import filled
from record.conftest import DP2, Place, of_ranks
from synthetic import CAUSAL, SEQUENCE, STEPS, Synthetic, batch, norm, routed, row

WHOLE = np.arange(48, dtype=np.float32).reshape(8, 6)


def part(shard: Shard) -> np.ndarray:
    """The elements of WHOLE that a rank with ``shard`` writes."""
    box = WHOLE[tuple(slice(*bounds) for bounds in shard.box)]
    return (box.reshape(-1)[slice(*shard.flat)] if shard.flat else box).copy()


def box(*bounds: tuple[int, int], counted: bool = True) -> Shard:
    return Shard("w", WHOLE.shape, "w", "float32", box=bounds, counted=counted)


def flat(start: int, stop: int, *bounds: tuple[int, int]) -> Shard:
    return Shard("w", WHOLE.shape, "w", "float32", box=bounds, flat=(start, stop))


def sharded(path: Path, shards: Sequence[Sequence[Shard]], parts: Mapping[int, Any] | None = None) -> Run:
    """One rank for each sequence of shards, with gradients, weights and norms of step 0."""

    def record(writer: Writer, rank: int) -> None:
        data = {shard.name: (parts or {}).get(rank, part(shard)) for shard in shards[rank]}
        writer.gradients(0, data)
        writer.weights(0, data, {})
        writer.local_norms(0, "reduced", {name: squared_sum(array) for name, array in data.items()})
        writer.scalars(row(0))

    places = [{"dp": rank} for rank in range(len(shards))]
    return open_run(of_ranks(path, places, record, shards=shards, gradients="all", weights="all", local_norms="all"))


GOOD = {
    "rows over tensor-parallel ranks": [[box((0, 4), (0, 6))], [box((4, 8), (0, 6))]],
    "columns over tensor-parallel ranks": [[box((0, 8), (0, 2))], [box((0, 8), (2, 6))]],
    "a grid of boxes": [[box((r, r + 4), (c, c + 3))] for r in (0, 4) for c in (0, 3)],
    "flat ranges that cut rows": [[flat(0, 11)], [flat(11, 40)], [flat(40, 48)]],
    "flat ranges of a box that cut rows": [[flat(0, 7, (0, 8), (0, 2))], [flat(7, 16, (0, 8), (0, 2))], [box((0, 8), (2, 6))]],
    "an empty flat range": [[flat(0, 0)], [flat(0, 48)]],
    "a copy that does not count": [[box((0, 8), (0, 6))], [box((0, 8), (0, 6), counted=False)]],
    "a pipeline stage without it": [[box((0, 8), (0, 6))], []],
    "a part with the same bits that no rank marks as a copy": [[box((0, 4), (0, 6))], [box((4, 8), (0, 6))], [box((4, 8), (0, 6))]],
    "all copies count, with the same bits": [[box((0, 8), (0, 6))], [box((0, 8), (0, 6))]],
}
BAD = {
    "a part is missing": [[box((0, 4), (0, 6))], [box((4, 7), (0, 6))]],
    "a flat range is missing": [[flat(0, 11)], [flat(12, 48)]],
    "a part came twice and another never": [[box((0, 4), (0, 6))], [box((0, 4), (0, 6))]],
    "flat ranges overlap and leave a gap": [[flat(0, 20)], [flat(10, 38)]],
}


@pytest.mark.parametrize("shards", GOOD.values(), ids=GOOD.keys())
def test_shards_and_their_norms_are_put_together_each_element_once(tmp_path: Path, shards: list[list[Shard]]) -> None:
    run = sharded(tmp_path / "run", shards)
    for tensors in (run.gradients(0), run.weights(0)):
        assert list(tensors) == ["w"]
        assert tensors.shape("w") == WHOLE.shape
        np.testing.assert_array_equal(tensors["w"], WHOLE, strict=True)
    assert run.local_norms(0) == {"w": pytest.approx(norm(WHOLE), rel=1e-6)}


@pytest.mark.parametrize("shards", BAD.values(), ids=BAD.keys())
def test_shards_that_are_not_exactly_the_whole_are_refused(tmp_path: Path, shards: list[list[Shard]]) -> None:
    run = sharded(tmp_path / "run", shards)
    with pytest.raises(RecordError):
        run.gradients(0)["w"]


def test_copies_that_count_and_differ_are_refused(tmp_path: Path) -> None:
    run = sharded(tmp_path / "run", [[box((0, 8), (0, 6))], [box((0, 8), (0, 6))]], {1: WHOLE + 1})
    with pytest.raises(RecordError, match="elements of rank 1 are on an earlier rank too"):
        run.gradients(0)["w"]
    assert ContradictionKind.HELD_TWICE in {each.kind for each in run.self_check.contradictions}


@settings(max_examples=15)
@given(cuts=st.lists(st.integers(0, 48), max_size=3))
def test_any_cut_into_flat_ranges_is_put_together(tmp_path_factory: pytest.TempPathFactory, cuts: list[int]) -> None:
    shards = [[flat(start, stop)] for start, stop in pairwise([0, *sorted(cuts), 48])]
    run = sharded(tmp_path_factory.mktemp("cut") / "run", shards)
    np.testing.assert_array_equal(run.gradients(0)["w"], WHOLE)


def test_a_part_of_another_shape_than_the_manifest_says_is_refused(tmp_path: Path) -> None:
    run = sharded(tmp_path / "run", GOOD["rows over tensor-parallel ranks"], parts={1: WHOLE[4:].T.copy()})
    with pytest.raises(RecordError, match=r"w is \[6, 4\], the manifest says \[4, 6\]"):
        run.gradients(0)["w"]


def test_the_reader_keeps_no_whole_tensor(tmp_path: Path) -> None:
    gradients = sharded(tmp_path / "run", GOOD["a grid of boxes"]).gradients(0)
    assert gradients["w"] is not gradients["w"]


@given(st.lists(st.integers(1, 5), max_size=3).map(tuple), st.booleans(), st.data())
def test_a_shard_survives_its_manifest(shape: tuple[int, ...], counted: bool, data: st.DataObject) -> None:
    bounds = tuple(sorted(data.draw(st.tuples(st.integers(0, size), st.integers(0, size)))) for size in shape)
    shard = Shard("a", shape, "b", "bfloat16", box=tuple((low, high) for low, high in bounds), flat=(0, 0), counted=counted)
    assert convert(json.loads(json.dumps(asdict(shard))), Shard) == shard


def data_parallel(path: Path, batches: Sequence[Mapping[str, Any]], rows: Sequence[list[int]], places: Sequence[Place] = DP2) -> Run:
    def record(writer: Writer, rank: int) -> None:
        writer.batch(0, StepBatch(batches[rank], rows[rank]))
        writer.scalars(row(0))

    return open_run(of_ranks(path, places, record, batches="all"))


def is_joined(run: Run, order: list[int], rows: tuple[tuple[int, ...], ...]) -> None:
    """Hold the rows of a batch, by what :func:`labelled` calls them, and its micro-batches against what is expected."""
    joined = run.batch(0)
    assert (joined.tokens[:, 0].tolist(), joined.rows, run.batch_facts(0).rows) == (order, rows, len(order))


def labelled(dp: int, rows: int) -> dict[str, Any]:
    """A batch whose tokens name their place: 100 × data-parallel rank + row."""
    return batch(dp, rows) | {"tokens": np.repeat(100 * dp + np.arange(rows), SEQUENCE).reshape(rows, SEQUENCE)}


@pytest.mark.parametrize(
    ("places", "rows", "order"),
    [
        (DP2, [[2, 2], [2, 2]], [0, 1, 100, 101, 2, 3, 102, 103]),
        (DP2, [[3, 1], [1, 3]], [0, 1, 2, 100, 3, 101, 102, 103]),
        (DP2[::-1], [[2], [2]], [0, 1, 100, 101]),
        ([{"dp": dp, "tp": tp} for dp in (0, 1) for tp in (0, 1)], [[2]] * 4, [0, 1, 100, 101]),
    ],
    ids=["micro-batch by micro-batch", "unequal micro-batches", "not by global rank", "tensor-parallel ranks once"],
)
def test_rows_are_joined_in_the_order_micro_batch_data_parallel_rank_row(
    tmp_path: Path, places: Sequence[Place], rows: list[list[int]], order: list[int]
) -> None:
    batches = [labelled(place["dp"], sum(counts)) for place, counts in zip(places, rows, strict=True)]
    is_joined(data_parallel(tmp_path / "run", batches, rows, places), order, tuple(map(tuple, rows[:2])))


PP2 = ({"dp": 0, "pp": 0}, {"dp": 0, "pp": 1})


def test_pipeline_stages_complete_each_other(tmp_path: Path) -> None:
    whole = batch(0)
    stages = [{name: whole[name] for name in names} for names in (("tokens", "position_ids"), ("labels", "loss_mask", "token_losses"))]
    run = data_parallel(tmp_path / "run", stages, [[4], [4]], PP2)
    assert run.batch(0).arrays().keys() == whole.keys()


def test_an_array_of_some_data_parallel_ranks_only_is_refused(tmp_path: Path) -> None:
    lacking = {name: array for name, array in batch(1).items() if name != "labels"}
    run = data_parallel(tmp_path / "run", [batch(0), lacking], [[4], [4]])
    with pytest.raises(RecordError, match="labels is recorded by some data-parallel ranks and not by others"):
        run.batch(0)


def blocked(rows: int) -> np.ndarray:
    """A mask that is not causal: the last position may not look at the first."""
    mask = np.repeat(CAUSAL, rows, axis=0)
    mask[:, 0, -1, 0] = True
    return mask


def test_one_mask_for_all_rows_of_each_rank_fits_the_global_rows(tmp_path: Path) -> None:
    batches = [batch(dp) | {"attention_mask": blocked(1)} for dp in (0, 1)]
    run = data_parallel(tmp_path / "run", batches, [[2, 2], [2, 2]])
    assert filled(run.batch(0))["attention_mask"].shape == (8, 1, SEQUENCE, SEQUENCE)


def test_a_causal_rank_beside_one_with_its_own_mask_is_read(tmp_path: Path) -> None:
    masks = (np.repeat(CAUSAL, 4, axis=0), blocked(4))
    joined = data_parallel(tmp_path / "run", [batch(dp) | {"attention_mask": masks[dp]} for dp in (0, 1)], [[4], [4]]).batch(0)
    assert not joined.causal
    np.testing.assert_array_equal(joined.attention_mask, np.concatenate(masks))


TP2 = ({"tp": 0, "tp_size": 2}, {"tp": 1, "tp_size": 2})
NOTHING = {"loss": None, "objective_loss": None, "valid_tokens": 0}
FOUR = {"loss": 4.0, "objective_loss": 4.0, "valid_tokens": 10}
NAN = float("nan")
LOSSES: dict[str, tuple[Sequence[Place], Sequence[dict[str, Any]], tuple[float, float, int]]] = {
    "every valid token weighs alike": (DP2, [{"loss": 2.0, "objective_loss": 2.0, "valid_tokens": 30}, FOUR], (2.5, 3.0, 40)),
    "the last pipeline stage has the loss": (PP2, [NOTHING, FOUR | {"objective_loss": 4.5}], (4.0, 4.5, 10)),
    "tensor-parallel ranks count their tokens once": ([{"dp": 0, "tp": 0}, {"dp": 0, "tp": 1}], [FOUR] * 2, (4.0, 4.0, 10)),
    "a loss of the whole batch counts once": (
        [{"dp": dp, "pp": pp} for pp in (0, 1) for dp in (0, 1)],
        [{**stage, "whole": True} for stage in (NOTHING, FOUR) for _ in (0, 1)],
        (4.0, 4.0, 10),
    ),
    "NaN of one rank is that of the run": (DP2, [FOUR, FOUR | {"loss": NAN}], (NAN, 4.0, 20)),
}


@pytest.mark.parametrize(("places", "changes", "expected"), LOSSES.values(), ids=LOSSES)
def test_losses_of_ranks_are_put_together(tmp_path: Path, places: Any, changes: Any, expected: tuple[float, float, int]) -> None:
    path = of_ranks(tmp_path / "run", places, lambda writer, rank: writer.scalars(row(0, **changes[rank])))
    (merged,) = open_run(path).scalars()
    assert (merged["loss"], merged["objective_loss"], merged["valid_tokens"]) == pytest.approx(expected, rel=0, abs=0, nan_ok=True)


GRID = [{"dp": dp, "cp": cp, "tp": tp} for dp in (0, 1) for cp in (0, 1) for tp in (0, 1)]


def joined_first(path: Path, batches: Sequence[Mapping[str, Any]], *, whole: bool, count: int) -> Run:
    """Ranks of a compiled graph, which joins their rows before it cuts them into micro-batches."""

    def record(writer: Writer, rank: int) -> None:
        arrays = batches[rank]
        writer.batch(0, StepBatch(arrays, [len(arrays["tokens"])], joined_first={"micro_batches": count, "whole": whole}))
        loss = float(arrays["token_losses"].mean(dtype=np.float64))
        writer.scalars(row(0, loss=loss, **({"whole": True} if whole else {})))

    return open_run(of_ranks(path, GRID, record, batches="all"))


def test_rows_that_are_joined_first_keep_the_order_of_ranks_and_are_cut_then(tmp_path: Path) -> None:
    run = joined_first(tmp_path / "run", [labelled(place["dp"], 4) for place in GRID], whole=False, count=4)
    is_joined(run, [0, 1, 2, 3, 100, 101, 102, 103], ((2, 2, 2, 2),))


def test_a_whole_batch_on_every_rank_is_one_batch(tmp_path: Path) -> None:
    run = joined_first(tmp_path / "run", [labelled(0, 4)] * len(GRID), whole=True, count=2)
    is_joined(run, [0, 1, 2, 3], ((2, 2),))
    assert run.scalars()[0]["valid_tokens"] == row(0)["valid_tokens"]
    assert not run.self_check.contradictions


def test_whole_batches_that_differ_are_named_with_the_rank(tmp_path: Path) -> None:
    run = joined_first(tmp_path / "run", [labelled(place["dp"], 4) for place in GRID], whole=True, count=2)
    named = {(contradiction.kind, contradiction.name, contradiction.place) for contradiction in run.self_check.contradictions}
    assert (ContradictionKind.BATCH, "tokens", 0) in named


def test_joined_rows_that_make_no_equal_micro_batches_are_refused(tmp_path: Path) -> None:
    run = joined_first(tmp_path / "run", [labelled(0, 4)] * len(GRID), whole=True, count=3)
    with pytest.raises(RecordError, match="4 rows are no 3 equal micro-batches"):
        run.batch(0)


TERMS: dict[str, tuple[list[dict[str, float] | None], dict[str, float] | None]] = {
    "parts of ranks add up": ([{AUXILIARY: 0.25, PREDICTION: 0.5}, {AUXILIARY: 0.5}], {AUXILIARY: 0.75, PREDICTION: 0.5}),
    "a stage without experts has none": ([{}, {AUXILIARY: 0.5}], {AUXILIARY: 0.5}),
    "one rank does not know": ([None, {AUXILIARY: 0.5}], None),
}


def with_terms(path: Path, places: Sequence[Place], *terms: Mapping[str, float] | None) -> Path:
    """A record of one step, each rank with its terms of the loss."""
    return of_ranks(path, places, lambda writer, rank: writer.scalars(row(0, **FOUR, terms=terms[rank])))  # type: ignore[arg-type]


@pytest.mark.parametrize(("parts", "expected"), TERMS.values(), ids=TERMS)
def test_terms_of_the_loss_are_those_of_all_ranks_and_join_the_objective(tmp_path: Path, parts: Any, expected: Any) -> None:
    (merged,) = open_run(with_terms(tmp_path / "run", TP2, *parts)).rows
    assert (merged.terms, merged.loss, merged.objective_loss) == (expected, 4.0, 4.0 + sum((expected or {}).values()))


def test_the_terms_of_a_job_are_unknown_where_a_rank_is_missing(tmp_path: Path) -> None:
    """Of two stages of a pipeline the last one was copied: it has the loss, and only its own part of the terms."""
    stages = [{"pp": 0, "pp_size": 2}, {"pp": 1, "pp_size": 2}]
    path = with_terms(tmp_path / "run", stages, *[{AUXILIARY: 0.01}] * 2)
    (path / "manifest/rank_0.json").unlink()
    assert open_run(path).rows[0].terms is None


@pytest.mark.parametrize(
    "terms", [{AUXILIARY: 1e308, PREDICTION: 1e308}, {AUXILIARY: np.inf, PREDICTION: -np.inf}], ids=["beyond a double", "infinities"]
)
def test_any_terms_are_read(tmp_path: Path, terms: dict[str, float]) -> None:
    assert len(open_run(with_terms(tmp_path / "run", [{}], terms)).rows) == 1


AS_LARGE_AS_A_DOUBLE, NO_FORMAT = [{}, {"terms": {AUXILIARY: 1.7e308}}], [{"terms": {"x{0}": term}} for term in (1.0, 2.0)]


@pytest.mark.parametrize("pair", [AS_LARGE_AS_A_DOUBLE, NO_FORMAT], ids=["as large as a double beside none", "by a name that is no format"])
def test_any_terms_are_compared_and_told(tmp_path: Path, pair: list[Any]) -> None:
    paths = [tmp_path / "reference", tmp_path / "candidate"]
    runs = [Synthetic(rows=[row(step, **change) for step in range(STEPS)]).write(path) for path, change in zip(paths, pair, strict=True)]
    for result in compare(*map(open_run, runs)).stages:
        for finding in result.findings:
            rendered(finding.what)


def test_the_name_of_a_router_has_any_digits(tmp_path: Path) -> None:
    run = routed("routing")
    for step, layers in run.routing.items():
        run.routing[step] = {"9" * 5000: next(iter(layers.values()))}
    assert len(open_run(run.write(tmp_path / "run")).routing(0)) == 1
