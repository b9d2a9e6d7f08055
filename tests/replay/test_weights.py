"""Weights to start from: a recorded run's or a Hugging Face directory's, moved by a rounding step or not, refused unless all fit."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from align_hooks.errors import RecordError, RefusedRun
from align_hooks.names.blocks import Blocks
from align_hooks.names.fused import Fused
from align_hooks.replay.weights import EPS, Loader, is_checkpoint, moved, open_optimizer_state, open_weights, refuse_unfit, vocabulary_fed
from align_hooks.settings import PREFIX, Settings, SettingsError, Source, Steps
from rewritten import cut
from synthetic import NAMES, SHAPES, Synthetic, fused, tensors

WEIGHTS = tensors(3)


def source(path: Path, step: str = "0") -> Source:
    return Source(path, Steps.parse(step))


def whole(name: str) -> Fused:
    return fused(name, {name: SHAPES[name]}, Blocks(1, (SHAPES[name][0],)))


def checkpoint(path: Path, weights: dict[str, np.ndarray] = WEIGHTS) -> Path:
    path.mkdir()
    save_file(weights, path / "model.safetensors")
    return path


def sharded(path: Path) -> Path:
    path.mkdir()
    files = {name: f"model-{index % 2 + 1:05}-of-00002.safetensors" for index, name in enumerate(NAMES)}
    for file in set(files.values()):
        save_file({name: WEIGHTS[name] for name in NAMES if files[name] == file}, path / file)
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Synthetic(weights={0: WEIGHTS, 2: tensors(5)}, gradients={}, batches={}, norms={0: {}})
    return made.write(tmp_path_factory.mktemp("weights") / "run")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("step", "weights"), [("0", WEIGHTS), ("2", tensors(5))], ids=["first", "later"])
def test_a_recorded_runs_weights_are_read_to_the_bit(run: Path, name: str, step: str, weights: dict[str, np.ndarray]) -> None:
    np.testing.assert_array_equal(Loader(source(run, step), SHAPES).read(whole(name)), weights[name], strict=True)


def test_a_step_without_weights_is_refused_with_those_there_are(run: Path) -> None:
    with pytest.raises(RecordError, match=rf"holds no weights of step 1 \(recorded: 0, 2\); record it with {PREFIX}WEIGHTS=1"):
        open_weights(source(run, "1"))


@pytest.mark.parametrize("step", ["2", "2-2", "2-3/5"])
def test_every_way_to_write_one_step_loads_it(run: Path, step: str) -> None:
    settings = Settings.from_environment({f"{PREFIX}LOAD_WEIGHTS": f"{run}@{step}"})
    assert settings.load_weights is not None
    np.testing.assert_array_equal(open_weights(settings.load_weights)[NAMES[0]], tensors(5)[NAMES[0]])


@pytest.mark.parametrize("make", [checkpoint, sharded], ids=["one file", "an index"])
def test_a_hugging_face_directory_is_read_to_the_bit(tmp_path: Path, make: object) -> None:
    path = make(tmp_path / "hf")  # type: ignore[operator]
    assert is_checkpoint(path)
    weights = open_weights(source(path))
    assert sorted(weights) == sorted(NAMES)
    assert len(weights) == len(NAMES)
    loader = Loader(source(path), SHAPES)
    for name in NAMES:
        assert weights.shape(name) == SHAPES[name]
        np.testing.assert_array_equal(loader.read(whole(name)), WEIGHTS[name], strict=True)


KINDS = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F64": "<f8"}


def stored(path: Path, kind: str, *tensors: tuple[str, bytes, list[int]]) -> Path:
    """A Hugging Face directory of one file, spelled out: each tensor by name, bytes and shape."""
    header, end = {}, 0
    for name, content, shape in tensors:
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + len(content)]}
        end += len(content)
    text = json.dumps(header).encode()
    path.mkdir()
    (path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"".join(content for _, content, _ in tensors))
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_every_floating_type_is_read_as_the_same_numbers_in_fp32(tmp_path: Path, kind: str) -> None:
    exact = np.array([[1.0, -2.5, 0.0], [-0.0, 96.0, 2.0**-14]], np.float32)  # each type has these numbers
    content = (exact.view(np.uint32) >> 16).astype("<u2") if kind == "BF16" else exact.astype(KINDS[kind])
    weights = open_weights(source(stored(tmp_path / "hf", kind, ("before", content.tobytes(), [6]), ("a", content.tobytes(), [2, 3]))))
    np.testing.assert_array_equal(weights["a"].view(np.uint32), exact.view(np.uint32), strict=True)  # the sign of a zero too
    assert weights.shape("before") == (6,)


def test_every_bf16_there_is_becomes_the_fp32_whose_upper_half_it_is(tmp_path: Path) -> None:
    """All 65536: numbers below the normal range, infinities and every NaN among them."""
    every = np.arange(1 << 16, dtype="<u2")
    tensor = open_weights(source(stored(tmp_path / "hf", "BF16", ("a", every.tobytes(), [256, 256]))))["a"]
    assert tensor.dtype == np.float32
    np.testing.assert_array_equal(tensor.view(np.uint32).reshape(-1), every.astype(np.uint32) << 16)


def test_a_double_that_fp32_lacks_is_refused_as_infinity(tmp_path: Path) -> None:
    loader = Loader(source(stored(tmp_path / "hf", "F64", ("a", np.array([1e300], "<f8").tobytes(), [1]))), {"a": (1,)})
    with pytest.raises(RefusedRun, match="a holds NaN or infinity"):
        loader.read(fused("a", {"a": (1,)}, Blocks(1, (1,))))


@pytest.mark.parametrize(("kind", "size"), [("F8_E4M3", 1), ("I8", 1), ("I64", 8)])
def test_a_type_that_holds_no_plain_numbers_is_refused_by_tensor_and_file(tmp_path: Path, kind: str, size: int) -> None:
    weights = open_weights(source(stored(tmp_path / "hf", kind, ("model.norm.weight", bytes(4 * size), [4]))))
    refusal = rf"hf/model.safetensors: model.norm.weight is {kind}, only F32, F64, F16, BF16 can be read here; load a .* in bf16$"
    with pytest.raises(RecordError, match=refusal):
        weights["model.norm.weight"]


@pytest.mark.parametrize("change", [lambda content: content[:-4], lambda content: content[:-4] + b"\0\0\0\0\0"])
def test_a_checkpoint_that_changed_since_it_was_opened_is_refused(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    weights = open_weights(source(checkpoint(tmp_path / "hf")))
    file = tmp_path / "hf" / "model.safetensors"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(RecordError, match=r"model.safetensors was replaced while it was being read"):
        weights[NAMES[0]]


def test_loading_weights_imports_nothing_that_only_another_package_brings() -> None:
    code = "import sys, align_hooks.replay.weights; print({'ml_dtypes', 'torch', 'mindspore'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_recorded_weights_of_one_rank_are_such_a_directory(run: Path) -> None:
    weights = open_weights(source(run / "step_0/rank_0/weights"))
    np.testing.assert_array_equal(weights[NAMES[0]], WEIGHTS[NAMES[0]])


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "a file of an index is missing": (
        lambda path: (sharded(path) / "model-00002-of-00002.safetensors").unlink(),
        r"model-00002-of-00002.safetensors is not a whole safetensors file .*; load a whole checkpoint",
    ),
    **{
        f"an index of {text[:16]}": (
            lambda path, text=text: (sharded(path) / "model.safetensors.index.json").write_text(text),
            "is no whole Hugging Face checkpoint",
        )
        for text in ("{", "{}", "[]", "[" * 100_000, '{"weight_map": []}')
    },
    "a truncated file": (
        lambda path: cut(checkpoint(path) / "model.safetensors", 4),
        r"model.safetensors is not a whole safetensors file .*; load a whole checkpoint",
    ),
    "neither a checkpoint nor a run": (Path.mkdir, "holds no run"),
}


@pytest.mark.parametrize(("make", "refusal"), BROKEN.values(), ids=BROKEN)
def test_what_is_no_whole_checkpoint_is_refused(tmp_path: Path, make: Callable[[Path], object], refusal: str) -> None:
    make(tmp_path / "hf")
    with pytest.raises(RecordError, match=refusal):
        open_weights(source(tmp_path / "hf"))


UP = "model.layers.1.mlp.up_proj.weight"
UNFIT: dict[str, tuple[dict[str, np.ndarray], dict[str, tuple[int, ...]], str]] = {
    "one is missing": ({name: WEIGHTS[name] for name in NAMES[1:]}, SHAPES, rf"{NAMES[0]} \[10, 4\] is missing"),
    "one is not of the model": (WEIGHTS | {UP: np.ones((2, 2), np.float32)}, SHAPES, rf"{UP} \[2, 2\] is not of this model"),
    "one has another shape": (
        WEIGHTS | {NAMES[3]: np.ones((4, 10), np.float32)},
        SHAPES,
        rf"{NAMES[3]} is \[4, 10\], this model has \[10, 4\]",
    ),
    "padded rows are missing": (
        *(WEIGHTS, SHAPES | {"lm_head.weight#padding": (6, 4)}),
        r"has no padded vocabulary rows.*give both sides the same padded size",
    ),
}


@pytest.mark.parametrize(("weights", "shapes", "refusal"), UNFIT.values(), ids=UNFIT)
def test_weights_that_are_none_of_the_model_are_refused(
    tmp_path: Path, weights: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]], refusal: str
) -> None:
    with pytest.raises(RefusedRun, match=refusal):
        Loader(source(checkpoint(tmp_path / "hf", weights)), shapes)


def test_a_tied_model_takes_a_checkpoint_that_keeps_the_copy(tmp_path: Path) -> None:
    tied = {name: shape for name, shape in SHAPES.items() if name != "lm_head.weight"}
    tensor = Loader(source(checkpoint(tmp_path / "hf")), tied).read(whole("model.embed_tokens.weight"))
    np.testing.assert_array_equal(tensor, WEIGHTS["model.embed_tokens.weight"])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_is_refused_by_name(tmp_path: Path, value: float) -> None:
    broken = WEIGHTS | {"model.norm.weight": np.array([1, 1, value, 1], np.float32)}
    loader = Loader(source(checkpoint(tmp_path / "hf", broken)), SHAPES)
    loader.read(whole("lm_head.weight"))
    with pytest.raises(RefusedRun, match=r"model\.norm\.weight holds NaN or infinity"):
        loader.read(whole("model.norm.weight"))


def test_fused_parameters_are_joined_from_their_pieces(tmp_path: Path) -> None:
    shapes = {"a": (2, 3), "b": (2, 3)}
    given = tensors(1, shapes)
    tensor = Loader(source(checkpoint(tmp_path / "hf", given)), shapes).read(fused("ab", shapes, Blocks(2, (1, 1))))
    np.testing.assert_array_equal(tensor, np.stack([given["a"][0], given["b"][0], given["a"][1], given["b"][1]]))


def test_the_vocabulary_is_the_embeddings_rows(run: Path, tmp_path: Path) -> None:
    assert vocabulary_fed(source(run)) == 10
    assert vocabulary_fed(source(checkpoint(tmp_path / "hf", {"lm_head.weight": WEIGHTS["lm_head.weight"]}))) is None


def test_the_state_of_the_optimizer_comes_with_weights_that_were_updated(tmp_path: Path) -> None:
    run = Synthetic().write(tmp_path / "run")
    found = [open_optimizer_state(source(run, step)) for step in "01"]
    assert [state and state.updates for state in found] == [None, 1]


NAME = "model.embed_tokens.weight"


GIVEN = tensors(1, {"a": (64, 32)})["a"]


@pytest.mark.parametrize("kind", EPS)
def test_every_element_moves_by_one_step_up_or_down(kind: str) -> None:
    steps = moved(GIVEN, "a", EPS[kind], 1) / GIVEN.astype(np.float64) - 1
    assert steps.shape == (64, 32)
    assert ((0.4 * EPS[kind] <= np.abs(steps)) & (np.abs(steps) <= 1.6 * EPS[kind])).all()
    assert 0.45 < (steps > 0).mean() < 0.55


def test_signs_are_those_of_the_seed_and_the_name() -> None:
    once, again, of_another_seed = (moved(GIVEN, "a", 0.5, seed) for seed in (1, 1, 2))
    assert (once == again).all()
    assert (once != of_another_seed).mean() > 0.4
    assert (once != moved(GIVEN, "b", 0.5, 1)).mean() > 0.3


def test_a_loader_moves_what_it_reads_and_leaves_types_alone(tmp_path: Path) -> None:
    save_file({NAMES[0]: np.full((8, 4), 0.5, np.float32)}, tmp_path / "model.safetensors")
    native = fused("embedding", {NAMES[0]: (8, 4)}, Blocks(1, (8,)))
    tensor = Loader(source(tmp_path), {NAMES[0]: (8, 4)}, perturb=(3, "bfloat16")).read(native)
    assert tensor.dtype == np.float32
    assert set(np.unique(tensor)) == {np.float32(0.5 * (1 - 2.0**-7)), np.float32(0.5 * (1 + 2.0**-7))}


def test_it_needs_weights_to_move() -> None:
    with pytest.raises(SettingsError, match=r"PERTURB moves weights that are loaded; set ALIGN_HOOKS_LOAD_WEIGHTS"):
        Settings.from_environment({"ALIGN_HOOKS_PERTURB": "1"})


def test_weights_that_fit_pass_and_others_are_named() -> None:
    wanted = {"a": (2, 2), "b": (3,)}
    refuse_unfit(wanted, dict(wanted), "x")
    with pytest.raises(RefusedRun) as caught:
        refuse_unfit(wanted, {"b": (4,), "c": (1,)}, "/run@0")
    for part in ("/run@0", "a [2, 2] is missing", "c [1] is not of this model", "b is [4], this model has [3]"):
        assert part in str(caught.value)


def test_of_many_misfits_the_first_three_are_named_and_the_rest_counted() -> None:
    with pytest.raises(RefusedRun, match=r"; and 7 more"):
        refuse_unfit({str(number): (1,) for number in range(10)}, {}, "x")
