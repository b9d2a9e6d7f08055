"""What is done to a seed: bytes by the kind of their file, and the files of a record themselves. All of it is drawn from one generator."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.lib import format as npy

Bytes = Callable[[Random, bytes], bytes]
"""New content of a file, from its old."""

DEEP = 100_000
LONG = 1 << 24
HUGE = (2**31, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 10**400, -(10**400))
ODD_NUMBERS = (0, -1, 1, 0.5, -0.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf"), True, *HUGE)
MARKUP = "<img src=x onerror=fuzz>"
"""What must not stand on a page as it is."""
ODD_TEXTS = (
    "", " ", "0", "-1", "1e999", "nan", "True", "None", "all", "0-99999999999", "0-9/0", "../../canary", "/dev/zero", "a\nb", "a\r\nb\u2028c",
    "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x00", "\ud800", "\udcff", "é" * 10, "x" * 70_000, "[bold]", "[/]", "{}", "%s", "{{ 7 * 7 }}", MARKUP,
    "</script><script>fuzz</script>", "float8", "bfloat16", "model.norm.weight", "model.layers.99999999999999999999.x", "lm_head.weight#padding",
)  # fmt: skip
ODD_VALUES = (None, [], {}, [None], [[]], {"": None}, [1, 2], ["a"], {"a": {"b": 1}}, *ODD_NUMBERS, *ODD_TEXTS)


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
    said = random.choice((len(header), len(header) + 1, 2**32 - 1, 0))
    return b"\x93NUMPY" + random.choice((b"\x02\x00", b"\x03\x00", b"\x04\x00")) + struct.pack("<I", said) + header + data[128:]


DTYPES = ("'<i8'", "'<f4'", "'|b1'", "'>f8'", "'|O'", "'<U9999999'", "'|V0'", "'|S0'", "'<c16'", "'<M8[ns]'", "[('a', '<f4')]", "[('a', '<f4', (9, 9))]",
          "''", "None", "3", "('<f4', (2,))", "'<f4, <f4'", "'\\x00'", "[[]]", "{'names': []}", "'<f3'")  # fmt: skip
SHAPES = ("(4, 5)", "()", "(0,)", "(-1, -20)", "(4611686018427387904, 4)", "(9223372036854775807,)", "(10**9, 10**9)", "(2147483648, 0)", "(0, 0, 0)", "(1.5,)", "'x'",
          "[4, 5]", "4", "None", "(True, 20)", "(" + "1, " * 65 + ")", "(4, 5" + ", 1" * 30 + ")", "(999999999999999999999999999999, 1)")  # fmt: skip
BROKEN = ("", "{", "(" * 3_000, "[" * 90, "-" * 5_000 + "1", "{'descr': ", "'\\", "{\x00}", "{'a': 1e999999}", "{'descr': 0o, }", "\x0c\x0c", "1_", "''''''", "# x",
          "9" * 5_000, "{**{}}", "__import__('os').abort()", "b'\\xff'", "\\\n", "{'descr': '<f4', 'descr': '<f8'}", "\t{}", "f'{1}'", "{1: 2, 'a': 3}")  # fmt: skip


def array_of_another_kind(random: Random, data: bytes) -> bytes:
    """A whole array of another type or shape."""
    numbers = np.frombuffer(data[128 : 128 + 80].ljust(80, b"\0"), np.int64)
    kinds = ("int32", "uint8", "float16", "float64", ">i4", "bool", "complex64", "S8", "uint64", "int8")
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


def _saved(array: Any) -> bytes:
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
    one = header[random.choice(names)]
    change = random.randrange(9)
    if change == 0:
        one["data_offsets"] = [random.choice((0, 1, 16, 2**63, -1, 10**30, None)), random.choice((0, 4, 16, 2**63, 2**64, 1.5, "4"))]
    elif change == 1:
        one["shape"] = random.choice(([], [4, 4], [2**62, 4], [2**32, 2**32], [0], [-4], [4.0], "4", None, [4, 1, 1], [1] * 70, [[4]]))
    elif change == 2:
        one["dtype"] = random.choice(("F64", "F16", "BF16", "I64", "BOOL", "F8_E4M3", "", 7, None, "f32"))
    elif change == 3:
        header[random.choice(ODD_TEXTS)] = dict(one)
    elif change == 4:
        del header[random.choice(names)]
    elif change == 5:
        header["__metadata__"] = random.choice((None, 1, [], {"format": 1}, {"format": MARKUP}, {"a": {"b": 1}}))
    elif change == 6:
        other = header[random.choice(names)]
        one["shape"], other["shape"] = other["shape"], one["shape"]
    elif change == 7:
        one[random.choice(("more", "dtype", "shape", "data_offsets"))] = random.choice(ODD_VALUES)
    text = json.dumps(header).encode("utf-8", "replace")
    if change == 8:  # the same key twice
        text = text[:-1] + b"," + json.dumps({random.choice(names): {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()[1:]
    said = random.choice((len(text),) * 8 + (len(text) - 1, len(text) + 1, 0, 2**63, 2**64 - 1, 100_000_001))
    return said.to_bytes(8, "little") + text + data[8 + size :]


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
    return text + b"\n" if whole is data else b"\n".join((*lines[:at], text, *lines[at + 1 :]))


def _parsed(text: bytes) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) and found else None


def _change(random: Random, tree: Any) -> None:
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
        holder[key] = random.choice(list(_places(tree)))[0]  # a cycle is no JSON, so a copy of it
        holder[key] = json.loads(json.dumps(_acyclic(tree, holder, key)))
    else:
        holder[key] = random.choice(ODD_VALUES)


def _acyclic(tree: Any, holder: Any, key: Any) -> Any:
    """What stands at a place, or nothing where the place is inside of it."""
    found, holder[key] = holder[key], None
    return found


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    waiting = [tree]
    while waiting:
        one = waiting.pop()
        for key in list(one) if isinstance(one, dict) else range(len(one)):
            yield one, key
            if isinstance(one[key], dict | list):
                waiting.append(one[key])


def json_token(random: Random, data: bytes) -> bytes:
    """What JSON readers differ about, in the place of a value, or before everything."""
    tokens = (b"NaN", b"Infinity", b"-Infinity", b"1" * 5_000, b"1e400", b"-", b'"\\ud800"', b'"\\u0000"', b"[" * DEEP, b'{"a":' * DEEP,
              b"[" * DEEP + b"]" * DEEP, b'{"a":' * 900 + b"1" + b"}" * 900, b"\xff\xfe", b"\xef\xbb\xbf", b"\0", b'"a\nb"', b"'a'", b"tru")  # fmt: skip
    token = random.choice(tokens)
    starts = [index + 1 for index, byte in enumerate(data) if byte in b":[,"]
    if not starts or random.random() < 0.1:
        return token + data
    start = random.choice(starts)
    stop = min((found for found in (data.find(end, start) for end in (b",", b"}", b"]")) if found >= 0), default=len(data))
    return data[:start] + token + data[stop:]


def duplicate_key(random: Random, data: bytes) -> bytes:
    at = data.find(b"{", random.randrange(len(data) + 1))
    key = random.choice((b"step", b"rank", b"loss", b"format", b"launch", b"a"))
    value = json.dumps(random.choice(ODD_VALUES)).encode()
    return data[: at + 1] + b'"' + key + b'": ' + value + b", " + data[at + 1 :]


def lines_moved(random: Random, data: bytes) -> bytes:
    """Lines go, come twice, change places, or get endings of another system."""
    lines = data.splitlines(keepends=True) or [b""]
    one, other = (random.randrange(len(lines)) for _ in range(2))
    change = random.randrange(6)
    if change == 0:
        del lines[one]
    elif change == 1:
        lines.insert(other, lines[one])
    elif change == 2:
        lines[one], lines[other] = lines[other], lines[one]
    elif change == 3:
        lines[one] = lines[one].rstrip(b"\n") + random.choice((b"\r\n", b"\r", b"\\\n", b""))
    elif change == 4:
        lines = lines * random.choice((2, 50))
    else:
        lines.insert(one, b"\n" * random.choice((1, 1_000)))
    return b"".join(lines)


def splice(random: Random, data: bytes) -> bytes:
    """A word of the languages that are read stands where it does not belong."""
    start = random.randrange(len(data) + 1)
    if random.random() < 0.5:  # where a value is
        start = data.find(random.choice((b" ", b"=", b":", b"\n", b"|", b"[")), start) + 1
    taken = random.choice((0, 0, 1, 5))
    return data[:start] + random.choice(WORDS) + data[start + taken :]


BOMB = b"\n" + b"\n".join(b"a%d: &a%d [%s]" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9) if n else b"x") for n in range(20)) + b"\n"
WORDS = (
    b"\x1b[31m", b"\x1b]0;t\x07", b"\x00", b"\r", b"\xff\xfe", b"\xe2\x80\xa8", b"x" * 100_000, b"\t", b"$(", b"`", b"${", b"$((", b"((", b"))", b"[[", b"]]", b"'", b'"', b"\\", b"<<EOF\n",
    b"<<<", b"| ", b"& ", b"; ", b";; ", b"\nfi\n", b"\ndone\n", b"\nwhile :; do X=$X$X; done\n", b"\nX=aaaaaaaaaaaaaaaa\n" + b"X=$X$X\n" * 40 + b"echo $X\n", b"\nf() { f; f; }\nf\n",
    b"${A[@]:-${B}}", b"$((1/0))", b"$((2**99999))", b"$((99999999999999999999 << 999999999))", b"{1..999999999}", b"{a,b}{a,b}{a,b}{a,b}", b"\nsource $0\n", b"\nsource /dev/zero\n",
    b"\nsource ../canary/canary.sh\n", b"\n. canary/canary.txt\n", b"\neval eval eval $X\n", b"\nexec 3<>/dev/tcp/127.0.0.1/9\n", b"\ntouch made_by_a_script\n", b"$(touch made_by_a_script)", b"`seq 99999999999`",
    b"\nfor i in $(seq 999999999); do for j in $(seq 999999999); do Y+=x; done; done\n", b"[0]*999999999", b"([0]*3+[1])*99999999", b"(((((1", b"(" * 3_000, b"9" * 5_000, b"1e999999999", b"-1", b"nan", b"inf", b"0x", b"0",
    b"&a ", b"*a", b"!!python/object/apply:os.system [true] ", b"!!binary x", b"!!int x", b"!!float x", b"!!timestamp 0000-99-99", b"!!set ", b"!!omap ", b"<<: *a", b"<<: [1]", b"? ", b"- ", b": ", b"{", b"}", b"[" * 5_000, b"{a: " * 2_000,
    b"--- ", b"\n---\n", b"\n...\n", b"%YAML 9.9\n", b"# ", b"| \n", b"> \n", b"2026-11-22", b"0o17", b"1_000", b".inf", b".NaN", b"~", b"yes", b"0b1", b"190:20:30", BOMB, MARKUP.encode(),
    b"iteration 99999999999999999999/ 1 |", b"Epoch:[ 0/ 0], step:[ 0/ 0], ", b"lm loss: 1E+9999 |", b"lm loss: 1.1.1.1 |", b"loss:[", b"norm_size: (", b"local_norm:\n[", b"...", b"[" * 50_000, b" " * 50_000, b"1" * 50_000,
    b"learning rate: . |", b"consumed samples: 1e400 |", b"grad norm: nan |", b"grad norm: 1e99999 |", b"number of skipped iterations: inf |",
)  # fmt: skip

ANY = (flip, truncate, extend, cut_out, noise)
JSON = (json_value, json_value, json_value, json_value, json_token, json_token, duplicate_key, flip, truncate, cut_out)
TEXT = (splice, splice, splice, splice, lines_moved, repeat, flip, cut_out, truncate)
BY_KIND: dict[str, tuple[Bytes, ...]] = {
    ".npy": (array_header, array_header, array_of_another_kind, odd_numbers, flip_early, flip_early, *ANY),
    ".safetensors": (tensor_header, tensor_header, tensor_header, flip_early, *ANY),
    ".json": JSON,
    ".jsonl": (*JSON, *JSON, lines_moved, lines_moved, lines_moved, repeat),
    ".sh": TEXT,
    ".args": TEXT,
    ".yaml": TEXT,
    ".yml": TEXT,
    ".log": TEXT,
}


@dataclass(frozen=True, slots=True)
class Scene:
    """A seed's copy to be mutated: ``root`` is its directory, ``changed`` what mutations may touch, ``outside`` what nobody may, or
    None where a link may lead anywhere."""

    root: Path
    changed: tuple[Path, ...]
    outside: Path | None

    def files(self) -> list[Path]:
        """Regular files that may be mutated, in an order that is always the same; not what an earlier mutation made gigabytes long."""
        found = [path for top in self.changed if not top.is_symlink() for path in (top, *_below(top))]
        return [path for path in found if path.is_file() and not path.is_symlink() and path.stat().st_size < LONG]

    def folders(self) -> list[Path]:
        """The same of directories."""
        return [path for top in self.changed if not top.is_symlink() for path in (top, *_below(top)) if path.is_dir() and not path.is_symlink()]


def _below(top: Path) -> list[Path]:
    return sorted(top.rglob("*"))


def rewritten(path: Path, data: bytes) -> None:
    """Give a file new content; what is linked to it keeps its own."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def content(random: Random, scene: Scene) -> str:
    """Change the bytes of one file as befits its kind."""
    path = random.choice(scene.files())
    change = random.choice(BY_KIND.get(path.suffix, ANY))
    rewritten(path, change(random, path.read_bytes()))
    return f"{change.__name__} of {path.relative_to(scene.root)}"


def removed(random: Random, scene: Scene) -> str:
    path = random.choice(scene.files() + scene.folders())
    _remove(path)
    return f"removed {path.relative_to(scene.root)}"


def _remove(path: Path) -> None:
    for below in sorted(path.rglob("*"), reverse=True) if path.is_dir() and not path.is_symlink() else ():
        below.rmdir() if below.is_dir() and not below.is_symlink() else below.unlink()
    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def swapped(random: Random, scene: Scene) -> str:
    """A file in the place of another of its name or kind, of another step, rank or array; or both change places."""
    path = random.choice(scene.files())
    like = [one for one in scene.files() if one != path and (one.name == path.name or one.suffix == path.suffix)]
    other = random.choice(like or [path])
    one, two = path.read_bytes(), other.read_bytes()
    rewritten(path, two)
    if random.random() < 0.5:
        rewritten(other, one)
    return f"{other.relative_to(scene.root)} in the place of {path.relative_to(scene.root)}"


def folder_for_file(random: Random, scene: Scene) -> str:
    path = random.choice(scene.files())
    path.unlink()
    path.mkdir()
    return f"a directory for {path.relative_to(scene.root)}"


def file_for_folder(random: Random, scene: Scene) -> str:
    path = random.choice(scene.folders())
    _remove(path)
    path.write_bytes(random.choice((b"", b"x")))
    return f"a file for {path.relative_to(scene.root)}"


def link(random: Random, scene: Scene) -> str:
    """A symbolic link in the place of a file or a directory."""
    path = random.choice(scene.files() + scene.folders())
    inside = random.choice(scene.files() + scene.folders())
    targets = (
        *([scene.outside, *sorted(scene.outside.iterdir())] if scene.outside else []), path, path.parent, "/dev/zero", "/dev/null", "/dev/tty", "/proc/self/mem", "nowhere", "..", inside,
    )  # fmt: skip
    target = random.choice(targets)
    _remove(path)
    path.symlink_to(target)
    return f"{path.relative_to(scene.root)} is a link to {target}"


def pipe(random: Random, scene: Scene) -> str:
    """A FIFO in the place of a file: who opens it waits for ever. One that a user names is read, as a shell's ``<(…)`` is."""
    if scene.outside is None:
        return empty(random, scene)
    path = random.choice(scene.files())
    path.unlink()
    os.mkfifo(path)
    return f"a FIFO for {path.relative_to(scene.root)}"


def empty(random: Random, scene: Scene) -> str:
    path = random.choice(scene.files())
    rewritten(path, b"")
    return f"{path.relative_to(scene.root)} is empty"


def sparse(random: Random, scene: Scene) -> str:
    """A file with a hole of gigabytes behind what it held."""
    path = random.choice(scene.files())
    rewritten(path, path.read_bytes())
    os.truncate(path, random.choice((1 << 31, 1 << 33, 1 << 40)))
    return f"{path.relative_to(scene.root)} goes on for ever"


def renamed(random: Random, scene: Scene) -> str:
    """A file or directory under a name that is nearly one of ours, or none at all."""
    path = random.choice(scene.files() + scene.folders()[1:])
    names = (b"step_-1", b"step_01", b"step_1e3", b"step_99999999999999999999", b"step_", b"rank_-1", b"rank_00", b"rank_7", b"rank_99999999999", b"rank_1.json", b"rank_00.json", b"rank_.json",
             b"\xff\xfe", b"a\nb", b"\x1b[31m", b"x" * 255, b" ", "step_\u0661".encode(), "step_\u00b2".encode(), MARKUP.encode(), b"model.safetensors", b"[bold]")  # fmt: skip
    name = random.choice(names)
    os.rename(path, os.path.join(os.fsencode(path.parent), name)) if not _taken(path, name) else None
    return f"{path.relative_to(scene.root)} is called {name[:40]!r}"


def _taken(path: Path, name: bytes) -> bool:
    return os.path.lexists(os.path.join(os.fsencode(path.parent), name))


def copied(random: Random, scene: Scene) -> str:
    """A directory a second time, as another step or rank."""
    path = random.choice(scene.folders()[1:] or scene.folders())
    name = random.choice(("step_3", "step_7", "rank_1", "rank_5", "step_1000000000000", "more"))
    for file in sorted(path.rglob("*")):
        place = path.parent / name / file.relative_to(path)
        if file.is_file() and not file.is_symlink() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            os.link(file, place)
    return f"{path.relative_to(scene.root)} again as {name}"


def deep(random: Random, scene: Scene) -> str:
    """Directories in directories, more of them than a stack is deep."""
    place = random.choice(scene.folders())
    levels, name = random.choice(((10, "a"), (1_500, "a"), (100, "step_9")))
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(place)
        for _ in range(levels):
            Path(name).mkdir(exist_ok=True)
            os.chdir(name)
        Path("tokens.npy").write_bytes(b"x")
    finally:
        os.fchdir(here)
        os.close(here)
    return f"{levels} directories in {place.relative_to(scene.root)}"


def unreadable(random: Random, scene: Scene) -> str:
    """A file or directory without permissions; for root they are no hindrance."""
    path = random.choice(scene.files() + scene.folders()[1:])
    if path.is_file():
        rewritten(path, path.read_bytes())
    path.chmod(0)
    return f"{path.relative_to(scene.root)} may not be read"


STRUCTURE = (removed, removed, swapped, swapped, folder_for_file, file_for_folder, link, link, link, pipe, empty, sparse, renamed, copied, deep, unreadable)  # fmt: skip


FOLDERS = (file_for_folder, copied, deep)
"""Those that take a directory."""


def mutate(random: Random, scene: Scene) -> list[str]:
    """Do one thing to a seed, or a few; returns what was done."""
    done = []
    for _ in range(random.choice((1, 1, 1, 1, 2, 3))):
        if not scene.files():
            break
        kind = content if random.random() < 0.75 else random.choice(STRUCTURE)
        done.append((content if kind in FOLDERS and not scene.folders() else kind)(random, scene))
    return done
