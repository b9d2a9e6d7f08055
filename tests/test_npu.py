"""Seeds and determinism where torch_npu has put ``torch.npu`` in place: a stand-in here, as torch_npu needs an NPU. Untried on one."""

import random
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from align_hooks.job.entry import variables
from align_hooks.process.ranks import Launch
from align_hooks.settings import Settings
from align_hooks.torch_side import environment, seeds
from align_hooks.torch_side.hooks import arguments
from align_hooks.torch_side.session import TorchSession


class Npu:
    """What torch_npu 2.9 names so; an NPU that was never used has no seed to tell without starting it."""

    matmul, conv = SimpleNamespace(allow_hf32=False), SimpleNamespace(allow_hf32=True)

    def __init__(self) -> None:
        self.seed: int | None = None
        self.started = False

    def manual_seed_all(self, seed: int) -> None:
        self.seed = seed

    def is_initialized(self) -> bool:
        return self.started

    def initial_seed(self) -> int:
        assert self.started and self.seed is not None
        return self.seed


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch) -> Npu:
    made = Npu()
    monkeypatch.setattr(torch, "npu", made, raising=False)
    return made


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process's own switches and generators again, afterwards."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    for name in ("deterministic", "benchmark"):
        monkeypatch.setattr(torch.backends.cudnn, name, getattr(torch.backends.cudnn, name))


def read_back() -> dict[str, object]:
    """What is read back of an NPU."""
    return {name: value for name, value in seeds.read_back().items() if "npu" in name}


def test_seeding_reaches_an_npu_and_python_numpy_and_torch(npu: Npu) -> None:
    drawn = []
    for _ in range(2):
        seeds.seed_all(5)
        drawn.append((random.random(), float(np.random.random()), float(torch.rand(()))))
    assert npu.seed == 5
    assert drawn[0] == drawn[1]


def test_without_an_npu_nothing_of_torch_npu_is_imported() -> None:
    seeds.seed_all(5)
    assert read_back() == {}
    assert "torch_npu" not in sys.modules


def test_an_npu_is_read_back_once_it_is_in_use(npu: Npu) -> None:
    seeds.seed_all(5)
    assert read_back() == {}
    npu.started = True
    assert read_back() == {"torch.npu.initial_seed": 5, "torch.npu.matmul.allow_hf32": False, "torch.npu.conv.allow_hf32": True}


def test_the_variables_of_hccl_are_set_with_the_others() -> None:
    wanted = variables("torch", Settings(deterministic=True))
    assert (wanted["HCCL_DETERMINISTIC"], wanted["CLOSE_MATMUL_K_SHIFT"]) == ("true", "1")
    assert "HCCL_ALGO" not in wanted and "HCCL_ALGO" in environment.WATCHED


FLASH, OWN = {"use_flash_attn": True}, {"npu_deterministic": False}
CHANGED = {
    "Megatron": ({}, {"deterministic_mode"}),
    "with flash attention": (FLASH, {"deterministic_mode"}),
    "MindSpeed": (OWN, {"deterministic_mode", "npu_deterministic"}),
    "MindSpeed with its flash attention": (OWN | FLASH, {"npu_deterministic"}),
}


@pytest.mark.parametrize(("args", "changed"), CHANGED.values(), ids=CHANGED)
def test_megatrons_mode_is_left_alone_where_it_would_refuse_mindspeeds_attention(
    restored: None, args: dict[str, Any], changed: set[str]
) -> None:
    session = TorchSession("torch", Settings(deterministic=True), Launch())
    parsed = SimpleNamespace(deterministic_mode=False, **args)
    try:
        arguments.apply(session, parsed)
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    assert {name for name, value in vars(parsed).items() if value is True} - {"use_flash_attn"} == changed
    assert {one["what"] for one in session.overrides} == {f"args.{name}" for name in changed}
