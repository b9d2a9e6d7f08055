"""What holds for every test of the doctor."""

import pytest

from align_hooks.doctor import examination


@pytest.fixture(autouse=True)
def _no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was proven in the environment of the tests, whatever was."""
    monkeypatch.setattr(examination, "last", lambda prefix: None)
