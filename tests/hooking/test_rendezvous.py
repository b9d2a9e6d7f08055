"""Where a rehearsal of one process meets itself: set where it trains and nobody has said it, and listed."""

import os
from types import SimpleNamespace

import pytest

from align_hooks.process.ranks import Launch
from align_hooks.settings import PREFIX, Settings
from align_hooks.torch_side.session import TorchSession

arguments = pytest.importorskip("align_hooks.torch_side.hooks.arguments", reason="torch is not installed")
NAMES = ("MASTER_ADDR", "MASTER_PORT")


def overridden(patch: pytest.MonkeyPatch, environment: dict[str, str], *, trains: bool = True, device: str = "cpu") -> dict[str, str]:
    """What the hook on ``parse_args`` sets of :data:`NAMES`, by name; anything that it sets must stand in the environment."""
    for name in (*NAMES, "WORLD_SIZE", "RANK"):
        patch.delenv(name, raising=False)
    for name, value in environment.items():
        patch.setenv(name, value)
    settings = Settings.from_environment({f"{PREFIX}SEED": "1"} | ({f"{PREFIX}DEVICE": device} if device else {}))
    session = TorchSession("torch", settings, Launch())
    arguments.apply(session, SimpleNamespace(train_iters=3 if trains else None, seed=1))
    listed = {change["what"]: change["after"] for change in session.overrides if change["what"] in NAMES}
    assert {name: os.environ[name] for name in NAMES if name in os.environ} == listed | {
        name: value for name, value in environment.items() if name in NAMES
    }
    return listed


@pytest.mark.parametrize("world", [{}, {"WORLD_SIZE": "1"}, {"WORLD_SIZE": "1", "RANK": "0"}])
def test_one_process_is_given_this_machine_and_any_free_port(monkeypatch: pytest.MonkeyPatch, world: dict[str, str]) -> None:
    assert overridden(monkeypatch, world) == {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_set_stays(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert set(overridden(monkeypatch, {name: "29500"})) == set(NAMES) - {name}


def test_nobody_else_is_told_where_to_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank of two; a tool that only reads arguments; a run that is no rehearsal."""
    assert overridden(monkeypatch, {"WORLD_SIZE": "2", "RANK": "0"}) == {}
    assert overridden(monkeypatch, {}, trains=False) == {}
    assert overridden(monkeypatch, {}, device="") == {}
