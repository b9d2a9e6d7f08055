"""A step whose number cannot be read: a run that is fed ends, for nothing would feed it, and another goes on without a record."""

import weakref
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from align_hooks.hooking.guard import guarded
from align_hooks.process.ranks import Launch
from align_hooks.settings import Settings
from align_hooks.torch_side.hooks import train_step
from align_hooks.torch_side.micro_batch import MicroBatch
from align_hooks.torch_side.refusals import unread
from align_hooks.torch_side.session import TorchSession


@pytest.mark.parametrize("is_fed", [True, False])
def test_a_loop_that_counts_no_iterations(is_fed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_step, "get_args", SimpleNamespace)
    session = TorchSession("torch", Settings(), Launch())
    session.injection = cast(Any, object()) if is_fed else None
    around = (lambda *call: train_step.wrap(session, *call), session, lambda forward_step_func: "trained", None, (None,), {})
    if is_fed:
        with pytest.raises(AttributeError, match="curr_iteration"):
            guarded(*around)
    else:
        assert guarded(*around) == "trained"
    assert (session.recording.stopped is None) is is_fed


def test_positions_that_begin_anew_are_refused_only_where_mindspeed_cuts_sequences_by_them() -> None:
    args = {"context_parallel_size": 2, "context_parallel_algo": "ulysses_cp_algo", "reset_position_ids": True}
    assert [line.partition(":")[0] for line in unread(args.get)] == ["--reset-position-ids"]
    assert [list(unread((args | {name: None}).get)) for name in args] == [[], [], []]


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_step_gathers_is_dropped_when_it_ends(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_step, "get_args", lambda: SimpleNamespace(curr_iteration=3))
    session = TorchSession("torch", Settings(), Launch())
    gathered: list[weakref.ref[object]] = []

    def train(forward_step_func: object) -> tuple[dict[str, float], int]:
        for name in ("NOT_RUNNING_YET", "INITIAL_RUN"):  # the second attempt replaces the first
            machine = SimpleNamespace(state=SimpleNamespace(name=name))
            train_step.rerun(session, lambda: True, machine, (), {})
            session.current.attempt.micro_batches.setdefault(0, []).append(MicroBatch({}))
            gathered.extend((weakref.ref(session.current.attempt.micro_batches[0][0]), weakref.ref(session.current)))
        assert [each() is None for each in gathered] == [True, False, False, False]
        if fails:
            raise RuntimeError("out of memory")
        return {}, 0

    with pytest.raises(RuntimeError, match="out of memory") if fails else nullcontext():
        train_step.wrap(session, train, None, (lambda: None,), {})
    assert session.step is None and not any(each() for each in gathered)
