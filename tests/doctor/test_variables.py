"""What variables name is opened as the run would open it, and refused with its own words."""

from pathlib import Path

import pytest

from align_hooks.doctor.examination import Variable, examined
from holder import held
from synthetic import Synthetic, by_hand, routed, settings


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "run"
    Synthetic().write(path)
    return path


def looked(**variables: object) -> dict[str, Variable]:
    return {variable.name.removeprefix("ALIGN_HOOKS_").lower(): variable for variable in examined(settings(**variables))}


def test_only_what_is_set_is_said(tmp_path: Path) -> None:
    variables = looked(run=tmp_path / "new", seed=42, batches="all", local_norms="none")
    assert {name: (variable.value, variable.found) for name, variable in variables.items()} == {
        "run": (str(tmp_path / "new"), "a new run"),
        "seed": ("42", ""),
        "batches": ("all", ""),
    }


def test_what_feeds_the_run_is_there(run: Path) -> None:
    variables = looked(replay_batches=run, load_weights=run, inject_gradients=f"{run}@0-1")
    assert {name: (variable.found, variable.problem) for name, variable in variables.items()} == {
        "replay_batches": ("batches of steps 0 to 2", ""),
        "load_weights": ("4 tensors", ""),
        "inject_gradients": ("gradients of 2 steps, 0 to 1", ""),
    }


def test_what_chooses_experts_is_there(tmp_path: Path) -> None:
    run = routed("routing").write(tmp_path / "run")
    variable = looked(replay_routing=run)["replay_routing"]
    assert (variable.found, variable.problem) == ("experts of 3 steps, 0 to 2", "")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("replay_batches", "{run}@7", "batches are recorded of 0 to 2 only"),
        ("replay_batches", "/nowhere/run", "/nowhere/run"),
        ("load_weights", "{run}@9", "holds no weights of step 9 (recorded: 0, 1, 2, 3)"),
        ("inject_gradients", "{run}@8", "holds no gradients (recorded: 0, 1, 2)"),
        ("replay_routing", "{run}", "holds no experts of tokens (recorded: none)"),
        ("teacher", "{run}", "holds no activations (recorded: none)"),
    ],
)
def test_what_is_not_there_is_a_problem_that_names_the_variable(run: Path, name: str, value: str, problem: str) -> None:
    variable = looked(**{name: value.format(run=run)})[name]
    assert problem in variable.problem
    assert variable.problem.startswith(f"ALIGN_HOOKS_{name.upper()}: ")


def test_a_directory_that_holds_a_run(run: Path) -> None:
    refusal = "already holds a run of rank 0; choose another directory, or set ALIGN_HOOKS_RUN_EXISTS=replace"
    assert refusal in looked(run=run)["run"].problem
    assert looked(run=run, run_exists="replace")["run"].found == "holds a run, which will be replaced"
    assert looked(run=run, run_exists="continue")["run"].found == "holds a run, which will be continued"


def test_a_refused_start_does_not_block_the_next_and_one_under_way_does(tmp_path: Path) -> None:
    with held(tmp_path / "run") as pid:
        for exists in ("refuse", "replace", "continue"):
            assert f"is being recorded into by pid {pid}" in looked(run=tmp_path / "run", run_exists=exists)["run"].problem
    assert looked(run=tmp_path / "run")["run"].found == "a new run"


def test_a_directory_made_by_hand_is_not_to_be_replaced(tmp_path: Path) -> None:
    assert "that no manifest lists" in looked(run=by_hand(tmp_path / "hand"), run_exists="replace")["run"].problem


def test_a_directory_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "is not yours to write" in looked(run=tmp_path / "file" / "run")["run"].problem
