"""Standard streams that may be closed, full, or read by nobody: what we print is for somebody to read, never a reason to end.

In a training process the streams are the script's. A line of ours goes past their buffers: one that could not be written would stay
in there, and fail whatever the script prints next, or the end of the interpreter. In a command the streams are ours, and lose what
they cannot write, so that an exit code stands whatever became of the words.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import Any, TextIO

STANDARD = (0, 1, 2)
REFUSALS = (OSError, ValueError, AttributeError, TypeError)
"""What printing raises where it cannot: the file's refusal, a stream that was closed, something put in its place that is no stream."""


def hold() -> None:
    """Keep the descriptors of closed standard streams taken, or the next file opened, one of the record's, gets them and what C prints.

    What is started from here still finds them closed.
    """
    for descriptor in STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free, which is this one


def flush(stream: TextIO | None) -> None:
    """Write what the script printed so far, if that can be written."""
    with contextlib.suppress(*REFUSALS):
        stream.flush()  # type: ignore[union-attr]


def say(text: str, stream: TextIO | None) -> None:
    """Print ``text`` and the end of its line in one piece, if that can be printed; ``stream`` is as it was before."""
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
    """A stream to the same place, on which what its encoding lacks is escaped."""
    raw = _Forgiving(descriptor, "wb", closefd=False)
    at_once = raw.isatty() or descriptor == 2
    return io.TextIOWrapper(io.BufferedWriter(raw), _encoding(stream), "backslashreplace", line_buffering=at_once)


class _Forgiving(io.FileIO):
    """A file that takes everything. What it lost for another reason than that nobody reads it is said on stderr, once."""

    lost = False

    def write(self, data: Any) -> int:
        if not self.lost:
            try:
                return super().write(data)
            except OSError as error:
                self.lost = True
                if self.fileno() != 2 and error.errno != errno.EPIPE:
                    say(f"align_hooks: the report could not be printed: {error.strerror}", sys.stderr)
        return len(data)


def _descriptor(stream: TextIO | None) -> int | None:
    """The descriptor to which a stream writes and nothing else; None for any other, such as one that also keeps a log."""
    if type(stream) is not io.TextIOWrapper:
        return None
    raw = getattr(stream.buffer, "raw", stream.buffer)
    return raw.fileno() if isinstance(raw, io.FileIO) else None


def _encoded(text: str, stream: TextIO | None) -> bytes:
    """In the stream's encoding and by its own rule for what that lacks, or escaped where it has none."""
    try:
        return text.encode(_encoding(stream), getattr(stream, "errors", None) or "strict")
    except UnicodeEncodeError:
        return text.encode(_encoding(stream), "backslashreplace")


def _encoding(stream: TextIO | None) -> str:
    return getattr(stream, "encoding", None) or "utf-8"
