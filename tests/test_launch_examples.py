"""launch/examples, with stand-ins for what starts processes on several nodes: each is asked for two nodes, and what it would start is read.

The stand-ins write down their arguments and environment. Those of Slurm do what Slurm does: sbatch runs a copy of the script from a
folder of its own, with the variables that its ``#SBATCH`` lines make; srun starts the tasks. No test here trains: see
``tests/real/test_launch.py`` for two nodes of torchrun.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from align_hooks import open_run
from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.quantities.weights import WEIGHTS
from align_hooks.record.format.ending import HowEnded
from align_hooks.record.format.norms import squared_sum
from align_hooks.record.format.shard import Shard
from align_hooks.record.read.problems import ProblemKind
from align_hooks.record.write.step_files import StepBatch
from align_hooks.settings import PREFIX, Settings
from synthetic import CAUSAL, CONFIG, EVERYTHING, LAUNCH, ROWS, SHAPES, batch, begun, job, optimizer, row, sketched, tensors
from test_presets import PRESETS, read

EXAMPLES = LAUNCH / "examples"
EVERY = sorted(path for path in EXAMPLES.iterdir() if path.is_file())
SCRIPTS = [path for path in EVERY if path.suffix in (".sh", ".sbatch")]
MANIFESTS = [path for path in EVERY if path.name.startswith("kubernetes_")]

WRITES_DOWN = """
import json, os, sys
with open(os.environ["WRITTEN"], "a") as file:
    file.write(json.dumps([[os.path.basename(sys.argv[0]), *sys.argv[1:]], dict(os.environ)]) + "\\n")
"""
SRUN = """
import os, subprocess, sys
command = sys.argv[1:]
while command[0].startswith("--"):
    del command[0]
nodes, tasks = (int(os.environ[name]) for name in ("SLURM_JOB_NUM_NODES", "SLURM_NTASKS_PER_NODE"))
for node in range(nodes):
    for task in range(tasks):
        place = {"NODEID": node, "LOCALID": task, "PROCID": node * tasks + task, "NTASKS": nodes * tasks}
        own = {f"SLURM_{name}": str(value) for name, value in place.items()}
        subprocess.run(command, env=os.environ | own, check=True)
"""
SBATCH = """
import os, re, shutil, subprocess, sys
script = sys.argv[1]
asked = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\\d+)$", open(script).read(), re.MULTILINE))
own = {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "node[0-1]", "SLURM_JOB_NUM_NODES": asked["nodes"]}
own |= {"SLURM_NTASKS_PER_NODE": asked["ntasks-per-node"], "SLURM_NTASKS": str(int(asked["nodes"]) * int(asked["ntasks-per-node"]))}
os.mkdir("spool")
shutil.copy(script, "spool/slurm_script")
sys.exit(subprocess.run(["spool/slurm_script", *sys.argv[2:]], env=os.environ | own).returncode)
"""
SCONTROL = """
import sys
assert sys.argv[1:] == ["show", "hostnames", "node[0-1]"], sys.argv
print("node0\\nnode1")
"""
PROGRAMS = dict.fromkeys(("python", "torchrun", "msrun"), WRITES_DOWN) | {"srun": SRUN, "sbatch": SBATCH, "scontrol": SCONTROL}
SET_ENV = "export ASCEND_TOOLKIT_HOME=/there LD_LIBRARY_PATH=/there/lib:$LD_LIBRARY_PATH"
"""CANN's set_env.sh reads variables that nobody set."""


@dataclass(frozen=True)
class Started:
    """One program that was started: its words, and what it was given in its environment."""

    words: list[str]
    environment: dict[str, str]

    def told(self, *names: str) -> list[str | None]:
        return [self.environment.get(name) for name in names]


@dataclass(frozen=True)
class Ended:
    code: int
    output: str
    started: list[Started]


def run(where: Path, *command: object, **variables: object) -> Ended:
    """Run a command with the stand-ins on PATH and none of this process's own variables."""
    tools, written = where / "bin", where / "written"
    if not tools.exists():
        tools.mkdir(parents=True)
        for name, text in PROGRAMS.items():
            (tools / name).write_text(f"#!{sys.executable}\n{text}")
            (tools / name).chmod(0o755)
        (where / "set_env.sh").write_text(SET_ENV)
    written.unlink(missing_ok=True)
    clean = {"PATH": f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin", "WRITTEN": str(written), "CANN": str(where)}
    given = clean | {name: str(value) for name, value in variables.items()}
    done = subprocess.run([str(word) for word in command], env=given, cwd=where, capture_output=True, text=True, timeout=300, check=False)
    lines = written.read_text().splitlines() if written.exists() else []
    return Ended(done.returncode, done.stdout + done.stderr, [Started(*json.loads(line)) for line in lines])


def succeeded(ended: Ended) -> list[Started]:
    assert ended.code == 0, ended.output
    return ended.started


def submitted(where: Path, script: str, *words: str) -> Ended:
    return run(where, "sbatch", EXAMPLES / script, *words, LAUNCH=LAUNCH, RUN="/shared/run", REFERENCE="/shared/reference")


# Each script, for two nodes


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_shell_can_read_it_and_start_it(path: Path) -> None:
    assert subprocess.run(["bash", "-n", path], check=False).returncode == 0
    assert os.access(path, os.X_OK)
    assert path.read_text().startswith("#!/usr/bin/env bash\n")


@pytest.mark.parametrize("script", ["gpu_nodes.sh", "mindspeed_nodes.sh"])
def test_torchrun_is_started_on_every_node(tmp_path: Path, script: str) -> None:
    for node in "01":
        asked = {"NNODES": 2, "NODE_RANK": node, "MASTER_ADDR": "10.0.0.1", "RUN": "/shared/run"}
        (one,) = succeeded(run(tmp_path, EXAMPLES / script, "--lr", "1", "--data-path", "a b", **asked))
        assert one.words == ["torchrun", "-m", "align_hooks.torch_side", "pretrain_gpt.py", "--lr", "1", "--data-path", "a b"]
        assert one.told("PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR") == ["2", node, "8", "10.0.0.1"]
        assert str(one.environment["PET_MASTER_PORT"]).isdigit()
        assert one.told("ALIGN_HOOKS_RUN", "ALIGN_HOOKS_BATCHES", "CUDA_DEVICE_MAX_CONNECTIONS") == ["/shared/run", "0-19", "1"]


def test_mindspeed_is_given_canns_environment_once_and_hccls_variables(tmp_path: Path) -> None:
    asked = {"NODE_RANK": 0, "MASTER_ADDR": "10.0.0.1", "RUN": "run"}
    names = ("ASCEND_TOOLKIT_HOME", "HCCL_CONNECT_TIMEOUT", "HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
    (one,) = succeeded(run(tmp_path, EXAMPLES / "mindspeed_nodes.sh", **asked))
    assert one.told(*names) == ["/there", "3600", None, None]
    more = {"ASCEND_TOOLKIT_HOME": "/sourced", "CANN": "/nowhere", "HCCL_CONNECT_TIMEOUT": 60, "IFNAME": "eth1"}
    (one,) = succeeded(run(tmp_path, EXAMPLES / "mindspeed_nodes.sh", **asked, **more))
    assert one.told(*names) == ["/sourced", "60", "eth1", "eth1"]


def test_msrun_launcher_is_given_its_nine_arguments_under_run(tmp_path: Path) -> None:
    for node in "01":
        asked = {"MINDFORMERS": "/opt/mind formers", "MASTER_ADDR": "10.0.0.1", "NODE_RANK": node, "RUN": "/run", "REFERENCE": "/reference"}
        (one,) = succeeded(run(tmp_path, EXAMPLES / "msrun_launcher.sh", "--config", "a b.yaml", **asked))
        *start, command, workers, local, address, port, rank, logs, join, timeout = one.words
        assert start == ["python", "-m", "align_hooks", "run", "--", "bash", "/opt/mind formers/scripts/msrun_launcher.sh"]
        assert [workers, local, address, port, rank, logs, join, timeout] == [
            *("16", "8", "10.0.0.1", "8118", node, "output/msrun_log", "True", "7200")
        ]
        # msrun_launcher.sh ends with EXECUTE_ORDER="msrun … $1" and eval $EXECUTE_ORDER
        evaluated = ["bash", "-c", 'order="printf %s@ $1"; eval $order', "-", command]
        words = subprocess.run(evaluated, capture_output=True, text=True, check=True).stdout.split("@")
        assert words == ["/opt/mind formers/run_mindformer.py", "--config", "a b.yaml", ""]
        assert one.told("ALIGN_HOOKS_RUN", "ALIGN_HOOKS_LOAD_WEIGHTS") == ["/run", "/reference"]
        assert one.told("MS_ASCEND_CHECK_OVERFLOW_MODE") == ["INFNAN_MODE"]


def test_slurm_starts_one_torchrun_a_node(tmp_path: Path) -> None:
    one, two = succeeded(submitted(tmp_path, "slurm_megatron.sbatch", "--data-path", "a b"))
    assert one.words == two.words == ["torchrun", "-m", "align_hooks.torch_side", "pretrain_gpt.py", "--data-path", "a b"]
    names = ("PET_NODE_RANK", "PET_NNODES", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "ALIGN_HOOKS_RUN", "SLURM_JOB_ID")
    assert [each.told(*names) for each in (one, two)] == [[node, "2", "8", "node0", "/shared/run", "77"] for node in "01"]


def test_slurm_starts_one_python_a_gpu_with_the_ranks_that_megatron_reads(tmp_path: Path) -> None:
    tasks = succeeded(submitted(tmp_path, "slurm_megatron_tasks.sbatch", "--lr", "1"))
    assert {tuple(task.words) for task in tasks} == {("python", "-m", "align_hooks.torch_side", "pretrain_gpt.py", "--lr", "1")}
    assert [task.told("RANK", "LOCAL_RANK") for task in tasks] == [[str(rank), str(rank % 8)] for rank in range(16)]
    same = ("WORLD_SIZE", "MASTER_ADDR", "ALIGN_HOOKS_RUN", "ALIGN_HOOKS_BATCHES", "CUDA_DEVICE_MAX_CONNECTIONS")
    assert {tuple(task.told(*same)) for task in tasks} == {("16", "node0", "/shared/run", "0-19", "1")}


@pytest.mark.parametrize("script", sorted(path.name for path in EXAMPLES.glob("*.sbatch")))
def test_slurm_starts_nothing_where_the_first_node_has_no_name(tmp_path: Path, script: str) -> None:
    run(tmp_path, "true")
    (tmp_path / "bin/scontrol").write_text("#!/bin/sh\necho 'slurm_load_jobs error' >&2\nexit 1\n")
    done = submitted(tmp_path, script)
    assert (done.code, done.started) == (1, [])
    assert "slurm_load_jobs error" in done.output


def test_slurm_starts_one_msrun_a_node(tmp_path: Path) -> None:
    started = succeeded(submitted(tmp_path, "slurm_mindformers.sbatch", "--config", "a b.yaml"))
    for node, one in enumerate(started):
        split = one.words.index("python")
        assert one.words[split:] == ["python", "-m", "align_hooks.ms_side", "run_mindformer.py", "--config", "a b.yaml"]
        options = {"--worker_num": "16", "--local_worker_num": "8", "--join": "True", "--log_dir": "msrun_log/77"}
        options |= {"--master_addr": "node0", "--master_port": "8118", "--node_rank": str(node)}
        assert dict(zip(one.words[1:split:2], one.words[2:split:2], strict=True)) == options
        assert one.told("ALIGN_HOOKS_REPLAY_BATCHES", "ASCEND_TOOLKIT_HOME") == ["/shared/reference", "/there"]
    assert len(started) == 2


ASKED = dict.fromkeys(("MASTER_ADDR", "NODE_RANK", "MINDFORMERS", "RUN", "REFERENCE"), "x") | {"LAUNCH": str(LAUNCH)}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_what_must_be_set_is_asked_for_and_nothing_is_started_and_another_preset_is_a_variable(tmp_path: Path, path: Path) -> None:
    def started(**variables: str) -> Ended:
        shutil.rmtree(tmp_path / "spool", ignore_errors=True)
        return run(tmp_path, *(["sbatch"] if path.suffix == ".sbatch" else []), path, **variables)

    needed = dict(re.findall(r"\$\{(\w+):\?([^}]+)\}", path.read_text()))
    assert "RUN" in needed
    for name, message in needed.items():
        done = started(**{one: value for one, value in ASKED.items() if one != name})
        assert done.code
        assert f"{name}: {message}" in done.output
        assert done.started == []
    assert succeeded(started(**ASKED))
    by_preset = succeeded(started(**ASKED | {"PRESET": "optimizer_candidate"}))
    assert {tuple(one.told("ALIGN_HOOKS_INJECT_GRADIENTS", "ALIGN_HOOKS_RUN")) for one in by_preset} == {("x@0-2", "x")}


# Kubernetes


def documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def pods(path: Path) -> list[dict[str, Any]]:
    """The pod template of every replica, as often as it is started."""
    spec = documents(path)[-1]["spec"]
    replicas = spec["pytorchReplicaSpecs"].values() if "pytorchReplicaSpecs" in spec else spec["tasks"]
    return [one["template"]["spec"] | {"restart": one} for one in replicas for _ in range(one["replicas"])]


def presets(path: Path) -> dict[str, str]:
    """What the ConfigMap holds that the comments make."""
    one, other = re.findall(r"--from-env-file=(\S+)", path.read_text())
    return read(LAUNCH.parent / one) | read(LAUNCH.parent / other)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_pod_has_the_presets_and_a_shared_volume_where_they_say(path: Path) -> None:
    every = pods(path)
    assert len(every) == 2
    (made,) = re.findall(r"create configmap (\S+)", path.read_text())
    claims = [one for manifest in MANIFESTS for one in documents(manifest) if one["kind"] == "PersistentVolumeClaim"]
    shared = {one["metadata"]["name"] for one in claims if one["spec"]["accessModes"] == ["ReadWriteMany"]}
    for pod in every:
        (container,) = pod["containers"]
        assert container["envFrom"] == [{"configMapRef": {"name": made}}]
        own = {one["name"]: one["value"] for one in container["env"]}
        Settings.from_environment(presets(path) | own)
        volumes = {one["name"] for one in pod["volumes"] if one.get("persistentVolumeClaim", {}).get("claimName") in shared}
        places = {one["mountPath"]: one for one in container["volumeMounts"]}
        named = {value.split("@")[0] for value in presets(path).values() if value.startswith("/align_hooks/")}
        assert named
        assert all(places[name]["name"] in volumes and places[name]["subPath"] for name in named)
        assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}
        assert "Never" in (pod.get("restartPolicy"), pod["restart"].get("restartPolicy"))


def test_every_pod_of_a_pytorchjob_starts_its_torchrun(tmp_path: Path) -> None:
    for node, pod in enumerate(pods(EXAMPLES / "kubernetes_megatron.yaml")):
        (container,) = pod["containers"]
        assert container["name"] == "pytorch"
        # what the training operator sets in a pod
        given = {"RANK": node, "WORLD_SIZE": 2, "MASTER_ADDR": "megatron-master-0", "MASTER_PORT": 23456}
        (one,) = succeeded(run(tmp_path, *container["command"], *container["args"], **given))
        options = ["--nnodes=2", "--nproc-per-node=8", f"--node-rank={node}", "--master-addr=megatron-master-0", "--master-port=23456"]
        assert one.words[: len(options) + 1] == ["torchrun", *options]
        assert one.words[len(options) + 1 :][:3] == ["-m", "align_hooks.torch_side", "pretrain_gpt.py"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}


def test_every_pod_of_a_volcano_job_starts_its_msrun(tmp_path: Path) -> None:
    (document,) = documents(EXAMPLES / "kubernetes_mindformers.yaml")
    (task,) = document["spec"]["tasks"]
    first = f"{document['metadata']['name']}-{task['name']}-0.{document['metadata']['name']}"  # as the svc plugin names it
    assert document["spec"]["plugins"].keys() >= {"env", "svc"}
    run(tmp_path, "true")
    (tmp_path / "bin/getent").write_text(f'#!/bin/sh\n[ "$*" = "hosts {first}" ] || sleep 100\n')
    (tmp_path / "bin/getent").chmod(0o755)
    for node, pod in enumerate(pods(EXAMPLES / "kubernetes_mindformers.yaml")):
        (container,) = pod["containers"]
        (one,) = succeeded(run(tmp_path, *container["command"], *container["args"], VC_TASK_INDEX=node))
        split = one.words.index("python")
        options = dict(word.removeprefix("--").split("=") for word in one.words[1:split])
        assert (options["master_addr"], options["node_rank"], options["join"]) == (first, str(node), "True")
        (limit,) = container["resources"]["limits"].values()
        assert (int(options["local_worker_num"]), int(options["worker_num"])) == (limit, limit * document["spec"]["minAvailable"])
        assert one.words[split:][:4] == ["python", "-m", "align_hooks.ms_side", "run_mindformer.py"]
        assert one.told("ASCEND_TOOLKIT_HOME") == ["/there"]


# What they say


def test_every_variable_of_ours_exists() -> None:
    known = {PREFIX + one.name.upper() for one in fields(Settings)}
    named = {path.name: set(re.findall(rf"{PREFIX}\w+", path.read_text())) for path in [*EVERY, LAUNCH / "README.md"]}
    named["README.md"].discard(PREFIX)
    assert {name: one - known for name, one in named.items() if one - known} == {}
    assert any(named.values())


@pytest.mark.parametrize("path", [*SCRIPTS, *MANIFESTS], ids=lambda path: path.name)
def test_every_preset_that_is_named_exists(path: Path) -> None:
    text = path.read_text()
    by = (r"PRESET:-(\w+)", r"^begin (\w+)", r"Presets: (\w+)", r"presets/(\w+)\.env")
    named = {one for pattern in by for one in re.findall(pattern, text, re.MULTILINE)}
    assert named
    assert named <= {path.stem for path in PRESETS}
    assert "To change: " in text
    assert "align-hooks compare " in text


def test_the_readme_has_a_row_for_each() -> None:
    text = (LAUNCH / "README.md").read_text(encoding="utf-8")
    rows = "\n".join(line for line in text.split("## Beyond one node")[1].splitlines() if line.startswith("| `examples/"))
    assert set(re.findall(r"`examples/(\S+?)`", rows)) == {path.name for path in EVERY}


# Nodes that share no file system


def write_node(where: Path, rank: int) -> Path:
    """What a rank of two writes on a node of its own: everything that there is to record."""
    writer = begun(where / f"node{rank}", job(rank, 2), sketches="all", **EVERYTHING)
    shards = [Shard(name, shape, name, "float32", counted=rank == 0) for name, shape in SHAPES.items()]
    facts = {"optimizer": optimizer(), "model": CONFIG, "training": {"compute_type": "float32"}, "overrides": []}
    place = {"dp": rank, "dp_size": 2, "tp": 0, "tp_size": 1, "pp": 0, "pp_size": 1}
    writer.describe(place=place, shards=shards, facts=facts, steps=range(1))
    whole = tensors(1)
    mine = whole if rank == 0 else {}
    for step in (0, 1):
        writer.weights(step, mine, CONFIG)
        writer.sketches(WEIGHTS, step, sketched(mine))
        writer.optimizer_state(step, {"exp_avg": mine, "exp_avg_sq": mine}, step)
    writer.batch(0, StepBatch(batch(rank) | {"attention_mask": CAUSAL}, [ROWS]))
    writer.gradients(0, mine)
    writer.sketches(GRADIENTS, 0, sketched(mine))
    writer.local_norms(0, "reduced", {name: squared_sum(tensor) for name, tensor in whole.items()})
    writer.scalars(row(0))
    writer.finish(HowEnded("finished"), hooks={})
    return where / f"node{rank}"


def test_files_of_nodes_have_other_names_and_carried_together_they_are_the_run(tmp_path: Path) -> None:
    nodes = [write_node(tmp_path, rank) for rank in (0, 1)]
    zero, one = ({str(path.relative_to(node)) for path in node.rglob("*") if path.is_file()} for node in nodes)
    assert zero & one == set()
    assert {name for name in zero | one if "rank_" not in name} == {"run.json", "causal_attention_mask.npy"} & zero
    assert all(ProblemKind.RANKS_MISSING in [one.kind for one in open_run(node).problems] for node in nodes)
    for node in nodes:
        shutil.copytree(node, tmp_path / "run", dirs_exist_ok=True)
    run = open_run(tmp_path / "run")
    assert run.problems == []
    assert run.batch(0).tokens.shape[0] == 2 * ROWS
    assert set(run.gradients(0)) == set(SHAPES)


def test_the_example_says_how_to_carry_them_together() -> None:
    (line,) = re.findall(r"rsync .*", (EXAMPLES / "gpu_nodes.sh").read_text())
    copies = [shlex.split(one) for one in line.split(" && ")]
    assert [(one[:2], one[3]) for one in copies] == [(["rsync", "-a"], "runs/megatron/")] * 2
    assert all(one[2].endswith("/") for one in copies)  # without it a folder within the folder
