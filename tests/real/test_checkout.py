"""A real ``pretrain_gpt.py`` from a Megatron-LM checkout, unmodified. MEGATRON_LM names the checkout (core_v0.19.0)."""

import os
import subprocess
from pathlib import Path

import pytest

from align_hooks import open_run
from real import frameworks

CHECKOUT = Path(os.environ.get("MEGATRON_LM", "/nonexistent"))


@pytest.mark.skipif(not (CHECKOUT / "pretrain_gpt.py").exists(), reason="MEGATRON_LM names no Megatron-LM checkout")
def test_an_unmodified_pretrain_gpt_is_recorded_as_ours_is(tmp_path: Path, reference: Path) -> None:
    before = listing()
    script, environment = CHECKOUT / "pretrain_gpt.py", {"PYTHONPATH": str(CHECKOUT)}
    frameworks.megatron(tmp_path, script=script, environment=environment, RUN=tmp_path / "run", **frameworks.EVERYTHING).succeeded()
    assert listing() == before
    ours, theirs = open_run(reference), open_run(tmp_path / "run")
    assert theirs.facts.versions["megatron-core"].startswith("0.19")
    assert [row["loss"] for row in ours.scalars()] == [row["loss"] for row in theirs.scalars()]
    frameworks.aligned(reference, tmp_path / "run")


def listing() -> str:
    """Every python file of the checkout with its digest."""
    command = ["sh", "-c", "find . -name '*.py' -print0 | sort -z | xargs -0 sha256sum"]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
