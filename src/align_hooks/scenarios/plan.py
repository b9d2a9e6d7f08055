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
another, or a run. The first rung records what all are fed, unless ``reference`` names a run that did, or a rung says what it is ``fed_by``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from align_hooks.configuration.values import ConfigurationError
from align_hooks.configuration.yaml_files import parsed
from align_hooks.errors import SettingsError
from align_hooks.settings import PREFIX, Settings

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SLOTS = re.compile(r"\{(ranks|changes|config)\}")
BLANK = "…"
"""What ``compare --plan`` writes where a command's own words belong."""
RECORD = {"BATCHES": "all", "LOCAL_NORMS": "all", "WEIGHTS": "0"}
"""What every rung records unless the file says otherwise."""
NOTHING = "nothing"
"""What a rung is fed by that has its own data and weights."""


class FrameworkCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one framework is started: the ``command``, and the file of YAML that sets it up, where it has one."""

    command: str
    config: str | None = None


class Rung(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One training of a ``side``. ``against`` is the name of an earlier rung or the directory of a run, None the rung before; ``fed_by`` is
    the same of what it is fed, or ``nothing``. ``without`` is what it leaves out, for the conclusion."""

    name: str
    ranks: int = 1
    changes: str | dict[str, object] = ""
    against: str | None = None
    fed_by: str | None = None
    side: str | None = None
    without: str = ""

    @property
    def keys(self) -> Mapping[str, object]:
        """The keys of a YAML file that it changes; none where it changes arguments."""
        return self.changes if isinstance(self.changes, dict) else {}

    @property
    def arguments(self) -> str:
        """The arguments that it changes, as a shell reads them; empty where it changes keys."""
        return self.changes if isinstance(self.changes, str) else ""


class ExperimentPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All rungs, and what they share. ``command`` and ``config`` are those of the rungs that name no side. ``noise`` are repeats of the
    reference, ``environment`` holds further variables. ``to_the_end`` goes on after a rung that differs."""

    folder: str
    rungs: tuple[Rung, ...]
    command: str | None = None
    config: str | None = None
    sides: dict[str, FrameworkCommand] = {}
    reference: str | None = None
    record: dict[str, str] = msgspec.field(default_factory=lambda: dict(RECORD))
    noise: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    to_the_end: bool = False

    def run(self, name: str) -> Path:
        """Where a rung is recorded, or a run that is no rung."""
        return Path(self.folder) / name if any(rung.name == name for rung in self.rungs) else Path(name)

    def side(self, rung: Rung) -> FrameworkCommand:
        """How a rung is started."""
        return self.sides[rung.side] if rung.side is not None else FrameworkCommand(self.command or "", self.config)

    def against(self, index: int) -> Path | None:
        """The run that a rung is held against; None of the first of a ladder without a reference."""
        named = self.rungs[index].against
        if named is not None:
            return None if named == NOTHING else self.run(named)
        return self.run(self.rungs[index - 1].name) if index else Path(self.reference) if self.reference else None

    def feeds(self, index: int) -> Path | None:
        """The run whose batches and initial weights a rung is fed; None of one that has its own."""
        named = self.rungs[index].fed_by
        if named is not None:
            return None if named == NOTHING else self.run(named)
        if self.reference:
            return Path(self.reference)
        return self.run(self.rungs[0].name) if index else None


def read_plan(path: Path) -> ExperimentPlan:
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
        plan = msgspec.convert(content, ExperimentPlan)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ConfigurationError(f"{path}: {error}; docs/ladder.md shows what a ladder is") from None
    for problem in problems(plan):
        raise ConfigurationError(f"{path}: {problem}")
    return plan


def problems(plan: ExperimentPlan) -> Iterator[str]:
    """What makes no sense of a plan, each in a sentence."""
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
        yield from of_command(plan, rung)
    try:
        Settings.from_environment({PREFIX + name: value for name, value in {"RUN": plan.folder, **plan.record}.items()})
    except SettingsError as error:
        lines = str(error).replace("\n", "; ")
        yield f"record: {lines}"


def of_command(plan: ExperimentPlan, rung: Rung) -> Iterator[str]:
    """What is wrong with how a rung is started."""
    if rung.side is not None and rung.side not in plan.sides:
        yield f"{rung.name}: there is no side {rung.side[:40]!r}; name one of sides"
        return
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
