"""``python -m align_hooks.torch_side script.py …`` against ``python script.py …``, and the import form; every run in a fresh interpreter.

A run with ``ALIGN_HOOKS_SEED`` set attaches hooks that never fire here, because no Megatron is imported: its exit code 3 for 0 and
the lines that say so are what the launcher adds, and nothing else may differ.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chosen import every, slow, slow_but
from real.frameworks import free_port
from started import Ended, scrubbed, write

RUNNER = ("-m", "align_hooks.torch_side")
SEED = {"ALIGN_HOOKS_SEED": "1"}
NEVER = "align_hooks: hook 'arguments': megatron.training.arguments was never imported\n"
NEVER_MS = (
    "align_hooks: hook 'config': mindformers.core.context.build_context was never imported\n"
    "align_hooks: hook 'dataloader': mindformers.dataset.base_dataset was never imported\n"
)


def start(cwd: Path, *command: str, **environment: str) -> subprocess.Popen[str]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, *command], cwd=cwd, env=scrubbed(**environment), text=True, **pipes)


def end(process: subprocess.Popen[str], stdin: str = "") -> Ended:
    try:
        out, err = process.communicate(stdin, timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return Ended(process.returncode if process.returncode >= 0 else 128 - process.returncode, out, err)


def run(cwd: Path, *command: str, stdin: str = "", **environment: str) -> Ended:
    return end(start(cwd, *command, **environment), stdin)


def side_by_side(cwd: Path, *command: str, flags: tuple[str, ...] = (), stdin: str = "", off: bool = True) -> list[Ended]:
    """Run ``command`` under plain python, under the runner with hooks and, with ``off``, under the runner with nothing set.

    Hashes are fixed for all of them as the hooks' seed asks, so that the interpreter is started once.
    """
    environment = {"PYTHONHASHSEED": SEED["ALIGN_HOOKS_SEED"]}
    processes = [start(cwd, *flags, *command, **environment), start(cwd, *flags, *RUNNER, *command, **environment, **SEED)]
    if off:
        processes.append(start(cwd, *flags, *RUNNER, *command, **environment))
    return [end(process, stdin) for process in processes]


def compared(cwd: Path, *command: str, flags: tuple[str, ...] = (), stdin: str = "", off: bool = True) -> Ended:
    """Assert that all are one, but for what the launcher adds when hooks never fired; returns the plain one."""
    plain, on, *others = side_by_side(cwd, *command, flags=flags, stdin=stdin, off=off)
    assert others == [plain] * off
    assert on.err.count(NEVER) == (plain.code == 0)
    assert Ended(on.code, on.out, on.err.replace(NEVER, "")) == Ended(plain.code or 3, plain.out, plain.err)
    return plain


# What the script sees

SIGHTS = {
    "every global": "sorted(globals())",
    "arguments": "sys.argv",
    "name": "__name__",
    "file": "__file__",
    "docstring": "__doc__",
    "spec, package and cache": "(__spec__, __package__, __cached__)",
    "loader": "(type(__loader__), __loader__.name, __loader__.path, __loader__.get_source('__main__') == source)",
    "builtins": "__builtins__ is builtins",
    "search path": "sys.path",
    "itself as __main__": "(__main__ is sys.modules['__main__'], vars(__main__) is globals())",
    "annotations of its functions": "function.__annotations__",
    "annotations of its classes": "Class.__annotations__",
    "annotations of its own": "__annotations__",
    "flags of its code": "sys._getframe().f_code.co_flags",
    "name of its code": "(sys._getframe().f_code.co_filename, sys._getframe().f_code.co_name)",
    "source of its functions": "inspect.getsource(function)",
    "encoding": "len('\u00e4')",
    "import machinery": "[getattr(one, '__name__', type(one).__name__) for one in sys.meta_path]",
    "frameworks imported": "{'torch', 'megatron', 'mindspore', 'mindformers'} & set(sys.modules)",
    "working directory at first": "there",
    "depth of the stack left": "recursion() > 900",
    "file after a change of directory": "(os.chdir('/'), os.path.abspath(__file__))[1]",
}
SIGHTSEER = """\
# -*- coding: latin-1 -*-
'What it is for.'
FIRST
import builtins, inspect, os, sys, __main__
there, source = os.getcwd(), open(sys.argv[0], encoding="latin-1").read()
number: int = 1
def function(first: int, second: "str" = "") -> list[int]: ...
class Class:
    field: float
def recursion(depth=1):
    try:
        return recursion(depth + 1)
    except RecursionError:
        return depth
"""


@pytest.fixture(scope="module")
def sights(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What a script sees under plain python and under the runner with hooks on and off."""
    folder = tmp_path_factory.mktemp("sights")
    first, *rest = (f"print({name!r}, repr({sight}), sep='\\t')" for name, sight in SIGHTS.items())
    write(folder, SIGHTSEER.replace("FIRST", first) + "\n".join(rest), "sub/script.py")
    seen = side_by_side(folder, "sub/script.py", "--lr", "1e-3", "-x", "", "--help")
    assert seen[0].err == ""
    return [dict(line.split("\t") for line in ended.out.splitlines()) for ended in seen]


@pytest.mark.parametrize("hooks", ["off", "on"])
@pytest.mark.parametrize("sight", SIGHTS)
def test_the_script_sees_what_it_sees_under_plain_python(sights: list[dict[str, str]], sight: str, hooks: str) -> None:
    plain, on, off = sights
    if hooks == "off":
        assert off[sight] == plain[sight]
    elif sight != "import machinery":  # hooks are import hooks
        assert on[sight] == plain[sight]


@pytest.mark.parametrize("form", every(5, ["link.py", "script.py", "../here/script.py", "absolute", "no_suffix"]))
def test_the_script_may_be_named_in_any_way(tmp_path: Path, form: str) -> None:
    here = tmp_path / "here"
    for name in ("here/script.py", "here/no_suffix", "elsewhere/target.py"):
        write(tmp_path, "import sys; print(sys.argv, __file__, sys.path, sorted(globals()))", name)
    (here / "link.py").symlink_to("../elsewhere/target.py")
    assert compared(here, str(here / "script.py") if form == "absolute" else form, "a").code == 0


FLAGS = ["-W error", "-O", "-X utf8 -X dev", *(["-P"] if sys.version_info >= (3, 11) else [])]


@pytest.mark.parametrize("flags", every(3, FLAGS))
def test_flags_of_the_interpreter_reach_the_script(tmp_path: Path, flags: str) -> None:
    write(tmp_path, "import sys; print(sys.flags, sys.warnoptions, sys._xoptions, __debug__, sys.path)")
    assert compared(tmp_path, "script.py", flags=tuple(flags.split())).code == 0


@pytest.mark.slow
def test_siblings_are_imported_from_beside_the_script_and_not_from_the_working_directory(tmp_path: Path) -> None:
    write(tmp_path, "where = 'working directory'", "sibling.py")
    write(tmp_path, "where = 'beside the script'", "sub/sibling.py")
    write(tmp_path, "import sibling; print(sibling.where)\nfrom . import sibling", "sub/script.py")
    plain = compared(tmp_path, "sub/script.py")
    assert (plain.code, plain.out) == (1, "beside the script\n")
    assert "ImportError: attempted relative import with no known parent package" in plain.err


@pytest.mark.slow
def test_standard_input_is_the_scripts(tmp_path: Path) -> None:
    write(tmp_path, "import sys; print(repr(sys.stdin.readline())); print(repr(input())); print(repr(sys.stdin.read()))")
    assert compared(tmp_path, "script.py", stdin="one\ntwo\nthree\nfour").out == "'one\\n'\n'two'\n'three\\nfour'\n"


def with_a_worker(method: str, work: str, first: str = "") -> str:
    """A script that does something ``first`` and starts a process by :mod:`multiprocessing`, in which it does ``work``."""
    return f"""
import multiprocessing, sys
{work}
if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    {first}
    process = context.Process(target=work)
    process.start()
    process.join()
    print(process.exitcode)
"""


@pytest.mark.parametrize(
    ("method", "script"), every(3, [("spawn", "script.py"), ("spawn", "sub/script.py"), ("forkserver", "script.py"), ("fork", "script.py")])
)
def test_worker_processes_find_the_scripts_functions_and_classes_which_can_be_pickled(tmp_path: Path, method: str, script: str) -> None:
    write(
        tmp_path,
        f"""
        import multiprocessing, pickle, sys
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
            print(isinstance(answer, Answer), answer.number, pickle.dumps(answer), *rest, process.exitcode)
        """,
        script,
    )
    assert compared(tmp_path, script, "--flag").out.startswith("True 42 ")


@pytest.mark.slow
def test_a_spawned_worker_attaches_nothing(tmp_path: Path) -> None:
    looks = 'def work(): print(any(type(one).__name__ == "ImportHookFinder" for one in sys.meta_path))'
    write(tmp_path, with_a_worker("spawn", looks, first="work()"))
    assert run(tmp_path, *RUNNER, "script.py", **SEED) == Ended(3, "True\nFalse\n0\n", NEVER)
    assert run(tmp_path, *RUNNER, "script.py") == Ended(0, "False\nFalse\n0\n", "")


# How the script ends

ENDINGS = {
    "falls off its end": "print('done')",
    "sys.exit(None)": "import sys; sys.exit(None)",
    "sys.exit(0)": "import sys; sys.exit(0)",
    "sys.exit(3)": "import sys; sys.exit(3)",
    "sys.exit(-1)": "import sys; sys.exit(-1)",
    "sys.exit(True)": "import sys; sys.exit(True)",
    "sys.exit(message)": "import sys; sys.exit('the data set is missing')",
    "raise SystemExit": "raise SystemExit(4)",
    "sys.exit in an exception handler": "import sys\ntry: 1 / 0\nexcept ZeroDivisionError: sys.exit(6)",
    "os._exit": "import os; os._exit(9)",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "an exception": "def function():\n    raise ValueError('bad value')\nfunction()",
    "a chained exception": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise RuntimeError('no') from error",
    "an exception in an exception handler": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    {}['key']",
    "an exception group": "raise ExceptionGroup('several', [ValueError(1), KeyError('two')])",
    "a missing module": "import no_such_module_anywhere",
    "a syntax error": "print('never')\nx = = 2\n",
    "a syntax error in a sibling": "import broken",
    "KeyboardInterrupt": "def function():\n    raise KeyboardInterrupt\nfunction()",
    "SIGINT": "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(5)",
    "an exception hook of its own": "import sys\nsys.excepthook = lambda kind, error, trace: print(kind, error, trace.tb_lineno)\n1 / 0",
    "an exception hook that fails": "import sys\ndef hook(*error): raise ValueError('hook')\nsys.excepthook = hook\n1 / 0",
    "an exception hook that leaves": "import sys\nsys.excepthook = lambda *error: sys.exit(9)\n1 / 0",
    "a fork that leaves": "import os, sys\nchild = os.fork()\nif not child: sys.exit(3)\nsys.exit(os.waitpid(child, 0)[1] >> 8)",
    "atexit handlers": "import atexit\natexit.register(print, 'first')\natexit.register(print, 'second')\nprint('end')",
    "atexit handlers after an exception": (
        "import atexit, sys\natexit.register(lambda: print(repr(getattr(sys, 'last_value', None)), __name__))\nraise ValueError('bad')"
    ),
    "an atexit handler that raises": (
        "import atexit\nclass Handler:\n    def __call__(self): 1 / 0\n    def __repr__(self): return 'handler'\natexit.register(Handler())"
    ),
    "objects deleted at the end": "class Last:\n    def __del__(self): print('deleted')\nlast = Last()",
    "a thread that outlives it": "import threading\nthreading.Timer(0.2, print, ['late']).start()\nprint('end')",
    "an exception in a thread": "import threading\none = threading.Thread(target=lambda: 1 / 0, name='a')\none.start()\none.join()",
    "a warning": "import warnings; warnings.warn('careful')",
    "output not flushed": "import sys; sys.stdout.write('no newline'); sys.stderr.write('nor here\\n')",
}


OFF_TOO = {"falls off its end", "sys.exit(0)", "sys.exit(3)", "sys.exit(message)", "an exception", "a syntax error", "KeyboardInterrupt"}


@pytest.mark.parametrize("ending", every(7, ENDINGS))
def test_the_script_ends_as_under_plain_python(tmp_path: Path, ending: str) -> None:
    """Exit code, output and traceback, none of our frames in it."""
    write(tmp_path, ENDINGS[ending])
    write(tmp_path, "x = = 1", "broken.py")
    compared(tmp_path, "script.py", off=ending in OFF_TOO)


def test_an_interrupted_script_dies_of_the_signal_so_that_shells_stop_too(tmp_path: Path) -> None:
    write(tmp_path, "raise KeyboardInterrupt")
    for process in (start(tmp_path, "script.py"), start(tmp_path, *RUNNER, "script.py")):
        end(process)
        assert process.returncode == -signal.SIGINT


# What the launcher itself refuses


@pytest.mark.parametrize(
    ("script", "environment"), every(2, [("no_such_script.py", SEED), ("no_such_script.py", {}), ("folder", {}), ("-", {}), ("-m", {})])
)
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


REFUSED = {
    "an unknown variable": ({"SEDE": "1"}, ["SEDE: no such variable; did you mean ALIGN_HOOKS_SEED?"]),
    "a known variable in small letters": ({"seed": "1"}, ["seed: no such variable"]),
    "an unknown variable near nothing": ({"QQQQQQQQQQQQQQQQ": "1"}, ["QQQQQQQQQQQQQQQQ: no such variable; align-hooks env"]),
    "a bad value": ({"DETERMINISTIC": "yes"}, ["DETERMINISTIC='yes': is neither 0 nor 1"]),
    "recording with nowhere to record to": (
        {"BATCHES": "all", "GRADIENTS": "0", "WEIGHTS": "0-4/2"},
        ["BATCHES, ALIGN_HOOKS_GRADIENTS, ALIGN_HOOKS_WEIGHTS: nowhere to record to; set ALIGN_HOOKS_RUN"],
    ),
    "several at once": (
        {"SEDE": "1", "SEED": "-1", "WEIGHTS": "0", "DEVICE": "gpu"},
        ["DEVICE='gpu': ", "SEDE: ", "SEED='-1': ", "WEIGHTS: nowhere to record to"],
    ),
}


def refused(case: str, cwd: Path, *command: str) -> None:
    """Assert that the settings of ``case`` end the command at once, with exit code 2 and one line for each problem."""
    settings, lines = REFUSED[case]
    ended = run(cwd, *command, **{f"ALIGN_HOOKS_{name}": value for name, value in settings.items()})
    assert (ended.code, ended.out) == (2, "")
    wanted = [f"align_hooks: ALIGN_HOOKS_{line}" for line in lines]
    assert [line[: len(start)] for line, start in zip(ended.err.splitlines(), wanted, strict=True)] == wanted


@pytest.mark.parametrize("case", slow_but(REFUSED, "an unknown variable", "recording with nowhere to record to", "several at once"))
def test_settings_that_cannot_be_honoured_stop_the_start_with_one_line_each(tmp_path: Path, case: str) -> None:
    write(tmp_path, "print('ran')")
    refused(case, tmp_path, *RUNNER, "script.py")


@pytest.mark.parametrize("case", ["an unknown variable", "several at once"])
@pytest.mark.parametrize("form", ["runner", "import"])
@pytest.mark.slow
def test_the_other_side_refuses_the_same(tmp_path: Path, form: str, case: str) -> None:
    write(tmp_path, "import align_hooks.ms_side\nprint('ran')" if form == "import" else "print('ran')")
    refused(case, tmp_path, *(() if form == "import" else ("-m", "align_hooks.ms_side")), "script.py")


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


@pytest.mark.parametrize("before", [{}, slow({"PYTHONHASHSEED": "0"}), slow({"PYTHONHASHSEED": "random"})], ids=["unset", "0", "random"])
@pytest.mark.parametrize("side", ["torch", "ms"])
def test_the_interpreter_is_started_again_once_and_hash_randomisation_is_fixed(tmp_path: Path, side: str, before: dict[str, str]) -> None:
    seen = 'hash("a word"), sys.flags.hash_randomization, os.environ["PYTHONHASHSEED"], sys.argv, sys.warnoptions, sys._xoptions'
    write(tmp_path, f"import os, sys; print({seen})")
    flags = ("-W", "error", "-X", "utf8")
    wanted = run(tmp_path, *flags, "script.py", "x", "-m", PYTHONHASHSEED="12345").out
    command = (*flags, "-m", f"align_hooks.{side}_side", "script.py", "x", "-m")
    assert run(tmp_path, *command, **starts(tmp_path), **before, ALIGN_HOOKS_SEED="12345").out == wanted
    assert count(tmp_path) == 2


@pytest.mark.slow
def test_the_interpreter_is_not_started_again_when_nothing_needs_it(tmp_path: Path) -> None:
    environment = starts(tmp_path)
    write(tmp_path, "import os; print(os.environ.get('PYTHONHASHSEED'))")
    assert run(tmp_path, *RUNNER, "script.py", **environment).out == "None\n"
    assert run(tmp_path, *RUNNER, "script.py", **environment, ALIGN_HOOKS_LEARNING_RATE="0").out == "None\n"
    assert run(tmp_path, *RUNNER, "script.py", **environment, **SEED, PYTHONHASHSEED="1").out == "1\n"
    assert count(tmp_path) == 3


@pytest.mark.slow
def test_determinism_without_a_seed_fixes_hashes_too(tmp_path: Path) -> None:
    write(tmp_path, "import os; print(hash('a word'), os.environ.get('NCCL_ALGO'), os.environ.get('CUBLAS_WORKSPACE_CONFIG'))")
    first, second = (run(tmp_path, *RUNNER, "script.py", ALIGN_HOOKS_DETERMINISTIC="1") for _ in range(2))
    assert first == second
    assert first.out.endswith(" Ring :4096:8\n") and first.code == 3


@pytest.mark.slow
def test_an_interpreter_that_ignores_the_environment_is_not_started_for_ever(tmp_path: Path) -> None:
    write(tmp_path, "print('ran')")
    assert run(tmp_path, "-E", *RUNNER, "script.py", **SEED) == Ended(3, "ran\n", NEVER)


@pytest.mark.slow
def test_a_runner_started_by_a_script_under_the_runner_is_started_again_where_it_must(tmp_path: Path) -> None:
    environment = starts(tmp_path)
    write(tmp_path, "print(hash('a word'))", "inner.py")
    inner = '[sys.executable, "-m", "align_hooks.torch_side", "inner.py"], env=os.environ | {"ALIGN_HOOKS_SEED": "7"}'
    write(tmp_path, f"import os, subprocess, sys\nsys.exit(subprocess.run({inner}).returncode)")
    ended = run(tmp_path, *RUNNER, "script.py", **environment, **SEED)
    assert ended == Ended(3, run(tmp_path, "inner.py", PYTHONHASHSEED="7").out, NEVER)
    assert count(tmp_path) == 4


# Hooks through the launcher, on a Megatron of three files


def megatron(folder: Path, arguments: str, version: str = "0.19.1") -> None:
    for package in ("megatron", "megatron/core", "megatron/training"):
        write(folder, "", f"{package}/__init__.py")
    write(folder, f"__version__ = {version!r}", "megatron/core/package_info.py")
    write(folder, arguments, "megatron/training/arguments.py")


PARSE = """
    import argparse
    def parse_args(): return argparse.Namespace(seed=1234)
"""


@pytest.mark.parametrize(
    ("arguments", "version", "said"),
    [(PARSE, "0.11.0", ("megatron-core", "0.11.0")), ("def parse(): ...", "0.19.1", ("megatron.training.arguments has no parse_args",))],
    ids=["a version outside the range", "a missing seam"],
)
def test_a_hook_that_does_not_fit_ends_the_run_with_one_line_and_exit_code_2(
    tmp_path: Path, arguments: str, version: str, said: tuple[str, ...]
) -> None:
    megatron(tmp_path, arguments, version)
    write(tmp_path, "import megatron.training.arguments\nprint('went on')")
    ended = run(tmp_path, *RUNNER, "script.py", **SEED)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert all(part in ended.err for part in ("'arguments'", *said))


@pytest.mark.slow
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


# torchrun


@pytest.mark.parametrize("code", [slow(0), 7])
def test_torchrun_starts_the_runner_on_every_rank_and_passes_on_a_failure(tmp_path: Path, code: int) -> None:
    pytest.importorskip("torch")
    write(tmp_path, "import os, sys\nprint(f'RANK:{os.environ[\"RANK\"]} {sys.argv}', flush=True)\nsys.exit(int(sys.argv[1]))")
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", str(free_port()))
    ended = run(tmp_path, *torchrun, *RUNNER, "script.py", str(code))
    started = {f"RANK:{rank} ['script.py', '{code}']" for rank in range(2)}
    assert ended.code == int(code != 0), ended.err
    printed = set(re.findall(r"RANK:\d \['script.py', '\d'\]", ended.out))  # two ranks may print into one line
    # torchrun ends the other rank as soon as one has failed, at times before it has printed
    assert printed == started if code == 0 else set() < printed <= started
    assert ("exitcode  : 7" in ended.err) is (code == 7)


# The import form


def test_the_import_form_attaches_nothing_but_a_name_to_be_when_nothing_is_set(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import sys
        before = list(sys.meta_path), sys.excepthook
        import align_hooks.torch_side
        print((sys.meta_path, sys.excepthook) == before)
        import align_hooks.ms_side, wrapt.importer
        print(list(wrapt.importer._post_import_hooks), {"torch", "megatron", "mindspore", "mindformers"} & set(sys.modules))
        sys.exit(4)
        """,
    )
    assert run(tmp_path, "script.py") == Ended(4, "True\n['mindformers.dataset.base_dataset'] set()\n", "")


@pytest.mark.parametrize("code", [0, slow(4)])
def test_the_import_form_says_what_never_fired_and_leaves_the_exit_code(tmp_path: Path, code: int) -> None:
    write(tmp_path, f"import sys\nimport align_hooks.ms_side\nimport align_hooks.ms_side\nprint('ran')\nsys.exit({code})")
    assert run(tmp_path, "script.py", **SEED) == Ended(code, "ran\n", NEVER_MS)


@pytest.mark.slow
def test_the_import_form_says_nothing_of_hooks_after_an_uncaught_exception(tmp_path: Path) -> None:
    write(tmp_path, "import align_hooks.ms_side\n1 / 0")
    plain = run(tmp_path, "script.py")
    assert plain.code == 1 and "ZeroDivisionError" in plain.err
    assert run(tmp_path, "script.py", **SEED) == plain


def test_the_import_form_attaches_from_within_a_package_started_with_m(tmp_path: Path) -> None:
    write(tmp_path, "import align_hooks.ms_side", "trainer/__init__.py")
    write(tmp_path, "print('ran')", "trainer/__main__.py")
    assert run(tmp_path, "-m", "trainer", **SEED) == Ended(0, "ran\n", NEVER_MS)


@pytest.mark.slow
def test_the_import_form_under_the_runner_attaches_once(tmp_path: Path) -> None:
    write(tmp_path, "import align_hooks.ms_side\nprint('ran')")
    assert run(tmp_path, "-m", "align_hooks.ms_side", "script.py", **SEED) == Ended(3, "ran\n", NEVER_MS)
    assert run(tmp_path, "-m", "align_hooks.ms_side", "script.py") == Ended(0, "ran\n", "")


@pytest.mark.slow
def test_the_import_form_does_not_start_the_interpreter_again_and_says_that_the_seed_of_hashes_is_not_effective(tmp_path: Path) -> None:
    environment = starts(tmp_path)
    write(tmp_path, "import align_hooks.ms_side\nprint('ran')")
    assert run(tmp_path, "script.py", **environment, **SEED).out == "ran\n"
    assert count(tmp_path) == 1
    begin = (
        "import os; from align_hooks.job.entry import begin; from align_hooks.settings import Settings; "
        "print(begin('torch', Settings.from_environment(os.environ), os.environ, restart=False).facts['environment']['PYTHONHASHSEED'])"
    )
    for early in ({}, {"PYTHONHASHSEED": "1"}):
        assert run(tmp_path, "-c", begin, **SEED, **early).out == f"{{'value': '1', 'effective': {bool(early)}}}\n"


WORKER = "import align_hooks.ms_side\ndef work(): print('worked', flush=True)"
PRELOADS = with_a_worker("forkserver", "from worker import work", first="context.set_forkserver_preload(['worker'])")


@pytest.mark.parametrize("script", [slow(with_a_worker("spawn", WORKER)), PRELOADS], ids=["spawned", "by a fork server that imports ours"])
def test_what_a_script_of_the_import_form_starts_is_not_another_start_of_the_run(tmp_path: Path, script: str) -> None:
    """A spawned worker imports the script again, and a fork server what it preloads before it has a parent or a name."""
    write(tmp_path, WORKER, "worker.py")
    write(tmp_path, script)
    ended = run(tmp_path, "script.py", ALIGN_HOOKS_RUN=str(tmp_path / "run"))
    assert (ended.code, ended.out) == (0, "worked\n0\n"), ended.err
    assert "already holds" not in ended.err


def test_a_name_does_not_make_the_script_a_worker(tmp_path: Path) -> None:
    write(tmp_path, "import multiprocessing\nmultiprocessing.current_process().name = 'rank 0'\nimport align_hooks.ms_side\nprint('ran')")
    assert run(tmp_path, "script.py", **SEED) == Ended(0, "ran\n", NEVER_MS)


def test_what_a_script_forks_does_not_end_the_run(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import json, os, sys
        child = os.fork()
        if not child:
            sys.exit(0)
        os.waitpid(child, 0)
        print(json.load(open("run/manifest/rank_0.json"))["ended"])
        """,
    )
    ended = run(tmp_path, *RUNNER, "script.py", ALIGN_HOOKS_RUN=str(tmp_path / "run"))
    assert ended.out.startswith("None\n")


@pytest.mark.parametrize(
    ("name", "value"), every(4, [("WORLD_SIZE", "99999999999"), ("RANK", "9" * 5000), ("WORLD_SIZE", "9" * 5000), ("RANK", "\u00b2")])
)
def test_a_rank_of_thousands_of_digits_is_answered_in_a_line(tmp_path: Path, name: str, value: str) -> None:
    write(tmp_path, "print('ran')")
    ended = run(tmp_path, *RUNNER, "script.py", **SEED, **{"RANK": "0", "WORLD_SIZE": "1"} | {name: value})
    assert (ended.code, len(ended.err) < 300) == (3 if value == "\u00b2" else 2, True)
    assert "Traceback" not in ended.err
