"""The doctor on the real frameworks: what it finds is what a run finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from align_hooks import open_run
from align_hooks.configuration.source import read
from align_hooks.doctor.size import of_configuration, of_run
from align_hooks.ms_side.catalogue import HOOKS as MS_HOOKS
from align_hooks.torch_side.catalogue import HOOKS as TORCH_HOOKS
from real.frameworks import LAUNCH, TIMEOUT


def doctor(where: Path, *words: str, **variables: object) -> tuple[int, str, dict[str, Any]]:
    """Exit code, text and JSON of ``align-hooks doctor``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ALIGN_HOOKS_")}
    asked = {f"ALIGN_HOOKS_{name}": str(value) for name, value in variables.items()}
    command = [sys.executable, "-m", "align_hooks", "doctor", *words, "--json", str(where / "doctor.json")]
    done = subprocess.run(command, cwd=where, env=kept | asked, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout, json.loads((where / "doctor.json").read_text())


def test_a_machine_that_is_ready(tmp_path: Path, reference: Path) -> None:
    """Every seam of the installed frameworks is found, and what a record says of its size is held against the disk."""
    fed = {"LOAD_WEIGHTS": reference, "REPLAY_BATCHES": reference}
    code, text, found = doctor(tmp_path, DEVICE="cpu", RUN=tmp_path / "run", LOCAL_NORMS="all", WEIGHTS="0-3", **fed)
    assert (code, text.splitlines()[0]) == (0, "ready: Megatron-LM and MindFormers"), text
    states = {hook["name"]: hook["state"] for one in found["frameworks"] for hook in one["hooks"]}
    assert states == {hook.name: "found" for hook in (*TORCH_HOOKS, *MS_HOOKS)} | dict.fromkeys(
        ["rehearsal_fused_kernels", "mindspeed"], "not there"
    )
    assert not (tmp_path / "run").exists()  # it claims nothing
    assert "21 tensors" in text
    assert "4 times 107 k parameters in fp32" in " ".join(text.split())


def test_the_size_that_a_configuration_describes_is_that_of_the_built_model(reference: Path) -> None:
    recorded = of_run(open_run(reference))
    for name in ("llama.args", "llama.yaml"):
        described = of_configuration(read(str(LAUNCH / name), {}))
        assert (described.elements, described.tokens, described.parts) == (recorded.elements, recorded.tokens, recorded.parts)
