"""What ``compare`` said of a pair, against what it should have said."""

from collections.abc import Collection
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

from align_hooks import open_run
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stages.activation_gradients import activation_gradients
from align_hooks.comparison.stages.activations import activations
from align_hooks.comparison.verdict import ComparisonResult, Verdict
from align_hooks.errors import RecordError
from align_hooks.evidence.convert import convert
from align_hooks.messages import rendered
from align_hooks.record.reader import Run
from align_hooks.settings import Steps
from zoo.case import Case
from zoo.points import POINTS

NAMED = 3
UNTRAINED = "not trained"
"""The verdict of a pair of which one side does not train."""
WAYS = {
    "measured": "everything recorded, measured limits",
    "defaults": "everything recorded, default limits",
    "sketches": "no tensor stored: norms, sketches, losses and batches, measured limits",
    "norms": "no tensor stored: norms, losses and batches, measured limits",
    "guide": "the guide's own acceptance standard",
}
"""How every pair is judged."""
OF_COMMITS = {"defaults": "everything recorded", "norms": "norms, losses and batches alone", "logs": "two logs alone"}
"""How a pair of commits is judged, by default limits."""
OF_ADVICE = {way: WAYS[way] for way in ("measured", "defaults")} | {"norms": WAYS["norms"].replace("measured", "default")}
"""What is recorded of a pair whose advice is followed, and by which limits it is judged."""
TENSORS = ("gradients", "weights", "optimizer_state", "activations")


class Sketched(Run):
    """A run as it would be with no tensor stored."""

    def steps_of(self, quantity: str) -> list[int]:
        return [] if quantity in TENSORS else super().steps_of(quantity)

    def asked(self, kind: str) -> Steps:
        return Steps.parse("none") if kind in TENSORS else super().asked(kind)


class WithNorms(Sketched):
    """The same with no sketches either."""

    def sketch_steps(self, kind: str) -> list[int]:
        return []

    def asked(self, kind: str) -> Steps:
        return Steps.parse("none") if kind == "sketches" else super().asked(kind)


@dataclass(frozen=True)
class Grade:
    """One pair: what should be blamed and what was. ``named`` are the first culprits that the comparison names. ``point`` is the point at
    which it says that the error comes about, and ``pointed`` whether that is right, None where no point can show the fault. ``step`` is the
    first that shows what decided, None where that has no step."""

    name: str
    kind: str
    verdict: str
    expected: str = ""
    stage: str = ""
    named: tuple[str, ...] = ()
    culprit: bool = False
    note: str = ""
    point: str = ""
    pointed: bool | None = None
    step: int | None = None

    @property
    def honest(self) -> bool:
        """Whether nothing may be flagged."""
        return not self.expected

    @property
    def detected(self) -> bool:
        """Whether something was flagged."""
        return self.verdict in (Verdict.DIVERGED.text, Verdict.NOT_COMPARABLE.text)

    @property
    def placed(self) -> bool:
        """Whether the right stage was blamed."""
        return self.detected and self.stage == self.expected

    @property
    def good(self) -> bool:
        """Whether all that was to be said was said."""
        return self.verdict == Verdict.ALIGNED.text if self.honest else self.placed and self.culprit

    @property
    def line(self) -> str:
        """For the terminal."""
        if self.good:
            return f"ok    {self.name}"
        return (
            f"WRONG {self.name}: {self.verdict}, {self.stage or '-'} for {self.expected or 'nothing'}; {', '.join(self.named)} {self.note}"
        )


def grades(case: Case, reference: Path, candidate: Path, noise: Path) -> dict[str, Grade]:
    """A pair judged in every way of :data:`WAYS`."""
    runs, repeat = (open_run(reference), open_run(candidate)), open_run(noise)
    parts = [parts_of(run) for run in (*runs, repeat)]
    sketched, bare = ([way(*given) for given in parts] for way in (Sketched, WithNorms))
    defaults = compare(*runs)
    failed = any(criterion.passed is False for criterion in defaults.acceptance)
    standard = Verdict.DIVERGED if failed else Verdict.ALIGNED
    return {
        "measured": grade(case, compare(*runs, noise=[repeat])),
        "defaults": grade(case, defaults),
        "sketches": grade(case, compare(*sketched[:2], noise=sketched[2:])),
        "norms": grade(case, compare(*bare[:2], noise=bare[2:])),
        "guide": Grade(case.name, case.kind, standard.text, case.stage),  # which names no stage
    }


def grades_of_commit(case: Case, reference: Path, candidate: Path) -> dict[str, Grade]:
    """A pair judged in every way of :data:`OF_COMMITS`."""
    runs = open_run(reference), open_run(candidate)
    bare = [WithNorms(*parts_of(run)) for run in runs]
    found = {"defaults": grade_or_refused(case, *runs), "norms": grade_or_refused(case, *bare)}
    with TemporaryDirectory() as folder:
        logs = [Path(folder, side) for side in ("reference", "candidate")]
        for run, log in zip((reference, candidate), logs, strict=True):
            convert(run.parent / "log", log)
        return {**found, "logs": grade_or_refused(case, *map(open_run, logs))}


def grade_or_refused(case: Case, reference: Run, candidate: Run) -> Grade:
    """What a comparison says of a pair, or why it does not compare it, which finds nothing."""
    try:
        return grade(case, compare(reference, candidate))
    except RecordError as error:
        return Grade(case.name, case.kind, "refused", case.stage, note=str(error))


def parts_of(run: Run) -> list[object]:
    """What a run is made of, for another view of it."""
    return [getattr(run, field.name) for field in fields(Run) if field.init]


def grade(case: Case, comparison: ComparisonResult) -> Grade:
    """What a comparison said of a case."""
    blame, first = comparison.blame, comparison.first
    stage = blame.place.value if blame else first.name if first else ""
    named = tuple(rendered(suspect.what) for suspect in blame.suspects[:NAMED]) if blame else ()
    culprit = any(fnmatchcase(name, f"*{pattern}*") for name in named[: case.among] for pattern in case.culprit)
    culprit = culprit or bool(blame and {*blame.causes[: case.among]} & {*case.causes})
    point, right = origin(comparison), POINTS.get(case.name)
    pointed = None if right is None else any(fnmatchcase(point, pattern) for pattern in right)
    shown = [finding.step for finding in first.beyond if finding.step is not None] if first is not None else []
    step = min(shown, default=None)
    return Grade(case.name, case.kind, comparison.verdict.text, case.stage, stage, named, culprit, point=point, pointed=pointed, step=step)


def origin(comparison: ComparisonResult) -> str:
    """The point at which the error comes about, of the forward pass, or else of the backward pass; empty where none is named."""
    walked = [result for stage in (activations, activation_gradients) for result in comparison.stages if result.stage is stage]
    return next((each.finding.name for result in walked for each in result.origins), "")


def rates(grades: Collection[Grade]) -> dict[str, int]:
    """How many pairs: ``faults``, of these ``detected``, ``placed`` and with the right ``culprit``; ``honest`` and of these ``flagged``."""
    faults, honest = [grade for grade in grades if not grade.honest], [grade for grade in grades if grade.honest]
    return {
        "faults": len(faults),
        "detected": sum(grade.detected for grade in faults),
        "placed": sum(grade.placed for grade in faults),
        "culprit": sum(grade.detected and grade.culprit for grade in faults),
        "points": sum(grade.pointed is not None for grade in faults),
        "pointed": sum(grade.pointed is True for grade in faults),
        "honest": len(honest),
        "flagged": sum(grade.detected for grade in honest),
    }


def summary(grades: Collection[Grade]) -> str:
    """The rates in words."""
    counts = rates(grades)
    return (
        f"detected {counts['detected']}, right stage {counts['placed']}, right culprit {counts['culprit']} of {counts['faults']}; "
        f"honest pairs flagged: {counts['flagged']} of {counts['honest']}"
    )
