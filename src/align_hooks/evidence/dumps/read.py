"""A dump of any known tool."""

from __future__ import annotations

import stat
from pathlib import Path

from align_hooks.errors import RecordError, shown
from align_hooks.evidence.dumps import mindspore, msprobe, npy_lists
from align_hooks.evidence.dumps.entry import Dump
from align_hooks.record.format.files import in_words, list_folder

PICKLES = (".pkl", ".pickle")
KNOWN = (
    "a dump of msprobe (dump.json in stepN/rankM), of MindSpore (rank_N/NET/GRAPH/ITERATION with statistic.csv or .npy files), "
    "or a list of .npy files"
)


def is_dump(path: Path) -> bool:
    """Return whether a source is a dump, or the pickle of an older tool."""
    if path.suffix in PICKLES:
        return True
    return path.is_dir() and (bool(_pickles(path)) or any(tool.holds(path) for tool in (msprobe, mindspore, npy_lists)))


def read_dump(path: Path, side: str = "torch") -> Dump:
    """Read a dump; ``side`` is for a list of arrays, which does not say.

    :raises RecordError: there is no complete dump of a known tool, or there are pickles, which are never read.
    """
    if found := _pickles(path):
        raise RecordError(
            f"{found[0]} may be a pickle, and is never opened: reading one can run anything; dump again with msprobe "
            f"(pip install mindstudio-probe), which writes dump.json"
        )
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            raise RecordError(f"{path} is no directory; name {KNOWN}")
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {shown(in_words(error))}; name {KNOWN}") from None
    if msprobe.holds(path):
        return msprobe.read_msprobe(path)
    if mindspore.holds(path):
        return mindspore.read_mindspore(path)
    if npy_lists.holds(path):
        return npy_lists.read_list(path, side)
    raise RecordError(f"{path} is no dump that is known here; name {KNOWN}")


def _pickles(path: Path) -> list[Path]:
    """Return the pickles of msprobe's forerunner (``api_stack_dump.pkl``) at or below a path."""
    if not path.is_dir():
        return [path] if path.suffix in PICKLES else []
    folders = [path, *(one for one in list_folder(path) if not one.is_symlink() and one.is_dir())]
    return [one for folder in folders for one in list_folder(folder) if one.suffix in PICKLES and "dump" in one.name]
