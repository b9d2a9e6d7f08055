"""No test depends on how fast the machine is, or how busy: Hypothesis has no deadline, and nothing reads a clock to judge by it."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from chosen import in_one
from work import at_most

TESTS = Path(__file__).parent
CLOCKS = re.compile(
    r"\btime\.(time|monotonic|perf_counter|process_time|thread_time)|\bimport timeit|getrusage|os\.times\(|datetime\.now|loadavg"
    r"|performance\.now|TaskDuration|ScriptDuration|dataset\.(drawn|ready)\b|wait_for_timeout|--durations|\bdeadline="
)
"""What reads a clock, or waits for a time and not for a thing."""
FILES = sorted(
    path for path in TESTS.rglob("*.py") if path.name.startswith("test_") or path.parent.name in ("real", "report") or path.parent == TESTS
)
ALLOWED = {"conftest.py": "deadline=", Path(__file__).name: None}
"""The one place that says that there is no deadline, and this one."""


def test_hypothesis_has_no_deadline() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check


@in_one(FILES)
def test_no_test_reads_a_clock(path: Path) -> None:
    found = {match.group() for match in CLOCKS.finditer(path.read_text(encoding="utf-8"))}
    allowed = ALLOWED.get(str(path.relative_to(TESTS)), "")
    assert found <= (found if allowed is None else {allowed})


@pytest.mark.parametrize("text", ["begun = time.perf_counter()", "@settings(deadline=200)", "page.wait_for_timeout(100)"])
def test_a_clock_would_be_found(text: str) -> None:
    assert CLOCKS.search(text)


def test_work_is_counted_and_too_much_of_it_fails() -> None:
    with at_most(100):
        sum(abs(one) for one in range(40))
    with pytest.raises(pytest.fail.Exception, match="more than 100 calls"), at_most(100):
        sum(abs(one) for one in range(200))
