"""``align-hooks run --arguments-only -- COMMAND …``: what the frameworks parse, as a side for ``check``.

The command is started as ``align-hooks run`` starts it. Each process of it that comes to parse a framework's arguments writes them into a
folder that a private variable names, and ends there with exit code 0: before anything is built, and past what the script would do about
it, so that nothing can train. What the command leaves running is ended too. The variables ``ALIGN_HOOKS_*`` ask for nothing here.
"""

from __future__ import annotations

import importlib
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from align_hooks.errors import NothingRecorded, RecordError, SettingsError, shown
from align_hooks.hooking.hook import Hook
from align_hooks.job.descendants import adopt, descendants, end
from align_hooks.job.processes import told
from align_hooks.job.ranks import Launch
from align_hooks.job.script import report
from align_hooks.job.streams import flush, say
from align_hooks.record import atomic
from align_hooks.settings import PREFIX, Settings

VARIABLE = "_ALIGN_HOOKS_ARGUMENTS"
"""Names the folder; set below ``run --arguments-only`` alone."""
DEFAULT = Path("arguments.json")
SEAMS = {"arguments": "stop", "config": "stop", "mindspeed": "install"}
"""The hooks of either side that stand where arguments are parsed, and the body that each has here."""
PARSED = "parsed"
POLL = 0.1
BEFORE, AFTER = 3000, 100
"""Polls for which processes that a command left running may be silent, before any arguments are parsed and after."""
SIGNALLED = 128
"""Exit codes from here on say that a signal ended the command: then nothing is waited for."""


def attach(side: str, room: Any) -> None:
    """Stop this process where it parses its arguments; ``room`` is the side's ``environment`` module."""
    hooks: Sequence[Hook] = importlib.import_module(f"align_hooks.{side}_side.catalogue").HOOKS
    here = [
        replace(hook, asked=lambda settings: True, body=f"{hook.body.partition(':')[0]}:{SEAMS[hook.name]}")
        for hook in hooks
        if hook.name in SEAMS
    ]
    session = room.make_session(Settings(), Launch.from_environment(os.environ))
    session.facts["environment"] = {name: {"value": os.environ.get(name)} for name in (*room.DETERMINISTIC, *room.WATCHED)}
    importlib.import_module("align_hooks.hooking.attach").attach(here, session)


def leave(session: Any, arguments: Mapping[str, str], versions: Mapping[str, str], *, trains: bool) -> NoReturn:
    """Write what was parsed, and end the process; msrun's scheduler, which parses the same, only ends.

    ``os._exit``, because a script may catch what is raised, and train.
    """
    code, pid = 0, os.getpid()
    facts = {
        "parsed": time.time_ns(),
        "side": session.side,
        "versions": versions,
        "command": sys.argv,
        "rank": session.launch.rank,
        "world_size": session.launch.world_size,
        "trains": trains,
        "environment": session.facts["environment"],
        "arguments": arguments,
    }
    try:
        if os.environ.get("MS_ROLE") != "MS_SCHED":
            atomic.write_json(Path(os.environ[VARIABLE], f"{pid}.json"), facts)
    except OSError as error:
        code = RecordError.exit_code
        report(RecordError(f"pid {pid} cannot write what it parsed: {error.strerror}"))
    finally:
        for child in sys.modules["multiprocessing"].active_children() if "multiprocessing" in sys.modules else ():
            child.terminate()
        flush(sys.stdout)
        flush(sys.stderr)
        os._exit(code)


def run(command: Sequence[str], out: Path) -> int:
    """Run ``command`` up to where arguments are parsed and write them to ``out``; returns the exit code.

    :raises SettingsError: there is such a file already, or it cannot be written.
    """
    from align_hooks.job.run import environment, wait

    target = out.absolute()
    if target.exists() or not target.parent.is_dir():
        why = "is there already" if target.exists() else "is in no directory that is there"
        raise SettingsError(f"{shown(str(out))} {why}; name another file, --out FILE")
    say(f"align_hooks: runs {shlex.join(command)}, up to where the framework has parsed its arguments; nothing is trained", sys.stderr)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    adopt()
    with tempfile.TemporaryDirectory(prefix="align_hooks.") as name:
        folder = Path(name)
        (folder / PARSED).mkdir()
        try:
            code = wait(command, {**environment(Settings(), inherited, folder), VARIABLE: str(folder / PARSED)})
            if code < SIGNALLED:
                await_the_rest(folder)
        finally:
            if ended := end():
                say(f"align_hooks: ended {listed(ended)}, which the command left running", sys.stderr)
        written = [json.loads(path.read_text(encoding="utf-8")) for path in (folder / PARSED).glob("*.json")]
    if not written:
        say("align_hooks: no process parsed the arguments of Megatron-LM or MindFormers, so nothing was written", sys.stderr)
        return code or NothingRecorded.exit_code
    chosen = choose(written)
    atomic.write_json(target, chosen)
    others = len({json.dumps(one["command"]) for one in written}) - 1
    more = f"; {others} other command{'s' if others > 1 else ''} parsed arguments too, which are not in it" if others else ""
    say(
        f"align_hooks: {shown(str(out))} holds {len(chosen['arguments'])} arguments of {shlex.join(chosen['command'][:1])}, rank "
        f"{chosen['rank']} of {chosen['world_size']}, for align-hooks check{more}",
        sys.stderr,
    )
    if code:
        say(f"align_hooks: the command itself ended with exit code {code}", sys.stderr)
    return code


def await_the_rest(folder: Path) -> None:
    """Wait for what a launcher left running: it ends by itself where it parses its arguments. What never parses any is not waited for."""
    before, polls = None, 0
    if left := descendants():
        say(f"align_hooks: the command left {listed(left)} running, and may have its arguments parsed yet; waits", sys.stderr)
    while True:
        running = any(process.running for process in told(folder))
        parsed = len(list((folder / PARSED).glob("*.json")))
        polls = polls + 1 if before == (running, parsed) else 0
        if not running and (not descendants() or polls > (AFTER if parsed else BEFORE)):
            return
        before = running, parsed
        time.sleep(POLL)


def listed(processes: Mapping[int, str]) -> str:
    """Processes in words."""
    return ", ".join(f"pid {pid} ({name})" for pid, name in processes.items())


def choose(written: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Of the first command that trains, or that parsed arguments at all, the lowest rank."""
    first = min(written, key=lambda one: (not one["trains"], one["parsed"]))
    return min((one for one in written if one["command"] == first["command"]), key=lambda one: (one["rank"], one["parsed"]))
