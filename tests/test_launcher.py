"""``python -m align_hooks.torch_side script.py …`` against ``python script.py …``, and the import form; every run in a fresh interpreter.

A run with ``ALIGN_HOOKS_SEED`` set attaches hooks that never fire here, because no Megatron is imported: its exit code 3 for 0 and
the lines that say so are what the launcher adds, and nothing else may differ.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

FOREIGN = ("ALIGN_HOOKS_", "_ALIGN_HOOKS_", "MASTER_", "MS_", "OMPI_", "TORCHELASTIC_", "SLURM_", "PYTHON")
LAUNCHER = {"RANK", "RANK_ID", "RANK_SIZE", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"}
RUNNER = ("-m", "align_hooks.torch_side")
SEED = {"ALIGN_HOOKS_SEED": "1"}
NEVER = "align_hooks: hook 'arguments': megatron.training.arguments was never imported\n"
NEVER_MS = (
    "align_hooks: hook 'config': mindformers.core.context.build_context was never imported\n"
    "align_hooks: hook 'dataloader': mindformers.dataset.base_dataset was never imported\n"
)


@dataclass(frozen=True)
class Ended:
    """How a process ended. ``code`` is what a shell sees: 128 + the signal that killed it."""

    code: int
    out: str
    err: str


def scrubbed(**more: str) -> dict[str, str]:
    """This environment without anything that a launcher, another run or a developer's shell left in it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN) and name not in LAUNCHER}
    path = {"PYTHONPATH": os.environ["PYTHONPATH"]} if os.environ.get("PYTHONPATH") else {}
    return kept | path | {"PYTHONDONTWRITEBYTECODE": "1"} | more


def start(cwd: Path, *command: str, **environment: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, *command], cwd=cwd, env=scrubbed(**environment), text=True, stdin=pipe, stdout=pipe, stderr=pipe
    )


def end(process: subprocess.Popen[str], stdin: str = "") -> Ended:
    try:
        out, err = process.communicate(stdin, timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return Ended(process.returncode if process.returncode >= 0 else 128 - process.returncode, out, err)


def run(cwd: Path, *command: str, stdin: str = "", **environment: str) -> Ended:
    return end(start(cwd, *command, **environment), stdin)


def compared(cwd: Path, *command: str, flags: tuple[str, ...] = (), stdin: str = "", **environment: str) -> Ended:
    """Run ``command`` under plain python, under the runner, and under the runner with hooks; all three must be one. Returns the plain one."""
    processes = [
        start(cwd, *flags, *command, **environment),
        start(cwd, *flags, *RUNNER, *command, **environment),
        start(cwd, *flags, *RUNNER, *command, **environment, **SEED),
    ]
    plain, off, on = (end(process, stdin) for process in processes)
    assert off == plain
    assert on == Ended(plain.code or 3, plain.out, plain.err + (NEVER if plain.code == 0 else ""))
    return plain


def write(folder: Path, text: str, name: str = "script.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text), "utf-8")
    return path


# What the script sees

SIGHTS = {
    "its arguments": "import sys; print(sys.argv)",
    "its name": "print(__name__)",
    "its file": "print(__file__)",
    "its file, after a change of directory": "import os, os.path; os.chdir('/'); print(os.path.abspath(__file__))",
    "its spec, package and cache": "print(__spec__, repr(__package__), __cached__)",
    "its loader": "print(type(__loader__), __loader__.name, __loader__.path, __loader__.get_source('__main__'))",
    "its globals": "print(sorted(globals()))",
    "builtins": "import builtins; print(__builtins__ is builtins)",
    "its docstring": "'''What it is for.'''\nprint(__doc__)",
    "no docstring": "print(__doc__)",
    "the search path": "import sys; print(sys.path)",
    "itself as __main__": "import sys, __main__; print(__main__ is sys.modules['__main__'], vars(__main__) is globals())",
    "its annotations": "def function(x: int) -> 'str': ...\nprint(function.__annotations__)",
    "its annotations at the top": "x: int = 1\nprint(__annotations__)",
    "its code": "import sys; print(sys._getframe().f_code.co_filename, sys._getframe().f_code.co_name, sys._getframe().f_code.co_flags)",
    "its source": "import inspect\ndef function(): return 1\nprint(inspect.getsource(function))",
    "no framework": "import sys; print({'torch', 'megatron', 'mindspore', 'mindformers'} & set(sys.modules))",
    "warnings of its own": "import warnings; warnings.warn('careful')",
    "an encoding cookie": "# -*- coding: latin-1 -*-\nprint(len('ä'))",
    "asserts": "assert __debug__; print('checked')",
}


@pytest.mark.parametrize("source", SIGHTS.values(), ids=SIGHTS)
def test_the_script_sees_what_it_sees_under_plain_python(tmp_path: Path, source: str) -> None:
    write(tmp_path, source, "sub/script.py")
    assert compared(tmp_path, "sub/script.py", "--lr", "1e-3", "-x", "", "--help").code == 0


@pytest.mark.parametrize("form", ["script.py", "./script.py", "../here/script.py", "absolute", "link.py", "no_suffix"])
def test_the_script_may_be_named_in_any_way(tmp_path: Path, form: str) -> None:
    here = tmp_path / "here"
    script = write(here, "import sys; print(sys.argv, __file__, sys.path)")
    write(tmp_path / "elsewhere", "import sys; print(sys.argv, __file__, sys.path)", "target.py")
    (here / "link.py").symlink_to("../elsewhere/target.py")
    (here / "no_suffix").write_text(script.read_text("utf-8"), "utf-8")
    assert compared(here, str(script) if form == "absolute" else form, "a").code == 0


FLAGS = [("-W", "error"), ("-O",), ("-X", "utf8", "-X", "dev"), ("-P",), ("-u", "-B"), ("-s", "-S")]


@pytest.mark.parametrize("flags", FLAGS[:-1], ids=" ".join)
def test_flags_of_the_interpreter_reach_the_script(tmp_path: Path, flags: tuple[str, ...]) -> None:
    write(tmp_path, "import sys; print(sys.flags, sys.warnoptions, sys._xoptions, __debug__, sys.path)")
    environment = {"PYTHONHASHSEED": "1"}  # what the hooks' seed asks for, so that sys.flags agree
    assert compared(tmp_path, "script.py", flags=flags, **environment).code == 0


def test_siblings_are_imported_from_beside_the_script_and_not_from_the_working_directory(tmp_path: Path) -> None:
    write(tmp_path, "where = 'working directory'", "sibling.py")
    write(tmp_path, "where = 'beside the script'", "sub/sibling.py")
    write(tmp_path, "import sibling; print(sibling.where)\nfrom . import sibling", "sub/script.py")
    plain = compared(tmp_path, "sub/script.py")
    assert (plain.code, plain.out) == (1, "beside the script\n")
    assert "ImportError: attempted relative import with no known parent package" in plain.err


def test_standard_input_is_the_scripts(tmp_path: Path) -> None:
    write(tmp_path, "import sys; print(repr(sys.stdin.readline())); print(repr(input())); print(repr(sys.stdin.read()))")
    assert compared(tmp_path, "script.py", stdin="one\ntwo\nthree\nfour").out == "'one\\n'\n'two'\n'three\\nfour'\n"


def test_a_class_defined_in_the_script_can_be_pickled(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import pickle
        class Batch:
            def __eq__(self, other): return type(other) is Batch
        data = pickle.dumps(Batch())
        print(data, pickle.loads(data) == Batch())
        """,
    )
    assert compared(tmp_path, "script.py").out.endswith(" True\n")


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.parametrize("script", ["script.py", "sub/script.py"])
def test_worker_processes_find_the_scripts_functions_and_classes(tmp_path: Path, method: str, script: str) -> None:
    write(
        tmp_path,
        f"""
        import multiprocessing, sys
        class Answer:
            def __init__(self, number): self.number = number
        def work(connection):
            connection.send((Answer(42), __name__, sys.argv, __file__))
        if __name__ == "__main__":
            context = multiprocessing.get_context("{method}")
            here, there = context.Pipe()
            process = context.Process(target=work, args=(there,))
            process.start()
            there.close()
            answer, *rest = here.recv()
            process.join()
            print(isinstance(answer, Answer), answer.number, *rest, process.exitcode)
        """,
        script,
    )
    assert compared(tmp_path, script, "--flag").out.startswith("True 42 ")


def test_a_spawned_worker_attaches_nothing(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import multiprocessing, sys
        def work(): print(any(type(one).__name__ == "ImportHookFinder" for one in sys.meta_path))
        if __name__ == "__main__":
            work()
            process = multiprocessing.get_context("spawn").Process(target=work)
            process.start()
            process.join()
        """,
    )
    assert run(tmp_path, *RUNNER, "script.py", **SEED) == Ended(3, "True\nFalse\n", NEVER)
    assert run(tmp_path, *RUNNER, "script.py") == Ended(0, "False\nFalse\n", "")


# How the script ends

ENDINGS = {
    "falls off its end": "print('done')",
    "sys.exit()": "import sys; sys.exit()",
    "sys.exit(None)": "import sys; sys.exit(None)",
    "sys.exit(0)": "import sys; sys.exit(0)",
    "sys.exit(3)": "import sys; sys.exit(3)",
    "sys.exit(-1)": "import sys; sys.exit(-1)",
    "sys.exit(True)": "import sys; sys.exit(True)",
    "sys.exit(message)": "import sys; sys.exit('the data set is missing')",
    "sys.exit(tuple)": "import sys; sys.exit((1, 2))",
    "raise SystemExit": "raise SystemExit(4)",
    "sys.exit in an exception handler": "import sys\ntry: 1 / 0\nexcept ZeroDivisionError: sys.exit(6)",
    "os._exit": "import os; os._exit(9)",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "an exception": "def function():\n    raise ValueError('bad value')\nfunction()",
    "a chained exception": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise RuntimeError('no') from error",
    "an exception in an exception handler": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    {}['key']",
    "an exception group": "raise ExceptionGroup('several', [ValueError(1), KeyError('two')])",
    "an exception with notes": "error = ValueError('bad')\nerror.add_note('look there')\nraise error",
    "a recursion": "def function(): function()\nfunction()",
    "an exception of json": "import json\njson.loads('{')",
    "a missing module": "import no_such_module_anywhere",
    "a syntax error": "print('never')\nx = = 2\n",
    "an indentation error": "if True:\nprint('never')\n",
    "a null byte": "print('never')\0",
    "a syntax error in a sibling": "import broken",
    "KeyboardInterrupt": "def function():\n    raise KeyboardInterrupt\nfunction()",
    "SIGINT": "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(5)",
    "GeneratorExit": "raise GeneratorExit",
    "an exception hook of its own": "import sys\nsys.excepthook = lambda kind, error, trace: print(kind, error, trace.tb_lineno)\n1 / 0",
    "atexit handlers": "import atexit\natexit.register(print, 'first')\natexit.register(print, 'second')\nprint('end')",
    "atexit handlers after an exception": (
        "import atexit, sys\natexit.register(lambda: print(repr(getattr(sys, 'last_value', None)), __name__))\nraise ValueError('bad')"
    ),
    "an atexit handler that raises": "import atexit\natexit.register(lambda: 1 / 0)",
    "objects deleted at the end": "class Last:\n    def __del__(self): print('deleted')\nlast = Last()",
    "a thread that outlives it": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()\nprint('end')",
    "an exception in a thread": "import threading\nthreading.Thread(target=lambda: 1 / 0, name='loader').start()",
    "output not flushed": "import sys; sys.stdout.write('no newline'); sys.stderr.write('nor here\\n')",
}


@pytest.mark.parametrize("source", ENDINGS.values(), ids=ENDINGS)
def test_the_script_ends_as_under_plain_python(tmp_path: Path, source: str) -> None:
    """Exit code, output and traceback, none of our frames in it."""
    write(tmp_path, source)
    write(tmp_path, "x = = 1", "broken.py")
    compared(tmp_path, "script.py")


def test_an_interrupted_script_dies_of_the_signal_so_that_shells_stop_too(tmp_path: Path) -> None:
    write(tmp_path, "raise KeyboardInterrupt")
    codes = []
    for command in (("script.py",), (*RUNNER, "script.py")):
        process = start(tmp_path, *command)
        end(process)
        codes.append(process.returncode)
    assert codes == [-signal.SIGINT, -signal.SIGINT]


# What the launcher itself refuses


@pytest.mark.parametrize("environment", [{}, SEED], ids=["nothing set", "seed set"])
@pytest.mark.parametrize("script", ["no_such_script.py", "folder", "-", "-m"])
def test_a_script_that_cannot_be_opened_is_one_line_and_exit_code_2(tmp_path: Path, script: str, environment: dict[str, str]) -> None:
    (tmp_path / "folder").mkdir()
    ended = run(tmp_path, *RUNNER, script, **environment)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith("align_hooks: ") and repr(script) in ended.err


def test_a_mistyped_script_does_not_use_up_the_run_directory(tmp_path: Path) -> None:
    write(tmp_path, "print('ran')")
    environment = {"ALIGN_HOOKS_RUN": str(tmp_path / "run")}
    assert run(tmp_path, *RUNNER, "scirpt.py", **environment).code == 2
    assert run(tmp_path, *RUNNER, "script.py", **environment).out == "ran\n"


def test_usage_without_a_script_is_exit_code_2_and_asked_for_0(tmp_path: Path) -> None:
    nothing, asked = run(tmp_path, *RUNNER), run(tmp_path, *RUNNER, "--help")
    assert (nothing.code, asked.code) == (2, 0)
    assert "usage: python -m align_hooks.torch_side SCRIPT" in nothing.out + nothing.err
    assert asked.out.startswith("usage: python -m align_hooks.torch_side SCRIPT") and asked.err == ""


PROBLEMS = {
    "an unknown variable": ({"ALIGN_HOOKS_SEDE": "1"}, ["ALIGN_HOOKS_SEDE: no such variable; did you mean ALIGN_HOOKS_SEED?"]),
    "a known variable in small letters": ({"ALIGN_HOOKS_seed": "1"}, ["ALIGN_HOOKS_seed: no such variable"]),
    "an unknown variable near nothing": (
        {"ALIGN_HOOKS_QQQQQQQQQQQQQQQQ": "1"},
        ["ALIGN_HOOKS_QQQQQQQQQQQQQQQQ: no such variable; align-hooks env"],
    ),
    "a variable whose work has not landed": ({"ALIGN_HOOKS_TEACHER": "1"}, ["ALIGN_HOOKS_TEACHER: no such variable"]),
    "a bad value": ({"ALIGN_HOOKS_DETERMINISTIC": "yes"}, ["ALIGN_HOOKS_DETERMINISTIC='yes': is neither 0 nor 1"]),
    "recording with nowhere to record to": (
        {"ALIGN_HOOKS_BATCHES": "all", "ALIGN_HOOKS_GRADIENTS": "0", "ALIGN_HOOKS_WEIGHTS": "0-4/2"},
        ["ALIGN_HOOKS_BATCHES, ALIGN_HOOKS_GRADIENTS, ALIGN_HOOKS_WEIGHTS: nowhere to record to; set ALIGN_HOOKS_RUN"],
    ),
    "several at once": (
        {"ALIGN_HOOKS_SEDE": "1", "ALIGN_HOOKS_SEED": "-1", "ALIGN_HOOKS_WEIGHTS": "0", "ALIGN_HOOKS_DEVICE": "gpu"},
        ["ALIGN_HOOKS_DEVICE='gpu': ", "ALIGN_HOOKS_SEDE: ", "ALIGN_HOOKS_SEED='-1': ", "ALIGN_HOOKS_WEIGHTS: nowhere to record to"],
    ),
}


@pytest.mark.parametrize(("environment", "lines"), PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("side", ["torch", "ms", "import"])
def test_settings_that_cannot_be_honoured_stop_the_start_with_one_line_each(
    tmp_path: Path, side: str, environment: dict[str, str], lines: list[str]
) -> None:
    write(tmp_path, "import align_hooks.ms_side\nprint('ran')" if side == "import" else "print('ran')")
    command = ("script.py",) if side == "import" else ("-m", f"align_hooks.{side}_side", "script.py")
    ended = run(tmp_path, *command, **environment)
    assert (ended.code, ended.out) == (2, "")
    assert [line.startswith(f"align_hooks: {start}") for line, start in zip(ended.err.splitlines(), lines, strict=True)] == [True] * len(
        lines
    )


def test_settings_are_checked_before_the_script_is_looked_for(tmp_path: Path) -> None:
    assert "ALIGN_HOOKS_SEDE" in run(tmp_path, *RUNNER, "no_such_script.py", ALIGN_HOOKS_SEDE="1").err


# Starting the interpreter again


def starts(folder: Path) -> dict[str, str]:
    """An environment in which every start of an interpreter adds a line to ``folder/starts``."""
    write(folder, f"open({str(folder / 'starts')!r}, 'a').write('started\\n')", "startup/sitecustomize.py")
    return {"PYTHONPATH": os.pathsep.join([str(folder / "startup"), *filter(None, [os.environ.get("PYTHONPATH")])])}


def count(folder: Path) -> int:
    lines = (folder / "starts").read_text("utf-8").count("\n")
    (folder / "starts").unlink()
    return lines


def test_the_interpreter_is_started_again_once_and_hash_randomisation_is_fixed(tmp_path: Path) -> None:
    environment = starts(tmp_path)
    write(tmp_path, "import os, sys; print(hash('a word'), sys.flags.hash_randomization, os.environ['PYTHONHASHSEED'], sys.argv)")
    wanted = run(tmp_path, "script.py", "x", PYTHONHASHSEED="12345").out
    for side in ("torch", "ms"):
        command = ("-m", f"align_hooks.{side}_side", "script.py", "x")
        for before in ({}, {"PYTHONHASHSEED": "0"}, {"PYTHONHASHSEED": "random"}):
            assert run(tmp_path, *command, **environment, **before, ALIGN_HOOKS_SEED="12345").out == wanted
            assert count(tmp_path) == 2
        assert run(tmp_path, *command, **environment, PYTHONHASHSEED="12345", ALIGN_HOOKS_SEED="12345").out == wanted
        assert count(tmp_path) == 1


def test_the_interpreter_is_not_started_again_when_nothing_needs_it(tmp_path: Path) -> None:
    environment = starts(tmp_path)
    write(tmp_path, "import os; print(os.environ.get('PYTHONHASHSEED'))")
    assert run(tmp_path, *RUNNER, "script.py", **environment).out == "None\n"
    assert run(tmp_path, *RUNNER, "script.py", **environment, ALIGN_HOOKS_LEARNING_RATE="0").out == "None\n"
    assert count(tmp_path) == 2


def test_determinism_without_a_seed_fixes_hashes_too(tmp_path: Path) -> None:
    write(tmp_path, "import os; print(hash('a word'), os.environ.get('NCCL_ALGO'), os.environ.get('CUBLAS_WORKSPACE_CONFIG'))")
    first, second = (run(tmp_path, *RUNNER, "script.py", ALIGN_HOOKS_DETERMINISTIC="1") for _ in range(2))
    assert first == second
    assert first.out.endswith(" Ring :4096:8\n") and first.code == 3


def test_an_interpreter_that_ignores_the_environment_is_not_started_for_ever(tmp_path: Path) -> None:
    environment = starts(tmp_path)
    write(tmp_path, "print('ran')")
    ended = run(tmp_path, "-E", *RUNNER, "script.py", **SEED)
    assert (ended.code, ended.out) == (3, "ran\n")
    assert run(tmp_path, *RUNNER, "script.py", **environment, **SEED).out == "ran\n"


def test_a_runner_started_by_a_script_under_the_runner_is_started_again_where_it_must(tmp_path: Path) -> None:
    environment = starts(tmp_path)
    write(tmp_path, "print(hash('a word'))", "inner.py")
    write(
        tmp_path,
        """
        import os, subprocess, sys
        environment = os.environ | {"ALIGN_HOOKS_SEED": "7"}
        sys.exit(subprocess.run([sys.executable, "-m", "align_hooks.torch_side", "inner.py"], env=environment).returncode)
        """,
    )
    ended = run(tmp_path, *RUNNER, "script.py", **environment, **SEED)
    assert ended == Ended(3, run(tmp_path, "inner.py", PYTHONHASHSEED="7").out, NEVER)
    assert count(tmp_path) == 4


# Hooks through the launcher, on a Megatron of three files


def megatron(folder: Path, arguments: str, version: str = "0.19.1") -> None:
    write(folder, "", "megatron/__init__.py")
    write(folder, "", "megatron/core/__init__.py")
    write(folder, f"__version__ = {version!r}", "megatron/core/package_info.py")
    write(folder, "", "megatron/training/__init__.py")
    write(folder, arguments, "megatron/training/arguments.py")


PARSE = """
    import argparse
    def parse_args(): return argparse.Namespace(seed=1234)
"""


def test_a_version_outside_the_range_ends_the_run_with_one_line_and_exit_code_2(tmp_path: Path) -> None:
    megatron(tmp_path, PARSE, "0.11.0")
    write(tmp_path, "import megatron.training.arguments\nprint('went on')")
    ended = run(tmp_path, *RUNNER, "script.py", **SEED)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "'arguments'" in ended.err and "megatron-core" in ended.err and "0.11.0" in ended.err


def test_a_missing_seam_ends_the_run_with_one_line_and_exit_code_2(tmp_path: Path) -> None:
    megatron(tmp_path, "def parse(): ...")
    write(tmp_path, "import megatron.training.arguments\nprint('went on')")
    ended = run(tmp_path, *RUNNER, "script.py", **SEED)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "'arguments'" in ended.err and "megatron.training.arguments has no parse_args" in ended.err


def test_a_script_that_swallows_the_failure_and_imports_again_does_not_succeed(tmp_path: Path) -> None:
    megatron(tmp_path, "def parse(): ...")
    write(tmp_path, "try: import megatron.training.arguments\nexcept Exception: import megatron.training.arguments\nprint('went on')")
    ended = run(tmp_path, *RUNNER, "script.py", **SEED)
    assert (ended.code, ended.out) == (3, "went on\n")
    assert "megatron.training.arguments has no parse_args" in ended.err


def test_a_hook_that_is_attached_and_never_called_is_exit_code_3_and_one_that_fails_is_not(tmp_path: Path) -> None:
    megatron(tmp_path, PARSE)
    write(tmp_path, "import sys, megatron.training.arguments\nsys.exit(int(sys.argv[1]))")
    idle = "align_hooks: hook 'arguments': attached to megatron.training.arguments, never called\n"
    assert run(tmp_path, *RUNNER, "script.py", "0", **SEED) == Ended(3, "", idle)
    assert run(tmp_path, *RUNNER, "script.py", "5", **SEED) == Ended(5, "", "")


def test_a_hook_that_fired_leaves_exit_code_0_and_has_done_its_work(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    megatron(tmp_path, PARSE)
    write(tmp_path, "from megatron.training.arguments import parse_args\nprint(parse_args().seed)")
    ended = run(tmp_path, *RUNNER, "script.py", **SEED)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith("\n1\n") and "args.seed: 1234 -> 1 (ALIGN_HOOKS_SEED)" in ended.out


# torchrun


@pytest.mark.parametrize("code", [0, 7])
def test_torchrun_starts_the_runner_on_every_rank_and_passes_on_a_failure(tmp_path: Path, code: int) -> None:
    pytest.importorskip("torch")
    write(tmp_path, "import os, sys\nprint(f'RANK:{os.environ[\"RANK\"]} {sys.argv}', flush=True)\nsys.exit(int(sys.argv[1]))")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", port)
    ended = run(tmp_path, *torchrun, *RUNNER, "script.py", str(code))
    assert (ended.code, *sorted(ended.out.split("\n")[:-1])) == (
        int(code != 0),
        *(f"RANK:{rank} ['script.py', '{code}']" for rank in range(2)),
    ), ended.err
    assert ("exitcode  : 7" in ended.err) is (code == 7)


# The import form


def test_the_import_form_attaches_nothing_when_nothing_is_set(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import sys
        finders, before = list(sys.meta_path), dict(vars(sys.modules["__main__"]))
        import align_hooks.ms_side
        print(sys.meta_path == finders, {'torch', 'megatron', 'mindspore', 'mindformers', 'wrapt'} & {*sys.modules} - {'wrapt'})
        sys.exit(4)
        """,
    )
    assert run(tmp_path, "script.py") == Ended(4, "True set()\n", "")


@pytest.mark.parametrize("code", [0, 4])
def test_the_import_form_says_what_never_fired_and_leaves_the_exit_code(tmp_path: Path, code: int) -> None:
    write(tmp_path, f"import sys\nimport align_hooks.ms_side\nimport align_hooks.ms_side\nprint('ran')\nsys.exit({code})")
    assert run(tmp_path, "script.py", **SEED) == Ended(code, "ran\n", NEVER_MS)


def test_the_import_form_says_nothing_of_hooks_after_an_uncaught_exception(tmp_path: Path) -> None:
    write(tmp_path, "import align_hooks.ms_side\n1 / 0")
    plain = run(tmp_path, "script.py")
    assert plain.code == 1 and "ZeroDivisionError" in plain.err
    assert run(tmp_path, "script.py", **SEED) == plain


def test_the_import_form_attaches_from_within_a_package_started_with_m(tmp_path: Path) -> None:
    write(tmp_path, "import align_hooks.ms_side", "trainer/__init__.py")
    write(tmp_path, "print('ran')", "trainer/__main__.py")
    assert run(tmp_path, "-m", "trainer", **SEED) == Ended(0, "ran\n", NEVER_MS)


def test_the_import_form_under_the_runner_attaches_once(tmp_path: Path) -> None:
    write(tmp_path, "import align_hooks.ms_side\nprint('ran')")
    assert run(tmp_path, "-m", "align_hooks.ms_side", "script.py", **SEED) == Ended(3, "ran\n", NEVER_MS)
    assert run(tmp_path, "-m", "align_hooks.ms_side", "script.py") == Ended(0, "ran\n", "")


def test_the_import_form_does_not_start_the_interpreter_again_and_says_that_the_seed_of_hashes_is_not_effective(tmp_path: Path) -> None:
    environment = starts(tmp_path)
    write(tmp_path, "import align_hooks.ms_side\nprint('ran')")
    assert run(tmp_path, "script.py", **environment, **SEED).out == "ran\n"
    assert count(tmp_path) == 1
    begin = "import os; from align_hooks.launcher import begin; print(begin('ms', os.environ, restart=False).facts['environment'])"
    early = {"PYTHONHASHSEED": "1"}
    assert run(tmp_path, "-c", begin, **SEED).out == "{'PYTHONHASHSEED': {'value': '1', 'effective': False}}\n"
    assert run(tmp_path, "-c", begin, **SEED, **early).out == "{'PYTHONHASHSEED': {'value': '1', 'effective': True}}\n"


def test_the_import_form_works_in_a_script_that_spawns_workers_and_records(tmp_path: Path) -> None:
    """A spawned worker imports the script again; it is not another start of the run, and must not claim its directory."""
    write(
        tmp_path,
        """
        import align_hooks.ms_side
        import multiprocessing
        def work(): print("worked", flush=True)
        if __name__ == "__main__":
            process = multiprocessing.get_context("spawn").Process(target=work)
            process.start()
            process.join()
            print(process.exitcode)
        """,
    )
    ended = run(tmp_path, "script.py", ALIGN_HOOKS_RUN=str(tmp_path / "run"))
    assert (ended.code, ended.out) == (0, "worked\n0\n"), ended.err
