"""Hugging Face's ``transformers`` as the third opinion: a run's own weights and batch, through their model, in fp64.

Only this package imports transformers, and only it and ``torch_side`` import torch; importing the package itself imports neither. No
training process runs it. :func:`refuse_lacking` is called before any module of the package is imported.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from packaging.version import Version

from align_hooks.errors import AlignHooksError, UnsupportedVersion
from align_hooks.extras import installing

OLDEST, BEFORE = "4.57", "5"
"""Versions of transformers whose layers :mod:`.points` knows: from 5 on a layer's experts are one parameter."""


def refuse_lacking() -> None:
    """Raise AlignHooksError where a library is missing, and UnsupportedVersion for another version of transformers."""
    found: dict[str, str] = {}
    for name in ("torch", "transformers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            raise AlignHooksError(f"arbitrate needs {name}, which is not installed; {installing('arbitrate')}") from None
    if not Version(OLDEST).release <= Version(found["transformers"]).release < Version(BEFORE).release:  # 5.0.0rc1 is of 5
        raise UnsupportedVersion(
            f"arbitrate knows the layers of transformers {OLDEST} and newer, below {BEFORE}, and {found['transformers']} is installed;"
            f" give it an environment of its own, with align_hooks, torch and 'transformers>={OLDEST},<{BEFORE}'"
        )
