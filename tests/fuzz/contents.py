"""New bytes of a file, by its kind: headers, numbers, values, keys, lines and words. All is drawn from one generator."""

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import numpy as np
from numpy.lib import format as npy

from align_hooks.record.format import digests
from fuzz.formats import archived, cell, checkpoint, events, pickled
from fuzz.odd import BROKEN, DTYPES, MARKUP, ODD_TEXTS, SHAPES, TOKENS, WORDS, odd
from rewritten import is_sealed

Tree, Key = dict | list, str | int
Bytes = Callable[[Random, bytes], bytes]
"""New content of a file, from its old."""


def flip(random: Random, data: bytes) -> bytes:
    """One bit, or a few."""
    changed = bytearray(data or b"\0")
    for _ in range(random.choice((1, 1, 1, 2, 8))):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def flip_early(random: Random, data: bytes) -> bytes:
    """A byte where headers are becomes another."""
    changed = bytearray(data or b"\0")
    changed[random.randrange(min(len(changed), 160))] = random.randrange(256)
    return bytes(changed)


def truncate(random: Random, data: bytes) -> bytes:
    return data[: random.choice((0, 1, len(data) // 2, max(len(data) - 1, 0), random.randrange(len(data) + 1)))]


def extend(random: Random, data: bytes) -> bytes:
    return data + random.choice((b"\0", b"\n", b"x", b"\0" * 4096, data, random.randbytes(64)))


def cut_out(random: Random, data: bytes) -> bytes:
    start = random.randrange(len(data) + 1)
    return data[:start] + data[start + random.choice((1, 2, 8, 64)) :]


def repeat(random: Random, data: bytes) -> bytes:
    """A piece stands many times."""
    start = random.randrange(len(data) + 1)
    piece = data[start : start + random.choice((1, 4, 32))]
    return data[:start] + piece * random.choice((2, 100, 5_000)) + data[start:]


def noise(random: Random, data: bytes) -> bytes:
    return random.randbytes(random.choice((0, 1, 7, 8, 9, 100, len(data))))


def array_header(random: Random, data: bytes) -> bytes:
    """Another header before the same numbers: shapes and types that are not there, absurd or none."""
    kind, shape = random.choice(DTYPES), random.choice(SHAPES)
    order = random.choice(("False", "True", "None", "1"))
    texts = (
        f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}",
        f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, 'more': 1}}",
        f"{{'descr': {kind}, 'shape': {shape}}}",
        f"[{kind}, {shape}]",
        random.choice(BROKEN),
    )
    header = random.choice((texts[0], texts[0], texts[0], *texts)).encode("latin-1", "replace")
    header += b" " * (random.choice((0, 1, 63, 70_000)) if len(header) < 60_000 else 0) + b"\n"
    if len(header) < 1 << 16 and random.random() < 0.7:
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data[128:]
    length = random.choice((len(header), len(header) + 1, 2**32 - 1, 0))
    return b"\x93NUMPY" + random.choice((b"\x02\x00", b"\x03\x00", b"\x04\x00")) + struct.pack("<I", length) + header + data[128:]


def array_of_another_kind(random: Random, data: bytes) -> bytes:
    """A whole array of another type or shape."""
    numbers = np.frombuffer(data[128 : 128 + 80].ljust(80, b"\0"), np.int64)
    kinds = ("int32", "uint8", "float16", "float64", ">i4", "bool", "complex64", "S8", "uint64", "int8")
    with np.errstate(all="ignore"):
        array = numbers.view("S8") if (kind := random.choice(kinds)) == "S8" else numbers.astype(np.dtype(kind))
    shape = random.choice(((10,), (2, 5), (5, 2), (1, 1, 2, 5), (10, 1), (0, 5), ()))
    if shape == ():
        array = array[:1]
    return _saved(array[: int(np.prod(shape))].reshape(shape))


def odd_numbers(random: Random, data: bytes) -> bytes:
    """Numbers of the array become what no token, mask or loss is."""
    if len(data) < 136:
        return flip(random, data)
    changed, size = bytearray(data), random.choice((4, 8))
    at = random.randrange(128, len(data) - size + 1) // size * size
    odd = {4: (b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff" * 4), 8: (b"\xff" * 8, b"\xff" * 7 + b"\x7f", b"\0" * 7 + b"\x80")}
    changed[at : at + size] = random.choice(odd[size])
    return bytes(changed)


def _saved(array: np.ndarray) -> bytes:
    shape = f"{{'descr': {npy.dtype_to_descr(array.dtype)!r}, 'fortran_order': False, 'shape': {array.shape!r}, }}"
    header = shape.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + array.tobytes()


def tensor_header(random: Random, data: bytes) -> bytes:
    """Another header of a safetensors file: places, types, shapes and names that do not fit, or fit and are odd."""
    size = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + size])
    except ValueError:
        return flip(random, data)
    names = [name for name in header if name != "__metadata__"]
    if not names:
        header["model.norm.weight"] = {"dtype": "F32", "shape": [random.choice((0, 1))], "data_offsets": [0, random.choice((0, 4))]}
        names = ["model.norm.weight"]
    entry = header[random.choice(names)]
    change = random.randrange(9)
    if change == 0:
        entry["data_offsets"] = [random.choice((0, 1, 16, 2**63, -1, 10**30, None)), random.choice((0, 4, 16, 2**63, 2**64, 1.5, "4"))]
    elif change == 1:
        entry["shape"] = random.choice(([], [4, 4], [2**62, 4], [2**32, 2**32], [0], [-4], [4.0], "4", None, [4, 1, 1], [1] * 70, [[4]]))
    elif change == 2:
        entry["dtype"] = random.choice(("F64", "F16", "BF16", "I64", "BOOL", "F8_E4M3", "", 7, None, "f32"))
    elif change == 3:
        header[random.choice(ODD_TEXTS)] = dict(entry)
    elif change == 4:
        del header[random.choice(names)]
    elif change == 5:
        header["__metadata__"] = random.choice((None, 1, [], {"format": 1}, {"format": MARKUP}, {"a": {"b": 1}}))
    elif change == 6:
        donor = header[random.choice(names)]
        entry["shape"], donor["shape"] = donor["shape"], entry["shape"]
    elif change == 7:
        entry[random.choice(("more", "dtype", "shape", "data_offsets"))] = odd(random)
    text = json.dumps(header).encode("utf-8", "replace")
    if change == 8:  # the same key twice
        text = text[:-1] + b"," + json.dumps({random.choice(names): {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()[1:]
    length = random.choice((len(text),) * 8 + (len(text) - 1, len(text) + 1, 0, 2**63, 2**64 - 1, 100_000_001))
    return length.to_bytes(8, "little") + text + data[8 + size :]


def json_value(random: Random, data: bytes) -> bytes:
    """A value at a random path of the object, or of one line, becomes another; or its key goes, comes or changes."""
    lines = data.split(b"\n")
    at = random.choice([index for index, line in enumerate(lines) if line.strip()] or [0])
    whole = data if _parsed(lines[at]) is None else lines[at]
    tree = _parsed(whole)
    if tree is None:
        return flip(random, data)
    for _ in range(random.choice((1, 1, 1, 2))):
        _change(random, tree)
    text = json.dumps(tree).encode()
    if is_sealed(whole) and isinstance(tree, dict) and random.random() < 0.7:  # as somebody would who means it
        tree.pop("digest", None)
        text = digests.seal(json.dumps(tree).encode())
    return text if whole is data else b"\n".join((*lines[:at], text, *lines[at + 1 :]))


def _parsed(text: bytes) -> Tree | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) and value else None


def _change(random: Random, tree: Tree) -> None:
    """Bend one place of a tree, every place being as likely as every other."""
    holder, key = random.choice(list(_places(tree)) or [({}, None)])
    if key is None:
        return
    change = random.randrange(8)
    if change == 0:
        del holder[key]
    elif change == 1 and isinstance(holder, dict):
        holder[random.choice(ODD_TEXTS)] = holder.pop(key)
    elif change == 2:
        holder[key] = [holder[key]]
    elif change == 3 and isinstance(holder, list):
        holder.append(holder[key])
    elif change == 4:
        other, holder[key] = random.choice(list(_places(tree)))[0], None  # a cycle is no JSON, so a copy of it without this place
        holder[key] = json.loads(json.dumps(other))
    else:
        holder[key] = odd(random)


def _places(tree: Tree) -> Iterator[tuple[Tree, Key]]:
    waiting = [tree]
    while waiting:
        holder = waiting.pop()
        for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
            yield holder, key
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])


def json_token(random: Random, data: bytes) -> bytes:
    """What JSON readers differ about, in the place of a value, or before everything."""
    token = random.choice(TOKENS)
    starts = [index + 1 for index, byte in enumerate(data) if byte in b":[,"]
    if not starts or random.random() < 0.1:
        return token + data
    start = random.choice(starts)
    stop = min((place for place in (data.find(end, start) for end in (b",", b"}", b"]")) if place >= 0), default=len(data))
    return data[:start] + token + data[stop:]


def duplicate_key(random: Random, data: bytes) -> bytes:
    at = data.find(b"{", random.randrange(len(data) + 1))
    key = random.choice((b"step", b"rank", b"loss", b"format", b"launch", b"a"))
    value = json.dumps(odd(random)).encode()
    return data[: at + 1] + b'"' + key + b'": ' + value + b", " + data[at + 1 :]


def lines_moved(random: Random, data: bytes) -> bytes:
    """Lines go, come twice, change places, or get endings of another system."""
    lines = data.splitlines(keepends=True) or [b""]
    first, second = (random.randrange(len(lines)) for _ in range(2))
    change = random.randrange(6)
    if change == 0:
        del lines[first]
    elif change == 1:
        lines.insert(second, lines[first])
    elif change == 2:
        lines[first], lines[second] = lines[second], lines[first]
    elif change == 3:
        lines[first] = lines[first].rstrip(b"\n") + random.choice((b"\r\n", b"\r", b"\\\n", b""))
    elif change == 4:
        lines = lines * random.choice((2, 50))
    else:
        lines.insert(first, b"\n" * random.choice((1, 1_000)))
    return b"".join(lines)


def splice(random: Random, data: bytes) -> bytes:
    """A word of the languages that are read stands where it does not belong."""
    start = random.randrange(len(data) + 1)
    if random.random() < 0.5:  # where a value is
        start = data.find(random.choice((b" ", b"=", b":", b"\n", b"|", b"[")), start) + 1
    taken = random.choice((0, 0, 1, 5))
    return data[:start] + random.choice(WORDS) + data[start + taken :]


ANY = (flip, truncate, extend, cut_out, noise)
JSON = (json_value, json_value, json_value, json_value, json_token, json_token, duplicate_key, flip, truncate, cut_out)
TEXT = (splice, splice, splice, splice, lines_moved, repeat, flip, cut_out, truncate)
BY_KIND: dict[str, tuple[Bytes, ...]] = {
    ".npy": (array_header, array_header, array_of_another_kind, odd_numbers, flip_early, flip_early, *ANY),
    ".safetensors": (tensor_header, tensor_header, tensor_header, flip_early, *ANY),
    ".json": JSON,
    ".jsonl": (*JSON, *JSON, lines_moved, lines_moved, lines_moved, repeat),
    **dict.fromkeys((".sh", ".args", ".yaml", ".yml", ".log"), TEXT),
    ".csv": (cell, cell, cell, cell, *TEXT),
    **dict.fromkeys((".pt", ".distcp"), (archived, archived, archived, archived, *ANY)),
    ".metadata": (pickled, pickled, pickled, pickled, *ANY),
    ".ckpt": (checkpoint, checkpoint, checkpoint, checkpoint, *ANY),
    ".tfevents": (events, events, events, events, *ANY),
}


def kind_of(path: Path) -> str:
    """The kind of a file, by the end of its name or by all of it."""
    return ".tfevents" if ".tfevents." in path.name else path.suffix or path.name
