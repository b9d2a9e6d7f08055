"""One command a row: an unmodified ``run_mindformer.py`` of any tried tag, on any tried MindFormers, fed by Megatron and judged.

``python tests/matrix/mindformers.py PAIR… [--repository PATH_OR_URL]``, a pair being SCRIPT:INSTALLED, trains the tag's own
script on the CPU three times on the weights and batches of a run of ``launch/pretrain_gpt.py`` (a witness with recording
off, the witness with everything recorded, and the script itself against options of its own that contradict the replay),
compares, prints a Markdown row and writes ``results/mindformers-SCRIPT-on-INSTALLED.json``. Run it with the project's own
Python, which has Megatron and the newest MindFormers; each other MindFormers gets a virtual environment in ``build/matrix``.
A gap is a pair whose script cannot start there without us either: that is what is tried then. Exit code 0 where every pair
is as ``pairs.py`` says.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from checkout import Failed, clone, digests, git
from interpreter import environment, versions
from pairs import INSTALLED, PAIRS, SCRIPTS, Installed
from proof import conclude, is_bitwise, is_whole, judge, overridden, prove_rows, unproven
from table import Result
from training import BUILD, EVERYTHING, LAUNCH, STEPS, TIMEOUT, WITNESSES, clean, hooked, run

from align_hooks import open_run

WHERE = BUILD / "mindformers"
WITNESS = WITNESSES / "witness_run_mindformer.py"
CELLS_WITH_CAST = WITNESSES / "cells_with_cast.py"
REPOSITORY = "https://github.com/mindspore-lab/mindformers"
NUMBERS = ("mindspore", "mindformers", "numpy", "transformers", "wrapt", "safetensors")
"""Packages whose versions the numbers may depend on."""

CONTRADICTING = ("--seed", "7", "--epochs", "3", "--batch_size", "2", "--device_target", "Ascend", "--sink_mode", "True")
"""Options that the script writes into the configuration itself: what our variables set has to reach the trainer all the same."""


# ---- one pair


def prove(name: str, repository: str, reference: Path) -> Result:
    """The result of one pair; what did not work out is its gap."""
    script, _, installed = name.partition(":")
    result = unproven("mindformers", installed.partition("@")[0], INSTALLED[installed].python, name)
    try:
        where = WHERE / f"{script}-on-{installed}"
        checkout = clone(repository, SCRIPTS[script], where / "checkout")
        python = interpreter_of(INSTALLED[installed], result)
        result["packages"]["run_mindformer.py"] = git(checkout, "rev-parse", "HEAD")
        path = checkout / "run_mindformer.py" if INSTALLED[installed].checkout else alone(checkout, where / "script")
        if PAIRS[name] is None:
            train_and_judge(python, path, checkout, reference, result, [CELLS_WITH_CAST] if INSTALLED[installed].cast else [])
        else:
            result["gap"] = why_it_does_not_start(python, path, where)
    except Failed as reason:
        result["gap"] = str(reason)
    return result


def interpreter_of(installed: Installed, result: Result) -> Path:
    """The interpreter that has this MindFormers, its packages listed in ``result``; raises Failed where it has others."""
    home = WHERE / "environments" / f"mindformers-{installed.mindformers}-{installed.python}{'-newer' * installed.newer}"
    python = environment(installed.python, installed.packages, home, installed.over)
    result["packages"] = versions(python, NUMBERS)
    for name in ("mindspore", "mindformers"):
        if (version := result["packages"].get(name)) != (wanted := getattr(installed, name)):
            raise Failed(f"{name} {version} is installed where this row needs {wanted}")
    return python


def alone(checkout: Path, where: Path) -> Path:
    """A copy of the script with nothing beside it: Python would import the checkout's MindFormers before the installed one."""
    where.mkdir(parents=True)
    return Path(shutil.copy(checkout / "run_mindformer.py", where))


def train_and_judge(python: Path, script: Path, checkout: Path, reference: Path, result: Result, under: Sequence[Path]) -> None:
    """Fill ``result`` as far as things go; raises Failed at the first that does not. ``under`` is a script that runs the others."""
    where, before = checkout.parent, digests(checkout)
    fed: dict[str, object] = {"REPLAY_BATCHES": reference, "LOAD_WEIGHTS": reference}
    for name, variables in (("plain", {}), ("recorded", EVERYTHING | {"RUN": where / "recorded" / "run"})):
        train(python, where / name, [*under, WITNESS, script], fed | variables, witness=where / name / "witness.npz")
    train(python, where / "candidate", [*under, script], fed | EVERYTHING | {"RUN": where / "candidate" / "run"}, CONTRADICTING)
    recorded, candidate = open_run(where / "recorded" / "run"), open_run(where / "candidate" / "run")
    result["packages"] |= candidate.facts.versions
    if (trained := candidate.facts.versions["mindformers"]) != result["version"]:
        raise Failed(f"MindFormers {trained} trained")
    judged = judge(reference, where / "candidate" / "run")
    result |= {"verdict": judged["verdict"], "worst": judged["worst"]}
    proofs = {
        "record": is_whole(recorded) and is_whole(candidate),
        "load": "weights" in overridden(candidate) and judged["stages"]["initial weights"] == "same",
        "replay": "train_dataset.data_loader" in overridden(candidate) and judged["stages"]["batches"] == "same",
        "bitwise": is_bitwise(where / "plain" / "witness.npz", where / "recorded" / "witness.npz", losses=STEPS),
        "unedited": digests(checkout) == before and script.read_bytes() == (checkout / "run_mindformer.py").read_bytes(),
    }
    conclude(result, judged, proofs)


def why_it_does_not_start(python: Path, script: Path, where: Path) -> str:
    """The error of the script without any of ours, and the line of the script that it comes from."""
    without = {name: value for name, value in clean().items() if name != "PYTHONPATH"}
    command = [str(python), str(script), "--config", str(configuration(where, witness=False))]
    done = subprocess.run(command, cwd=where, env=without, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    frame = next((line for line in lines if line.startswith(f'File "{script}"')), "")
    if done.returncode == 0 or not frame:
        raise Failed("the script starts now: take its gap out of PAIRS")
    error = lines[-1].partition(" (/")[0]  # the path of the module says nothing
    return f"the script itself ends with {error} (its line {frame.partition('line ')[2].partition(',')[0]})"


# ---- training


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
    path = {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    seen = {"WITNESS": str(witness)} if witness else {}
    run(command, where, hooked(variables) | path | seen)


def configuration(where: Path, *, witness: bool) -> Path:
    """``llama.yaml`` for a few steps, with the witness among its callbacks where one is asked for."""
    config = yaml.safe_load((LAUNCH / "llama.yaml").read_text())
    config["lr_schedule"]["total_steps"] = STEPS
    config["micro_batch_interleave_num"] = config["runner_config"]["gradient_accumulation_steps"] = 1  # 1.3 fails on a YAML without them
    config["callbacks"] += [{"type": "Witness"}] if witness else []
    (where / "llama.yaml").write_text(yaml.safe_dump(config))
    return where / "llama.yaml"


if __name__ == "__main__":
    source = os.environ.get("MINDFORMERS_REPOSITORY", REPOSITORY)
    sys.exit(prove_rows(__doc__ or "", PAIRS, source, prove, WHERE / "reference"))
