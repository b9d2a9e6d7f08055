"""Dumps with bytes, lines and files changed at random: each is read, or refused in one line; nothing else comes of it."""

import shutil
from pathlib import Path
from random import Random

import pytest

from align_hooks.errors import AlignHooksError
from align_hooks.evidence.dumps.record import read_dump
from align_hooks.evidence.dumps.values import points_of
from evidence.dumps.operators import write
from fuzz.contents import ANY, BY_KIND
from fuzz.mutations import rewritten

GOLDEN = Path(__file__).parent / "golden"
TIMES = 60


@pytest.mark.parametrize("seed", ["torch_tensor", "torch_statistics", "mindspore_tensor", "operators"])
def test_whatever_is_changed_it_is_read_or_refused_in_a_line(seed: str, tmp_path: Path) -> None:
    random = Random(seed)
    source = GOLDEN / seed if seed != "operators" else write(tmp_path / "seed", hide=True).path
    said: list[str] = []
    for number in range(TIMES):
        dump = shutil.copytree(source, tmp_path / str(number))
        files = sorted(file for file in dump.rglob("*") if file.is_file())
        texts = [file for file in files if file.suffix in (".json", ".csv")]
        file = random.choice(texts if random.random() < 0.6 else files)
        if random.random() < 0.1:
            file.unlink()
        else:
            rewritten(file, random.choice(BY_KIND.get(file.suffix, ANY))(random, file.read_bytes()))
        try:
            [value.read() if value.has_numbers else value.parts for value in points_of(read_dump(dump)).values]
        except AlignHooksError as error:
            said.append(str(error))
        shutil.rmtree(dump)
    assert [line for line in said if "\n" in line] == []
    assert 0 < len(said) < TIMES
