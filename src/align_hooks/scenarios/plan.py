"""The file of a ladder (docs/ladder.md), written by a user, or by ``compare --plan`` to narrow a difference down, and its commands.

``{ranks}`` and ``{changes}`` of a command are filled in for each rung. A framework that reads a YAML file has ``config: llama.yaml``; a
rung's ``changes`` are dotted keys of this file then, and ``{config}`` is the changed copy.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from align_hooks.configuration.values import ConfigurationError
from align_hooks.configuration.yaml_edits import with_settings
from align_hooks.configuration.yaml_files import parsed
from align_hooks.errors import SettingsError
from align_hooks.record.write import output
from align_hooks.settings import PREFIX, Settings

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SLOTS = re.compile(r"\{(ranks|changes|config)\}")
BLANK = "…"
"""A placeholder in a file of ``compare --plan`` for the words of a command."""
RECORD = {"BATCHES": "all", "LOCAL_NORMS": "all", "WEIGHTS": "0"}
"""The variables of what every rung records by default."""
NOTHING = "nothing"
"""The value of ``against`` and ``fed_by`` that names no run."""


class FrameworkCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The command that starts one framework."""

    command: str
    config: str | None = None


class Rung(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One training."""

    name: str
    ranks: int = 1
    changes: str | dict[str, object] = ""
    against: str | None = None
    """The rung or run to compare with, or ``nothing``; None is the rung before."""
    fed_by: str | None = None
    """The rung or run to replay, or ``nothing``; None is the reference, or the first rung."""
    side: str | None = None
    without: str = ""
    """The feature that the rung leaves out, for the conclusion."""

    @property
    def keys(self) -> Mapping[str, object]:
        """The changed keys of a YAML file; none where arguments are changed."""
        return self.changes if isinstance(self.changes, dict) else {}

    @property
    def arguments(self) -> str:
        """The changed arguments, as a shell reads them; empty where keys are changed."""
        return self.changes if isinstance(self.changes, str) else ""


class ExperimentPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All rungs, and their common settings."""

    folder: str
    rungs: tuple[Rung, ...]
    command: str | None = None
    config: str | None = None
    """The YAML file of rungs that name no side, as ``command`` is theirs."""
    sides: dict[str, FrameworkCommand] = {}
    reference: str | None = None
    """The run that the first rung is compared with and all replay; None where the first rung is the reference."""
    record: dict[str, str] = msgspec.field(default_factory=lambda: dict(RECORD))
    noise: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    to_the_end: bool = False
    """Whether the ladder goes on after a rung that differs."""

    def run(self, name: str) -> Path:
        """Return the directory of a rung, or of a run that is no rung."""
        return Path(self.folder) / name if any(rung.name == name for rung in self.rungs) else Path(name)

    def side(self, rung: Rung) -> FrameworkCommand:
        """Return the command of a rung's side."""
        return self.sides[rung.side] if rung.side is not None else FrameworkCommand(self.command or "", self.config)

    def against(self, index: int) -> Path | None:
        """Return the run that a rung is compared with; None where there is none."""
        if (named := self.rungs[index].against) is not None:
            return None if named == NOTHING else self.run(named)
        return self.run(self.rungs[index - 1].name) if index else Path(self.reference) if self.reference else None

    def feeds(self, index: int) -> Path | None:
        """Return the run whose batches and initial weights a rung replays; None where it has its own."""
        if (named := self.rungs[index].fed_by) is not None:
            return None if named == NOTHING else self.run(named)
        return Path(self.reference) if self.reference else self.run(self.rungs[0].name) if index else None


def read_plan(path: Path) -> ExperimentPlan:
    """Return the plan of a file; raises ConfigurationError for an unreadable file or a senseless key, which the message names."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    with parsed(text, str(path)) as (loader, root):
        content = None if root is None else loader.construct_document(root)
    try:
        plan = msgspec.convert(content, ExperimentPlan)
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
        raise ConfigurationError(f"{path}: {error}; docs/ladder.md shows what a ladder is") from None
    for problem in problems(plan):
        raise ConfigurationError(f"{path}: {problem}")
    return plan


def problems(plan: ExperimentPlan) -> Iterator[str]:
    """Yield a sentence for each error of a plan."""
    if not plan.rungs:
        yield "it has no rungs"
    if "://" in plan.folder:
        yield f"nothing is recorded in {plan.folder}; name a directory, and copy it"
    names = [rung.name for rung in plan.rungs]
    for index, rung in enumerate(plan.rungs):
        if not NAME.fullmatch(rung.name):
            yield f"rung {index + 1} is called {rung.name[:40]!r}; a name is made of letters, digits, '-', '_' and '.'"
        if rung.name in names[:index]:
            yield f"two rungs are called {rung.name}; give each a name of its own"
        if rung.ranks < 1:
            yield f"{rung.name}: ranks is {rung.ranks}; it is 1 or more"
        for named in (rung.against, rung.fed_by):
            if named in names[index:]:
                yield f"{rung.name} needs {named}, which is not trained before it; name an earlier rung, or a run"
        if rung.side is not None and rung.side not in plan.sides:
            yield f"{rung.name}: there is no side {rung.side[:40]!r}; name one of sides"
            continue
        side = plan.side(rung)
        slots = set(SLOTS.findall(side.command))
        if BLANK in side.command:
            yield f"{rung.name}: the command still has {BLANK}; write the training's own words there"
        if not side.command:
            yield f"{rung.name} has no command, and neither has the ladder; give one"
        elif rung.keys:
            if not side.config:
                yield f"{rung.name}: changes are keys of a YAML file; name it by config"
            if "config" not in slots:
                yield f"{rung.name}: the command has no {{config}}, so that changes would be lost"
        elif rung.arguments and "changes" not in slots:
            yield f"{rung.name}: the command has no {{changes}}, so that changes would be lost"
        if side.command and rung.ranks > 1 and "ranks" not in slots:
            yield f"{rung.name}: the command has no {{ranks}}, so that ranks would be lost"
    try:
        Settings.from_environment({PREFIX + name: value for name, value in {"RUN": plan.folder, **plan.record}.items()})
    except SettingsError as error:
        yield "record: " + str(error).replace("\n", "; ")


def environment(plan: ExperimentPlan, index: int) -> dict[str, str]:
    """Return the variables of a rung: the plan's own, the directory of the record, what is recorded and what is replayed."""
    values = {"RUN": str(plan.run(plan.rungs[index].name)), **plan.record}
    if (source := plan.feeds(index)) is not None:
        values |= replayed(source)
    return {**plan.environment, **{PREFIX + name: value for name, value in values.items()}}


def replayed(source: Path) -> dict[str, str]:
    """Return the variables, without their prefix, by which a run has the initial weights and the batches of another."""
    return {"REPLAY_BATCHES": str(source), "LOAD_WEIGHTS": f"{source}@0"}


def command(plan: ExperimentPlan, rung: Rung) -> str:
    """Return the command of a rung, as a shell reads it."""
    filled = {"ranks": str(rung.ranks), "changes": rung.arguments, "config": shlex.quote(str(configured(plan, rung)))}
    return SLOTS.sub(lambda slot: filled[slot.group(1)], plan.side(rung).command)


def configured(plan: ExperimentPlan, rung: Rung) -> Path:
    """Return the path of a rung's YAML file: the plan's own, or the changed copy beside the record."""
    return plan.run(rung.name).with_name(f"{rung.name}.yaml") if rung.keys else Path(plan.side(rung).config or "")


def write_config(plan: ExperimentPlan, rung: Rung) -> None:
    """Write the changed copy of a rung's YAML file, if any; raises ConfigurationError where a file or a key does not allow it."""
    if not rung.keys:
        return
    source, target = Path(plan.side(rung).config or ""), configured(plan, rung)
    try:
        text = with_settings(source.read_text(encoding="utf-8"), str(source), {key: json.dumps(value) for key, value in rung.keys.items()})
        output.write(target, text)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{rung.name}: {getattr(error, 'filename', None) or source} {getattr(error, 'strerror', error)}") from None


def script(plan: ExperimentPlan, index: int) -> str:
    """Return a launch script of a rung for a cluster, to be started on every node like the training's own script."""
    rung = plan.rungs[index]
    lines = ["#!/usr/bin/env bash", f"# Rung {index + 1} of {len(plan.rungs)}: {rung.name}", "set -eu"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in environment(plan, index).items()]
    return "\n".join([*lines, f"exec align-hooks run -- bash -c {shlex.quote(command(plan, rung))}", ""])
