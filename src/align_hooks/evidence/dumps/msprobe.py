"""Dumps of msprobe (mindstudio-probe), of PyTorch and of MindSpore.

``DUMP/stepN/rankM`` (``procPID`` where the process knew no rank) holds ``dump.json``, with an entry for every call of a module (level L0),
of an API (L1) or both (mix); ``construct.json``, with the parent and the micro-batch of a call; ``stack.json``, which is not read; and with
``task: tensor`` the numbers in ``dump_tensor_data``, ``.pt`` of torch and ``.npy`` of MindSpore.

A module's entry is ``Module.PATH.CLASS.forward.CALL`` (``Cell.…`` in MindSpore); PATH begins with a number in a list of models.
The JSON has Python's NaN and Infinity. ``debugger.stop()`` writes ``dump.json``: a run that ended before has none.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta, MsgspecError, Struct, convert

from align_hooks.errors import RecordError, shown
from align_hooks.evidence.dumps.entry import AGAIN, INPUT, MOST_ELEMENTS, OUTPUT, Dump, DumpEntry, Statistics
from align_hooks.record.format.files import in_words, is_folder_in, list_folder
from align_hooks.regular import read_regular, refuse_swollen, whole_number

T = TypeVar("T")
DEEPEST = 32
"""Most levels of lists and dictionaries in an argument."""
STEP, RANK = re.compile(r"step(\d{1,15})"), re.compile(r"(?:rank|proc)\d{1,9}|proc")
SIDES = {"pytorch": "torch", "mindspore": "ms"}
TENSOR = re.compile(r"(torch|mindspore)\.(?:\w+\.){0,4}\w*Tensor|torch\.nn\.parameter\.Parameter|mindspore\.\w+\.Parameter")
CALL = re.compile(r"(?:Module|Cell)\.(?P<path>.+)\.(?P<direction>forward|backward)\.(?P<call>\d{1,9})", re.DOTALL)
API = re.compile(r"(?P<api>.+)\.(?P<call>\d{1,9})\.(?P<direction>forward|backward)", re.DOTALL)
CONSTRUCT = "construct.json"
PARTS = {"input_args": INPUT, "input_kwargs": INPUT, "output": OUTPUT, "input": INPUT}


class _Tensor(Struct, frozen=True, rename={"maximum": "Max", "minimum": "Min", "mean": "Mean", "norm": "Norm"}):
    """A tensor of ``dump.json``."""

    dtype: str
    shape: Annotated[list[Annotated[int, Meta(ge=0, lt=2**48)]], Meta(max_length=32)]
    maximum: float | bool | None = None
    minimum: float | bool | None = None
    mean: float | bool | None = None
    norm: float | bool | None = None
    data_name: str | None = None


class _Contents(Struct, frozen=True):
    """``dump.json``."""

    framework: str
    data: dict[str, dict[str, object]]
    level: str = ""


def holds(path: Path) -> bool:
    """Return whether a directory is a dump of msprobe, of a rank, a step or several steps, even without its ``dump.json``."""
    return bool(_inside(path, 2)) or bool(_inside(path, 2, CONSTRUCT))


def read_msprobe(path: Path) -> Dump:
    """Read the dump of one rank, in one step's directory or in that of all; raises RecordError for a damaged one, and for several ranks."""
    entries, classes = list[DumpEntry](), dict[str, str]()
    frameworks, levels = set(), set()
    for folder, step in _places(path):
        file = folder / "dump.json"
        contents = _converted(_json(file), _Contents, f"{file} is no dump.json of msprobe")
        frameworks.add(contents.framework)
        levels.add(contents.level)
        entries += _entries(contents, folder, step, _micro_batches(folder / CONSTRUCT), classes)
    if len(frameworks) > 1 or not frameworks <= SIDES.keys():
        raise RecordError(f"{path} is of {shown(', '.join(sorted(frameworks)))}; name the dump of one run of PyTorch or MindSpore")
    note = "level L1 names calls of APIs and no modules, so nothing of it has a place in the model; dump with level L0 or mix"
    notes = (note,) if "L1" in levels and all(entry.module is None for entry in entries) else ()
    return Dump(path, "msprobe", SIDES[frameworks.pop()], tuple(entries), classes, notes)


def _inside(path: Path, deep: int, file: str = "dump.json") -> list[Path]:
    """Return the directories with a ``file``: a path itself, or steps and ranks in it."""
    if (path / file).exists():
        return [path]
    if not deep or not path.is_dir():
        return []
    named = [one for one in list_folder(path) if STEP.fullmatch(one.name) or RANK.fullmatch(one.name)]
    return [found for one in named if is_folder_in(one, path) for found in _inside(one, deep - 1, file)]


def _places(path: Path) -> list[tuple[Path, int]]:
    """Return the directories of a dump with their steps, ascending; the step is in a folder's name or in its parent's, or 0."""
    found = _inside(path, 2)
    if not found:
        raise RecordError(f"{path} has no dump.json, which msprobe writes at debugger.stop(); dump again, and let the run reach it")
    names = ((folder, STEP.fullmatch(folder.name) or STEP.fullmatch(folder.parent.name)) for folder in found)
    by_step = sorted(((folder, int(match[1]) if match else 0) for folder, match in names), key=lambda place: place[1])
    for (first, step), (second, next_step) in itertools.pairwise(by_step):
        if step == next_step:
            ranks = f"{first.name} and {second.name}"
            raise RecordError(f"{path} holds {ranks} of one step, and a dump does not say who holds what; name the directory of one")
    return by_step


def _converted(value: object, kind: type[T], fault: str) -> T:
    try:
        return convert(value, kind)
    # a name that is no text is a ValueError, a long integer an OverflowError
    except (MsgspecError, ValueError, RecursionError, OverflowError) as error:
        raise RecordError(f"{fault} ({shown(in_words(error))}); {AGAIN}") from None


def _json(path: Path) -> Any:
    """Read JSON with Python's NaN and Infinity; raises RecordError for a missing file, and for one that is no complete JSON."""
    try:
        text = read_regular(path, within=path.parent)
        refuse_swollen(text)
        return json.loads(text, parse_int=whole_number)
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise RecordError(f"{path} is not a whole JSON text ({shown(in_words(error))}); copy it again, or {AGAIN}") from None


def _micro_batches(path: Path) -> Mapping[str, int]:
    """Return name of a call to its micro-batch; empty where Megatron-LM's schedule did not report micro-batches to msprobe."""
    tree = _json(path) if path.exists() else {}
    if not isinstance(tree, dict):
        raise RecordError(f"{path} is no construct.json of msprobe; {AGAIN}")
    if "megatron_micro_step_number" not in tree:
        return {}
    return {name: above[1] for name, above in tree.items() if isinstance(above, list) and len(above) > 1 and isinstance(above[1], int)}


def _entries(contents: _Contents, folder: Path, step: int, micro: Mapping[str, int], classes: dict[str, str]) -> Iterator[DumpEntry]:
    """Yield the tensors of a rank's step, and add the class of every module to ``classes``."""
    seen: set[tuple[object, ...]] = set()
    for name, parts in contents.data.items():
        match = CALL.fullmatch(name) or API.fullmatch(name)
        if match is None:  # the gradient of a parameter
            continue
        path = match.groupdict().get("path")  # None for a call of an API
        module, kind = (None, "") if path is None else (path.rpartition(".")[0], path.rpartition(".")[2])
        call = micro.get(name, int(match["call"]))
        if module is not None:
            classes.setdefault(module, kind)
            if (module, match["direction"], call) in seen:  # recomputed in the backward pass
                continue
            seen.add((module, match["direction"], call))
        for part, side in PARTS.items():
            for index, value in _tensors(parts.get(part), ""):
                fault = f"{folder / 'dump.json'}: {shown(name)} is no tensor of msprobe"
                facts = _converted(value, _Tensor, fault)
                if math.prod(facts.shape) >= MOST_ELEMENTS:
                    raise RecordError(f"{fault} (its shape is of more elements than any tensor has); {AGAIN}")
                where = (f"{name}.{side}.{index}", module, match["direction"], side, index, call, step)
                numbers = (None if one is None else float(one) for one in (facts.minimum, facts.maximum, facts.mean, facts.norm))
                dtype, file = facts.dtype.rpartition(".")[2].lower(), _file(facts.data_name, folder, name)
                yield DumpEntry(*where, tuple(facts.shape), dtype, Statistics(*numbers), file)


def _tensors(value: object, index: str, depth: int = 0) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the tensors of an argument, each with its index there: ``1.0`` is the first tensor of the second member."""
    if depth > DEEPEST:
        return
    if isinstance(value, dict) and isinstance(kind := value.get("type"), str):
        if TENSOR.fullmatch(kind):
            yield index, value
        return
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from _tensors(member, f"{index}.{key}" if index else str(key), depth + 1)


def _file(data_name: str | None, folder: Path, name: str) -> Path | None:
    """Return the file of a tensor, in the folder of ``dump.json``; raises RecordError for a missing file."""
    if data_name is None:
        return None
    if data_name in ("", ".", "..") or "/" in data_name or "\0" in data_name or not data_name.endswith((".pt", ".npy")):
        raise RecordError(f"{folder / 'dump.json'}: {shown(name)} names the file {shown(data_name)!r}, which is none of msprobe's; {AGAIN}")
    file = folder / "dump_tensor_data" / data_name
    if not file.is_file():
        raise RecordError(f"{file} is missing; copy the whole dump, or {AGAIN}")
    return file
