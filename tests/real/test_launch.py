"""The scripts and presets of ``launch/`` with the real frameworks on a CPU: each pair of presets ends with a verdict.

Not tried here, for want of the hardware: torchrun on a GPU, msrun on an Ascend card.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from align_hooks import compare, open_run
from align_hooks.comparison.stage_result import Status
from real import frameworks
from real.frameworks import LAUNCH, Ended

PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
LARGE = {
    **{"--num-layers": "3", "--train-iters": "5", "--lr-decay-style": "cosine", "--lr-warmup-fraction": "0.4", "--min-lr": "0"},
    **{"--attention-dropout": None, "--hidden-dropout": "0.2", "--exit-interval": "3"},
}
"""What stage 1 of the guide takes out of llama.args: None leaves Megatron its default, a tenth."""


def megatron(where: Path, change: dict[str, str | None]) -> list[str]:
    """The words of a Megatron command: script and arguments."""
    return [str(LAUNCH / "pretrain_gpt.py"), *frameworks.arguments(where, change)]


def mindformers(where: Path, *, layers: int = 2, ranks: int = 1) -> list[str]:
    """The words of a MindFormers command."""
    config = yaml.safe_load((LAUNCH / "llama.yaml").read_text())
    config["model"]["model_config"]["num_layers"] = layers
    config["lr_schedule"]["total_steps"] = 3
    if ranks > 1:
        config |= {"use_parallel": True, "parallel": {"parallel_mode": 0, "gradients_mean": True}}
        config["parallel_config"] = {"data_parallel": ranks}
    if layers != 2:
        config["lr_schedule"] |= {"type": "CosineWithWarmUpLR", "warmup_ratio": 0.4}
        config["callbacks"].append({"type": "CheckpointMonitor", "save_checkpoint_steps": 1})
    where.mkdir(parents=True, exist_ok=True)
    (where / "llama.yaml").write_text(yaml.safe_dump(config))
    return [str(LAUNCH / "run_mindformer.py"), "--config", str(where / "llama.yaml")]


def launch(where: Path, command: Sequence[object], run: Path, reference: Path | None = None, **variables: str) -> Ended:
    """Start a script of ``launch/`` as a user does, with RUN and REFERENCE."""
    where.mkdir(parents=True, exist_ok=True)
    named = {"RUN": str(run)} | ({"REFERENCE": str(reference)} if reference else {})
    return frameworks.program(where, [str(word) for word in command], {}, named | variables)


def recorded(where: Path, preset: str, name: str = "reference", **variables: str) -> Path:
    """What Megatron records under a preset on a CPU."""
    launch(where, [LAUNCH / "cpu.sh", "torch", preset, *megatron(where, {})], where / name, **variables).succeeded()
    return where / name


@pytest.mark.slow
def test_step1_of_a_shrunk_pair(tmp_path: Path) -> None:
    reference, candidate = tmp_path / "reference", tmp_path / "candidate"
    shrink = [sys.executable, LAUNCH / "shrink.py", LAUNCH / "cpu.sh"]
    saved = {"--save": str(tmp_path / "prod"), "--save-interval": "1"}
    done = launch(tmp_path, [*shrink, "torch", "step1_reference", *megatron(tmp_path, LARGE | saved)], reference).succeeded()
    assert "shrink: --num-layers: 3 -> 2 (guide, stage 1)" in done.output
    assert not (tmp_path / "prod").exists()
    command = [*shrink, "ms", "step1_candidate", *mindformers(tmp_path / "ms", layers=3)]
    done = launch(tmp_path / "ms", command, candidate, reference).succeeded()
    assert "shrink: model.model_config.num_layers: 3 -> 2 (guide, stage 1)" in done.output
    for run in (open_run(reference), open_run(candidate)):
        assert run.facts.model["num_hidden_layers"] == 2
        assert [row["learning_rate"] for row in run.scalars()] == pytest.approx([1e-3] * 3, rel=1e-7)
    assert json.loads((reference / "run.json").read_text())["arguments"]["hidden_dropout"] == "0.0"
    assert not list((tmp_path / "ms").glob("output/checkpoint/**/*.ckpt"))
    frameworks.aligned(reference, candidate)


@pytest.mark.slow
def test_three_injected_updates_under_torchrun(tmp_path: Path) -> None:
    reference, candidate = tmp_path / "reference", tmp_path / "candidate"
    command = [LAUNCH / "torchrun.sh", "optimizer_reference", *megatron(tmp_path, {})]
    launch(tmp_path, command, reference, ALIGN_HOOKS_DEVICE="cpu").succeeded()
    command = [LAUNCH / "cpu.sh", "ms", "optimizer_candidate", *mindformers(tmp_path / "ms")]
    launch(tmp_path / "ms", command, candidate, reference).succeeded()
    frameworks.aligned(reference, candidate)
    assert frameworks.stage(compare(reference, candidate), "weights after an update").status is Status.SAME


def at_once(*commands: Callable[[], Ended]) -> list[Ended]:
    """The ends of commands that wait for each other, as the nodes of a job do."""
    with ThreadPoolExecutor(len(commands)) as pool:
        return [ended.succeeded() for ended in list(pool.map(lambda command: command(), commands))]


@pytest.mark.slow
def test_two_nodes_that_share_no_directory_are_carried_together(tmp_path: Path) -> None:
    """Two nodes of torchrun, which are two of its processes on this machine: what they write never meets."""
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(frameworks.free_port()), "GPUS_PER_NODE": "1", "ALIGN_HOOKS_DEVICE": "cpu"}
    script, *words = megatron(tmp_path, {})

    def node(rank: int) -> Ended:
        variables = meet | {"NODE_RANK": str(rank), "SCRIPT": script, "PRESET": "step1_candidate", "ALIGN_HOOKS_BATCHES": "0-2"}
        command = [LAUNCH / "examples/gpu_nodes.sh", *words]
        return launch(tmp_path / f"at{rank}", command, tmp_path / f"node{rank}", reference, **variables)

    reference = recorded(tmp_path, "step1_reference", ALIGN_HOOKS_BATCHES="0-2")
    at_once(lambda: node(0), lambda: node(1))
    missing = open_run(tmp_path / "node0").missing
    assert missing is not None and missing.rank == 1
    for rank in (0, 1):
        shutil.copytree(tmp_path / f"node{rank}", tmp_path / "run", dirs_exist_ok=True)
    assert open_run(tmp_path / "run").problems == []
    frameworks.aligned(reference, tmp_path / "run")


SLURM = {
    "srun": """\
#!/usr/bin/env bash
shift  # --export=ALL
for task in 0 1; do SLURM_PROCID=$task SLURM_LOCALID=0 "$@" & tasks+=($!); done
for task in "${tasks[@]}"; do wait "$task" || exit; done
""",
    "scontrol": "#!/usr/bin/env bash\nprintf '127.0.0.1\\nnode1\\n'\n",
}


@pytest.mark.slow
def test_slurm_tasks_with_no_torchrun_are_the_ranks_of_one_run(tmp_path: Path) -> None:
    """Slurm is a stand-in here: it starts two tasks, with what it would tell them of themselves."""
    (tmp_path / "bin").mkdir()
    for name, text in SLURM.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[0-1]", "SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS": "2"}
    slurm |= {"PATH": f"{tmp_path}/bin:{PATH}", "MASTER_PORT": str(frameworks.free_port())}
    script, *words = megatron(tmp_path, {})
    reference = recorded(tmp_path, "step1_reference", ALIGN_HOOKS_BATCHES="0-2")
    slurm |= {"LAUNCH": str(LAUNCH), "SCRIPT": script, "PRESET": "step1_candidate", "ALIGN_HOOKS_BATCHES": "0-2"}
    command = [LAUNCH / "examples/slurm_megatron_tasks.sbatch", *words]
    launch(tmp_path, command, tmp_path / "run", reference, ALIGN_HOOKS_DEVICE="cpu", **slurm).succeeded()
    run = open_run(tmp_path / "run")
    assert run.problems == []
    assert [manifest.launch.world_size for manifest in run.manifests.values()] == [2, 2]
    assert {"SLURM_JOB_ID=7" in manifest.launch.job for manifest in run.manifests.values()} == {True}
    frameworks.aligned(reference, tmp_path / "run")


@pytest.mark.slow
def test_weights_not_updated_under_msrun(tmp_path: Path) -> None:
    reference, candidate = recorded(tmp_path, "weights_not_updated_reference"), tmp_path / "candidate"
    command = [LAUNCH / "msrun.sh", "weights_not_updated_candidate", *mindformers(tmp_path / "ms", ranks=2)]
    variables = {"ALIGN_HOOKS_DEVICE": "cpu", "WORKER_NUM": "2", "MASTER_PORT": str(frameworks.free_port())}
    launch(tmp_path / "ms", command, candidate, reference, **variables).succeeded()
    assert [row["learning_rate"] for row in open_run(candidate).scalars()] == [0.0] * 3
    frameworks.aligned(reference, candidate)


@pytest.mark.slow
def test_msrun_without_use_parallel_is_refused(tmp_path: Path) -> None:
    command = [LAUNCH / "msrun.sh", "benchmark_error", *mindformers(tmp_path / "ms")]
    done = launch(tmp_path / "ms", command, tmp_path / "run", ALIGN_HOOKS_DEVICE="cpu", MASTER_PORT=str(frameworks.free_port()))
    assert "align_hooks: msrun started this with use_parallel off, so its scheduler trains as well; set use_parallel: True" in done.output
    assert done.code


@pytest.mark.slow
def test_the_benchmark_twice(tmp_path: Path) -> None:
    runs = [recorded(tmp_path, "benchmark_error", name) for name in ("first", "second")]
    assert all(open_run(run).facts.determinism["torch.are_deterministic_algorithms_enabled"] is False for run in runs)
    frameworks.aligned(*runs)


@pytest.mark.slow
def test_megatrons_parser_has_the_flags_that_shrink_knows(tmp_path: Path) -> None:
    done = frameworks.python(tmp_path, [str(frameworks.SCRIPTS / "megatron_flags.py"), str(LAUNCH)], {}, {}).succeeded()
    assert "every flag is Megatron's" in done.output
