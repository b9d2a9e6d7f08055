"""By which means the advice of each row is proven: ``python tests/checklist/proven.py`` writes the table of docs/checklist.md.

All advice is proven in closed loop (``test_closed_loop.py``): it is written as printed, and the check is run again. MindFormers' own
trainer builds each YAML too, without the advice and with it; what it builds differs in a field of a configuration, or of an object that
trains. What it builds nothing of here (older models but Llama's, a step of training) stands on its source alone.
"""

import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from align_hooks.checklist.judge import RowOutcome

sys.path.insert(0, str(Path(__file__).parents[1]))

from align_hooks.configuration.values import MINDFORMERS
from checklist.table import PAGE
from checklist.test_closed_loop import ALL, differing
from real.advice import FAMILIES
from real.test_mended import answers

START, END = "<!-- means: made by python tests/checklist/proven.py -->\n", "<!-- end of means -->\n"
CONFIGURATIONS = ("transformer", "model")
"""What of a built run are configurations: of a newer model, of an older one. The others are objects that train."""
OBJECT, CONFIGURATION, SOURCE = "an object that trains", "a built configuration", "source alone"


def means() -> dict[str, str]:
    """Row to the strongest proof that MindFormers reads its advice."""
    fields: dict[str, set[str]] = defaultdict(set)
    for family in FAMILIES:
        for case, without, with_them in answers(family):
            if "refused" not in with_them and "refused" not in without:
                before, after = without["built"], with_them["built"]
                fields[case.row] |= {name for name in before | after if before.get(name) != after.get(name)}
            else:
                fields[case.row] |= set()
    kinds = {row: {name.partition(".")[0] for name in changed} for row, changed in fields.items()}
    return {row: OBJECT if kind - {*CONFIGURATIONS} else CONFIGURATION if kind else SOURCE for row, kind in kinds.items()}


def closed() -> tuple[int, int, dict[str, bool]]:
    """Exercises whose advice is clean when it is written, all that have advice, and of each row whether all of its are."""
    clean, all_of_them, rows = 0, 0, dict[str, bool]()
    for case in ALL:
        before = case.check()
        told = [one for one in before.of(RowOutcome.DIFFERENT) if one.change is not None and one.change.is_safe]
        if not any(one.row.id == case.exercise.row for one in told):
            continue
        with tempfile.TemporaryDirectory() as folder:
            after = case.check(case.as_printed(before.edits, Path(folder)))
        right = case.exercise.row not in differing(after)
        all_of_them, clean = all_of_them + 1, clean + right
        if case.candidate == MINDFORMERS:
            rows[case.exercise.row] = rows.get(case.exercise.row, True) and right
    return clean, all_of_them, rows


def table() -> str:
    """How much of the advice is proven, and by which means."""
    clean, all_of_them, rows = closed()
    by = means()
    held = {kind: sorted(row for row in rows if by.get(row, SOURCE) == kind) for kind in (OBJECT, CONFIGURATION, SOURCE)}
    lines = [
        f"Of the {len(ALL)} exercises, either framework as candidate, {all_of_them} are told something to write; of these {clean} agree",
        f"when it is written as printed. For a YAML they are {len(rows)} rows, {sum(rows.values())} of them proven in this loop.",
        "MindFormers 1.9's own trainer was asked what it builds of each (`python tests/checklist/proven.py`):",
        "",
        "| what shows that the advice is read | rows | which |",
        "| --- | --- | --- |",
        *(f"| {kind} | {len(names)} | {', '.join(names)} |" for kind, names in held.items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    PAGE.write_text(f"{before}{START}\n{table()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
