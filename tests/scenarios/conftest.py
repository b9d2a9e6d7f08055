"""What the tests of commands that train begin with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scenarios.trained import Trained, unhooked


@pytest.fixture
def trained(tmp_path: Path) -> Iterator[Trained]:
    """Trainings without hooks, which attach to frameworks alone."""
    with unhooked():
        yield Trained(tmp_path)
