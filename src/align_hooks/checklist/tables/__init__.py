"""The rows of the CheckList, a file a group, and all of them in the order in which a person mends them: what others rest on comes first."""

from __future__ import annotations

from align_hooks.checklist.row import CheckRow
from align_hooks.checklist.tables.control import CONTROL, ENVIRONMENT, SETUP
from align_hooks.checklist.tables.data import DATA
from align_hooks.checklist.tables.experts import EXPERTS
from align_hooks.checklist.tables.optimizer import OPTIMIZER
from align_hooks.checklist.tables.parallel import PARALLEL
from align_hooks.checklist.tables.precision import FEATURES, PRECISION
from align_hooks.checklist.tables.structure import STRUCTURE

ROWS: tuple[CheckRow, ...] = (*STRUCTURE, *EXPERTS, *DATA, *PRECISION, *PARALLEL, *OPTIMIZER, *FEATURES, *ENVIRONMENT, *CONTROL, *SETUP)
GROUPS = tuple(dict.fromkeys(row.group for row in ROWS))
ROW = {row.id: row for row in ROWS}
"""Every row by its id."""
