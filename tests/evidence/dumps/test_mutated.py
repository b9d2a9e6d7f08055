"""Dumps with bytes, lines and files changed at random: each is read, or refused in one line; nothing else comes of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from align_hooks.errors import AlignHooksError
from align_hooks.evidence.dumps.read import read_dump
from align_hooks.evidence.dumps.values import points_of
from evidence.dumps.operators import write

GOLDEN = Path(__file__).parent / "golden"
TIMES = 60


def bytes_changed(random: Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(random.randint(1, 8)):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def cut(random: Random, content: bytes) -> bytes:
    return content[: random.randrange(len(content))]


def token_changed(random: Random, content: bytes) -> bytes:
    tokens = [b"[", b"{", b'"', b"null", b"-1", b"1e999", b"NaN", b"true", b"[]", b"{}", b",", b"\n", b"\xff", b"9" * 30]
    at = random.randrange(len(content))
    return content[:at] + random.choice(tokens) + content[at + random.randint(0, 6) :]


def emptied(random: Random, content: bytes) -> bytes:
    return b""


CHANGES: tuple[Callable[[Random, bytes], bytes], ...] = (bytes_changed, cut, token_changed, token_changed, emptied)


@pytest.mark.parametrize("seed", ["torch_tensor", "torch_statistics", "mindspore_tensor", "operators"])
def test_whatever_is_changed_it_is_read_or_refused_in_a_line(seed: str, tmp_path: Path) -> None:
    random = Random(seed)
    source = GOLDEN / seed if seed != "operators" else write(tmp_path / "seed", hide=True).path
    said: list[str] = []
    for number in range(TIMES):
        dump = shutil.copytree(source, tmp_path / str(number))
        files = sorted(file for file in dump.rglob("*") if file.is_file())
        texts = [file for file in files if file.suffix in (".json", ".csv")]
        for file in random.sample(texts if random.random() < 0.6 else files, 1):
            if random.random() < 0.1:
                file.unlink()
            else:
                file.write_bytes(random.choice(CHANGES)(random, file.read_bytes()))
        try:
            [value.read() if value.whole else value.parts for value in points_of(read_dump(dump)).values]
        except AlignHooksError as error:
            said.append(str(error))
        shutil.rmtree(dump)
    assert [line for line in said if "\n" in line] == []
    assert 0 < len(said) < TIMES
