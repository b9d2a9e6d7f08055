"""Norms that msprobe's monitor wrote, of either version: put to names and steps, compared, and refused where they say too little."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from align_hooks import Run, open_run
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import Status
from align_hooks.errors import RecordError
from align_hooks.evidence.monitor import convert_monitored, is_monitored, read_monitored
from comparison.conftest import stage
from synthetic import NAMES, Synthetic, whole_shards

FUSED = "decoder.layers.0.self_attention.linear_qkv.weight"
VERSIONS = (1, 2)


@pytest.fixture
def names(tmp_path: Path) -> Run:
    return open_run(Synthetic().write(tmp_path / "names"))


def monitored(where: Path, version: int, norms: dict[str, float], step: int = 0, stage: str = "0") -> Path:
    """One step's file, in the form of a version of the monitor."""
    where.mkdir(parents=True, exist_ok=True)
    if version == 1:
        head = "vpp_stage,name,step,norm,shape,dtype"
        rows = [f'{stage},module.module.{name},{step},{round(norm, 6)},"[2, 2]",torch.float32' for name, norm in norms.items()]
        (where / f"grad_reduced_{step}-{step}.csv").write_text("\n".join([head, *rows]) + "\n")
        (where / f"grad_unreduced_{step}-{step}.csv").write_text(f"{head}\n0,module.other,{step},7.0,[2],torch.float32\n")
    else:
        rows = [f"{stage},{step},0:module.{name},unreduced,1,7.0" for name in norms]
        rows += [f"{stage},{step},0:module.{name},reduced,1,{float(np.float32(norm))!r}" for name, norm in norms.items()]
        file = where / f"weight_grad_step{step}-{step}.csv"
        file.write_text("\n".join(["vpp_stage,step,module_name,scope,micro_step,norm", *rows]) + "\n")
    return where


def of(names: Run, step: int = 0) -> dict[str, float]:
    """The norms of a record by the framework's names."""
    return {shard.native: names.local_norms(step)[shard.name] for shard in names.shards(0)}


def converted(source: Path, names: Run | None, **options: str) -> tuple[Run, Sequence[str]]:
    """The record of what was monitored, and the notes."""
    scalars, steps = convert_monitored(source, source / "run", names and names.path, **options)
    run = open_run(source / "run")
    assert steps == run.local_norm_steps()
    return run, scalars.notes


@pytest.mark.parametrize("version", VERSIONS)
def test_each_norm_is_put_to_its_name_and_step(tmp_path: Path, names: Run, version: int) -> None:
    for step in names.steps:
        monitored(tmp_path / ("Nov25_10-00-00-rank0-abc" if version == 1 else "rank_0"), version, of(names, step), step)
    run, _ = converted(tmp_path, names)
    assert (run.facts.side, run.local_norm_steps(), run.problems) == ("torch", names.steps, [])
    for step in names.steps:
        assert run.local_norms(step) == pytest.approx(names.local_norms(step), rel=run.facts.resolution["local_norms"] + 1e-7)
        total = math.hypot(*names.local_norms(step).values())
        assert run.scalars()[step]["grad_norm"] == pytest.approx(total, abs=run.facts.resolution["grad_norm"] + 1e-6)


@pytest.mark.parametrize("version", VERSIONS)
def test_they_are_judged_like_those_of_a_record(tmp_path: Path, names: Run, version: int) -> None:
    norms = of(names)
    largest = max(norms)
    for factor, status in ((1, Status.SAME), (1.01, Status.DIFFERENT)):
        run, _ = converted(monitored(tmp_path / str(factor), version, norms | {largest: norms[largest] * factor}), names)
        assert stage(compare(names, run), "local norms").status is status


def test_the_norm_of_a_fused_parameter_is_in_the_global_norm_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of the other run's parameters still compares."""
    pieces = NAMES[:2]
    table = [replace(shard, native=FUSED) if shard.name in pieces else shard for shard in whole_shards()]
    monkeypatch.setattr("synthetic.whole_shards", lambda *_: table)
    named = open_run(Synthetic().write(tmp_path / "names"))
    ours = named.local_norms(0)
    norms = {FUSED: math.hypot(*(ours[name] for name in pieces))} | {name: ours[name] for name in NAMES[2:]}
    run, notes = converted(monitored(tmp_path / "monitor", 2, norms), named)
    assert list(run.local_norms(0)) == NAMES[2:]
    assert any(FUSED in note for note in notes)
    assert run.scalars()[0]["grad_norm"] == pytest.approx(math.hypot(*ours.values()))
    comparison = compare(named, run)
    assert [stage(comparison, name).status for name in ("match", "local norms")] == [Status.SAME, Status.SAME]


def test_without_names_there_is_the_global_norm(tmp_path: Path, names: Run) -> None:
    source = monitored(tmp_path / "monitor", 1, of(names))
    with pytest.raises(RecordError, match="--side torch or --side ms"):
        convert_monitored(source, tmp_path / "run")
    run, _ = converted(source, None, side="ms")
    assert (run.local_norm_steps(), run.facts.side) == ([], "ms")
    total = math.hypot(*names.local_norms(0).values())
    assert run.scalars()[0]["grad_norm"] == pytest.approx(total, abs=run.facts.resolution["grad_norm"])


def test_norms_of_too_few_digits_are_left_out_and_said(tmp_path: Path, names: Run) -> None:
    norms = of(names)
    small = min(norms)
    run, notes = converted(monitored(tmp_path / "monitor", 1, norms | {small: 3e-5}), names)
    assert len(run.local_norms(0)) == len(norms) - 1
    assert any(small in note for note in notes)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_norm_of_zero_is_kept_and_one_whose_square_is_none_is_left_out(tmp_path: Path, names: Run, version: int) -> None:
    zero, tiny = sorted(of(names))[:2]
    source = monitored(tmp_path / "monitor", version, of(names) | {zero: 0.0})
    for file in source.glob("*.csv"):
        file.write_text(re.sub(rf"(?m)^(.*{re.escape(tiny)},(?:reduced,1|0),)[^,\n]+", r"\g<1>1e-200", file.read_text()))
    run, notes = converted(source, names)
    by_native = {shard.native: shard.name for shard in names.shards(0)}
    assert run.local_norms(0)[by_native[zero]] == 0.0
    assert by_native[tiny] not in run.local_norms(0)
    assert any("1 norms are too small" in note for note in notes)


def test_ranks_that_hold_the_same_are_one(tmp_path: Path, names: Run) -> None:
    for rank in range(2):
        monitored(tmp_path / "monitor" / f"rank_{rank}", 2, of(names))
    assert is_monitored(tmp_path / "monitor")
    assert read_monitored(tmp_path / "monitor").norms.keys() == {0}
    monitored(tmp_path / "monitor" / "rank_1", 2, {name: norm + 1 for name, norm in of(names).items()})
    with pytest.raises(RecordError, match="a part of the model"):
        read_monitored(tmp_path / "monitor")


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("vpp_stage,name,step,norm\n1,module.x,0,1.0\n", r"grad_reduced_0-0\.csv:2 is of a virtual pipeline stage"),
        ("vpp_stage,name,step,mean\n0,module.x,0,1.0\n", "no column of norms"),
        ("vpp_stage,name,step,norm\n0,module.x,0,much\n", "cannot be read"),
        ("vpp_stage,name,step,norm\n0,module.x,-1,1.0\n", "cannot be read"),
        (f"vpp_stage,name,step,norm\n0,module.x,{'9' * 30},1.0\n", "cannot be read"),
        ("vpp_stage,name,step,norm\n0,module.x,,1.0\n", "cannot be read"),
    ],
)
def test_what_says_too_little_is_refused_by_file_and_line(tmp_path: Path, table: str, why: str) -> None:
    (tmp_path / "grad_reduced_0-0.csv").write_text(table)
    with pytest.raises(RecordError, match=why):
        read_monitored(tmp_path)


def test_a_step_twice_and_another_models_norms_are_refused(tmp_path: Path, names: Run) -> None:
    norms = of(names)
    twice = monitored(tmp_path / "twice", 1, norms)
    (twice / "grad_reduced_0-5.csv").write_text((twice / "grad_reduced_0-0.csv").read_text())
    with pytest.raises(RecordError, match="twice"):
        read_monitored(twice)
    for number, (other, why) in enumerate(((dict([*norms.items()][1:]), "trains"), (norms | {"other": 1.0}, "which the model of"))):
        with pytest.raises(RecordError, match=why):
            converted(monitored(tmp_path / str(number), 2, other), names)
