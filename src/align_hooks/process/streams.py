"""Printing that never ends a process, on standard streams that may be closed, full, or without a reader.

In a training process the streams are the script's: our lines bypass their buffers, where a line that cannot be written would fail the
script's next print. In a command the streams are ours, and drop what they cannot write, so that the exit code stands.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

REFUSALS = (OSError, ValueError, AttributeError, TypeError)
"""Errors of printing: the file refuses, the stream is closed, or its place is taken by another object."""


def hold() -> None:
    """Open ``/dev/null`` in the place of closed standard streams, or a file of the record could get what C prints there."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor; not inherited, so children find the stream closed


def flush(stream: TextIO | None) -> None:
    """Write what the script has printed, if possible."""
    with contextlib.suppress(*REFUSALS):
        stream.flush()  # type: ignore[union-attr]


def say(text: str, stream: TextIO | None) -> None:
    """Print ``text`` as a line in one piece, if possible, past the buffers of ``stream``."""
    flush(stream)
    with contextlib.suppress(*REFUSALS):
        descriptor = _descriptor(stream)
        line = _encoded(f"{text}\n", stream)
        while descriptor is not None and line:
            line = line[os.write(descriptor, line) :]
        if descriptor is None and stream is not None:
            stream.write(line.decode(_encoding(stream), "surrogateescape"))
            stream.flush()


def forgive() -> None:
    """Let the standard streams of a command drop what they cannot write."""
    hold()
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None or _descriptor(stream) is not None:
            setattr(sys, name, _forgiving(descriptor, stream))


def _forgiving(descriptor: int, stream: TextIO | None) -> io.TextIOWrapper:
    """Return a stream to the same file, which escapes characters that its encoding lacks."""
    raw = _Forgiving(descriptor, "wb", closefd=False)
    at_once = raw.isatty() or descriptor == 2
    return io.TextIOWrapper(io.BufferedWriter(raw), _encoding(stream), "backslashreplace", line_buffering=at_once)


class _Forgiving(io.FileIO):
    """A file that drops what it cannot write, and reports the first loss on stderr, unless a pipe has lost its reader."""

    lost = False

    def write(self, data: ReadableBuffer) -> int:
        if not self.lost:
            try:
                return super().write(data)
            except OSError as error:
                self.lost = True
                if self.fileno() != 2 and error.errno != errno.EPIPE:
                    say(f"align_hooks: the report could not be printed: {error.strerror}", sys.stderr)
        return memoryview(data).nbytes


def _descriptor(stream: TextIO | None) -> int | None:
    """Return the descriptor of a plain stream; None for any other, such as one that also keeps a log."""
    if type(stream) is not io.TextIOWrapper:
        return None
    raw = getattr(stream.buffer, "raw", stream.buffer)
    return raw.fileno() if isinstance(raw, io.FileIO) else None


def _encoded(text: str, stream: TextIO | None) -> bytes:
    """Return text in a stream's encoding; characters that this lacks are treated as the stream says, or escaped."""
    try:
        return text.encode(_encoding(stream), getattr(stream, "errors", None) or "strict")
    except UnicodeEncodeError:
        return text.encode(_encoding(stream), "backslashreplace")


def _encoding(stream: TextIO | None) -> str:
    return getattr(stream, "encoding", None) or "utf-8"
