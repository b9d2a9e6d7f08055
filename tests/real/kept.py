"""Runs that tests only read: each is trained once and kept, under a key of all that can change it.

A run lies in ``build/runs/SOURCES/ASKED``: the first is a digest of our code and the frameworks, the second of what was asked. Deleting
it costs time alone.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, cached_property
from importlib.metadata import distributions
from pathlib import Path

from filelock import FileLock

import align_hooks

CHECKOUT = Path(__file__).parents[2]
SOURCE = Path(align_hooks.__file__).parent
READERS = ("checklist", "comparison", "doctor", "evidence", "oracle", "report", "scenarios", "testing")
"""The packages of ours that no training imports, but for ``DEFAULTS``: ``test_imported`` sees to that."""
DEFAULTS = tuple(
    f"checklist/{name}"
    for name in (
        *("__init__.py", "canonical_values.py", "lookup.py", "mindformers_models.py"),
        *(f"{table}.txt" for table in ("class_keys", "defaults", "newer_names", "older_families")),
    )
)
"""What MindFormers' side takes from the CheckList: the defaults of settings."""
INPUTS = (
    *(CHECKOUT / name for name in ("launch", "pyproject.toml", "tests/real/scripts", "tests/real/frameworks.py", "tests/real/kept.py")),
    *(CHECKOUT / name for name in ("tests/synthetic.py", "tests/zoo/altered.py")),
)
"""What is trained, and how; files that a test names itself are known by what is in them."""
GENERATIONS = 3
"""How many sources are kept, so that going back to a commit costs nothing."""
LOG, WHOLE = "log", "kept.json"
"""What a training printed; and the file that is written last, in a folder that is whole: size and time of each other file."""
Asked = Mapping[str, object]


class Said:
    """What a process printed."""

    output: str

    @property
    def ours(self) -> str:
        """The lines that are ours."""
        return "\n".join(line for line in self.output.splitlines() if line.startswith("align_hooks:"))

    @property
    def line(self) -> str:
        """All of it in one line."""
        return " ".join(self.output.split())


class Kept(Said):
    """A training that has ended, by the folder that it ran in."""

    def __init__(self, where: Path) -> None:
        self.where, self.run = where, where / "run"

    @cached_property
    def output(self) -> str:  # type: ignore[override]
        """All that it printed."""
        return (self.where / LOG).read_text(encoding="utf-8")


def kept(folder: Path, train: Callable[[Path], tuple[int, str]], asked: Asked, codes: Collection[int] = (0,)) -> Kept:
    """Give the training that is ``asked`` for, made below ``folder`` unless it is there whole; its exit code must be one of ``codes``."""
    sources = digest_of_sources()
    where = folder / sources / digest(canonical(asked, folder))
    lock = FileLock(where.with_suffix(".lock"))
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        os.utime(where.parent)  # it is in use: nobody is to delete it
        lock.acquire()
    except OSError as error:
        if (there := whole(where)) is None:
            raise RuntimeError(f"{folder}: runs cannot be kept there ({error}); FRESH=1 keeps none") from error
        return there
    try:
        if (there := whole(where)) is not None:
            return there
        shutil.rmtree(where, ignore_errors=True)
        ended, output = train(where)
        assert ended in codes, f"exit code {ended}\n{output[-4000:]}"
        (where / LOG).write_text(output, encoding="utf-8")
        if digest_of_sources() == sources:  # else our code was changed while it was trained, and it is of neither
            mark(where)
        return Kept(where)
    finally:
        lock.release()


def whole(where: Path) -> Kept | None:
    """A kept training; None where there is none, or one that was not written to its end, or changed since."""
    try:
        return Kept(where) if json.loads((where / WHOLE).read_text(encoding="utf-8")) == _listing(where) else None
    except (OSError, ValueError):
        return None


def mark(where: Path) -> None:
    """Say that a folder is whole."""
    written = where / f"{WHOLE}.part"
    written.write_text(json.dumps(_listing(where)), encoding="utf-8")
    written.replace(where / WHOLE)
    _marked.add(where)


def changed() -> list[Path]:
    """The folders, of those that this process has marked, that are not any more what they were."""
    return sorted(where for where in _marked if whole(where) is None)


_marked: set[Path] = set()


def _listing(where: Path) -> dict[str, list[int]]:
    """Size and time of each file below a folder, but for the mark."""
    files = {path: path.lstat() for path in where.rglob("*") if not path.name.startswith(WHOLE) and not path.is_dir()}
    return {str(path.relative_to(where)): [state.st_size, state.st_mtime_ns] for path, state in files.items()}


def canonical(value: object, folder: Path) -> object:
    """Return what is asked for as JSON has it: the same for the same question, whatever folder the test that asks has."""
    if isinstance(value, Mapping):
        return {str(name): canonical(one, folder) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(one, folder) for one in value]
    if callable(value):
        return f"{value.__module__}.{value.__qualname__}"
    if not isinstance(value, str | os.PathLike):
        return value
    path = Path(value)
    if not path.is_absolute():
        return os.fspath(value)
    if os.pathsep in str(path):
        return [canonical(one, folder) for one in str(path).split(os.pathsep)]
    if path.is_relative_to(folder):
        return str(path.relative_to(folder))  # which has its own key in its name
    if path.is_file():
        return [path.name, _of(path)]
    if path.is_relative_to(CHECKOUT):
        return [str(path.relative_to(CHECKOUT)), digest(_texts(path.rglob("*.py")))]
    if any(one.exists() for one in (path, *path.parents[:-1])):
        raise ValueError(f"{path}: a run that is kept cannot hang on a folder that is not: name it relative to the folder that it runs in")
    return str(path)


def digest(value: object) -> str:
    """A name of twenty letters for a value of JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:20]


def digest_of_sources() -> str:
    """Name all that a training depends on, but for what is asked of it: our code and inputs, this checkout, and what is installed."""
    files = [path for path in SOURCE.rglob("*") if path.relative_to(SOURCE).parts[0] not in READERS]
    files += [SOURCE / name for name in DEFAULTS]
    files += [path for one in INPUTS for path in (one.rglob("*") if one.is_dir() else [one])]
    return digest([str(CHECKOUT), sys.version, os.environ.get("PYTHONPATH"), _installed(), _texts(files)])


def _texts(paths: Iterable[Path]) -> dict[str, str]:
    """Digests of files, by their paths."""
    return {str(path): _of(path) for path in paths if path.is_file() and "__pycache__" not in path.parts}


def _of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def _installed() -> list[str]:
    return sorted(f"{one.name} {one.version}" for one in distributions())


def prune(folder: Path) -> None:
    """Delete runs of sources that are long gone."""
    found = sorted((path for path in folder.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime) if folder.is_dir() else []
    for path in found[:-GENERATIONS]:
        shutil.rmtree(path, ignore_errors=True)
