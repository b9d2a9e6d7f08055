"""What a row proves: its recorded runs are whole, recording changed no bit, and the comparison aligns. Knows no framework."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypedDict

import numpy as np
from checkout import Failed
from reference import make_reference
from table import RESULTS, Result, row
from training import STEPS, STORED, TIMEOUT, clean

from align_hooks import open_run
from align_hooks.comparison.pipeline import compare
from align_hooks.record.reader import Run


class Judged(TypedDict):
    """The exit code and the verdict of a comparison, and each stage's status and worst error."""

    code: int
    verdict: str
    stages: dict[str, str]
    worst: dict[str, float]


def unproven(side: str, version: str, python: str, name: str) -> Result:
    """The result of a row before anything is tried."""
    command = f"python tests/matrix/{side}.py {name}"
    tried = {"side": side, "version": version, "python": python, "packages": {}, "command": command}
    return tried | {"proven": [], "verdict": None, "worst": {}, "gap": None}


def conclude(result: Result, judged: Judged, proofs: Mapping[str, bool]) -> None:
    """Fill in what was proven; raises Failed where the comparison or a proof did not work out."""
    result["proven"] = [name for name, proof in proofs.items() if proof]
    if judged["code"] != 0:
        raise Failed(f"align-hooks compare ended with {judged['code']}: {judged['verdict']}")
    if missing := [name for name, proof in proofs.items() if not proof]:
        raise Failed(f"not proven: {', '.join(missing)}")


def is_whole(run: Run) -> bool:
    """Whether everything was recorded at every step; a state also after the last."""
    steps = list(range(STEPS))
    return all(set(run.steps_of(kind.name)) == kind.possible(steps) for kind in STORED) and not run.problems


def overridden(run: Run) -> set[str]:
    """What the run says that it changed."""
    return {override.what for override in run.facts.overrides}


def is_bitwise(plain: Path, recorded: Path, losses: int) -> bool:
    """Whether two witnesses saw the same names and bits: that many raw losses, and the final parameters."""
    with np.load(plain) as without, np.load(recorded) as with_recording:
        parameters = [name for name in without.files if name.startswith("parameter ")]
        same = without.files == with_recording.files and all(
            without[name].tobytes() == with_recording[name].tobytes() for name in without.files
        )
        return same and without["losses"].size == losses and len(parameters) > 10


def judge(reference: Path, candidate: Path) -> Judged:
    """``align-hooks compare`` as a user runs it, and each stage's status and worst error."""
    command = [sys.executable, "-m", "align_hooks", "compare", str(reference), str(candidate)]
    done = subprocess.run(command, env=clean(), capture_output=True, text=True, timeout=TIMEOUT, check=False)
    stages = compare(open_run(reference), open_run(candidate)).stages
    errors = {
        stage.name: [finding.error for finding in stage.findings if finding.error is not None and finding.limit is not None]
        for stage in stages
    }
    return {
        "code": done.returncode,
        "verdict": (done.stdout + done.stderr).partition(":")[0].strip(),
        "stages": {stage.name: stage.status.value for stage in stages},
        "worst": {name: max(worst) for name, worst in errors.items() if worst},
    }


def prove_rows(
    document: str, rows: Mapping[str, str | None], repository: str, prove: Callable[[str, str, Path], Result], reference: Path
) -> int:
    """Prove the rows named on the command line, all without any, print them and write their results.

    ``rows`` are names to a part of the gap that is expected, None where there is none; the exit code is 1 where one came out otherwise.
    """
    parser = argparse.ArgumentParser(description=document.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", default=list(rows), help=f"of {', '.join(rows)}; all if left out")
    parser.add_argument("--repository", default=repository, help="a path or a URL")
    options = parser.parse_args()
    if unknown := [name for name in options.rows if name not in rows]:
        parser.error(f"no row {', '.join(unknown)}; there are {', '.join(rows)}")
    made, surprises = make_reference(reference), 0
    for name in options.rows:
        result, expected = prove(name, options.repository, made), rows[name]
        surprises += expected not in (result["gap"] or "") if expected else result["gap"] is not None
        (RESULTS / f"{result['side']}-{name.replace(':', '-on-')}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(row(result), flush=True)
    return int(surprises > 0)
