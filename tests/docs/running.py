"""The commands of a page, run in one bash, each with what it printed and what it ended with."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from docs import prepared
from docs.blocks import Command, commands
from docs.commands import Row, why_not

FOREIGN = ("ALIGN_HOOKS_", "_ALIGN_HOOKS_", "MASTER_", "RANK", "WORLD_SIZE", "PET_")
"""What no command inherits."""
TAIL = 3000
"""Characters of what a command printed that are shown when it does not end as its page says."""


def run(row: Row, where: Path, environment: Mapping[str, str], timeout: int) -> list[str]:
    """Run a page's commands; returns what did not end as it should, each in a line followed by the end of what it printed."""
    for name in row.prepared:
        getattr(prepared, name)(where)
    asked = [command for command in commands(row.page) if not why_not(row.page, command.text)]
    lines = ["set -o pipefail", "mkdir said"]
    for number, command in enumerate(asked):
        lines += [f"exec > said/{number} 2>&1", command.text, f"echo $? > said/{number}.code"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    clean["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{clean['PATH']}"
    subprocess.run(["bash", "-c", "\n".join(lines)], cwd=where, env=clean | environment | row.environment, timeout=timeout, check=False)
    return [said for number, command in enumerate(asked) if (said := otherwise(row, command, where / "said" / str(number)))]


def otherwise(row: Row, command: Command, said: Path) -> str:
    """How a command ended, where that is not how it should."""
    code = said.with_suffix(".code")
    ended = code.read_text().strip() if code.exists() else "nothing: it never ended"
    wanted = next((ends for begins, ends in row.ends.items() if command.text.startswith(begins)), command.ends)
    if ended == str(wanted):
        return ""
    return f"{command.text}\n  ended with {ended}, not with {wanted}:\n{said.read_text(errors='replace')[-TAIL:] if said.exists() else ''}"
