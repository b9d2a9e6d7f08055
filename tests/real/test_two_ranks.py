"""The stand-in by which MindFormers' PyNative trainer trains in processes of a CPU: they train the model of one process.

``scripts/hyper_stand_in`` stands for hyper-parallel and for MindSpore's communication. What is recorded of them is in
:mod:`.test_pynative_ranks`; here recording must leave every number as it is.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from real import frameworks
from real.frameworks import EVERYTHING, SCRIPTS

SHORT = {"training.steps": 2, "training.global_batch_size": 4, "training.local_batch_size": 1, "model.seq_length": 32}
"""Two steps, of which a process reads single rows."""
TP = {"parallelism.tensor_parallel": 2, "parallelism.sequence_parallel": True}
CASES: dict[str, tuple[str, int, Mapping[str, object]]] = {
    "cut": ("qwen3", 2, {}),
    "copied": ("qwen3", 2, {"parallelism.data_parallel_shard": 1}),
    "tensors": ("qwen3", 2, TP),
    "tensors, cut": ("qwen3", 4, TP),
    "experts": ("deepseek_v3", 2, {"parallelism.expert_parallel": 2}),
    "tensors and experts": ("deepseek_v3", 2, {**TP, "parallelism.expert_parallel": 2}),
}
"""By a name the family, the processes, and what the YAML has."""
COUNTS = "tokens_per_expert"
"""The end of names of what each process counts for itself within a step."""

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_corpus")]


def parts_of_ranks(where: Path, *, family: str, ranks: int, change: Mapping[str, object], **variables: object) -> frameworks.Ended:
    """Train by ``scripts/parts_of_ranks.py``, which writes whole tensors into ``parts``; attached to where there are variables."""
    words = [f"{key}={value}" for key, value in {**SHORT, **change}.items()]
    script = [str(SCRIPTS / "parts_of_ranks.py"), str(frameworks.launched(f"pynative/{family}", "yaml")), str(where / "parts"), *words]
    environment = {"PYTHONPATH": str(frameworks.wheel("mindformers", "2.1.0"))}
    if ranks == 1:
        return frameworks.program(where, [sys.executable, *script], {}, environment)
    workers = (f"--worker_num={ranks}", f"--local_worker_num={ranks}")
    options = (*workers, f"--master_port={frameworks.free_port()}", "--log_dir=logs", "--join=True")
    attached = [sys.executable, "-m", "align_hooks", "run", "--"] if variables else []
    command = [*attached, "msrun", *options, str(SCRIPTS / "two_ranks.py"), *script]
    return frameworks.program(where, command, variables, environment)


def trained(family: str, ranks: int = 1, change: Mapping[str, object] | None = None, **variables: object) -> Path:
    """Where a training has written its tensors."""
    return frameworks.kept(parts_of_ranks, family=family, ranks=ranks, change=dict(change or {}), **variables).where / "parts"


def tensors(where: Path, name: str) -> dict[str, np.ndarray]:
    with np.load(where / f"{name}.npz") as held:
        return {each: held[each] for each in held.files if not each.endswith(COUNTS)}


@pytest.mark.parametrize("case", CASES)
def test_processes_train_the_model_of_one(case: str) -> None:
    family, ranks, change = CASES[case]
    one, many = trained(family), trained(family, ranks, change)
    losses = [[json.loads(line)["loss"] for line in (where / "losses0.jsonl").read_text().splitlines()] for where in (one, many)]
    np.testing.assert_allclose(*losses, rtol=1e-6)
    assert frameworks.furthest(tensors(one, "gradients0"), tensors(many, "gradients0")) < 1e-6
    # Adam's first step is the sign of a gradient, of some elements nearly 0; a wrong part is off by 1e-1
    assert frameworks.furthest(tensors(one, "weights2"), tensors(many, "weights2")) < 1e-4
    parts = [json.loads((many / f"parts{rank}.json").read_text()) for rank in range(ranks)]
    held = [{name: sum(np.prod([stop - start for start, stop in box]) for _, _, box, _ in [part[name]]) for name in part} for part in parts]
    whole = {name: np.prod(shape) for name, (_, _, _, shape) in parts[0].items()}
    assert any(0 < each[name] < whole[name] for each in held for name in each) is (case != "copied")


@pytest.mark.parametrize("case", ["cut", "tensors", "experts"])
def test_recording_leaves_every_number_as_it_is(case: str) -> None:
    family, ranks, change = CASES[case]
    asked = EVERYTHING | {"ACTIVATIONS": None if case == "tensors" else "all", "ROUTING": "all" if case == "experts" else None}
    plain, recorded = trained(family, ranks, change), trained(family, ranks, change, RUN="run", **asked)
    files = sorted(file.name for file in plain.glob("*.npz"))
    assert len(files) == 5  # gradients and weights of two steps, and an empty one
    for name in files:
        ours, theirs = (tensors(where, Path(name).stem) for where in (plain, recorded))
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[each], theirs[each]) for each in ours), name
    for rank in range(ranks):
        name = f"losses{rank}.jsonl"
        assert (plain / name).read_text() == (recorded / name).read_text() != ""
    run = open_run(recorded.parent / "run")
    assert list(run.steps) == [0, 1] and run.gradient_steps() == [0, 1] and run.self_check.contradictions == ()
