"""Lists of arrays that a person saved, and the JSON that MindSpore dumps by."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.cli import app
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import Status
from align_hooks.errors import AlignHooksError, RecordError
from align_hooks.evidence.dumps.configure import dump_config
from align_hooks.evidence.dumps.record import convert_dump, read_dump
from align_hooks.evidence.dumps.values import points_of
from align_hooks.settings import Steps
from comparison.conftest import stage
from invoked import invoke

RANDOM = np.random.default_rng(0)
VALUE = RANDOM.standard_normal((2, 3, 4)).astype(np.float32)
"""[rows, sequence, width]."""


def saved(folder: Path, **arrays: np.ndarray) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder


POINT = "model.layers.0.mlp.down_proj"


@pytest.mark.parametrize(
    ("name", "array", "point"),
    [
        *((name.format(POINT), VALUE, POINT) for name in ("{}", "3_{}", "{}_float32_3", "{}_in_float32_3")),
        # modules of Megatron-LM have its order of axes
        ("decoder.layers.1.self_attention.linear_proj_float32_0", VALUE.swapaxes(0, 1), "model.layers.1.self_attn.o_proj"),
    ],
)
def test_names_of_troubleshooter_and_of_tensordump_and_modules_of_megatron_are_known(
    tmp_path: Path, name: str, array: np.ndarray, point: str
) -> None:
    (value,) = points_of(read_dump(saved(tmp_path / "step2", **{name: array}))).values
    assert (value.step, value.point, value.gradient) == (2, point, False)
    assert np.array_equal(value.read(), VALUE)


def test_save_grad_names_gradients(tmp_path: Path) -> None:
    arrays = {"4_model.norm": VALUE, "5_model.norm_backward": 2 * VALUE}
    values = points_of(read_dump(saved(tmp_path / "step0", **arrays))).values
    factors = [(value.point, value.gradient, float(value.read()[0, 0, 0] / VALUE[0, 0, 0])) for value in values]
    assert factors == [("model.norm", False, 1.0), ("model.norm", True, 2.0)]


def test_files_of_one_name_are_micro_batches_by_number(tmp_path: Path) -> None:
    arrays = {f"model.norm_float32_{number}": VALUE + number for number in (11, 9)}
    (value,) = points_of(read_dump(saved(tmp_path, **arrays))).values
    assert np.array_equal(value.read(), np.concatenate([VALUE + 9, VALUE + 11]))


def test_two_lists_are_compared(tmp_path: Path) -> None:
    for side, factor in (("torch", 1.0), ("ms", 1.0 + 1e-3)):
        for step in (0, 1):
            saved(tmp_path / side / f"step{step}", **{"0_model.norm": VALUE, "1_lm_head": VALUE * np.float32(factor)})
        done = invoke(app, ["convert", str(tmp_path / side), str(tmp_path / f"{side}_run"), "--side", side])
        assert done.exit_code == 0, done.output
    found = stage(compare(open_run(tmp_path / "torch_run"), open_run(tmp_path / "ms_run")), "activations")
    assert found.status is Status.DIFFERENT
    assert [origin.name for origin in found.origins] == ["lm_head"]
    assert open_run(tmp_path / "ms_run").steps == [0, 1]


def test_the_steps_of_a_resumed_run_are_moved(tmp_path: Path) -> None:
    for step in (0, 3):
        saved(tmp_path / "list" / f"step{step}", **{"model.norm": VALUE})
    convert_dump(tmp_path / "list", tmp_path / "run", first=500)
    assert open_run(tmp_path / "run").steps_of("activations") == [500, 503]


def test_gradients_are_divided_by_the_loss_scale(tmp_path: Path) -> None:
    saved(tmp_path / "list", **{"model.norm": VALUE, "model.norm_backward": 1024 * VALUE})
    convert_dump(tmp_path / "list", tmp_path / "run", loss_scale=1024)
    assert np.array_equal(open_run(tmp_path / "run").activations(0).tensor("model.norm#gradient"), VALUE)


@pytest.mark.parametrize(
    ("name", "array", "why"),
    [
        ("grad_1", VALUE, r"grad_1\.npy is a gradient with a number and no name"),  # what the guide's snippet saves unless it was mended
        ("model.norm", np.array([{}]), "pickled arrays are never loaded"),
    ],
)
def test_gradients_with_numbers_alone_and_pickled_arrays_are_refused(tmp_path: Path, name: str, array: np.ndarray, why: str) -> None:
    with pytest.raises(RecordError, match=why):
        read_dump(saved(tmp_path, **{name: array}))


@pytest.mark.parametrize("options", ["--side jax", "--loss-scale 0", "--loss-scale nan", "--qkv-concat", "--names x"])
def test_options_that_say_nothing_are_refused(tmp_path: Path, options: str) -> None:
    saved(tmp_path / "list", **{"model.norm": VALUE})
    done = invoke(app, ["convert", str(tmp_path / "list"), str(tmp_path / "run"), *options.split()])
    assert isinstance(done.exception, AlignHooksError)
    assert not (tmp_path / "run").exists()


def test_a_record_is_not_written_over(tmp_path: Path) -> None:
    saved(tmp_path / "list", **{"model.norm": VALUE})
    convert_dump(tmp_path / "list", tmp_path / "run")
    with pytest.raises(AlignHooksError, match="already holds a run"):
        convert_dump(tmp_path / "list", tmp_path / "run")


# --- dump-config ---


@pytest.mark.parametrize(
    ("steps", "iteration"), [("0", "0"), ("0,1", "0|1"), ("0,5-8,100-120", "0|5-8|100-120"), ("0-8/4", "0|4|8"), ("all", "all")]
)
def test_steps_are_iterations(steps: str, iteration: str) -> None:
    settings = dump_config(Steps.parse(steps), Steps.parse("all"), Path("/d"))["common_dump_settings"]
    assert (settings["iteration"], settings["dump_mode"], settings["kernels"]) == (iteration, 0, [])


def test_layers_are_chosen_by_scope() -> None:
    (kernel,) = dump_config(Steps.parse("0"), Steps.parse("1,3-4"), Path("/d"))["common_dump_settings"]["kernels"]
    pattern = re.compile(re.fullmatch(r"name-regex\((.*)\)", kernel)[1])
    legacy, newer = "Default/network-A/network-B/model-C/layers-CellList", "Default/network-A/model-C/decoder-D/layers-CellList"
    for where in (legacy, newer):
        dumped = [layer for layer in range(12) if pattern.fullmatch(f"{where}/{layer}-Layer/attention-A/wq-Linear/MatMul-op0")]
        assert dumped == [1, 3, 4]
    assert pattern.fullmatch("Default/network-A/network-B/lm_head-Linear/MatMul-op0")
    assert pattern.fullmatch("Default/network/network/model/layers/3/attention/wq/MatMul-op0")
    assert not pattern.fullmatch("Default/optimizer-AdamW/Mul-op0")
    assert not pattern.fullmatch(f"Gradients/{legacy}/1-Layer/Grad_MatMul/MatMul-op0")


def test_each_level_has_its_own_keys() -> None:
    asked = Steps.parse("0"), Steps.parse("all"), Path("/d")
    common, e2e = "common_dump_settings", "e2e_dump_settings"
    assert dump_config(*asked, level="O1")[e2e] == {"enable": True, "trans_flag": True}
    o2 = dump_config(*asked, level="O2", statistics=True)
    assert e2e not in o2 and o2[common]["file_format"] == "npy" and o2[common]["saved_data"] == "full"  # type: ignore[index]
    assert dump_config(*asked, tensors=False, statistics=True)[common]["saved_data"] == "statistic"  # type: ignore[index]


@pytest.mark.parametrize(
    "options",
    [
        *("--steps none", "--steps x", "--steps 0-999999999/2", "--layers none", "--layers 0-999999999"),
        *("--jit-level O3", "--net-name ../x", "--no-tensors"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(tmp_path: Path, options: str) -> None:
    done = invoke(app, ["dump-config", "--to", str(tmp_path / "d"), "--out", str(tmp_path / "c.json"), *options.split()])
    assert isinstance(done.exception, AlignHooksError)
    assert not (tmp_path / "c.json").exists()


def test_the_command_says_what_to_set(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    done = invoke(
        app, ["dump-config", "--to", str(tmp_path / "d"), "--out", str(file), "--jit-level", "O2", "--no-tensors", "--statistics"]
    )
    assert done.exit_code == 0 and json.loads(file.read_text())["common_dump_settings"]["saved_data"] == "statistic"
    assert re.findall(r"export (\w+)=", done.output) == ["MINDSPORE_DUMP_CONFIG", "MS_ACL_DUMP_CFG_PATH"]
    assert json.loads(file.read_text())["common_dump_settings"]["path"] == str(tmp_path / "d")
