"""A call of ours that fails in a step, whichever it is, leaves training as it was, losses and weights to the bit."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.record.format.ending import End
from chosen import slow, slow_but
from real import frameworks
from real.frameworks import Train
from real.test_noninterference import CUT, DROPOUT, OWN_DATA, same

PLANTED = frameworks.SCRIPTS / "planted_calls.py"
HOOKS = {
    "megatron": "torch_side/hooks/,torch_side/activations.py,torch_side/probe_recorder.py,session/",
    "mindformers": "ms_side/hooks/,session/",
}
"""Where our code meets a framework's: what fails below comes up through these."""

REFUSED = {"PLANTED_TOGETHER": "1", "PLANTED_REFUSED": "1"}


def trained(side: str, family: str, steps: int, planted: Mapping[str, str] | None) -> Path:
    """Train with everything recorded and calls that fail, or without us where ``planted`` is None; the folder of the training."""
    witness = {"WITNESS": "witness.npz", "WITNESS_STEPS": str(steps), "PLANTED": "planted.json"}
    module = "torch" if side == "megatron" else "ms"
    launcher = ["-m", f"align_hooks.{module}_side"]
    variables: dict[str, object] = {}
    if planted is not None:
        launcher.append(str(PLANTED))
        variables = {"RUN": "run", "ROUTING": None if family == frameworks.LLAMA else "all"} | frameworks.EVERYTHING
    columns = ["input_ids"] if family == frameworks.LLAMA else CUT
    own_data = OWN_DATA | {"train_dataset.input_columns": columns, "train_dataset.construct_args_key": columns}
    train, change = {
        "megatron": (frameworks.megatron, DROPOUT | {"--train-iters": str(steps)}),
        "mindformers": (frameworks.mindformers, own_data | {"lr_schedule.total_steps": steps}),
    }[side]
    script = frameworks.SCRIPTS / f"witness_{side}.py"
    environment = witness | dict(planted or {})
    given = {"family": family, "launcher": launcher, "script": script, "change": change, "environment": environment}
    return frameworks.kept(train, (0, 3), **given, **variables).where  # 3 where recording had stopped when the run ended


@pytest.mark.parametrize(
    ("side", "family", "steps", "planted", "least"),
    [
        ("megatron", frameworks.LLAMA, 60, REFUSED | {"PLANTED_ONLY": HOOKS["megatron"]}, 150),
        slow(("mindformers", frameworks.LLAMA, 40, REFUSED | {"PLANTED_ONLY": HOOKS["mindformers"]}, 50)),
        slow(("megatron", "deepseek_v3", 300, {"PLANTED_TOGETHER": "1"}, 600)),
        slow(("megatron", frameworks.LLAMA, 900, {}, 600)),
        slow(("mindformers", "deepseek_v3", 200, {"PLANTED_TOGETHER": "1"}, 200)),
        slow(("mindformers", frameworks.LLAMA, 600, {}, 200)),
    ],
)
def test_a_call_of_ours_that_fails_leaves_training_as_it_was(
    real_corpus: Path, side: str, family: str, steps: int, planted: Mapping[str, str], least: int
) -> None:
    failing, plain = trained(side, family, steps, planted), trained(side, family, steps, None)
    tried = json.loads((failing / "planted.json").read_text())
    assert tried["tried"] >= least and tried["steps"] < steps, tried
    micro_batches = 2 if side == "megatron" else 1
    same(plain / "witness.npz", failing / "witness.npz", losses=micro_batches * steps, biases=None)


def failing(train: Train, where: Path, **given: object) -> frameworks.Ended:
    """Train with a record in which something is in the way of step 1."""
    (where / "run").mkdir()
    (where / "run" / "step_1").write_text("in the way")
    return train(where, RUN=where / "run", BATCHES="all", **given)


@pytest.mark.parametrize("side", slow_but(["megatron", "mindformers"], "megatron"))
def test_training_survives_a_recorder_that_fails(tmp_path: Path, side: str, request: pytest.FixtureRequest) -> None:
    if side == "megatron":
        done, last = failing(frameworks.megatron, tmp_path, ON_ERROR="warn"), "iteration        3/       3"
    else:
        fed = request.getfixturevalue("reference")
        done, last = failing(frameworks.mindformers, tmp_path, REPLAY_BATCHES=fed), "step:[    3/    3]"
    assert done.code == 3, done.output
    assert last in done.output
    assert "rank 0 stopped recording at step 1 while writing the batch" in done.ours
    run = open_run(tmp_path / "run")
    assert run.steps == [0]
    assert run.endings[0].end is End.STOPPED and "at step 1" in str(run.problems[0])


@pytest.mark.slow
def test_training_ends_with_a_recorder_that_fails_where_that_is_asked_for(tmp_path: Path, real_corpus: Path) -> None:
    done = failing(frameworks.megatron, tmp_path, ON_ERROR="raise")
    assert done.code == 1
    assert "NotADirectoryError" in done.output or "FileExistsError" in done.output
