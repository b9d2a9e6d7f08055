"""Of a long run few findings are made: those that a judgement of all would keep."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from align_hooks import open_run
from align_hooks.comparison.findings import furthest, telling, telling_of, without_reference
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.random_states import first_difference
from align_hooks.comparison.verdict import Finding
from align_hooks.record import digests, layout
from record.conftest import DP2, of_ranks

ERRORS = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, math.inf])
LIMIT = 1.0


@given(st.lists(st.tuples(ERRORS, st.booleans()), max_size=40))
def test_findings_that_are_chosen_before_they_are_made_are_those_that_tell(steps: list[tuple[float, bool]]) -> None:
    findings = [
        Finding("", math.nan if lost else 1.0, 1.0, math.nan if lost else error, LIMIT, step=step)
        for step, (error, lost) in enumerate(steps)
    ]
    chosen = [findings[index] for index in telling_of([each.excess for each in findings], [*map(without_reference, findings)])]
    assert furthest(chosen) == furthest(findings)
    assert any(map(without_reference, chosen)) == any(map(without_reference, findings))
    assert {*map(id, telling(findings))} <= {*map(id, chosen)} and len(chosen) <= len(telling(findings)) + 1


@pytest.mark.parametrize("step", [0, 2, 4])
@pytest.mark.parametrize("key", ["random", "state"])
def test_rows_are_looked_at_where_texts_differ_on_any_rank(tmp_path: Path, key: str, step: int) -> None:
    content = {"random": [{"torch": "a"}, {"torch": "b"}], "state": {"consumed samples": 1.0}}
    other = {"random": [{"torch": "c"}, {"torch": "b"}], "state": {"consumed samples": -1.0}}
    paths = [of_ranks(tmp_path / name, DP2, steps=range(5)) for name in ("reference", "candidate")]
    for path in paths:
        for rank in range(2):
            file = layout.scalars(path, rank)
            rows = [json.loads(line) | content for line in file.read_bytes().splitlines()]
            rows[step] |= {key: other[key]} if rank == 1 and path is paths[1] else {}
            texts = [json.dumps({name: value for name, value in row.items() if name != "digest"}) for row in rows]
            file.write_bytes(b"".join(digests.seal(text.encode()) + b"\n" for text in texts))
    pair = Pair(*map(open_run, paths))
    assert pair.may_differ(key) == [step]
    assert pair.may_differ("state" if key == "random" else "random") == []
    drawn = first_difference(pair)
    assert (drawn is not None and (drawn.step, drawn.rank) == (step, 1)) if key == "random" else drawn is None
