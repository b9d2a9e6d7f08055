"""What is optional: the packages of an extra, and the command that installs them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, requires

from align_hooks.errors import AlignHooksError


def installing(*extras: str) -> str:
    """The command that installs what ``extras`` bring, by the packages' own names: no index has this project, and one may get another of
    its name. Where it runs without being installed, that names its folder's extras."""
    from packaging.requirements import Requirement

    try:
        wanted = [Requirement(text) for text in requires("align-hooks") or ()]
    except PackageNotFoundError:
        return shlex.join(["pip", "install", f".[{','.join(extras)}]"])
    brought = [one for one in wanted if one.marker is not None and any(one.marker.evaluate({"extra": extra}) for extra in extras)]
    named = dict.fromkeys(str(one).partition(";")[0].strip() for one in brought)
    return shlex.join(["pip", "install", *named])


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Let ``what`` import packages of an ``extra``.

    :raises AlignHooksError: one is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise AlignHooksError(f"{what} needs {package}, which is not installed; {installing(extra)}") from None
