"""The curves of TensorBoard's event files: records with checksums, each a protobuf message, of which only scalars are read.

::

    Event { int64 step = 2; Summary summary = 5 }    Summary { repeated Value value = 1 }
    Value { string tag = 1; float simple_value = 2 }

Megatron-LM writes them on one rank. MindFormers writes them on every rank into a folder ``rank_N``, each with that rank's own loss.
"""

from __future__ import annotations

import io
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from align_hooks.errors import RecordError, shown
from align_hooks.evidence.curves.series import FLOAT32, Found, over_samples
from align_hooks.record.files import in_words, is_folder_in, list_folder
from align_hooks.regular import open_regular

EVENTS = "events.out.tfevents."
"""What the name of an event file has in it."""
HEAD, CHECKSUM = struct.Struct("<QI"), struct.Struct("<I")
"""Bytes of a record with the checksum of that number, and the checksum behind the record."""
LONGEST = 1 << 26
"""Bytes of a record, such as a picture."""
LONGEST_TAG = 4096
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""What follows a field's key."""


def _table() -> tuple[int, ...]:
    """What a byte adds to a CRC-32C."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


TABLE = _table()


def is_tensorboard(source: Path) -> bool:
    """Whether a path is an event file, a directory with some, or one with such directories of ranks."""
    return EVENTS in source.name or bool(_folders(source))


def _folders(source: Path) -> list[Path]:
    """Those of a directory and its ``rank_N`` that hold events."""
    inside = list_folder(source) if source.is_dir() else []
    places = [source, *(place for place in inside if place.name.startswith("rank_") and is_folder_in(place, source))] if inside else []
    return [place for place in places if any(EVENTS in file.name for file in list_folder(place))]


def read_events(source: Path) -> Found:
    """The curves of an event file, or of all event files of a directory, in the order in which they were written.

    :raises RecordError: a file cannot be read, or the files hold no curve, or those of several ranks.
    """
    folders = _folders(source)
    if len(folders) > 1:
        raise RecordError(f"{source} has events of {len(folders)} ranks, each of its own loss; name one, {folders[0]} or another")
    folder = folders[0] if folders else None
    points: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for file in [file for file in list_folder(folder) if EVENTS in file.name] if folder else [source]:
        try:
            for step, tag, value in _scalars(file, folder):
                points[tag].append((step, value))
        except (OSError, ValueError) as error:
            raise RecordError(f"{file} cannot be read as TensorBoard's events: {shown(in_words(error))}; copy it again") from None
    source = folder or source
    if not points:
        raise RecordError(f"{source} holds no curve; name the directory of one run")
    curves = {tag: dict(of_tag) for tag, of_tag in points.items()}
    again = sum(len(of_tag) - len(curves[tag]) for tag, of_tag in points.items())
    notes = [f"{again} points were logged again for the same step, by a resumed run: the later ones count"] if again else []
    if samples := over_samples(points):
        curves["consumed_samples"] = {step: float(count) for step, count in samples.items()}
    return Found(curves, str(source), first=1, resolution=FLOAT32, notes=notes)


def _scalars(path: Path, folder: Path | None) -> Iterator[tuple[int, str, float]]:
    """Step, tag and value of every scalar of a file. A record that a killed process left cut ends it."""
    with io.BufferedReader(open_regular(path, folder)) as file:
        while len(head := file.read(HEAD.size)) == HEAD.size:
            size, checksum = HEAD.unpack(head)
            if checksum != masked(head[:8]) or size > LONGEST:
                raise ValueError("it holds what is no record of events")
            record = file.read(size)
            checksum_of_it = file.read(CHECKSUM.size)
            if len(checksum_of_it) < CHECKSUM.size:
                return
            scalars = list(_scalars_of(record))
            if scalars and CHECKSUM.unpack(checksum_of_it)[0] != masked(record):
                raise ValueError("a record is not as it was written")
            yield from scalars


def masked(content: bytes) -> int:
    """The CRC-32C of some bytes, turned as TensorFlow stores it."""
    checksum = 0xFFFFFFFF
    for byte in content:
        checksum = TABLE[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    checksum ^= 0xFFFFFFFF
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _scalars_of(event: bytes) -> Iterator[tuple[int, str, float]]:
    step, summary = 0, b""
    for number, wire, content in _fields(event):
        if (number, wire) == (2, VARINT):
            step = int.from_bytes(content, "little")
        elif (number, wire) == (5, LENGTH):
            summary = content
    for number, wire, value in _fields(summary):
        tag, scalar = "", None
        for inner, inner_wire, content in _fields(value) if (number, wire) == (1, LENGTH) else ():
            if (inner, inner_wire) == (1, LENGTH) and len(content) <= LONGEST_TAG:
                tag = content.decode("utf-8", "replace")
            elif (inner, inner_wire) == (2, FIXED32):
                scalar = float(struct.unpack("<f", content)[0])
        if tag and scalar is not None and step < 1 << 53:
            yield step, tag, scalar


def _fields(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The fields of a message: number, kind, and content; raises ValueError where it is not whole."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire, start = key & 7, at
        if wire == VARINT:
            value, at = _varint(message, at)
            yield key >> 3, wire, value.to_bytes(9, "little")
            continue
        if wire == LENGTH:
            size, start = _varint(message, at)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise ValueError("a record holds no fields")
        at = start + size
        if at > len(message):
            raise ValueError("a field ends behind its record")
        yield key >> 3, wire, message[start:at]


def _varint(message: bytes, at: int) -> tuple[int, int]:
    number = 0
    for index, byte in enumerate(message[at : at + 10]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, at + index + 1
    raise ValueError("a record holds no number where one is to be")
