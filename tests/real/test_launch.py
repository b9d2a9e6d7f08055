"""The scripts and presets of ``launch/`` with the real frameworks on a CPU: each pair of presets ends with a verdict.

Not tried here, for want of the hardware: torchrun on a GPU, msrun on an Ascend card.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from align_hooks import open_run
from real import frameworks
from real.frameworks import LAUNCH, Ended

LARGE = {
    "--num-layers": "3",
    "--train-iters": "5",
    "--lr-decay-style": "cosine",
    "--lr-warmup-fraction": "0.4",
    "--min-lr": "0",
    "--attention-dropout": None,
    "--hidden-dropout": "0.2",
    "--exit-interval": "3",
}
"""What stage 1 of the guide takes out of llama.args: None leaves Megatron its default, a tenth."""


def megatron(where: Path, change: dict[str, str | None]) -> list[str]:
    """The words of a Megatron command: script and arguments."""
    lines = dict(line.partition(" ")[::2] for line in (LAUNCH / "llama.args").read_text().splitlines())
    lines |= {"--train-iters": "3", "--data-path": str(frameworks.corpus()), "--data-cache-path": str(where / "cache")}
    given = {flag: value for flag, value in (lines | change).items() if value is not None}
    return [str(LAUNCH / "pretrain_gpt.py"), *(word for flag, value in given.items() for word in (flag, *value.split()))]


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


def launch(where: Path, command: Sequence[object], run: Path, reference: Path | None = None, **more: str) -> Ended:
    """Start a script of ``launch/`` as a user does, with RUN and REFERENCE."""
    where.mkdir(parents=True, exist_ok=True)
    named = {"RUN": str(run)} | ({"REFERENCE": str(reference)} if reference else {})
    return frameworks.program(where, [str(word) for word in command], {}, named | more)


@pytest.mark.slow
def test_step1_of_a_shrunk_pair(tmp_path: Path) -> None:
    one, two = tmp_path / "reference", tmp_path / "candidate"
    shrink = [sys.executable, LAUNCH / "shrink.py", LAUNCH / "cpu.sh"]
    saved = {"--save": str(tmp_path / "prod"), "--save-interval": "1"}
    done = launch(tmp_path, [*shrink, "torch", "step1_reference", *megatron(tmp_path, LARGE | saved)], one).succeeded()
    assert "shrink: --num-layers: 3 -> 2 (guide, stage 1)" in done.output
    assert not (tmp_path / "prod").exists()
    done = launch(tmp_path / "ms", [*shrink, "ms", "step1_candidate", *mindformers(tmp_path / "ms", layers=3)], two, one).succeeded()
    assert "shrink: model.model_config.num_layers: 3 -> 2 (guide, stage 1)" in done.output
    for run in (open_run(one), open_run(two)):
        assert run.manifest["model"]["num_hidden_layers"] == 2
        assert [row["learning_rate"] for row in run.scalars()] == pytest.approx([1e-3] * 3, rel=1e-7)
    assert json.loads((one / "run.json").read_text())["arguments"]["hidden_dropout"] == "0.0"
    assert not list((tmp_path / "ms").glob("output/checkpoint/**/*.ckpt"))
    compared = frameworks.compare(one, two)
    assert compared.code == 0, compared.output


@pytest.mark.slow
def test_three_injected_updates_under_torchrun(tmp_path: Path) -> None:
    one, two = tmp_path / "reference", tmp_path / "candidate"
    command = [LAUNCH / "torchrun.sh", "optimizer_reference", *megatron(tmp_path, {})]
    launch(tmp_path, command, one, ALIGN_HOOKS_DEVICE="cpu").succeeded()
    command = [LAUNCH / "cpu.sh", "ms", "optimizer_candidate", *mindformers(tmp_path / "ms")]
    launch(tmp_path / "ms", command, two, one).succeeded()
    compared = frameworks.compare(one, two)
    assert compared.code == 0, compared.output
    assert "weights after an update" in compared.output


@pytest.mark.slow
def test_weights_not_updated_under_msrun(tmp_path: Path) -> None:
    one, two = tmp_path / "reference", tmp_path / "candidate"
    launch(tmp_path, [LAUNCH / "cpu.sh", "torch", "weights_not_updated_reference", *megatron(tmp_path, {})], one).succeeded()
    command = [LAUNCH / "msrun.sh", "weights_not_updated_candidate", *mindformers(tmp_path / "ms", ranks=2)]
    more = {"ALIGN_HOOKS_DEVICE": "cpu", "WORKER_NUM": "2", "MASTER_PORT": str(frameworks.free_port())}
    launch(tmp_path / "ms", command, two, one, **more).succeeded()
    assert [row["learning_rate"] for row in open_run(two).scalars()] == [0.0] * 3
    compared = frameworks.compare(one, two)
    assert compared.code == 0, compared.output


def test_msrun_without_use_parallel_is_refused(tmp_path: Path) -> None:
    command = [LAUNCH / "msrun.sh", "benchmark_error", *mindformers(tmp_path / "ms")]
    done = launch(tmp_path / "ms", command, tmp_path / "run", ALIGN_HOOKS_DEVICE="cpu", MASTER_PORT=str(frameworks.free_port()))
    assert "align_hooks: msrun started this with use_parallel off, so its scheduler trains as well; set use_parallel: True" in done.output
    assert done.code


@pytest.mark.slow
def test_the_benchmark_twice(tmp_path: Path) -> None:
    one, two = tmp_path / "first", tmp_path / "second"
    for run in (one, two):
        launch(tmp_path, [LAUNCH / "cpu.sh", "torch", "benchmark_error", *megatron(tmp_path, {})], run).succeeded()
        assert open_run(run).manifest["determinism"]["torch.are_deterministic_algorithms_enabled"] is False
    compared = frameworks.compare(one, two)
    assert compared.code == 0, compared.output


def test_megatrons_parser_has_the_flags_that_shrink_knows(tmp_path: Path) -> None:
    done = frameworks.python(tmp_path, [str(frameworks.SCRIPTS / "megatron_flags.py"), str(LAUNCH)], {}, {}).succeeded()
    assert "every flag is Megatron's" in done.output
