"""The zoo as data: the cases of ``cases.txt``, of ``held_out.txt``, which were written before ``compare`` had ever been run on them, and of
``of_families.txt``, of families other than Llama."""

from pathlib import Path
from typing import Any

from align_hooks.data_file import sections, setting
from checklist.exercises import arguments, keys
from real.advice import long
from zoo import held_out, of_families
from zoo.case import MEGATRON, Case, Reference

MUON = {"--optimizer": "muon", "--muon-fp32-matmul-prec": "high"}
SHARED = held_out.REFERENCES | {"muon": Reference(MUON)}
"""References whose flags and ranks their cases of Megatron have too."""
SCRIPTS = {"cases.txt": "", "held_out.txt": "planted_held_out.py", "of_families.txt": "planted_in_families.py"}
"""Which script of Megatron a table's plants are of, where it is not that of all others."""


def cases(head: str) -> tuple[Case, ...]:
    """The rows of all tables below a head."""
    rows = [(name, [*map(str.strip, line.split("|"))]) for name in SCRIPTS for line in sections(Path(__file__).with_name(name))[head]]
    if head == "honest":
        rows = [(name, [*cells[:2], head, "", "", *cells[2:]]) for name, cells in rows]
    return tuple(case(SCRIPTS[table], *cells) for table, cells in rows)


def case(script: str, name: str, title: str, kind: str, stage: str, culprit: str, *fields: str) -> Case:
    """The case of a row."""
    given: dict[str, Any] = {field: setting(value) for field, _, value in (cell.partition(" ") for cell in fields)}
    for field in {"flags", "earlier"} & given.keys():
        given[field] = arguments(given[field])
    given["change"] = {long(key): value for key, value in keys(given.get("change", "")).items()}
    on_megatron = given.setdefault("side", MEGATRON) == MEGATRON
    if "plant" in given:
        given = {"script": script if on_megatron else "", **given, "plant": given["plant"] or name}
    if "family" in given:
        given.setdefault("reference", f"{given['family']}_ms" if on_megatron else given["family"])
    if on_megatron and (shared := SHARED.get(given.get("reference", ""))):
        given = {"ranks": shared.ranks, **given, "flags": {**shared.flags, **given.get("flags", {})}}
    return Case(name, title, kind, stage, tuple(filter(None, culprit.split(", "))), **given)


REFERENCES = {
    "plain": Reference(start=""),
    "masked": Reference(fed="plain", batches="masked"),
    "warming": Reference({"--lr-warmup-iters": "2"}),
}
REFERENCES |= SHARED | of_families.REFERENCES
FAULTS, HONEST = cases("faults"), cases("honest")
CASES = {case.name: case for case in FAULTS + HONEST}
