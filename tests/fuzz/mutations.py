"""What is done to a seed: the bytes of one of its files, or the files themselves. All is drawn from one generator."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from fuzz.contents import ANY, BY_KIND, kind_of
from fuzz.odd import ODD_NAMES, ODD_TARGETS

LONG = 1 << 24
"""Bytes of the largest file that is mutated."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A seed's copy to be mutated: ``root`` is its directory, ``changed`` what mutations may touch, ``outside`` what nobody may, or
    None where a link may lead anywhere."""

    root: Path
    changed: tuple[Path, ...]
    outside: Path | None

    def files(self) -> list[Path]:
        """Regular files that may be mutated, in an order that is always the same; not what an earlier mutation made gigabytes long."""
        return [path for path in self._places() if path.is_file() and path.stat().st_size < LONG]

    def folders(self) -> list[Path]:
        """The same of directories."""
        return [path for path in self._places() if path.is_dir()]

    def _places(self) -> Iterator[Path]:
        yield from (path for top in self.changed if not top.is_symlink() for path in (top, *_below(top)) if not path.is_symlink())


def _below(top: Path) -> list[Path]:
    """All below a directory; :meth:`Path.rglob` calls itself, and what :func:`deep` makes is deeper than that goes."""
    return [Path(path) for path in sorted(f"{folder}/{name}" for folder, folders, files in os.walk(top) for name in (*folders, *files))]


def rewritten(path: Path, data: bytes) -> None:
    """Give a file new content; what is linked to it keeps its own."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def content(random: Random, scene: Scene) -> str:
    """Change the bytes of one file as befits its kind."""
    path = random.choice(scene.files())
    change = random.choice(BY_KIND.get(kind_of(path), ANY))
    rewritten(path, change(random, path.read_bytes()))
    return f"{change.__name__} of {path.relative_to(scene.root)}"


def removed(random: Random, scene: Scene) -> str:
    path = random.choice(scene.files() + scene.folders())
    _remove(path)
    return f"removed {path.relative_to(scene.root)}"


def _remove(path: Path) -> None:
    for place in reversed([path, *(() if path.is_symlink() else _below(path))]):
        place.rmdir() if place.is_dir() and not place.is_symlink() else place.unlink()


def swapped(random: Random, scene: Scene) -> str:
    """A file in the place of another of its name or kind, of another step, rank or array; or both change places."""
    path = random.choice(scene.files())
    alike = [other for other in scene.files() if other != path and (other.name == path.name or other.suffix == path.suffix)]
    donor = random.choice(alike or [path])
    content, donated = path.read_bytes(), donor.read_bytes()
    rewritten(path, donated)
    if random.random() < 0.5:
        rewritten(donor, content)
    return f"{donor.relative_to(scene.root)} in the place of {path.relative_to(scene.root)}"


def folder_for_file(random: Random, scene: Scene) -> str:
    path = random.choice(scene.files())
    path.unlink()
    path.mkdir()
    return f"a directory for {path.relative_to(scene.root)}"


def file_for_folder(random: Random, scene: Scene) -> str:
    path = random.choice(scene.folders())
    _remove(path)
    path.write_bytes(random.choice((b"", b"x")))
    return f"a file for {path.relative_to(scene.root)}"


def link(random: Random, scene: Scene) -> str:
    """A symbolic link in the place of a file or a directory; what a user names may be one to anywhere."""
    path = random.choice(scene.files() + scene.folders())
    inside = random.choice(scene.files() + scene.folders())
    outside = [scene.outside, *sorted(scene.outside.iterdir())] if scene.outside and path not in scene.changed else []
    above = (path.parent, "..") if path not in scene.changed else ()  # who names a folder names all below it
    target = random.choice([*outside, path, *above, inside, *ODD_TARGETS])
    _remove(path)
    path.symlink_to(target)
    return f"{path.relative_to(scene.root)} is a link to {target}"


def pipe(random: Random, scene: Scene) -> str:
    """A FIFO in the place of a file: who opens it waits for ever. One that a user names is read, as a shell's ``<(…)`` is."""
    if scene.outside is None:
        return empty(random, scene)
    path = random.choice(scene.files())
    path.unlink()
    os.mkfifo(path)
    return f"a FIFO for {path.relative_to(scene.root)}"


def empty(random: Random, scene: Scene) -> str:
    path = random.choice(scene.files())
    rewritten(path, b"")
    return f"{path.relative_to(scene.root)} is empty"


def sparse(random: Random, scene: Scene) -> str:
    """A file with a hole of gigabytes behind what it held."""
    path = random.choice(scene.files())
    rewritten(path, path.read_bytes())
    os.truncate(path, random.choice((1 << 31, 1 << 33, 1 << 40)))
    return f"{path.relative_to(scene.root)} goes on for ever"


def renamed(random: Random, scene: Scene) -> str:
    """A file or directory under a name that is nearly one of ours, or none at all."""
    path = random.choice(scene.files() + scene.folders()[1:])
    name = random.choice(ODD_NAMES)
    renamed_path = path.parent / os.fsdecode(name)
    if not os.path.lexists(renamed_path):
        path.rename(renamed_path)
    return f"{path.relative_to(scene.root)} is called {name[:40]!r}"


LEVELS = 200
"""Levels of directories that are copied."""


def copied(random: Random, scene: Scene) -> str:
    """A directory a second time, as another step or rank."""
    path = random.choice(scene.folders()[1:] or scene.folders())
    name = random.choice(("step_3", "step_7", "rank_1", "rank_5", "step_1000000000000", "more"))
    for file in _below(path):
        inner = file.relative_to(path)
        place = path.parent / name / inner
        few = len(inner.parts) < LEVELS  # what :func:`deep` has made is too deep for pathlib
        if few and file.is_file() and not file.is_symlink() and not os.path.lexists(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            os.link(file, place)
    return f"{path.relative_to(scene.root)} again as {name}"


def deep(random: Random, scene: Scene) -> str:
    """Directories in directories, more of them than a stack is deep."""
    place = random.choice([path for path in scene.folders() if len(str(path)) < 300])  # of a path there are 4,096 characters
    levels, name = random.choice(((10, "a"), (1_200, "a"), (100, "step_9")))
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(place)
        for _ in range(levels):
            Path(name).mkdir(exist_ok=True)
            os.chdir(name)
        Path("tokens.npy").write_bytes(b"x")
    finally:
        os.fchdir(here)
        os.close(here)
    return f"{levels} directories in {place.relative_to(scene.root)}"


def unreadable(random: Random, scene: Scene) -> str:
    """A file or directory without permissions; for root they are no hindrance."""
    path = random.choice(scene.files() + scene.folders()[1:])
    if path.is_file():
        rewritten(path, path.read_bytes())
    path.chmod(0)
    return f"{path.relative_to(scene.root)} may not be read"


STRUCTURE = (
    *(removed, removed, swapped, swapped, folder_for_file, file_for_folder, link, link, link, pipe, empty, sparse, renamed, copied, deep),
    unreadable,
)
FOLDERS = (file_for_folder, copied, deep)
"""Those that take a directory."""


def mutate(random: Random, scene: Scene) -> list[str]:
    """Do one thing to a seed, or a few; returns what was done."""
    done = []
    for _ in range(random.choice((1, 1, 1, 1, 2, 3))):
        if not scene.files():
            break
        kind = content if random.random() < 0.75 else random.choice(STRUCTURE)
        done.append((content if kind in FOLDERS and not scene.folders() else kind)(random, scene))
    return done
