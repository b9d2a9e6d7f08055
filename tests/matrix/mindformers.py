"""One command a row: an unmodified ``run_mindformer.py`` of any tried tag, on any tried MindFormers, fed by Megatron and judged.

``python tests/matrix/mindformers.py PAIR… [--repository PATH_OR_URL]``, a pair being SCRIPT:INSTALLED, trains the tag's own
script on the CPU three times on the weights and batches of a run of ``launch/pretrain_gpt.py`` (a witness with recording
off, the witness with everything recorded, and the script itself against options of its own that contradict the replay),
compares, prints a Markdown row and writes ``results/mindformers-SCRIPT-on-INSTALLED.json``. Run it with the project's own
Python, which has Megatron; each MindFormers gets a virtual environment in ``build/matrix``. A gap is a pair whose script
cannot start there without us either: that is what is tried then. Exit code 0 where every pair is as the tables say.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from align_hooks import open_run
from align_hooks.compare.pair import KINDS
from align_hooks.compare.runs import compare
from align_hooks.record.reader import Run

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "matrix" / "mindformers"
RESULTS = Path(__file__).resolve().parent / "results"
LAUNCH = ROOT / "launch"
WITNESS = ROOT / "tests" / "real" / "scripts" / "witness_run_mindformer.py"
REPOSITORY = "https://github.com/mindspore-lab/mindformers"
STEPS = 4
TIMEOUT = 900

SCRIPTS = {"1.5.0": "v1.5.0", "1.6.0": "v1.6.0", "1.7.0": "v1.7.0", "1.8.0": "r1.8.0"}
"""Version of a script to the tag or branch that holds it; 1.8.0 has no tag, and 1.9.0 no branch (its script is that of 1.8.0)."""


@dataclass(frozen=True)
class Installed:
    """A MindFormers to train with: a Python minor version, packages, and the script's version whose checkout shadows the wheel."""

    python: str
    mindspore: str
    mindformers: str
    checkout: str | None = None

    @property
    def packages(self) -> list[str]:
        """What pip is asked for; the last four are what a training node needs of ours."""
        ours = ["wrapt", "packaging", "safetensors", "ml_dtypes"]
        return [f"mindspore=={self.mindspore}", f"mindformers=={self.mindformers}", "numpy<2", *ours]


INSTALLED = {
    "1.5.0": Installed("3.11", "2.7.0", "1.6.0", checkout="1.5.0"),  # no wheel, and its MindSpore 2.6 has none either
    "1.6.0": Installed("3.11", "2.7.0", "1.6.0"),
    "1.7.0": Installed("3.11", "2.7.1", "1.7.0"),
    "1.8.0": Installed("3.11", "2.7.2", "1.8.0"),
    "1.9.0": Installed("3.12", "2.9.0", "1.9.0"),
}

NO_MONITOR = "cannot import name 'cloud_monitor' from 'mindformers.tools.cloud_adapter'"
NO_OUTPUT_PATH = "cannot import name 'set_output_path' from 'mindformers.tools'"
NO_FILE_UTILS = "No module named 'mindformers.utils.file_utils'"

PAIRS: dict[tuple[str, str], str | None] = {
    ("1.5.0", "1.5.0"): None,
    ("1.5.0", "1.6.0"): NO_MONITOR,
    ("1.5.0", "1.7.0"): NO_MONITOR,
    ("1.5.0", "1.8.0"): NO_MONITOR,
    ("1.5.0", "1.9.0"): NO_MONITOR,
    ("1.6.0", "1.6.0"): None,
    ("1.6.0", "1.7.0"): None,
    ("1.6.0", "1.8.0"): NO_OUTPUT_PATH,
    ("1.6.0", "1.9.0"): NO_OUTPUT_PATH,
    ("1.7.0", "1.6.0"): None,
    ("1.7.0", "1.7.0"): None,
    ("1.7.0", "1.8.0"): NO_OUTPUT_PATH,
    ("1.7.0", "1.9.0"): NO_OUTPUT_PATH,
    ("1.8.0", "1.6.0"): NO_FILE_UTILS,
    ("1.8.0", "1.7.0"): NO_FILE_UTILS,
    ("1.8.0", "1.8.0"): None,
    ("1.8.0", "1.9.0"): None,
}
"""Script and installed version, and why the script itself does not start there (None where it trains)."""

SWITCHES = {"DEVICE": "cpu", "SEED": "42", "DETERMINISTIC": "1", "RUN_EXISTS": "replace"}
STATES = ("weights", "optimizer_state")
EVERYTHING = {kind.upper(): "all" for kind in KINDS}
CONTRADICTING = ("--seed", "7", "--epochs", "3", "--batch_size", "2", "--device_target", "Ascend", "--sink_mode", "True")
"""Options that the script writes into the configuration itself: what our variables set has to reach the trainer all the same."""


class Failed(Exception):
    """A step of the proof that did not work out; its text is the row's gap."""


# ---- one pair


def prove(pair: tuple[str, str], repository: str, reference: Path) -> dict[str, Any]:
    """The result of one pair; what did not work out is its gap."""
    script, installed = pair
    result: dict[str, Any] = {
        "side": "mindformers",
        "version": installed,
        "python": INSTALLED[installed].python,
        "packages": {},
        "command": f"python tests/matrix/mindformers.py {script}:{installed}",
        "proven": [],
        "verdict": None,
        "worst": {},
        "gap": None,
    }
    try:
        where = BUILD / f"{script}-on-{installed}"
        shutil.rmtree(where, ignore_errors=True)
        checkout = clone(repository, SCRIPTS[script])
        python = environment(INSTALLED[installed])
        path = checkout / "run_mindformer.py" if INSTALLED[installed].checkout else alone(checkout, where / "script")
        result["packages"] = packages(python) | {"run_mindformer.py": git(checkout, "rev-parse", "HEAD")}
        if PAIRS[pair] is None:
            train_and_judge(python, path, checkout, where, reference, result)
        else:
            result["gap"] = why_it_does_not_start(python, path, where)
    except Failed as reason:
        result["gap"] = str(reason)
    return result


def train_and_judge(python: Path, script: Path, checkout: Path, where: Path, reference: Path, result: dict[str, Any]) -> None:
    """Fill ``result`` as far as things go; raises Failed at the first that does not."""
    fed: dict[str, object] = {"REPLAY_BATCHES": reference, "LOAD_WEIGHTS": reference}
    for name, variables in (("plain", {}), ("recorded", EVERYTHING | {"RUN": where / "recorded" / "run"})):
        train(python, where / name, [WITNESS, script], fed | variables, witness=where / name / "witness.npz")
    train(python, where / "candidate", [script], fed | EVERYTHING | {"RUN": where / "candidate" / "run"}, CONTRADICTING)
    candidate, judged = open_run(where / "candidate" / "run"), judge(reference, where / "candidate" / "run")
    result["packages"] |= candidate.manifest["versions"]
    result |= {"verdict": judged["verdict"], "worst": judged["worst"]}
    overridden = {one["what"] for one in candidate.manifest["overrides"]}
    proofs = {
        "record": is_whole(candidate) and is_whole(open_run(where / "recorded" / "run")),
        "load": "weights" in overridden and judged["stages"]["initial weights"] == "same",
        "replay": "train_dataset.data_loader" in overridden and judged["stages"]["batches"] == "same",
        "bitwise": bitwise(where / "plain" / "witness.npz", where / "recorded" / "witness.npz"),
        "unedited": is_unedited(script, checkout),
    }
    result["proven"] = [name for name, proof in proofs.items() if proof]
    if candidate.manifest["versions"]["mindformers"] != result["version"]:
        raise Failed(f"MindFormers {candidate.manifest['versions']['mindformers']} trained")
    if judged["code"] != 0:
        raise Failed(f"align-hooks compare ended with {judged['code']}: {judged['verdict']}")
    if missing := [name for name, proof in proofs.items() if not proof]:
        raise Failed(f"not proven: {', '.join(missing)}")


def why_it_does_not_start(python: Path, script: Path, where: Path) -> str:
    """The error of the script without any of ours, and the line of the script that it comes from."""
    where.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in clean().items() if name != "PYTHONPATH"}
    command = [str(python), str(script), "--config", str(configuration(where, witness=False))]
    done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    frame = next((line for line in lines if line.startswith(f'File "{script}"')), "")
    if done.returncode == 0 or not frame:
        raise Failed("the script starts now: take its gap out of PAIRS")
    error = lines[-1].partition(" (/")[0]  # the path of the module says nothing
    return f"the script itself ends with {error} (its line {frame.partition('line ')[2].partition(',')[0]})"


def is_whole(run: Run) -> bool:
    """Whether everything was recorded at every step; a state also after the last."""
    steps = list(range(STEPS))
    found = {kind: list(getattr(run, method)()) for kind, method in KINDS.items()}
    whole = all(at == ([*steps, STEPS] if kind in STATES else steps) for kind, at in found.items())
    return whole and list(run.steps) == steps and not run.problems


def bitwise(plain: Path, recorded: Path) -> bool:
    """Whether raw losses and final parameters are the same bits, and a checkpoint would hold the same names."""
    with np.load(plain) as one, np.load(recorded) as other:
        losses, parameters = one["losses"].size, [name for name in one.files if name.startswith("parameter ")]
        same = one.files == other.files and all(one[name].tobytes() == other[name].tobytes() for name in one.files)
        return same and losses == STEPS and len(parameters) > 10


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


# ---- checkouts and environments


def clone(repository: str, tag: str) -> Path:
    """A work tree of a tag or branch, made once and put back as it was."""
    where = BUILD / "checkouts" / tag
    if not (where / "run_mindformer.py").exists():
        shutil.rmtree(where, ignore_errors=True)
        source = Path(repository).resolve().as_uri() if Path(repository).is_dir() else repository
        command = ["git", "-c", "advice.detachedHead=false", "clone", "--quiet", "--depth", "1", "--branch", tag, source, str(where)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"git clone of {tag} failed: {last_line(done.stderr)}")
    git(where, "checkout", "--quiet", "--force", "HEAD")
    return where


def alone(checkout: Path, where: Path) -> Path:
    """A copy of the script with nothing beside it: Python would import the checkout's MindFormers before the installed one."""
    where.mkdir(parents=True)
    return Path(shutil.copy(checkout / "run_mindformer.py", where))


def is_unedited(script: Path, checkout: Path) -> bool:
    """Whether the script that ran, and the work tree, are what the repository holds, by git's own digests."""
    blob = git(checkout, "rev-parse", "HEAD:run_mindformer.py")
    body = script.read_bytes()
    here = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
    return blob == here and not git(checkout, "status", "--porcelain", "--untracked-files=no")


def git(checkout: Path, *arguments: str) -> str:
    """What a git command prints."""
    return subprocess.run(["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=True).stdout.strip()


def environment(installed: Installed) -> Path:
    """The interpreter of a virtual environment with that MindFormers, made once."""
    home = BUILD / "environments" / f"mindformers-{installed.mindformers}"
    ready, wanted = home / "ready.json", [installed.python, *installed.packages]
    if not ready.exists() or json.loads(ready.read_text()) != wanted:
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([interpreter(installed.python), "-m", "venv", str(home)], check=True)
        install = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-cache-dir", *installed.packages]
        if subprocess.run(install, check=False).returncode:
            raise Failed(f"pip could not install {' '.join(installed.packages)}")
        ready.write_text(json.dumps(wanted))
    return home / "bin" / "python"


def interpreter(python: str) -> str:
    """An interpreter of that version on PATH which can make virtual environments."""
    probe = f"import sys, venv, ensurepip; print(sys.executable if '%d.%d' % sys.version_info[:2] == '{python}' else '')"
    for folder in os.environ["PATH"].split(os.pathsep):
        for name in (f"python{python}", "python3", "python"):
            found = shutil.which(name, path=folder)
            # From /, where no .python-version of a project decides what pyenv's python is.
            if found and (
                real := subprocess.run([found, "-c", probe], cwd="/", capture_output=True, text=True, check=False).stdout.strip()
            ):
                return real
    raise Failed(f"no Python {python} on PATH; install it, for example with pyenv install {python}")


def packages(python: Path) -> dict[str, str]:
    """Versions of what a run's numbers may depend on."""
    code = f"""
import importlib.metadata, json, platform
names = {("mindspore", "mindformers", "numpy", "transformers", "wrapt", "safetensors")}
print(json.dumps({{"python": platform.python_version()}} | {{name: importlib.metadata.version(name) for name in names}}))
"""
    found: dict[str, str] = json.loads(subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout)
    return found


# ---- training


def make_reference() -> Path:
    """A recorded run of ``launch/pretrain_gpt.py`` on the installed Megatron."""
    where = BUILD / "reference"
    shutil.rmtree(where, ignore_errors=True)
    run([sys.executable, LAUNCH / "corpus.py", where / "corpus"], where, clean())
    lines = dict(line.partition(" ")[::2] for line in (LAUNCH / "llama.args").read_text().splitlines())
    lines |= {"--train-iters": str(STEPS), "--data-path": str(where / "corpus"), "--data-cache-path": str(where / "cache")}
    arguments = [word for flag, value in lines.items() for word in (flag, *value.split())]
    command = [sys.executable, "-m", "align_hooks.torch_side", LAUNCH / "pretrain_gpt.py", *arguments]
    run(command, where, clean() | variables_of(EVERYTHING | {"RUN": where / "run"}) | rendezvous())
    return where / "run"


def train(
    python: Path,
    where: Path,
    script: Sequence[Path],
    variables: Mapping[str, object],
    options: Sequence[str] = (),
    witness: Path | None = None,
) -> None:
    """Train under ``python -m align_hooks.ms_side`` with ``ALIGN_HOOKS_*`` variables; raises Failed with what it said last."""
    where.mkdir(parents=True)
    command = [python, "-m", "align_hooks.ms_side", *script, "--config", configuration(where, witness=witness is not None), *options]
    seen = {"WITNESS": str(witness)} if witness else {}
    path = {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    run(command, where, clean() | variables_of(variables) | rendezvous() | path | seen)


def configuration(where: Path, *, witness: bool) -> Path:
    """``llama.yaml`` for a few steps, with the witness among its callbacks where one is asked for."""
    config = yaml.safe_load((LAUNCH / "llama.yaml").read_text())
    config["lr_schedule"]["total_steps"] = STEPS
    config["callbacks"] += [{"type": "Witness"}] if witness else []
    (where / "llama.yaml").write_text(yaml.safe_dump(config))
    return where / "llama.yaml"


def variables_of(variables: Mapping[str, object]) -> dict[str, str]:
    """``ALIGN_HOOKS_*`` variables, those of every run among them."""
    return {f"ALIGN_HOOKS_{name}": str(value) for name, value in (SWITCHES | dict(variables)).items()}


def rendezvous() -> dict[str, str]:
    """A free port of the loopback interface, as the frameworks are told of it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}


def run(command: Sequence[Any], where: Path, environment: Mapping[str, str]) -> None:
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
    ours = {"PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return foreign | ours


def last_line(output: str) -> str:
    """The line that says what went wrong: of ours, of an exception, or simply the last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith("align_hooks:") or "Error: " in line]
    return (telling or lines or ["nothing was printed"])[-1]


def row(result: dict[str, Any]) -> str:
    """One result as a row of Markdown."""
    worst = f"{max(result['worst'].values()):.1e}" if result["worst"] else ""
    beside = f"Python {result['python']}, mindspore {result['packages'].get('mindspore')}"
    pair = result["command"].split()[-1].replace(":", " on ")
    cells = (f"run_mindformer.py {pair}", beside, ", ".join(result["proven"]), result["verdict"] or "", worst, result["gap"] or "")
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Prove the pairs named on the command line, all without any."""
    names = {f"{script}:{installed}": (script, installed) for script, installed in PAIRS}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pairs", nargs="*", metavar="PAIR", default=list(names), help=f"of {', '.join(names)}; all if left out")
    parser.add_argument("--repository", default=os.environ.get("MINDFORMERS_REPOSITORY", REPOSITORY), help="a path or a URL")
    options = parser.parse_args()
    if unknown := [name for name in options.pairs if name not in names]:
        parser.error(f"no row for {', '.join(unknown)}; there are {', '.join(names)}")
    reference = make_reference()
    surprises = 0
    for name in options.pairs:
        result, expected = prove(names[name], options.repository, reference), PAIRS[names[name]]
        surprises += (result["gap"] is not None) if expected is None else (expected not in (result["gap"] or ""))
        (RESULTS / f"mindformers-{name.replace(':', '-on-')}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(row(result), flush=True)
    return int(surprises > 0)


if __name__ == "__main__":
    sys.exit(main())
