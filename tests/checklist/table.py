"""The table of docs/checklist.md, from the rows themselves: ``python tests/checklist/table.py``."""

import sys
from pathlib import Path
from typing import Any

from align_hooks.checklist.canonical_values import UNSET
from align_hooks.checklist.row import CheckRow, SideSpec
from align_hooks.checklist.tables import GROUPS, ROWS

sys.path.insert(0, str(Path(__file__).parents[1]))

from align_hooks.configuration.megatron import RENAMED
from align_hooks.data_file import sections
from align_hooks.messages import Argument, rendered
from checklist.exercises import ALONE, EXERCISES

PAGE = Path(__file__).parents[2] / "docs" / "checklist.md"
START, END = "<!-- rows: made by python tests/checklist/table.py -->\n", "<!-- end of rows -->\n"
SHORT = "model.model_config."


def flag(attribute: str) -> str:
    """A flag of an attribute of Megatron's."""
    return "--" + next((name for name, (renamed, _) in RENAMED.items() if renamed == attribute), attribute).replace("_", "-")


def noted(side: str) -> dict[str, str]:
    """Row to what is to be known of a side's value."""
    notes = (line.split(": ", 1) for line in sections(Path(__file__).with_name("notes.txt"))[side])
    return {id: words for ids, words in notes for id in ids.split()}


MEGATRON, MINDFORMERS = map(noted, ("megatron", "mindformers"))


def side(spec: SideSpec, keys: list[str], note: str) -> str:
    """One side of a row: names, what holds without them, and what is to be known."""
    if spec.fixed is not UNSET:
        return f"always {spec.fixed}" + (f" ({note})" if note else "")
    names = ", ".join(f"`{key}`" for key in dict.fromkeys(keys))
    default = "" if spec.default is UNSET or callable(spec.default) or spec.default is None else f"else {spec.default}"
    return "; ".join(filter(None, (names, default, note))) or "–"


def line(row: CheckRow) -> str:
    """A row of the table."""
    advice: Argument = row.advice.text if row.advice is not None else None
    cells: list[Any] = [
        rendered(row.name),
        side(row.megatron, [flag(key) for key in row.megatron.keys if "." not in key], MEGATRON.get(row.id, "")),
        side(row.mindformers, [key.removeprefix(SHORT) for key in row.mindformers.keys], MINDFORMERS.get(row.id, "")),
        rendered(row.effect),
        "; ".join(filter(None, (rendered(advice), f"by hand: {rendered(row.by_hand)}" if row.by_hand is not None else ""))),
        "; ".join(row.sources),
        tested(row),
    ]
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def tested(row: CheckRow) -> str:
    """The test that exercises a row."""
    if any(exercise.row == row.id for exercise in EXERCISES):
        return "`test_rows.py::test_row`"
    if row in ALONE:
        return "`test_rows.py::test_what_only_megatron_can_be_told_is_a_difference_where_it_is`"
    if row.advice is not None and row.advice.setup:
        return "`test_rows.py::test_set_ups`"
    return "`test_records.py`"


def table() -> str:
    """All rows, a table a group."""
    parts = []
    for group in GROUPS:
        name = rendered(group)
        rows = [row for row in ROWS if row.group is group]
        head = "| row | Megatron-LM | MindFormers | a difference changes | the guide's advice | asked for by | test |\n"
        parts.append(f"### {name[0].upper()}{name[1:]}\n\n{head}| --- | --- | --- | --- | --- | --- | --- |\n" + "\n".join(map(line, rows)))
    return "\n\n".join(parts) + "\n"


def page(text: str) -> str:
    """The page with its table made anew."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
