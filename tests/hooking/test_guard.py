"""A handler that fails around a framework's function: what the framework sees of it."""

import inspect
from typing import Any

import pytest

from align_hooks.errors import RefusedRun
from align_hooks.hooking.guard import guarded
from align_hooks.process.ranks import Launch
from align_hooks.session.recording import Recording
from align_hooks.settings import Settings

THEIRS, OURS = ValueError("theirs"), KeyError("ours")


class Framework:
    def __init__(self, error: BaseException | None = None) -> None:
        self.error, self.calls, self.made = error, 0, object()

    def __call__(self, number: int, *, scale: float = 1.0) -> object:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.made


def before(call: Any, instance: Any, args: Any, kwargs: Any) -> object:
    raise OURS


def behind(call: Any, instance: Any, args: Any, kwargs: Any) -> object:
    call(*args, **kwargs)
    raise OURS


def cleaning_up(call: Any, instance: Any, args: Any, kwargs: Any) -> object:
    try:
        return call(*args, **kwargs)
    finally:
        raise OURS


def sound(call: Any, instance: Any, args: Any, kwargs: Any) -> object:
    assert list(inspect.signature(call).parameters) == ["number", "scale"]
    return call(*args, **kwargs)


def recording(on_error: str = "warn") -> Recording:
    return Recording(Settings(on_error=on_error), Launch())


@pytest.mark.parametrize("handler", [before, behind, cleaning_up, sound])
def test_what_the_framework_returned_comes_back_whatever_the_handler_does(handler: Any) -> None:
    framework, ours = Framework(), recording()
    assert guarded(handler, ours, framework, None, (1,), {"scale": 2.0}) is framework.made
    assert framework.calls == 1
    assert (ours.stopped is None) is (handler is sound)


@pytest.mark.parametrize("error", [THEIRS, KeyboardInterrupt(), SystemExit(3)], ids=repr)
@pytest.mark.parametrize("handler", [before, behind, cleaning_up, sound])
def test_what_the_framework_raised_is_raised_as_it_was(handler: Any, error: BaseException) -> None:
    framework, ours = Framework(error), recording()
    error.__cause__ = error.__context__ = cause = LookupError("theirs too")
    with pytest.raises(type(error)) as raised:
        guarded(handler, ours, framework, None, (1,), {})
    assert raised.value is error and error.__cause__ is cause and framework.calls == 1


def test_on_error_raise_raises_and_what_must_succeed_does_so_from_anywhere() -> None:
    with pytest.raises(KeyError):
        guarded(before, recording("raise"), Framework(), None, (1,), {})
    ours = recording()

    def feeds(call: Any, instance: Any, args: Any, kwargs: Any) -> object:
        with ours.isolate_failures("the step"), ours.must_succeed(RefusedRun):
            raise RefusedRun("nothing is left to inject")

    with pytest.raises(RefusedRun):
        guarded(feeds, ours, Framework(), None, (1,), {})
    assert ours.stopped is None


def test_the_first_failure_is_the_one_that_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    ours = recording()
    for handler in (before, behind):
        guarded(handler, ours, Framework(), None, (1,), {})
    assert str(ours.stopped).startswith("stopped recording between two steps while writing the step: KeyError: 'ours' (")
    assert capsys.readouterr().err.count("\n") == 1
