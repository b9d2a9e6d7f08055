"""What people read is what the files beside this one say; ``python tests/golden/write.py`` writes them again."""

import pytest

from align_hooks.comparison.verdict import ComparisonResult, Verdict
from golden.write import HERE, RENDERERS, comparisons, golden


@pytest.fixture(scope="module")
def made() -> dict[str, ComparisonResult]:
    return comparisons()


def test_the_cases_are_of_every_kind(made: dict[str, ComparisonResult]) -> None:
    outcomes = [(comparison.verdict, comparison.first.name if comparison.first else "") for comparison in made.values()]
    assert outcomes == [
        (Verdict.ALIGNED, ""),
        (Verdict.DIVERGED, "token losses"),
        (Verdict.DIVERGED, "weights after an update"),
        (Verdict.NOT_COMPARABLE, "match"),
    ]


@pytest.mark.parametrize("file", RENDERERS)
def test_what_people_read(file: str, made: dict[str, ComparisonResult]) -> None:
    assert golden(RENDERERS[file], made) == (HERE / file).read_text(encoding="utf-8")
