"""The commits of the sources that a process imported, from the files of their repositories: a node may have no git."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def commits(modules: Iterable[str]) -> dict[str, str]:
    """Map those ``modules`` that were imported from a checkout, or installed from a commit, to its hash.

    Whether files differ from the commit is not known. A package without a repository of its own is left out.
    """
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in modules}
    known = {name: Path(file).resolve() for name, file in files.items() if isinstance(file, str)}
    found = {name: checked_out(file, name.count(".") + 1) or installed_from(name, file) for name, file in known.items()}
    return {name: commit for name, commit in found.items() if commit is not None}


def checked_out(file: Path, depth: int) -> str | None:
    """Return the commit of the checkout that holds a package; None where there is none.

    ``depth`` is the number of parts of the package's name. The repository is at most one folder (``src``) above the package and has the
    file in its index, as any other is of something else: the environment, or a home directory.
    """
    folder = next(iter(file.parents[depth : depth + 1]), file.parent)
    for place in (folder, *([folder.parent] if folder.name in ("src", "python") else [])):
        if (place / ".git").exists():
            with suppress(OSError, ValueError):
                git, name = folder_of(place / ".git"), file.relative_to(place).as_posix().encode()
                entry = len(name).to_bytes(2, "big") + name + b"\0"  # of an index of version 2 or 3; others are not read
                return head(git) if entry in (git / "index").read_bytes() else None
            return None
    return None


def folder_of(git: Path) -> Path:
    """Return the folder that a ``.git`` is, or that the file of a worktree or a submodule names."""
    if git.is_dir():
        return git
    return (git.parent / git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()).resolve()


def head(git: Path) -> str | None:
    """Return the hash that a repository's folder has checked out; None of a repository without a commit."""
    common = git / (git / "commondir").read_text(encoding="utf-8").strip() if (git / "commondir").exists() else git
    name = (git / "HEAD").read_text(encoding="utf-8").strip().removeprefix("ref: ")
    packed = common / "packed-refs"
    lines = packed.read_text(encoding="utf-8").splitlines() if packed.exists() else []
    loose = [(place / name).read_text(encoding="utf-8").strip() for place in (git, common) if (place / name).is_file()]
    known = [name, *loose, *(line.partition(" ")[0] for line in lines if line.partition(" ")[2] == name)]
    return next((text for text in known if HASH.fullmatch(text)), None)


def installed_from(module: str, file: Path) -> str | None:
    """Return the commit from which a package was installed (PEP 610) that lies where ``file`` does; None of any other installation."""
    with suppress(PackageNotFoundError, ValueError, AttributeError):
        installed = distribution(module.replace(".", "-"))
        if not file.is_relative_to(Path(str(installed.locate_file(""))).resolve()):
            return None
        origin = json.loads(installed.read_text("direct_url.json") or "{}")
        commit = origin.get("vcs_info", {}).get("commit_id")
        return commit if isinstance(commit, str) and HASH.fullmatch(commit) else None
    return None
