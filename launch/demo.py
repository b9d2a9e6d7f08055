"""The main job, on a CPU: Megatron trains and is recorded, MindFormers replays it, and the two are compared.

Then MindFormers makes its first three steps once more with Megatron's gradients of these steps, which leaves nothing but
the optimizer to differ, and that is judged too.

Neither script knows of align_hooks; everything below is environment variables. ``python launch/demo.py [DIRECTORY] [FAMILY] [TRAINER]``,
or ``align-hooks demo [DIRECTORY] --family FAMILY --trainer TRAINER`` where there is no checkout. The model is a small Llama, or one of
``families/``; MindFormers trains it by its static graph, ``graph``, or by its PyNative trainer, ``pynative``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

HERE = Path(__file__).resolve().parent
MARK = ".demo"
"""A file that says that a directory is a demo's, and may be made again."""
INJECTED = 3
FAMILIES = {
    "graph": {file.stem: file for file in (HERE / "llama.yaml", *sorted((HERE / "families").glob("*.yaml")))},
    "pynative": {
        file.stem: file
        for file in sorted((HERE / "families" / "pynative").glob("*.yaml"))
        if (HERE / "families" / f"{file.stem}.args").exists()
    },
}
"""Trainer to the name of each family that Megatron-LM trains too, and the YAML of its model."""
MODE = {"graph": (), "pynative": ("--mode", "1")}
EVERYTHING = {"BATCHES": "all", "LOCAL_NORMS": "all", "GRADIENTS": "all", "WEIGHTS": "all"}
ALWAYS = {"DEVICE": "cpu", "SEED": "42", "DETERMINISTIC": "1", "RUN_EXISTS": "replace"}


def main(directory: Path, family: str = "", trainer: str = "graph") -> int:
    """Run the whole job for a model of a family in ``directory``; returns the worse exit code of the two comparisons."""
    console = Console()
    if trainer not in FAMILIES:
        ended(2, f"there is no demo of a trainer {trainer!r}; name one of {', '.join(FAMILIES)}")
    family = family or next(name for name in ("llama", "qwen3") if name in FAMILIES[trainer])
    files = FAMILIES[trainer].get(family)
    if files is None:
        ended(2, f"there is no demo of {family!r}; name one of {', '.join(FAMILIES[trainer])}")
    steps = int(re.search(r"--train-iters (\d+)", arguments_of(family).read_text())[1])  # type: ignore[index]
    if directory.exists() and not (directory / MARK).exists() and (not directory.is_dir() or any(directory.iterdir())):
        ended(2, f"{directory} holds something that is no demo; name another directory")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / MARK).touch()
    megatron, mindformers, optimizer = (directory / name for name in ("megatron", "mindformers", "optimizer"))
    state = {"OPTIMIZER_STATE": f"0-{INJECTED}"}
    fed = {"REPLAY_BATCHES": megatron, "LOAD_WEIGHTS": megatron}
    started = time.monotonic()
    with Progress(
        TextColumn("{task.description:42}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    ) as progress:
        run(progress, directory, "data set from the Python reference", [HERE / "corpus.py", directory / "corpus"], {}, r"()\d+ tokens", 1)
        run(
            progress,
            directory,
            "Megatron-LM trains and is recorded",
            ["-m", "align_hooks.torch_side", HERE / "pretrain_gpt.py", *arguments(family, directory)],
            ALWAYS | EVERYTHING | state | {"RUN": megatron},
            r"iteration\s+(\d+)/",
            steps,
        )
        run(
            progress,
            directory,
            "MindFormers trains on the same",
            ["-m", "align_hooks.ms_side", HERE / "run_mindformer.py", "--config", files, *MODE[trainer]],
            ALWAYS | EVERYTHING | fed | {"RUN": mindformers},
            r"step:\s*\[\s*(\d+)/",
            steps,
        )
        first = f"{megatron}@0-{INJECTED - 1}"
        run(
            progress,
            directory,
            "the gradients of Megatron in MindFormers",
            ["-m", "align_hooks.ms_side", HERE / "run_mindformer.py", "--config", files, *MODE[trainer]],
            ALWAYS | EVERYTHING | state | fed | {"RUN": optimizer, "REPLAY_BATCHES": first, "INJECT_GRADIENTS": first},
            r"step:\s*\[\s*(\d+)/",
            INJECTED,
        )
    console.print(f"\nRecorded in {time.monotonic() - started:.0f} s.")
    return max(judge(console, megatron, mindformers), judge(console, megatron, optimizer))


def judge(console: Console, reference: Path, candidate: Path) -> int:
    """Compare two runs as a user would, with a page beside the candidate; returns the exit code, which is the verdict."""
    console.print(f"\nalign-hooks compare {reference} {candidate} --html {candidate.with_suffix('.html')}\n", soft_wrap=True)
    line = [sys.executable, "-m", "align_hooks", "compare", reference, candidate, "--html", candidate.with_suffix(".html")]
    return subprocess.run(line, check=False).returncode


def arguments_of(family: str) -> Path:
    """Megatron's arguments for the model of a family."""
    return FAMILIES["graph"][family].with_suffix(".args")


def arguments(family: str, directory: Path) -> list[str]:
    """These arguments, and where the data are."""
    data = ["--data-path", str(directory / "corpus"), "--data-cache-path", str(directory / "cache")]
    return [*arguments_of(family).read_text().split(), *data]


def run(
    progress: Progress, directory: Path, title: str, command: list[str | Path], variables: Mapping[str, object], pattern: str, total: int
) -> None:
    """Run one program with ``ALIGN_HOOKS_*`` variables, moving a bar at every match of ``pattern`` in what it prints."""
    environment = os.environ | {f"ALIGN_HOOKS_{name}": str(value) for name, value in variables.items()}
    environment |= {"PYTHONUNBUFFERED": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    log = directory / f"{title.replace(' ', '_')}.log"
    task = progress.add_task(title, total=total)
    with (
        log.open("w") as file,
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            env=environment,
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            if re.search(pattern, line):
                progress.advance(task)
    if process.returncode:
        tail = "".join(log.read_text().splitlines(keepends=True)[-15:])
        ended(3, f"{tail}\n{title}: failed with exit code {process.returncode}; the whole log is {log}")


def ended(code: int, why: str) -> NoReturn:
    """Say why there is no verdict, and end with a code that is none."""
    print(why, file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/demo").resolve(), *sys.argv[2:4]))
