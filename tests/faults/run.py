"""Kill jobs that record at every moment at which they write, and hold what is left against a model: ``make faults``.

A history is three jobs, one after another, on one directory, beside what a user keeps there. Each is stopped before each of its writes,
and in the middle of it; at every stop the directory is copied and read. The next job starts on what one of these stops left, as after a
kill. Then, of some stops, a job is started on what was left that runs to its end: the record must be whole.
"""

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from align_hooks import open_run
from align_hooks.errors import RecordError
from align_hooks.record.format import layout
from faults.jobs import Job, record
from faults.looking import Torn, look
from faults.model import Progress, Table
from faults.tracer import Traced, traced, unable
from scratch import in_memory

ASKED = (
    ("batches", "local_norms", "gradients", "weights", "sketches", "optimizer_state", "activations"),
    ("batches", "gradients", "weights"),
    ("local_norms", "sketches", "activations"),
    (),
)
STRANGERS = ("notes.txt", "step_backup/rank_0/tokens.npy", "step_1_old/rank_0/gradients.safetensors", "step_/x")
"""Files of a user's beside a run."""
AMONG = "step_1/rank_0/mine.txt"
"""One among those of a run, once there are some."""
OUTSIDE = "outside/rank_0/tokens.npy"
"""A file elsewhere, to which a link in the run leads once there is one."""


@dataclass
class Outcome:
    """Of a history: how many moments were looked at, by what the job did; jobs that were started on what was left; what was wrong."""

    points: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    wrong: list[str] = field(default_factory=list)


def history(seed: int) -> list[Job]:
    """Three jobs of a seed: a first one, and two that replace it or go on from it, in steps and settings by chance. Some are starts of one
    job by its launcher: all of them, or the second, which replaces another job's record, and the third."""
    chance = random.Random(seed)
    ranks = chance.choice((1, 1, 2))
    asked = chance.choice(ASKED[:2] if chance.random() < 0.7 else ASKED)
    jobs = [Job(1, ranks, "refuse", range(chance.choice((0, 2)), 4), asked)]
    for number in (2, 3):
        exists = chance.choice(("replace", "continue", "continue"))
        first = chance.choice((jobs[0].steps.start, jobs[0].steps.start + 1, 3, 4)) if exists == "continue" else chance.choice((0, 2))
        states = tuple(kind for kind in asked if kind not in ("weights", "optimizer_state") or chance.random() < 0.7)
        jobs.append(Job(number, ranks, exists, range(first, first + chance.choice((1, 2))), states, fails=chance.random() < 0.15))
    if chance.random() < 0.4:
        if chance.random() < 0.5:
            return [replace(job, exists="refuse", own=tuple(range(1, job.number))) for job in jobs]
        jobs[1:] = [replace(job, exists="replace", own=tuple(range(2, job.number))) for job in jobs[1:]]
    return jobs


def lived(seed: int, *, restart_every: int = 25) -> Outcome:
    """Live through the history of a seed, looking at every moment."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory(dir=in_memory(), prefix="faults.") as folder:
        jobs, run, before = history(seed), Path(folder, "run"), Table()
        for path in (*(run / name for name in STRANGERS), run.parent / OUTSIDE):
            _write(path)
        for job in jobs:
            if before.steps:
                _write(run / AMONG)
                if not (run / "step_77").is_symlink():
                    (run / "step_77").symlink_to(run.parent / "outside")
            before = _lived(seed, job, jobs, run, before, outcome, restart_every)
            if outcome.wrong:
                break
    return outcome


def _lived(seed: int, job: Job, jobs: Sequence[Job], run: Path, before: Table, outcome: Outcome, restart_every: int) -> Table:
    """Live through one job; leaves the directory as one of its stops did, the last or another by chance, and returns what it then holds."""
    progress, chance = Progress(job, before), random.Random(seed * 7 + job.number)
    start = "restarted" if job.own else "first" if job.exists == "refuse" else job.exists
    kind = f"{start}, {job.ranks} rank{'s' if job.ranks > 1 else ''}"
    left, kept, seen = run.with_name("left"), run.with_name("kept"), 0

    def at_stop(processes: Sequence[Traced]) -> bool:
        nonlocal seen
        for torn in (None, *(process.torn for process in processes if process.torn)):
            if torn is not None and run not in torn[0].parents:
                continue
            _copy(run, left)
            if torn is not None:
                _tear(left / torn[0].relative_to(run), *torn[1:])
            outcome.points[kind] += 1
            wrong = _judged(left, progress)
            if not wrong and outcome.points.total() % restart_every == 0:
                outcome.restarts += 1
                wrong = _restarted(left, job, jobs, chance)
            if wrong:
                outcome.wrong.append(f"seed {seed}, job {job.number} ({kind}), moment {outcome.points.total()}: {wrong}")
                return False
            seen += 1
            if chance.random() < 1 / seen:  # each moment is kept with the same chance
                _copy(left, kept)
        return True

    traced([partial(record, job, run, rank) for rank in range(job.ranks)], seed=seed, at_stop=at_stop, at_mark=progress.mark)
    if outcome.wrong:
        return before
    if wrong := _judged(run, progress) or _finished(run, progress):
        outcome.wrong.append(f"seed {seed}, job {job.number} ({kind}), at its end: {wrong}")
    elif seen and chance.random() < 0.7:
        _copy(kept, run)
    try:
        return look(run)[0]
    except RecordError:
        return Table()


def _judged(path: Path, progress: Progress) -> str:
    """What is wrong with what a moment left; empty where nothing is."""
    if lost := _lost(path, bool(progress.before.steps)):
        return lost
    try:
        table, problems = look(path)
    except RecordError as error:
        return "" if progress.may_be_refused or (progress.untouched and not progress.before.steps) else f"it is refused: {error}"
    except Torn as error:
        return f"torn: {error}"
    if not problems and not progress.finished and table not in (progress.before, progress.after):
        return f"it is said to be whole, and holds {table}"
    return progress.wrong(table)


def _finished(path: Path, progress: Progress) -> str:
    if progress.job.fails:
        return ""
    table, problems = look(path)
    gap = len(table.steps) < max(table.steps) - min(table.steps) + 1
    right = table == progress.after and (not problems or (gap and len(problems) == 1))
    return _left_over(path, progress) if right else f"it holds {table} and not {progress.after}; {'; '.join(map(str, problems))}"


def _left_over(path: Path, progress: Progress) -> str:
    """The first file of a step that a job replaced, or went on before, and that is no part of its record."""
    run, job, before = open_run(path), progress.job, {*progress.before.steps, *(number for _, number in progress.before.states)}
    for rank, committed in run.committed.items():
        for place in layout.step_folders(path, rank):
            step = layout.number(place.parent.name, "step_")
            if step is None or (step <= job.steps.start if progress.continues else step not in before):
                continue
            listed_names = {name for name, steps in committed.listed.items() if step in steps}
            for name in layout.FILES:
                listed = layout.BATCH if name.endswith(".npy") else name
                if listed not in listed_names and not place.parent.is_symlink() and (place / name).exists():
                    return f"{place / name} was left, and is no part of it"
    return ""


def _restarted(path: Path, killed: Job, jobs: Sequence[Job], chance: random.Random) -> str:
    """Start a job on what a moment left, to its end, perhaps the ``killed`` one again; what is wrong with the record then."""
    try:
        before = look(path)[0]
    except RecordError:
        before = Table()
    ranks = jobs[0].ranks
    again = killed.own is not None and chance.random() < 0.7
    exists = killed.exists if again else chance.choice(("replace", "continue"))
    first = min(before.steps, default=0) + 1 if exists == "continue" or (again and chance.random() < 0.5) else 0
    own = (*(killed.own or ()), killed.number) if again else None
    job = Job(9, ranks, exists, range(first, first + 2), jobs[0].asked, own=own)
    progress = Progress(job, before)

    traced([partial(record, job, path, rank) for rank in range(ranks)], seed=1, at_stop=lambda processes: True, at_mark=progress.mark)
    wrong = _finished(path, progress)
    return f"after {job.exists} it is not whole: {wrong}" if wrong else _lost(path, False)


def _write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(path.name)


def _lost(path: Path, among: bool) -> str:
    """The first file that was not ours and is not as it was."""
    for file in (*(path / name for name in STRANGERS), path.parent / OUTSIDE, *([path / AMONG] if among else [])):
        if not file.is_file() or file.read_text() != file.name:
            return f"{file}, which is the user's, is gone"
    return "" if not among or (path / "step_77").is_symlink() else "a user's link is gone"


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True)


def _tear(path: Path, at: int, content: bytes) -> None:
    if path.exists():
        with path.open("r+b") as file:
            file.seek(at)
            file.write(content)


def main() -> int:
    """Live through histories until enough moments have been looked at; print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    if unable():
        print(unable(), file=sys.stderr)
        return 2
    total, seed = Outcome(), given.first
    with ProcessPoolExecutor(given.workers) as pool:
        while total.points.total() < given.points and not total.wrong:
            for outcome in pool.map(lived, range(seed, seed + 4 * given.workers)):
                total.points += outcome.points
                total.restarts += outcome.restarts
                total.wrong += outcome.wrong
            seed += 4 * given.workers
    for kind, count in sorted(total.points.items()):
        print(f"{count:7,} moments of a job: {kind}")
    print(f"{total.points.total():7,} in all, of seeds {given.first} to {seed - 1}; {total.restarts:,} jobs started on what was left")
    for wrong in total.wrong:
        print(f"WRONG: {wrong}")
    return 1 if total.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
