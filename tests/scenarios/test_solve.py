"""From two commands to the cause: what is tried, what each trial decides, and how it ends where a training does not do its part."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from align_hooks.cli import app
from align_hooks.errors import AlignHooksError, RecordError
from align_hooks.messages import Side
from align_hooks.scenarios.solve import STATE, Solving, attached
from align_hooks.scenarios.trial import Budget, SolveStep, Trainings, last_words
from invoked import invoke
from scenarios.trained import TESTS, Trained


def test_runs_that_agree_fed_and_by_themselves(trained: Trained) -> None:
    done, said = trained.solve()
    assert (done.exit_code, said["result"]) == (0, "aligned")
    assert trained.made == ["reference", "candidate", "candidate_by_itself"]
    assert [step["verdict"] for step in said["steps"]] == ["aligned", "aligned"]
    page = (trained.folder / "runs/solve.md").read_text()
    assert all(line in page for step in said["steps"] for line in step["lines"])
    assert all(line in done.stdout for step in said["steps"] for line in step["lines"])


def test_a_data_set_of_its_own_is_found_behind_what_agrees_when_it_is_fed(trained: Trained) -> None:
    done, said = trained.solve("", "other_data")
    assert (done.exit_code, said["result"], said["told"]) == (1, "found", "at fault is the candidate's own data set")


@pytest.mark.parametrize("what", ["other_data", "other_weights"])
def test_another_framework_has_its_own_data_and_weights(what: str, trained: Trained) -> None:
    done, said = trained.solve("", f"mindformers {what}")
    assert (done.exit_code, said["result"]) == (0, "aligned")
    assert str(said["told"]).startswith("they agree when fed alike; of the candidate by itself that is not shown:")


def test_initial_weights_of_its_own_are_found(trained: Trained) -> None:
    done, said = trained.solve("", "other_weights")
    assert (done.exit_code, said["told"]) == (1, "at fault is how the candidate makes or loads its initial weights")


def test_what_no_feeding_removes_is_tried_further_until_nothing_is_left(trained: Trained) -> None:
    done, said = trained.solve("", "wrong")
    assert done.exit_code in (1, 4)
    assert len(said["steps"]) > 1
    assert {step["verdict"] for step in said["steps"]} <= {"diverged", "inconclusive"}
    assert len(set(trained.made)) == len(trained.made)  # nothing is trained twice


def test_what_was_stopped_goes_on_and_trains_nothing_twice(trained: Trained) -> None:
    done, said = trained.solve("", "other_data", "--trials", "1")
    assert (done.exit_code, said["result"]) == (4, "stopped")
    assert "--trials" in str(said["told"])
    done, said = trained.solve("", "other_data")
    assert (done.exit_code, said["result"]) == (1, "found")
    assert trained.made == ["reference", "candidate", "candidate_by_itself"]
    again, _ = trained.solve("", "other_data")  # and what is at its end only says it again
    assert (again.exit_code, trained.made) == (1, ["reference", "candidate", "candidate_by_itself"])


def test_a_training_that_fails_ends_it_with_its_last_word(trained: Trained) -> None:
    done, said = trained.solve("", "fails")
    assert (done.exit_code, said["result"]) == (3, "failed")
    assert "exit code 7: its training failed: no card" in str(said["told"])
    done, said = trained.solve("", "fails")  # which is tried again
    assert trained.made == ["reference", "candidate", "candidate"]


def test_a_candidate_that_cannot_train_by_itself_leaves_open_whether_that_agrees(trained: Trained) -> None:
    done, said = trained.solve("", "fails_alone")
    assert (done.exit_code, said["result"]) == (4, "open")
    assert str(said["told"]).startswith("they agree when fed alike; ")
    assert "no card" in str(said["told"])


def test_what_was_decided_is_not_advised_again(trained: Trained) -> None:
    _, said = trained.solve("", "other_weights")
    assert (said["comparison"]["next"], said["comparison"]["commands"]) == ("", [])  # type: ignore[index]
    page = (trained.folder / "runs/solve.md").read_text()
    assert "ALIGN_HOOKS_RUN_EXISTS=replace" in page.replace("\\", "")
    assert "| initial weights |" in page


def test_a_training_that_asks_has_nobody_to_ask(trained: Trained) -> None:
    done, said = trained.solve("asks")
    assert (done.exit_code, "EOF" in str(said["told"])) == (3, True)


def test_a_training_that_hangs_is_ended_when_its_time_is_up(trained: Trained) -> None:
    done, said = trained.solve("hangs", "", "--minutes", "0.05")
    assert (done.exit_code, said["result"]) == (4, "stopped")
    assert "did not end" in str(said["told"])


def test_a_reference_that_is_resumed_is_recorded_from_its_own_first_step(trained: Trained) -> None:
    done, said = trained.solve("resumed", "resumed")
    assert (done.exit_code, said["result"]) == (0, "aligned"), done.output
    assert trained.made[:3] == ["reference", "reference", "candidate"]
    assert "ALIGN_HOOKS_WEIGHTS=4" in said["steps"][0]["lines"][0]


def test_a_reference_that_does_not_repeat_itself_proves_nothing(trained: Trained) -> None:
    done, said = trained.solve("unsteady", "wrong")
    assert "reference_again" in trained.made
    assert (done.exit_code, said["result"]) == (4, "open")
    assert "did not do the same twice" in str(said["told"])


def test_another_machine_trains_its_side(trained: Trained) -> None:
    done, said = trained.solve("", "", "--elsewhere", "candidate")
    assert (done.exit_code, said["result"], trained.made) == (4, "waiting", ["reference"])
    over, there, back = said["lines"]
    runs = trained.folder / "runs"
    assert over.startswith(f"rsync -aR {runs / 'reference'} ")
    assert there == said_line(runs)
    assert str(runs / "candidate") in back
    assert subprocess.run(["bash", "-n"], input="\n".join(said["lines"]), text=True, check=False).returncode == 0
    subprocess.run(["bash", "-c", there.replace("align-hooks run -- ", "env -C . ")], check=True)
    done, said = trained.solve("", "", "--elsewhere", "candidate")  # which goes on with what came back
    assert (said["result"], trained.made) == ("waiting", ["reference", "candidate"])


def said_line(runs: Path) -> str:
    """The line of the candidate's first training."""
    state = json.loads((runs / STATE).read_text())
    solving = Solving(Trainings(runs, {Side.REFERENCE: state["reference"], Side.CANDIDATE: state["candidate"]}), Budget(1, 1.0))
    return str(solving.first_trial().commands[1])


def test_a_budget_of_bytes(trained: Trained) -> None:
    done, said = trained.solve("", "", "--gigabytes", "1e-9")
    assert (done.exit_code, said["result"]) == (4, "stopped")
    assert "--gigabytes" in str(said["told"])


def test_nothing_is_run_that_was_not_printed(trained: Trained) -> None:
    done, _ = trained.solve("", "", "--dry-run")
    assert (done.exit_code, trained.made) == (0, [])
    assert not (trained.folder / "runs").exists()
    assert done.stdout.count("align-hooks run -- ") == 2


def test_a_record_stands_for_the_command_that_trained_it(trained: Trained) -> None:
    trained.solve()
    runs = trained.folder / "runs"
    done = invoke(app, ["solve", str(runs / "reference"), str(runs / "candidate"), "--dry-run"], {"COLUMNS": "200"})
    assert done.stdout.count(f"align-hooks run -- {trained.command()}") == 2


def test_a_folder_of_something_else_is_left_alone(trained: Trained) -> None:
    trained.solve()
    done, _ = trained.solve("", "wrong")
    assert isinstance(done.exception, AlignHooksError)
    assert "holds the steps of other commands" in str(done.exception)
    (trained.folder / "runs" / STATE).write_text("{")
    done, _ = trained.solve()
    assert isinstance(done.exception, RecordError)
    (trained.folder / "runs" / STATE).unlink()
    done, _ = trained.solve()
    assert "holds something else" in str(done.exception)


def test_what_is_stopped_by_its_user_leaves_no_training_behind(tmp_path: Path) -> None:
    """The training is in a session of its own, which no terminal's interrupt reaches."""
    program = f"""
import sys; sys.path.insert(0, {str(TESTS)!r})
from pathlib import Path
from align_hooks.scenarios.trial import ran
ran("sleep 600 & echo $! > {tmp_path}/pid; wait", Path({str(tmp_path / "log")!r}), 600, {{}})
"""
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL) as process:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.wait(60)
    pid = int((tmp_path / "pid").read_text())
    for _ in range(200):
        if not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]:
            return
        time.sleep(0.05)
    pytest.fail("it runs on")


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("bash train.sh", "align-hooks run -- bash train.sh"),
        ("cd there && bash train.sh", "align-hooks run -- bash -c 'cd there && bash train.sh'"),
        ("GPUS=8 bash train.sh", "align-hooks run -- bash -c 'GPUS=8 bash train.sh'"),
        ("bash 'my train.sh'", "align-hooks run -- bash 'my train.sh'"),
        ("bash $HOME/train.sh", "align-hooks run -- bash -c 'bash $HOME/train.sh'"),
        ("bash 'open", "align-hooks run -- bash -c 'bash '\"'\"'open'"),
    ],
)
def test_a_command_is_started_as_its_shell_would(command: str, line: str) -> None:
    assert attached(command) == line


def test_the_last_word_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for content, word in {
        "": "it printed nothing",
        "Traceback\nAssertionError: no CUDA\nalign_hooks: the command itself ended with exit code 1\n": "AssertionError: no CUDA",
        "align_hooks: pid 7: refused\nbash: exit\nalign_hooks: the command itself ended with exit code 2\n": "pid 7: refused",
    }.items():
        log.write_text(content)
        assert last_words(log) == word


def test_a_step_is_kept_as_it_was(trained: Trained) -> None:
    trained.solve("", "other_data")
    state = json.loads((trained.folder / "runs" / STATE).read_text())
    assert list(state["steps"][0]) == list(SolveStep.__struct_fields__)
