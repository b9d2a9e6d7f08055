"""One Megatron reference and one MindFormers candidate, shared by the tests of a worker."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Found, not imported: the two frameworks' generated protobuf code does not fit into one process.
for package in ("megatron", "megatron.training", "mindformers"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)

from real import frameworks  # noqa: E402
from real import kept as keeping  # noqa: E402


@pytest.hookimpl(trylast=True)  # of what is left to run
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what trains, and let each worker, which is given one stretch of all tests, begin with its share of that: what takes long is not
    to be left for the end, and others cannot take over a test that runs."""
    here = Path(__file__).parent
    real = [item for item in items if here in item.path.parents]
    others = [item for item in items if here not in item.path.parents]
    for item in real:
        item.add_marker(pytest.mark.real)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    files = list(dict.fromkeys(item.path for item in real))
    ordered: list[pytest.Item] = []
    for worker in range(workers):
        ordered += [item for item in real if files.index(item.path) % workers == worker]
        until = len(items) * (worker + 1) // workers - len(ordered)
        ordered += others[:until]
        del others[:until]
    items[:] = ordered + others


@pytest.fixture(scope="session", autouse=True)
def real_corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A text as Megatron reads it, beside the runs that are kept: in ``build/runs``, or with FRESH=1 for this session alone."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    runs = shared / "runs" if os.environ.get("FRESH") == "1" else keeping.CHECKOUT / "build" / "runs"
    made = keeping.kept(runs, _corpus, {"train": "corpus"})
    keeping.prune(runs)
    frameworks.places.update(runs=runs, corpus=made.where / "corpus")
    yield made.where / "corpus"
    assert keeping.changed() == [], "a test wrote into a run that others read"


def _corpus(where: Path) -> tuple[int, str]:
    script = frameworks.LAUNCH / "corpus.py"
    done = frameworks.python(where, [str(script), str(where / "corpus")], {}, {})
    return done.code, done.output


@pytest.fixture(scope="session")
def reference(real_corpus: Path) -> Path:
    """A recorded Megatron run of three steps, two micro-batches each; beside it ``log``, what it printed."""
    return frameworks.recorded(frameworks.megatron)


@pytest.fixture(scope="session")
def candidate(reference: Path) -> Path:
    """MindFormers on the reference's weights and batches; beside it ``log``, what it printed."""
    return frameworks.recorded(frameworks.mindformers, **frameworks.fed_by(reference))
