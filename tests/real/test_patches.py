"""Frameworks patched by ``patches/`` record, with no recording hook attached, what hooks record: the same files, to the bit.

The rehearsal on a CPU is a hook of its own and stays on, for both; nothing else is asked of hooks in a patched run.
"""

import importlib.metadata
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from real import frameworks
from real.test_noninterference import OWN_DATA

PATCHES = frameworks.LAUNCH.parent / "patches"
STEPS = (0, 2)


def patched(where: Path, diff: str, package: str, distribution: str) -> dict[str, str]:
    """The environment in which a patched copy of an installed package comes first. Only changed files are copied."""
    installed = Path(str(importlib.metadata.distribution(distribution).locate_file(package)))
    shutil.copytree(installed, where / package, copy_function=os.symlink, ignore=shutil.ignore_patterns("__pycache__"))
    if (installed.parent / "configs").is_dir():  # MindFormers finds its defaults beside itself
        (where / "configs").symlink_to(installed.parent / "configs")
    for line in (PATCHES / diff).read_text().splitlines():
        if line.startswith("+++ b/"):
            file = where / line.removeprefix("+++ b/")
            source = file.resolve()
            file.unlink()
            shutil.copy(source, file)
    subprocess.run(["git", "apply", str(PATCHES / diff)], cwd=where, check=True)
    return {"PYTHONPATH": os.pathsep.join([str(where), os.environ.get("PYTHONPATH", "")])}


def content(path: Path) -> object:
    """A file's bytes, without the segment that they name, for a diff of a few lines knows no start of a job; of a batch's description what
    is said of what was fed, for it sees no token losses either."""
    whole = path.read_bytes()
    if path.suffix == ".safetensors":
        size = 8 + int.from_bytes(whole[:8], "little")
        header = json.loads(whole[8:size])
        header["__metadata__"].pop("segment", None)
        return header, whole[size:]
    if path.name == "batch.json":
        facts = json.loads(whole)
        facts.pop("segment", None)
        facts["arrays"].pop("token_losses", None)
        return facts
    return whole


def same(run: Path, by_patch: Path, output: str) -> None:
    """Every file that the patched run wrote is the recorded run's, and so are the norms that it printed."""
    assert not (by_patch / "run.json").exists() and not (by_patch / "manifest").exists()
    names = {path.relative_to(by_patch) for path in by_patch.rglob("*") if path.is_file()}
    assert {path.name for path in names} >= {"tokens.npy", "labels.npy", "loss_mask.npy", "batch.json", "gradients.safetensors"}
    assert {path.parts[0] for path in names if path.parts[0].startswith("step_")} == {f"step_{step}" for step in STEPS}
    for name in sorted(names):
        assert content(by_patch / name) == content(run / name), name
    recorded = open_run(run)
    for step in STEPS:
        lines = [line for line in output.splitlines() if f"local norm rank 0 step_{step} " in line]
        norms = recorded.local_norms(step)
        assert lines == [f"align_hooks: local norm rank 0 step_{step} (iteration {step + 1}) {name} {norms[name]:.9e}" for name in norms]
    assert np.array_equal(open_run(by_patch).batch(2).tokens, recorded.batch(2).tokens)


def asked(run: Path) -> dict[str, str]:
    return {"ALIGN_PATCH_RUN": str(run), "ALIGN_PATCH_STEPS": ",".join(map(str, STEPS))}


@pytest.mark.slow
def test_a_patched_megatron_writes_what_hooks_write(tmp_path: Path, reference: Path) -> None:
    environment = patched(tmp_path / "copy", "megatron.diff", "megatron", "megatron-core") | asked(tmp_path / "by_patch")
    done = frameworks.megatron(tmp_path, flags=("--seed", "42"), SEED=None, environment=environment).succeeded()
    assert "ALIGN_HOOKS_SEED" not in done.output
    same(reference, tmp_path / "by_patch", done.output)


@pytest.mark.slow
def test_a_patched_mindformers_writes_what_hooks_write(tmp_path: Path) -> None:
    script = frameworks.SCRIPTS / "witness_mindformers.py"
    columns = {key: ["input_ids"] for key in ("train_dataset.input_columns", "train_dataset.construct_args_key")}
    common = {"script": script, "change": OWN_DATA | columns}
    witness = {"WITNESS": str(tmp_path / "witness.npz")}
    frameworks.mindformers(tmp_path / "hooks", **common, environment=witness, RUN=tmp_path / "run", **frameworks.EVERYTHING).succeeded()
    environment = witness | patched(tmp_path / "copy", "mindformers.diff", "mindformers", "mindformers") | asked(tmp_path / "by_patch")
    done = frameworks.mindformers(tmp_path / "patch", **common, SEED=None, environment=environment).succeeded()
    same(tmp_path / "run", tmp_path / "by_patch", done.output)
