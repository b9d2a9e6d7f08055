"""Configurations of one run or two as rows: settings asked for, settings built, and changes by align_hooks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum

from msgspec import Struct
from msgspec.structs import asdict, replace

from align_hooks.comparison.settings.recorded import OF_NONE, equal, show
from align_hooks.comparison.verdict import RunSummary
from align_hooks.messages import Message, message
from align_hooks.quantities.weights import UNKNOWN
from align_hooks.record.format.schema import Facts, OptimizerFacts, Table
from align_hooks.report.console import plain

MISSING = "–"
PER_GROUP = "parameters"


class DifferenceRule(Enum):
    """The settings of a group that count as differing where their values are not equal."""

    ALL = "all"
    """Each, also one that a side lacks."""
    COMMON = "common"
    """Each that both sides have."""
    NONE = "none"
    """None: every run has its own values."""


class SettingRow(Struct, frozen=True):
    """One setting."""

    name: str
    values: tuple[str, ...]
    differs: bool
    weighs: bool = False
    """Whether the difference may change the result."""


class SettingGroup(Struct, frozen=True):
    """Settings under a head."""

    name: Message
    rows: list[SettingRow]


def configurations(sides: Sequence[RunSummary], harmless: Collection[str] = ()) -> list[SettingGroup]:
    """Return the groups of settings of one side or of two; ``harmless`` names settings whose differences change no result."""
    facts = [side.facts for side in sides]

    def weighed(shown: Sequence[SettingRow]) -> list[SettingRow]:
        return [replace(row, weighs=row.differs and row.name not in harmless) for row in shown]

    # a run's identity, its versions, and the settings and changes of align_hooks have no influence on a result
    groups = {
        message("page.group_run"): rows([about(side) for side in sides], DifferenceRule.NONE),
        message("page.group_versions"): rows([run.versions for run in facts], DifferenceRule.COMMON),
        message("page.group_model"): weighed(models([run.model for run in facts])),
        message("page.group_training"): weighed(rows([asdict(run.training) for run in facts], DifferenceRule.COMMON)),
        message("page.group_optimizer"): weighed(rows([optimizer(run.optimizer) for run in facts])),
        message("page.group_determinism"): weighed(rows([run.determinism for run in facts], DifferenceRule.COMMON)),
        message("page.group_asked_for"): rows([run.settings for run in facts], DifferenceRule.COMMON),
        message("page.group_changed"): rows([overrides(run) for run in facts], DifferenceRule.NONE),
        message("page.group_arguments"): weighed(differing([run.arguments or {} for run in facts])),
        message("page.group_environment"): weighed(differing([run.environment for run in facts])),
    }
    return [SettingGroup(name, shown) for name, shown in groups.items() if shown]


def chosen(groups: Sequence[SettingGroup], is_chosen: Callable[[SettingRow], bool]) -> list[SettingGroup]:
    """Return groups with only the chosen rows, without empty groups."""
    narrowed = [replace(group, rows=[row for row in group.rows if is_chosen(row)]) for group in groups]
    return [group for group in narrowed if group.rows]


def differing(tables: Sequence[Mapping[str, object]]) -> list[SettingRow]:
    """Return the differing settings of two tables of hundreds, which share most of their names; no row of other tables."""
    shared = len(tables) == 2 and len(tables[0].keys() & tables[1].keys()) > len(tables[0]) / 2
    return [row for row in rows(tables) if row.differs] if shared else []


def models(tables: Sequence[Table]) -> list[SettingRow]:
    """Return models' configurations; a setting that only one has does not differ, except the reason why it is of no family."""
    shared = set[str]().union(*tables).intersection(*tables) - {*OF_NONE, UNKNOWN}  # two models of no family: only sizes compare
    of_one = {key for key in OF_NONE if not all(key in table for table in tables)}
    return [replace(row, differs=row.differs and row.name in shared | of_one) for row in rows(tables)]


def about(side: RunSummary) -> Table:
    """Return a few lines that identify a run."""
    facts = side.facts
    return {
        "path": side.path,
        "run id": facts.run_id,
        "framework": facts.framework,
        "created": facts.created,
        "ranks": f"{side.ranks}" + (f" ({side.laid_out})" if side.layout else ""),
        "steps": side.steps,
        "padded vocabulary": facts.padded_vocabulary,
    }


def optimizer(built: OptimizerFacts | None) -> Table:
    """Return hyper-parameters; those of a parameter group under its number, with the count of its tensors."""
    if built is None:
        return {}
    table: Table = {key: value for key, value in asdict(built).items() if key != "groups"}
    for number, group in enumerate(built.groups):
        table |= {f"group {number}: {key}": len(value) if key == PER_GROUP else value for key, value in asdict(group).items()}
    return table


def overrides(facts: Facts) -> Table:
    """Return the changes that align_hooks made to a run, each with the switch that asked for it."""
    return {str(override.what): f"{override.before} → {override.after} ({override.why})" for override in facts.overrides}


def rows(tables: Sequence[Mapping[str, object]], judged: DifferenceRule = DifferenceRule.ALL) -> list[SettingRow]:
    """Return tables side by side, in the order in which names first appear, without settings that no side has."""
    shown = []
    for name in dict.fromkeys(name for table in tables for name in table):
        values = [table.get(name) for table in tables]
        texts = tuple(MISSING if value is None else plain(show(value)[:400]) for value in values)
        can_differ = judged is DifferenceRule.ALL or (judged is DifferenceRule.COMMON and None not in values and name != "run")
        paths = all(isinstance(value, str) and value.startswith(("/", "./")) for value in values)  # where things lie is no setting
        differs = can_differ and not paths and not all(equal(values[0], value) for value in values[1:])
        shown.append(SettingRow(plain(str(name)), texts, differs))
    return [row for row in shown if set(row.values) != {MISSING}]
