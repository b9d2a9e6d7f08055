"""launch/shrink.py: what it changes in a command, what it says about it, and what it refuses."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

SHRINK = Path(__file__).parents[1] / "launch" / "shrink.py"
specification = importlib.util.spec_from_file_location("shrink", SHRINK)
assert specification is not None and specification.loader is not None
shrink = importlib.util.module_from_spec(specification)
specification.loader.exec_module(shrink)

MEGATRON = ["torchrun", "pretrain_gpt.py", "--num-layers", "32", "--lr", "1e-3"]
CONFIG: dict[str, Any] = {
    "use_legacy": False,
    "lr_schedule": {"type": "CosineWithWarmUpLR", "learning_rate": 1e-6, "lr_end": 0.0, "warmup_ratio": 0.1, "total_steps": -1},
    "model": {"model_config": {"num_hidden_layers": 64, "attention_dropout": 0.1, "offset": [-1, 1], "emb_dropout_prob": 0.0}},
    "recompute_config": {"recompute": [3, 2], "select_recompute": {"mul": [1, 0]}, "mp_comm_recompute": True},
    "parallel_config": {"pipeline_stage": 2},
    "callbacks": [{"type": "MFLossMonitor"}, {"type": "CheckpointMonitor"}],
    "load_checkpoint": "/weights",
    "context": {"mode": 0},
}


def test_megatrons_flags_are_appended_where_the_last_one_wins() -> None:
    command, said = shrink.shrink([*MEGATRON, "--lr-warmup-fraction=0.01", "--hidden-dropout", "0.0", "--save", "/prod", "--load", "/prod"])
    added = ["--hidden-dropout", "0.0", "--num-layers", "2", "--lr-decay-style", "constant", "--attention-dropout", "0"]
    assert command == [*MEGATRON, *added]
    assert said[:3] == [
        "--lr-warmup-fraction: 0.01 -> left out, no warm-up",
        "--load: /prod -> left out, those weights are of the whole model",
        "--save: /prod -> left out, two layers do not belong among its checkpoints",
    ]
    assert "--num-layers: 32 -> 2" in said and "--attention-dropout: 0.1 -> 0" in said


def test_a_command_that_is_small_already_is_left_as_it_is() -> None:
    small = ["a", "--num-layers=2", "--lr-decay-style", "constant", "--attention-dropout", "0", "--hidden-dropout", "0.0"]
    assert shrink.shrink(small) == (small, [])


def test_mindformers_reads_a_changed_copy(tmp_path: Path) -> None:
    original = tmp_path / "llama.yaml"
    original.write_text(text := yaml.safe_dump(CONFIG))
    started = ["msrun", "python", "run_mindformer.py"]
    command, said = shrink.shrink([*started, "--config", str(original), "--load_checkpoint", "x", "--seed", "1"])
    assert original.read_text() == text
    assert command[:5] == [*started, "--seed", "1"]
    changed = yaml.safe_load(Path(command[-1]).read_text())
    model = {"num_hidden_layers": 2, "attention_dropout": 0.0, "hidden_dropout": 0.0, "offset": 0, "emb_dropout_prob": 0.0}
    assert changed == CONFIG | {
        "lr_schedule": {"type": "ConstantWarmUpLR", "warmup_steps": 0, "learning_rate": 1e-6, "total_steps": -1},
        "model": {"model_config": model},
        "recompute_config": {"recompute": False, "select_recompute": False, "mp_comm_recompute": True},
        "callbacks": [{"type": "MFLossMonitor"}],
        "load_checkpoint": "",
    }
    assert "model.model_config.num_hidden_layers: 64 -> 2" in said
    assert "model.model_config.hidden_dropout: not set -> 0.0" in said
    assert len(said) == 11


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (["--yaml-cfg", "x"], "--yaml-cfg"),
        (["--use-checkpoint-args"], "--use-checkpoint-args"),
        (["--pipeline-model-parallel-layout", "E|t|t|L"], "--pipeline-model-parallel-layout"),
        (["--pipeline-model-parallel-size", "4"], "2 layers go on 1 or 2 stages"),
        (["--moe-layer-freq", "([0]*3+[1]*29)"], "--moe-layer-freq"),
        (["--config", "x.yaml"], "cannot tell"),
        ({"model": {}}, "no model.model_config"),
        ({"model": {"model_config": {"hidden_size": 1}}}, "neither num_layers nor num_hidden_layers"),
        ({"parallel_config": {"pipeline_stage": 4}}, "2 layers go on 1 or 2 stages"),
        ({"base_config": "x"}, "base_config"),
        ({"moe_config": {"first_k_dense_replace": 3}}, "first_k_dense_replace"),
        ({"model": {"model_config": {"num_layers": 8, "pp_interleave_num": 2}}}, "pp_interleave_num"),
    ],
)
def test_what_two_layers_cannot_be_is_refused_in_one_line(asked: list[str] | dict[str, Any], why: str) -> None:
    """Flags of Megatron's, or sections of a YAML."""
    with pytest.raises(shrink.Refused, match=why) as caught:
        shrink.shrink([*MEGATRON, *asked]) if isinstance(asked, list) else shrink.shrink_config(CONFIG | asked, "llama.yaml")
    assert "\n" not in str(caught.value)


def started(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SHRINK, *command], capture_output=True, text=True, check=False)


def test_the_changed_command_is_started_in_its_place() -> None:
    script = "import sys; print(sys.argv[1:]); sys.exit(7)"
    done = started(sys.executable, "-c", script, *MEGATRON)
    assert done.returncode == 7
    assert "shrink: --num-layers: 32 -> 2 (guide, stage 1)" in done.stdout
    assert "'--num-layers', '2'" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("command", [["bash", "train.sh"], ["/nonexistent/program", "--num-layers", "8"]])
def test_a_command_that_cannot_be_shrunk_or_started_says_so(command: list[str]) -> None:
    done = started(*command)
    assert done.returncode != 0
    assert done.stderr.startswith("shrink: ") and done.stderr.count("\n") == 1
