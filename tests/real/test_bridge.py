"""Megatron-Bridge's tiny recipe, recorded and fed. MEGATRON_BRIDGE names a folder with Megatron-Bridge (0.6.2) and its packages."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from align_hooks import Run, open_run
from real import frameworks

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not frameworks.MEGATRON_BRIDGE, reason=frameworks.NO_MEGATRON_BRIDGE)]
SCRIPT = frameworks.SCRIPTS / "bridge.py"
LAYOUTS = {
    "TP2, sequence-parallel": "model.tensor_model_parallel_size=2 model.sequence_parallel=true",
    "PP2": "model.pipeline_model_parallel_size=2",
    "CP2": "model.context_parallel_size=2",
    "DP2, distributed optimizer": (
        "optimizer.use_distributed_optimizer=true ddp.use_distributed_optimizer=true "
        "ddp.overlap_grad_reduce=true ddp.overlap_param_gather=true"
    ),
}


def bridge(
    where: Path, *, change: str = "", ranks: int = 1, environment: Mapping[str, str] | None = None, **variables: object
) -> frameworks.Ended:
    """Train Megatron-Bridge's recipe under ``python -m align_hooks.torch_side``; ``change`` are settings of it."""
    port = str(frameworks.free_port())
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", port] if ranks > 1 else []
    given = {"BRIDGE": change, "PYTHONPATH": str(frameworks.MEGATRON_BRIDGE), "CUDA_DEVICE_MAX_CONNECTIONS": "1", **(environment or {})}
    return frameworks.python(where, [*launcher, "-m", "align_hooks.torch_side", str(SCRIPT)], frameworks.REHEARSAL | variables, given)


@pytest.fixture(scope="module")
def recorded(real_corpus: Path) -> Run:
    return open_run(frameworks.recorded(bridge))


def test_its_steps_settings_and_versions_are_on_record(recorded: Run) -> None:
    assert recorded.steps == list(range(frameworks.STEPS))
    assert recorded.facts.planned_steps == frameworks.STEPS
    assert recorded.facts.versions["megatron.bridge"] == "0.6.2"
    assert recorded.facts.determinism["args.seed"] == 42
    assert recorded.facts.model["model_type"] == "llama"
    assert [row.consumed_samples for row in recorded.rows] == [4, 8, 12]


def test_megatron_fed_by_its_record_is_aligned(recorded: Run) -> None:
    fed = frameworks.recorded(frameworks.megatron, **frameworks.fed_by(recorded.path))
    frameworks.aligned(recorded.path, fed)


def test_fed_by_megatron_it_is_aligned(real_corpus: Path) -> None:
    megatron = frameworks.recorded(frameworks.megatron)
    fed = frameworks.recorded(bridge, change="train.train_iters=9", **frameworks.fed_by(megatron), INJECT_GRADIENTS=f"{megatron}@1")
    assert open_run(fed).steps == list(range(frameworks.STEPS))
    frameworks.aligned(megatron, fed)


@pytest.mark.parametrize("change", LAYOUTS.values(), ids=LAYOUTS)
def test_on_two_ranks_it_is_aligned_with_one(recorded: Run, change: str) -> None:
    frameworks.aligned(recorded.path, frameworks.recorded(bridge, change=change, ranks=2, **frameworks.fed_by(recorded.path)))


@pytest.mark.parametrize("change", ["", "mixed_precision=bf16_mixed"])
def test_recording_leaves_it_bitwise_as_it_was(real_corpus: Path, change: str) -> None:
    dropout = f"model.hidden_dropout=0.1 {change}"
    asked = ({}, {"RUN": "run"} | frameworks.EVERYTHING)
    environment = {"WITNESS": "witness.npz"}
    plain, watched = (frameworks.kept(bridge, change=dropout, environment=environment, **each).where for each in asked)
    with np.load(plain / "witness.npz") as one, np.load(watched / "witness.npz") as other:
        assert one["losses"].size == frameworks.STEPS
        assert len(one.files) > 15
        assert one.files == other.files
        assert all((one[name] == other[name]).all() for name in one.files)


def test_settings_change_its_configuration_and_are_said(real_corpus: Path) -> None:
    done = frameworks.kept(bridge, RUN="run", LOCAL_NORMS="all", LEARNING_RATE="2e-4", DETERMINISTIC="1")
    assert "args.lr: 0.001 -> 0.0002 (ALIGN_HOOKS_LEARNING_RATE)" in done.ours
    assert "model.transformer_layer_spec: default_layer_spec -> local_layer_spec (ALIGN_HOOKS_DEVICE)" in done.ours
    run = open_run(done.run)
    assert [row.learning_rate for row in run.rows] == [2e-4] * frameworks.STEPS
    assert run.facts.determinism["model.config.deterministic_mode"] is True
