"""Train every pair of the zoo, compare it, and say what ``compare`` found: ``python tests/zoo/run.py [names] [--precision bfloat16]``.

Runs that are there are not trained again, so that a comparison can be judged anew in a minute. With every case judged, the grades are
written beside this file, from which ``table.py`` makes the tables of the docs.
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
from zoo.grade import WAYS, Grade, grades, summary

HERE = Path(__file__).parent
RESULTS = HERE / "results"
SCRIPTS = {"megatron": HERE / "planted_megatron.py", MINDFORMERS: HERE / "planted_mindformers.py"}
REFERENCES: dict[str, dict[str, str | None]] = {"plain": {}, "masked": {}, "warming": {"--lr-warmup-iters": "2"}}
"""What candidates are held against: a Megatron run each, with these arguments."""
PRECISIONS: dict[str, dict[str, str | None]] = {"float32": {}, "bfloat16": {"--bf16": "", "--attention-softmax-in-fp32": ""}}
"""Arguments of Megatron for what both sides compute in."""


def corpus_in(where: Path) -> None:
    """Make the corpus that every run trains on, where it is not there."""
    where.mkdir(parents=True, exist_ok=True)
    prefix = where / "corpus"
    if not prefix.with_suffix(".bin").exists():
        subprocess.run([sys.executable, str(frameworks.LAUNCH / "corpus.py"), str(prefix)], check=True)
    frameworks._corpus[:] = [prefix]


def train_references(where: Path, precision: dict[str, str | None]) -> dict[str, Path]:
    """One Megatron run for each of :data:`REFERENCES`; all start from the weights of the first."""
    found: dict[str, Path] = {}
    for name, flags in REFERENCES.items():
        found[name] = where / "references" / name / "run"
        if (found[name] / "run.json").exists():
            continue
        given: dict[str, object] = {"LOAD_WEIGHTS": found["plain"]} if name != "plain" else {}
        if name == "masked":
            given["REPLAY_BATCHES"] = altered.batches("masked", found["plain"], found[name].parent / "batches")
        frameworks.megatron(found[name].parent, change=flags | precision, RUN=found[name], **given, **frameworks.EVERYTHING).succeeded()
    return found


def train_noise(references: dict[str, Path], precision: dict[str, str | None]) -> dict[str, Path]:
    """Each reference once more, its weights moved by one rounding step."""
    found = {}
    for name, reference in references.items():
        found[name] = reference.parents[1] / f"{name}_noise" / "run"
        if not (found[name] / "run.json").exists():
            fed: dict[str, object] = {"RUN": found[name], "REPLAY_BATCHES": reference, "LOAD_WEIGHTS": reference, "PERTURB": 1}
            change = REFERENCES[name] | precision
            frameworks.megatron(found[name].parent, change=change, **fed, **frameworks.EVERYTHING).succeeded()
    return found


def train(case: Case, reference: Path, where: Path, precision: dict[str, str | None]) -> Path:
    """The candidate of a case, trained if it is not there."""
    run = where / case.name / "run"
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
        done = frameworks.megatron(where / case.name, change=precision | dict(case.flags), ranks=case.ranks, **more, **fed)
    (where / case.name / "log").write_text(done.output)
    done.succeeded()
    return run


def main(arguments: Iterable[str] | None = None) -> int:
    """The exit code is 1 where a fault was missed or an honest difference flagged, by measured limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases of cases.py; all unless named")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32", help="what both sides compute in")
    parser.add_argument("--where", type=Path, default=Path("build/zoo"), help="where runs are kept")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(list(arguments) if arguments is not None else None)
    where, precision = options.where.resolve() / options.precision, PRECISIONS[options.precision]
    corpus_in(where)
    references = train_references(where, precision)
    noise = train_noise(references, precision)
    cases = [CASES[name] for name in options.names] or [case for case in CASES.values() if case.is_in(options.precision)]

    def judged(case: Case) -> dict[str, Grade]:
        try:
            run = train(case, references[case.reference], where, precision)
        except AssertionError as error:
            why = str(error).strip().splitlines()[-1][:200]
            return {way: Grade(case.name, case.kind, "not trained", case.stage, note=why) for way in WAYS}
        return grades(case, references[case.reference], run, noise[case.reference])

    with ThreadPoolExecutor(options.workers) as pool:
        found = []
        for one in pool.map(judged, cases):
            print(one["measured"].line, flush=True)
            found.append(one)
    if not options.names:
        RESULTS.mkdir(exist_ok=True)
        rows = [{way: grade.facts() for way, grade in one.items()} for one in found]
        (RESULTS / f"{options.precision}.json").write_text(json.dumps(rows, indent=1) + "\n")
    for way, what in WAYS.items():
        print(f"{what}: {summary([one[way] for one in found])}")
    return int(any(not one["measured"].good for one in found))


if __name__ == "__main__":
    sys.exit(main())
