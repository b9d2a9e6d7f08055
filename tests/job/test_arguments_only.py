"""``align-hooks run --arguments-only``: what it runs, where each process ends, what it writes. The frameworks are stand-ins."""

import contextlib
import json
import sys
from pathlib import Path

import pytest

from align_hooks.checklist.result import CLEAN
from align_hooks.checklist.sides import check
from align_hooks.configuration.source import read
from align_hooks.configuration.values import ConfigurationError
from align_hooks.job.arguments_only import choose
from align_hooks.job.parsed_arguments import Parsed
from align_hooks.messages import message, with_commands
from job.test_run import STAND_INS, Ended, end, interruptible, script, write

__all__ = ["interruptible"]

RUN = (sys.executable, "-m", "align_hooks", "run", "--arguments-only")
TRAIN = """
    import sys
    from megatron.training.arguments import parse_args
    try:
        parse_args(num_layers=int(sys.argv[1]), lr=1e-4, train_iters=int(sys.argv[2]) if sys.argv[2:] else None)
    except BaseException:
        pass
    open("trained", "w").close()
    """


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write(tmp_path, {**STAND_INS, "train.py": TRAIN})
    return tmp_path


def only(here: Path, *command: str, **more: str) -> Ended:
    return end(here, *RUN, *command, **more)


def test_a_process_ends_where_its_arguments_are_parsed(here: Path) -> None:
    done = only(here, "--", *script(here, "python train.py 4 10", "echo after $?"))
    assert (done.code, done.out) == (0, "after 0\n")
    assert not (here / "trained").exists()
    first, last = done.err.splitlines()
    assert first == "align_hooks: runs bash script.sh, up to where the framework has parsed its arguments; nothing is trained"
    assert last == "align_hooks: arguments.json holds 5 arguments of train.py, rank 0 of 1, for align-hooks check"


def test_check_reads_what_was_written(here: Path) -> None:
    only(here, "--out", "one.json", "--", sys.executable, "train.py", "4", "10")
    one = read(str(here / "one.json"), {})
    assert (one.values["num_layers"].value, one.values["num_layers"].where) == (4, "one.json")
    (here / "train.sh").write_text("LAYERS=4\ntorchrun pretrain_gpt.py --num-layers $LAYERS --lr 1e-4 --train-iters 10 --seed 1234\n")
    assert check(str(here / "train.sh"), str(here / "one.json"), {}, mindformers="1.9").exit_code == CLEAN


@pytest.mark.slow
def test_variables_that_ask_for_something_ask_for_nothing(here: Path) -> None:
    lines = (f"export ALIGN_HOOKS_RUN={here}/set_by_the_script ALIGN_HOOKS_SEED=7", "python -m align_hooks.torch_side train.py 4 10")
    done = only(here, "--", *script(here, *lines), ALIGN_HOOKS_RUN=str(here / "run"), ALIGN_HOOKS_NONSENSE="1")
    assert done.code == 0
    assert json.loads((here / "arguments.json").read_text())["arguments"]["seed"] == "1234"
    assert not any((here / name).exists() for name in ("run", "set_by_the_script", "trained"))


@pytest.mark.slow
def test_the_lowest_rank_of_the_first_training_is_written(here: Path) -> None:
    ranks = (f"RANK={rank} WORLD_SIZE=2 python train.py 4 10" for rank in (1, 0))
    done = only(here, "--", *script(here, "python train.py 1", *ranks, "python train.py 8 10"))
    facts = json.loads((here / "arguments.json").read_text())
    assert (facts["arguments"]["num_layers"], facts["rank"], facts["world_size"]) == ("4", 0, 2)
    assert "rank 0 of 2, for align-hooks check; 2 other commands parsed arguments too, which are not in it" in done.err


def test_where_nothing_trains_what_parsed_first_is_written() -> None:
    every = [Parsed(at, "torch", {}, ["x"], 0, 1, trains=False, environment={}, arguments={}) for at in (2, 1)]
    assert choose(every).parsed == 1


WORKERS = """
    import multiprocessing, runpy, sys
    def work():
        runpy.run_path("train.py", run_name="__main__")
    if __name__ == "__main__":
        child = multiprocessing.get_context(sys.argv.pop()).Process(target=work)
        child.start()
        child.join()
        sys.exit(child.exitcode)
    """


@pytest.mark.parametrize("how", ["fork", "spawn"])
@pytest.mark.slow
def test_a_worker_that_would_train_ends_too(here: Path, how: str) -> None:
    write(here, {"workers.py": WORKERS})
    done = only(here, "--", sys.executable, "workers.py", "4", "10", how)
    assert (done.code, (here / "trained").exists()) == (0, False)
    assert (here / "arguments.json").exists()


def test_the_commands_own_exit_code_is_kept(here: Path) -> None:
    done = only(here, "--", *script(here, "python train.py 4 10", "exit 7"))
    assert (done.code, done.err.splitlines()[-1]) == (7, "align_hooks: the command itself ended with exit code 7")
    assert (here / "arguments.json").exists()


@pytest.mark.slow
def test_what_the_command_leaves_running_is_ended(here: Path) -> None:
    """A watcher that never ends, and one that ignores being asked to end; training that a launcher left behind is waited for."""
    lines = ("(trap '' TERM; while :; do sleep 600; done) &", "setsid sleep 601 &", "(sleep 1; python train.py 4 10) &", "sleep 0.2")
    done = only(here, "--", *script(here, *lines))
    assert (done.code, (here / "arguments.json").exists(), (here / "trained").exists()) == (0, True, False)
    assert "(sleep), which the command left running" in done.err
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            assert path.read_bytes() not in (b"sleep\x00600\x00", b"sleep\x00601\x00")


def test_a_command_that_cannot_be_started_is_told(here: Path) -> None:
    done = only(here, "--", "./no-such-command")
    assert done.code == 127
    assert "'./no-such-command' cannot be started" in done.err and "nothing was written" in done.err


@pytest.mark.parametrize(("line", "code"), [("python plain.py", 3), ("exit 7", 7)])
def test_a_command_that_parses_nothing_writes_nothing(here: Path, line: str, code: int) -> None:
    done = only(here, "--", *script(here, line))
    assert done.code == code
    assert done.err.splitlines()[-1].startswith("align_hooks: no process parsed the arguments")
    assert not (here / "arguments.json").exists()


def test_a_file_that_is_there_is_kept(here: Path) -> None:
    (here / "arguments.json").write_text("mine")
    done = only(here, "--", sys.executable, "train.py", "4", "10")
    assert (done.code, done.err) == (2, "align_hooks: arguments.json is there already; name another file, --out FILE\n")
    assert (here / "arguments.json").read_text() == "mine"
    assert only(here, "--out", "no/where.json", "--", "true").code == 2


@pytest.mark.parametrize("arguments", ["--out x.json -- true", "--arguments-only", "--arguments-only --out=", "--out"])
@pytest.mark.slow
def test_usage(here: Path, arguments: str) -> None:
    done = end(here, *RUN[:-1], *arguments.split())
    assert done.code == 2
    assert "usage: align-hooks run [--arguments-only [--out FILE]] -- COMMAND" in done.err


def test_an_option_that_there_is_not(here: Path) -> None:
    done = end(here, *RUN[:-1], "--arguments-onyl", "true")
    assert (done.code, done.err) == (2, "align_hooks: there is no option '--arguments-onyl'; did you mean --arguments-only?\n")


def test_the_console_script_takes_the_same(here: Path) -> None:
    main = "import sys; from align_hooks.cli import main; main()"
    done = end(here, sys.executable, "-c", main, "run", "--arguments-only", "--out=x.json", "--", "true")
    assert (done.code, "no process parsed" in done.err) == (3, True)


def test_an_unsupported_framework_is_one_line(here: Path) -> None:
    write(here, {"megatron/core/package_info.py": "__version__ = '0.99'"})
    done = only(here, "--", sys.executable, "train.py", "4", "10")
    assert done.code == 2
    assert "hook 'arguments' was proven on megatron-core" in done.err
    assert not (here / "trained").exists()


@pytest.mark.parametrize("text", ["{}", "[1]", "1", "no json", '{"parsed": 1}', '{"parsed": 1, "arguments": 3}', "[" * 100_000])
def test_another_json_is_no_side(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ConfigurationError, match=r"x.json is not what align-hooks run --arguments-only writes"):
        read(str(tmp_path / "x.json"), {})


UNFOLLOWED = "torchrun pretrain_gpt.py --num-layers $(cat layers) --lr 1e-4\n"
HARM = {"pkill -9 python": "pkill", "true; rm -rf out": "rm", "  ray stop --force": "ray stop", "if a; then kill 3; fi": "kill"}


def test_a_script_that_cannot_be_followed_is_told_of_it(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(UNFOLLOWED)
    same = f"bash {path} dlc 'two words' 8"
    for given, advised in ((str(path), f"bash {path}"), (same, same), (f"SIZE=1 bash {path} 8", f"env SIZE=1 bash {path} 8")):
        told = with_commands(message("configuration.told_by_a_run"), f"align-hooks run --arguments-only -- {advised}")
        assert read(given, {}).by_a_run == told
    for line, command in HARM.items():
        path.write_text(f"# rm and kill\n{line}\n{UNFOLLOWED}")
        assert read(str(path), {}).by_a_run == message("configuration.run_does_harm", name="train.sh", line=2, command=command)
    path.write_text("torchrun pretrain_gpt.py --num-layers 4 --lr 1e-4\n")
    assert read(str(path), {}).by_a_run is None
