"""What recording needs against what is free."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from align_hooks.doctor.size import Size, billions, disk, memory, planned, unknown
from align_hooks.settings import Settings
from synthetic import settings

Free = Callable[..., None]
SEVEN = Size(7_000_000_000, 65536, 10, 2, "llama.yaml")


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Free:
    def set_free(size: float, pages: float = 1e12) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=int(size)))
        monkeypatch.setattr(os, "sysconf", lambda name: 1 if name == "SC_PAGE_SIZE" else int(pages))

    return set_free


def test_sets_of_tensors_and_batches_are_counted(tmp_path: Path, free: Free) -> None:
    free(1e12)
    asked = settings(run=tmp_path / "run", gradients="0-2", weights="0,10", optimizer_state="1", batches="all")
    # 3 gradients, 2 weights, 2 moments of one state; 10 batches of 65536 tokens
    needed = "recording takes 196 GB (7 times 7 G parameters in fp32, 10 batches of 65536 tokens; llama.yaml)"
    assert disk(asked, SEVEN) == (f"{tmp_path} has 1 TB free; {needed}", "")


def test_the_experts_of_each_token_are_counted(tmp_path: Path, free: Free) -> None:
    free(1e12)
    deepseek = Size(671_000_000_000, 2**22, 10, 1, "deepseek.yaml", choices=8 * 58)
    asked = settings(run=tmp_path / "run", routing="0-1")
    assert "recording takes 7.78 GB (2 batches of 4194304 tokens; deepseek.yaml)" in disk(asked, deepseek)[0]
    free(1e9)
    assert "fewer steps in ALIGN_HOOKS_ROUTING, or another disk" in disk(asked, deepseek)[1]


def test_too_little_is_a_problem_with_a_way_out(tmp_path: Path, free: Free) -> None:
    free(50e9)
    problem = disk(settings(run=tmp_path / "run", gradients="0-2"), SEVEN)[1]
    assert problem == (f"recording takes 84 GB and {tmp_path} has 50 GB free; choose fewer steps in ALIGN_HOOKS_GRADIENTS, or another disk")
    assert disk(settings(run=tmp_path / "run", gradients="0"), SEVEN)[1] == ""
    many = Size(7_000, 2**30, 10, 1, "llama.yaml")  # what takes most is named first
    problem = disk(settings(run=tmp_path / "r", gradients="0", batches="all"), many)[1]
    assert "fewer steps in ALIGN_HOOKS_BATCHES, ALIGN_HOOKS_GRADIENTS" in problem


def test_an_unknown_size_is_said_with_who_could_tell_it(tmp_path: Path, free: Free) -> None:
    free(50e9)
    asked = settings(run=tmp_path / "run", gradients="0")
    assert disk(asked, None) == (f"{tmp_path} has 50 GB free; {unknown(asked, None)}", "")
    assert unknown(asked, None).endswith("name what is to be run, or a recorded run of that model, align-hooks doctor FILE")
    bare = Size(None, 4096, 10, 1, "llama.sh")
    assert unknown(asked, bare).endswith("llama.sh does not tell the size of the model; name a recorded run of it")
    endless = Size(7_000_000_000, None, None, 1, "llama.sh")
    everything = settings(run=tmp_path / "run", gradients="all", weights="0,5")
    assert unknown(everything, endless).endswith("llama.sh does not tell how many steps are made; each takes 28 GB")
    assert unknown(settings(run=tmp_path / "run", weights="all"), endless).endswith("each takes 28 GB")
    assert unknown(everything, SEVEN) == ""
    assert unknown(settings(run=tmp_path / "run", batches="0-9"), endless).endswith("how many tokens a step has; name a recorded run of it")
    assert "no tensor and no batch" in disk(settings(run=tmp_path / "run", local_norms="all"), None)[0]
    assert (disk(Settings(), SEVEN), unknown(Settings(), None)) == (("", ""), "")


def test_what_is_known_to_be_too_much_is_a_problem_though_more_is_not_known(tmp_path: Path, free: Free) -> None:
    free(50e9)
    endless = Size(7_000_000_000, 4096, None, 1, "llama.sh")
    line, problem = disk(settings(run=tmp_path / "run", batches="all", gradients="100-200"), endless)
    assert "recording takes at least 2.83 TB (101 times 7 G parameters in fp32, 201 batches of 4096 tokens; llama.sh)" in line
    assert problem.startswith("recording takes at least 2.83 TB and")


def test_the_steps_that_are_asked_for_where_nobody_says_how_many_are_made() -> None:
    run = Path("run")
    assert planned(settings(run=run, gradients="0-4/2", weights="7"), None) == 8
    assert planned(settings(run=run, gradients="all"), None) is None
    assert planned(settings(run=run, gradients="all"), SEVEN) == 10


def test_memory_of_the_host_and_of_the_device(tmp_path: Path, free: Free) -> None:
    free(1e12, pages=20e9)
    asked, devices = settings(run=tmp_path / "run", gradients="0"), [{"name": "Ascend:0", "free": 10e9, "total": 60e9}]
    (host, fine), (device, problem) = memory("ms", asked, SEVEN, devices)
    part = "its part of 2 that tensor and pipeline parallelism make in host memory, at most 14 GB"
    assert host.startswith(f"to write tensors each rank holds {part}")
    assert (fine, device) == ("", "MindFormers keeps gradients on the device: 14 GB a rank; 10 GB are free")
    assert problem.endswith(
        "unset ALIGN_HOOKS_GRADIENTS, ALIGN_HOOKS_SKETCHES and ALIGN_HOOKS_LOCAL_NORMS, which all need it where tensors are cut"
    )
    sums = settings(run=tmp_path / "run", sketches="0", local_norms="0")
    assert [line for line, _ in memory("ms", sums, SEVEN, devices)] == [device]
    ((device, problem),) = list(memory("ms", asked, replace(SEVEN, parts=1), devices))[1:]
    assert device.startswith("MindFormers keeps gradients on the device: 28 GB a rank")
    assert problem.endswith("keep ALIGN_HOOKS_LOCAL_NORMS and ALIGN_HOOKS_SKETCHES, which need little of it")
    assert list(memory("ms", sums, replace(SEVEN, parts=1), devices)) == []
    free(1e12, pages=1e9)
    ((_, problem),) = memory("torch", asked, SEVEN, [])
    assert problem.endswith("record ALIGN_HOOKS_SKETCHES in the place of tensors, or cut the model further")
    assert list(memory("torch", settings(run=tmp_path / "run", local_norms="all"), SEVEN, [])) == []


def test_counts_as_people_write_them() -> None:
    assert [billions(count) for count in (12, 1234, 31.2e6, 7.24e9, 1.5e12)] == ["12 ", "1.23 k", "31.2 M", "7.24 G", "1.5 T"]


MEASURED = (
    # side, elements, rows, sequence, bytes: two layers, 4 sequences in micro-batches of 2 (Megatron-LM) and 4
    ("torch", 70_254_592, 64000, 128, 2.395e9),
    ("torch", 70_254_592, 64000, 512, 2.706e9),
    ("torch", 126_888_960, 256, 128, 3.552e9),
    ("ms", 70_254_592, 64000, 128, 7.362e9),
    ("ms", 70_254_592, 64000, 512, 14.376e9),
    ("ms", 126_888_960, 256, 128, 9.345e9),
)


@pytest.mark.parametrize(("side", "elements", "rows", "sequence", "taken"), MEASURED)
def test_a_rehearsal_takes_what_was_measured(free: Free, side: str, elements: int, rows: int, sequence: int, taken: float) -> None:
    size = Size(elements, 4 * sequence, 3, 1, "llama.yaml", rows=rows, micro_batch=2, sequence=sequence)
    free(1e12, pages=taken * 1.2)
    ((text, problem),) = memory(side, settings(device="cpu"), size, [])
    assert "of memory" in text and problem == ""
    free(1e12, pages=taken * 0.99)
    ((_, problem),) = memory(side, settings(device="cpu"), size, [])
    assert "make the vocabulary smaller" in problem
    assert not [*memory(side, settings(), size, [])]
