"""Standard streams that may be closed, full, or read by nobody: printing never ends a process.

In a training process the streams are the script's. A line of ours goes past their buffers: a line that could not be written would stay
in the buffer, and fail the script's next print, or the end of the interpreter. In a command the streams are ours, and lose what
they cannot write, so that an exit code stands although the words were lost.
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

STANDARD = (0, 1, 2)
REFUSALS = (OSError, ValueError, AttributeError, TypeError)
"""Errors of printing: the file refuses, the stream is closed, or an object that is no stream stands in its place."""


def hold() -> None:
    """Keep the descriptors of closed standard streams taken. Otherwise the next file opened, a file of the record, gets a descriptor and
    what C prints there. Processes that are started later still find the streams closed.
    """
    for descriptor in STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is this


def flush(stream: TextIO | None) -> None:
    """Write what the script has printed, if that can be written."""
    with contextlib.suppress(*REFUSALS):
        stream.flush()  # type: ignore[union-attr]


def say(text: str, stream: TextIO | None) -> None:
    """Print ``text`` and the end of its line in one piece, if that can be printed; ``stream`` stays as it was."""
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
    """Let the standard streams of a command lose what they cannot write."""
    hold()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or _descriptor(stream) is not None:
            setattr(sys, name, _forgiving(STANDARD[1 if name == "stdout" else 2], stream))


def _forgiving(descriptor: int, stream: TextIO | None) -> io.TextIOWrapper:
    """A stream to the same place, which escapes characters that its encoding lacks."""
    raw = _Forgiving(descriptor, "wb", closefd=False)
    at_once = raw.isatty() or descriptor == 2
    return io.TextIOWrapper(io.BufferedWriter(raw), _encoding(stream), "backslashreplace", line_buffering=at_once)


class _Forgiving(io.FileIO):
    """A file that takes everything. A loss is reported on stderr, once, unless the reason is that nobody reads the file."""

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
    """The descriptor to which a stream writes and does nothing else; None for any other stream, such as a stream that also keeps a log."""
    if type(stream) is not io.TextIOWrapper:
        return None
    raw = getattr(stream.buffer, "raw", stream.buffer)
    return raw.fileno() if isinstance(raw, io.FileIO) else None


def _encoded(text: str, stream: TextIO | None) -> bytes:
    """In the stream's encoding, by its own rule for characters that the encoding lacks, or escaped where it has no rule."""
    try:
        return text.encode(_encoding(stream), getattr(stream, "errors", None) or "strict")
    except UnicodeEncodeError:
        return text.encode(_encoding(stream), "backslashreplace")


def _encoding(stream: TextIO | None) -> str:
    return getattr(stream, "encoding", None) or "utf-8"
