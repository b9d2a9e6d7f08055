"""Dumps that msprobe 26.2.0 made of small models (``make.py``), read; and what a damaged one is refused with."""

import json
import math
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align_hooks import Run, open_run
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import Status
from align_hooks.errors import RecordError
from align_hooks.evidence.dumps.entry import read_tensor
from align_hooks.evidence.dumps.record import convert_dump, read_dump
from align_hooks.evidence.dumps.values import DumpPoints, PointValue, points_of
from checkpoints.models import Calls
from comparison.conftest import stage
from worded import ids

GOLDEN = Path(__file__).parent / "golden"
Content = dict[str, Any]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A copy of the dump of a torch model, its tensors with it."""
    return shutil.copytree(GOLDEN / "torch_tensor", tmp_path / "dump")


def folder(dump: Path) -> Path:
    return dump / "step0" / "proc0"


def changed(dump: Path, change: Callable[[Content], object]) -> None:
    """Change ``dump.json``."""
    file = folder(dump) / "dump.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def refused(path: Path) -> str:
    """What is said of a dump, in one line that names a file or a directory of it."""
    with pytest.raises(RecordError) as caught:
        [value.read() for value in points_of(read_dump(path)).values]
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


def named(points: DumpPoints, *, gradient: bool = False) -> dict[str, PointValue]:
    return {value.point: value for value in points.values if value.gradient is gradient}


def first(data: Content) -> Content:
    """The first tensor of a dump."""
    return data["data"]["Module.model.embed_tokens.Embedding.forward.0"]["output"][0]


LAYER = "model.layers.0"
OF_LAYER = {
    **dict.fromkeys(("input", "input_layernorm", "residual", "post_attention_layernorm", "mlp.down_proj"), (2, 3, 8)),
    **dict.fromkeys(("self_attn.q_proj", "self_attn.core", "self_attn.o_proj"), (2, 3, 8)),
    **dict.fromkeys(("self_attn.k_proj", "self_attn.v_proj"), (2, 3, 4)),
    **dict.fromkeys(("mlp.gate_proj", "mlp.up_proj", "mlp.activation"), (2, 3, 6)),
}
SHAPES = dict.fromkeys(("model.embed_tokens", LAYER, "model.norm"), (2, 3, 8)) | {"lm_head": (2, 3, 16)}
SHAPES |= {f"{LAYER}.{name}": shape for name, shape in OF_LAYER.items()}


@pytest.mark.parametrize("at", ["", "step0", "step0/proc0"])
def test_a_dump_of_torch_has_the_points_of_its_model(dump: Path, at: str) -> None:
    read = read_dump(dump / at)
    points = points_of(read)
    assert (read.tool, read.side, points.framework, points.notes) == ("msprobe", "torch", "Hugging Face", ())
    assert {name: value.shape for name, value in named(points).items()} == SHAPES
    for name, value in named(points).items():
        array, said = value.read(), value.parts[0].statistics
        assert array.shape == SHAPES[name]
        assert np.linalg.norm(array) == pytest.approx(said.norm, rel=1e-6)
        assert (array.min(), array.max(), array.mean()) == pytest.approx((said.minimum, said.maximum, said.mean), rel=1e-5, abs=1e-7)


def test_values_are_those_of_one_model(dump: Path) -> None:
    arrays = {name: value.read() for name, value in named(points_of(read_dump(dump))).items()}
    of_layer = {name: arrays[f"{LAYER}.{name}"] for name in OF_LAYER}
    assert np.array_equal(of_layer["input"], arrays["model.embed_tokens"])
    assert np.allclose(of_layer["residual"], of_layer["input"] + of_layer["self_attn.o_proj"], atol=1e-7)
    assert np.allclose(arrays[LAYER], of_layer["residual"] + of_layer["mlp.down_proj"], atol=1e-7)
    gate = of_layer["mlp.gate_proj"].astype(float)
    assert np.allclose(of_layer["mlp.activation"], gate / (1 + np.exp(-gate)) * of_layer["mlp.up_proj"], atol=1e-7)


def test_gradients_are_total_and_stand_where_nothing_else_took_part(dump: Path) -> None:
    arrays = {name: value.read() for name, value in named(points_of(read_dump(dump)), gradient=True).items()}
    assert arrays.keys() == SHAPES.keys() - {f"{LAYER}.input", f"{LAYER}.residual"}  # given to a norm and to an addition
    assert np.array_equal(arrays[LAYER], arrays[f"{LAYER}.mlp.down_proj"])  # an addition hands its gradient on
    assert arrays[f"{LAYER}.self_attn.core"].any()


def test_statistics_are_enough_for_points_of_modules_of_their_own() -> None:
    values, whole = (named(points_of(read_dump(GOLDEN / f"torch_{task}"))) for task in ("statistics", "tensor"))
    assert values.keys() == whole.keys() == SHAPES.keys()
    assert not any(value.has_numbers for value in values.values())
    for name, value in values.items():
        assert [part.statistics for part in value.parts] == [part.statistics for part in whole[name].parts]
    with pytest.raises(RecordError, match="has statistics and no numbers"):
        values["lm_head"].read()


def test_a_dump_of_mindspore_has_the_points_of_its_cells() -> None:
    for task, whole in (("tensor", True), ("statistics", False)):
        read = read_dump(GOLDEN / f"mindspore_{task}")
        points = points_of(read)
        assert (read.side, points.framework) == ("ms", "MindFormers, use_legacy: True")
        assert all(value.has_numbers is whole for value in points.values)
        inner = ("input", "input_layernorm", "self_attn.core", "self_attn.o_proj")
        assert named(points).keys() == {LAYER, *(f"{LAYER}.{name}" for name in inner)}
        layer = named(points)[LAYER]
        if whole:
            assert np.linalg.norm(layer.read()) == pytest.approx(layer.parts[0].statistics.norm, rel=1e-6)


def forward_twice(content: Content) -> dict[str, Any]:
    """Have every module called once more; returns what was added."""
    more = {f"{name.removesuffix('0')}1": value for name, value in content["data"].items() if name.endswith("forward.0")}
    content["data"] |= more
    return more


def test_micro_batches_are_joined_in_their_order(dump: Path) -> None:
    changed(dump, forward_twice)
    value = named(points_of(read_dump(dump)))["lm_head"]
    assert value.shape == (4, 3, 16)
    assert np.array_equal(value.read()[:2], value.read()[2:])
    alone = named(points_of(read_dump(GOLDEN / "torch_tensor")))["lm_head"].parts
    assert [part.statistics for part in value.parts] == [part.statistics for part in alone] * 2


def test_what_was_calculated_again_in_the_backward_pass_counts_once(dump: Path) -> None:
    construct = folder(dump) / "construct.json"
    tree = json.loads(construct.read_text()) | {"megatron_micro_step_number": 0}
    changed(dump, lambda content: tree.update({name: [None, 0] for name in forward_twice(content)}))
    construct.write_text(json.dumps(tree))
    assert named(points_of(read_dump(dump)))["lm_head"].shape == SHAPES["lm_head"]


def test_numbers_that_are_none_are_read_as_such(dump: Path) -> None:
    changed(dump, lambda content: first(content).update(Max=math.inf, Min=-math.inf, Mean=math.nan, Norm=math.inf))
    said = named(points_of(read_dump(dump)))["model.embed_tokens"].parts[0].statistics
    assert (said.minimum, said.maximum, said.norm) == (-math.inf, math.inf, math.inf)
    assert math.isnan(said.mean)


def test_level_l1_names_no_module(dump: Path) -> None:
    def apis(content: Content) -> None:
        tensor = first(content)
        content["level"], content["data"] = "L1", {"Functional.linear.0.forward": {"input_args": [tensor], "output": [tensor]}}

    changed(dump, apis)
    assert "level L0 or mix" in read_dump(dump).notes[0]
    assert "level L0 or mix" in refused(dump)


def converted(dump: Path, where: Path) -> Run:
    convert_dump(dump, where)
    return open_run(where)


def test_statistics_are_compared_with_tensors_by_their_norms(tmp_path: Path) -> None:
    whole, alone = (converted(GOLDEN / f"torch_{task}", tmp_path / task) for task in ("tensor", "statistics"))
    assert whole.activations(0)["lm_head"].sketched and not alone.activations(0)["lm_head"].sketched
    comparison = compare(whole, alone)
    for name in ("activations", "activation gradients"):
        compared = stage(comparison, name)
        assert compared.status is Status.SAME
        assert "activations.by_norms" in ids(compared.summary)
    assert stage(comparison, "step-0 loss").status is Status.NOT_COMPARED
    assert ids(stage(comparison, "match").summary) == ["match.dump"]
    assert ids(comparison.next)[0] == "next.record_beside_dump"


def test_a_norm_that_differs_is_found(tmp_path: Path) -> None:
    dump = shutil.copytree(GOLDEN / "torch_statistics", tmp_path / "dump")
    changed(dump, lambda content: first(content).update(Norm=first(content)["Norm"] * 1.01))
    comparison = compare(converted(GOLDEN / "torch_statistics", tmp_path / "one"), converted(dump, tmp_path / "other"))
    found = stage(comparison, "activations")
    assert found.status is Status.DIFFERENT
    assert [finding.name for finding in found.findings if finding.limit_ratio > 1] == ["model.embed_tokens"]
    assert ids(comparison.next)[0] == "next.record_dumped"


# --- dumps that are not whole, or a stranger's ---


LM_HEAD = "dump_tensor_data/Module.lm_head.Linear.forward.0.output.0.pt"


def file(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda dump: (folder(dump) / name).write_bytes(change((folder(dump) / name).read_bytes()))


def without(name: str) -> Callable[[Path], None]:
    return lambda dump: (folder(dump) / name).unlink()


def text(content: str) -> Callable[[Path], None]:
    return file("dump.json", lambda _: content.encode())


def tensor(**fields: object) -> Callable[[Path], None]:
    return lambda dump: changed(dump, lambda content: first(content).update(fields))


def two_ranks(dump: Path) -> None:
    shutil.copytree(folder(dump), dump / "step0" / "rank1")


def several_pieces(dump: Path) -> None:
    data = json.loads((folder(dump) / "dump.json").read_text())["data"]
    pieces = {name.replace("Module.", "Module.1.", 1): value for name, value in data.items()}
    changed(dump, lambda content: content.update(data=pieces))


DAMAGE = [
    (file("dump.json", lambda content: content[:1000]), "is not a whole JSON text"),
    (without("dump.json"), "no dump.json"),
    (file(LM_HEAD, lambda content: content[:-200]), "no whole archive"),
    (without(LM_HEAD), "is missing; copy the whole dump"),
    (file(LM_HEAD, lambda _: pickle.dumps({"a": 1})), "no whole archive"),
    (text("[" * 200_000), "is not a whole JSON text"),
    (text('{"data": ' * 20_000), "is not a whole JSON text"),
    (text('{"framework": "pytorch", "data": {"a": 1}}'), "no dump.json of msprobe"),
    (text('{"framework": "pytorch", "data": ' + "9" * 5000 + "}"), "is not a whole JSON text"),
    (text('{"framework": "jax", "data": {}}'), "of one run of PyTorch or MindSpore"),
    (text("{}"), "no dump.json of msprobe"),
    (tensor(shape=[-1]), "no tensor of msprobe"),
    (tensor(shape=[2**60]), "no tensor of msprobe"),
    (tensor(shape=[2**40] * 30), "more elements than any tensor has"),
    (tensor(shape=[2, 3, 9]), "the dump says [2, 3, 9]"),
    (tensor(shape="2"), "no tensor of msprobe"),
    (tensor(Max="large"), "no tensor of msprobe"),
    (tensor(data_name="../../secret.pt"), "which is none of msprobe's"),
    (tensor(data_name="/etc/passwd"), "which is none of msprobe's"),
    (two_ranks, "proc0 and rank1 of one step"),
    (several_pieces, "virtual pipeline"),
]


@pytest.mark.parametrize(("damage", "why"), DAMAGE)
def test_a_dump_that_is_not_whole_is_refused_in_one_line(dump: Path, damage: Callable[[Path], None], why: str) -> None:
    damage(dump)
    assert why in refused(dump)


def test_a_file_of_another_dump_is_no_tensor(tmp_path: Path) -> None:
    for array, why in ((np.arange(4), "holds int64"), (np.array([None]), "pickled arrays are never loaded")):
        np.save(tmp_path / "one.npy", array, allow_pickle=True)
        with pytest.raises(RecordError, match=why):
            read_tensor(tmp_path / "one.npy")


@pytest.mark.parametrize("name", ["api_stack_dump.pkl", "rank0/dump.pkl", "api_stack_dump.pickle"])
def test_a_pickle_is_named_and_never_opened(tmp_path: Path, name: str) -> None:
    file = tmp_path / "old" / name
    file.parent.mkdir(parents=True)
    file.write_bytes(pickle.dumps(Calls(open, str(tmp_path / "mark"), "w")))
    for source in (tmp_path / "old", file):
        with pytest.raises(RecordError) as caught:
            read_dump(source)
        assert str(file) in str(caught.value) and "msprobe" in str(caught.value)
    assert not (tmp_path / "mark").exists()


def test_a_directory_that_is_no_dump_is_refused(tmp_path: Path) -> None:
    for source in (tmp_path, tmp_path / "missing"):
        with pytest.raises(RecordError, match="name a dump of msprobe"):
            read_dump(source)
