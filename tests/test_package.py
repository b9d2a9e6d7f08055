"""The wheel and the sdist: everything that a user needs is in them, and works without the checkout."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import TypeAlias

import pytest

from synthetic import LAUNCH, Synthetic

ROOT = Path(__file__).parents[1]
DATA = {
    "align_hooks/checklist/changes_nothing.txt",
    "align_hooks/configuration/megatron_flags.txt",
    "align_hooks/configuration/mindspeed_flags.txt",
}
QUICK_START = ((0, "env"), (0, "check", LAUNCH / "llama.args", LAUNCH / "llama.yaml"))
"""Exit code and words of commands that an installation runs."""
Done: TypeAlias = "subprocess.CompletedProcess[str]"


def started(where: Path, *command: object, environment: dict[str, str] | None = None) -> Done:
    line = [str(word) for word in command]
    return subprocess.run(line, cwd=where, env=environment, capture_output=True, text=True, timeout=300, check=False)


def build(source: Path, where: Path, target: str) -> Path:
    """Build one kind of distribution of a source tree."""
    done = started(source, sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", where)
    assert done.returncode == 0, done.stderr
    return next(where.glob("*.whl" if target == "wheel" else "*.tar.gz"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's files alone: what is under version control, or would be."""
    where = tmp_path_factory.mktemp("source") / "project"
    listed = started(ROOT, "git", "ls-files", "-z", "-co", "--exclude-standard")
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (where / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, where / name)
    return where


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(source, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the wheel is found before this checkout."""
    where = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as held:
        held.extractall(where)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ALIGN_HOOKS_", "PYTHON"))}
    return {**kept, "PYTHONPATH": str(where), "PYTHONDONTWRITEBYTECODE": "1"}


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as held:
        names = held.namelist()
    files = [path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    inside = {name for name in names if ".dist-info/" not in name}
    examples = {name for name in inside if name.startswith("align_hooks/examples/")}
    assert inside - examples == {str(path.relative_to(ROOT / "src")) for path in files}
    kept = (*LAUNCH.iterdir(), *(LAUNCH / "families").rglob("*"))
    packed = {str(path.relative_to(LAUNCH)) for path in kept if path.suffix in (".py", ".args", ".yaml")}
    assert {name.removeprefix("align_hooks/examples/") for name in examples} == packed - {"shrink.py"}
    assert {"align_hooks/py.typed", "align_hooks/job/startup/sitecustomize.py", *DATA} < inside
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_the_sdist_makes_the_same_wheel(source: Path, wheel: Path, tmp_path: Path) -> None:
    sdist = build(source, tmp_path / "sdist", "sdist")
    with tarfile.open(sdist) as held:
        held.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert {"tests", "docs", "launch", "patches", "Makefile", "LICENSE", "README.md"} <= {path.name for path in unpacked.iterdir()}
    again = build(unpacked, tmp_path / "again", "wheel")
    assert contents(again) == contents(wheel)


def contents(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as held:
        return {name: hashlib.sha256(held.read(name)).hexdigest() for name in held.namelist()}


@pytest.mark.slow
def test_commands_work_from_the_wheel(installed: dict[str, str], tmp_path: Path) -> None:
    def python(*words: object, **variables: str) -> Done:
        return started(tmp_path, sys.executable, *words, environment=installed | variables)

    def printed(code: str) -> str:
        return python("-c", code).stdout.strip()

    assert printed("import align_hooks; print(align_hooks.__file__)").startswith(installed["PYTHONPATH"])
    Synthetic().write(tmp_path / "one")
    Synthetic().write(tmp_path / "other")
    for code, *words in ((0, "compare", "one", "other", "--html", "page.html"), (0, "show", "one"), *QUICK_START):
        done = python("-m", "align_hooks", *words)
        assert (done.returncode, done.stderr) == (code, ""), done.stdout
    assert (tmp_path / "page.html").stat().st_size > 100_000
    found = printed("from align_hooks.cli.demo import script; print(script())")
    assert found == f"{installed['PYTHONPATH']}/align_hooks/examples/demo.py"
    assert Path(found).read_bytes() == (LAUNCH / "demo.py").read_bytes()
    starts = (sys.executable, "-c", "import sitecustomize; print(sitecustomize.__file__)")
    done = python("-m", "align_hooks", "run", "--", *starts, ALIGN_HOOKS_SEED="1")
    assert done.stdout.strip() == f"{installed['PYTHONPATH']}/align_hooks/job/startup/sitecustomize.py", done.stderr


@pytest.mark.slow
def test_a_plain_install_runs_what_the_quick_start_runs(wheel: Path, tmp_path: Path) -> None:
    """In an environment of its own, from a folder and with no index, as on a cluster without a network (docs/quick_start.md)."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    if subprocess.run([*pip, "wheel", "--wheel-dir", tmp_path / "wheels", wheel], capture_output=True, check=False).returncode:
        pytest.skip("no package index answers")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "plain"], check=True)
    offline = (tmp_path / "plain/bin/pip", "install", "--quiet", "--no-index", "--find-links", tmp_path / "wheels", "align-hooks")
    subprocess.run(offline, check=True)
    Synthetic().write(tmp_path / "one")
    for code, *words in ((0, "--help"), (0, "show", "one", "--verify"), *QUICK_START, (1, "doctor")):
        done = started(tmp_path, tmp_path / "plain/bin/align-hooks", *words)
        assert (done.returncode, done.stderr) == (code, ""), done.stdout
