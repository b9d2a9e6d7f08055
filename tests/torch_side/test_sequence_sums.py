"""The part of one context-parallel rank in what a loss function summed over the ranks of a sequence."""

import importlib.util
import inspect
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("megatron.core")

from align_hooks.errors import RefusedRun  # noqa: E402
from align_hooks.process.ranks import Launch  # noqa: E402
from align_hooks.settings import Settings  # noqa: E402
from align_hooks.torch_side import sequence_sums  # noqa: E402
from align_hooks.torch_side.place import SINGLE_RANK  # noqa: E402
from align_hooks.torch_side.session import TorchSession  # noqa: E402

TWO = SINGLE_RANK | {"cp_size": 2}
SUMS = np.array([[30.0, 6.0], [100.0, 16.0]])
"""Losses and tokens of this rank, and of both."""


def test_a_ranks_part_is_what_the_sums_were_made_of() -> None:
    """0.12: the schedule makes 2 · 100 / 16 of the sum, and each rank differentiates its own 30."""
    assert sequence_sums.own_part(100.0, 16.0, 12.5, SUMS, 2) == (30.0, 6.0, 12.5 * 0.3, 8.0)
    assert sequence_sums.own_part(100.0, 16.0, 12.5, None, 2) == (100.0, 16.0, 12.5, 16.0)
    assert sequence_sums.own_part(6.25, None, 12.5, SUMS, 2) == (6.25, None, 6.25, None)


def test_losses_that_are_not_finite_or_nothing_are_found_too() -> None:
    of_nan = np.array([[3.0, 6.0], [math.nan, 16.0]])
    assert sequence_sums.own_part(math.nan, 16.0, math.nan, of_nan, 2)[:2] == (3.0, 6.0)
    assert sequence_sums.own_part(0.0, 16.0, 0.0, np.array([[0.0, 6.0], [0.0, 16.0]]), 2) == (0.0, 6.0, 0.0, 8.0)


@pytest.mark.parametrize(("loss", "tokens"), [(50.0, 16.0), (100.0, 8.0), (3.0, None)])
def test_numbers_that_are_no_sums_are_refused(loss: float, tokens: float | None) -> None:
    with pytest.raises(RefusedRun, match="neither these sums nor their mean"):
        sequence_sums.own_part(loss, tokens, 1.0, SUMS, 2)


def test_a_loss_that_must_be_summed_and_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sequence_sums.joined([], TWO, counts=True) is None
    monkeypatch.setattr(sequence_sums, "IS_SUMMED", True)
    assert sequence_sums.joined([], SINGLE_RANK, counts=True) is None
    with pytest.raises(RefusedRun, match="sum nothing over the context-parallel ranks"):
        sequence_sums.joined([], TWO, counts=True)


def compiled_alone(file: Path) -> None:
    """Leave nothing of a module but what was compiled."""
    file.unlink()


def without_end(file: Path) -> None:
    """Leave a text that does not parse."""
    file.write_text('def schedule(\n    """\n')


def loaded(name: str, file: Path) -> ModuleType:
    """A module of its own out of a file."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("spoil", [compiled_alone, without_end, None])
def test_code_that_cannot_be_read_is_unknown(spoil: Callable[[Path], None] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "schedule.py"
    file.write_text("def schedule():\n    return 1\n")
    module = loaded("schedule_of_test", file)
    monkeypatch.setitem(sys.modules, "schedule_of_test", module)
    if spoil is not None:
        spoil(file)
    assert (sequence_sums.code_of(module.schedule) is None) == (spoil is not None)
    assert sequence_sums.code_of(len) is None


def test_a_schedule_that_cannot_be_read_refuses_records_of_several_context_ranks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def unread(_: object) -> str:
        raise OSError("could not get source code")

    monkeypatch.setattr(inspect, "getsource", unread)
    module = loaded("sequence_sums_of_test", Path(sequence_sums.__file__))
    assert (module.SCHEDULE, module.IS_SUMMED, module.IS_SCALED) == (None, None, None)
    module.refuse_unread_schedule(SINGLE_RANK)
    assert module.joined([], SINGLE_RANK, counts=True) is None
    with pytest.raises(RefusedRun, match=r"the source of megatron\.core\.pipeline_parallel\.schedules is not there") as refused:
        module.refuse_unread_schedule(TWO)
    assert "\n" not in str(refused.value)


def test_only_small_sums_over_the_sequence_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = {"sequence": [0, 2], "data": [0, 1]}
    monkeypatch.setattr(sequence_sums.parallel_state, "get_context_parallel_group", lambda: "sequence")
    monkeypatch.setattr(torch.distributed, "get_process_group_ranks", ranks.__getitem__)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda tensor, op=None, group=None, async_op=False: tensor.mul_(2))
    original = torch.distributed.all_reduce
    with sequence_sums.seen_sums(TorchSession("torch", Settings(), Launch(), place=TWO)) as sums:
        torch.distributed.all_reduce(torch.ones(2), group="sequence")
        for tensor, group in ((torch.ones(2), "data"), (torch.ones(2), None), (torch.ones(1000), "sequence")):
            torch.distributed.all_reduce(tensor, group=group)
    assert torch.distributed.all_reduce is original
    joined = sequence_sums.joined(sums, TWO, counts=True)
    assert joined is not None and joined.tolist() == [[1, 1], [2, 2]]
