"""A trial carried out: its lines run in a shell as they are printed, and its runs compared.

What is recorded already is not trained again, so that what was stopped goes on.
"""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.verdict import ComparisonResult, Judgement, Trial, Verdict
from align_hooks.errors import NothingRecorded, RecordError
from align_hooks.messages import Argument, Message, Side, message, rendered
from align_hooks.process.command import ENDED
from align_hooks.process.paths import path_of
from align_hooks.record.reader import open_run
from align_hooks.scenarios.climb import printed_by_us, recorded_at
from align_hooks.settings import PREFIX

BY_ITSELF = "candidate_by_itself"
"""The folder of a candidate that is fed nothing."""
AGAIN = "_again"
"""What the name of a run ends in whose command was run before."""
PATIENCE, SLACK = 3, 600
"""How long a candidate by itself may train: times the seconds that the reference took, and seconds beside."""
VARIABLES = {Side.REFERENCE: "REFERENCE_COMMAND", Side.CANDIDATE: "CANDIDATE_COMMAND"}
"""Shell variables that stand for a command in a line of *next* where the record does not hold it."""
SOURCES = tuple(f"{PREFIX}{name}" for name in ("REPLAY_BATCHES", "LOAD_WEIGHTS", "INJECT_GRADIENTS", "REPLAY_ROUTING", "TEACHER"))
"""Settings that name a run which a training reads."""
GB = 1e9
OTHER = '"${OTHER_MACHINE:?user@host}"'


class Solved(Judgement):
    """How it ended, and the exit code."""

    AGREES = ("aligned", 0)
    NAMED = ("found", 1)
    OPEN = ("open", 4)
    STOPPED = ("stopped", 4)
    WAITS = ("waiting", 4)
    FAILED = ("failed", 3)


class SolveStep(msgspec.Struct):
    """A trial that was made, as a file keeps it."""

    words: str
    """Why it was made."""
    lines: list[str]
    """Its lines, as printed."""
    seconds: list[float]
    """Wall time of each line."""
    bytes: int
    """What it added to the folder."""
    verdict: str
    headline: str
    """What the comparison said first."""
    causes: list[str]
    """Ids of the likely causes, the likeliest first."""
    rules_out: str | None = None
    """What alone is not at fault; None where nothing is ruled out."""


class Spent(Struct, frozen=True):
    """What a line took."""

    seconds: float
    bytes: int
    """Of the folder behind it."""
    is_kept: bool = False
    """Whether it was run by an earlier start."""


class Budget(Struct, frozen=True):
    """What may be used up, in all."""

    trials: int
    seconds: float
    bytes: int | None = None
    """None for what the disk has."""


class Halt(Exception):
    """The end of a trial before its comparison."""

    def __init__(self, result: Solved, words: Message, lines: tuple[str, ...] = ()) -> None:
        self.result, self.words, self.lines = result, words, lines


class Trainings(Struct):
    """Both sides' trainings in a folder."""

    folder: Path
    commands: Mapping[Side, str]
    """The shell command of each side."""
    elsewhere: Side | None = None
    """The side that is trained on another machine."""
    first: int = 0
    """The reference's first step; of a resumed one it is learnt by the first try."""
    patience: float = float("inf")
    """Seconds that a candidate by itself may take."""
    comparison: ComparisonResult | None = None
    """The last one."""


def carry_out(
    trainings: Trainings, trial: Trial, budget: Budget, began: float, known: SolveStep | None
) -> Generator[str | Spent, None, SolveStep]:
    """Run the lines of a trial that were not run, and return what it showed; raises Halt where one cannot be.

    ``began`` is the monotonic clock's time from which the budget counts; ``known`` is the trial as it was made earlier, None of a new one.
    """
    lines, seconds, before = [rendered(line) for line in trial.commands], list[float](), bytes_in(trainings.folder)
    for index, line in enumerate(lines):
        yield line
        start, words = time.monotonic(), shlex.split(line)
        if words[:2] == ["align-hooks", "compare"]:
            trainings.comparison = compared(words, trainings.comparison is not None)
        else:
            train(trainings, line, words, budget, budget.seconds - (start - began))
        seconds.append(known.seconds[index] if known is not None else time.monotonic() - start)
        yield Spent(seconds[-1], bytes_in(trainings.folder), known is not None)
    trainings.patience = min(trainings.patience, SLACK + PATIENCE * seconds[0])
    result = trainings.comparison
    assert result is not None
    ruled_out = rendered(trial.decides) if trial.decides is not None and result.verdict is not Verdict.ALIGNED else None
    added = known.bytes if known is not None else bytes_in(trainings.folder) - before
    causes = [*result.blame.causes] if result.blame is not None else []
    return SolveStep(rendered(trial.words), lines, seconds, added, result.verdict.text, rendered(result.headline), causes, ruled_out)


def compared(words: Sequence[str], is_later: bool) -> ComparisonResult:
    """Compare the runs that a line names; raises Halt where a reference that was recorded again is another one than before."""
    repeats = [word for option, word in itertools.pairwise(words) if option == "--noise"]
    try:
        reference, candidate, *noise = (open_run(path_of(place)) for place in (*words[2:4], *repeats))
        earlier = Path(str(reference.path).removesuffix(AGAIN))
        if is_later and earlier != reference.path and (before := recorded_at(earlier)) is not None:
            repeated = compare(before, reference)
            if repeated.verdict is Verdict.DIVERGED:  # the same command did not do the same twice: nothing that follows would mean anything
                runs = {"run": str(reference.path), "earlier": str(before.path)}
                raise Halt(Solved.OPEN, message("solve.unsteady", told=repeated.headline, **runs))
        return compare(reference, candidate, noise=noise)
    except RecordError as error:
        raise Halt(Solved.FAILED, message("solve.unreadable", why=str(error))) from None


def train(trainings: Trainings, line: str, words: Sequence[str], budget: Budget, left: float) -> None:
    """Run a line that trains, in ``left`` seconds, where its run is not there; raises Halt where that cannot be."""
    run = path_of(next(word.partition("=")[2] for word in words if word.startswith(f"{PREFIX}RUN=")))
    if recorded_at(run) is not None:
        return
    side = Side.REFERENCE if run.name.startswith(Side.REFERENCE.value) else Side.CANDIDATE
    if side is trainings.elsewhere:
        raise Halt(Solved.WAITS, message("solve.elsewhere", side=side), carried(line, words, run))
    refuse_spent(trainings.folder, budget, left)
    log = trainings.folder / "logs" / f"{run.name}.log"
    patience = min(left, trainings.patience) if run.name == BY_ITSELF else left
    code = ran(line, log, patience, {VARIABLES[of]: command for of, command in trainings.commands.items()})
    if code is None:
        raise Halt(Solved.STOPPED, message("solve.endless", minutes=patience / 60, log=str(log)))
    if recorded_at(run) is None or code == NothingRecorded.exit_code:
        first = first_step(run)
        shutil.rmtree(run, ignore_errors=True)  # else it were taken for one that is there
        if side is Side.REFERENCE and first and not trainings.first:
            trainings.first = first
            raise Resumed
        raise Halt(Solved.FAILED, message("solve.failed", code=code, why=last_words(log), log=str(log)))


class Resumed(Exception):
    """The reference goes on from a checkpoint, so that its first step is another than was asked for."""


def refuse_spent(folder: Path, budget: Budget, left: float) -> None:
    """Raise Halt where time, bytes or the disk is used up."""
    if left <= 0:
        raise Halt(Solved.STOPPED, message("solve.no_time", minutes=budget.seconds / 60))
    used, free = bytes_in(folder), shutil.disk_usage(folder).free
    if budget.bytes is not None and used > budget.bytes:
        raise Halt(Solved.STOPPED, message("solve.no_bytes", used=used / GB, most=budget.bytes / GB))
    largest = max((bytes_in(place) for place in folder.iterdir() if place.is_dir()), default=0)
    if free < largest:
        raise Halt(Solved.STOPPED, message("solve.no_disk", free=free / GB, largest=largest / GB))


def carried(line: str, words: Sequence[str], run: Path) -> tuple[str, ...]:
    """Return what to run for a side that is trained elsewhere: carry over what it reads, train, and carry back what it wrote."""
    named = [word.partition("=")[2] for word in words if word.partition("=")[0] in SOURCES]
    sources = dict.fromkeys(place.rpartition("@")[0] or place for place in named)
    over = [f"rsync -aR {shlex.quote(source)} {OTHER}:/" for source in sources]
    return (*over, line, f"rsync -aR {OTHER}:{shlex.quote(str(run))} /")


# ---- processes


def ran(line: str, log: Path, seconds: float, variables: Mapping[str, str]) -> int | None:
    """Run a line in a shell without input, its output in ``log``, and return its exit code; None where it took longer and was ended."""
    log.parent.mkdir(parents=True, exist_ok=True)
    places = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    # a training that was stopped before has left a record that is not whole
    environment = {**os.environ, **variables, "PATH": places, f"{PREFIX}RUN_EXISTS": "replace"}
    with log.open("wb") as written:
        streams = {"stdin": subprocess.DEVNULL, "stdout": written, "stderr": subprocess.STDOUT}
        shell = subprocess.Popen(["bash", "-c", line], env=environment, start_new_session=True, **streams)  # type: ignore[call-overload]
        try:
            return int(shell.wait(seconds))
        except subprocess.TimeoutExpired:
            return None
        finally:
            end(shell)


def end(shell: subprocess.Popen[bytes]) -> None:
    """End what a shell started, where it runs yet: first by a signal that a record survives."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if shell.poll() is not None:
            return
        os.killpg(shell.pid, number)
        try:
            shell.wait(30)
        except subprocess.TimeoutExpired:
            continue


def first_step(run: Path) -> int:
    """Return the first step that a run recorded; 0 where there is none."""
    try:
        return min(open_run(run).steps, default=0)
    except RecordError:
        return 0


def last_words(log: Path) -> Argument:
    """Return the last line that align_hooks printed into a log, beside the exit code, else the last line of it."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    lines = [line for line in lines if line and ENDED not in line]
    return (printed_by_us(lines) or lines or ["it printed nothing"])[-1]


def bytes_in(folder: Path) -> int:
    """Return the bytes of the files below a folder."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())
