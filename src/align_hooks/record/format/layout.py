"""Names of the files of a record, and the number of their format.

::

    RUN/run.json                          rank 0: what ran, with which settings, hyper-parameters as the optimizer holds them
    RUN/manifest/rank_M.json              each rank: launch facts, place, parameter table, hooks, how it ended, its segments
    RUN/manifest/rank_M.claim             locked while the rank's process lives, which it names; no part of the record
    RUN/scalars/rank_M.jsonl              one row a step; a step is whole when its row stands here, which lists the step's files
    RUN/local_norms/rank_M.jsonl          this rank's squared sums, one row a step
    RUN/sketches/gradients/rank_M.jsonl   this rank's signed sums of the gradients of step N, one row a step
    RUN/sketches/weights/rank_M.jsonl     and of the weights after N updates
    RUN/causal_attention_mask.npy         once for the run, where every batch used it
    RUN/last_words/rank_M.SIGTERM         the stack of a rank that the signal ended; empty while it lives, gone when it ended by itself
    RUN/step_N/rank_M/tokens.npy …        the batch that step N consumed, as in the guide's appendix
    RUN/step_N/rank_M/batch.json          its row counts and digests; written last
    RUN/step_N/rank_M/routing.safetensors the experts that each token was given to
    RUN/step_N/rank_M/activations/        what the points of the forward pass put out, and their gradients: sums of all, written last, and
                                          whole tensors of those that are kept so
    RUN/step_N/rank_M/gradients.safetensors
    RUN/step_N/rank_M/weights/            the state after N updates: a Hugging Face checkpoint where a rank holds all
    RUN/step_N/rank_M/weights/squared.json   squared sums of all that the rank holds, copies of other ranks' weights too
    RUN/step_N/rank_M/optimizer_state/    moments of Adam and Muon after N updates, a file each; state.json is written last and
                                          holds the count of updates and the type in which the optimizer keeps each moment

M is the launcher's global rank. Bump ``FORMAT`` when a meaning in this list changes. ``docs/record.md`` has the
order in which files are written, and the meaning of each and of its absence.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from align_hooks.process.storage import exists
from align_hooks.quantities import batches, gradients, optimizer_state, routing, weights
from align_hooks.quantities.registry import KINDS, ROWS, STATES
from align_hooks.quantities.scalars import SCALARS

if TYPE_CHECKING:
    from numpy.typing import NDArray  # `align-hooks run` needs paths alone, and starts in half the time without numpy

Array: TypeAlias = "NDArray[Any]"
"""Numbers of any type: the content of a ``.npy`` file, or a tensor."""
JsonObject: TypeAlias = dict[str, Any]
"""A JSON object as it was read, before :func:`.structured.structured` gives it types."""
FORMAT = 1
"""The number of the format, the only one that is read."""
INPUTS, BATCH_ARRAYS = batches.INPUTS, batches.ARRAYS
MOMENTS, ALL_MOMENTS = optimizer_state.MOMENTS, optimizer_state.ALL_MOMENTS
RUN_FILE = "run.json"


def run_file(run: Path) -> Path:
    """Return the path of the run's facts, written by rank 0."""
    return run / RUN_FILE


def manifest(run: Path, rank: int) -> Path:
    """Return the path of a rank's facts."""
    return run / "manifest" / f"rank_{rank}.json"


def claim(run: Path, rank: int) -> Path:
    """Return the path of a rank's lock (:mod:`.write.directory_lock`)."""
    return run / "manifest" / f"rank_{rank}.claim"


def last_words(run: Path, rank: int, signal: str) -> Path:
    """Return the path of a rank's crash stack (:mod:`.crash_stack`)."""
    return run / "last_words" / f"rank_{rank}.{signal}"


def rows(run: Path, name: str, rank: int) -> Path:
    """Return the path of a rank's rows of a quantity, by its name; one row a step."""
    return run / name / f"rank_{rank}.jsonl"


def scalars(run: Path, rank: int) -> Path:
    """Return the path of a rank's rows of scalars."""
    return rows(run, SCALARS.name, rank)


def causal_mask(run: Path) -> Path:
    """Return the path of the causal mask: bool ``[1, 1, sequence, sequence]``, True where attention is forbidden."""
    return run / batches.CAUSAL_MASK


def step(run: Path, number: int, rank: int) -> Path:
    """Return the directory of one rank's step."""
    return run / f"step_{number}" / f"rank_{rank}"


GRADIENTS = gradients.TENSORS
MODEL, WEIGHT_PADDING, CONFIG, SQUARED = weights.MODEL, weights.PADDING, weights.CONFIG, weights.SQUARED
STATE = optimizer_state.DESCRIPTION
BATCH, CHOICES = batches.DESCRIPTION, routing.CHOICES
"""Files that rows list, by their path in ``step_N/rank_M``."""
FILES = tuple(file for kind in KINDS for file in kind.files)
"""Every file that ``step_N/rank_M`` may hold."""
ROW_FOLDERS = tuple(kind.name for kind in ROWS)
LINES = tuple(kind.name for kind in ROWS if kind is not SCALARS)
"""Quantities whose single rows a row of scalars lists; every other entry of its list is a file."""


def is_state(name: str) -> bool:
    """Whether a name in a row's list is of a state, numbered by the updates before it."""
    return name.startswith(STATES)


def number(name: str, prefix: str) -> int | None:
    """Return the number in a name of ours, ``step_7``; None for any other name."""
    digits = name.removeprefix(prefix)
    fits = name.startswith(prefix) and digits.isascii() and digits.isdigit() and len(digits) < 16 and str(int(digits)) == digits
    return int(digits) if fits else None


def is_file_of_record(name: str) -> bool:
    """Whether a name in a run's directory, with ``/`` between its parts, is of a file that readers read."""
    *folders, last = name.split("/")
    of_rank = number(last.rpartition(".")[0], "rank_") is not None
    match folders:
        case []:
            return last == RUN_FILE or any(last in kind.shared for kind in KINDS)
        case ["manifest"]:
            return of_rank and last.endswith(".json")
        case [step, rank, *inner] if number(step, "step_") is not None and number(rank, "rank_") is not None:
            return "/".join((*inner, last)) in FILES
    return of_rank and last.endswith(".jsonl") and "/".join(folders) in ROW_FOLDERS


def steps(run: Path) -> Iterator[tuple[int, Path]]:
    """Yield the number and the path of every ``step_N``."""
    numbers = ((number(path.name, "step_"), path) for path in _inside(run))
    return ((step, path) for step, path in numbers if step is not None)


def step_folders(run: Path, rank: int | None = None) -> Iterator[Path]:
    """Yield every ``step_N/rank_M``, or those of one rank; the target of a link is not listed."""
    for _, path in steps(run):
        if rank is not None and exists(path / f"rank_{rank}"):
            yield path / f"rank_{rank}"
        elif rank is None and not path.is_symlink():
            yield from (folder for folder in path.glob("rank_*") if number(folder.name, "rank_") is not None)


def steps_with(run: Path, rank: int, name: str) -> list[int]:
    """Return the numbers N, ascending, for which ``step_N/rank_M/name`` exists."""
    return sorted(step for step, path in steps(run) if (path / f"rank_{rank}" / name).exists())


def ranks(run: Path) -> list[int]:
    """Return the ranks that have a manifest, ascending."""
    numbers = (number(path.stem, "rank_") for path in _inside(run / "manifest") if path.suffix == ".json")
    return sorted(rank for rank in numbers if rank is not None)


def _inside(folder: Path) -> Iterator[Path]:
    """Yield the entries of a folder; raises OSError, as ``glob`` does not, where they cannot be listed."""
    with suppress(FileNotFoundError, NotADirectoryError):
        yield from folder.iterdir()
