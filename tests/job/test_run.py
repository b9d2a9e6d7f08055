"""``align-hooks run -- COMMAND …``: what it attaches to, what it leaves alone, and how it ends. The frameworks are stand-ins."""

import contextlib
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

import started
from align_hooks.job.child import STARTUP
from chosen import every, slow, slow_but
from started import Ended, scrubbed
from synthetic import Synthetic

SEED = {"ALIGN_HOOKS_SEED": "7"}
RUN = (sys.executable, "-m", "align_hooks", "run", "--")
BARE = str(getattr(sys, "_base_executable", sys.executable))
"""The interpreter behind the virtual environment: it has neither align_hooks nor what that needs."""

STAND_INS = {
    **dict.fromkeys(("torch/__init__.py", "megatron/core/__init__.py", "megatron/training/__init__.py"), ""),
    "megatron/core/package_info.py": "__version__ = '0.19.2'",
    "megatron/training/arguments.py": """
        from types import SimpleNamespace
        def parse_args(**given):
            return SimpleNamespace(**{"seed": 1234, "train_iters": 3, "skip_train": False} | given)
        """,
    "mindformers/__init__.py": "__version__ = '1.9.0'",
    "train.py": """
        import os, sys, torch
        from megatron.training.arguments import parse_args
        print("seed", parse_args().seed, os.environ.get("PYTHONHASHSEED"))
        """,
    "convert.py": "import torch\nfrom megatron.training.arguments import parse_args\nprint('seed', parse_args(train_iters=None).seed)",
    "tool.py": "import mindformers; print('tool')",
    "plain.py": """
        import sys
        print(sorted(set(sys.modules) - {"sitecustomize"}), sys.path[1:] == sys.path[-len(sys.path) + 1:], sys.argv, sys.excepthook)
        """,
}


def attached(done: Ended) -> list[str]:
    """The lines that name an attached process, without their pids."""
    lines = (re.fullmatch(r"align_hooks: (\w+ side.*), pid \d+, (.*)", line) for line in done.err.splitlines())
    return [", ".join(line.groups()) for line in lines if line]


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        started.write(folder, text, name)


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A job in the background of a shell inherits an ignored SIGINT, and so would everything that is started here."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with the stand-ins and a few scripts."""
    write(tmp_path, STAND_INS)
    return tmp_path


def end(here: Path, *command: str, **more: str) -> Ended:
    done = subprocess.run(command, cwd=here, env=scrubbed(here, **more), capture_output=True, text=True, timeout=300, check=False)
    return Ended(done.returncode if done.returncode >= 0 else 128 - done.returncode, done.stdout, done.stderr)


def under_run(here: Path, *command: str, **more: str) -> Ended:
    return end(here, *RUN, *command, **more)


def script(here: Path, *lines: str) -> tuple[str, str]:
    """A shell script of these lines, where ``python`` is this interpreter."""
    write(here, {"script.sh": f'python() {{ {sys.executable} "$@"; }}\n' + "\n".join(lines)})
    return "bash", "script.sh"


# What is attached to


def test_training_anywhere_below_the_command_is_attached_to_and_nothing_else_is(here: Path) -> None:
    lines = ("python -m pip --version", "python plain.py", "python tool.py", "python convert.py", "python train.py")
    done = under_run(here, *script(here, *lines), **SEED)
    pip, plain, *rest = done.out.splitlines()
    assert pip.startswith("pip ")
    assert plain == end(here, sys.executable, "plain.py").out.strip()  # the same modules, the same hooks of python's
    assert rest == ["tool", "seed 1234", "align_hooks: args.seed: 1234 -> 7 (ALIGN_HOOKS_SEED)", "seed 7 7"]
    assert sorted(attached(done)) == [
        "ms side, tool.py: left alone, as it did not train",
        "torch side, convert.py: left alone, as it did not train",
        "torch side, rank 0, train.py: ended",
    ]
    assert (done.code, done.err.count("align_hooks:")) == (0, 3)


@pytest.mark.slow
def test_what_a_shell_puts_before_the_path_stays_before_it(here: Path) -> None:
    write(here, {"more/extra.py": "", "train.py": "import extra, megatron.core\n" + dedent(STAND_INS["train.py"])})
    done = under_run(here, *script(here, f"export PYTHONPATH={here}/more:$PYTHONPATH", "python train.py"), **SEED)
    assert (done.code, attached(done)) == (0, ["torch side, rank 0, train.py: ended"])


@pytest.mark.slow
def test_the_import_form_under_run_attaches_once(here: Path) -> None:
    write(here, {"import.py": "import align_hooks.ms_side, mindformers"})
    done = under_run(here, sys.executable, "import.py", **SEED)
    assert (done.code, attached(done)) == (3, ["ms side, rank 0, import.py: ended"])
    assert "hook 'config': mindformers.core.context.build_context was never imported" in done.err


def test_the_launcher_of_a_side_under_run_attaches_once(here: Path) -> None:
    done = under_run(here, sys.executable, "-m", "align_hooks.torch_side", "train.py", **SEED)
    assert (done.code, attached(done)) == (0, ["torch side, rank 0, train.py: ended"])
    assert done.out.count("args.seed: 1234 -> 7") == 1


WORKER = """
    import multiprocessing
    from megatron.training.arguments import parse_args
    def work(): print("worker", parse_args({0}).seed, flush=True)
    if __name__ == "__main__":
        process = multiprocessing.get_context("{1}").Process(target=work)
        process.start()
        process.join()
        print("main", parse_args().seed, flush=True)
    """


@pytest.mark.parametrize("method", ["spawn", slow("fork")])
@pytest.mark.parametrize("trains", [False, True], ids=["loads data", "comes to train"])
@pytest.mark.slow
def test_worker_processes_are_left_alone_and_told_of_where_they_come_to_train(here: Path, trains: bool, method: str) -> None:
    write(here, {"train.py": WORKER.format("" if trains else "train_iters=None", method)})
    done = under_run(here, sys.executable, "train.py", **SEED)
    assert (done.code, len(attached(done))) == ((3, 2) if trains else (0, 1))
    assert "torch side, rank 0, train.py: ended" in attached(done)
    assert "worker 1234" in done.out and "main 7" in done.out
    assert ("a worker process came to train and was left alone" in done.err) is trains


@pytest.mark.slow
def test_the_scheduler_of_msrun_is_left_alone(here: Path) -> None:
    done = under_run(here, *script(here, "MS_ROLE=MS_SCHED python tool.py", "MS_ROLE=MS_SCHED python train.py"), **SEED)
    assert (done.code, attached(done), done.out) == (3, [], "tool\nseed 1234 7\n")


@pytest.mark.slow
def test_a_run_directory_stays_the_same_directory_in_another_one(here: Path) -> None:
    Synthetic().write(here / "runs/source")
    write(here, {"train.py": "from megatron.training.arguments import parse_args; parse_args()", "elsewhere/x": ""})
    fed = {f"ALIGN_HOOKS_{name}": "runs/source" for name in ("REPLAY_BATCHES", "LOAD_WEIGHTS", "INJECT_GRADIENTS")}
    done = under_run(here, *script(here, "cd elsewhere", "python ../train.py"), ALIGN_HOOKS_RUN="runs/one", **fed)
    assert "is not a directory" not in done.err
    assert (here / "runs/one/manifest/rank_0.json").is_file()


@pytest.mark.slow
def test_nothing_is_claimed_by_a_process_that_does_not_train(here: Path) -> None:
    done = under_run(here, *script(here, "python convert.py", "python tool.py"), ALIGN_HOOKS_RUN="run")
    assert done.code == 3 and not (here / "run").exists()
    assert "no attached process came to train" in done.err


def test_mindspeed_is_attached_to_before_it_imports_megatron_to_patch_it(here: Path) -> None:
    """Not ``mindspeed.patch_utils``, whose hook would be handed an empty module."""
    write(
        here,
        {
            "mindspeed/__init__.py": "import sys; print('launcher', 'align_hooks.job.entry' in sys.modules)",
            "mindspeed/patch_utils.py": (Path(__file__).parents[1] / "hooking/mindspeed/patch_utils.py").read_text(),
            "patched.py": """
                import torch
                from mindspeed.patch_utils import MindSpeedPatchesManager
                def a_wrapper(parse_args): return lambda **given: print("MindSpeed's") or parse_args(**given)
                MindSpeedPatchesManager.register_patch("megatron.training.arguments.parse_args", a_wrapper)
                MindSpeedPatchesManager.apply_patches()
                from megatron.training.arguments import parse_args
                print("seed", parse_args().seed)
                """,
        },
    )
    done = under_run(here, sys.executable, "patched.py", **SEED)
    assert done.out.splitlines() == ["launcher True", "MindSpeed's", "align_hooks: args.seed: 1234 -> 7 (ALIGN_HOOKS_SEED)", "seed 7"]
    assert (done.code, attached(done)) == (0, ["torch side, rank 0, patched.py: ended"])


def test_looking_for_a_framework_attaches_nothing(here: Path) -> None:
    """An interpreter that has the framework and not align_hooks may look, and a spec that was found still attaches."""
    write(here, {"look.py": "import importlib.util as u; print(bool(u.find_spec('megatron.core')), type(u.find_spec('mindformers')))"})
    done = under_run(here, *script(here, f"PYTHONPATH={STARTUP}:{here} {BARE} look.py", "python look.py", "python train.py"), **SEED)
    assert (done.code, attached(done)) == (0, ["torch side, rank 0, train.py: ended"])
    assert done.out.count("True <class") == 2


@pytest.mark.slow
def test_a_framework_keeps_its_loader(here: Path) -> None:
    write(here, {"loader.py": "import mindformers as m, inspect; print(type(m.__loader__), m.__spec__.loader is m.__loader__, m.__file__)"})
    assert under_run(here, sys.executable, "loader.py", **SEED).out == end(here, sys.executable, "loader.py").out


# An existing sitecustomize

HIDDEN = {
    "none": {},
    "one that defines names": {"later/sitecustomize.py": "NAME = 'later'\nprint('hidden ran', __file__)"},
    "one of two": {"first/sitecustomize.py": "NAME = 'first'", "later/sitecustomize.py": "NAME = 'later'"},
    "a package": {"later/sitecustomize/__init__.py": "from .part import NAME", "later/sitecustomize/part.py": "NAME = 'part'"},
    "one that raises": {"later/sitecustomize.py": "print('before'); raise ValueError('of its own')"},
    "one that lacks a module": {"later/sitecustomize.py": "import not_there"},
    "one that changes the path": {"later/sitecustomize.py": "import sys; sys.path.append('/added')"},
    "one that watches imports": {"later/sitecustomize.py": "import sys\nclass Other:\n    pass\nsys.meta_path.append(Other)"},
    "usercustomize too": {"later/sitecustomize.py": "NAME = 'later'", "later/usercustomize.py": "print('user too')"},
}
SEES = """
    import sys
    mine = sys.modules.get("sitecustomize")
    print(getattr(mine, "NAME", None), getattr(mine, "__name__", None), [one for one in sys.path if "startup" not in one])
    print([getattr(one, "__name__", type(one).__name__) for one in sys.meta_path if type(one).__name__ != "Watcher"])
"""


@pytest.mark.parametrize("case", HIDDEN)
@pytest.mark.parametrize("python", slow_but([sys.executable, BARE], sys.executable), ids=["virtual", "bare"])
def test_a_sitecustomize_works_as_it_does_without_run(here: Path, case: str, python: str) -> None:
    write(here, {"sees.py": SEES, "first/x": "", "later/x": ""} | HIDDEN[case])
    path = os.pathsep.join([f"{here}/first", f"{here}/later", *(sys.path[1:] if python == sys.executable else ())])
    plain = end(here, python, "sees.py", PYTHONPATH=path)
    ours = end(here, python, "sees.py", PYTHONPATH=f"{STARTUP}{os.pathsep}{path}", _ALIGN_HOOKS_PROCESSES=str(here))
    if case == "none":  # but for the one that python found
        plain = Ended(plain.code, plain.out.replace("None None", "None sitecustomize"), plain.err)
    assert ours == plain


# Where it stands: docs/launchers.md

SRUN = """
srun() {  # a task's own variables, and no folder that the nodes share where NODES is set
    for task in 0 1; do
        env SLURM_PROCID=$task SLURM_NTASKS=2 ${NODES:+_ALIGN_HOOKS_PROCESSES=/of/another/node} "$@" || return
    done
}
"""
"""A stand-in for what starts tasks, on this machine or elsewhere."""
TASK = 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec "$@"'
"""A task's script: it makes the variables that Megatron-LM reads of Slurm's."""


@pytest.fixture
def nodes(here: Path) -> Path:
    write(here, {"task.sh": TASK})
    return here


def test_run_stands_before_a_launcher_whose_processes_are_on_this_machine(nodes: Path) -> None:
    done = under_run(nodes, *script(nodes, SRUN, f"srun bash task.sh {sys.executable} train.py"), **SEED)
    assert (done.code, attached(done)) == (0, [f"torch side, rank {rank}, train.py: ended" for rank in (0, 1)])


@pytest.mark.slow
def test_before_a_launcher_whose_processes_are_elsewhere_it_hears_of_none_and_says_where_it_belongs(nodes: Path) -> None:
    done = under_run(nodes, *script(nodes, SRUN, f"NODES=2 srun bash task.sh {sys.executable} train.py"), **SEED)
    assert (done.code, attached(done), done.out.count("seed 7")) == (3, [], 2)
    assert "behind srun or ssh" in done.err


@pytest.mark.slow
def test_behind_such_a_launcher_it_accounts_for_each_task_by_itself(nodes: Path) -> None:
    line = f"NODES=2 srun bash task.sh {shlex.join(RUN)} {sys.executable} train.py"
    done = end(nodes, *script(nodes, SRUN, line), **SEED)
    assert (done.code, attached(done)) == (0, [f"torch side, rank {rank}, train.py: ended" for rank in (0, 1)])


# How it ends


def test_the_exit_code_is_the_commands_own(here: Path) -> None:
    assert under_run(here, *script(here, "python train.py", "exit 7"), **SEED).code == 7


def test_a_command_without_training_is_told_why_and_ends_with_3(here: Path) -> None:
    done = under_run(here, *script(here, f"PYTHONPATH={here} python train.py"), **SEED)
    assert done.code == 3
    assert "no process was attached to on this machine: none imported megatron.core" in done.err
    assert "PYTHONPATH that was set anew" in done.err


def test_what_never_fired_makes_0_a_3(here: Path) -> None:
    done = under_run(here, sys.executable, "train.py", ALIGN_HOOKS_RUN="run", ALIGN_HOOKS_GRADIENTS="0")
    assert done.code == 3
    assert "hook 'train_step': megatron.training.training was never imported" in done.err
    assert "ALIGN_HOOKS_GRADIENTS=0: no such step was reached" in done.err


def test_a_training_that_fails_makes_0_a_3_and_says_by_what(here: Path) -> None:
    """Megatron-LM's own examples end with ``set +x``, and so with 0, whatever became of the training."""
    write(here, {"crash.py": "import torch\nfrom megatron.training.arguments import parse_args\nparse_args()\nraise KeyError('helpers')"})
    done = under_run(here, *script(here, "python crash.py", "set +x"), **SEED)
    assert done.code == 3
    failed = f"failed: the script ended with KeyError: 'helpers' at {here}/crash.py:4 in <module>"
    assert f"its training {failed}" in done.err
    assert attached(done) == [f"torch side, rank 0, crash.py: {failed}"]
    assert under_run(here, *script(here, "python crash.py"), **SEED).code == 1  # its own


REFUSALS = {
    "nothing asked": ({}, "no ALIGN_HOOKS_* variable asks for anything"),
    "unknown variable": ({"ALIGN_HOOKS_SEEED": "1"}, "did you mean ALIGN_HOOKS_SEED?"),
    "a source that is not there": ({"ALIGN_HOOKS_REPLAY_BATCHES": "nowhere"}, "align_hooks: ALIGN_HOOKS_REPLAY_BATCHES: /"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_honoured_is_refused_before_the_command_starts(here: Path, case: str) -> None:
    variables, said = REFUSALS[case]
    done = under_run(here, "touch", "started", **variables)
    assert done.code in (2, 3) and not (here / "started").exists()
    assert said in done.err and done.err.count("\n") == 1


def test_a_refusal_ends_training_with_one_line_and_2(here: Path) -> None:
    write(here, {"train.py": "from megatron.training.arguments import parse_args; parse_args(iterations_to_skip=[1]); print('trained')"})
    done = under_run(here, sys.executable, "train.py", ALIGN_HOOKS_RUN="run")
    assert (done.code, done.out, attached(done)) == (2, "", ["torch side, rank 0, train.py: refused"])
    assert done.err.startswith("align_hooks: --iterations-to-skip makes steps that train nothing") and "Traceback" not in done.err


@pytest.mark.slow
def test_variables_that_a_script_spoils_are_refused_where_it_trains(here: Path) -> None:
    done = under_run(here, *script(here, "export ALIGN_HOOKS_DEVICE=tpu", "python train.py"), **SEED)
    assert (done.code, done.out) == (2, "")
    assert "ALIGN_HOOKS_DEVICE='tpu': is not cpu" in done.err and "Traceback" not in done.err


def test_an_interpreter_without_align_hooks_ends_before_it_trains(here: Path) -> None:
    done = under_run(here, *script(here, f"PYTHONPATH={STARTUP}:{here} {BARE} train.py", "true"), **SEED)
    assert (done.code, done.out) == (3, "")
    assert f"{BARE} cannot attach align_hooks" in done.err and "Traceback" not in done.err


def test_a_failed_attachment_is_no_missing_framework(here: Path) -> None:
    """``try: import megatron.core`` is what a script does that can train without it."""
    train = "try:\n import megatron.core\nexcept ImportError: print('trained')"
    write(here, {"bad/wrapt.py": "raise ImportError('no wrapt')", "train.py": train})
    done = under_run(here, *script(here, f"PYTHONPATH={STARTUP}:{here}/bad:$PYTHONPATH python train.py", "true"), **SEED)
    assert (done.code, done.out) == (3, "")
    assert "cannot attach align_hooks (ImportError('no wrapt'))" in done.err


AGENT = """
    import os, subprocess, sys
    for dies in sys.argv[1:]:
        for rank in "01":
            more = {"TORCHELASTIC_RUN_ID": "none", "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
            subprocess.run([sys.executable, "train.py"], env={**os.environ, **more, "DIES": dies if rank == "1" else ""})
    """
DIES = """
import signal
if os.environ["DIES"] == "raise": raise ValueError("dies")
if os.environ["DIES"] in ("kill", "term"): os.kill(os.getpid(), getattr(signal, "SIG" + os.environ["DIES"].upper()))
"""


@pytest.mark.parametrize(
    ("starts", "code"), every(5, [("raise no", 0), ("kill no", 0), ("term kill no", 0), ("no kill", 3), ("kill raise", 3)])
)
def test_of_a_rank_that_its_launcher_started_again_the_last_process_counts(here: Path, starts: str, code: int) -> None:
    write(here, {"agent.py": AGENT, "train.py": dedent(STAND_INS["train.py"]) + DIES})
    done = under_run(here, sys.executable, "agent.py", *starts.split(), **SEED)
    assert done.code == code, done.err
    assert done.err.count("; started again") == 2 * starts.count(" ")


def test_a_killed_process_is_missed(here: Path) -> None:
    write(here, {"train.py": dedent(STAND_INS["train.py"]) + "sys.stdout.flush(); os.kill(os.getpid(), 9)"})
    done = under_run(here, *script(here, "python train.py", "true"), **SEED)
    assert (done.code, attached(done)) == (3, ["torch side, rank 0, train.py: never ended by itself: it was killed"])


def test_a_training_that_a_signal_ended_is_said_to_be_and_where(here: Path) -> None:
    """Its command may end with 0 all the same."""
    write(here, {"train.py": dedent(STAND_INS["train.py"]) + "import signal\ndef step(): os.kill(os.getpid(), signal.SIGTERM)\nstep()"})
    done = under_run(here, *script(here, "python train.py", "true"), ALIGN_HOOKS_RUN=str(here / "run"))
    assert done.code == 3
    assert re.search(r"rank 0, pid \d+, train.py: was ended by SIGTERM in \S+train.py:\d+ step\n", done.err)
    assert "its training was ended by SIGTERM in" in done.err


@pytest.mark.slow
def test_a_process_that_was_killed_before_it_trained_is_missed(here: Path) -> None:
    write(here, {"dies.py": "import os, megatron.core; os.kill(os.getpid(), 9)"})
    done = under_run(here, *script(here, "python dies.py", "python train.py"), **SEED)
    assert done.code == 3
    assert "was not heard of again after it was attached to" in done.err


STAYS = "\nimport time; print(open('there', 'w').write(str(os.getpid())), flush=True); time.sleep(60)"
LEFT = {
    "training": (STAND_INS["train.py"], "rank 0, train.py: still running", "trains on after the command ended, unaccounted for; "),
    "to train later": ("import os, megatron.core", "train.py: still running", "the command ended before any process came to train, and "),
}


@pytest.mark.parametrize("case", LEFT)
@pytest.mark.slow
def test_what_the_command_leaves_running_is_told_of(here: Path, case: str) -> None:
    """As msrun does without --join: it goes on and records, but nobody hears how it ends."""
    text, fate, said = LEFT[case]
    write(here, {"train.py": dedent(text).strip() + STAYS})
    done = under_run(here, *script(here, "python train.py > log 2>&1 &", "until [ -s there ]; do sleep 0.1; done"), **SEED)
    os.kill(int((here / "there").read_text()), signal.SIGKILL)
    assert (done.code, attached(done)) == (3, [f"torch side, {fate}"])
    assert said in done.err
    assert done.err.count("let the command wait for what it starts (msrun --join=True") == 1


TWO = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
ELSEWHERE = {"MASTER_ADDR": "10.0.0.1"}
FOUR = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"} | ELSEWHERE
RANKS = {
    "both": (TWO, ("RANK=0 python train.py", "RANK=1 python train.py"), 0),
    "both, twice": (TWO, ("for i in 0 1; do RANK=0 python train.py", "RANK=1 python train.py; done"), 0),
    "one anew": (TWO, ("RANK=0 python train.py", "RANK=1 PYTHONPATH=. python train.py"), 3),
    "one of them, once": (TWO, ("for i in . $PYTHONPATH; do RANK=0 python train.py", "RANK=1 PYTHONPATH=$i python train.py; done"), 3),
    "behind another sitecustomize": (TWO, ("RANK=0 python train.py", "RANK=1 PYTHONPATH=other:$PYTHONPATH python train.py"), 3),
    "the other on another machine": (TWO | ELSEWHERE, ("RANK=0 python train.py",), 0),
    "torchrun says how many": (FOUR, ("RANK=2 LOCAL_RANK=0 python train.py", "RANK=3 LOCAL_RANK=1 python train.py"), 0),
    "torchrun misses one": (FOUR, ("RANK=2 LOCAL_RANK=0 python train.py", "RANK=3 LOCAL_RANK=1 PYTHONPATH=. python train.py"), 3),
    "run is itself a rank": (TWO | {"RANK": "0"}, ("python train.py",), 0),
}


@pytest.mark.parametrize("case", every(6, RANKS))
def test_a_rank_that_trains_without_hooks_is_missed(here: Path, case: str) -> None:
    variables, lines, code = RANKS[case]
    write(here, {"other/sitecustomize.py": ""})
    done = under_run(here, *script(here, *lines), **SEED, **variables)
    assert (done.code, "did not come to train with hooks" in done.err) == (code, code == 3), done.err


@pytest.mark.slow
def test_run_within_run_gives_the_account_of_its_own_and_the_outer_one_the_same(here: Path) -> None:
    done = under_run(here, *RUN, sys.executable, "train.py", **SEED)
    assert (done.code, attached(done)) == (0, ["torch side, rank 0, train.py: ended"] * 2)


@pytest.mark.parametrize("text", ["", '{"pid": 1, "si', "[]"])
@pytest.mark.slow
def test_an_account_that_cannot_be_read_is_a_problem(here: Path, text: str) -> None:
    done = under_run(here, *script(here, "python train.py", f"echo '{text}' > $_ALIGN_HOOKS_PROCESSES/5.json"), **SEED)
    assert done.code == 3
    assert "pid 5: what it said of itself cannot be read" in done.err and "Traceback" not in done.err


@pytest.mark.parametrize(("command", "code"), [("not_there", 127), ("./plain.py", 126)])
def test_a_command_that_cannot_be_started_ends_as_in_a_shell(here: Path, command: str, code: int) -> None:
    done = under_run(here, command, **SEED)
    assert done.code == code
    assert f"'{command}' cannot be started" in done.err


OWN = "import megatron.training.arguments as own\n"


@pytest.mark.parametrize(
    "text", [f"{OWN}raise SystemExit(4)", f"{OWN}own.parse_args()\nraise SystemExit(4)", "import mindformers, sys\nsys.exit(4)"]
)
@pytest.mark.slow
def test_a_script_that_fails_by_itself_hears_nothing_of_hooks_that_never_fired(here: Path, text: str) -> None:
    write(here, {"train.py": text})
    done = under_run(here, sys.executable, "train.py", **SEED, ALIGN_HOOKS_RUN="run", ALIGN_HOOKS_BATCHES="all")
    assert done.code == 4
    _, last = [line for line in done.err.splitlines() if line.startswith("align_hooks: ")]
    assert last == "align_hooks: the command itself ended with exit code 4"
    write(here, {"train.py": text.replace("4)", "0)")})
    again = under_run(here, sys.executable, "train.py", **SEED, ALIGN_HOOKS_RUN="other", ALIGN_HOOKS_BATCHES="all")
    assert again.code == 3 and "align_hooks: " in again.err


def test_a_taken_directory_is_refused_before_anything_is_started(here: Path) -> None:
    Synthetic().write(here / "taken")
    done = under_run(here, sys.executable, "train.py", ALIGN_HOOKS_RUN="taken", ALIGN_HOOKS_BATCHES="all")
    assert (done.code, done.out, attached(done)) == (2, "", [])
    assert "taken already holds a run of rank 0; choose another directory" in done.err
    Synthetic(ended=None).write(here / "running")  # another node's part of the job, perhaps
    assert attached(under_run(here, sys.executable, "tool.py", ALIGN_HOOKS_RUN="running", ALIGN_HOOKS_BATCHES="all"))


def test_run_loads_nothing_of_the_reports(here: Path) -> None:
    write(here, {"rich.py": "raise ModuleNotFoundError(name='rich')"})
    assert under_run(here, sys.executable, "train.py", **SEED).code == 0


def test_without_a_command_it_says_how_it_is_used(here: Path) -> None:
    assert end(here, *RUN, **SEED).code == 2
    shown = end(here, *RUN[:-1], "--help")
    assert shown.code == 0
    assert shown.out.splitlines()[0] == "usage: align-hooks run [--arguments-only [--out FILE]] -- COMMAND [ARGUMENT ...]"


WAITS = """
    import os, signal, time
    from megatron.training.arguments import parse_args
    parse_args()
    def count(*_): os.write(1, b"signal\\n")  # print is not reentrant: "ready" may still be on its way out
    signal.signal(signal.SIGUSR1, count)
    try:
        print("ready", flush=True)
        while True:
            time.sleep(0.01)
    except KeyboardInterrupt:
        print("interrupt", flush=True)
        try:
            time.sleep(0.3)
        except KeyboardInterrupt:
            print("twice", flush=True)
        raise
"""


def test_signals_reach_the_command(here: Path) -> None:
    write(here, {"train.py": WAITS})
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen([*RUN, sys.executable, "train.py"], cwd=here, env=scrubbed(here, **SEED), **options) as process:
        try:
            assert process.stdout is not None
            while "ready" not in process.stdout.readline():
                assert process.poll() is None
            process.send_signal(signal.SIGUSR1)
            assert process.stdout.readline() == "signal\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=300)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert (out, process.returncode) == ("interrupt\n", -signal.SIGINT)
    assert "torch side, rank 0" in err


def test_a_key_of_the_terminal_reaches_the_command_once(here: Path) -> None:
    write(here, {"train.py": WAITS})
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(here)
        os.execve(sys.executable, [*RUN, sys.executable, "train.py"], scrubbed(here, **SEED))
    seen = b""
    while b"ready" not in seen:
        seen += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    with contextlib.suppress(OSError):  # the last process has closed it
        while True:
            seen += os.read(terminal, 1000)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGINT
    assert (seen.count(b"interrupt\r\n"), seen.count(b"twice")) == (1, 0)


COUNTED = """
import sys
work = {"call": 0, "c_call": 0, "open": 0, "os.listdir": 0, "os.scandir": 0, "import": 0}
def count(*told):
    *_, event, arguments = told  # with a frame before them where it is told of calls
    if event in work:
        work[event] += 1
import site
sys.addaudithook(count)
sys.setprofile(count)
site.main()
sys.setprofile(None)
print(list(work.values()))
"""
"""What Python does by itself before a script, the import of ``sitecustomize`` among it."""


def test_a_process_that_is_not_ours_starts_with_next_to_no_work(here: Path) -> None:
    plain = scrubbed(here)
    ours = plain | {"PYTHONPATH": f"{STARTUP}{os.pathsep}{plain['PYTHONPATH']}", "_ALIGN_HOOKS_PROCESSES": str(here)}

    def work(environment: dict[str, str]) -> list[int]:
        done = subprocess.run([sys.executable, "-S", "-c", COUNTED], env=environment, capture_output=True, text=True, check=True)
        return list(json.loads(done.stdout))

    calls, c_calls, opened, listed, scanned, imported = (one - other for one, other in zip(work(ours), work(plain), strict=True))
    assert (listed, scanned, imported) == (0, 0, 1)  # sitecustomize itself
    assert opened <= 3
    assert calls + c_calls < 800  # about 400: of Python's import of that one file, and of looking at the command line
