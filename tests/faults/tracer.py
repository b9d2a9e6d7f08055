"""Processes that are stopped before every system call by which they write: each stop is a moment at which they could be killed.

What a process that is killed at a stop leaves on disk is what is there at the stop, so a directory can be looked at once a stop, and the
process goes on; :func:`traced` kills it there for good where it is told to. Under ``ptrace``, because libraries write too: a shim of ``os``
would not see the files that safetensors makes. Linux on x86-64.
"""

import contextlib
import ctypes
import os
import platform
import random
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TRACEME, SYSCALL, GETREGS, SETOPTIONS, KILL_WITH_US = 0, 24, 12, 0x4200, 1 << 20
GOOD = 1
"""Marks the stops at system calls."""
REGISTERS = 27
RDI, RSI, RDX, ORIG_RAX = 14, 13, 12, 15
WRITE, PWRITE, GETPRIORITY = 1, 18, 140
CHANGING = {WRITE, PWRITE, 20, 296, 76, 77, 82, 264, 316, 83, 258, 84, 85, 86, 265, 87, 263, 88, 266, 285, 326}
"""write, pwrite, writev, pwritev2; truncate, ftruncate; rename, link, symlink, unlink, mkdir, rmdir with and without -at; creat,
fallocate, copy_file_range."""
OPENING = {2: RSI, 257: RDX}
"""open and openat, and the register that holds their flags."""
MARK = 1 << 20
"""What a process asks the priority of to say that it has come somewhere: nothing of the kernel's has such a number."""

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def unable() -> str:
    """Why nothing can be traced here; empty where it can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "system calls are told apart on Linux x86-64 only"
    child = os.fork()
    if child == 0:
        os._exit(1 if libc.ptrace(TRACEME, 0, None, None) else 0)
    return "ptrace is not allowed here" if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) else ""


def mark(number: int) -> None:
    """Say that this process has come to ``number``, to whoever traces it."""
    with contextlib.suppress(ProcessLookupError):
        os.getpriority(os.PRIO_PROCESS, MARK + number)


@dataclass
class Traced:
    """One process: its number among them, its id, and a part of the write that it is stopped at: where to, from where on, which bytes."""

    index: int
    pid: int
    torn: tuple[Path, int, bytes] | None = None
    inside: bool = False
    done: bool = False
    registers: ctypes.Array[ctypes.c_ulonglong] = field(default_factory=lambda: (ctypes.c_ulonglong * REGISTERS)())


def traced(
    bodies: Sequence[Callable[[], None]], *, seed: int, at_stop: Callable[[Sequence[Traced]], bool], at_mark: Callable[[int, int], bool]
) -> None:
    """Run each body in a process of its own, one of them at a time up to its next write, which one by ``seed``.

    ``at_stop`` is called at every stop, and ends all of them by SIGKILL where it returns False. ``at_mark`` is called with a process's
    number and what it marked; where it returns False the process waits there until the others have come to their end or wait too.

    Raises AssertionError where a body fails.
    """
    order = random.Random(seed)
    processes = [Traced(index, _started(body)) for index, body in enumerate(bodies)]
    waiting: set[int] = set()
    try:
        while any(not process.done for process in processes):
            ready = [process for process in processes if not process.done and process.index not in waiting]
            if not ready:
                waiting.clear()
                continue
            process = order.choice(ready)
            if _to_next(process, at_mark, waiting, order) and not at_stop(processes):
                return
    finally:
        for process in processes:
            if not process.done:
                os.kill(process.pid, signal.SIGKILL)
                os.waitpid(process.pid, 0)


def _started(body: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        libc.ptrace(SETOPTIONS, child, None, ctypes.c_void_p(GOOD | KILL_WITH_US))
        return child
    try:
        libc.ptrace(TRACEME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        body()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _to_next(process: Traced, at_mark: Callable[[int, int], bool], waiting: set[int], order: random.Random) -> bool:
    """Let a process go on to its next write; False where it ended, or waits at a mark."""
    while True:
        libc.ptrace(SYSCALL, process.pid, None, None)
        _, status = os.waitpid(process.pid, 0)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            process.done = True
            assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0, f"process {process.index} ended with {status}"
            return False
        process.inside = not process.inside
        if not process.inside:
            continue
        libc.ptrace(GETREGS, process.pid, None, ctypes.byref(process.registers))
        call = process.registers[ORIG_RAX]
        if call == GETPRIORITY and process.registers[RSI] & 0xFFFFFFFF >= MARK:
            if not at_mark(process.index, (process.registers[RSI] & 0xFFFFFFFF) - MARK):
                waiting.add(process.index)
                return False
        elif call in CHANGING or (call in OPENING and process.registers[OPENING[call]] & (os.O_CREAT | os.O_TRUNC)):
            process.torn = _part(process, order) if call in (WRITE, PWRITE) else None
            return True


def _part(process: Traced, order: random.Random) -> tuple[Path, int, bytes] | None:
    """The first half of what a process is about to write into a file, or all but its last byte, which ends a line, and where: a kill may
    come after any part of a long write."""
    descriptor, address, size = (process.registers[index] for index in (RDI, RSI, RDX))
    path = Path(f"/proc/{process.pid}/fd/{descriptor}").readlink()
    if size < 2 or not path.is_file():
        return None
    with Path(f"/proc/{process.pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        content = memory.read(order.choice((size // 2, size - 1)))
    facts = dict(line.split(":\t") for line in Path(f"/proc/{process.pid}/fdinfo/{descriptor}").read_text().splitlines()[:2])
    appends = int(facts["flags"], 8) & os.O_APPEND
    at = path.stat().st_size if appends else int(facts["pos"])
    return path, 0 if process.registers[ORIG_RAX] == PWRITE else at, content
