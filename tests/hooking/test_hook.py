"""Calls are bound as their functions take them, whoever stands between."""

import functools
from typing import Any

import pytest

from align_hooks.hooking.guard import guarded
from align_hooks.hooking.hook import argument, bound, with_argument


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return called


class Model:
    def forward(self, tokens: int, mask: int = 0) -> None:
        pass

    @decorated
    def wrapped(self, tokens: int, mask: int = 0) -> None:
        pass


def step(tokens: int, mask: int = 0) -> None:
    pass


class Stranger:
    """A callable of some other tool, without a hash."""

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, tokens: int, mask: int = 0) -> None:
        pass


FUNCTIONS = (step, decorated(step), Model().forward, Model().wrapped, functools.partial(step, mask=3), Stranger())


@pytest.mark.parametrize("function", FUNCTIONS, ids=range(len(FUNCTIONS)))
@pytest.mark.parametrize("guards", [False, True])
def test_arguments_have_the_names_of_the_function(function: Any, guards: bool) -> None:
    seen: list[Any] = []

    def handler(call: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        given = bound(call, args, kwargs).arguments
        assert given == {name: argument(call, args, kwargs, name) for name in ("tokens", "mask")}
        assert argument(call, args, kwargs, "other") is None
        for name in given:  # where it stood, whether given by position or by name
            changed, named = with_argument(call, args, kwargs, name, 7)
            assert bound(call, changed, named).arguments == given | {name: 7}
            assert (len(changed), [*named]) == (len(args), [*kwargs])
        seen.append(given)

    for _ in range(2):
        if guards:
            guarded(handler, None, function, None, (1,), {"mask": 2})  # type: ignore[arg-type]
        else:
            handler(function, None, (1,), {"mask": 2})
    assert seen == [{"tokens": 1, "mask": 2}] * 2
