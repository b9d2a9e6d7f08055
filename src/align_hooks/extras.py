"""Optional packages: the extras, and the command that installs them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from align_hooks.errors import AlignHooksError


def installing(*extras: str) -> str:
    """Return the command that installs the packages of ``extras``, or the extras of this folder where the project is not installed."""
    # here, as every command imports this module and few install anything
    from importlib.metadata import PackageNotFoundError, requires

    from packaging.requirements import Requirement

    try:
        known = [Requirement(text) for text in requires("align-hooks") or ()]
    except PackageNotFoundError:
        return shlex.join(["pip", "install", f".[{','.join(extras)}]"])
    # by their own names, as no index has this project, and one may have another of its name
    wanted = [one for one in known if one.marker is not None and any(one.marker.evaluate({"extra": extra}) for extra in extras)]
    return shlex.join(["pip", "install", *dict.fromkeys(str(one).partition(";")[0].strip() for one in wanted)])


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Let ``what`` import packages of an ``extra``; raises AlignHooksError where one is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise AlignHooksError(f"{what} needs {package}, which is not installed; {installing(extra)}") from None
