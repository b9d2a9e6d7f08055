"""The keys of a check in JSON, texts in English, and under ``messages`` as data. Bump ``FORMAT`` when a meaning changes."""

from __future__ import annotations

from align_hooks.checklist.edits import Edit, Form, SuggestedEdit
from align_hooks.checklist.judge import JudgedRow
from align_hooks.checklist.result import CheckedSide, Checklist, Course, counts
from align_hooks.checklist.row import SideValue
from align_hooks.checklist.uncovered import Uncovered
from align_hooks.messages import as_data, rendered
from align_hooks.record.batch_statistics import BatchStatistics
from align_hooks.report.check import advice
from align_hooks.report.check_fix import block_of
from align_hooks.report.json import Shape, Shapes

FORMAT = 2
JSON: Shapes = {
    Checklist: Shape(
        """verdict=judgement! exit_code counts rows=checked to_write courses sides data* data_alike=same_batches
        differ_and_not_covered=setting_differences built_otherwise=built messages""",
        counts=lambda checklist: {rendered(outcome): count for outcome, count in counts(checklist).items()},
        to_write=lambda checklist: to_write[1] if (to_write := block_of(checklist)) is not None else "",
    ),
    JudgedRow: Shape(
        """id=row.id name=row.name! group=row.group! outcome! effect=row.effect! reference candidate why! change=change.words!
        advised! by_hand! sources=row.sources advised_against=advised ids messages""",
        advised=advice,
        ids=lambda checked: {"group": checked.row.group, "outcome": checked.outcome, "effect": checked.row.effect},
        messages=lambda checked: {
            "why": as_data(checked.why),
            "change": checked.change,
            "advice": as_data(checked.row.advice.text if checked.row.advice is not None else None),
            "by_hand": as_data(checked.by_hand),
        },
    ),
    SuggestedEdit: Shape("action key value@ edits parts=breaks@ why@"),
    Edit: Shape("form key=name value", value=lambda edit: None if edit.form is Form.LEAVE_OUT else edit.value),
    SideValue: Shape("value=shown* where* why* messages"),
    Course: Shape("name! same text* schedules* steps reference candidate differing first most id=name messages"),
    CheckedSide: Shape("framework source recorded notes* traps=pitfalls* gaps* not_covered data=statistics messages"),
    Uncovered: Shape("name value! where matters"),
    BatchStatistics: Shape("steps rows tokens counted smallest largest shifted pairs special problems* notes* decoded messages"),
}
