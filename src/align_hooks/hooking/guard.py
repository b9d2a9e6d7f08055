"""Keep a failing handler from ending training, which goes on with the very object that the framework's function returned.

The framework's function is called once, by the handler or else here.
"""

from __future__ import annotations

from typing import Protocol

from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result


class Survivor(Protocol):
    """Decides what an error in a handler ends."""

    def survive(self, what: str, error: Exception) -> None:
        """Stop recording because of ``error`` of ``what``, or raise it where it is to end training."""


class FrameworkCall:
    """A framework's function as a handler calls it, with the outcome of the call."""

    def __init__(self, function: Function) -> None:
        self.__wrapped__ = function  # read by inspect.signature
        self.returned = False
        self.result: Result = None
        self.error: BaseException | None = None

    def __call__(self, *args: object, **kwargs: object) -> Result:
        """Call the function."""
        try:
            self.result = self.__wrapped__(*args, **kwargs)
        except BaseException as error:
            self.error = error
            raise
        self.returned = True
        return self.result


def guarded(handler: Function, survivor: Survivor, function: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Return what ``handler`` returns, or where it fails the result of ``function``; raises errors of ``function`` and ``survivor``."""
    call = FrameworkCall(function)
    try:
        return handler(call, instance, args, kwargs)
    except Exception as error:
        if call.error is error:
            raise
        if call.error is None:
            survivor.survive("the step", error)
    if call.error is not None:  # the handler failed while it cleaned up behind the framework
        raise call.error
    return call.result if call.returned else function(*args, **kwargs)
