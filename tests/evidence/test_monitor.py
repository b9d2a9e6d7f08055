"""Norms that msprobe's monitor wrote, of either version: put to names and steps, compared, and refused where they say too little."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from align_hooks import Run, open_run
from align_hooks.comparison.runs import compare
from align_hooks.comparison.verdict import Status
from align_hooks.errors import RecordError
from align_hooks.evidence.monitor import convert_monitored, is_monitored, read_monitored
from comparison.conftest import stage
from synthetic import NAMES, Synthetic, whole_shards

FUSED = "decoder.layers.0.self_attention.linear_qkv.weight"
VERSIONS = (1, 2)


@pytest.fixture
def names(tmp_path: Path) -> Run:
    Synthetic().write(tmp_path / "names")
    return open_run(tmp_path / "names")


def monitored(where: Path, version: int, norms: dict[str, float], step: int = 0, stage: str = "0") -> Path:
    """One step's file, in the form of a version of the monitor."""
    where.mkdir(parents=True, exist_ok=True)
    if version == 1:
        lines = ["vpp_stage,name,step,norm,shape,dtype"]
        lines += [f'{stage},module.module.{name},{step},{round(norm, 6)},"[2, 2]",torch.float32' for name, norm in norms.items()]
        (where / f"grad_reduced_{step}-{step}.csv").write_text("\n".join(lines) + "\n")
        (where / f"grad_unreduced_{step}-{step}.csv").write_text("\n".join([lines[0], f"0,module.other,{step},7.0,[2],torch.float32\n"]))
    else:
        lines = ["vpp_stage,step,module_name,scope,micro_step,norm"]
        lines += [f"{stage},{step},0:module.{name},unreduced,1,7.0" for name in norms]
        lines += [f"{stage},{step},0:module.{name},reduced,1,{float(np.float32(norm))!r}" for name, norm in norms.items()]
        (where / f"weight_grad_step{step}-{step}.csv").write_text("\n".join(lines) + "\n")
    return where


def of(names: Run, step: int) -> dict[str, float]:
    """The norms of a record by the framework's names."""
    return {shard.native: names.local_norms(step)[shard.name] for shard in names.shards(0)}


def written(where: Path, version: int, names: Run) -> Path:
    rank = where / ("Nov25_10-00-00-rank0-abc" if version == 1 else "rank_0")
    for step in names.steps:
        monitored(rank, version, of(names, step), step)
    return where


@pytest.mark.parametrize("version", VERSIONS)
def test_each_norm_is_put_to_its_name_and_step(tmp_path: Path, names: Run, version: int) -> None:
    source = written(tmp_path / "monitor", version, names)
    scalars, steps = convert_monitored(source, tmp_path / "run", names.path)
    run = open_run(tmp_path / "run")
    assert (scalars.side, steps, run.problems) == ("torch", names.steps, [])
    for step in steps:
        assert run.local_norms(step) == pytest.approx(names.local_norms(step), rel=run.facts.resolution["local_norms"] + 1e-7)
        total = math.sqrt(sum(norm**2 for norm in names.local_norms(step).values()))
        assert run.scalars()[step]["grad_norm"] == pytest.approx(total, abs=run.facts.resolution["grad_norm"] + 1e-6)


@pytest.mark.parametrize("version", VERSIONS)
def test_they_are_judged_like_those_of_a_record(tmp_path: Path, names: Run, version: int) -> None:
    norms = of(names, 0)
    honest = monitored(tmp_path / "honest", version, norms)
    wrong = monitored(tmp_path / "wrong", version, {name: norm * (1.01 if name == max(norms) else 1) for name, norm in norms.items()})
    for source, status in ((honest, Status.SAME), (wrong, Status.DIFFERENT)):
        convert_monitored(source, source / "run", names.path)
        assert stage(compare(names, open_run(source / "run")), "local norms").status is status


def test_the_norm_of_a_fused_parameter_is_in_the_global_norm_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of the other run's parameters still compares."""
    pieces = NAMES[:2]
    table = [replace(shard, native=FUSED) if shard.name in pieces else shard for shard in whole_shards()]
    monkeypatch.setattr("synthetic.whole_shards", lambda *_: table)
    Synthetic().write(tmp_path / "names")
    named = open_run(tmp_path / "names")
    ours = named.local_norms(0)
    norms = {FUSED: math.hypot(*(ours[name] for name in pieces))} | {name: ours[name] for name in NAMES[2:]}
    scalars, _ = convert_monitored(monitored(tmp_path / "monitor", 2, norms), tmp_path / "run", named.path)
    run = open_run(tmp_path / "run")
    assert list(run.local_norms(0)) == NAMES[2:]
    assert any(FUSED in note for note in scalars.notes)
    assert run.scalars()[0]["grad_norm"] == pytest.approx(math.hypot(*ours.values()))
    comparison = compare(named, run)
    assert [stage(comparison, name).status for name in ("match", "local norms")] == [Status.SAME, Status.SAME]


def test_without_names_there_is_the_global_norm(tmp_path: Path, names: Run) -> None:
    source = monitored(tmp_path / "monitor", 1, of(names, 0))
    with pytest.raises(RecordError, match="--side torch or --side ms"):
        convert_monitored(source, tmp_path / "run")
    _, steps = convert_monitored(source, tmp_path / "run", side="ms")
    run = open_run(tmp_path / "run")
    assert (steps, run.local_norm_steps(), run.facts.side) == ([], [], "ms")
    total = math.hypot(*names.local_norms(0).values())
    assert run.scalars()[0]["grad_norm"] == pytest.approx(total, abs=run.facts.resolution["grad_norm"])


def test_norms_of_too_few_digits_are_left_out_and_said(tmp_path: Path, names: Run) -> None:
    norms = of(names, 0)
    small = min(norms)
    scalars, _ = convert_monitored(monitored(tmp_path / "monitor", 1, norms | {small: 3e-5}), tmp_path / "run", names.path)
    assert len(open_run(tmp_path / "run").local_norms(0)) == len(norms) - 1
    assert any(small in note for note in scalars.notes)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_norm_of_zero_is_kept_and_one_whose_square_is_none_is_left_out(tmp_path: Path, names: Run, version: int) -> None:
    norms = of(names, 0)
    zero, tiny = sorted(norms)[:2]
    source = monitored(tmp_path / "monitor", version, norms | {zero: 0.0})
    for file in source.glob("*.csv"):
        file.write_text(re.sub(rf"(?m)^(.*{re.escape(tiny)},(?:reduced,1|0),)[^,\n]+", r"\g<1>1e-200", file.read_text()))
    scalars, _ = convert_monitored(source, tmp_path / "run", names.path)
    kept = open_run(tmp_path / "run").local_norms(0)
    by_native = {shard.native: shard.name for shard in names.shards(0)}
    assert kept[by_native[zero]] == 0.0
    assert by_native[tiny] not in kept
    assert any("1 norms are too small" in note for note in scalars.notes)


def test_ranks_that_hold_the_same_are_one(tmp_path: Path, names: Run) -> None:
    for rank in range(2):
        monitored(tmp_path / "monitor" / f"rank_{rank}", 2, of(names, 0))
    assert is_monitored(tmp_path / "monitor")
    assert read_monitored(tmp_path / "monitor").norms.keys() == {0}
    monitored(tmp_path / "monitor" / "rank_1", 2, {name: norm + 1 for name, norm in of(names, 0).items()})
    with pytest.raises(RecordError, match="a part of the model"):
        read_monitored(tmp_path / "monitor")


def test_what_says_too_little_is_refused_by_file_and_line(tmp_path: Path, names: Run) -> None:
    norms = of(names, 0)
    virtual = monitored(tmp_path / "virtual", 1, norms, stage="1")
    with pytest.raises(RecordError, match=r"grad_reduced_0-0\.csv:2 is of a virtual pipeline stage"):
        read_monitored(virtual)
    twice = monitored(tmp_path / "twice", 1, norms)
    (twice / "grad_reduced_0-5.csv").write_text((twice / "grad_reduced_0-0.csv").read_text())
    with pytest.raises(RecordError, match="twice"):
        read_monitored(twice)
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "grad_reduced_0-0.csv").write_text("vpp_stage,name,step,mean\n0,module.x,0,1.0\n")
    with pytest.raises(RecordError, match="no column of norms"):
        read_monitored(bare)
    for step, norm in (("0", "much"), ("-1", "1.0"), ("9" * 30, "1.0"), ("", "1.0")):
        (bare / "grad_reduced_0-0.csv").write_text(f"vpp_stage,name,step,norm\n0,module.x,{step},{norm}\n")
        with pytest.raises(RecordError, match="cannot be read"):
            read_monitored(bare)
    with pytest.raises(RecordError, match="trains"):
        convert_monitored(monitored(tmp_path / "less", 2, dict(list(norms.items())[1:])), tmp_path / "run", names.path)
    with pytest.raises(RecordError, match="which the model of"):
        convert_monitored(monitored(tmp_path / "more", 2, norms | {"other": 1.0}), tmp_path / "run", names.path)
