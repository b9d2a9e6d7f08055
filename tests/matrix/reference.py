"""Megatron's training by ``launch/llama.args``, and the run of the installed wheel by which both halves feed and judge."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from training import EVERYTHING, LAUNCH, STEPS, clean, hooked, run


def make_reference(where: Path) -> Path:
    """A recorded run of ``launch/pretrain_gpt.py`` on the installed wheel, and beside it ``corpus``, the data set that it trains on."""
    shutil.rmtree(where, ignore_errors=True)
    run([sys.executable, LAUNCH / "corpus.py", where / "corpus"], where, clean())
    pretrain(Path(sys.executable), where, [LAUNCH / "pretrain_gpt.py"], where / "corpus", EVERYTHING | {"RUN": where / "run"})
    return where / "run"


def arguments_of(change: Mapping[str, str | None], family: str = "llama") -> list[str]:
    """A family's arguments for a few steps, with arguments that replace its own; None drops one."""
    file = (LAUNCH if family == "llama" else LAUNCH / "families") / f"{family}.args"
    lines = dict(line.partition(" ")[::2] for line in file.read_text().splitlines()) | {"--train-iters": str(STEPS)}
    return [word for flag, value in {**lines, **change}.items() if value is not None for word in (flag, *value.split())]


def pretrain(
    python: Path,
    where: Path,
    script: list[Path],
    corpus: Path,
    variables: Mapping[str, object],
    change: Mapping[str, str | None] | None = None,
    environment: Mapping[str, str] | None = None,
    layout: Sequence[str] = (),
    flags: Sequence[str] = (),
    family: str = "llama",
) -> None:
    """Train under ``python -m align_hooks.torch_side`` with ``ALIGN_HOOKS_*`` variables; raises Failed with what it said last.

    ``change`` has arguments that replace those of the ``family``, ``environment`` has environment variables of the script's own.
    ``layout`` are flags of a job of two ranks, one rank without any; ``flags`` are added.
    """
    data = {"--data-path": str(corpus), "--data-cache-path": str(where / "cache")}
    arguments = [*arguments_of(data | dict(change or {}), family), *flags]
    base = subprocess.run([str(python), "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True, check=True).stdout
    # Megatron's Makefile asks python3 and python3-config, which virtual environments lack: they must be of one Python.
    path = {"PATH": os.pathsep.join([str(python.parent), f"{base.strip()}/bin", os.environ["PATH"]])}
    command = [python, "-m", "align_hooks.torch_side", *script, *arguments]
    if layout:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        start = [python, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", port]
        command = [*start, *command[1:], *layout]
    needed = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}  # Megatron's own condition for tensor parallelism
    run(command, where, hooked(variables) | path | needed | dict(environment or {}))
