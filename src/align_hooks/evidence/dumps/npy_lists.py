"""Lists of ``.npy`` files that a person saved: by TroubleShooter (``ts.save``, ``ts.save_grad``), or by MindSpore's ``TensorDump``.

TroubleShooter 1.0 writes ``3_NAME.npy``, and MindSpore since 2.4 ``NAME_float32_3.npy``; ``save_grad`` ends NAME with ``_backward``.
The number counts the files of a process: files of one NAME in one directory are micro-batches in that order, and a step is a directory
``stepN``. NAME is a point's canonical name (``model.layers.0.mlp.down_proj``), or the path of a module, whose output the array is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from align_hooks.errors import RecordError
from align_hooks.evidence.dumps.entry import BACKWARD, FORWARD, INPUT, OUTPUT, Dump, DumpEntry, Statistics
from align_hooks.record.format.files import is_folder_in, list_folder, read_array

STEP = re.compile(r"step_?(\d{1,15})")
TYPES = "float16|float32|float64|bfloat16"
BEFORE = re.compile(r"(?P<number>\d{1,18})_(?P<name>.+)\.npy", re.DOTALL)
BEHIND = re.compile(rf"(?P<name>.+?)(?:_(?P<mode>in|out))?_(?P<type>{TYPES})_(?P<number>\d{{1,18}})\.npy", re.DOTALL)
PLAIN = re.compile(r"(?P<name>.+)\.npy", re.DOTALL)
OF_THE_GUIDE = re.compile(r"grad_(?P<number>\d{1,9})\.npy")
"""A file of the guide's snippet: a parameter's gradient by its place in the optimizer, without a step."""
GRADIENT = "_backward"
MOST = 1_000_000
"""Most files of a list."""


def holds(path: Path) -> bool:
    """Return whether a directory is a list, or holds a list for each step."""
    return bool(_lists(path))


def read_list(path: Path, side: str) -> Dump:
    """Read the arrays of a list by ``side``, ``torch`` or ``ms``; arrays of one name are calls in the order of their numbers.

    :raises RecordError: a file is no complete array, there are too many, or they are the guide's nameless ``grad_N.npy``.
    """
    entries: list[DumpEntry] = []
    for folder, step in _lists(path):
        names = _names(folder)
        if len(names) > MOST:
            raise RecordError(f"{folder} holds more than {MOST} arrays; name one step's directory")
        if guide := next((name for name in names if OF_THE_GUIDE.fullmatch(name)), None):
            raise RecordError(f"{folder / guide} is a gradient with a number and no name; name a record of the same model with --names")
        by_name: dict[tuple[str, bool], list[tuple[int, str]]] = defaultdict(list)
        for name in names:
            if match := BEHIND.fullmatch(name) or BEFORE.fullmatch(name) or PLAIN.fullmatch(name):
                module, number = match["name"], int(match.groupdict().get("number") or 0)
                by_name[module.removesuffix(GRADIENT), module.endswith(GRADIENT)].append((number, name))
        for (module, gradient), files in by_name.items():
            direction, output = (BACKWARD, INPUT) if gradient else (FORWARD, OUTPUT)
            for call, (_, name) in enumerate(sorted(files)):
                array = read_array(folder / name, headers_only=True, within=folder)
                if array.dtype.kind == "f":
                    where = (name, module, direction, output, "0", call, step)
                    entries.append(DumpEntry(*where, array.shape, str(array.dtype), Statistics(), folder / name))
    return Dump(path, "a list of arrays", side, tuple(entries), {one.module: "" for one in entries if one.module}, by_hand=True)


def _lists(path: Path) -> list[tuple[Path, int]]:
    """Return the directories of a list with their steps; a directory without a number is step 0."""
    if _names(path):
        match = STEP.fullmatch(path.name)
        return [(path, int(match[1]) if match else 0)]
    inside = [(one, STEP.fullmatch(one.name)) for one in (list_folder(path) if path.is_dir() else ())]
    found = [(folder, int(match[1])) for folder, match in inside if match is not None and is_folder_in(folder, path) and _names(folder)]
    return sorted(found, key=lambda one: one[1])


def _names(folder: Path) -> list[str]:
    return [one.name for one in list_folder(folder) if one.name.endswith(".npy")] if folder.is_dir() else []
