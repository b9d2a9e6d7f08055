"""Training runs of the real frameworks, each in a process of its own, on the model of ``launch/llama.args`` and ``llama.yaml``, or on one
of ``launch/families``.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import yaml
from filelock import FileLock

import align_hooks
from align_hooks import Run
from align_hooks.comparison.finding import Value
from align_hooks.comparison.stage_result import StageResult
from align_hooks.comparison.verdict import ComparisonResult, Verdict
from align_hooks.names.blocks import Array
from align_hooks.record.read.sums import sketches_of
from real import kept as keeping
from real.kept import Kept, Said
from synthetic import relative_error

LAUNCH = Path(__file__).parents[2] / "launch"
SCRIPTS = Path(__file__).parent / "scripts"
KINDS = ("BATCHES", "LOCAL_NORMS", "GRADIENTS", "WEIGHTS", "SKETCHES", "OPTIMIZER_STATE", "ACTIVATIONS")
EVERYTHING = {**dict.fromkeys(KINDS, "all"), "ACTIVATIONS_TENSORS": "model.embed_tokens,model.layers.*[0-9]"}
"""What every run records that everything is asked of: of activations whole what the embedding and each block put out."""
REHEARSAL: dict[str, object] = {"DEVICE": "cpu", "SEED": "42"}
FOREIGN = ("ALIGN_HOOKS_", "_ALIGN_HOOKS_", "MASTER_", "RANK", "WORLD_SIZE")
"""What no program of a test inherits. MASTER_ADDR and MASTER_PORT are for torchrun to set, or for a rehearsal to do without."""
LLAMA = "llama"
"""The model that is trained unless a test names another family."""
EMERGING_OPTIMIZERS = os.environ.get("EMERGING_OPTIMIZERS")
"""A checkout of Emerging-Optimizers, whose Muon Megatron builds: it has no release on the package index."""
NO_EMERGING_OPTIMIZERS = "EMERGING_OPTIMIZERS names no checkout of Emerging-Optimizers (v0.2.0)"
MEGATRON_BRIDGE = os.environ.get("MEGATRON_BRIDGE")
"""A folder with Megatron-Bridge (0.6.2) and what it imports beside the environment's packages, which it does not move."""
NO_MEGATRON_BRIDGE = "MEGATRON_BRIDGE names no folder with Megatron-Bridge (0.6.2) and its packages"
STEPS = 3
TIMEOUT = 900
"""Seconds after which a program of a test is taken for hung."""

Launcher: TypeAlias = Sequence[str] | Callable[[], Sequence[str]]
Train: TypeAlias = Callable[..., "Ended"]


@dataclass(frozen=True)
class Ended(Said):
    """How a process ended: exit code and everything it printed."""

    code: int
    output: str

    def succeeded(self) -> Ended:
        assert self.code == 0, f"exit code {self.code}\n{self.output[-4000:]}"
        return self


def megatron(
    where: Path,
    *,
    family: str = LLAMA,
    script: Path = LAUNCH / "pretrain_gpt.py",
    change: Mapping[str, str | None] | None = None,
    flags: Sequence[str] = (),
    launcher: Launcher = ("-m", "align_hooks.torch_side"),
    ranks: int | None = None,
    environment: Mapping[str, str] | None = None,
    **variables: object,
) -> Ended:
    """Train a few steps with Megatron under ``python -m align_hooks.torch_side``, or another launcher, on ``ranks`` by torchrun.

    ``change`` replaces arguments of the ``family`` by flag, None drops one; ``flags`` are added; ``variables`` are
    ``ALIGN_HOOKS_*`` without the prefix.
    """
    command = [*started_by(launcher), str(script), *arguments(where, change or {}, family), *flags]
    if ranks is not None:
        command = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", str(free_port()), *command]
    own = {"CUDA_DEVICE_MAX_CONNECTIONS": "1", **({"PYTHONPATH": str(EMERGING_OPTIMIZERS)} if is_emerging(change or {}) else {})}
    return python(where, command, REHEARSAL | variables, {**own, **(environment or {})})


def is_emerging(change: Mapping[str, str | None]) -> bool:
    """Whether arguments ask for an optimizer of Emerging-Optimizers."""
    return change.get("--optimizer", "adam") not in ("adam", "sgd")


def arguments(where: Path, change: Mapping[str, str | None], family: str = LLAMA) -> list[str]:
    """The arguments of a family for a few steps; ``change`` replaces arguments by flag, None drops one."""
    lines = dict(line.partition(" ")[::2] for line in launched(family, "args").read_text().splitlines())
    lines |= {"--train-iters": str(STEPS), "--data-path": str(corpus()), "--data-cache-path": str(where / "cache")}
    return [word for flag, value in {**lines, **change}.items() if value is not None for word in (flag, *value.split())]


def launched(family: str, ending: str) -> Path:
    """A family's file of ``launch``: ``args`` of Megatron, or ``yaml`` of MindFormers."""
    return (LAUNCH if family == LLAMA else LAUNCH / "families") / f"{family}.{ending}"


def mindformers(
    where: Path,
    *,
    family: str = LLAMA,
    script: Path = LAUNCH / "run_mindformer.py",
    change: Mapping[str, object] | None = None,
    flags: Sequence[str] = (),
    launcher: Launcher = ("-m", "align_hooks.ms_side"),
    environment: Mapping[str, str] | None = None,
    **variables: object,
) -> Ended:
    """Train with MindFormers by our launcher; ``change`` sets keys of the ``family``'s YAML, ``flags`` are added."""
    config = changed(launched(family, "yaml"), {"lr_schedule.total_steps": STEPS, **(change or {})}, where)
    command = [*started_by(launcher), str(script), "--config", str(config), *flags]
    return python(where, command, REHEARSAL | variables, environment or {})


def pynative(
    where: Path,
    *,
    family: str = "qwen3",
    version: str = "2.1.0",
    mindspore: str = "",
    script: Path = LAUNCH / "run_mindformer.py",
    change: Mapping[str, object] | None = None,
    launcher: Launcher = ("-m", "align_hooks.ms_side"),
    environment: Mapping[str, str] | None = None,
    **variables: object,
) -> Ended:
    """Train with the PyNative trainer of a version of MindFormers, on the environment's MindSpore unless another is named.

    ``change`` sets keys of the ``family``'s YAML."""
    config = changed(launched(f"pynative/{family}", "yaml"), {"training.steps": STEPS, **(change or {})}, where)
    command = [*started_by(launcher), str(script), "--config", str(config), "--mode", "1"]
    wheels = [wheel("mindformers", version), *([wheel("mindspore", mindspore)] if mindspore else [])]
    return python(where, command, REHEARSAL | variables, {"PYTHONPATH": os.pathsep.join(map(str, wheels)), **(environment or {})})


def changed(file: Path, change: Mapping[str, object], where: Path) -> Path:
    """A copy of a YAML in a folder, with some keys set; None takes a section out."""
    config = yaml.safe_load(file.read_text())
    for key, value in change.items():
        *path, name = key.split(".")
        section = config
        for part in path:
            section = section.setdefault(part, {})
        section[name] = value
    where.mkdir(parents=True, exist_ok=True)
    (where / file.name).write_text(yaml.safe_dump({name: section for name, section in config.items() if section is not None}))
    return where / file.name


def wheel(package: str, version: str) -> Path:
    """A folder with a version of a package that stands beside the one of the environment, made once of the package index."""
    folder = Path(__file__).parents[2] / "build" / f"{package}-{version}"
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / package).is_dir():
            options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade", "--target", str(folder))
            subprocess.run([sys.executable, "-m", "pip", "install", *options, f"{package}=={version}"], check=True)
    return folder


def started_by(launcher: Launcher) -> Sequence[str]:
    """The words of a launcher, which is asked for them where they hold a free port."""
    return launcher() if callable(launcher) else launcher


def msrun() -> tuple[str, ...]:
    """Two workers of msrun, each attached to: a launcher for :func:`mindformers`."""
    options = ("--worker_num=2", "--local_worker_num=2", f"--master_port={free_port()}", "--log_dir=logs", "--join=True")
    return ("-m", "align_hooks", "run", "--", "msrun", *options)


def python(where: Path, command: Sequence[str], variables: Mapping[str, object], environment: Mapping[str, str]) -> Ended:
    """Run python; see :func:`program`."""
    return program(where, [sys.executable, *command], variables, environment)


def program(where: Path, command: Sequence[str], variables: Mapping[str, object], environment: Mapping[str, str]) -> Ended:
    """Run a program in an environment that holds nothing of ours but ``variables``; None leaves a variable out."""
    where.mkdir(parents=True, exist_ok=True)
    clean = clean_environment(variables, environment)
    done = subprocess.run(command, env=clean, cwd=where, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    return Ended(done.returncode, done.stdout + done.stderr)


def clean_environment(variables: Mapping[str, object], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program: nothing of ours but ``variables``, and what ``environment`` adds."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    clean |= {f"ALIGN_HOOKS_{name}": str(value) for name, value in variables.items() if value is not None}
    clean |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    clean["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{clean['PATH']}"
    return {**clean, **environment}


def kept(train: Train, code: int | Collection[int] = 0, **given: object) -> Kept:
    """Train, or take what is kept of the same training, which is only to be read. Files of its own are named relative to its folder."""

    def made(where: Path) -> tuple[int, str]:
        done = train(where, **given)
        return done.code, done.output

    return keeping.kept(places["runs"], made, {"train": train.__name__, **given}, [code] if isinstance(code, int) else code)


def recorded(train: Train, **given: object) -> Path:
    """Return the record of a training that is kept, with everything recorded."""
    return kept(train, **{"RUN": "run", **EVERYTHING, **given}).run


def derived(make: Callable[..., object], *given: object) -> Path:
    """Return what ``make`` writes at a path from what is ``given``, kept like a training as long as its module reads as it does."""

    def made(where: Path) -> tuple[int, str]:
        where.mkdir(parents=True)
        make(where / "made", *given)
        return 0, ""

    module = inspect.getsource(sys.modules[make.__module__])
    return keeping.kept(places["runs"], made, {"make": make, "module": module, "given": given}).where / "made"


def answered(
    script: str,
    asked: object = None,
    code: int = 0,
    *,
    launcher: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    **variables: object,
) -> Any:
    """Return what a script of ``scripts`` answers to what it is ``asked``, in a process of its own that ends with ``code``: kept as
    trainings are. The others are those of :func:`megatron`."""

    def made(where: Path) -> tuple[int, str]:
        where.mkdir(parents=True)
        files = (where / "asked.json", where / "answers.json")
        files[0].write_text(json.dumps(asked))
        own = {"CUDA_DEVICE_MAX_CONNECTIONS": "1", **(environment or {})}
        done = python(where, [*launcher, str(SCRIPTS / script), *map(str, files)], variables, own)
        return done.code, done.output

    where = keeping.kept(places["runs"], made, {"script": script, "asked": asked}, [code]).where
    return json.loads((where / "answers.json").read_text())


def fed_by(run: object) -> dict[str, object]:
    """The variables of a run that starts from another's weights, on its batches."""
    return {"REPLAY_BATCHES": run, "LOAD_WEIGHTS": run}


def aligned(*runs: object) -> Ended:
    """What ``compare`` says of runs that must be aligned."""
    done = compare(*runs)
    assert done.code == 0, done.output
    return done


def diverged(reference: Path, candidate: Path) -> ComparisonResult:
    """What was found in runs that must not be: as data, so that no test hangs on a word."""
    judged = align_hooks.compare(reference, candidate)
    assert judged.verdict is Verdict.DIVERGED, judged
    return judged


def stage(judged: ComparisonResult, name: str) -> StageResult:
    """How the stage of a name came out."""
    return next(result for result in judged.stages if result.name == name)


def first(judged: ComparisonResult) -> StageResult:
    """The stage that decided."""
    assert judged.first is not None
    return judged.first


def differing(judged: ComparisonResult) -> dict[str, tuple[Value, Value]]:
    """The settings that differ, each with both values as they are read."""
    return {finding.name: (finding.reference, finding.candidate) for finding in judged.settings}


def compare(*arguments: object) -> Ended:
    """``align-hooks compare …`` on a terminal so wide that nothing is cut."""
    line = [sys.executable, "-m", "align_hooks", "compare", *map(str, arguments)]
    wide = os.environ | {"COLUMNS": "1000"}
    done = subprocess.run(line, env=wide, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    return Ended(done.returncode, done.stdout + done.stderr)


class Made(dict[str, Run]):
    """Runs by their name, each made when it is first asked for."""

    def __init__(self, make: Callable[[str], Run]) -> None:
        self.make = make

    def __missing__(self, name: str) -> Run:
        self[name] = self.make(name)
        return self[name]


def one_rank() -> dict[str, str]:
    """What torchrun sets for one rank on a device, without the seconds that it takes. A rehearsal does without."""
    return {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}


def free_port() -> int:
    """A port that nobody listens on, below those that systems give out by themselves, so that none is lost before it is used."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.SystemRandom().randrange(20000, 30000)))
            return int(probe.getsockname()[1])


places: dict[str, Path] = {}
"""Where runs are kept, and the prefix of the corpus: what the ``real_corpus`` fixture has found."""


def corpus() -> Path:
    """Prefix of a Megatron data set from a real text."""
    return places["corpus"]


def furthest(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> float:
    """The largest relative error of tensors that must have the same names; NaN where any holds NaN."""
    assert set(ours) == set(theirs)
    return float(np.max([relative_error(ours[name], theirs[name]) for name in ours]))


def loss_errors(reference: Run, candidate: Run, *, strict: bool = True) -> list[float]:
    """The relative error of each loss, of the steps that both have, which are all unless ``strict`` is off."""
    rows = zip(reference.scalars(), candidate.scalars(), strict=strict)
    return [abs(theirs["loss"] - ours["loss"]) / ours["loss"] for ours, theirs in rows]


def sketch_errors(run: Run, kinds: Sequence[str] = ("gradients", "weights")) -> Iterator[float]:
    """How far the signed sums of each recorded sketch are from those of the recorded tensor, relative to its norm, which is within 3e-7."""
    for kind in kinds:
        for step in run.steps:
            stored, computed = run.sketches(kind, step), sketches_of(getattr(run, kind)(step))
            assert stored.keys() == computed.keys()
            for name, sums in computed.items():
                np.testing.assert_allclose(stored[name][0] ** 0.5, sums[0] ** 0.5, rtol=3e-7)
                yield float(abs(stored[name] - sums)[1:].max() / (sums[0] ** 0.5 or 1.0))
