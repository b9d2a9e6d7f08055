"""The runs that arguments of commands name; apart from :mod:`.files`, since reading one loads what most commands do without."""

from __future__ import annotations

from align_hooks.errors import RecordError, shown
from align_hooks.evidence.opened import open_evidence
from align_hooks.process import storage
from align_hooks.record.reader import Run


def run_of(text: str, option: str = "") -> Run:
    """Return what an argument names: a run by its path or address, or what another tool kept of one."""
    try:
        return open_evidence(storage.place_of(text))
    except ValueError as error:
        raise RecordError(f"{option}{shown(str(text))} {error}") from None
