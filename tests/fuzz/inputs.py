"""One input: a seed, what was done to it, and what it is fed to. Made from two numbers, or from a file of the corpus."""

import base64
import json
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from fuzz.mutations import Scene
from fuzz.seeds import PARTNER, RUN, linked
from fuzz.targets import TARGETS
from rewritten import relisted

Change = dict[str, str | int | bool]
CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True, slots=True)
class Input:
    """``name`` is its number, or its file in the corpus; ``target`` and ``seed`` are names; ``changes`` are None where they are drawn."""

    name: str
    target: str
    seed: str
    random: Random
    changes: dict[str, Change] | None = None

    def write(self, seed: Path, scene: Path, outside: Path) -> list[str]:
        """Make the input in ``scene`` of the seed that was built in ``seed``; returns what was done."""
        linked(seed, scene)
        if self.changes is not None:
            return [apply(scene, outside, name, change) for name, change in self.changes.items()]
        target = TARGETS[self.target]
        changed = tuple(path for path in sorted(scene.iterdir()) if self.target != "digested" or path.name == RUN)
        done = target.mutate(self.random, Scene(scene, changed, outside if target.guarded else None))
        if self.target != "digested" and self.random.random() < 0.5:  # as somebody would who means it
            _relist(scene / RUN)
        return done


def _relist(run: Path) -> None:
    """List the files of a run as they are now, where all can be read."""
    facts = [path.lstat() for _, path in _entries(run)]
    if all(stat.S_ISDIR(each.st_mode) or (stat.S_ISREG(each.st_mode) and each.st_size < 1 << 24) for each in facts):
        with suppress(Exception):
            relisted(run)


def drawn(seed: int, number: int, only: str | None = None) -> Input:
    """Input ``number`` of ``seed``: the same wherever and whenever it is made."""
    random = Random(f"{seed} {number}")
    target = only or random.choices(list(TARGETS), [candidate.weight for candidate in TARGETS.values()])[0]
    return Input(str(number), target, random.choice(TARGETS[target].seeds).name, random)


def kept(path: Path) -> Input:
    """An input of the corpus."""
    facts = json.loads(path.read_text())
    return Input(path.stem, facts["target"], facts["seed"], Random(0), facts["changes"])


def saved(sample: Input, fault: str, done: list[str], changes: dict[str, Change]) -> str:
    """The same as a file of the corpus: where it was found, what it showed, and how it differs from its seed."""
    facts = {"target": sample.target, "seed": sample.seed, "found": fault, "done": done, "changes": changes}
    return json.dumps(facts, indent=1) + "\n"


def differences(seed: Path, scene: Path, outside: Path) -> dict[str, Change]:
    """What must be done to a seed to have the scene again, by path."""
    before, after = dict(_entries(seed)), dict(_entries(scene))
    gone = sorted((name for name in before.keys() - after.keys() if name.split("/")[0] != PARTNER), reverse=True)
    changes: dict[str, Change] = {name: {"removed": True} for name in gone}
    for name, path in after.items():
        if name not in before or not _same(before[name], path):
            changes[name] = _described(path, outside, scene)
    return changes


def _entries(top: Path) -> Iterator[tuple[str, Path]]:
    above = len(str(top)) + 1
    for folder, folders, files in os.walk(top):
        for path in sorted(f"{folder}/{name}" for name in (*folders, *files)):
            yield path[above:], Path(path)


def _same(first_path: Path, second_path: Path) -> bool:
    first, second = first_path.lstat(), second_path.lstat()
    return first.st_ino == second.st_ino or (stat.S_ISDIR(first.st_mode) and first.st_mode == second.st_mode)


def _described(path: Path, outside: Path, scene: Path) -> Change:
    facts = path.lstat()
    if stat.S_ISLNK(facts.st_mode):
        return {"link": str(path.readlink()).replace(str(outside), "OUTSIDE").replace(str(scene), "SCENE")}
    if stat.S_ISDIR(facts.st_mode):
        return {"folder": True, "mode": stat.S_IMODE(facts.st_mode)}
    if stat.S_ISFIFO(facts.st_mode):
        return {"fifo": True}
    with path.open("rb") as file:
        data = file.read(1 << 24)
    return {"zlib": base64.b85encode(zlib.compress(data, 9)).decode(), "size": facts.st_size, "mode": stat.S_IMODE(facts.st_mode)}


def apply(scene: Path, outside: Path, name: str, change: Change) -> str:
    """Make one change of the corpus."""
    path = scene / name
    if path.is_dir() and not path.is_symlink() and "folder" not in change:
        swept(path)
    elif not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if "link" in change:
        path.symlink_to(change["link"].replace("OUTSIDE", str(outside)).replace("SCENE", str(scene)))
    elif "folder" in change:
        path.mkdir(exist_ok=True)
    elif "fifo" in change:
        os.mkfifo(path)
    elif "zlib" in change:
        path.write_bytes(zlib.decompress(base64.b85decode(change["zlib"])))
        os.truncate(path, change["size"])
    if "mode" in change:
        path.chmod(change["mode"])
    return f"{name}: {', '.join(change)}"


def swept(path: Path) -> None:
    """Remove a directory and all in it, however deep it is and whatever may be read."""
    path.chmod(0o700)
    for folder, folders, _ in os.walk(path):
        for name in folders:
            inner = f"{folder}/{name}"
            if not os.path.islink(inner):  # noqa: PTH114 - a path of a thousand directories is dear as an object
                os.chmod(inner, 0o700)  # noqa: PTH101
    for folder, folders, files in os.walk(path, topdown=False):
        for name in (*files, *folders):
            inner = f"{folder}/{name}"
            try:
                os.unlink(inner)  # noqa: PTH108
            except IsADirectoryError:
                os.rmdir(inner)  # noqa: PTH106
    path.rmdir()
