"""Real faults out of public histories, and changes that claim to change nothing: ``python tests/zoo/commits.py [names] [--keep]``.

Every pair of the files of ``commits/`` is trained, judged in three ways, and compared with what other gates say of it; see :mod:`zoo.run`.

A row says what its commit mended and what must be blamed, in the words of :class:`zoo.case.Case`. ``flags`` are arguments of both sides,
``candidate`` of the candidate alone. A reference that ``undrawn``, ``fed`` or ``feeder`` stands for is fed itself: by a run without those
arguments, which draw random numbers; with its batches altered; of another family. ``unrecorded`` names what cannot be recorded;
``environment`` are variables of both sides.
"""

import re
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import yaml

from checklist.exercises import arguments, keys
from real import frameworks
from real.advice import long
from zoo import dumped
from zoo import run as zoo
from zoo.case import Case, Flags, Reference
from zoo.gates import HEAD, let_through
from zoo.grade import OF_COMMITS, UNTRAINED, Grade, grades_of_commit, summary
from zoo.kept import keep
from zoo.trees import make, names

FILES = sorted((Path(__file__).parent / "commits").glob("*.yaml"))
REFERENCES: dict[str, Reference] = {}
RECORDED: dict[str, object] = {"ACTIVATIONS_TENSORS": f"{frameworks.EVERYTHING['ACTIVATIONS_TENSORS']},{HEAD}"}
"""The logits too, which another gate asks for."""


def case(name: str, row: Mapping[str, Any]) -> Case:
    """The case of a row, whose reference, and what feeds that, stand among :data:`REFERENCES`."""
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    of_reference = {field: given.pop(field) for field in ("undrawn", "fed", "feeder") if field in given}
    start: str | None = given.pop("start", None)
    both, own = arguments(given.pop("flags", "")), arguments(given.pop("candidate", ""))
    change = {long(key): value for key, value in keys(given.pop("change", "")).items()}
    if "earlier" in given:
        given["earlier"] = arguments(given["earlier"])
    experts = {"ROUTING": "all"} if "--num-experts" in launched(given.get("family", "llama")) else {}
    recorded = {**RECORDED, **experts, **dict.fromkeys(given.pop("unrecorded", ()))}
    made = Case(name, **{"flags": {**both, **own}, "change": change, "recorded": recorded, "stage": "", **given})
    trees = names(name, made)
    fed = feeder(name, both, made, **of_reference)
    reference = Reference(both, fed, of_reference.get("fed", ""), made.side, made.ranks, made.family, change, start=fed)
    reference = replace(reference, tree=trees[0], recorded=recorded, start=fed if start is None else start, environment=made.environment)
    return replace(made, tree=trees[1], reference=named(name, reference))


def feeder(name: str, flags: Flags, made: Case, undrawn: str = "", fed: str = "", feeder: str = "") -> str:
    """The name of the run of Megatron-LM that feeds a row's reference; empty where that trains on its own data."""
    if not (undrawn or fed or feeder):
        return ""
    calm = {flag: value for flag, value in flags.items() if flag.removeprefix("--") not in undrawn.split()}
    return named(f"{name}_fed", Reference(calm, ranks=made.ranks, family=feeder or made.family, start=""))


def launched(family: str) -> str:
    """The arguments of a family; empty where Megatron-LM does not train it."""
    file = frameworks.launched(family, "args")
    return file.read_text(encoding="utf-8") if file.exists() else ""


def named(name: str, made: Reference) -> str:
    """The name of a reference that is like one: its own where there is none yet."""
    known = next((known for known, one in REFERENCES.items() if one == made), name)
    REFERENCES.setdefault(known, made)
    return known


CASES = {name: case(name, row) for file in FILES for name, row in yaml.safe_load(file.read_text(encoding="utf-8")).items()}


def judged(case: Case, where: Path, *, msprobe: bool = False) -> dict[str, Any]:
    """Train what is not there of a pair and judge it: grades by way, gates by name, and the seconds that training and comparing took."""
    began = time.monotonic()
    try:
        for tree in (REFERENCES[case.reference].tree, case.tree):
            make(case, tree, where)
        reference = zoo.train_references(where, {}, [case], REFERENCES)[case.reference]
        candidate = zoo.train(case, reference, where, {})
    except AssertionError as error:
        lines = str(error).strip().splitlines()
        why = next((line for line in reversed(lines) if re.match(r"\[rank\d+\]: \w+Error", line)), lines[-1]).replace(f"{where}/", "")
        return {"ways": {way: Grade(case.name, case.kind, UNTRAINED, case.stage, note=why[:200]) for way in OF_COMMITS}}
    trained = time.monotonic()
    ways = grades_of_commit(case, reference, candidate)
    seconds = {"train": kept_seconds(candidate.parent, trained - began), "judge": round(time.monotonic() - trained, 1)}
    word = dumped.worst(case, REFERENCES[case.reference], reference, where) if msprobe else None
    return {"ways": ways, "gates": let_through(reference, candidate, word), "seconds": seconds}


def kept_seconds(where: Path, spent: float) -> float:
    """How long it took to train a pair, the first time: its runs are kept."""
    file = where / "seconds"
    if not file.exists():
        file.write_text(f"{spent:.1f}")
    return float(file.read_text())


def main(arguments: Iterable[str] | None = None) -> int:
    """The exit code is 1 where a fault was missed or an honest change accused, with everything recorded."""
    parser = zoo.asking(__doc__, "rows of the files of commits/; all unless named", "the grades")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--msprobe", action="store_true", help="train each side of one rank once more under msprobe, and ask it too")
    options = parser.parse_args(list(arguments) if arguments is not None else None)
    where = options.where.resolve() / "commits"
    zoo.corpus_in(where)
    cases = [CASES[name] for name in options.names] or list(CASES.values())
    rows: dict[str, Any] = {}
    grades: dict[str, Grade] = {}
    with ThreadPoolExecutor(options.workers) as pool:
        for one, found in zip(cases, pool.map(partial(judged, where=where, msprobe=options.msprobe), cases), strict=True):
            print((grade := found["ways"]["defaults"]).line, flush=True)
            if not one.why:
                grades[one.name] = grade
            rows[one.name] = {"name": one.name, **found, "ways": {way: asdict(grade) for way, grade in found["ways"].items()}}
    if options.keep or not options.names:
        keep(zoo.RESULTS / "commits.json", rows, CASES)
    print(summary(grades.values()))
    return int(not all(grade.good for grade in grades.values()))


if __name__ == "__main__":
    sys.exit(main())
