"""The command that started a run: it goes into the record, so that advice prints a command that can be pasted."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from align_hooks.process.restarts import facts, words_of

VARIABLE = "_ALIGN_HOOKS_COMMAND"
"""The command of ``align-hooks run`` for its processes: the words and the directory, as JSON."""


def exported(command: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable for the processes of a command; an outer ``run`` has set it already."""
    return {VARIABLE: environment.get(VARIABLE) or json.dumps([list(command), str(Path.cwd())])}


def started(side: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the facts ``command`` and ``directory`` of this process's job; empty where it is unknown."""
    try:
        words, directory = json.loads(environment[VARIABLE]) if VARIABLE in environment else (_launcher(f"align_hooks.{side}_side"), "")
    except (OSError, ValueError, TypeError):  # no /proc, or processes that are hidden
        return {}
    return {"command": shlex.join(words), "directory": directory or str(Path.cwd())} if words else {}


def _launcher(module: str) -> list[str]:
    """Return the command line of the outermost process from this one up that names ``module`` as a word: this one, or its torchrun."""
    process, words = os.getpid(), list[str]()
    while module in (line := [os.fsdecode(word) for word in words_of(process, "cmdline")[:-1]]):
        process, words = int(facts(process)[1]), line
    return words
