"""Train every pair of the zoo, compare it, and say what ``compare`` found: ``python tests/zoo/run.py [names] [--where DIRECTORY]``.

Runs that are there are not trained again, so that a comparison can be judged anew in seconds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from real import frameworks
from zoo import altered
from zoo.cases import CASES, MINDFORMERS, Case
from zoo.grade import Grade, grade, summary

HERE = Path(__file__).parent
SCRIPTS = {"megatron": HERE / "planted_megatron.py", MINDFORMERS: HERE / "planted_mindformers.py"}
REFERENCES: dict[str, dict[str, str | None]] = {"plain": {}, "masked": {}, "warming": {"--lr-warmup-iters": "2"}}
"""What candidates are held against: a Megatron run each, with these arguments."""


def train_references(where: Path) -> dict[str, Path]:
    """One Megatron run for each of :data:`REFERENCES`; all start from the weights of the first."""
    found: dict[str, Path] = {}
    for name, flags in REFERENCES.items():
        found[name] = where / "references" / name / "run"
        if (found[name] / "run.json").exists():
            continue
        given: dict[str, object] = {"LOAD_WEIGHTS": found["plain"]} if name != "plain" else {}
        if name == "masked":
            given["REPLAY_BATCHES"] = altered.batches("masked", found["plain"], found[name].parent / "batches")
        frameworks.megatron(found[name].parent, change=flags, RUN=found[name], **given, **frameworks.EVERYTHING).succeeded()
    return found


def train_noise(references: dict[str, Path]) -> dict[str, Path]:
    """Each reference once more, its weights moved by one rounding step."""
    found = {}
    for name, reference in references.items():
        found[name] = reference.parents[1] / f"{name}_noise" / "run"
        if not (found[name] / "run.json").exists():
            fed: dict[str, object] = {"RUN": found[name], "REPLAY_BATCHES": reference, "LOAD_WEIGHTS": reference, "PERTURB": 1}
            frameworks.megatron(found[name].parent, change=REFERENCES[name], **fed, **frameworks.EVERYTHING).succeeded()
    return found


def train(case: Case, references: dict[str, Path], where: Path) -> Path:
    """The candidate of a case, trained if it is not there."""
    run, reference = where / case.name / "run", references[case.reference]
    if (run / "run.json").exists():
        return run
    fed: dict[str, object] = {"RUN": run, "REPLAY_BATCHES": reference, "LOAD_WEIGHTS": reference, **frameworks.EVERYTHING}
    if case.batches:
        fed["REPLAY_BATCHES"] = altered.batches(case.batches, reference, where / case.name / "batches")
    if case.weights == "none":
        fed["LOAD_WEIGHTS"] = None
    elif case.weights:
        fed["LOAD_WEIGHTS"] = altered.checkpoint(case.weights, reference, where / case.name / "weights")
    more: dict[str, Any] = {"script": SCRIPTS[case.side], "environment": {"PLANTED": case.plant}} if case.plant else {}
    if case.side == MINDFORMERS:
        done = frameworks.mindformers(where / case.name, change=case.change, **more, **fed)
    else:
        done = frameworks.megatron(where / case.name, change=dict(case.flags), ranks=case.ranks, **more, **fed)
    (where / case.name / "log").write_text(done.output)
    done.succeeded()
    return run


def judged(case: Case, references: dict[str, Path], noise: dict[str, Path], where: Path) -> Grade:
    """Train and compare one case; what cannot be trained is told as such and is no success."""
    try:
        run = train(case, references, where)
    except AssertionError as error:
        return Grade(case.name, case.kind, "not trained", case.stage, note=str(error).strip().splitlines()[-1][:200])
    return grade(case, references[case.reference], run, [noise[case.reference]] if noise else [])


def main(arguments: Iterable[str] | None = None) -> int:
    """The exit code is 1 where a fault was missed or an honest difference flagged."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases of cases.py; all unless named")
    parser.add_argument("--where", type=Path, default=Path("build/zoo"), help="where runs are kept")
    parser.add_argument("--defaults", action="store_true", help="judge by the default limits instead of measured ones")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(list(arguments) if arguments is not None else None)
    where = options.where.resolve()
    where.mkdir(parents=True, exist_ok=True)
    prefix = where / "corpus"
    if not prefix.with_suffix(".bin").exists():
        subprocess.run([sys.executable, str(frameworks.LAUNCH / "corpus.py"), str(prefix)], check=True)
    frameworks._corpus[:] = [prefix]
    references = train_references(where)
    noise = {} if options.defaults else train_noise(references)
    cases = [CASES[name] for name in options.names] or list(CASES.values())
    with ThreadPoolExecutor(options.workers) as pool:
        grades = []
        for found in pool.map(lambda case: judged(case, references, noise, where), cases):
            print(found.line, flush=True)
            grades.append(found)
    (where / "grades.json").write_text(json.dumps([found.facts() for found in grades], indent=1) + "\n")
    print(summary(grades))
    return int(any(not found.good for found in grades))


if __name__ == "__main__":
    sys.exit(main())
