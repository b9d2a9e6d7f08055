"""Dumps that msprobe and MindSpore make of the runs of the pair, read, compared with each other, and held against our own records."""

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.cli import app
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import Status
from align_hooks.evidence.dumps.record import convert_dump, read_dump
from align_hooks.evidence.dumps.values import PointValue, points_of
from align_hooks.evidence.monitor import convert_monitored
from align_hooks.names.points import GRADIENT, in_order
from comparison.conftest import stage
from invoked import invoke
from real import frameworks

CLOSE = 2e-6
"""Relative error of a value between the frameworks, in fp32: at most 9e-7 was measured."""
msprobe = pytest.mark.skipif(importlib.util.find_spec("msprobe") is None, reason="mindstudio-probe is not installed")


@pytest.fixture(scope="module")
def mindspore_dump(reference: Path) -> Path:
    """MindSpore's dump of the first step of MindFormers on the reference's weights and batches, asked for by our own command."""

    def dumped(where: Path, reference: Path) -> None:
        frameworks.mindformers(where, environment=configured(where, "0", "all"), **frameworks.fed_by(reference)).succeeded()

    return frameworks.derived(dumped, reference) / "dump"


@pytest.fixture(scope="module")
def recorded(reference: Path) -> Path:
    """Our own record of the activations of Megatron's first step."""
    asked = {"RUN": "run", "ACTIVATIONS": "0", "ACTIVATIONS_TENSORS": "*"}
    return frameworks.kept(frameworks.megatron, **asked, **frameworks.fed_by(reference)).run


def configured(where: Path, steps: str, layers: str, *options: str) -> dict[str, str]:
    """The environment in which MindSpore dumps into a folder, as our own command configures it."""
    file = where / "dump.json"
    succeeded("dump-config", "--out", file, "--to", where / "dump", "--steps", steps, "--layers", layers, *options)
    return {"MINDSPORE_DUMP_CONFIG": str(file)}


def succeeded(*words: object) -> None:
    """Run a command of ours, which must exit with 0."""
    done = invoke(app, [*map(str, words)])
    assert done.exit_code == 0, done.output


def named(path: Path) -> dict[tuple[str, bool], PointValue]:
    return {(value.point, value.gradient): value for value in points_of(read_dump(path)).values}


def error(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.linalg.norm(ours.astype(float) - theirs) / np.linalg.norm(theirs))


def same(reference: Path, candidate: Path, name: str = "activations") -> int:
    """How many points of two records agree; asserts that all do that both have."""
    compared = stage(compare(open_run(reference), open_run(candidate)), name)
    assert compared.status is Status.SAME, compared.summary
    first, second = (open_run(run).activations(0) for run in (reference, candidate))
    return len([point for point in first if point in second.names and point.endswith(GRADIENT) is (name != "activations")])


@pytest.mark.slow
def test_a_dump_of_mindspore_has_what_megatron_was_recorded_with(mindspore_dump: Path, recorded: Path, tmp_path: Path) -> None:
    converted = convert_dump(mindspore_dump, tmp_path / "run")
    assert (converted.tool, converted.points, converted.gradients, converted.statistics) == ("MindSpore", 31, 0, 0)
    activations = open_run(recorded).activations(0)
    for (point, _), value in named(mindspore_dump).items():
        assert error(value.read(), activations.tensor(point)) < CLOSE, point
    assert same(recorded, tmp_path / "run") == 31


@pytest.mark.slow
def test_a_fault_shows_at_its_point(mindspore_dump: Path, recorded: Path, tmp_path: Path) -> None:
    """Of a dump in which one layer's attention was calculated otherwise: its values, and those of all that is behind it, are the negatives
    of what they were."""
    dump = shutil.copytree(mindspore_dump, tmp_path / "dump")
    values = points_of(read_dump(dump)).values
    ordered = in_order([value.point for value in values])
    behind = ordered[ordered.index("model.layers.1.self_attn.o_proj") :]
    for value in values:
        if value.point in behind:
            (part,) = value.parts
            assert part.tensor is not None
            part.tensor.chmod(0o600)
            np.save(part.tensor, -np.load(part.tensor))
    convert_dump(dump, tmp_path / "run")
    found = stage(compare(open_run(recorded), open_run(tmp_path / "run")), "activations")
    assert found.status is Status.DIFFERENT
    assert [origin.name for origin in found.origins] == ["model.layers.1.self_attn.o_proj"]


@pytest.mark.slow
def test_mindspore_dumps_the_layers_and_steps_that_were_asked_for(reference: Path, tmp_path: Path) -> None:
    asked = configured(tmp_path, "1-2", "1")
    frameworks.mindformers(tmp_path / "run", environment=asked, **frameworks.fed_by(reference)).succeeded()
    dump = read_dump(tmp_path / "dump")
    assert {entry.step for entry in dump.entries} == {1, 2}
    points = {value.point for value in points_of(dump).values}
    assert {"model.embed_tokens", "model.layers.1.mlp.down_proj", "model.norm", "lm_head"} < points
    assert not any(point.startswith("model.layers.0") for point in points)


@pytest.mark.slow
def test_a_cpu_makes_no_statistics(reference: Path, tmp_path: Path) -> None:
    """What ``docs/dumps.md`` says of it; a release that does shows here."""
    asked = configured(tmp_path, "0", "all", "--statistics")
    done = frameworks.mindformers(tmp_path / "run", environment=asked, **frameworks.fed_by(reference))
    assert done.code != 0
    assert "storing statistic dump is only supported on GPU and Ascend" in done.output


def of_msprobe(level: str, task: str, reference: Path) -> Path:
    """What msprobe dumps of Megatron's first step on the reference's weights and batches."""
    return frameworks.derived(dumped_by_msprobe, level, task, reference) / "dump"


def dumped_by_msprobe(where: Path, level: str, task: str, reference: Path) -> None:
    where.mkdir()
    chosen = {"scope": [], "list": [], "data_mode": ["all"]}
    config = {"task": task, "dump_path": str(where / "dump"), "rank": [], "step": [0], "level": level, "async_dump": False}
    (where / "config.json").write_text(json.dumps(config | {"statistics": chosen | {"summary_mode": "statistics"}, "tensor": chosen}))
    given = {"script": frameworks.SCRIPTS / "dump_pretrain.py", "environment": {"MSPROBE_CONFIG": str(where / "config.json")}}
    frameworks.megatron(where, **given, **frameworks.fed_by(reference)).succeeded()


@msprobe
@pytest.mark.slow
@pytest.mark.parametrize(("level", "task"), [("L0", "statistics"), ("L0", "tensor"), ("mix", "tensor")])
def test_a_dump_of_msprobe_has_what_we_record(level: str, task: str, reference: Path, recorded: Path, tmp_path: Path) -> None:
    dump = of_msprobe(level, task, reference)
    converted = convert_dump(dump, tmp_path / "run")
    whole = task == "tensor"
    assert (converted.points, converted.gradients, converted.statistics) == ((38, 34, 0) if whole else (28, 24, 52))
    assert (same(recorded, tmp_path / "run"), same(recorded, tmp_path / "run", "activation gradients")) == ((38, 34) if whole else (28, 24))
    if whole:
        activations = open_run(recorded).activations(0)
        for (point, gradient), value in named(dump).items():
            if point != "token_losses":
                assert error(value.read(), activations.tensor(point + GRADIENT * gradient)) < CLOSE, point


@pytest.mark.slow
@msprobe
def test_dumps_of_both_tools_are_compared(reference: Path, mindspore_dump: Path, tmp_path: Path) -> None:
    """By the commands alone, as a user has them."""
    dump = of_msprobe("L0", "tensor", reference)
    for source, run in ((dump, "torch"), (mindspore_dump, "ms")):
        succeeded("convert", source, tmp_path / run)
    succeeded("compare", tmp_path / "torch", tmp_path / "ms")
    succeeded("show", tmp_path / "ms", "--verify")


@pytest.mark.slow
@msprobe
def test_the_golden_dumps_are_what_msprobe_writes_now(tmp_path: Path) -> None:
    """The names of its entries, for a torch model; values are drawn anew."""
    from evidence.dumps import make

    written = make.made(make.TORCH, "statistics", tmp_path)
    now, golden = (next(step.glob("*/dump.json")) for step in (written, make.GOLDEN / "torch_statistics" / "step0"))
    ours, theirs = (json.loads(file.read_text()) for file in (now, golden))
    assert ours["data"].keys() == theirs["data"].keys()


@pytest.mark.slow
def test_the_gradients_that_the_guide_saves_are_those_of_the_record(reference: Path, tmp_path: Path) -> None:
    given = {"script": frameworks.SCRIPTS / "guide_gradients.py", "environment": {"GRADIENTS": "gradients"}}
    saved = frameworks.kept(frameworks.megatron, **given, **frameworks.fed_by(reference)).where / "gradients"
    folder = Path(shutil.copytree(saved, tmp_path / "gradients"))
    succeeded("convert", folder, tmp_path / "run", "--names", reference)
    recorded, converted = open_run(reference).gradients(0), open_run(tmp_path / "run").gradients(0)
    assert set(recorded) == set(converted)
    assert [name for name in recorded if not np.array_equal(recorded[name], converted[name])] == []
    assert stage(compare(open_run(reference), open_run(tmp_path / "run")), "gradients").status is Status.SAME
    (folder / "grad_3.npy").unlink()
    done = invoke(app, ["convert", str(folder), str(tmp_path / "other"), "--names", str(reference)])
    assert "grad_3.npy is missing" in str(done.exception)


@msprobe
@pytest.mark.slow
@pytest.mark.parametrize("version", ["1", "2"])
def test_the_norms_of_msprobes_monitor_are_ours(tmp_path: Path, version: str) -> None:
    """Its first version rounds to six decimals, by which limits are wider; the second has all digits."""
    given = {"script": frameworks.SCRIPTS / "monitored_pretrain.py", "environment": {"OUT": str(tmp_path / "monitor"), "MONITOR": version}}
    run = tmp_path / "run"
    frameworks.megatron(tmp_path, **given, RUN=run, LOCAL_NORMS="all", DETERMINISTIC="1").succeeded()
    convert_monitored(tmp_path / "monitor", tmp_path / "monitored", run)
    ours, theirs = open_run(run), open_run(tmp_path / "monitored")
    assert theirs.steps == ours.steps
    for step in ours.steps:
        norms = {name: norm for name, norm in ours.local_norms(step).items() if name in theirs.local_norms(step)}
        assert len(norms) == 11
        assert theirs.local_norms(step) == pytest.approx(norms, rel=theirs.facts.resolution["local_norms"] + 3e-7)
    assert stage(compare(ours, theirs), "local norms").status is Status.SAME
