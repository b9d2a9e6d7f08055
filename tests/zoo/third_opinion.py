"""Which side of every pair ``arbitrate`` says is right: ``python tests/zoo/third_opinion.py [names] [--precision bfloat16]``.

Faults of the forward pass, where the planted side must be named wrong, and honest pairs, where both must be right. A step is held against
the truth of the weights that it starts from. So a fault that acts at a later step alone is judged at the first step at which a side is
wrong. Runs that are there are not trained again. What was said of all cases, or with ``--keep`` of those that are named, is kept beside
this file; ``table.py opinions`` makes the table of ``docs/arbitrate.md`` of it.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from align_hooks import open_run
from align_hooks.comparison.arbitration import Arbitration, Ruling
from align_hooks.errors import RecordError
from align_hooks.messages import Side
from align_hooks.oracle.arbitrate import arbitrate
from align_hooks.oracle.inputs import steps_of
from zoo.case import Case
from zoo.cases import CASES
from zoo.kept import Row, keep
from zoo.run import PRECISIONS, RESULTS, asking, corpus_in, train, train_references

REFUSED = "refused"
"""What is kept of a pair that nobody can compute again: its model drops at random."""


def judged(case: Case, reference: Path, run: Path) -> Row:
    """What is said of a pair at the first step at which a side is wrong, or where none is at the first, from which both start alike."""
    runs = open_run(reference), open_run(run)
    said: Arbitration | None = None
    try:
        for step in sorted(set(steps_of(runs[0])) & set(steps_of(runs[1]))):
            of_step = arbitrate(*runs, step)
            wrong = of_step.first_wrong is not None
            said = of_step if said is None or wrong else said
            if wrong:
                break
    except RecordError as error:
        return {"name": case.name, "expected": case.stage, "ruling": REFUSED, "note": str(error).partition(": ")[2]}
    assert said is not None, f"{case.name} has no step with weights and batch on both sides"
    first = said.first(Side.CANDIDATE)
    right = [distance.limit_ratio for point in said.points for distance in point.distances.values() if distance.right]
    told = {"ruling": said.ruling.text, "step": said.step, "point": first.point if first else "", "limit_ratio": max(right, default=0.0)}
    return {"name": case.name, "expected": case.stage, **told}


def good(row: Row) -> bool:
    """Whether the planted side is the one that is wrong, or an honest pair is right."""
    return row["ruling"] in ((Ruling.CANDIDATE_WRONG.text,) if row["expected"] else (Ruling.BOTH_RIGHT.text, REFUSED))


def main() -> int:
    """The exit code is 1 where a side was judged otherwise than it should."""
    options = asking(__doc__, "cases of cases.txt; all that can be judged unless named", "what is said").parse_args()
    where, precision = options.where.resolve() / options.precision, PRECISIONS[options.precision]
    corpus_in(where)
    of_precision = [case for case in CASES.values() if case.is_in(options.precision) and case.stage in ("", "forward")]
    cases = [CASES[name] for name in options.names] or of_precision
    references = train_references(where, precision, cases)
    rows = {}
    for case in cases:
        row = judged(case, references[case.reference], train(case, references[case.reference], where, precision))
        print("ok   " if good(row) else "WRONG", *row.values(), flush=True)
        rows[case.name] = row
    if options.keep or not options.names:
        keep(RESULTS / f"third_opinion_{options.precision}.json", rows, CASES)
    return int(not all(map(good, rows.values())))


if __name__ == "__main__":
    sys.exit(main())
