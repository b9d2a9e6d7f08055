"""``align-hooks run --arguments-only -- COMMAND …``: the arguments that the frameworks parse, as a side for ``check``.

A process that parses a framework's arguments writes them into a folder and ends with exit code 0, before anything is built; the script
cannot catch that end. Processes that the command leaves running are ended too. Variables ``ALIGN_HOOKS_*`` have no effect.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import asdict

from align_hooks.errors import NothingRecorded, SettingsError, shown
from align_hooks.job.child import SIGNALLED, environment, wait
from align_hooks.job.parsed_arguments import VARIABLE, Parsed
from align_hooks.process.descendants import POLL, adopt, descendants, end
from align_hooks.process.status import attached_processes
from align_hooks.process.streams import say
from align_hooks.record.write import atomic
from align_hooks.settings import PREFIX, Settings

DEFAULT = Path("arguments.json")
PARSED = "parsed"
BEFORE, AFTER = 3000, 100
"""Polls without a change after which processes left running are ended, before any arguments are parsed and after."""


def run(command: Sequence[str], out: Path) -> int:
    """Run ``command`` until arguments are parsed, write them to ``out``, and return the exit code; a bad ``out`` is a SettingsError."""
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
            if code < SIGNALLED:  # else no process is waited for
                await_those_left(folder)
        finally:
            if ended := end():
                say(f"align_hooks: ended {listed(ended)}, which the command left running", sys.stderr)
        every = [Parsed(**json.loads(path.read_text(encoding="utf-8"))) for path in (folder / PARSED).glob("*.json")]
    if not every:
        say("align_hooks: no process parsed the arguments of Megatron-LM or MindFormers, so nothing was written", sys.stderr)
        return code or NothingRecorded.exit_code
    chosen = choose(every)
    atomic.write_json(target, asdict(chosen))
    others = len({tuple(parsed.command) for parsed in every}) - 1
    more = f"; {others} other command{'s' if others > 1 else ''} parsed arguments too, which are not in it" if others else ""
    say(
        f"align_hooks: {shown(str(out))} holds {len(chosen.arguments)} arguments of {shlex.join(chosen.command[:1])}, rank "
        f"{chosen.rank} of {chosen.world_size}, for align-hooks check{more}",
        sys.stderr,
    )
    if code:
        say(f"align_hooks: the command itself ended with exit code {code}", sys.stderr)
    return code


def await_those_left(folder: Path) -> None:
    """Wait until the processes that a launcher left running have parsed their arguments, or nothing changes any more."""
    before, polls = None, 0
    if left := descendants():
        say(f"align_hooks: the command left {listed(left)} running, and may have its arguments parsed yet; waits", sys.stderr)
    while True:
        running = any(process.running for process in attached_processes(folder))
        parsed = len(list((folder / PARSED).glob("*.json")))
        polls = polls + 1 if before == (running, parsed) else 0
        if not running and (not descendants() or polls > (AFTER if parsed else BEFORE)):
            return
        before = running, parsed
        time.sleep(POLL)


def listed(processes: Mapping[int, str]) -> str:
    """Return pids and names in words."""
    return ", ".join(f"pid {pid} ({name})" for pid, name in processes.items())


def choose(every: Sequence[Parsed]) -> Parsed:
    """Return the lowest rank of the first command that trains, or of the first command where none trains."""
    first = min(every, key=lambda parsed: (not parsed.trains, parsed.parsed))
    ranks = (parsed for parsed in every if parsed.command == first.command)
    return min(ranks, key=lambda parsed: (parsed.rank, parsed.parsed))
