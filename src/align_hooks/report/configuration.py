"""Configurations as rows, of one run or of two side by side: what was asked for, what was built, and what align_hooks changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import asdict

from align_hooks.compare.settings import equal, show
from align_hooks.compare.verdict import RunSummary
from align_hooks.messages import Message, message
from align_hooks.record.schema import Facts, Optimizer, Table
from align_hooks.report.text import plain

MISSING = "–"
ALL, FOUND, OWN = "all", "found on both sides", "each side's own"
"""Which settings of a group can differ: those that one side lacks too, those that both have, or none, for they are of a run alone."""
PER_GROUP = "parameters"


@dataclass(frozen=True, slots=True)
class Row:
    """One setting, a value a side; ``differs`` where the sides do not mean the same."""

    name: str
    values: tuple[str, ...]
    differs: bool


@dataclass(frozen=True, slots=True)
class Group:
    """Settings under a head; ``always`` are shown where differences only are asked for, too."""

    name: Message
    rows: list[Row]
    always: bool = False


def configurations(sides: Sequence[RunSummary]) -> list[Group]:
    """Groups of settings of one side or of two.

    Of the frameworks' own arguments, hundreds, only those that differ are shown, where both have the same names.
    """
    facts = [one.facts for one in sides]
    groups = [
        Group(message("page.group_run"), rows([about(one) for one in sides], OWN), always=True),
        Group(message("page.group_versions"), rows([one.versions for one in facts], FOUND), always=True),
        Group(message("page.group_model"), rows([one.model for one in facts])),
        Group(message("page.group_training"), rows([asdict(one.training) for one in facts])),
        Group(message("page.group_optimizer"), rows([optimizer(one.optimizer) for one in facts])),
        Group(message("page.group_determinism"), rows([one.determinism for one in facts], FOUND)),
        Group(message("page.group_asked_for"), rows([one.settings for one in facts], FOUND)),
        Group(message("page.group_changed"), rows([overrides(one) for one in facts], OWN)),
        Group(message("page.group_arguments"), unlike([one.arguments or {} for one in facts])),
        Group(message("page.group_environment"), unlike([one.environment for one in facts])),
    ]
    return [group for group in groups if group.rows]


def unlike(tables: Sequence[Mapping[str, object]]) -> list[Row]:
    """What differs of two tables that have most of their names in common; nothing of others."""
    shared = len(tables) == 2 and len(tables[0].keys() & tables[1].keys()) > len(tables[0]) / 2
    return [row for row in rows(tables) if row.differs] if shared else []


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


def optimizer(built: Optimizer | None) -> Table:
    """Hyper-parameters, those of each parameter group under its number and how many tensors it has."""
    if built is None:
        return {}
    found: Table = {key: value for key, value in asdict(built).items() if key != "groups"}
    for at, group in enumerate(built.groups):
        found |= {f"group {at}: {key}": len(value) if key == PER_GROUP else value for key, value in asdict(group).items()}
    return found


def overrides(facts: Facts) -> Table:
    """What a switch changed, and which."""
    return {str(one.what): f"{one.before} → {one.after} ({one.why})" for one in facts.overrides}


def rows(tables: Sequence[Mapping[str, object]], differing: str = ALL) -> list[Row]:
    """Tables side by side, in the order in which names first appear; ``differing`` says what counts as a difference."""
    names = dict.fromkeys(name for table in tables for name in table)
    found = []
    for name in names:
        values = [table.get(name) for table in tables]
        judged = differing == ALL or (differing == FOUND and None not in values and name != "run")
        judged = judged and not all(
            isinstance(one, str) and one.startswith(("/", "./")) for one in values
        )  # where things lie is no setting
        shown = tuple(MISSING if name not in table or table[name] is None else plain(show(table[name])[:400]) for table in tables)
        found.append(Row(plain(str(name)), shown, judged and not all(equal(values[0], one) for one in values[1:])))
    return [row for row in found if set(row.values) != {MISSING}]
