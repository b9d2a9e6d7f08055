"""One command a row: an unmodified Megatron-LM of any tried version, recorded, fed and judged against the wheel's run.

``python tests/matrix/megatron.py VERSION… [--repository PATH_OR_URL]`` clones each version's tag into ``build/matrix``, trains
its own ``pretrain_gpt.py`` on the CPU three times (a witness with recording off, the witness with everything recorded, and
the script itself on the weights and batches of a run of ``launch/pretrain_gpt.py``), compares, prints a Markdown row and
writes ``results/megatron-VERSION.json``. The last run has another seed than the rest, so that it would have other weights and
batches of its own. Run it with the project's own Python; a version that needs another gets its own virtual environment in
``build/matrix``. Exit code 0 only where every version was proven.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import table
from checkout import Failed, clone, digests, git, last_line
from interpreter import environment, packages

from align_hooks import open_run
from align_hooks.compare.pair import KINDS
from align_hooks.compare.runs import compare
from align_hooks.record.reader import Run

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "matrix"
LAUNCH = ROOT / "launch"
WITNESS = ROOT / "tests" / "real" / "scripts" / "witness_checkout.py"
REPOSITORY = "https://github.com/NVIDIA/Megatron-LM"
STEPS = 4
TIMEOUT = 900


@dataclass(frozen=True)
class Version:
    """What one version needs: the Python minor version, and arguments of ``llama.args`` that it reads otherwise."""

    python: str = "3.12"
    change: Mapping[str, str] = field(default_factory=dict)


PACKAGES: dict[str, tuple[str, ...]] = {
    "3.12": (),  # the project's own environment, whose wheel the checkout shadows
    "3.11": (
        *("torch==2.13.0", "numpy==1.26.4", "pybind11==3.1.0", "einops==0.8.2", "tqdm", "regex", "six", "PyYAML"),
        *("wrapt", "packaging", "safetensors", "ml_dtypes"),
    ),
}
"""What is installed beside each Python."""

EOD_APART = {"--vocab-size": "255"}
"""NullTokenizer added the end of a document to the vocabulary until it counted it in: 256 ids either way."""

VERSIONS: dict[str, Version] = {
    "0.12.0": Version("3.11", EOD_APART),
    "0.12.1": Version("3.11", EOD_APART),
    "0.12.2": Version("3.11", EOD_APART),
    "0.12.3": Version("3.11", EOD_APART),
    "0.13.0": Version(change=EOD_APART),
    "0.13.1": Version(change=EOD_APART),
    "0.14.0": Version(change=EOD_APART),
    "0.15.0": Version(change=EOD_APART),
    "0.15.1": Version(change=EOD_APART),
    "0.15.2": Version(change=EOD_APART),
    "0.15.3": Version(change=EOD_APART),
    "0.16.0": Version(change=EOD_APART),
    "0.16.1": Version(change=EOD_APART),
    "0.17.0": Version(change=EOD_APART),
    "0.17.1": Version(change=EOD_APART),
    "0.18.0": Version(),
    "0.18.2": Version(),
    "0.19.0": Version(),
}
"""Every released tag in the supported range."""

SWITCHES = {"DEVICE": "cpu", "SEED": "42", "DETERMINISTIC": "1", "RUN_EXISTS": "replace"}
STATES = ("weights", "optimizer_state")
EVERYTHING = {kind.upper(): "all" for kind in KINDS}


# ---- one version


def prove(version: str, repository: str, reference: Path) -> dict[str, Any]:
    """The result of one version; what did not work out is its gap."""
    result = {
        "side": "megatron",
        "version": version,
        "python": VERSIONS[version].python,
        "packages": {},
        "command": f"python tests/matrix/megatron.py {version}",
        "proven": [],
        "verdict": None,
        "worst": {},
        "gap": None,
    }
    try:
        train_and_judge(version, repository, reference, result)
    except Failed as reason:
        result["gap"] = str(reason)
    return result


def train_and_judge(version: str, repository: str, reference: Path, result: dict[str, Any]) -> None:
    """Fill ``result`` as far as things go; raises Failed at the first that does not."""
    where = BUILD / version
    needed = VERSIONS[version].python
    python = environment(needed, PACKAGES[needed], BUILD / f"python{needed}")
    checkout = clone(repository, f"core_v{version}", where / "checkout")
    before = digests(checkout)
    result["packages"] = packages(python) | {"Megatron-LM": git(checkout, "rev-parse", "HEAD")}
    script = checkout / "pretrain_gpt.py"
    for name, variables in (("plain", {}), ("recorded", EVERYTHING | {"RUN": where / "recorded" / "run"})):
        train(python, where / name, [WITNESS, script], VERSIONS[version].change, variables, {"WITNESS": str(where / name / "witness.npz")})
    fed = EVERYTHING | {"RUN": where / "candidate" / "run", "REPLAY_BATCHES": reference, "LOAD_WEIGHTS": reference, "SEED": "7"}
    train(python, where / "candidate", [script], VERSIONS[version].change, fed)
    recorded, candidate = open_run(where / "recorded" / "run"), open_run(where / "candidate" / "run")
    result["packages"] |= recorded.manifest["versions"]
    judged = judge(reference, where / "candidate" / "run")
    result |= {"verdict": judged["verdict"], "worst": judged["worst"]}
    proofs = {
        "record": is_whole(recorded) and is_whole(candidate),
        "load": "weights" in overridden(candidate) and judged["stages"]["initial weights"] == "same",
        "replay": "training data" in overridden(candidate) and judged["stages"]["batches"] == "same",
        "bitwise": bitwise(where / "plain" / "witness.npz", where / "recorded" / "witness.npz"),
        "unedited": digests(checkout) == before,
    }
    result["proven"] = [name for name, proof in proofs.items() if proof]
    if judged["code"] != 0:
        raise Failed(f"align-hooks compare ended with {judged['code']}: {judged['verdict']}")
    if missing := [name for name, proof in proofs.items() if not proof]:
        raise Failed(f"not proven: {', '.join(missing)}")


def is_whole(run: Run) -> bool:
    """Whether everything was recorded at every step; a state also after the last."""
    steps = list(range(STEPS))
    found = {kind: list(getattr(run, method)()) for kind, method in KINDS.items()}
    whole = all(at == ([*steps, STEPS] if kind in STATES else steps) for kind, at in found.items())
    return whole and list(run.steps) == steps and not run.problems


def overridden(run: Run) -> set[str]:
    """What the run says that it changed."""
    return {one["what"] for one in run.manifest["overrides"]}


def bitwise(plain: Path, recorded: Path) -> bool:
    """Whether raw losses and final parameters are the same bits, and every Megatron module the checkout's."""
    with np.load(plain) as one, np.load(recorded) as other:
        if one["elsewhere"].size or other["elsewhere"].size:
            raise Failed(f"modules from outside the checkout: {', '.join([*one['elsewhere'], *other['elsewhere']])}")
        losses, parameters = one["losses"].size, [name for name in one.files if name.startswith("parameter ")]
        same = one.files == other.files and all(one[name].tobytes() == other[name].tobytes() for name in one.files)
        return same and losses == 2 * STEPS and len(parameters) > 10


def judge(reference: Path, candidate: Path) -> dict[str, Any]:
    """``align-hooks compare`` as a user runs it, and each stage's status and worst error."""
    command = [sys.executable, "-m", "align_hooks", "compare", str(reference), str(candidate)]
    done = subprocess.run(command, env=clean(), capture_output=True, text=True, timeout=TIMEOUT, check=False)
    stages = compare(open_run(reference), open_run(candidate)).stages
    errors = {stage.name: [one.error for one in stage.findings if one.error is not None and one.limit is not None] for stage in stages}
    return {
        "code": done.returncode,
        "verdict": (done.stdout + done.stderr).partition(":")[0].strip(),
        "stages": {stage.name: stage.status.value for stage in stages},
        "worst": {name: max(found) for name, found in errors.items() if found},
    }


# ---- training


def make_reference() -> Path:
    """A recorded run of ``launch/pretrain_gpt.py`` on the installed wheel, and the data set that everything trains on."""
    where = BUILD / "reference"
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    run([sys.executable, LAUNCH / "corpus.py", BUILD / "corpus"], where, clean())
    train(Path(sys.executable), where, [LAUNCH / "pretrain_gpt.py"], {}, EVERYTHING | {"RUN": where / "run"})
    return where / "run"


def train(
    python: Path,
    where: Path,
    script: list[Path],
    change: Mapping[str, str],
    variables: Mapping[str, object],
    more: Mapping[str, str] | None = None,
) -> None:
    """Train under ``python -m align_hooks.torch_side`` with ``ALIGN_HOOKS_*`` variables; raises Failed with what it said last."""
    lines = dict(line.partition(" ")[::2] for line in (LAUNCH / "llama.args").read_text().splitlines())
    lines |= {"--train-iters": str(STEPS), "--data-path": str(BUILD / "corpus"), "--data-cache-path": str(where / "cache")} | dict(change)
    arguments = [word for flag, value in lines.items() for word in (flag, *value.split())]
    ours = {f"ALIGN_HOOKS_{name}": str(value) for name, value in (SWITCHES | dict(variables)).items()}
    base = subprocess.run([str(python), "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True, check=True).stdout
    # Megatron's Makefile asks python3 and python3-config, which virtual environments lack: they must be of one Python.
    path = {"PATH": os.pathsep.join([str(python.parent), f"{base.strip()}/bin", os.environ["PATH"]])}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
    run([python, "-m", "align_hooks.torch_side", *script, *arguments], where, clean() | ours | path | rendezvous | dict(more or {}))


def run(command: list[Any], where: Path, environment: Mapping[str, str]) -> None:
    """Run a program with its output in ``where/log``; raises Failed with its last line."""
    where.mkdir(parents=True, exist_ok=True)
    with (where / "log").open("w") as log:
        code = subprocess.run(
            list(map(str, command)), cwd=where, env=dict(environment), stdout=log, stderr=subprocess.STDOUT, timeout=TIMEOUT, check=False
        ).returncode
    if code:
        raise Failed(f"{where.name} ended with {code}: {last_line((where / 'log').read_text())}")


def clean() -> dict[str, str]:
    """The environment without anything of ours, and with this very source of ours."""
    foreign = {
        name: value for name, value in os.environ.items() if not name.startswith(("ALIGN_HOOKS_", "_ALIGN_HOOKS_", "PYTHONHASHSEED"))
    }
    return foreign | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def main() -> int:
    """Prove the versions named on the command line, all without any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("versions", nargs="*", metavar="VERSION", default=list(VERSIONS), help=f"of {', '.join(VERSIONS)}; all if left out")
    parser.add_argument("--repository", default=os.environ.get("MEGATRON_LM_REPOSITORY", REPOSITORY), help="a path or a URL")
    options = parser.parse_args()
    if unknown := [version for version in options.versions if version not in VERSIONS]:
        parser.error(f"no row for {', '.join(unknown)}; there are {', '.join(VERSIONS)}")
    reference = make_reference()
    results = []
    for version in options.versions:
        result = prove(version, options.repository, reference)
        (table.RESULTS / f"megatron-{version}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(table.row(result), flush=True)
        results.append(result)
    return int(any(result["gap"] for result in results))


if __name__ == "__main__":
    sys.exit(main())
