"""One Megatron reference and one MindFormers candidate, shared by the tests of a worker."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

# Found, not imported: the two frameworks' generated protobuf code does not fit into one process.
for package in ("megatron", "megatron.training", "mindformers"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)

from real import frameworks  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.real)


@pytest.fixture(scope="session", autouse=True)
def real_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("corpus") / "corpus"
    subprocess.run([sys.executable, str(frameworks.LAUNCH / "corpus.py"), str(prefix)], check=True)
    frameworks._corpus[:] = [prefix]
    return prefix


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory, real_corpus: Path) -> Path:
    """A recorded Megatron run of three steps, two micro-batches each; beside it ``log``, what it printed."""
    where = tmp_path_factory.mktemp("reference")
    done = frameworks.megatron(where, RUN=where / "run", **frameworks.EVERYTHING).succeeded()
    (where / "log").write_text(done.output)
    return where / "run"


@pytest.fixture(scope="session")
def candidate(tmp_path_factory: pytest.TempPathFactory, reference: Path) -> Path:
    """MindFormers on the reference's weights and batches; beside it ``log``, what it printed."""
    where = tmp_path_factory.mktemp("candidate")
    fed = frameworks.fed_by(reference)
    done = frameworks.mindformers(where, RUN=where / "run", **fed, **frameworks.EVERYTHING).succeeded()
    (where / "log").write_text(done.output)
    return where / "run"
