"""A real ``pretrain_gpt.py`` from a Megatron-LM checkout, unmodified. MEGATRON_LM names the checkout (core_v0.19.0)."""

import os
import subprocess
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.record.check.contradictions import ContradictionKind
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


MAIN = Path(os.environ.get("MEGATRON_LM_MAIN", "/nonexistent"))
"""A checkout of Megatron-LM's main branch, 0.20.0 at commit d98e8a64."""
VERSION_2 = {
    **{"--use-megatron-fsdp": "", "--megatron-fsdp-version": "2", "--ckpt-format": "fsdp_dtensor"},
    **{"--data-parallel-sharding-strategy": "optim_grads_params", "--micro-batch-size": "1"},
}
"""Megatron-FSDP 2, which megatron-core of the package index lacks."""


@pytest.mark.slow
@pytest.mark.skipif(not (MAIN / "pretrain_gpt.py").exists(), reason="MEGATRON_LM_MAIN names no checkout of Megatron-LM's main branch")
@pytest.mark.parametrize("ranks", [2, 4])
def test_shards_of_megatron_fsdp_2_are_those_of_one_rank(ranks: int, tmp_path: Path, real_corpus: Path) -> None:
    unclipped = {"--clip-grad": "0"}
    one = frameworks.recorded(frameworks.megatron, change=unclipped)
    fed = run_of_version_2(tmp_path, unclipped, ranks, one)
    frameworks.aligned(one, fed)


@pytest.mark.slow
@pytest.mark.skipif(not (MAIN / "pretrain_gpt.py").exists(), reason="MEGATRON_LM_MAIN names no checkout of Megatron-LM's main branch")
def test_its_norm_that_is_reduced_twice_is_named(tmp_path: Path, real_corpus: Path) -> None:
    """Megatron-LM mended it later (#6489)."""
    fed = run_of_version_2(tmp_path, {}, 2, frameworks.recorded(frameworks.megatron))
    found = open_run(fed).self_check.contradictions
    assert {each.kind for each in found} == {ContradictionKind.NORM_TAKEN_AGAIN}
    assert [each.first.value / each.second.value for each in found] == pytest.approx([2**0.5] * frameworks.STEPS, rel=1e-5)


def run_of_version_2(where: Path, change: dict[str, str], ranks: int, one: Path) -> Path:
    """A run on several ranks, fed from one."""
    frameworks.megatron(
        where,
        script=MAIN / "pretrain_gpt.py",
        change=change | VERSION_2,
        ranks=ranks,
        environment={"PYTHONPATH": str(MAIN), "CUDA_DEVICE_MAX_CONNECTIONS": "8"},
        RUN=where / "run",
        **{**frameworks.EVERYTHING, **frameworks.fed_by(one)},
    ).succeeded()
    return where / "run"
