"""Configurations as rows, of one run or of two side by side: what was asked for, what was built, and what align_hooks changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from msgspec.structs import asdict

from align_hooks.comparison.settings.recorded import OF_NONE, equal, show
from align_hooks.comparison.verdict import RunSummary
from align_hooks.messages import Message, message
from align_hooks.quantities.weights import UNKNOWN
from align_hooks.record.format.schema import Facts, OptimizerFacts, Table
from align_hooks.report.console import plain

MISSING = "–"
PER_GROUP = "parameters"


class DifferenceRule(Enum):
    """Which settings of a group can differ: those that one side lacks too, those that both have, or none, as each run has its own."""

    ALL = "all"
    COMMON = "common"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting, a value for each side; ``differs`` where the sides do not mean the same, and ``weighs`` where that may change the
    result."""

    name: str
    values: tuple[str, ...]
    differs: bool
    weighs: bool = False


@dataclass(frozen=True, slots=True)
class SettingGroup:
    """Settings under a head."""

    name: Message
    rows: list[SettingRow]


def configurations(sides: Sequence[RunSummary], harmless: Collection[str] = ()) -> list[SettingGroup]:
    """Groups of settings of one side or of two; ``harmless`` are names of settings that change no result where they differ.

    The frameworks' own arguments are hundreds. Of these only those that differ are shown, where both sides have the same names. What a
    run is, its versions, and what align_hooks was asked for, is no setting that a result hangs on.
    """
    facts = [side.facts for side in sides]
    groups = [
        SettingGroup(message("page.group_run"), rows([about(side) for side in sides], DifferenceRule.NONE)),
        SettingGroup(message("page.group_versions"), rows([run.versions for run in facts], DifferenceRule.COMMON)),
        SettingGroup(message("page.group_model"), weighing(models([run.model for run in facts]), harmless)),
        SettingGroup(
            message("page.group_training"), weighing(rows([asdict(run.training) for run in facts], DifferenceRule.COMMON), harmless)
        ),
        SettingGroup(message("page.group_optimizer"), weighing(rows([optimizer(run.optimizer) for run in facts]), harmless)),
        SettingGroup(
            message("page.group_determinism"), weighing(rows([run.determinism for run in facts], DifferenceRule.COMMON), harmless)
        ),
        SettingGroup(message("page.group_asked_for"), rows([run.settings for run in facts], DifferenceRule.COMMON)),
        SettingGroup(message("page.group_changed"), rows([overrides(run) for run in facts], DifferenceRule.NONE)),
        SettingGroup(message("page.group_arguments"), weighing(unlike([run.arguments or {} for run in facts]), harmless)),
        SettingGroup(message("page.group_environment"), weighing(unlike([run.environment for run in facts]), harmless)),
    ]
    return [group for group in groups if group.rows]


def weighing(shown: Sequence[SettingRow], harmless: Collection[str]) -> list[SettingRow]:
    """Rows of settings on which a result hangs where they differ, but for those that are ``harmless``."""
    return [replace(row, weighs=row.differs and row.name not in harmless) for row in shown]


def chosen(groups: Sequence[SettingGroup], is_chosen: Callable[[SettingRow], bool]) -> list[SettingGroup]:
    """Groups with some of their rows alone; none that would be empty."""
    narrowed = [replace(group, rows=[row for row in group.rows if is_chosen(row)]) for group in groups]
    return [group for group in narrowed if group.rows]


def unlike(tables: Sequence[Mapping[str, object]]) -> list[SettingRow]:
    """What differs of two tables that have most of their names in common; nothing of others."""
    shared = len(tables) == 2 and len(tables[0].keys() & tables[1].keys()) > len(tables[0]) / 2
    return [row for row in rows(tables) if row.differs] if shared else []


def models(tables: Sequence[Table]) -> list[SettingRow]:
    """Models' configurations. What one alone holds is nothing that differs, but for why it is of no family; two of none are compared by
    their sizes."""
    shared = set[str]().union(*tables).intersection(*tables) - {*OF_NONE, UNKNOWN}
    alone = {key for key in OF_NONE if not all(key in table for table in tables)}
    return [replace(row, differs=row.differs and row.name in shared | alone) for row in rows(tables)]


def about(side: RunSummary) -> Table:
    """What a run is, in a few lines."""
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
    """Hyper-parameters; those of a parameter group under its number, with the count of its tensors."""
    if built is None:
        return {}
    table: Table = {key: value for key, value in asdict(built).items() if key != "groups"}
    for number, group in enumerate(built.groups):
        table |= {f"group {number}: {key}": len(value) if key == PER_GROUP else value for key, value in asdict(group).items()}
    return table


def overrides(facts: Facts) -> Table:
    """What a switch changed, and which switch."""
    return {str(override.what): f"{override.before} → {override.after} ({override.why})" for override in facts.overrides}


def rows(tables: Sequence[Mapping[str, object]], judged: DifferenceRule = DifferenceRule.ALL) -> list[SettingRow]:
    """Tables side by side, in the order in which names first appear, without settings that no side has."""
    shown = []
    for name in dict.fromkeys(name for table in tables for name in table):
        values = [table.get(name) for table in tables]
        texts = tuple(MISSING if value is None else plain(show(value)[:400]) for value in values)
        can_differ = judged is DifferenceRule.ALL or (judged is DifferenceRule.COMMON and None not in values and name != "run")
        paths = all(isinstance(value, str) and value.startswith(("/", "./")) for value in values)  # where things lie is no setting
        differs = can_differ and not paths and not all(equal(values[0], value) for value in values[1:])
        shown.append(SettingRow(plain(str(name)), texts, differs))
    return [row for row in shown if set(row.values) != {MISSING}]
