"""Rows of norms and of sketches, each read when asked for: a long run has gigabytes of them.

The row of scalars lists the digest of its step's line. Before format 2 nothing is listed, and the last line that begins with the step
counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.json import decode

from align_hooks.errors import RecordError
from align_hooks.process.storage import opened
from align_hooks.record import digests
from align_hooks.record.files import in_words, read_lines
from align_hooks.record.layout import JsonObject

STEP = re.compile(rb'\{"step": (\d{1,15}), ')
"""The beginning of every row of the writer."""


class Lines:
    """One rank's rows of one kind. ``listed`` maps a step to the digest of its line; ``unlisted`` says of which other steps any line is
    taken, None where of no step. Raises RecordError for a line that is no row, where lines are taken that nothing lists."""

    def __init__(self, path: Path, listed: Mapping[int, str], unlisted: Callable[[int], bool] | None = None) -> None:
        self.path, self.listed, self._unlisted = path, dict(listed), unlisted
        self._bounds: dict[int, tuple[int, int]] = {}
        steps = {digest: step for step, digest in listed.items()}
        offset = 0
        for line in read_lines(path):
            if line.endswith(b"\n"):  # a line that a killed process left torn has no end
                step = steps.get(digests.xxh3(line[:-1]))
                step = self._begun_with(line) if step is None else step
                if step is not None:
                    self._bounds[step] = offset, len(line)
            offset += len(line)

    def _begun_with(self, line: bytes) -> int | None:
        """The step that a line which nothing lists begins with; None where such a line is not taken."""
        if self._unlisted is None:
            return None
        begin = STEP.match(line)
        if begin is None:
            raise RecordError(f"{self.path} holds what is no row of a record; copy it again, or record the run again")
        step = int(begin.group(1))
        return step if step not in self.listed and self._unlisted(step) else None

    @property
    def steps(self) -> set[int]:
        """Steps that have a row."""
        return set(self._bounds)

    @property
    def lost(self) -> list[int]:
        """Steps whose row was recorded and is gone, ascending."""
        return sorted(self.listed.keys() - self._bounds.keys())

    def row(self, step: int) -> JsonObject:
        """The row of a step; raises RecordError where it cannot be read."""
        return next(self.rows([step]))[1]

    def rows(self, steps: Sequence[int]) -> Iterator[tuple[int, JsonObject]]:
        """Steps, each with its row; raises RecordError as :meth:`row` does."""
        if not steps:
            return
        step = steps[0]
        try:
            with opened(self.path) as file:
                for step in steps:
                    line = bytes(file.read(*self._bounds[step]))
                    if step in self.listed and digests.xxh3(line[:-1]) != self.listed[step]:
                        raise RecordError(f"{self.path} was changed while it was being read; start again once nobody writes it")
                    row = decode(line)
                    if not isinstance(row, dict):
                        raise RecordError(f"{self.path}: the row of step {step} is no object; record the run again")
                    yield step, row
        except (OSError, ValueError, RecursionError) as error:
            raise RecordError(f"{self.path}: the row of step {step} cannot be read ({in_words(error)}); record the run again") from None
