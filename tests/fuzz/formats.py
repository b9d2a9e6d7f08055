"""New bytes of what other tools write: archives of torch, pickles, protobuf messages, TensorBoard's events, tables. Lengths and checksums
fit what was changed, so that readers get beyond them."""

import io
import pickletools
import struct
import zipfile
from collections.abc import Mapping
from random import Random

from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c as masked

HEAD = struct.Struct("<QI")
"""The bytes of an event, and the checksum of that number."""
Field = tuple[int, int, bytes]
"""Number, kind and content of a field of a protobuf message; a number's content is its bytes as they are encoded."""
Nested = Mapping[int, "Nested"]
"""The fields of a message that are messages, by number."""
CKPT: Nested = {1: {2: {}}}
EVENT: Nested = {5: {1: {}}}
PIECES = (
    # values
    *(b"N", b"\x88", b"K\x07", b"J\xff\xff\xff\x7f", b"\x8a\x08" + b"\xff" * 7 + b"\x7f", b"\x8a\xff" + b"\x7f" * 255),
    *(b"G\x7f\xf0" + b"\0" * 6, b"G\x7f\xf8" + b"\0" * 6, b"I" + b"9" * 5_000 + b"\n"),
    *(b"X\x03\0\0\0a\nb", b"X\x05\0\0\0\x1b[31m", b"X\x70\x11\x01\0" + b"x" * 70_000),
    *(b"]", b"}", b")", b"\x8f", b"(", b"1", b"0", b"a", b"s", b"e", b"u", b"t", b"l", b"\x85", b"\x86", b"\x87", b"R", b"b", b"Q", b"2"),
    # what unfolds, or is deep
    *(b")" + b"\x85" * 100_000, b"}" + b"N\x85" + b"\x85" * 100_000 + b"Ns", b"]" * 5_000, b"(" * 5_000, b"}" * 50_000),
    *(b"]q\xfa" + b"]h\xfaah\xfaaq\xfa" * 40, b")q\xfa0" + b"h\xfah\xfa\x86q\xfa0" * 40 + b"h\xfa", b"]q\xfah\xfaa"),
    b"}q\xfaX\1\0\0\0ah\xfas",
    # names
    *(b"cos\nsystem\n", b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nSize\n", b"cbuiltins\nset\n", b"ccollections\nOrderedDict\n"),
    *(b"cargparse\nNamespace\n", b"cmegatron.core\nX\n", b"X\2\0\0\0osX\6\0\0\0system\x93", b"."),
)
"""Opcodes of a pickle, alone and many."""
NUMBERS = (b"\0", b"\1", b"\x7f", b"\xff\x7f", b"\xff" * 4 + b"\x7f", b"\xff" * 9 + b"\1", b"\x80" * 9 + b"\0", b"\xff" * 12)
CELLS = (
    *(b"", b"nan", b"inf", b"-inf", b"-1", b"1e400", b"1e154", b"-1e154", b"1e308", b"9" * 5_000, b"0x" + b"f" * 5_000, b"1_0", b"1e-400"),
    *(b'"', b'"a\nb"', b"\x1b[31m", b"x" * 200_000, b"," * 50_000, b"\0", b"\xff", "١".encode(), b"null", b"(9,9)", b"()"),
    b"(" + b"9," * 40 + b")",
)


def pickled(random: Random, data: bytes) -> bytes:
    """Opcodes of a pickle go, come, are repeated or change places; the others stay whole."""
    try:
        starts = [at for _, _, at in pickletools.genops(data) if at is not None]
    except (ValueError, IndexError, struct.error, UnicodeDecodeError):
        return data[: len(data) // 2]
    pieces = [data[start:stop] for start, stop in zip(starts, [*starts[1:], len(data)], strict=True)]
    for _ in range(random.choice((1, 1, 2, 4))):
        at, other = random.randrange(len(pieces)), random.randrange(len(pieces))
        change = random.randrange(6)
        if change == 0:
            del pieces[at]
        elif change == 1:
            pieces[at] = random.choice(PIECES)
        elif change == 2:
            pieces[at], pieces[other] = pieces[other], pieces[at]
        elif change == 3:
            pieces[at] = pieces[at] * random.choice((2, 50))
        else:
            pieces.insert(at, random.choice(PIECES))
        pieces = pieces or [b"."]
    return b"".join(pieces)


def archived(random: Random, data: bytes) -> bytes:
    """A member of the first archive in the data changes, and the archive is written again as torch writes it; what follows moves."""
    try:
        end = data.index(b"PK\5\6") + 22
        with zipfile.ZipFile(io.BytesIO(data[:end])) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except (ValueError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError):
        return data[: len(data) // 2]
    at = random.randrange(len(members))
    described = next((index for index, (name, _) in enumerate(members) if name.endswith("data.pkl")), at)
    change, method = random.randrange(10), zipfile.ZIP_STORED
    name, content = members[described if change < 6 else at]
    if change < 6:
        members[described] = (name, pickled(random, content))
    elif change == 6:
        del members[at]
    elif change == 7:
        members[at] = (random.choice(("../x", "/x", "a/data.pkl", "archive/data/9", "archive/byteorder", "x" * 300, "")), content)
    elif change == 8:
        members[at] = (name, content[: random.randrange(len(content) + 1)])
    else:
        method = random.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_STORED))
        members.append((name if random.random() < 0.3 else f"{name}_", b"\0" * random.choice((0, 1 << 20))))
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        for member, inside in members:
            archive.writestr(zipfile.ZipInfo(member or "x"), inside, method)
    return target.getvalue() + data[end:]


def _fields(data: bytes) -> list[Field]:
    """The fields of a message; those that are whole."""
    found, at = [], 0
    while at < len(data):
        key, start = _number(data, at)
        if start < 0:
            break
        wire = key & 7
        size, begin = (
            _number(data, start) if wire == 2 else (_number(data, start)[1] - start if wire == 0 else {1: 8, 5: 4}.get(wire, -1), start)
        )
        if size < 0 or begin < 0 or begin + size > len(data):
            break
        found.append((key >> 3, wire, data[begin : begin + size]))
        at = begin + size
    return found


def _number(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for index, byte in enumerate(data[at : at + 10]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, at + index + 1
    return 0, -1


def _encoded(number: int) -> bytes:
    return bytes((number & 0x7F | 0x80, *_encoded(number >> 7))) if number > 0x7F else bytes((number,))


def _joined(fields: list[Field]) -> bytes:
    return b"".join(
        _encoded(number << 3 | wire) + (_encoded(len(content)) if wire == 2 else b"") + content for number, wire, content in fields
    )


def message(random: Random, data: bytes, nested: Nested) -> bytes:
    """One field of a message, or of one within it, changes; all lengths around it fit."""
    fields = _fields(data)
    if not fields:
        return data
    at = random.randrange(len(fields))
    number, wire, content = fields[at]
    if wire == 2 and number in nested and random.random() < 0.8:
        fields[at] = (number, wire, message(random, content, nested[number]))
        return _joined(fields)
    change = random.randrange(7)
    if change == 0:
        del fields[at]
    elif change == 1:
        fields.insert(random.randrange(len(fields)), fields[at])
    elif change == 2:
        fields[at] = (number, 0, random.choice(NUMBERS))
    elif change == 3:
        fields[at] = (random.choice((1, 2, 3, 5, 536_870_911)), wire, content)
    elif change == 4 and wire == 2:
        odd = (b"", b"\xff", b"\x1b[31m", b"a\nb", b"x" * 70_000, b"Float16", b"Int32", content[:-1], content * 2, b"\x80" * 20)
        fields[at] = (number, wire, random.choice(odd))
    elif change == 5:
        fields = fields * random.choice((2, 50))
    else:
        fields[at] = (number, 5, random.choice((b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff\xff\x7f\x7f", b"\0" * 4)))
    return _joined(fields)


def checkpoint(random: Random, data: bytes) -> bytes:
    """A message of MindSpore's checkpoint."""
    return message(random, data, CKPT)


def events(random: Random, data: bytes) -> bytes:
    """Records of TensorBoard's events, each with the checksum of what it became."""
    records, at = [], 0
    while len(head := data[at : at + 12]) == 12 and (size := HEAD.unpack(head)[0]) < len(data):
        records.append(data[at + 12 : at + 12 + size])
        at += size + 16
    if not records:
        return data
    for _ in range(random.choice((1, 1, 3))):
        place = random.randrange(len(records))
        records[place] = message(random, records[place], EVENT)
    if random.random() < 0.2:
        records = records * 50
    text = b"".join(_record(record) for record in records)
    if random.random() < 0.1:
        lying = struct.pack("<Q", random.choice((0, 2**63, 2**64 - 1, 1 << 40, 1 << 26)))
        text += lying + struct.pack("<I", masked(lying)) + b"x" * 40
    return text


def _record(content: bytes) -> bytes:
    size = struct.pack("<Q", len(content))
    return size + struct.pack("<I", masked(size)) + content + struct.pack("<I", masked(content))


def event_file(points: Mapping[str, Mapping[int, float]]) -> bytes:
    """An event file of curves: tag to step to value."""
    text = _record(_joined([(1, 1, struct.pack("<d", 0.0)), (3, 2, b"brain.Event:2")]))
    for tag, curve in points.items():
        for step, value in curve.items():
            scalar = _joined([(1, 2, tag.encode()), (2, 5, struct.pack("<f", value))])
            text += _record(_joined([(1, 1, struct.pack("<d", 0.0)), (2, 0, _encoded(step)), (5, 2, _joined([(1, 2, scalar)]))]))
    return text


def cell(random: Random, data: bytes) -> bytes:
    """A cell of a table becomes another, or a column comes many times."""
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    cells = lines[at].split(b",")
    place = random.randrange(len(cells))
    cells[place] = random.choice(CELLS)
    if random.random() < 0.1:
        cells = cells * random.choice((2, 1_000))
    lines[at] = b",".join(cells)
    return b"\n".join(lines)
