"""Installing this project beside a framework moves nothing that is there, and training is recorded with it: proven, not promised.

``python tests/install/check.py [NAME…]`` makes each environment of :data:`ENVIRONMENTS` in ``build/install`` (once), installs this
project into a copy of it as the README says, plain and then with the extra ``html``, trains a few steps with recording on after
either, prints a Markdown row and writes ``results/NAME.json``. Run it with the project's own Python. Exit code 1 where a package
was moved, where ``pip check`` has a new complaint, or where nothing was recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "matrix"))

from checkout import Failed, last_line
from environments import ENVIRONMENTS, EXTRAS, HEAD, RESULTS, Packages, is_proven, line, row
from interpreter import environment
from mindformers import configuration
from reference import arguments_of
from training import EVERYTHING, LAUNCH, ROOT, STEPS, clean, ended, hooked

from align_hooks import open_run
from align_hooks.errors import AlignHooksError
from synthetic import by_hand

BUILD = ROOT / "build" / "install"
OURS = "align-hooks"


# ---- one environment


def prove(name: str) -> dict[str, Any]:
    """The result of one environment; what did not work out is its ``gap``."""
    wanted = ENVIRONMENTS[name]
    result: dict[str, Any] = {"name": name, "python": wanted.python, "packages": list(wanted.packages), "gap": None}
    try:
        home = BUILD / name
        before = environment(wanted.python, wanted.packages, home / "before")
        result["before"] = installed(before)
        complaints = complaints_of(before)
        python = copied(before, home / "after")
        for kind, extra in EXTRAS.items():
            answer = pip(python, "install", "--quiet", f"{ROOT}{extra}")
            if answer.returncode:
                raise Failed(f"pip install .{extra} failed: {last_line(answer.stderr)}")
            result[kind] = moved(result["before"], installed(python))
            result[kind]["complaints"] = sorted(complaints_of(python) - complaints)
            result[kind] |= recorded(wanted.side, python, home / kind)
        page = ("show", str(home / "html" / "run"), "--html", str(home / "page.html"))
        if (made := module(python, "align_hooks", *page)).returncode:
            raise Failed(f"no page of the recording: {last_line(made.stderr)}")
    except Failed as reason:
        result["gap"] = str(reason)
    return result


def copied(python: Path, home: Path) -> Path:
    """The interpreter of a copy of an environment, which shares its files by hard links: pip replaces files and writes into none."""
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(python.parents[1], home, symlinks=True, copy_function=os.link)
    return home / "bin" / "python"


def pip(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What pip answers."""
    return module(python, "pip", "--disable-pip-version-check", *arguments)


def module(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What a module of an environment prints and ends with."""
    return subprocess.run([str(python), "-m", *arguments], cwd=BUILD, env=alone(clean()), capture_output=True, text=True, check=False)


def alone(variables: Mapping[str, str]) -> dict[str, str]:
    """An environment in which the installed align_hooks is found, and not this checkout's source."""
    return dict(variables) | {"PYTHONPATH": ""}


def installed(python: Path) -> Packages:
    """Every package of an environment, with what each asks for without its extras."""
    found: Packages = {}
    for package in (package["metadata"] for package in json.loads(pip(python, "inspect").stdout)["installed"]):
        always = [asked for asked in package.get("requires_dist", ()) if "extra ==" not in asked]
        found[package["name"]] = {"version": package["version"], "requires": always}
    return dict(sorted(found.items()))


def complaints_of(python: Path) -> set[str]:
    """What ``pip check`` finds broken."""
    answer = pip(python, "check")
    return set(answer.stdout.splitlines()) if answer.returncode else set()


def moved(before: Packages, after: Packages) -> dict[str, Any]:
    """What was added, by version, and what was there and no longer is as it was."""
    changed = {name: [facts["version"], after.get(name, {}).get("version")] for name, facts in before.items()}
    return {
        "added": {name: facts["version"] for name, facts in after.items() if name not in before and name != OURS},
        "moved": {name: versions for name, versions in changed.items() if versions[0] != versions[1]},
    }


# ---- a recording


def recorded(side: str, python: Path, where: Path) -> dict[str, Any]:
    """How a training with everything recorded ended, and how many whole steps its record has."""
    shutil.rmtree(where, ignore_errors=True)
    train = {"torch": megatron, "ms": mindformers}[side]
    code = train(python, where)
    try:
        run = open_run(where / "run")
        steps = 0 if run.problems else len(run.steps)
    except AlignHooksError:
        steps = 0
    return {"exit_code": code, "steps": steps, "said": last_line((where / "log").read_text()) if code else ""}


def megatron(python: Path, where: Path) -> int:
    """Train ``launch/pretrain_gpt.py`` with ``launch/llama.args``."""
    if code := ended([python, LAUNCH / "corpus.py", where / "corpus"], where, alone(clean())):
        return code
    arguments = arguments_of({"--data-path": str(where / "corpus"), "--data-cache-path": str(where / "cache")})
    command = [python, "-m", "align_hooks.torch_side", LAUNCH / "pretrain_gpt.py", *arguments]
    return ended(command, where, alone(hooked(EVERYTHING | {"RUN": where / "run"})))


def mindformers(python: Path, where: Path) -> int:
    """Train ``launch/run_mindformer.py`` with ``launch/llama.yaml`` on batches that were saved by hand."""
    where.mkdir(parents=True)
    batches = by_hand(where / "batches", range(STEPS), rows=4, sequence=128, vocabulary=255)
    fed = {"REPLAY_BATCHES": batches, "RUN": where / "run"}
    command = [python, "-m", "align_hooks.ms_side", LAUNCH / "run_mindformer.py", "--config", configuration(where, witness=False)]
    return ended(command, where, alone(hooked(EVERYTHING | fed)))


def main() -> int:
    """Prove the environments named on the command line, all without any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    known = ", ".join(ENVIRONMENTS)
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(ENVIRONMENTS), help=f"of {known}; all if left out")
    names = parser.parse_args().names
    if unknown := [name for name in names if name not in ENVIRONMENTS]:
        parser.error(f"no environment {', '.join(unknown)}; there are {known}")
    BUILD.mkdir(parents=True, exist_ok=True)
    RESULTS.mkdir(exist_ok=True)
    print(line(HEAD), line(["---"] * len(HEAD)), sep="\n", flush=True)
    proven = []
    for name in names:
        result = prove(name)
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(row(result), flush=True)
        proven.append(is_proven(result))
    return int(not all(proven))


if __name__ == "__main__":
    sys.exit(main())
