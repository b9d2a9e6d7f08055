"""Trees that a public commit is tried in: an installed package with the one change taken back, or those before and after it in a clone."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock

from real import frameworks
from zoo.case import MEGATRON, Case

VERSION = "2.1.0"
"""Of MindFormers."""
CLONES = {"NVIDIA/Megatron-LM": "MEGATRON_LM_CLONE"}
"""The variable that names a clone of a repository."""
PARTS = ("megatron", "pretrain_gpt.py", "pretrain_hybrid.py", "pretrain_mamba.py", "gpt_builders.py", "hybrid_builders.py")
PARTS += ("mamba_builders.py", "model_provider.py")
"""What a run needs of a tree of Megatron-LM, as far as it has it."""


class NotApplied(AssertionError):
    """A tree that cannot be made: what its row says in the place of a verdict."""


def names(name: str, case: Case) -> tuple[str, str]:
    """The folders that the reference and the candidate of a row train in; empty for the environment's packages."""
    if case.commit and not case.edits:
        return case.commit, f"{case.commit}~1"
    plain = "" if case.side == MEGATRON else f"mindformers-{VERSION}"
    return (name, plain) if case.forward else (plain, name if case.edits else plain)


def make(case: Case, tree: str, where: Path) -> None:
    """Make a folder that one side of a row trains in, where it is not there."""
    folder = where / "trees" / tree
    if not tree:
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{tree}.lock")):  # several rows may ask for it at once
        if folder.exists():
            return
        making = folder.with_name(f"{tree}.making")
        shutil.rmtree(making, ignore_errors=True)
        if tree.startswith(case.commit or "-"):
            unpack(case.repository, tree, making)
        else:
            alter(installed(case.side), case.edits if tree == case.name else (), making)
        making.rename(folder)


def alter(installed: Iterable[Path], edits: Iterable[Mapping[str, str]], folder: Path) -> None:
    """Copy what a package is made of into a folder with edits made. Files that are not edited are links."""
    for part in installed:
        shutil.copytree(part, folder / part.name, copy_function=linked, ignore=shutil.ignore_patterns("__pycache__"))
    for edit in edits:
        file = folder / edit["file"]
        text = edited(file.read_text(encoding="utf-8"), edit)
        file.unlink()  # the link, not what it leads to
        file.write_text(text, encoding="utf-8")


def installed(side: str) -> list[Path]:
    """The folders of the package that commits of a side are tried in; of MindFormers its configurations and its version too."""
    if side != MEGATRON:
        return [*frameworks.wheel("mindformers", VERSION).iterdir()]
    spec = find_spec("megatron.core")
    assert spec is not None and spec.origin is not None
    return [Path(spec.origin).parents[1]]


def linked(source: str, target: str) -> None:
    """Link a file, or copy it to another disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def edited(text: str, edit: Mapping[str, str]) -> str:
    """A text in which one stretch is another: from where ``find`` begins to where ``through`` ends, or ``find`` alone. It is to stand there
    once; ``within`` is something that does, behind which the first is meant."""
    find, within = edit["find"], edit.get("within", edit["find"])
    if text.count(within) != 1:
        raise NotApplied(f"{edit['file']}: {within!r} stands there {text.count(within)} times")
    begin = text.find(find, text.index(within))
    through = edit.get("through", "")
    end = text.find(through, begin + len(find)) if through else begin + len(find)
    if begin < 0 or end < 0:
        raise NotApplied(f"{edit['file']}: {find if begin < 0 else through!r} does not stand behind {within!r}")
    return text[:begin] + edit["put"] + text[end + len(through) :]


def unpack(repository: str, revision: str, folder: Path) -> None:
    """Put the tree of a revision of a clone into a folder."""
    clone = os.environ.get(CLONES[repository])
    if clone is None:
        raise NotApplied(f"{CLONES[repository]} names no clone of {repository}")
    git = ("git", "-C", clone)
    listed = subprocess.run([*git, "ls-tree", "--name-only", revision], capture_output=True, text=True, check=False)
    if listed.returncode:
        raise NotApplied(f"{clone} has no commit {revision}")
    packed = subprocess.run(
        [*git, "archive", revision, *sorted({*PARTS} & {*listed.stdout.split()})], capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    # its helpers of data sets, which Megatron compiles itself where no installed ones are found
    path = os.pathsep.join([str(Path(sys.executable).parent), f"{sys.base_prefix}/bin", os.environ["PATH"]])  # python3, python3-config
    command = ("make", "--directory", str(folder / "megatron" / "core" / "datasets"))
    made = subprocess.run(command, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False)
    if made.returncode:
        raise NotApplied(f"{revision}: its helpers of data sets do not compile: {made.stderr[-200:]}")
