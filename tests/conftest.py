"""What holds for every test: none depends on the clock. And the browser, of which a process of tests can have one alone."""

import gc
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from scratch import in_memory

settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")
# as MindSpore sets it when it is imported, which is too late where a test before had tensorboard or onnx import protobuf
os.environ.setdefault("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # a worker a core, and none of them slower for the other's threads
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(in_memory() or ""))  # a hundred thousand small files take the system less time there
gc.set_threshold(200_000, 50, 100)  # a worker holds seven thousand tests, through which every collection would look: a tenth of its time
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def pytest_collection_finish() -> None:
    """Keep collections from looking at the tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium, of Debian's package; tests that need it are skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
    if CHROMIUM is None:
        pytest.skip("no Chromium: make browser installs Debian's package; or name one, CHROMIUM=/path/to/chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()
