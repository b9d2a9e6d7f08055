"""``align-hooks run -- COMMAND …``: hooks in every training process that a command starts, with no file touched.

The command may be torchrun, msrun or a script that prepares data first: the environment reaches every Python process. So it gets a
``sitecustomize`` (:mod:`align_hooks.job.startup`), first on PYTHONPATH, and variables that an interpreter reads when it starts.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from align_hooks.errors import AlignHooksError, NothingRecorded, SettingsError, no_such
from align_hooks.job import arguments_only
from align_hooks.job.child import NOT_EXECUTABLE, NOT_FOUND, SIGNALLED, environment, wait
from align_hooks.process.command import ENDED, exported
from align_hooks.process.ranks import Launch
from align_hooks.process.script import report
from align_hooks.process.status import REFUSED, VARIABLE, Process, attached_processes, started_again, unheard
from align_hooks.process.streams import hold, say
from align_hooks.record.format import crash_stack
from align_hooks.settings import PREFIX, Settings, Source

JOIN = "let the command wait for what it starts (msrun --join=True; JOIN=True of msrun_launcher.sh, whose default is False)"
"""The way out where a launcher leaves processes running, which record all the same, but whose end is unknown."""
USAGE = f"""\
usage: align-hooks run [--arguments-only [--out FILE]] -- COMMAND [ARGUMENT ...]
Attaches to every Megatron-LM or MindFormers training process that COMMAND starts, as the {PREFIX}* variables ask. With --arguments-only
each ends where the framework has parsed its arguments, and FILE (arguments.json) holds them for align-hooks check; nothing is trained."""


def main(arguments: Sequence[str]) -> int:
    """Run ``align-hooks run``, and return the command's exit code, or 3 where that is 0 and a request did not happen."""
    hold()
    command, only, out = list(arguments), False, ""
    while command and re.match("--(arguments-only$|out(=|$))", command[0]):
        option, _, out = command.pop(0).partition("=") if "=" in command[0] else (command.pop(0), "", out)
        only |= option == "--arguments-only"
        out = command.pop(0) if option == "--out" and not out and command else out
    if command and command[0].startswith("-") and command[0] not in ("--", "-h", "--help"):
        report(AlignHooksError(no_such("option", command[0].partition("=")[0], ("--arguments-only", "--out", "--help"))))
        return AlignHooksError.exit_code
    command = command[1:] if command[:1] == ["--"] else command
    asked = command[:1] in (["-h"], ["--help"])
    if not command or asked or (out and not only):
        say(USAGE, sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    try:
        code = arguments_only.run(command, Path(out or arguments_only.DEFAULT)) if only else run(command)
    except AlignHooksError as error:
        report(error)
        return error.exit_code
    if code == SIGNALLED + signal.SIGINT:  # end by the signal, which is what stops a shell's loop
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return code


def run(command: Sequence[str]) -> int:
    """Run ``command`` with hooks attached, print the attached processes, and return the exit code.

    Raises SettingsError or RecordError, before anything is started, for variables that cannot be honoured.
    """
    settings = Settings.from_environment(os.environ)
    if not settings.any_set():
        raise SettingsError(f"no {PREFIX}* variable asks for anything, so there is nothing to attach; align-hooks env lists them")
    outer = os.environ.pop(VARIABLE, None)  # so that an outer run does not attach to this process
    if any(isinstance(getattr(settings, field.name), Source) for field in dataclasses.fields(settings)):
        from align_hooks.session import Session  # not with the module, like refuse_finished below: numpy doubles the time to start

        Session("run", dataclasses.replace(settings, run=None), Launch()).begin()  # opens the sources, claims nothing
    if settings.run is not None:
        from align_hooks.record.write.earlier_record import refuse_finished

        refuse_finished(settings.run, settings.run_exists, Launch.from_environment(os.environ))
    with tempfile.TemporaryDirectory(prefix="align_hooks.") as folder:
        code = wait(command, environment(settings, os.environ, Path(folder)) | exported(command, os.environ))
        processes = [with_crash_stack(process, settings.run) for process in attached_processes(Path(folder))]
        for process in processes:
            say(f"align_hooks: {process}{'; started again' if started_again(process, processes) else ''}", sys.stderr)
        problems = [] if code in (NOT_FOUND, NOT_EXECUTABLE) and not processes else list(account(processes, failed=bool(code)))
        if outer is not None and Path(outer).is_dir():
            shutil.copytree(folder, outer, dirs_exist_ok=True)
    for problem in problems:
        say(f"align_hooks: {problem}", sys.stderr)
    if code not in (0, NOT_FOUND, NOT_EXECUTABLE) and not problems:
        say(f"align_hooks: {ENDED} {code}", sys.stderr)
    return NothingRecorded.exit_code if problems and code == 0 else code


def with_crash_stack(process: Process, run: Path | None) -> Process:
    """Return a lost process with the end that a crash stack beside its record states, if there is one."""
    stack = crash_stack.read(run, process.rank) if run is not None and process.began and process.lost else None
    return process if stack is None else replace(process, ended=str(stack), failed=True)


def account(processes: Sequence[Process], *, failed: bool) -> Iterator[str]:
    """Yield the problems of the attached processes, a sentence each.

    ``failed``: the command itself failed, whose error explains what never happened.
    """
    who: dict[str, list[str]] = {}
    processes = [process for process in processes if not started_again(process, processes)]
    for process in processes:
        problems = list(process.problems) if not failed or process.failed or process.ended in (REFUSED, None) else []
        if process.began and process.failed:
            problems.append(f"its training {process.ended}")
        if process.began and process.running:
            problems.append(f"trains on after the command ended, unaccounted for; {JOIN}")
        elif process.began and process.ended is None:
            problems.append("was not heard of again after training began, and its record has no end")
        elif process.lost:
            problems.append("was not heard of again after it was attached to: it was killed, or left by os._exit")
        for problem in problems:
            who.setdefault(problem, []).append(str(process.pid))
    yield from (f"pid {', '.join(pids)}: {problem}" for problem, pids in who.items())
    if not any(process.began and process.running for process in processes):  # else other ranks may come yet
        yield from unheard(processes)
    if failed:
        return
    if not processes:
        yield (
            "no process was attached to on this machine: none imported megatron.core, megatron.training or mindformers; or it was started "
            "on another machine (then write align-hooks run -- behind srun or ssh, so that it stands on each node), with a PYTHONPATH that "
            "was set anew instead of added to, with python -I, -E or -S, behind another sitecustomize, or after the command ended "
            f"({JOIN})"
        )
    elif any(process.began or process.problems for process in processes):
        return
    elif any(process.running for process in processes):
        yield f"the command ended before any process came to train, and left them running, unaccounted for; {JOIN}"
    else:
        yield "no attached process came to train: Megatron's parse_args, or MindFormers' build_context, was not called for training"
