"""What ``compare`` said of a pair, against what it should have said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from align_hooks import open_run
from align_hooks.compare.runs import compare
from align_hooks.compare.verdict import Verdict
from zoo.cases import Case

NAMED = 3


@dataclass(frozen=True)
class Grade:
    """One pair: what should be blamed and what was. ``named`` are the first culprits that the comparison names."""

    name: str
    kind: str
    verdict: str
    expected: str = ""
    stage: str = ""
    named: tuple[str, ...] = ()
    culprit: bool = False
    note: str = ""

    @property
    def honest(self) -> bool:
        """Whether nothing may be flagged."""
        return not self.expected

    @property
    def detected(self) -> bool:
        """Whether something was flagged."""
        return self.verdict in (Verdict.DIVERGED.text, Verdict.NOT_COMPARABLE.text)

    @property
    def good(self) -> bool:
        """Whether all that was to be said was said."""
        if self.honest:
            return self.verdict == Verdict.ALIGNED.text
        return self.detected and self.stage == self.expected and self.culprit

    @property
    def line(self) -> str:
        """For the terminal."""
        if self.good:
            return f"ok    {self.name}"
        return (
            f"WRONG {self.name}: {self.verdict}, {self.stage or '-'} for {self.expected or 'nothing'}; {', '.join(self.named)} {self.note}"
        )

    def facts(self) -> dict[str, Any]:
        """For the record of results."""
        return asdict(self)


def grade(case: Case, reference: Path, candidate: Path, noise: Sequence[Path] = ()) -> Grade:
    """Compare a pair and judge what was said."""
    found = compare(open_run(reference), open_run(candidate), noise=[open_run(path) for path in noise])
    stage, named = (found.blame.place, found.blame.suspects[:NAMED]) if found.blame else (found.first.name if found.first else "", ())
    culprit = any(fnmatchcase(what, f"*{one}*") for what in named for one in case.culprit)
    return Grade(case.name, case.kind, found.verdict.text, case.stage, stage, named, culprit)


def summary(grades: Sequence[Grade]) -> str:
    """Rates over all pairs."""
    faults, honest = [one for one in grades if not one.honest], [one for one in grades if one.honest]
    if not faults:
        return f"honest pairs flagged: {sum(not one.good for one in honest)} of {len(honest)}"
    return (
        f"detected {sum(one.detected for one in faults)}, right stage {sum(one.detected and one.stage == one.expected for one in faults)}, "
        f"right culprit {sum(one.detected and one.culprit for one in faults)} of {len(faults)}; "
        f"honest pairs flagged: {sum(not one.good for one in honest)} of {len(honest)}"
    )
