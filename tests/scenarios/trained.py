"""Trainings that need no framework, for the commands that train."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from align_hooks.cli import app
from align_hooks.scenarios import recheck
from align_hooks.scenarios import trial as trials
from invoked import Result, invoke

TESTS = Path(__file__).parents[1]
TRAINS = """
import os, sys, time
sys.path.insert(0, {tests!r})
from dataclasses import replace
from pathlib import Path
from align_hooks.settings import Settings
from synthetic import Synthetic, row, tensors, batch
what, asked = sys.argv[1:], Settings.from_environment(os.environ)
run = Path(os.environ["ALIGN_HOOKS_RUN"])
with open({log!r}, "a") as log:
    print(run.name, file=log)
if "fails" in what or ("fails_alone" in what and not asked.replay_batches):
    print("align_hooks: its training failed: no card")
    print("align_hooks: the command itself ended with exit code 7")
    sys.exit(7)
if "asks" in what:
    input("continue? ")
if "hangs" in what:
    time.sleep(600)
first = 4 if "resumed" in what else 0
if first and "ALIGN_HOOKS_WEIGHTS" in os.environ and 0 in asked.weights:
    record = {{"rows": [row(first)], "batches": {{}}, "weights": {{}}, "gradients": {{}}, "norms": {{}}}}
    Synthetic(settings={{}}, **record).write(run)
    sys.exit(3)
kinds = ("batches", "local_norms", "gradients", "weights", "sketches", "optimizer_state")
record = {{
    "settings": {{name: os.environ["ALIGN_HOOKS_" + name.upper()] for name in kinds if "ALIGN_HOOKS_" + name.upper() in os.environ}},
    "rows": [row(step) for step in range(3)],
    "batches": {{step: batch(step) for step in range(3)}},
    "weights": {{0: tensors(100)}},
    "gradients": {{step: tensors(200 + step) for step in range(3)}},
    "side": "ms" if "mindformers" in what else "torch",
}}
given = dict(word.split("=", 1) for word in what if "=" in word)
framework = "MindFormers" if "mindformers" in what else "Megatron-LM"
record["facts"] = {{"framework": framework, "command": " ".join([sys.executable, __file__, *what]), "directory": os.getcwd(), **given}}
for name in ("replay_batches", "load_weights"):
    if getattr(asked, name):
        record["settings"][name] = str(getattr(asked, name))
if not asked.replay_batches and "other_data" in what:
    record["batches"] = {{step: batch(step + 50) for step in range(3)}}
if not asked.load_weights and "other_weights" in what:
    record["weights"] = {{0: tensors(101)}}
if "wrong" in what or ("unsteady" in what and "_again" in run.name):
    for each in record["rows"]:
        each["loss"] += 0.5
made = Synthetic(**record)
for name in ("weights", "gradients", "batches", "norms", "moments"):
    setattr(made, name, {{first + number: value for number, value in getattr(made, name).items()}})
for each in made.rows:
    each["step"] += first
made.write(run)
"""
"""A training that needs no framework: it leaves the record that it is asked for, and a line in a file."""


class Trained:
    """Commands in a folder, what is solved of them, and which trainings were started."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "trained"
        (folder / "trains.py").write_text(TRAINS.format(tests=str(TESTS), log=str(self.log)))

    def command(self, *what: str) -> str:
        """The shell command of a training that does this."""
        return " ".join((sys.executable, str(self.folder / "trains.py"), *what))

    def solve(self, reference: str = "", candidate: str = "", *options: str) -> tuple[Result, dict[str, object]]:
        """What ``align-hooks solve`` prints and writes for what the two sides do."""
        said = self.folder / "said.json"
        words = ["solve", self.command(*reference.split()), self.command(*candidate.split())]
        done = invoke(app, [*words, "--folder", str(self.folder / "runs"), "--json", str(said), *options], {"COLUMNS": "200"})
        return done, json.loads(said.read_text()) if said.exists() else {}

    @property
    def made(self) -> list[str]:
        """The runs that were trained, in their order."""
        return self.log.read_text().split() if self.log.exists() else []


@contextlib.contextmanager
def unhooked() -> Iterator[None]:
    """Commands that train start them without hooks, which attach to frameworks alone."""
    shell = trials.ran
    with contextlib.ExitStack() as changed:
        for module in (trials, recheck):
            plain = mock.patch.object(module, "ran", lambda line, *given: shell(line.replace("align-hooks run -- ", "env -C . "), *given))
            changed.enter_context(plain)
        yield
