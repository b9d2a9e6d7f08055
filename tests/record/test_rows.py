"""A line of scalars gives one row, whichever way it is read, and rows side by side are what they are one by one."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from align_hooks import open_run
from align_hooks.errors import RecordError
from align_hooks.process.ranks import Launch
from align_hooks.record.check.step_checks import other_weights, suspects, unequal_numbers
from align_hooks.record.format import digests, layout
from align_hooks.record.format.rows import RankRow
from align_hooks.record.format.schema import Manifest
from align_hooks.record.read.rows import checked_row, usual_row
from align_hooks.record.read.scalar_rows import merged_row
from record.conftest import DP2, of_ranks
from rewritten import edit_rows

HERE = Path("rank_1.jsonl")
MANIFEST = Manifest(launch=Launch(1, 2, "one", "host"), rank=1, segment="abc")  # type: ignore[arg-type]
TEXT = st.text(max_size=3) | st.sampled_from(["nan", "inf", "-inf", "NaN", "parameters", '"nan"'])
REAL = st.floats() | st.integers(-(2**60), 2**70) | st.sampled_from([0, -0.0, 1e300, 5e-324, 2**53 + 1])
WRONG = st.booleans() | TEXT | st.none() | st.lists(REAL, max_size=2) | st.dictionaries(TEXT, REAL, max_size=1)
NUMBER = st.none() | REAL | st.sampled_from(["nan", "inf", "-inf"])
SMALL = st.none() | st.floats(-10, 10) | st.sampled_from([0.0, 1.0, float("nan")])
VALUES: dict[str, st.SearchStrategy[object]] = {
    "step": st.integers(-1, 3) | st.sampled_from([10**15 - 1, 10**15, 2**64]),
    **dict.fromkeys(("loss", "objective_loss", "grad_norm", "clip_coefficient", "loss_scale", "seconds", "squared"), NUMBER),
    "valid_tokens": NUMBER | st.integers(0, 100),
    "consumed_samples": NUMBER | WRONG,
    "learning_rate": NUMBER | st.lists(REAL, max_size=2),
    "skipped": st.none() | st.booleans(),
    "terms": st.none() | st.dictionaries(TEXT, NUMBER, max_size=2),
    "whole": st.none() | st.booleans(),
    "micro_batches": st.lists(st.tuples(NUMBER, NUMBER, NUMBER), max_size=2),
    "random": st.lists(st.dictionaries(TEXT, TEXT, max_size=2), max_size=2),
    "state": st.dictionaries(TEXT, REAL | TEXT, max_size=2),
    **dict.fromkeys(("unrecorded_inputs", "unseen"), st.lists(TEXT, max_size=2)),
    "files": st.dictionaries(TEXT, TEXT, max_size=1),
    "rank": st.just(1),
    "segment": st.just("abc"),
}
HONEST = {"step": 0, "files": {}, "rank": 1, "segment": "abc"} | dict.fromkeys(RankRow.__struct_fields__[1:2])
REQUIRED = dict.fromkeys(("loss", "objective_loss", "valid_tokens", "grad_norm", "clip_coefficient", "learning_rate", "skipped"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks, whose rows a test may replace."""
    return of_ranks(tmp_path_factory.mktemp("pair") / "run", DP2, steps=range(3))


@st.composite
def rows(draw: st.DrawFn) -> dict[str, object]:
    """Rows of which most are whole, with some keys of any value, without a few keys, and with a strange one."""
    row = HONEST | REQUIRED
    row |= {key: draw(VALUES[key]) for key in draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=6))}
    row |= {key: draw(WRONG) for key in draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=1))}
    row |= draw(st.dictionaries(TEXT, REAL | TEXT, max_size=1)) if draw(st.booleans()) else {}
    for key in draw(st.lists(st.sampled_from(sorted(row)), max_size=1)):
        del row[key]
    return row


def plainly(line: bytes, manifest: Manifest = MANIFEST) -> RankRow:
    """The row of a line by the general way."""
    row = checked_row(line, HERE, 1, manifest, {segment.id: segment for segment in manifest.starts()})
    assert row is not None
    return row


def as_text(row: object) -> str:
    """What tells NaN from nothing, an int from a float, and one zero from the other."""
    return repr(msgspec.to_builtins(row))


@settings(max_examples=1000)
@given(rows(), st.booleans(), st.booleans())
@pytest.mark.slow
def test_a_line_that_is_taken_in_one_pass_is_the_row_that_the_general_way_reads(row: dict[str, object], ascii: bool, close: bool) -> None:
    text = json.dumps(row, ensure_ascii=ascii, separators=(",", ":") if close else None)
    line = digests.seal(text.encode("utf-8", "backslashreplace"))
    usual = usual_row(line)
    if usual is not None and (usual.rank, usual.segment) == (1, "abc"):  # the general way has no row of another segment
        assert repr(usual) == repr(plainly(line))


def test_a_row_as_the_writer_makes_it_is_taken_in_one_pass(tmp_path: Path) -> None:
    path = of_ranks(tmp_path / "run", DP2, steps=range(3))
    for rank in range(2):
        lines = layout.scalars(path, rank).read_bytes().splitlines()
        assert len(lines) == 3 and all((row := usual_row(line)) and row.rank == rank for line in lines)


@pytest.mark.parametrize("change", [(b"1.5", b"2.5"), (b'", "', b'" ,"'), (b'"}', b'"} ')], ids=["number", "space", "end"])
def test_a_line_that_was_changed_is_not_taken(change: tuple[bytes, bytes]) -> None:
    line = digests.seal(json.dumps(HONEST | REQUIRED | {"grad_norm": 1.5}).encode())
    assert usual_row(line) is not None
    assert change[0] in line and usual_row(line.replace(*change, 1)) is None


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("loss", "objective_loss", "grad_norm", "loss_scale", "squared"), SMALL),
        "valid_tokens": st.none() | st.integers(0, 3) | st.sampled_from([2.0, 2**50]),
        "learning_rate": st.sampled_from([0.5, [0.5, 0.25], None]),
        "consumed_samples": st.sampled_from([3, 3.5, 2**60, "text", None]),
        "skipped": st.sampled_from([True, False, None]),
        "whole": st.booleans(),
        "terms": st.sampled_from([None, {}, {"auxiliary": 0.5}]),
        "micro_batches": st.lists(st.tuples(SMALL, SMALL, SMALL), max_size=2),
        "state": st.sampled_from([{}, {"a": 1.0}, {"a": -1.0}, {"a": "nan"}, {"b": "x"}]),
        "unrecorded_inputs": st.sampled_from([[], ["a"], ["b"]]),
        "unseen": st.sampled_from([[], ["labels"], ["weights", "of a later version"]]),
    },
)


def rewrite(path: Path, of_ranks: list[list[dict[str, object]]]) -> None:
    """Replace each rank's rows by others, with their digests."""
    for rank, rows in enumerate(of_ranks):
        file = layout.scalars(path, rank)
        first = json.loads(file.read_bytes().splitlines()[0])
        kept = {key: first[key] for key in ("rank", "segment", "files")}
        file.write_bytes(b"".join(digests.seal(json.dumps({**row, **kept}).encode()) + b"\n" for row in rows))


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 3), CHANGES, CHANGES), min_size=1, max_size=8), st.booleans())
def test_rows_side_by_side_are_merged_and_checked_as_they_are_one_by_one(
    pair: Path, changes: list[tuple[int, dict[str, object], dict[str, object]]], per_token: bool
) -> None:
    base = HONEST | REQUIRED | {"loss": 1.5, "objective_loss": 2.5, "valid_tokens": 3, "grad_norm": 1.0, "skipped": False}
    of_rank = [[base | {"step": step} | both[rank] for step, *both in changes] for rank in range(2)]
    rewrite(pair, of_rank)
    run = open_run(pair)
    msgspec.structs.force_setattr(run.facts.training, "per_token_loss", per_token)
    last = {step: index for index, (step, *_) in enumerate(changes)}
    assert run.steps == sorted(last)
    for step in run.steps:
        for rank, row in run.rank_rows(step).items():
            line = layout.scalars(pair, rank).read_bytes().splitlines()[last[step]]
            assert as_text(row) == as_text(plainly(line, run.manifests[rank]))
    one_by_one = [merged_row(run.rank_rows(step), run.manifests, per_token=per_token) for step in run.steps]
    assert list(map(as_text, run.rows)) == list(map(as_text, one_by_one))
    for step in run.steps:
        rows = run.rank_rows(step)
        assert step in suspects(run) or [*unequal_numbers(rows, step), *other_weights(run, rows, step)] == []
    of_all = [row for step in run.steps for row in run.rank_rows(step).values()]
    assert run.unrecorded_inputs == sorted({name for row in of_all for name in row.unrecorded_inputs})
    assert {reason.value for reason in run.unseen} == {word for row in of_all for word in row.unseen} - {"of a later version"}


def test_a_row_that_was_changed_since_it_was_read_is_refused(tmp_path: Path) -> None:
    path = of_ranks(tmp_path / "run", DP2, steps=range(3))
    run = open_run(path)
    assert len(run.rows) == 3
    edit_rows(layout.scalars(path, 1), loss=1.0)
    with pytest.raises(RecordError, match="was changed while it was being read"):
        run.rank_rows(1)


def test_rows_whose_steps_do_not_rise_are_found_by_step(tmp_path: Path) -> None:
    path = of_ranks(tmp_path / "run", DP2, steps=range(3))
    rows = [HONEST | REQUIRED | {"step": step, "loss": float(index)} for index, step in enumerate((2, 0, 5, 0))]
    rewrite(path, [rows, rows])
    of_rank = open_run(path).committed[0].rows
    assert list(of_rank) == [0, 2, 5] and len(of_rank) == 3 and 1 not in of_rank and 5 in of_rank and "5" not in of_rank
    assert [of_rank[step].loss for step in of_rank] == [3.0, 0.0, 2.0]
    assert of_rank.columns(np.array([0, 5]))["loss"].tolist() == [3.0, 2.0]
    with pytest.raises(KeyError):
        of_rank[1]
