"""Every command of every page that trains, as it stands and in its order, on a CPU: each ends as its page says."""

from pathlib import Path

import pytest

from docs import prepared
from docs.commands import ROWS, Row
from docs.running import run
from real.frameworks import free_port

HOUR = 3600


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in ROWS if row.trains], ids=lambda row: row.page)
def test_every_command_ends_as_its_page_says(row: Row, tmp_path: Path) -> None:
    arguments = f"{(prepared.LAUNCH / 'llama.args').read_text()} --data-path data/corpus".split()
    rehearsal = {"ALIGN_HOOKS_DEVICE": "cpu", "ARGS": " ".join(arguments), "PET_MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    wrong = run(row, tmp_path, rehearsal, HOUR)
    assert not wrong, "\n".join(wrong)
