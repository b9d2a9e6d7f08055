"""For tests: a run is compared with a reference, and a failure reads like a report.

::

    from align_hooks.testing import assert_aligned

    def test_the_new_release_trains_as_the_old_one() -> None:
        assert_aligned("reference.zip", "runs/new", report="build/new.html")

Works in pytest and with any other runner; imports neither (docs/ci.md).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from concurrent.futures import Executor

from align_hooks.comparison.verdict import Verdict
from align_hooks.errors import AlignHooksError
from align_hooks.python import Comparison, Source, compare, several

__all__ = ["assert_aligned"]


def assert_aligned(
    reference: Source,
    candidate: Source,
    *,
    noise: Source | Sequence[Source] = (),
    allow: str | Verdict | Sequence[str | Verdict] = ("aligned",),
    allow_missing: str | Sequence[str] = (),
    report: str | os.PathLike[str] | None = None,
    executor: Executor | str | None = None,
) -> Comparison:
    """Return the comparison of two recorded runs; raise AssertionError unless ``allow`` names its verdict.

    Verdicts are ``aligned``, ``diverged``, ``not comparable`` and ``inconclusive``. ``report`` is a file for the page of the
    comparison, which is written in either case. The other arguments are those of :func:`align_hooks.compare`; ``reference`` may
    be a file that ``align-hooks distill`` wrote.

    The error's text has the verdict and the stage that decided it, the worst findings with how many times their limits they are,
    the likely cause, what to do next, and the command that prints the report. Raises RecordError where a run cannot be read.
    """
    __tracebackhide__ = True
    allowed = [_verdict(name) for name in ((allow,) if isinstance(allow, str | Verdict) else allow)]
    comparison = compare(reference, candidate, noise=noise, allow_missing=allow_missing, executor=executor)
    if report is not None:
        comparison.write_html(report)
    if comparison.verdict in allowed:
        return comparison
    from align_hooks.report.failure import failure

    given = [word for repeat in several(noise) for word in ("--noise", repeat)]
    words = ["align-hooks", "compare", reference, candidate, *given]
    command = shlex.join(str(getattr(word, "path", word)) for word in words)
    raise AssertionError(failure(comparison, allowed, command, None if report is None else os.fspath(report)))


def _verdict(name: str | Verdict) -> Verdict:
    """Return the verdict of a name, or the verdict itself; raises AlignHooksError for an unknown name."""
    found = next((verdict for verdict in Verdict if name in (verdict.text, verdict)), None)
    if found is None:
        raise AlignHooksError(f"{name!r} is no verdict; there are {', '.join(verdict.text for verdict in Verdict)}")
    return found
