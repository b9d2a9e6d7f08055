"""The command that started a run, recorded so that advice can print a command to paste."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from align_hooks.process.ranks import facts, words_of

VARIABLE = "_ALIGN_HOOKS_COMMAND"
"""The command below ``align-hooks run``: its words and its directory, as JSON."""

ENDED = "the command itself ended with exit code"
"""What is printed of a command that failed with nothing of ours wrong."""
OURS = re.compile("ALIGN_HOOKS_[A-Z_]+=")


def exported(command: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable for the processes of a command, unless an outer ``run`` has set it."""
    return {VARIABLE: environment.get(VARIABLE) or json.dumps([list(command), str(Path.cwd())])}


def started(side: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the facts ``command`` and ``directory`` of this process's job; none where they are unknown."""
    try:
        words, directory = json.loads(environment[VARIABLE]) if VARIABLE in environment else (_launcher(f"align_hooks.{side}_side"), "")
    except (OSError, ValueError, TypeError):  # no /proc, or hidden processes
        return {}
    words = [word for word in words if not OURS.match(word)]  # words of env, which would win over what a pasted advice sets
    return {"command": shlex.join(words), "directory": directory or str(Path.cwd())} if words else {}


def _launcher(module: str) -> list[str]:
    """Return the command line of the outermost ancestor with the word ``module``: this process, or its torchrun."""
    process, words = os.getpid(), list[str]()
    while module in (line := [os.fsdecode(word) for word in words_of(process, "cmdline")[:-1]]):
        process, words = int(facts(process)[1]), line
    return words
