"""What pip would do with this project beside each recorded environment: add, and move nothing. `make install-check` does it for real.

Each environment is rebuilt as names, versions and what each package asks for, without a file of theirs, and pip resolves into it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from install.environments import ENVIRONMENTS, RESULTS, Packages, is_proven
from test_package import build, source  # noqa: F401  (a fixture)

RECORDED = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
TIMEOUT = 300
"""Seconds after which pip, which asks an index, counts as hung."""


def pip(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)


def plain(name: str) -> str:
    """A package's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def emptied(where: Path, packages: Packages) -> Path:
    """The interpreter of an environment that holds these packages by name alone."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(where)], check=True)
    (site,) = where.glob("lib/python*/site-packages")
    for name, facts in packages.items():
        metadata = site / f"{plain(name).replace('-', '_')}-{facts['version']}.dist-info"
        metadata.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {facts['version']}"]
        (metadata / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {requirement}" for requirement in facts["requires"]), ""]))
    return where / "bin" / "python"


def resolved(python: Path, requirement: str) -> dict[str, str]:
    """What pip would install for a requirement, by name; fails where it finds no way."""
    done = pip("--python", python, "install", "--quiet", "--dry-run", "--report", "-", requirement)
    assert done.returncode == 0, done.stderr
    return {plain(package["metadata"]["name"]): package["metadata"]["version"] for package in json.loads(done.stdout)["install"]}


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    return build(source, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where the package index does not answer for a package that every index has."""
    nothing = emptied(tmp_path_factory.mktemp("nothing") / "v", {})
    done = pip("--python", nothing, "install", "--dry-run", "--no-deps", "--retries", "0", "wrapt")
    if done.returncode:
        pytest.skip(f"the package index cannot be reached: {(done.stderr.strip().splitlines() or ['pip says nothing'])[-1]}")


@pytest.mark.slow
@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("extra", ["", "[html,tokenizer]"], ids=["plain", "everything"])
@pytest.mark.parametrize("name", RECORDED)
def test_nothing_that_is_installed_would_be_moved(wheel: Path, tmp_path: Path, name: str, extra: str) -> None:
    before = {plain(package): facts["version"] for package, facts in RECORDED[name]["before"].items()}
    changes = resolved(emptied(tmp_path / "v", RECORDED[name]["before"]), f"align-hooks{extra} @ {wheel.as_uri()}")
    assert changes.pop("align-hooks")
    assert {package: (before[package], version) for package, version in changes.items() if package in before} == {}


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_what_an_older_node_has_would_not_be_moved(wheel: Path, tmp_path: Path) -> None:
    """What libraries for command lines would move: typer brings pydantic 2, and that a recent typing_extensions."""
    older = {"typing_extensions": "4.8.0", "pydantic": "1.10.13", "click": "8.0.4", "rich": "12.6.0", "PyYAML": "5.4.1", "numpy": "1.26.4"}
    python = emptied(tmp_path / "v", {name: {"version": version, "requires": []} for name, version in older.items()})
    assert {*resolved(python, f"align-hooks @ {wheel.as_uri()}")}.isdisjoint(map(plain, older))
    assert {"pydantic"} <= {*resolved(python, "typer")}


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_what_did_move_packages_would_be_seen(tmp_path: Path) -> None:
    """The dependency that took numpy from 1.26 to 2.x and ended every MindSpore run."""
    changes = resolved(emptied(tmp_path / "v", RECORDED["mindformers-1.9.0"]["before"]), "ml_dtypes>=0.4")
    assert changes["numpy"] != RECORDED["mindformers-1.9.0"]["before"]["numpy"]["version"]


def test_every_environment_was_proven_for_real() -> None:
    """By ``make install-check``; its results are what is resolved into here."""
    assert RECORDED.keys() == ENVIRONMENTS.keys()
    for name, result in RECORDED.items():
        assert is_proven(result), name
        assert (result["python"], tuple(result["packages"])) == (ENVIRONMENTS[name].python, ENVIRONMENTS[name].packages)


def test_no_dependency_has_an_upper_bound() -> None:
    """A bound that a newer release does not fit moves it back."""
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    (asked,) = re.findall(r"^dependencies = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
    assert "wrapt" in asked
    assert not re.search("<|==|~=|!=", asked)
