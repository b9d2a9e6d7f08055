"""Rows of norms and of sketches, read on access: a long run has gigabytes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import MsgspecError
from msgspec.json import decode

from align_hooks.errors import RecordError
from align_hooks.process.storage import opened
from align_hooks.record.format import digests
from align_hooks.record.format.files import in_words, read_lines
from align_hooks.record.format.layout import JsonObject


class Lines:
    """One rank's rows of one quantity; ``listed`` has step to digest, from rows of scalars. Other lines do not count."""

    def __init__(self, path: Path, listed: Mapping[int, str]) -> None:
        self.path, self.listed = path, dict(listed)
        self._bounds: dict[int, tuple[int, int]] = {}
        steps = {digest: step for step, digest in listed.items()}
        offset = 0
        for line in read_lines(path):
            if line.endswith(b"\n"):  # a line that a killed process left torn has no end
                step = steps.get(digests.xxh3(line[:-1]))
                if step is not None:
                    self._bounds[step] = offset, len(line)
            offset += len(line)

    @property
    def steps(self) -> set[int]:
        """Steps that have a row."""
        return set(self._bounds)

    @property
    def lost(self) -> list[int]:
        """Steps whose row was recorded and is gone, ascending."""
        return sorted(self.listed.keys() - self._bounds.keys())

    def row(self, step: int) -> JsonObject:
        """Return the row of a step; raises RecordError where unreadable."""
        return next(self.rows([step]))[1]

    def rows(self, steps: Sequence[int]) -> Iterator[tuple[int, JsonObject]]:
        """Yield steps with their rows; raises RecordError as :meth:`row` does."""
        if not steps:
            return
        step = steps[0]
        try:
            with opened(self.path) as file:
                for step in steps:
                    line = bytes(file.read(*self._bounds[step]))
                    if digests.xxh3(line[:-1]) != self.listed[step]:
                        raise RecordError(f"{self.path} was changed while it was being read; start again once nobody writes it")
                    row = decode(line)
                    if not isinstance(row, dict):
                        raise RecordError(f"{self.path}: the row of step {step} is no object; record the run again")
                    yield step, row
        except (OSError, MsgspecError, ValueError, RecursionError) as error:
            raise RecordError(f"{self.path}: the row of step {step} cannot be read ({in_words(error)}); record the run again") from None
