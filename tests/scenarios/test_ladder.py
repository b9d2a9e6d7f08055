"""Ladders: what a plan may say, what each rung is told, and what is made of what was trained."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from align_hooks import open_run
from align_hooks.cli import app
from align_hooks.comparison.pair import Pair
from align_hooks.configuration.values import ConfigurationError
from align_hooks.scenarios import climb as climbing
from align_hooks.scenarios.bisect import plan_text
from align_hooks.scenarios.plan import ExperimentPlan, Rung, command, environment, read_plan, script
from invoked import invoke
from synthetic import Synthetic, row

TESTS = Path(__file__).parents[1]
TWO: list[dict[str, object]] = [{"name": "one"}, {"name": "two"}]
TRAINS = """
import os, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from synthetic import Synthetic, row
what = sys.argv[1:]
if "fails" in what:
    print("align_hooks: its training failed: no card")
    sys.exit(7)
run = Synthetic(settings={{}}, weights={{}}, gradients={{}}, rows=[row(step) for step in range(3)])
if "wrong" in what:
    for each in run.rows:
        each["loss"] += 0.5
if "silent" not in what:
    run.write(Path(os.environ["ALIGN_HOOKS_RUN"]))
"""
"""A training that needs no framework: it leaves a record where it is told to."""


@pytest.fixture
def trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ladder's folder, and trainings without hooks, which attach to frameworks alone."""
    (tmp_path / "trains.py").write_text(TRAINS.format(tests=str(TESTS)))
    monkeypatch.setattr(climbing, "attached", lambda plan, rung: ["bash", "-c", command(plan, rung)])
    return tmp_path


def planned(folder: Path, rungs: list[dict[str, object]], **others: object) -> Path:
    """The file of a plan whose rungs are trained by the stand-in."""
    content = {"folder": str(folder / "runs"), "command": f"{sys.executable} {folder / 'trains.py'} {{changes}} {{ranks}}", "record": {}}
    (folder / "plan.yaml").write_text(yaml.safe_dump({**content, "rungs": rungs, **others}))
    return folder / "plan.yaml"


def climbed(plan: Path, *options: str) -> tuple[int, str, list[dict[str, object]]]:
    said = plan.with_name("said.json")
    done = invoke(app, ["ladder", str(plan), "--json", str(said), *options])
    return done.exit_code, done.output, json.loads(said.read_text())["rungs"] if said.exists() else []


# ---- climbing


def test_rungs_are_trained_in_turn_and_each_is_held_against_the_one_before(trains: Path) -> None:
    code, output, rungs = climbed(planned(trains, [{"name": "one"}, {"name": "two", "ranks": 2}, {"name": "three", "against": "one"}]))
    assert (code, [rung["result"] for rung in rungs]) == (0, ["recorded", "aligned", "aligned"])
    assert [Path(str(rung["against"])).name for rung in rungs[1:]] == ["one", "one"]
    assert "two" in output


def test_a_rung_that_differs_ends_the_ladder_and_names_where(trains: Path) -> None:
    plan = planned(trains, [{"name": "one"}, {"name": "two", "changes": "wrong"}, {"name": "three"}])
    code, output, rungs = climbed(plan)
    assert (code, [rung["result"] for rung in rungs]) == (1, ["recorded", "diverged"])
    assert rungs[1]["told"]
    assert "three" in output  # as one that was not reached
    assert [rung["trained"] for rung in climbed(plan, "--to-the-end")[2]] == [False, False, True]


def test_what_was_trained_is_read_back(trains: Path) -> None:
    plan = planned(trains, TWO)
    climbed(plan)
    assert [(rung["trained"], rung["result"]) for rung in climbed(plan)[2]] == [(False, "recorded"), (False, "aligned")]


@pytest.mark.slow
def test_a_training_that_fails_is_told_with_its_last_word(trains: Path) -> None:
    code, _, rungs = climbed(planned(trains, [{"name": "one"}, {"name": "two", "changes": "fails"}]))
    assert (code, rungs[1]["result"]) == (3, "failed")
    assert all(word in str(rungs[1]["told"]) for word in ("exit code 7", "no card"))
    assert (trains / "runs/logs/two.log").exists()
    code, _, rungs = climbed(planned(trains, [{"name": "still", "changes": "silent"}]))
    assert (code, rungs[0]["result"]) == (3, "failed")


def test_nothing_is_trained_where_only_a_judgement_is_asked(trains: Path) -> None:
    code, _, rungs = climbed(planned(trains, TWO), "--judge")
    assert (code, [rung["result"] for rung in rungs]) == (3, ["not trained"])


def test_launch_scripts_are_whole_commands(trains: Path) -> None:
    plan = planned(trains, [{"name": "one"}, {"name": "two", "ranks": 2, "changes": "--tp 2"}])
    done = invoke(app, ["ladder", str(plan), "--scripts", str(trains / "scripts")])
    assert (done.exit_code, "--judge" in done.output) == (0, True)
    files = sorted((trains / "scripts").iterdir())
    assert [file.name for file in files] == ["01_one.sh", "02_two.sh"]
    assert all(os.access(file, os.X_OK) for file in files)
    assert subprocess.run(["bash", "-n", str(files[1])], check=False).returncode == 0
    assert "--tp 2 2" in files[1].read_text()
    assert f"ALIGN_HOOKS_REPLAY_BATCHES={trains / 'runs/one'}" in files[1].read_text()


@pytest.mark.slow
def test_a_ladder_that_leaves_things_out_says_without_which_the_difference_is_gone(trains: Path) -> None:
    rungs: list[dict[str, object]] = [
        {"name": "one"},
        {"name": "again", "changes": "wrong", "against": "one"},
        {"name": "flat", "against": "one", "without": "tensor parallelism"},
        {"name": "short", "changes": "wrong", "against": "one", "without": "half of the sequence"},
    ]
    _, output, _ = climbed(planned(trains, rungs, to_the_end=True))
    assert "gone without: tensor parallelism" in output


# ---- plans


def test_a_rung_is_fed_by_the_first_unless_it_says_otherwise() -> None:
    plan = ExperimentPlan(folder="runs", command="train", rungs=(Rung("a"), Rung("b"), Rung("c", fed_by="b"), Rung("d", fed_by="nothing")))
    fed = [environment(plan, index).get("ALIGN_HOOKS_REPLAY_BATCHES") for index in range(4)]
    assert fed == [None, "runs/a", "runs/b", None]
    with_reference = ExperimentPlan(folder="runs", command="train", rungs=(Rung("a"),), reference="runs/trusted", environment={"X": "1"})
    assert environment(with_reference, 0)["ALIGN_HOOKS_LOAD_WEIGHTS"] == "runs/trusted@0"
    assert environment(with_reference, 0)["X"] == "1"
    assert with_reference.against(0) == Path("runs/trusted")


def test_changes_of_a_yaml_file_are_written_into_a_copy(tmp_path: Path) -> None:
    config = tmp_path / "llama.yaml"
    config.write_text("parallel_config:\n  model_parallel: 1  # cards\nseed: 1\n")
    rungs = [{"name": "one"}, {"name": "two", "ranks": 2, "changes": {"parallel_config.model_parallel": 2}}]
    plan = planned(tmp_path, rungs, command="msrun {ranks} --config {config}", config=str(config))
    assert invoke(app, ["ladder", str(plan), "--scripts", str(tmp_path / "scripts")]).exit_code == 0
    assert (tmp_path / "runs/two.yaml").read_text() == config.read_text().replace("1  # cards", "2  # cards")
    assert "runs/two.yaml" in (tmp_path / "scripts/02_two.sh").read_text()
    assert str(config) in (tmp_path / "scripts/01_one.sh").read_text()


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ({"rungs": []}, "no rungs"),
        ({"rungs": [{"name": "a b"}]}, "called 'a b'"),
        ({"rungs": [{"name": "../a"}]}, "called '../a'"),
        ({"rungs": [{"name": "a"}, {"name": "a"}]}, "two rungs are called a"),
        ({"rungs": [{"name": "a", "against": "b"}, {"name": "b"}]}, "not trained before it"),
        ({"rungs": [{"name": "a", "ranks": 0}]}, "ranks is 0"),
        ({"rungs": [{"name": "a", "ranks": 2}], "command": "train {changes}"}, "no {ranks}"),
        ({"rungs": [{"name": "a", "changes": "--x"}], "command": "train"}, "no {changes}"),
        ({"rungs": [{"name": "a", "changes": {"x": 1}}]}, "name it by config"),
        ({"rungs": [{"name": "a", "side": "left"}]}, "no side 'left'"),
        ({"rungs": [{"name": "a"}], "record": {"BATCH": "all"}}, "BATCHES"),
        ({"rungs": [{"name": "a"}], "folder": "s3://bucket/runs"}, "name a directory"),
        ({"rungs": [{"name": "a", "rank": 2}]}, "rank"),
        ({"rungs": "a"}, "docs/ladder.md"),
        ([], "docs/ladder.md"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(plan: object, why: str, tmp_path: Path) -> None:
    usual = {"folder": "runs", "command": "train {ranks} {changes}"}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump({**usual, **plan} if isinstance(plan, dict) else plan))
    with pytest.raises(ConfigurationError, match=r"plan\.yaml") as refused:
        read_plan(tmp_path / "plan.yaml")
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


# ---- the plan that narrows a difference down


def of_four_layers(**facts: object) -> Synthetic:
    return Synthetic(settings={}, weights={}, gradients={}, rows=[row(0)], model={"num_hidden_layers": 4}, facts=facts)


def test_a_plan_that_narrows_down_is_one_that_can_be_read(tmp_path: Path) -> None:
    run = of_four_layers(training={"compute_type": "float32", "sequence_length": 128})
    reference, candidate = (open_run(replace(run, side=side).write(tmp_path / side)) for side in ("torch", "ms"))
    file, text = tmp_path / "bisect.yaml", plan_text(Pair(reference, candidate))
    file.write_text(text)
    with pytest.raises(ConfigurationError, match="again: the command still has …; write the training's own words there"):
        read_plan(file)
    file.write_text(text.replace("…", "train.py"))
    plan = read_plan(file)
    names = [rung.name for rung in plan.rungs]
    assert names == ["again", "reference-half-layers", "candidate-half-layers", "reference-half-length", "candidate-half-length"]
    assert plan.to_the_end
    assert [plan.rungs[index].changes for index in (1, 2)] == ["--num-layers 2", {"model.model_config.num_hidden_layers": 2}]
    shortened = f"{candidate.path}_bisect/reference-half-layers"
    assert [str(plan.feeds(index)) for index in (0, 1, 2)] == [str(reference.path), "None", shortened]
    assert plan.against(1) is None
    assert "exec align-hooks run -- bash -c" in script(plan, 1)


def test_only_the_key_that_a_configuration_has_is_changed(tmp_path: Path) -> None:
    """And none that merely ends alike, as the layers that predict further do."""
    run = of_four_layers(arguments={"model.model_config.num_hidden_layers": "4", "model.model_config.mtp_num_layers": "1"})
    both = [open_run(replace(run, side="ms").write(tmp_path / name)) for name in ("reference", "candidate")]
    (tmp_path / "bisect.yaml").write_text(plan_text(Pair(*both)).replace("…", "train.py"))
    assert read_plan(tmp_path / "bisect.yaml").rungs[1].changes == {"model.model_config.num_hidden_layers": 2}


def test_a_run_that_was_stopped_before_its_end_is_trained_anew(tmp_path: Path) -> None:
    finished, stopped = Synthetic().write(tmp_path / "finished"), Synthetic(ended=None).write(tmp_path / "stopped")
    found = [climbing.recorded_at(path) for path in (finished, stopped, tmp_path / "none")]
    assert [run is not None for run in found] == [True, False, False]
