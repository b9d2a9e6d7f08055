"""``prove`` on real jobs: honest ones are proven, and interference planted in our own hooks is named."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import asdict

from align_hooks.job.witness import Witnessed, read
from align_hooks.process.limit import VARIABLE
from align_hooks.proof.difference import differences
from align_hooks.proof.kept import FILE, last
from align_hooks.record.write import atomic
from chosen import slow
from real import frameworks
from real.frameworks import EVERYTHING, SCRIPTS, Train, kept, mindformers

STEPS = 3


@pytest.fixture(autouse=True)
def _undisturbed(real_corpus: object) -> Iterator[None]:
    """Every job here reads the corpus; and what the last real proof in this environment said stays."""
    kept, before = Path(sys.prefix, FILE), last(sys.prefix)
    yield
    if before is None:
        kept.unlink(missing_ok=True)
    else:
        atomic.write_json(kept, asdict(before))


def witnessed(train: Train, **given: object) -> Sequence[Witnessed]:
    """What the witness of a training saw, which is kept."""
    done = kept(train, environment={VARIABLE: f"{STEPS}:witnesses"}, **given)
    return read(done.where / "witnesses")


SIDES = {"Megatron-LM": {"train": frameworks.megatron, "change": {"--train-iters": "20"}}, "MindFormers": {"train": mindformers}}
"""A side to a job of more steps than are witnessed."""


@pytest.mark.parametrize("side", ["Megatron-LM", slow("MindFormers")])
def test_a_witness_limits_a_job_and_sees_the_same_with_everything_recorded(side: str) -> None:
    given: dict[str, Any] = SIDES[side]
    if side == "MindFormers":
        fed = kept(frameworks.megatron, RUN="run", BATCHES="all", change={"--train-iters": "20"}).run
        given = {**given, "REPLAY_BATCHES": fed, "change": {"lr_schedule.total_steps": 20}}
    plain, recorded = witnessed(**given), witnessed(**given, RUN="run", **EVERYTHING)
    assert [len(seen.steps) for seen in (*plain, *recorded)] == [STEPS, STEPS]
    assert len(plain[0].initial) > 10 and plain[0].initial != plain[0].final and all(step.losses for step in plain[0].steps)
    assert differences(plain, recorded) == []


def proven(
    where: Path, command: Sequence[str | Path], environment: Mapping[str, str] | None = None, **variables: object
) -> tuple[int, dict[str, Any], str]:
    """Prove a job: exit code, what it writes as JSON, and what it prints."""
    words = ["-m", "align_hooks", "prove", "--json", "proof.json", "--html", "proof.html", "--steps", "4", "--", *map(str, command)]
    own = {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "COLUMNS": "200", **(environment or {})}
    done = frameworks.python(where, words, {"DEVICE": "cpu", **variables}, own)
    assert not list(where.glob("run*")) and not list(where.glob("*checkpoint*")), "something was left behind"
    written = where / "proof.json"
    return done.code, json.loads(written.read_text()) if written.exists() else {}, done.output


def job(where: Path, *flags: str, script: Path = frameworks.LAUNCH / "pretrain_gpt.py") -> list[str | Path]:
    """A Megatron job that saves and evaluates."""
    change = {"--train-iters": "20", "--eval-iters": "1", "--eval-interval": "2"}
    own = ["--save", str(where / "checkpoints"), "--save-interval", "2", "--log-progress", "--tensorboard-dir", str(where / "checkpoints")]
    return [script, *frameworks.arguments(where, change), *own, *flags]


LAYOUTS: dict[str, tuple[int, Sequence[str]]] = {
    "one rank": (1, ()),
    "tensor-parallel": (2, ("--tensor-model-parallel-size", "2", "--sequence-parallel")),
    "pipeline": (2, ("--pipeline-model-parallel-size", "2")),
    "overlapped": (2, ("--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather")),
}


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_honest_job_is_proven(tmp_path: Path, layout: str) -> None:
    ranks, flags = LAYOUTS[layout]
    launcher = ["torchrun", "--nproc-per-node", str(ranks), "--master-port", str(frameworks.free_port())] if ranks > 1 else ["python"]
    code, proof, output = proven(tmp_path, [*launcher, *job(tmp_path, *flags)])
    assert (code, proof["verdict"]) == (0, "proven"), output
    assert [way["steps"] for way in proof["ways"]] == [4] * 6 and len(proof["devices"]) == ranks
    assert proof["record"] == "clean" and proof["noise"] == []
    assert all(cost["ratio"] > 0 for cost in proof["costs"])
    assert "checkpoints (" in output and "to paste" in output
    assert (tmp_path / "proof.html").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_job_of_mindformers_is_proven(tmp_path: Path, ranks: int) -> None:
    fed = kept(frameworks.megatron, RUN="run", BATCHES="all", change={"--train-iters": "20"}).run
    config = yaml.safe_load((frameworks.LAUNCH / "llama.yaml").read_text())
    if ranks > 1:
        config["use_parallel"], config["parallel"] = True, {"parallel_mode": 0, "gradients_mean": True}
        config["parallel_config"]["data_parallel"] = ranks
    (tmp_path / "llama.yaml").write_text(yaml.safe_dump(config))
    launcher = frameworks.msrun()[4:] if ranks > 1 else ["python"]  # prove stands in the place of run
    command = [*launcher, frameworks.LAUNCH / "run_mindformer.py", "--config", tmp_path / "llama.yaml"]
    code, proof, output = proven(tmp_path, command, REPLAY_BATCHES=fed)
    assert (code, proof["verdict"], proof["record"]) == (0, "proven", "clean"), output
    assert len(proof["devices"]) == ranks


PLANTS = {
    "random": "the random generator torch is in another state after step 0",
    "graph": "most of them MulBackward0",
    "wait": "the host waits for the device 3 times more in a step, and 1 is promised",
}


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS)
def test_interference_planted_in_our_hooks_is_named(tmp_path: Path, plant: str) -> None:
    script, *arguments = job(tmp_path)
    code, proof, output = proven(tmp_path, ["python", SCRIPTS / "planted_interference.py", plant, script, *arguments])
    assert (code, proof["verdict"]) == (1, "disproven"), output
    assert PLANTS[plant] in proof["headline"]


@pytest.mark.slow
def test_a_job_that_starts_elsewhere_each_time_is_proven_under_a_seed(tmp_path: Path) -> None:
    script, *arguments = job(tmp_path)
    line = f"exec python {script} {' '.join(map(str, arguments))} --seed $RANDOM"
    code, proof, output = proven(tmp_path, ["bash", "-c", line])
    assert (code, proof["verdict"]) == (0, "proven"), output
    assert proof["switches"] == "ALIGN_HOOKS_DETERMINISTIC=1 ALIGN_HOOKS_SEED=1234" and proof["noise"]


ODD = {
    "noise": (4, "the job does not repeat itself"),
    "hang": (3, "it did not end in"),
    "killed": (1, "it was ended by signal 9 after 0 steps"),
    "endless": (0, "the job asked for a step behind the last of 4"),
}
"""A script's oddity to exit code, and what is said."""


@pytest.mark.slow
@pytest.mark.parametrize("oddity", ODD)
def test_an_odd_job_is_told_in_a_line_and_leaves_nothing_running(tmp_path: Path, oddity: str) -> None:
    script, *arguments = job(tmp_path)
    minutes = ["--minutes", "0.3"] if oddity == "hang" else []
    words = [*minutes, "--", "python", str(SCRIPTS / "odd_job.py"), oddity, str(script), *map(str, arguments)]
    done = frameworks.python(tmp_path, ["-m", "align_hooks", "prove", "--steps", "4", *words], {"DEVICE": "cpu"}, {"COLUMNS": "400"})
    code, said = ODD[oddity]
    assert done.code == code and said in done.output, done.output
    alive = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in read_bytes(path)]
    assert alive == []


@pytest.mark.slow
def test_a_signal_ends_the_job_and_the_proof(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "align_hooks", "prove", "--folder", ".", "--", "python", SCRIPTS / "odd_job.py", "hang", *job(tmp_path)]
    clean = frameworks.clean_environment({"DEVICE": "cpu"}, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"})
    process = subprocess.Popen([*map(str, words)], cwd=tmp_path, env=clean, stderr=subprocess.PIPE)
    while not list(tmp_path.glob("align_hooks.*/1/witnesses/*.json")):  # it has begun, and hangs in its first step
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(frameworks.TIMEOUT) == 128 + signal.SIGTERM
    assert not list(tmp_path.glob("align_hooks.*"))


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ended meanwhile
        return b""


NO_JOBS: dict[str, tuple[list[str], str]] = {
    "nothing of a framework": (["python", "-c", "print(1)"], "no process came to train"),
    "no such command": (["no-such-command"], "it could not be started (exit code 127)"),
    "a refusal of its own": (["python", "-c", "raise SystemExit(7)"], "it ended with exit code 7 after 0 steps"),
}


@pytest.mark.parametrize("what", NO_JOBS)
def test_a_command_that_never_trains_is_told_in_a_line(tmp_path: Path, what: str) -> None:
    command, said = NO_JOBS[what]
    code, proof, _ = proven(tmp_path, command)
    assert (code, proof["verdict"]) == (3, "no proof")
    assert said in proof["headline"]


@pytest.mark.parametrize("rank", [{"RANK": "1", "WORLD_SIZE": "2"}, {"LOCAL_RANK": "0"}])
def test_a_rank_of_a_job_is_refused(tmp_path: Path, rank: Mapping[str, str]) -> None:
    code, _, output = proven(tmp_path, ["python", "-c", "print(1)"], environment=rank)
    assert code == 2 and "write align-hooks prove -- before torchrun or srun" in output
