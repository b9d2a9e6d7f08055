"""YAML files that MindFormers' wheels ship: those of the installed one, and of 1.3.2, which the package index has."""

import fcntl
import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

OLDER = "1.3.2"
TIMEOUT = 300
WANTED = re.compile(r"configs/.*\.yaml|mindformers/models/.*_config\.py")
"""Files of the wheel that tests read."""


def installed(name: str) -> Path:
    """A file of the installed wheel's ``configs``."""
    try:
        distribution = importlib.metadata.distribution("mindformers")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("mindformers is not installed")
    path = Path(str(distribution.locate_file(f"configs/{name}")))
    if not path.is_file():
        pytest.skip(f"mindformers {distribution.version} ships no configs/{name}")
    return path


def older(name: str, factory: pytest.TempPathFactory, root: str = "configs") -> Path:
    """A file of ``configs``, or of another root, of MindFormers 1.3.2; its wheel is fetched once a test session, by the first worker."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / f"mindformers-{OLDER}"
    with (shared / f"mindformers-{OLDER}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        reason = folder / "unreachable"
        if not folder.is_dir():
            folder.mkdir()
            if why := fetched(folder):
                reason.write_text(why)
    if reason.is_file():
        pytest.skip(f"mindformers {OLDER} cannot be fetched from the package index: {reason.read_text()}")
    return folder / root / name


def fetched(folder: Path) -> str:
    """Fetch the wheel and unpack its YAML files and configuration classes; why it could not be, empty where it could."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check", "--dest", str(folder)]
    try:
        done = subprocess.run([*command, f"mindformers=={OLDER}"], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer in {TIMEOUT} s"
    wheel = next(folder.glob("*.whl"), None)
    if done.returncode or wheel is None:
        return (done.stderr.strip().splitlines() or ["pip says nothing"])[-1]
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if WANTED.fullmatch(name)])
    return ""
