"""Go from two launch commands to the cause: ``python tests/zoo/solve.py [names] [--keep]``, the real faults of ``commits/`` unless named.

Each pair is given to ``align-hooks solve`` as a user gives it: two commands, and nothing recorded. Its end is graded like one ``compare``
of everything, and what it used up is counted. A pair whose candidate is fed something by the zoo itself cannot be told by commands.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).parents[1]))

from align_hooks.messages import Side
from align_hooks.scenarios.solve import Solving
from align_hooks.scenarios.trial import Budget, Solved, SolveStep, Trainings
from real import frameworks
from zoo import follow
from zoo import run as zoo
from zoo.case import MEGATRON, Case, Reference
from zoo.commits import CASES, REFERENCES
from zoo.grade import grade
from zoo.kept import keep
from zoo.run import checkpoint, planted, start
from zoo.trees import make

MINUTES, TRIALS = 20, 8
SET = {"ALIGN_HOOKS_DEVICE": "cpu", "ALIGN_HOOKS_SEED": "42", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
"""What a user sets for both, to rehearse on a CPU."""


@dataclass(frozen=True)
class SolvedPair:
    """How a pair came out, and what that took."""

    name: str
    result: str
    verdict: str = ""
    stage: str = ""
    named: tuple[str, ...] = ()
    cause_first: bool = False
    """Whether the first cause or suspect is right."""
    culprit: bool = False
    """Whether one of the first three is."""
    good: bool = False
    trials: int = 0
    seconds: float = 0.0
    bytes: int = 0
    note: str = ""

    @property
    def line(self) -> str:
        """A line of the pair while all are made."""
        used = f"{self.trials} trials, {self.seconds:.0f} s, {self.bytes / 1e6:.1f} MB"
        return (
            f"{'ok ' if self.good else 'NOT'} {self.name}: {self.result}, {self.stage}: {', '.join(self.named)} ({used}) {self.note[:300]}"
        )


def command_of(side: Case | Reference, where: Path, tree: Path | None, change: zoo.Flags, **given: object) -> str:
    """The shell command that trains one side with nothing of ours in it; its PYTHONPATH is added to, as hooks come by that too."""
    where.mkdir(parents=True, exist_ok=True)
    told = follow.command_of(start, side, where, tree, change, launcher=(), **given)
    return re.sub(r"(PYTHONPATH=\S+)", r"\1:$PYTHONPATH", told)


def commands(case: Case, where: Path) -> dict[Side, str]:
    """The commands of a pair; trains what a resumed candidate resumes."""
    reference = REFERENCES[case.reference]
    trees = [where / "trees" / tree if tree else None for tree in (reference.tree, case.tree)]
    change = dict(case.flags)
    if case.earlier is not None:
        change |= checkpoint(case, None if case.untouched else trees[1], {}, where / case.name, {**change, **case.earlier})
    ours = command_of(reference, where / case.name / "reference", trees[0], reference.flags)
    theirs = command_of(case, where / case.name / "candidate", trees[1], change, **planted(case))
    return {Side.REFERENCE: ours, Side.CANDIDATE: theirs}


def solved(case: Case, where: Path) -> SolvedPair:
    """Solve a pair and grade its end."""
    if case.batches or case.weights not in ("", "none") or REFERENCES[case.reference].side != MEGATRON:
        return SolvedPair(case.name, "not told", note="the zoo feeds its candidate something else")
    folder = where / case.name
    shutil.rmtree(folder, ignore_errors=True)
    try:
        for tree in (REFERENCES[case.reference].tree, case.tree):
            make(case, tree, where)
        solving = Solving(Trainings(folder / "solve", commands(case, where)), Budget(TRIALS, MINUTES * 60))
    except AssertionError as error:
        return SolvedPair(case.name, "not trained", note=str(error).strip().splitlines()[-1])
    solving.go_on()
    for event in solving.solve():
        if isinstance(event, SolveStep):
            print(f"    {case.name}: {event.words[:60]}: {event.verdict}, {event.headline[:90]}", flush=True)
    end = solving.conclusion
    assert end is not None
    used = len(solving.steps), sum(sum(step.seconds) for step in solving.steps), sum(step.bytes for step in solving.steps)
    note = str(end.words)
    if end.comparison is None or end.result in (Solved.FAILED, Solved.WAITS):
        return SolvedPair(case.name, end.result.text, trials=used[0], seconds=used[1], bytes=used[2], note=note)
    graded = grade(case, end.comparison)
    first = grade(replace(case, among=1), end.comparison).culprit
    accused = end.result is Solved.NAMED
    good = graded.culprit if case.stage else not accused
    return SolvedPair(case.name, end.result.text, graded.verdict, graded.stage, graded.named, first, graded.culprit, good, *used, note)


def main(arguments: Iterable[str] | None = None) -> int:
    """The exit code is 1 where an honest pair is accused."""
    parser = zoo.asking(__doc__, "rows of the files of commits/; all unless named", "what came out")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args(list(arguments) if arguments is not None else None)
    where = options.where.resolve() / "solve"
    zoo.corpus_in(where)
    for name in [name for name in os.environ if name.startswith(frameworks.FOREIGN)]:
        del os.environ[name]
    os.environ |= SET
    cases = [CASES[name] for name in options.names] or [case for case in CASES.values() if not case.why]
    with ThreadPoolExecutor(options.workers) as pool:
        pairs = []
        for pair in pool.map(lambda case: solved(case, where), cases):
            print(pair.line, flush=True)
            pairs.append(pair)
    if options.keep:
        keep(zoo.RESULTS / "solve.json", {pair.name: {"solve": asdict(pair)} for pair in pairs}, CASES)
    print(told(pairs))
    return int(any(not pair.good for pair in pairs if not CASES[pair.name].stage))


def told(pairs: Sequence[SolvedPair]) -> str:
    """What came out of all pairs."""
    made = [pair for pair in pairs if pair.verdict]
    faults = [pair for pair in made if CASES[pair.name].stage]
    first, among = (sum(getattr(pair, name) for pair in faults) for name in ("cause_first", "good"))
    lines = [f"{first} of {len(faults)} with the right cause first, {among} among three"]
    lines.append(f"{sum(not pair.good for pair in made if pair not in faults)} of {len(made) - len(faults)} honest pairs accused")
    for name in ("trials", "seconds", "bytes"):
        numbers = [getattr(pair, name) for pair in faults] or [0]
        tenth = quantiles(numbers, n=10)[-1] if len(numbers) > 1 else numbers[0]
        lines.append(f"{name}: median {median(numbers):.3g}, nine of ten {tenth:.3g}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
