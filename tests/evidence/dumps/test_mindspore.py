"""Dumps of MindSpore's operators, with their table of statistics, read; and what a damaged one is refused with."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from align_hooks.errors import RecordError
from align_hooks.evidence.dumps.entry import Statistics
from align_hooks.evidence.dumps.mindspore import ORDER, _hyphened, _iterations, _scopes
from align_hooks.evidence.dumps.record import read_dump
from align_hooks.evidence.dumps.values import PointValue, points_of
from evidence.dumps.operators import LAYER, OPERATORS, write

LAYER_0 = "model.layers.0"
POINTS = {
    **{"model.embed_tokens": "embedding", f"{LAYER_0}.input": "embedding", f"{LAYER_0}.residual": "residual", LAYER_0: "block"},
    **{f"{LAYER_0}.input_layernorm": "normed", f"{LAYER_0}.post_attention_layernorm": "normed_again"},
    **{f"{LAYER_0}.self_attn.{name}": output for name, output in (("q_proj", "queries"), ("core", "core"), ("o_proj", "projected"))},
    **{f"{LAYER_0}.mlp.{name}": output for name, output in (("gate_proj", "gate"), ("activation", "activation"), ("down_proj", "down"))},
}


def values(path: Path) -> dict[str, PointValue]:
    return {value.point: value for value in points_of(read_dump(path)).values}


@pytest.mark.parametrize("saved", ["tensor", "statistic", "full"])
@pytest.mark.parametrize("hide", [False, True])
def test_every_way_to_save_gives_the_same_points(tmp_path: Path, saved: str, hide: bool) -> None:
    dump = write(tmp_path, saved=saved, hide=hide)
    found = values(dump.path)
    assert found.keys() == POINTS.keys()
    for point, name in POINTS.items():
        value, tensor = found[point], dump.tensors[name]
        assert (value.step, value.gradient, value.shape) == (3, False, (2, 3, 4))
        assert value.has_numbers is (saved != "statistic")
        if value.has_numbers:
            assert np.array_equal(value.read(), tensor)
        if saved != "tensor":
            assert value.parts[0].statistics.norm == pytest.approx(np.linalg.norm(tensor), rel=1e-6)
            assert value.parts[0].statistics.maximum == pytest.approx(tensor.max())


def test_backward_operators_are_left_out_and_counted(tmp_path: Path) -> None:
    assert read_dump(write(tmp_path).path).notes == (
        "2 inputs and outputs of backward operators are left out: MindSpore names many of them after another layer",
    )


@pytest.mark.parametrize("at", ["rank_0", "rank_0/llama", "rank_0/llama/0", "rank_0/llama/0/3"])
def test_any_directory_of_it_may_be_named(tmp_path: Path, at: str) -> None:
    assert values(write(tmp_path).path / at).keys() == POINTS.keys()


def test_steps_are_directories(tmp_path: Path) -> None:
    dump = write(tmp_path)
    dump.iteration.rename(dump.iteration.with_name("step_5"))
    assert {one.step for one in _iterations(tmp_path)} == {5}


def test_names_with_slashes_are_taken_where_they_are(tmp_path: Path) -> None:
    bare = [(operator.replace("-LLamaDecodeLayer", "").replace("-Linear", ""), pair) for operator, pair in OPERATORS]
    dump = write(tmp_path, operators=bare)
    order = dump.path / "rank_0" / "execution_order"
    order.mkdir()
    (order / "ms_execution_order_graph_0.csv").write_text("NodeExecutionOrder-FullNameWithScope\n" + "\n".join(name for name, _ in bare))
    assert values(dump.path).keys() == POINTS.keys()


def test_a_scope_is_taken_apart_at_its_hyphens() -> None:
    cells = _hyphened(LAYER.replace("/", "_") + "_attention_norm-_Norm")
    assert [attribute for attribute, _ in cells] == ["network", "network", "model", "layers", "0", "attention_norm"]
    assert [kind for _, kind in cells][-2:] == ["LLamaDecodeLayer", "_Norm"]


def test_what_a_compiler_fused_is_left_out_and_said(tmp_path: Path) -> None:
    fused = [(name.replace("Add-op0", "AddRmsNorm-op0"), pair) for name, pair in OPERATORS]
    points = points_of(read_dump(write(tmp_path, operators=fused).path))
    assert LAYER_0 not in {value.point for value in points.values}
    assert any("as where a compiler fuses them" in note for note in points.notes)


def test_products_of_several_micro_batches_are_left_out(tmp_path: Path) -> None:
    more = [*OPERATORS, (f"{LAYER}/attention-LLamaAttention/wq-Linear/MatMul-op7", ("normed", "queries"))]
    assert f"{LAYER_0}.self_attn.q_proj" not in values(write(tmp_path, operators=more).path)


def file(pattern: str, change: Callable[[bytes], bytes | None]) -> Callable[[Path], None]:
    """A damage to a file of a pattern, not the first of many, which is no point: its bytes become others, or it goes."""

    def damage(iteration: Path) -> None:
        path = sorted(iteration.glob(pattern))[:2][-1]
        changed = change(path.read_bytes())
        path.unlink() if changed is None else path.write_bytes(changed)

    return damage


def table(change: Callable[[str], str]) -> Callable[[Path], None]:
    return file("statistic.csv", lambda content: change(content.decode()).encode())


def objects(iteration: Path) -> None:
    np.save(sorted(iteration.glob("*.npy"))[1], np.array([{}]), allow_pickle=True)


def two_ranks(iteration: Path) -> None:
    other = iteration.parents[3] / "rank_1" / "llama" / "0" / "3"
    other.mkdir(parents=True)
    shutil.copyfile(iteration / "statistic.csv", other / "statistic.csv")


DAMAGE = [
    (table(lambda text: text[:-20]), "ends within a row"),
    (table(lambda text: text.replace("float32", "float32,7", 1)), "is no row of MindSpore's statistic.csv"),
    (table(lambda text: text.replace(",input,", ",sideways,", 1)), "is no row of MindSpore's statistic.csv"),
    (table(lambda text: text.replace('"(', '"(x', 1)), "is no row of MindSpore's statistic.csv"),
    (table(lambda text: text.replace("Op Name", "Name", 1)), "is not the head of MindSpore's statistic.csv"),
    (table(lambda text: text.replace(",float32,", ',float32,"', 1)), "is no"),
    (table(lambda text: text + "MatMul,x,0,0," + "9" * 4000 + ",input,0,4,float32,(),1,1,1,1\n"), "is no row"),
    (table(lambda text: text + "MatMul,x,0,0,9,input,0,4,float32,(),1,1,1," + "1" * 4000 + "e999\n"), "is no row"),
    (table(lambda text: text + "MatMul," * 200_000 + "\n"), "holds a line of more than"),
    (file("*.npy", lambda content: None), "is missing, mapping.csv has it"),
    (file("mapping.csv", lambda content: None), "which lacks it; copy the whole dump"),
    (file("mapping.csv", lambda content: content[:-300].rpartition(b",")[0]), "mapping.csv"),
    (file("*.npy", lambda content: content[:-8]), "is not a whole .npy array"),
    (objects, "pickled arrays are never loaded"),
    (two_ranks, "name rank_N of one"),
]


@pytest.mark.parametrize(("damage", "why"), DAMAGE)
def test_a_dump_that_is_not_whole_is_refused_in_one_line(tmp_path: Path, damage: Callable[[Path], None], why: str) -> None:
    dump = write(tmp_path, hide=True)
    damage(dump.iteration)
    with pytest.raises(RecordError) as caught:
        [value.read() for value in points_of(read_dump(dump.path)).values]
    assert why in str(caught.value)
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


def test_nan_and_infinity_of_a_table_are_read(tmp_path: Path) -> None:
    dump = write(tmp_path, saved="statistic", operators=OPERATORS[:2])
    file = dump.iteration / "statistic.csv"
    lines = file.read_text().splitlines()
    lines[1] = lines[1].rpartition('"')[0] + '",inf,-inf,nan,inf,'
    lines[2] = lines[2].rpartition('"')[0] + '",null,null,,,'
    file.write_text("\n".join(lines) + "\n")
    first, second = read_dump(dump.path).entries[:2]
    assert (first.statistics.maximum, first.statistics.minimum) == (np.inf, -np.inf)
    assert second.statistics == Statistics()


def test_a_dump_of_an_optimizer_alone_has_no_point(tmp_path: Path) -> None:
    dump = write(tmp_path, operators=[("Default/optimizer-AdamW/Mul-op0", ("a", "b"))])
    with pytest.raises(RecordError, match="names no module of Megatron-LM, MindFormers or Hugging Face"):
        points_of(read_dump(dump.path))


def test_the_order_of_another_folder_is_none_of_a_dump_and_a_link_out_of_it_is_refused(tmp_path: Path) -> None:
    """A dump of a stranger shows no file of its reader, and a folder of another name is of no rank."""
    for name in ("dump/other", "outside"):
        (tmp_path / name / ORDER).mkdir(parents=True)
        (tmp_path / name / ORDER / "ms_execution_order_graph_0.csv").write_text("Default/network/mul-op1\n")
    assert _scopes(tmp_path / "dump") == {}
    (tmp_path / "dump/rank_0").symlink_to(tmp_path / "outside")
    with pytest.raises(RecordError, match="is a link that leads out"):
        _scopes(tmp_path / "dump")
    (tmp_path / "dump/rank_0").unlink()
    (tmp_path / "dump/other").rename(tmp_path / "dump/rank_1")
    assert _scopes(tmp_path / "dump") == {"Default_network": "Default/network"}
