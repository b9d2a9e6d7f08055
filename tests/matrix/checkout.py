"""A framework's source as one of its tags or wheels has it, and whether it is still that. Knows no framework."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "launch" / "pretrain_gpt.py"


class Failed(Exception):
    """A step of the proof that did not work out; its text is the row's gap."""


def clone(repository: str, tag: str, where: Path, *, commit: str = "") -> Path:
    """A fresh work tree of a tag, or of a commit of a branch, alone in its parent; raises Failed where there is none."""
    source = Path(repository).resolve().as_uri() if Path(repository).is_dir() else repository
    quiet = ["git", "-c", "advice.detachedHead=false"]
    if not commit:
        return _filled(where, [*quiet, "clone", "--quiet", "--depth", "1", "--branch", tag, source, where], f"git clone of {tag} failed")
    _filled(where, ["git", "init", "--quiet", where], "git init failed")
    for command in (["fetch", "--quiet", "--depth", "1", source, commit], ["checkout", "--quiet", "FETCH_HEAD"]):
        done = subprocess.run([*quiet, "-C", str(where), *command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"git {command[0]} of {commit} failed: {last_line(done.stderr)}")
    return where


def unpack(package: str, version: str, where: Path, scripts: Sequence[Path]) -> Path:
    """A wheel alone in a directory, with scripts, whose folder Python puts first, beside it; raises Failed where there is none."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", where, f"{package}=={version}"]
    _filled(where, command, f"{package} {version} cannot be installed")
    for script in scripts:
        shutil.copy(script, where)
    return where


def _filled(where: Path, command: Sequence[object], trouble: str) -> Path:
    """A directory alone in a new parent, made by a command; raises Failed with its last word."""
    shutil.rmtree(where.parent, ignore_errors=True)
    where.parent.mkdir(parents=True)
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{trouble}: {last_line(done.stderr)}")
    return where


def digests(source: Path) -> dict[str, str]:
    """Every file of the tag, or of the wheel, and what is in it now."""
    tagged = (source / ".git").exists()
    names = git(source, "ls-files", "-z").split("\0") if tagged else [str(path.relative_to(source)) for path in source.rglob("*")]
    files = {name: source / name for name in names if name and "__pycache__" not in name and (source / name).is_file()}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def git(checkout: Path, *arguments: str) -> str:
    """What a git command prints."""
    return subprocess.run(["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=True).stdout.strip()


def last_line(output: str) -> str:
    """The line that says what went wrong: of ours, of an exception, or simply the last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith("align_hooks:") or "Error: " in line]
    return re.sub(r" \(/[^)]*\)", "", (telling or lines or ["nothing was printed"])[-1])  # where a module lies is the machine's own
