"""The batch as a model of somebody else's is given it: MindSpeed-LLM and scripts have GPTModels of their own."""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from align_hooks.process.ranks import Launch
from align_hooks.record.write.writer import Writer
from align_hooks.settings import Settings
from align_hooks.torch_side import packing
from align_hooks.torch_side.hooks import forward
from align_hooks.torch_side.session import TorchSession

TOKENS, MASK = torch.arange(4).reshape(1, 4), torch.ones(1, 4)


def named(input_ids: Any, position_ids: Any, attention_mask: Any, labels: Any = None, **more: Any) -> str:
    return "output"


def unnamed(*args: Any, **kwargs: Any) -> str:
    return "output"


@pytest.fixture(autouse=True)
def arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Megatron's, as they are without packed samples."""
    monkeypatch.setattr(packing, "get_args", SimpleNamespace)


def seen(model: Callable[..., Any]) -> tuple[TorchSession, str]:
    settings = Settings.from_environment({"ALIGN_HOOKS_RUN": "a", "ALIGN_HOOKS_BATCHES": "all"})
    session = TorchSession("torch", settings, Launch(), chunks=("a model",))
    session.recording.writer, session.step, session.under_way = cast(Writer, object()), 0, []
    return session, forward.wrap(session, model, "a model", (TOKENS, TOKENS, None), {"labels": TOKENS, "loss_mask": MASK})


@pytest.mark.parametrize("model", [named, functools.wraps(named)(lambda *args, **kwargs: named(*args, **kwargs))])
def test_what_it_takes_beyond_megatrons_arguments_is_seen_too(model: Callable[..., Any]) -> None:
    session, result = seen(model)
    assert result == "output"
    ((chunk, batch),) = session.under_way or ()
    assert (chunk, sorted(batch.inputs)) == (0, ["labels", "position_ids", "tokens"])
    assert [candidate.tolist() for candidate in batch.candidates] == [[[1] * 4]]


def test_a_pass_outside_a_forward_step_is_none_of_the_batch() -> None:
    """An activation checkpoint around the whole model calls it again in the backward pass."""
    session, _ = seen(named)
    session.under_way = None
    assert forward.wrap(session, named, "a model", (TOKENS, TOKENS, None), {"labels": TOKENS}) == "output"
    assert session.under_way is None and session.current.attempt.micro_batches == {}


def test_a_forward_that_names_nothing_ends_recording_and_not_training(capsys: pytest.CaptureFixture[str]) -> None:
    session, result = seen(unnamed)
    assert result == "output"
    assert session.recording.stopped is not None and "functools.wraps" in str(session.recording.stopped)
    assert "training goes on" in capsys.readouterr().err
