"""A hook as data: what it is for, where it goes, and on which versions it was proven."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from align_hooks.settings import Settings


@dataclass(frozen=True, slots=True)
class Hook:
    """One seam of one framework.

    ``body`` is ``"package.module:function"`` and is imported when the seam is first used, because bodies import frameworks.
    With targets, the function takes the session and returns a wrapt wrapper ``(wrapped, instance, args, kwargs)``.
    Without, it takes ``(session, module)`` and is called once, when the trigger has been imported.
    ``supports`` is empty for a package that says no version: its body holds it to what it needs of it.
    """

    name: str
    asked: Callable[[Settings], bool]
    package: str
    supports: str
    trigger: str
    body: str
    why: str
    targets: tuple[str, ...] = ()
    must_fire: bool = True
