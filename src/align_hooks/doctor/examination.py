"""Everything that the doctor looks at, and the result: ready, or the problems for which it is not."""

from __future__ import annotations

import importlib.util
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from align_hooks._version import __version__
from align_hooks.checklist.belongs import elsewhere
from align_hooks.checklist.readings.lookup import known
from align_hooks.configuration.source import names, read
from align_hooks.configuration.values import FRAMEWORKS, Configuration
from align_hooks.doctor.files import imported_side, missing, resumes, untold
from align_hooks.doctor.fit import own_names, refused, too_few
from align_hooks.doctor.frameworks import Framework, look
from align_hooks.doctor.size import Size, of_configuration, of_run
from align_hooks.doctor.space import disk, memory, unknown
from align_hooks.doctor.variables import Variable, examined
from align_hooks.errors import AlignHooksError, SettingsError, shown
from align_hooks.job.entry import AT_START, room
from align_hooks.process.archive import is_archive
from align_hooks.process.ranks import Launch
from align_hooks.record.reader import open_run
from align_hooks.settings import PREFIX, Settings

READY, NOT_READY = 0, 1
EXTRAS = {"html": ("jinja2", "markupsafe", "vl_convert"), "tokenizer": ("tokenizers",)}
"""The modules that each extra brings."""


@dataclass(frozen=True, slots=True)
class Examination:
    """``problems`` are why a run would not start or would be refused; ``ready`` names the sides that would start.

    ``wanted`` is the side that is to be run, None where either may be. ``variables`` are ours as they are set, ``beside`` variables of
    other libraries on which a run depends. ``space`` says what is free and needed. ``extras`` has for each extra the modules of it that
    are not installed. ``notes`` say what was not examined as a run would find it.
    """

    problems: tuple[str, ...]
    frameworks: tuple[Framework, ...]
    variables: tuple[Variable, ...]
    beside: Mapping[str, str]
    space: tuple[str, ...]
    about: Mapping[str, str]
    extras: Mapping[str, Sequence[str]]
    notes: tuple[str, ...] = ()
    wanted: str | None = None

    @property
    def ready(self) -> list[str]:
        """The frameworks with which a run may be started."""
        able = [framework for framework in self.frameworks if framework.installed and not framework.problems]
        return [framework.title for framework in able if self.wanted in (None, framework.side)]

    @property
    def exit_code(self) -> int:
        """0 ready, 1 not ready."""
        return NOT_READY if self.problems else READY


def examine(given: str | None, environment: Mapping[str, str], *, python: str | None = None) -> Examination:
    """Look at this machine as a run would find it. ``given`` is what is to be run: a training script (``.py``), or, for the size too, a
    launch script, a YAML file, a list of arguments, a quoted command or a recorded run of the same model.

    :raises AlignHooksError: ``given`` cannot be read.
    """
    run = _given(given, environment)
    size, notes = run.size, run.notes
    frameworks, wanted = _looked_at(run, python or sys.executable, environment)
    problems, variables, settings = _settings(environment)
    problems += _of_frameworks(frameworks, wanted)
    installed = [framework for framework in frameworks if framework.installed and wanted in (None, framework.side)]
    space: tuple[str, ...] = ()
    if settings is not None:
        size = size or _size_of_sources(settings)
        problems += [*_of_configuration(run, settings, frameworks, environment), *_of_devices(installed, settings)]
        notes += tuple(filter(None, [unknown(settings, size), *_notes(run, settings)]))
        sides = {wanted} if wanted is not None else {framework.side for framework in installed}
        devices = [device for framework in installed for device in framework.devices]
        needs = [disk(settings, size), *(need for side in sorted(sides) for need in memory(side, settings, size, devices))]
        space = tuple(dict.fromkeys(text for text, _ in needs if text))
        problems += [problem for _, problem in needs if problem]
    about = {"align_hooks": __version__, "python": platform.python_version(), "interpreter": python or sys.executable}
    beside = _beside(environment, [framework.side for framework in installed])
    extras = {extra: [name for name in modules if importlib.util.find_spec(name) is None] for extra, modules in EXTRAS.items()}
    return Examination(tuple(dict.fromkeys(problems)), tuple(frameworks), tuple(variables), beside, space, about, extras, notes, wanted)


@dataclass(frozen=True, slots=True)
class JobDescription:
    """What is to be run, as far as that is known: its side, size, training script and configuration, and notes on these. Of a record the
    side is the one that made it, and the other one may train a model of that size as well."""

    side: str | None = None
    size: Size | None = None
    script: Path | None = None
    configuration: Configuration | None = None
    notes: tuple[str, ...] = ()
    is_recorded: bool = False


def _looked_at(run: JobDescription, python: str, environment: Mapping[str, str]) -> tuple[list[Framework], str | None]:
    """The frameworks that are asked about, and the side that is to be run: both and none where nothing tells it. Of a record whose own
    framework is not here, the other one."""
    if run.side is None:
        return look(python, run.script, environment), None
    own = look(python, run.script, environment, [run.side])
    if not run.is_recorded or own[0].installed:
        return own, run.side
    return [*own, *look(python, run.script, environment, [side for side in FRAMEWORKS if side != run.side])], None


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
    configuration = read(given, environment)
    script, program = _script(configuration, given), configuration.program
    lost = f"{program} does not lie here, so the packages are those of this folder, or installed: be where {configuration.source} starts it"
    notes: tuple[str, ...] = (lost,) if program and script is None and configuration.lost is None else ()
    if more := elsewhere(configuration):
        notes += (f"what {configuration.source} leaves out may be said elsewhere ({more}), and was not held against what a run refuses",)
    return JobDescription(side_of(configuration), of_configuration(configuration), script, configuration, notes)


def side_of(configuration: Configuration) -> str:
    """The side of a configuration's framework."""
    return next(side for side, framework in FRAMEWORKS.items() if framework == configuration.side)


def _script(configuration: Configuration, given: str) -> Path | None:
    """The training script that a launch script starts, by its path from here or from the launch script."""
    if not configuration.program:
        return None
    near = [Path(configuration.program), Path(given).parent / configuration.program]
    return next((path for path in near if path.is_file()), None)


def _settings(environment: Mapping[str, str]) -> tuple[list[str], list[Variable], Settings | None]:
    """Problems of the variables, the variables that are set, and the settings; None where they cannot be read."""
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
    """The size of the first run that feeds this one."""
    for source in (settings.load_weights, settings.replay_batches, settings.inject_gradients, settings.replay_routing, settings.teacher):
        try:
            size = None if source is None else of_run(open_run(source.path))
        except AlignHooksError:
            continue
        if size is not None and size.elements is not None:
            return size
    return None


def _of_frameworks(frameworks: Sequence[Framework], wanted: str | None) -> list[str]:
    """Problems of the side that is wanted, or else of the installed sides; of both where none is installed."""
    chosen = [framework for framework in frameworks if (framework.installed if wanted is None else framework.side == wanted)]
    return [problem for framework in chosen or frameworks for problem in framework.problems]


def _of_configuration(
    run: JobDescription, settings: Settings, frameworks: Sequence[Framework], environment: Mapping[str, str]
) -> list[str]:
    """Refusals of the configuration, when the side reads it or has built the model."""
    if run.configuration is None or run.side is None:
        return []
    versions = {name: package["version"] for framework in frameworks for name, package in framework.packages.items()}
    from_here = run.script is not None or not run.configuration.program
    processes = None  # of a node that trains, what is given may be one part
    if settings.device == "cpu" and not run.configuration.program:
        with suppress(SettingsError):  # a problem already
            processes = Launch.from_environment(environment).world_size
    return [
        *untold(run.configuration),
        *too_few(run.configuration, processes),
        *refused(run.side, run.configuration, settings, versions),
        *missing(run.configuration, settings, from_here=from_here),
    ]


def _notes(run: JobDescription, settings: Settings) -> Iterator[str]:
    """Facts of the configuration that are no problem of this run, such as a checkpoint from which it goes on."""
    if run.configuration is None:
        return
    yield resumes(run.configuration)
    if own := own_names(run.configuration, settings):
        yield own
    if settings.device == "cpu" and known(run.configuration, "bf16") is True:
        where = run.configuration.values["bf16"].where
        yield f"{where} trains in bfloat16, which MindSpore lacks on a CPU: to rehearse both sides leave it out"


def _of_devices(installed: Sequence[Framework], settings: Settings) -> list[str]:
    able = [framework for framework in installed if not framework.problems]
    if settings.device == "cpu" or not able or any(framework.devices for framework in able):
        return []
    return ["no accelerator is seen; train where there is one, or set ALIGN_HOOKS_DEVICE=cpu for a rehearsal"]


def _beside(environment: Mapping[str, str], sides: Sequence[str]) -> dict[str, str]:
    """Variables of other libraries on which a run depends, as they are set."""
    rooms = [room(side) for side in sides]
    watched = (name for module in rooms for name in (*module.DETERMINISTIC, *module.WATCHED))
    return {name: environment[name] for name in (*AT_START, *watched) if name in environment}
