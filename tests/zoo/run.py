"""Train every pair of the zoo, compare it, and say what ``compare`` found: ``python tests/zoo/run.py [names] [--precision bfloat16]``.

Runs that are there are not trained again, so that a comparison can be judged anew in a minute. The grades of all cases, or with ``--keep``
of those that are named, are kept beside this file; ``table.py`` makes the tables of the docs of them.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from real import frameworks
from zoo import altered
from zoo.case import MEGATRON, MINDFORMERS, PYNATIVE, Case, Flags, Reference
from zoo.cases import CASES, REFERENCES
from zoo.grade import UNTRAINED, WAYS, Grade, grades, summary
from zoo.kept import keep

HERE = Path(__file__).parent
RESULTS = HERE / "results"
SCRIPTS = {"megatron": HERE / "planted_megatron.py", MINDFORMERS: HERE / "planted_mindformers.py"}
PRECISIONS: dict[str, Flags] = {"float32": {}, "bfloat16": {"--bf16": "", "--attention-softmax-in-fp32": ""}}
"""Arguments of Megatron for what both sides compute in."""
EARLIER = "2"
"""Iterations of the first part of a run that is resumed."""


def corpus_in(where: Path) -> None:
    """Make the corpus that every run trains on, where it is not there."""
    where.mkdir(parents=True, exist_ok=True)
    prefix = where / "corpus"
    if not prefix.with_suffix(".bin").exists():
        subprocess.run([sys.executable, str(frameworks.LAUNCH / "corpus.py"), str(prefix)], check=True)
    frameworks.places["corpus"] = prefix


def train_references(
    where: Path, precision: Flags, cases: Iterable[Case] = CASES.values(), known: Mapping[str, Reference] = REFERENCES
) -> dict[str, Path]:
    """The run of every reference that ``cases`` need, and of those that it is made of, trained if it is not there."""
    needed = {case.reference for case in cases}
    for name in reversed(known):  # one that others are made of stands before them
        if name in needed:
            needed |= {known[name].fed, known[name].start} - {""}
    runs = {name: where / "references" / name / "run" for name in known if name in needed}
    for name, run in runs.items():
        if not (run / "run.json").exists():
            reference = known[name]
            given: dict[str, object] = {"LOAD_WEIGHTS": runs[reference.start]} if reference.start else {}
            if reference.weights:
                given["LOAD_WEIGHTS"] = altered.checkpoint(reference.weights, runs[reference.start], run.parent / "weights")
            if reference.fed:
                fed = runs[reference.fed]
                given["REPLAY_BATCHES"] = altered.batches(reference.batches, fed, run.parent / "batches") if reference.batches else fed
            train_reference(reference, run, precision, given)
    return runs


def train_noise(references: Mapping[str, Path], precision: Flags, cases: Iterable[Case] = CASES.values()) -> dict[str, Path]:
    """Each reference that a case is held against once more, its weights moved by one rounding step."""
    runs = {name: references[name].parents[1] / f"{name}_noise" / "run" for name in dict.fromkeys(case.reference for case in cases)}
    for name, run in runs.items():
        if not (run / "run.json").exists():
            train_reference(REFERENCES[name], run, precision, frameworks.fed_by(references[name]) | {"PERTURB": 1})
    return runs


def train_reference(reference: Reference, run: Path, precision: Flags, fed: Mapping[str, object]) -> None:
    """Train a reference into ``run``."""
    tree = run.parents[2] / "trees" / reference.tree if reference.tree else None
    done = start(reference, run.parent, tree, {**reference.flags, **precision}, **{"RUN": run, **asked(reference), **fed})
    (run.parent / "log").write_text(done.succeeded().output)


def asked(side: Case | Reference) -> dict[str, object]:
    """The variables that say what is recorded of a run."""
    return {**frameworks.EVERYTHING, **side.recorded}


def train(case: Case, reference: Path, where: Path, precision: Flags) -> Path:
    """The candidate of a case, trained if it is not there."""
    folder = where / case.name
    run = folder / "run"
    if (run / "run.json").exists():
        return run
    fed, tree = fed_to(case, reference, folder), where / "trees" / case.tree if case.tree else None
    change = {**precision, **case.flags}
    if case.earlier is not None:
        change |= checkpoint(case, None if case.untouched else tree, fed, folder, {**change, **case.earlier})
        fed["LOAD_WEIGHTS"] = None  # the checkpoint has them
    done = start(case, folder, tree, change, **planted(case), **fed, RUN=run, **asked(case))
    (folder / "log").write_text(done.output)
    done.succeeded()
    return run


def start(side: Case | Reference, where: Path, tree: Path | None, change: Flags, **given: Any) -> frameworks.Ended:
    """Train one side of a pair in the environment's packages, or in a tree that stands before them."""
    given["environment"] = {**given.get("environment", {}), **side.environment}
    if tree is not None:
        given["environment"]["PYTHONPATH"] = str(tree)
        given |= {"script": tree / "pretrain_gpt.py"} if (tree / "pretrain_gpt.py").exists() else {}
    if side.side == MEGATRON:
        done = frameworks.megatron(where, family=side.family, change=change, ranks=side.ranks, **given)
    else:
        trainer = frameworks.pynative if side.side == PYNATIVE else frameworks.mindformers
        done = trainer(where, family=side.family, change=side.change, **given)
    if done.code and "RUN" in given:
        shutil.rmtree(given["RUN"], ignore_errors=True)  # else it were taken for one that is there
    return done


def planted(case: Case) -> dict[str, object]:
    """What plants the fault of a case: the script that does, and its name for it."""
    return {"script": script(case), "environment": {"PLANTED": case.plant}} if case.plant else {}


def script(case: Case) -> Path:
    """The file that plants the fault of a case."""
    return HERE / case.script if case.script else SCRIPTS[case.side]


def fed_to(case: Case, reference: Path, where: Path) -> dict[str, object]:
    """The variables that say which batches and weights the candidate of a case gets."""
    fed: dict[str, object] = {"REPLAY_BATCHES": reference if case.replayed else None, "LOAD_WEIGHTS": reference}
    if case.batches:
        fed["REPLAY_BATCHES"] = altered.batches(case.batches, reference, where / "batches")
    if case.weights == "none":
        fed["LOAD_WEIGHTS"] = None
    elif case.weights:
        fed["LOAD_WEIGHTS"] = altered.checkpoint(case.weights, reference, where / "weights")
    return fed


def checkpoint(case: Case, tree: Path | None, fed: Mapping[str, object], where: Path, change: Flags) -> dict[str, str]:
    """Train the first part of a case that is resumed, with nothing planted or recorded; the arguments that load what it saved."""
    saved, form = str(where / "checkpoint"), {"--ckpt-format": "torch"}
    if not (where / "checkpoint" / "latest_checkpointed_iteration.txt").exists():
        first = {**change, **form, "--save": saved, "--save-interval": EARLIER, "--exit-interval": EARLIER}
        start(case, where, tree, first, **fed).succeeded()
    return {**form, "--load": saved}


def asking(tool: str | None, names: str, kept: str) -> argparse.ArgumentParser:
    """The arguments of every tool that trains cases and keeps what comes out."""
    parser = argparse.ArgumentParser(description=tool)
    parser.add_argument("names", nargs="*", help=names)
    parser.add_argument("--precision", choices=PRECISIONS, default="float32", help="what both sides compute in")
    parser.add_argument("--where", type=Path, default=Path("build/zoo"), help="where runs are kept")
    parser.add_argument("--keep", action="store_true", help=f"put {kept} of the cases that are named among the results")
    return parser


def main(arguments: Iterable[str] | None = None) -> int:
    """The exit code is 1 where a fault was missed or an honest difference flagged, by measured limits."""
    parser = asking(__doc__, "cases of cases.txt; all unless named", "the grades")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(list(arguments) if arguments is not None else None)
    where, precision = options.where.resolve() / options.precision, PRECISIONS[options.precision]
    corpus_in(where)
    cases = [CASES[name] for name in options.names] or [case for case in CASES.values() if case.is_in(options.precision)]
    if not frameworks.EMERGING_OPTIMIZERS and any(frameworks.is_emerging(REFERENCES[case.reference].flags) for case in cases):
        parser.error(frameworks.NO_EMERGING_OPTIMIZERS)
    references = train_references(where, precision, cases)
    noise = train_noise(references, precision, cases)

    def judged(case: Case) -> dict[str, Grade]:
        try:
            run = train(case, references[case.reference], where, precision)
        except AssertionError as error:
            why = str(error).strip().splitlines()[-1][:200]
            return {way: Grade(case.name, case.kind, UNTRAINED, case.stage, note=why) for way in WAYS}
        return grades(case, references[case.reference], run, noise[case.reference])

    with ThreadPoolExecutor(options.workers) as pool:
        judgements = []
        for judgement in pool.map(judged, cases):
            print(judgement["measured"].line, flush=True)
            judgements.append(judgement)
    if options.keep or not options.names:
        rows = {judgement["measured"].name: {way: asdict(grade) for way, grade in judgement.items()} for judgement in judgements}
        keep(RESULTS / f"{options.precision}.json", rows, CASES)
    for way, description in WAYS.items():
        print(f"{description}: {summary([judgement[way] for judgement in judgements])}")
    return int(not all(judgement["measured"].good for judgement in judgements))


if __name__ == "__main__":
    sys.exit(main())
