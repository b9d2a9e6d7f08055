"""Every command of the guide page, as it stands and in its order, in one bash: it ends as the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from real.frameworks import LAUNCH

PAGE = LAUNCH.parent / "docs" / "guide.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TRAP = "trap 'echo \"$? $BASH_COMMAND\" >> failed' ERR\n"
"""Notes every command that does not end with 0, and what it ends with."""
SAYS = re.compile(r"^(?P<command>\S.*?) +# ends with (?P<code>\d)", re.MULTILINE)


@pytest.mark.slow
def test_every_command_of_the_guide_page_ends_as_it_says(tmp_path: Path) -> None:
    (tmp_path / "launch").symlink_to(LAUNCH)
    script = TRAP + "\n".join(BLOCK.findall(PAGE.read_text(encoding="utf-8")))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ALIGN_HOOKS_")}
    environment = kept | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with (tmp_path / "log").open("w") as log:
        command = ["bash", "-o", "pipefail", "-c", script]
        subprocess.run(command, cwd=tmp_path, env=environment, stdout=log, stderr=log, timeout=3600, check=False)
    expected = [f"{ending['code']} {ending['command']}" for ending in SAYS.finditer(script) if ending["code"] != "0"]
    assert expected
    failed = tmp_path / "failed"
    assert (failed.read_text().splitlines() if failed.exists() else []) == expected, (tmp_path / "log").read_text()[-6000:]
