"""What the tests of commands that train begin with."""

from pathlib import Path

import pytest

from align_hooks.scenarios import recheck
from align_hooks.scenarios import trial as trials
from scenarios.trained import Trained


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trained:
    """Trainings without hooks, which attach to frameworks alone."""
    shell = trials.ran
    for module in (trials, recheck):
        monkeypatch.setattr(module, "ran", lambda line, *given: shell(line.replace("align-hooks run -- ", "env -C . "), *given))
    return Trained(tmp_path)
