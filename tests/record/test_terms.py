"""Terms of the loss that nobody trains with, and those of a job of which a rank is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.comparison.runs import compare
from align_hooks.messages import rendered
from align_hooks.record.terms import AUXILIARY, PREDICTION
from align_hooks.record.writer import Writer
from record.conftest import of_ranks
from synthetic import Synthetic, routed, row

TERMS = {"beyond a double": {AUXILIARY: 1e308, PREDICTION: 1e308}, "infinities": {AUXILIARY: float("inf"), PREDICTION: float("-inf")}}


def with_terms(terms: dict[str, float]) -> Synthetic:
    run = Synthetic()
    for scalars in run.rows:
        scalars["terms"] = terms  # type: ignore[assignment]
    return run


@pytest.mark.parametrize("name", TERMS)
def test_any_terms_are_read(tmp_path: Path, name: str) -> None:
    assert len(open_run(with_terms(TERMS[name]).write(tmp_path / "run")).rows) == 3


def test_a_term_as_large_as_a_double_is_compared_with_a_record_without_terms(tmp_path: Path) -> None:
    runs = [open_run(with_terms(terms).write(tmp_path / name)) for name, terms in (("a", {}), ("b", {AUXILIARY: 1.7e308}))]
    runs[0] = open_run(Synthetic().write(tmp_path / "c"))
    compare(*runs)


def test_the_name_of_a_term_is_no_format(tmp_path: Path) -> None:
    runs = [open_run(with_terms({"x{0}": term}).write(tmp_path / name)) for name, term in (("a", 1.0), ("b", 2.0))]
    for result in compare(*runs).stages:
        for finding in result.findings:
            rendered(finding.what)


def test_the_terms_of_a_job_are_unknown_where_a_rank_is_missing(tmp_path: Path) -> None:
    """Of two stages of a pipeline the last one was copied: it has the loss, and only its own part of the terms."""

    def record(writer: Writer, rank: int) -> None:
        writer.scalars(row(0, **{"loss": 4.0, "objective_loss": 4.0, "valid_tokens": 10}, terms={AUXILIARY: 0.01}))  # type: ignore[arg-type]

    path = of_ranks(tmp_path / "run", [{"pp": 0, "pp_size": 2}, {"pp": 1, "pp_size": 2}], record)
    (path / "manifest" / "rank_0.json").unlink()
    assert open_run(path).rows[0].terms is None


def test_the_name_of_a_router_has_any_digits(tmp_path: Path) -> None:
    run = routed("routing")
    for step, layers in run.routing.items():
        run.routing[step] = {"9" * 5000: next(iter(layers.values()))}
    assert len(open_run(run.write(tmp_path / "run")).routing(0)) == 1
