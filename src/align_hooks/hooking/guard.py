"""Keep a failing handler from ending training, which goes on with the very object that the framework's function returned.

The framework's function is called once, by the handler or else here.
"""

from typing import Protocol

from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result


class Survivor(Protocol):
    """Decides what an error in a handler ends."""

    def survive(self, what: str, error: Exception) -> None:
        """Stop recording because of ``error`` of ``what``, or raise it where it is to end training."""


def guarded(handler: Function, survivor: Survivor, function: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Return what ``handler`` returns, or where it fails the result of ``function``; raises errors of ``function`` and ``survivor``."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def call(*args: object, **kwargs: object) -> Result:
        try:
            results.append(function(*args, **kwargs))
        except BaseException as error:
            errors.append(error)
            raise
        return results[-1]

    call.__wrapped__ = function  # type: ignore[attr-defined]  # read by inspect.signature
    try:
        return handler(call, instance, args, kwargs)
    except Exception as error:
        if not errors:
            survivor.survive("the step", error)
        elif error is errors[-1]:
            raise
    if errors:  # the handler failed while it cleaned up behind the framework
        raise errors[-1]
    return results[-1] if results else function(*args, **kwargs)
