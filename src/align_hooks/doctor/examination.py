"""The examination of a machine: whether a run would start here, and the problems that would stop it."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from msgspec import Struct

from align_hooks._version import __version__
from align_hooks.checklist.family_match import elsewhere
from align_hooks.checklist.lookup import known
from align_hooks.configuration.source import names, read
from align_hooks.configuration.values import FRAMEWORKS, Configuration
from align_hooks.doctor.files import imported_side, missing, resumes, unlocated
from align_hooks.doctor.fit import own_names, refused, too_few
from align_hooks.doctor.frameworks import Framework, inspect
from align_hooks.doctor.size import Size, disk, existing, memory, of_configuration, of_run, unknown
from align_hooks.errors import AlignHooksError, RefusedRun, SettingsError, shown
from align_hooks.job.entry import AT_START, side_environment
from align_hooks.messages import rendered
from align_hooks.process.archive import is_archive
from align_hooks.process.ranks import Launch
from align_hooks.proof.kept import last
from align_hooks.record.reader import open_run
from align_hooks.record.write.earlier_record import earlier, holds_a_run
from align_hooks.replay.batches import Replay
from align_hooks.replay.gradients import Injection
from align_hooks.replay.routing import RoutingReplay
from align_hooks.replay.teacher import Teacher
from align_hooks.replay.weights import open_weights
from align_hooks.settings import PREFIX, Settings, Source


class Variable(Struct, frozen=True):
    """A variable that is set."""

    name: str
    value: str
    found: str = ""
    """What the run or file that the variable names holds."""
    problem: str = ""
    """Why a run would be refused; empty where it would not."""


def examined(settings: Settings) -> Iterator[Variable]:
    """Yield every variable that does not have its default, in the order of the settings."""
    for field in fields(Settings):
        value = getattr(settings, field.name)
        if value == field.default:
            continue
        name, text = PREFIX + field.name.upper(), str(settings.as_text()[field.name])
        try:
            yield Variable(name, text, EXAMINERS[field.name](value, settings) if field.name in EXAMINERS else "")
        except RefusedRun as error:  # a refusal at a run's start, which names the variable
            yield Variable(name, text, problem=str(error))
        except (AlignHooksError, OSError) as error:
            yield Variable(name, text, problem=f"{name}: {error}")


def directory(run: Path, settings: Settings) -> str:
    """Return a description of the run's directory; raises AlignHooksError where the run could not claim it."""
    base = existing(run)
    if not base.is_dir() or not os.access(base, os.W_OK | os.X_OK):
        raise RefusedRun(f"{PREFIX}RUN={run} cannot be written: {base} is not yours to write; choose another directory")
    earlier(run, Launch(), settings.run_exists)  # raises what a run's start would raise
    if not holds_a_run(run):
        return "a new run"
    return "holds a run, which will be replaced" if settings.run_exists == "replace" else "holds a run, which will be continued"


def replay(source: Source, settings: Settings) -> str:
    """Return the steps whose batches can be replayed, in words."""
    batches = Replay(source)
    if batches.run.missing is not None:
        raise AlignHooksError(f"{source}: {rendered(batches.run.missing.message)}; copy or record every rank")
    first = min(batches.run.batch_steps(), default=0)
    return f"batches of steps {max(first, 0)} to {batches.last}"


def of_steps(what: str, steps: Sequence[int]) -> str:
    """Return the recorded steps of a quantity, in words."""
    return f"{what} of {len(steps)} steps, {steps[0]} to {steps[-1]}"


EXAMINERS: Mapping[str, Callable[[Any, Settings], str]] = {
    "run": directory,
    "replay_batches": replay,
    "load_weights": lambda source, settings: f"{len(open_weights(source))} tensors",
    "inject_gradients": lambda source, settings: of_steps("gradients", Injection(source).recorded),
    "replay_routing": lambda source, settings: of_steps("experts", RoutingReplay(source).recorded),
    "teacher": lambda source, settings: of_steps("points", Teacher(source, patterns=settings.teacher_points.parts).recorded),
}
"""Field of the settings that names a run or a file to the function that describes this; its first argument is the field's value."""


DRIVERS = {
    "NVIDIA driver": ("/proc/driver/nvidia/version", r"Kernel Module.*?\s(?P<version>\d+\.[\d.]+)"),
    "Ascend driver": ("/usr/local/Ascend/driver/version.info", r"(?m)^Version=(?P<version>\S+)"),
    "CANN": ("/usr/local/Ascend/ascend-toolkit/latest/version.cfg", r"\[(?P<version>\d[^\]:]*)"),
}
"""Driver to the file that it leaves and to what states its version there. None was tried on a machine with a device."""
EXTRAS = {"html": ("jinja2", "markupsafe", "vl_convert"), "tokenizer": ("tokenizers",)}
"""The modules that each extra brings."""


class Examination(Struct, frozen=True):
    """The result of an examination."""

    problems: tuple[str, ...]
    """Reasons why a run would not start or would be refused."""
    frameworks: tuple[Framework, ...]
    variables: tuple[Variable, ...]
    beside: Mapping[str, str]
    """Variables of other libraries on which a run depends."""
    space: tuple[str, ...]
    """Disk and memory that are free and needed."""
    about: Mapping[str, str]
    extras: Mapping[str, Sequence[str]]
    """The modules of each extra that are not installed."""
    notes: tuple[str, ...] = ()
    """Remarks that are no problem, such as what could not be examined."""
    wanted: str | None = None
    """The side to run; None where either may be."""

    @property
    def ready(self) -> list[str]:
        """The frameworks with which a run may be started."""
        able = [framework for framework in self.frameworks if framework.installed and not framework.problems]
        return [framework.title for framework in able if self.wanted in (None, framework.side)]

    @property
    def exit_code(self) -> int:
        """0 ready, 1 not ready."""
        return 1 if self.problems else 0


def examine(given: str | None, environment: Mapping[str, str], *, python: str | None = None) -> Examination:
    """Examine this machine as a run would find it; raises AlignHooksError where ``given`` cannot be read.

    ``given`` is what to run: a training script (``.py``), or, for the size too, a launch script, a YAML file, a list of arguments,
    a quoted command or a recorded run of the same model.
    """
    run = _given(given, environment)
    size, notes = run.size, run.notes
    frameworks, wanted = _inspected(run, python or sys.executable, environment)
    problems, variables, settings = _settings(environment)
    concerned = [framework for framework in frameworks if (framework.installed if wanted is None else framework.side == wanted)]
    problems += [problem for framework in concerned or frameworks for problem in framework.problems]
    installed = [framework for framework in concerned if framework.installed]
    space: tuple[str, ...] = ()
    if settings is not None:
        size = size or _size_of_sources(settings)
        problems += _misfits(run, settings, frameworks, environment)
        able = [framework for framework in installed if not framework.problems]
        if settings.device != "cpu" and able and not any(framework.devices for framework in able):
            problems.append("no accelerator is seen; train where there is one, or set ALIGN_HOOKS_DEVICE=cpu for a rehearsal")
        notes += tuple(filter(None, [unknown(settings, size), *(_notes(run.configuration, settings) if run.configuration else ())]))
        sides = {wanted} if wanted is not None else {framework.side for framework in installed}
        devices = [device for framework in installed for device in framework.devices]
        needs = [disk(settings, size), *(need for side in sorted(sides) for need in memory(side, settings, size, devices))]
        space = tuple(dict.fromkeys(text for text, _ in needs if text))
        problems += [problem for _, problem in needs if problem]
    notes += tuple(proofs(installed))
    about = {"align_hooks": __version__, "python": platform.python_version(), "interpreter": python or sys.executable}
    about |= {"drivers": ", ".join(found)} if (found := [*drivers()]) else {}
    rooms = [side_environment(framework.side) for framework in installed]
    watched = (name for module in rooms for name in (*module.DETERMINISTIC, *module.WATCHED))
    beside = {name: environment[name] for name in (*AT_START, *watched) if name in environment}
    extras = {extra: [name for name in modules if importlib.util.find_spec(name) is None] for extra, modules in EXTRAS.items()}
    return Examination(tuple(dict.fromkeys(problems)), tuple(frameworks), tuple(variables), beside, space, about, extras, notes, wanted)


def drivers(root: Path = Path("/")) -> Iterator[str]:
    """Yield each driver that is installed below ``root``, with its version where its file states one."""
    for name, (file, pattern) in DRIVERS.items():
        with suppress(OSError):
            found = re.search(pattern, (root / file.lstrip("/")).read_text(encoding="utf-8", errors="replace"))
            yield f"{name} {found['version']}" if found else f"{name} of an unknown version"


def proofs(frameworks: Sequence[Framework]) -> Iterator[str]:
    """Yield what ``align-hooks prove`` last said in the environment of these frameworks."""
    versions = {name: package["version"] for framework in frameworks for name, package in framework.packages.items()}
    kept = (last(prefix) for prefix in dict.fromkeys(framework.prefix for framework in frameworks) if prefix)
    yield from (proof.described(versions) for proof in kept if proof is not None)


class JobDescription(Struct, frozen=True):
    """What to run, as far as known."""

    side: str | None = None
    size: Size | None = None
    script: Path | None = None
    configuration: Configuration | None = None
    notes: tuple[str, ...] = ()
    is_recorded: bool = False
    """Whether a record was given, of whose model the other side may train one of the same size."""


def _inspected(run: JobDescription, python: str, environment: Mapping[str, str]) -> tuple[list[Framework], str | None]:
    """Return the frameworks, and the side to run: None where it is not known, or where the framework of a record is not here."""
    if run.side is None:
        return inspect(python, run.script, environment), None
    trainer = "" if run.configuration is None else run.configuration.trainer
    own = inspect(python, run.script, environment, [run.side], trainer)
    if not run.is_recorded or own[0].installed:
        return own, run.side
    return [*own, *inspect(python, run.script, environment, [side for side in FRAMEWORKS if side != run.side])], None


def _given(given: str | None, environment: Mapping[str, str]) -> JobDescription:
    if given is None:
        return JobDescription()
    if given.endswith(".py"):
        if not names(given, Path.is_file):
            raise AlignHooksError(f"{shown(given)} is no file; name the training script as you would start it")
        return JobDescription(imported_side(Path(given)), script=Path(given))
    if names(given, Path.is_dir) or names(given, is_archive):
        recorded = open_run(given)
        return JobDescription(recorded.facts.side if recorded.facts.side in FRAMEWORKS else None, of_run(recorded), is_recorded=True)
    configuration, notes = read(given, environment), list[str]()
    program, source = configuration.program, configuration.source
    near = (Path(program), Path(given).parent / program) if program else ()
    script = next((path for path in near if path.is_file()), None)
    if program and script is None and configuration.lost is None:
        notes.append(f"{program} does not lie here, so the packages are those of this folder, or installed: be where {source} starts it")
    if more := elsewhere(configuration):
        notes.append(f"what {source} leaves out may be said elsewhere ({more}), and was not held against what a run refuses")
    return JobDescription(side_of(configuration), of_configuration(configuration), script, configuration, tuple(notes))


def side_of(configuration: Configuration) -> str:
    """Return the side of a configuration's framework."""
    return next(side for side, framework in FRAMEWORKS.items() if framework == configuration.side)


def _settings(environment: Mapping[str, str]) -> tuple[list[str], list[Variable], Settings | None]:
    """Return problems of the variables, the variables that are set, and the settings, None where these cannot be read."""
    try:
        settings = Settings.from_environment(environment)
    except SettingsError as error:
        problems = str(error).splitlines()
        named = {name: problem for problem in problems for name in environment if re.match(rf"{re.escape(name)}\b", problem)}
        own = sorted({*named, *(name for name in environment if name.startswith(PREFIX))})
        return problems, [Variable(name, environment[name], problem=named.get(name, "")) for name in own], None
    variables = list(examined(settings))
    problems = [variable.problem for variable in variables if variable.problem]
    try:
        Launch.from_environment(environment)
    except SettingsError as error:
        problems.append(str(error))
    return problems, variables, settings


def _size_of_sources(settings: Settings) -> Size | None:
    """Return the size of the first run from which this one takes weights, batches or other data."""
    for source in (settings.load_weights, settings.replay_batches, settings.inject_gradients, settings.replay_routing, settings.teacher):
        if source is not None:
            with suppress(AlignHooksError):
                size = of_run(open_run(source.path))
                if size.elements is not None:
                    return size
    return None


def _misfits(run: JobDescription, settings: Settings, frameworks: Sequence[Framework], environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the problems of a configuration: refusals of its side, and files that are missing."""
    configuration, processes = run.configuration, None  # not known: a node that trains may be one of several
    if configuration is None or run.side is None:
        return
    if settings.device == "cpu" and not configuration.program:
        with suppress(SettingsError):  # a problem already
            processes = Launch.from_environment(environment).world_size
    yield from unlocated(configuration)
    yield from too_few(configuration, processes)
    versions = {name: package["version"] for framework in frameworks for name, package in framework.packages.items()}
    yield from refused(run.side, configuration, settings, versions)
    yield from missing(configuration, settings, from_here=run.script is not None or not configuration.program)


def _notes(configuration: Configuration, settings: Settings) -> Iterator[str | None]:
    """Yield facts of a configuration that are no problem, such as a checkpoint from which the run goes on."""
    yield resumes(configuration)
    yield own_names(configuration, settings)
    if settings.device == "cpu" and known(configuration, "bf16") is True:
        where = configuration.values["bf16"].where
        yield f"{where} trains in bfloat16, which MindSpore lacks on a CPU: to rehearse both sides leave it out"
