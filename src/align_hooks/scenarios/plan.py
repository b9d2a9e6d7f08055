"""What a ladder is: a file that a user writes, or that ``compare --plan`` writes to narrow a difference down.

::

    folder: runs/ladder
    command: torchrun --nproc-per-node {ranks} pretrain_gpt.py $(cat llama.args) {changes}
    record: {BATCHES: all, LOCAL_NORMS: all, WEIGHTS: "0"}
    rungs:
      - name: one-card
      - name: tensor-parallel
        ranks: 2
        changes: --tensor-model-parallel-size 2
      - name: pipeline-parallel
        ranks: 2
        changes: --pipeline-model-parallel-size 2
        against: one-card

``{ranks}`` and ``{changes}`` are filled in for each rung. A framework that is set up by a file of YAML has ``config: llama.yaml``; a rung's
``changes`` are dotted keys of it then, and ``{config}`` is the changed copy. A rung is held ``against`` the one before it unless it names
another, or a run. The first rung records what all are fed, unless ``reference`` names a run that did.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from align_hooks.configuration.values import ConfigurationError
from align_hooks.configuration.yaml_files import parsed
from align_hooks.errors import SettingsError
from align_hooks.settings import PREFIX, Settings

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SLOTS = re.compile(r"\{(ranks|changes|config)\}")
RECORD = {"BATCHES": "all", "LOCAL_NORMS": "all", "WEIGHTS": "0"}
"""What every rung records unless the file says otherwise."""


class Rung(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One training: ``command`` and ``config`` where they are not those of the plan, and what it is held ``against``: the name of an
    earlier rung, or the directory of a run; None is the rung before."""

    name: str
    ranks: int = 1
    changes: str | dict[str, object] = ""
    against: str | None = None
    command: str | None = None
    config: str | None = None
    fed: bool = True


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All rungs, and what they share. ``noise`` are repeats of the reference, ``environment`` holds further variables."""

    folder: str
    rungs: tuple[Rung, ...]
    command: str | None = None
    config: str | None = None
    reference: str | None = None
    record: dict[str, str] = msgspec.field(default_factory=lambda: dict(RECORD))
    noise: tuple[str, ...] = ()
    environment: dict[str, str] = {}

    def run(self, name: str) -> Path:
        """Where a rung is recorded."""
        return Path(self.folder) / name

    def against(self, index: int) -> Path | None:
        """The run that a rung is held against; None of the first of a ladder without a reference."""
        rung = self.rungs[index]
        if rung.against is not None:
            return self.run(rung.against) if rung.against in {each.name for each in self.rungs} else Path(rung.against)
        if index:
            return self.run(self.rungs[index - 1].name)
        return Path(self.reference) if self.reference else None

    def feeds(self, index: int) -> Path | None:
        """The run whose batches and initial weights a rung is fed; None of one that makes its own."""
        if not self.rungs[index].fed:
            return None
        if self.reference:
            return Path(self.reference)
        return self.run(self.rungs[0].name) if index else None


def read_plan(path: Path) -> Plan:
    """The plan of a file.

    :raises ConfigurationError: it cannot be read, or asks for what makes no sense; the message names the key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    with parsed(text, str(path)) as (loader, root):
        content = None if root is None else loader.construct_document(root)
    try:
        plan = msgspec.convert(content, Plan)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ConfigurationError(f"{path}: {error}; docs/ladder.md shows what a ladder is") from None
    for problem in problems(plan):
        raise ConfigurationError(f"{path}: {problem}")
    return plan


def problems(plan: Plan) -> list[str]:
    """What makes no sense of a plan, each in a sentence."""
    found = [] if plan.rungs else ["it has no rungs"]
    seen: set[str] = set()
    for index, rung in enumerate(plan.rungs):
        where = f"rung {index + 1}"
        if not NAME.fullmatch(rung.name):
            found.append(f"{where} is called {rung.name[:40]!r}; a name is made of letters, digits, '-', '_' and '.'")
        if rung.name in seen:
            found.append(f"two rungs are called {rung.name}; give each a name of its own")
        seen.add(rung.name)
        found += of_command(plan, rung)
        if rung.ranks < 1:
            found.append(f"{rung.name}: ranks is {rung.ranks}; it is 1 or more")
        if rung.against == rung.name or rung.against in {each.name for each in plan.rungs[index + 1 :]}:
            found.append(f"{rung.name} is held against {rung.against}, which is not trained before it; name an earlier rung, or a run")
    return found + of_settings(plan)


def of_command(plan: Plan, rung: Rung) -> list[str]:
    """What is wrong with the command of a rung."""
    command, config = rung.command or plan.command, rung.config or plan.config
    if not command:
        return [f"{rung.name} has no command, and neither has the ladder; give one"]
    slots = set(SLOTS.findall(command))
    if isinstance(rung.changes, Mapping) and rung.changes:
        if not config:
            return [f"{rung.name}: changes are keys of a YAML file; name it by config"]
        return [] if "config" in slots else [f"{rung.name}: the command has no {{config}}, so that changes would be lost"]
    if rung.changes and "changes" not in slots:
        return [f"{rung.name}: the command has no {{changes}}, so that changes would be lost"]
    return [f"{rung.name}: the command has no {{ranks}}, so that ranks would be lost"] if rung.ranks > 1 and "ranks" not in slots else []


def of_settings(plan: Plan) -> list[str]:
    """What is wrong with what rungs are asked to record."""
    try:
        Settings.from_environment({PREFIX + name: value for name, value in {"RUN": plan.folder, **plan.record}.items()})
    except SettingsError as error:
        return [f"record: {' '.join(str(error).split())}"]
    return []
