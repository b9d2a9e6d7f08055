"""Everything that the doctor looks at, and what it comes to: ready, or not ready because."""

from __future__ import annotations

import importlib.util
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from align_hooks import __version__
from align_hooks.configuration.source import read
from align_hooks.configuration.values import FRAMEWORKS, Configuration
from align_hooks.doctor.configured import elsewhere, refused
from align_hooks.doctor.files import missing, resumes
from align_hooks.doctor.frameworks import Framework, look
from align_hooks.doctor.size import Size, of_configuration, of_run
from align_hooks.doctor.space import disk, memory, unknown
from align_hooks.doctor.variables import Said, said
from align_hooks.errors import AlignHooksError, SettingsError, shown
from align_hooks.job.entry import room
from align_hooks.job.ranks import Launch
from align_hooks.record.reader import open_run
from align_hooks.settings import Settings

READY, NOT_READY = 0, 1
EXTRAS = {
    "cli": ("typer", "rich", "yaml", "tree_sitter", "tree_sitter_bash"),
    "html": ("jinja2", "markupsafe", "vl_convert"),
    "tokenizer": ("tokenizers",),
}
"""The modules that each extra brings."""


@dataclass(frozen=True, slots=True)
class Examination:
    """``problems`` are why a run would not start or would be refused; ``ready`` names the sides that would start.

    ``wanted`` is the side that is to be run, None where either may be; ``variables`` are ours as they are set, ``beside`` those of other
    libraries that a run depends on, ``space`` what is free and needed, ``extras`` each extra with the modules of it that are not
    installed, ``notes`` what was not looked at as a run would find it.
    """

    problems: tuple[str, ...]
    frameworks: tuple[Framework, ...]
    variables: tuple[Said, ...]
    beside: Mapping[str, str]
    space: tuple[str, ...]
    about: Mapping[str, str]
    extras: Mapping[str, Sequence[str]]
    notes: tuple[str, ...] = ()
    wanted: str | None = None

    @property
    def ready(self) -> list[str]:
        """The sides that a run may be started of."""
        able = [one for one in self.frameworks if one.installed and not one.problems]
        return [one.title for one in able if self.wanted in (None, one.side)]

    @property
    def exit_code(self) -> int:
        """0 ready, 1 not ready."""
        return NOT_READY if self.problems else READY


def examine(given: str | None, environment: Mapping[str, str], *, python: str | None = None) -> Examination:
    """Look at this machine as a run would find it. ``given`` is what is to be run: a training script (``.py``), or, for the size too, a
    launch script, a YAML file, a list of arguments, a quoted command or a recorded run of the same model.

    :raises AlignHooksError: ``given`` cannot be read.
    """
    asked = _given(given, environment)
    wanted, size, notes = asked.side, asked.size, asked.notes
    found = look(python or sys.executable, asked.script, environment)
    problems, variables, settings = _settings(environment)
    problems += _of_frameworks(found, wanted)
    if settings is not None:
        size = size or _size_of_sources(settings)
        problems += _of_configuration(asked, settings, found)
        notes += tuple(filter(None, [unknown(settings, size), *_notes(asked, settings)]))
    installed = [one for one in found if one.installed and (wanted is None or one.side == wanted)]
    problems += _of_devices(installed, settings)
    space = []
    if settings is not None:
        sides = {wanted} if wanted is not None else {one.side for one in installed}
        devices = [device for one in installed for device in one.devices]
        told = [disk(settings, size), *(one for side in sorted(sides) for one in memory(side, settings, size, devices))]
        space = list(dict.fromkeys(text for text, _ in told if text))
        problems += [problem for _, problem in told if problem]
    about = {"align_hooks": __version__, "python": platform.python_version(), "interpreter": python or sys.executable}
    beside = _beside(environment, [one.side for one in installed])
    extras = {name: [one for one in modules if importlib.util.find_spec(one) is None] for name, modules in EXTRAS.items()}
    return Examination(tuple(dict.fromkeys(problems)), tuple(found), tuple(variables), beside, tuple(space), about, extras, notes, wanted)


@dataclass(frozen=True, slots=True)
class Given:
    """What is to be run, as far as it is told: the side, the size, the training script, the configuration, and what to know of that."""

    side: str | None = None
    size: Size | None = None
    script: Path | None = None
    configuration: Configuration | None = None
    notes: tuple[str, ...] = ()


def _given(given: str | None, environment: Mapping[str, str]) -> Given:
    if given is None:
        return Given()
    if given.endswith(".py"):
        try:
            there = Path(given).is_file()
        except (OSError, ValueError):
            there = False
        if not there:
            raise AlignHooksError(f"{shown(given)} is no file; name the training script as you would start it")
        return Given(script=Path(given))
    if _is_folder(given):
        return Given(size=of_run(open_run(given)))  # either side may train a model of that size
    configuration = read(given, environment)
    script, program = _script(configuration, given), configuration.program
    lost = f"{program} does not lie here, so the packages are those of this folder, or installed: be where {configuration.source} starts it"
    notes: tuple[str, ...] = (lost,) if program and script is None else ()
    if more := elsewhere(configuration):
        notes += (f"what {configuration.source} leaves out may be said elsewhere ({more}), and was not held against what a run refuses",)
    return Given(side_of(configuration), of_configuration(configuration), script, configuration, notes)


def _is_folder(given: str) -> bool:
    """Whether what is given names a directory; a command of many words may be longer than any name."""
    try:
        return Path(given).is_dir()
    except (OSError, ValueError):
        return False


def side_of(configuration: Configuration) -> str:
    """The room of a configuration's framework."""
    return next(side for side, framework in FRAMEWORKS.items() if framework == configuration.side)


def _script(configuration: Configuration, given: str) -> Path | None:
    """The training script that a launch script starts, as it lies from here, or from the launch script."""
    if not configuration.program:
        return None
    near = [Path(configuration.program), Path(given).parent / configuration.program]
    return next((path for path in near if path.is_file()), None)


def _settings(environment: Mapping[str, str]) -> tuple[list[str], list[Said], Settings | None]:
    try:
        settings = Settings.from_environment(environment)
    except SettingsError as error:
        return str(error).splitlines(), [], None
    found = list(said(settings))
    problems = [one.problem for one in found if one.problem]
    try:
        Launch.from_environment(environment)
    except SettingsError as error:
        problems.append(str(error))
    return problems, found, settings


def _size_of_sources(settings: Settings) -> Size | None:
    """The size of the first run that feeds this one."""
    for source in (settings.load_weights, settings.replay_batches, settings.inject_gradients):
        try:
            size = None if source is None else of_run(open_run(source.path))
        except AlignHooksError:
            continue
        if size is not None and size.elements is not None:
            return size
    return None


def _of_frameworks(found: Sequence[Framework], wanted: str | None) -> list[str]:
    """What stands in the way of the side that is wanted, else of those that are installed; of all where none is."""
    asked = [one for one in found if one.side == wanted] if wanted is not None else [one for one in found if one.installed] or list(found)
    return [problem for one in asked for problem in one.problems]


def _of_configuration(asked: Given, settings: Settings, found: Sequence[Framework]) -> list[str]:
    """What the side would refuse of the configuration, as soon as it reads it or has built the model."""
    if asked.configuration is None or asked.side is None:
        return []
    versions = {name: held["version"] for one in found for name, held in one.packages.items()}
    from_here = asked.script is not None or not asked.configuration.program
    return [
        *refused(asked.side, asked.configuration, settings, versions),
        *missing(asked.configuration, settings, from_here=from_here),
    ]


def _notes(asked: Given, settings: Settings) -> Iterator[str]:
    """What is no problem of this run alone."""
    if asked.configuration is None:
        return
    yield resumes(asked.configuration)
    half = asked.configuration.values.get("bf16")
    if settings.device == "cpu" and half is not None and half.value is True:
        yield f"{half.where} trains in bfloat16, which MindSpore lacks on a CPU: to rehearse both sides leave it out"


def _of_devices(installed: Sequence[Framework], settings: Settings | None) -> list[str]:
    able = [one for one in installed if not one.problems]
    if settings is None or settings.device == "cpu" or not able or any(one.devices for one in able):
        return []
    return ["no accelerator is seen; train where there is one, or set ALIGN_HOOKS_DEVICE=cpu for a rehearsal"]


def _beside(environment: Mapping[str, str], sides: Sequence[str]) -> dict[str, str]:
    """Variables of other libraries that a run depends on, as they are set."""
    rooms = [room(side) for side in sides]
    names = dict.fromkeys(name for one in rooms for name in (*one.AT_START, *one.DETERMINISTIC, *one.WATCHED))
    return {name: environment[name] for name in names if name in environment}
