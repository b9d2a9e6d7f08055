"""Follow what ``compare`` prints to its end: ``python tests/zoo/follow.py [names] [--precision bfloat16] [--way norms]``.

Every command of *next* is run in a shell as it is printed, then those of the comparison that comes out of it, until there is none that
was not run. What a step says that would have agreed is no fault turned into *aligned*: its words say beforehand what is then at fault.
"""

import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

from align_hooks import open_run
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.verdict import ComparisonResult, Verdict
from align_hooks.messages import Joined, Message, rendered
from real import frameworks
from zoo import run as zoo
from zoo.case import Case
from zoo.cases import CASES, REFERENCES
from zoo.grade import OF_ADVICE, WithNorms, grade, parts_of
from zoo.kept import keep

FOLLOWED = 4
"""Comparisons in a row."""
ANNOUNCED = ("if that agrees", "the first that agrees")
"""How a step says what is at fault where it comes out aligned."""
HERE = Path(__file__).parent


class End(Enum):
    """How a chain of advice came out."""

    NAMES = "names the cause"
    NARROWS = "narrows it"
    CANNOT = "says that it cannot"
    MISLEADS = "misleads"
    UNSEEN = "not seen at all"
    """*Aligned* at first sight, and after all that is advised then: a fault below what rounding does."""


@dataclass(frozen=True)
class Chain:
    """What was followed of a case: how it ended, each step's advice, and what was printed last."""

    name: str
    way: str
    end: str
    steps: tuple[str, ...]
    last: str


def command_of(train: object, *given: object, **named: object) -> str:
    """The shell command of a training run, which is not started."""
    kept: list[str] = []

    def told(where: Path, command: Sequence[str], variables: Mapping[str, object], environment: Mapping[str, str]) -> frameworks.Ended:
        kept.append(f"cd {shlex.quote(str(where))} && env {shlex.join(f'{key}={value}' for key, value in environment.items())} ")
        kept.append(shlex.join(command))
        return frameworks.Ended(0, "")

    with mock.patch.object(frameworks, "program", told):
        train(*given, **named)  # type: ignore[operator]
    return "".join(kept[-2:])


def commands(case: Case, where: Path, precision: str) -> dict[str, str]:
    """The variables that a user has set who pastes a printed command: those that it asks for where the record does not hold the command,
    and those of the jobs themselves, which no command holds."""
    flags, reference = zoo.PRECISIONS[precision], REFERENCES[case.reference]
    folder = where / "references" / case.reference
    if reference.side == zoo.MINDFORMERS:
        told = command_of(frameworks.mindformers, folder, family=reference.family, change=reference.change)
    else:
        change = {**reference.flags, **flags}
        told = command_of(frameworks.megatron, folder, family=reference.family, change=change, ranks=reference.ranks)
    environment = {"PLANTED": case.plant} if case.plant else {}
    planted = {"script": zoo.script(case), "environment": environment} if case.plant else {}
    if case.side == zoo.MINDFORMERS:
        asked = command_of(frameworks.mindformers, where / case.name, family=case.family, change=case.change, **planted)
    else:
        change = {**flags, **case.flags}
        if case.earlier is not None:
            change |= {"--ckpt-format": "torch", "--load": str(where / case.name / "checkpoint")}
        asked = command_of(frameworks.megatron, where / case.name, family=case.family, change=change, ranks=case.ranks, **planted)
    return {"REFERENCE_COMMAND": told, "CANDIDATE_COMMAND": asked, "CUDA_DEVICE_MAX_CONNECTIONS": "1", **environment}


def lines_of(comparison: ComparisonResult) -> tuple[str, list[str]]:
    """The words of *next*, and its commands."""
    words, *lines = rendered(comparison.next).split("\n") if comparison.next is not None else [""]
    return words, lines


def advice_of(comparison: ComparisonResult) -> str:
    """The id of *next*."""
    said = comparison.next.parts[0] if isinstance(comparison.next, Joined) else comparison.next
    return said.id if isinstance(said, Message) else ""


@contextmanager
def without(paths: Sequence[Path]) -> Iterator[None]:
    """Remove what an earlier try recorded, and what this one does."""

    def remove() -> None:
        for path in paths:
            subprocess.run(["rm", "-rf", str(path)], check=True)

    remove()
    try:
        yield
    finally:
        remove()


def ran(line: str, variables: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A printed line in a shell, as a user pastes it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(frameworks.FOREIGN)}
    clean |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "200", **variables}
    clean["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{clean['PATH']}"
    return subprocess.run(["bash", "-c", line], env=clean, cwd=folder, capture_output=True, text=True, timeout=900, check=False)


def follow(case: Case, way: str, where: Path, precision: str) -> Chain:
    """Follow the advice on a case to its end."""
    references = where / "references"
    reference, candidate = references / case.reference / "run", where / case.name / "run"
    noise = references / f"{case.reference}_noise" / "run"
    runs = [open_run(reference), open_run(candidate)]
    if way == "norms":
        runs = [WithNorms(*parts_of(run)) for run in runs]
    comparison = compare(*runs, noise=[open_run(noise)] if way == "measured" else [])
    aligned = End.UNSEEN if comparison.verdict is Verdict.ALIGNED else End.MISLEADS
    endings = ("again", "noise", "again_again", "again_noise")
    made = [folder.with_name(f"run_{ending}") for folder in (reference, candidate) for ending in endings]
    steps: list[str] = []
    variables = commands(case, where, precision)
    with without(made):
        while True:
            words, lines = lines_of(comparison)
            steps.append(advice_of(comparison))
            named = grade(case, comparison)
            if not lines or len(steps) > FOLLOWED or steps[-1] in steps[:-1]:
                end = End.NAMES if named.culprit else End.CANNOT if comparison.verdict is not Verdict.ALIGNED else aligned
                return Chain(case.name, way, end.value, tuple(steps), words)
            pair: list[Path] = []
            for line in lines:
                done = ran(line, variables, candidate.parent)
                printed = done.stdout + done.stderr
                tool = line.split()[1] if line.startswith("align-hooks") else "run"
                if tool in ("check", "show", "arbitrate", "ladder"):
                    return judged(case, way, steps, tool, done.returncode, printed, named=named.culprit)
                if tool == "compare":
                    pair = [Path(word) for word in shlex.split(line)[2:4]]
                    if "--noise" in line:
                        return judged(case, way, steps, "noise", done.returncode, printed, named=named.culprit)
                elif done.returncode:
                    return Chain(case.name, way, End.MISLEADS.value, tuple(steps), f"{line}\nexit {done.returncode}\n{printed[-1500:]}")
            if not pair:
                return Chain(case.name, way, End.MISLEADS.value, tuple(steps), "nothing was compared: " + words)
            comparison = compare(*map(open_run, pair))
            if comparison.verdict is Verdict.ALIGNED:
                announced = any(text in words for text in ANNOUNCED)
                return Chain(case.name, way, (End.NARROWS if announced else aligned).value, tuple(steps), f"{words} -> aligned")


def judged(case: Case, way: str, steps: Sequence[str], tool: str, code: int, printed: str, *, named: bool) -> Chain:
    """How a chain ends with a command that judges by itself."""
    if code in (2, 5):
        end = End.MISLEADS
    elif tool in ("check", "noise"):
        end = End.NAMES if code == 1 else End.CANNOT if code == 4 and not named else End.MISLEADS
    elif tool == "arbitrate":
        right = "candidate wrong" in printed or "reference wrong" in printed
        end = End.NAMES if right and named else End.NARROWS if right else End.CANNOT if code == 4 else End.MISLEADS
    else:
        end = End.NAMES if named else End.NARROWS
    return Chain(case.name, way, end.value, tuple(steps), f"{tool} exits with {code}: {printed[-600:]}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code is 1 where advice misleads."""
    parser = zoo.asking(__doc__, "cases of cases.txt; every fault unless named", "what came out")
    parser.add_argument("--way", choices=OF_ADVICE, default="defaults")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    where = options.where.resolve() / options.precision
    zoo.corpus_in(where)
    cases = [CASES[name] for name in options.names] or [case for case in CASES.values() if case.stage and case.is_in(options.precision)]

    def followed(group: Sequence[Case]) -> list[Chain]:
        chains = []
        for case in group:  # one at a time of each reference, whose folder commands record beside
            chain = follow(case, options.way, where, options.precision)
            print(f"{chain.end}: {case.name}: {' > '.join(chain.steps)}", flush=True)
            if chain.end == End.MISLEADS.value:
                print("    " + chain.last.replace("\n", "\n    ")[:1800], flush=True)
            chains.append(chain)
        return chains

    by_reference: dict[str, list[Case]] = {}
    for case in cases:
        by_reference.setdefault(case.reference, []).append(case)
    with ThreadPoolExecutor(options.workers) as pool:
        chains = [chain for group in pool.map(followed, by_reference.values()) for chain in group]
    for end, count in Counter(chain.end for chain in chains).items():
        print(f"{end}: {count} of {len(chains)}")
    if options.keep:
        rows = {chain.name: asdict(chain) | {"last": ""} for chain in chains}
        keep(zoo.RESULTS / f"followed_{options.precision}_{options.way}.json", rows, CASES)
    return int(any(chain.end == End.MISLEADS.value for chain in chains))


if __name__ == "__main__":
    sys.exit(main())
