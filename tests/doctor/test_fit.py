"""What feeds a run is held against the model and the steps that a script or a YAML describes, with the run's own checks."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from align_hooks.checklist.family_match import elsewhere
from align_hooks.configuration.source import read
from align_hooks.doctor.fit import refused
from align_hooks.doctor.shapes import Shapes, shapes
from synthetic import Synthetic, batch, changed, grown, settings

from .test_configured import VERSIONS, refusals

ARGS, YAML = "llama.args", "llama.yaml"
ROWS, SEQUENCE = 4, 128
PADDED = {ARGS: ("--vocab-size 256", "--vocab-size 1000"), YAML: ("vocab_size: 256", "vocab_size: 1024")}
"""What makes ``launch/`` a pair with a padded vocabulary."""


def described(name: str, *changes: tuple[str, str], where: Path, vocabulary: int | None = None, megatron: str = "0.19.2") -> Shapes:
    configuration = read(changed(name, *changes, where=where), {})
    return shapes(configuration, elsewhere(configuration), vocabulary=vocabulary, megatron=megatron)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Runs of launch's model by what their vocabulary is: 256 rows, or 1000 that are padded to 1024; and a checkpoint of the first."""
    base = tmp_path_factory.mktemp("recorded")
    for name, vocabulary, changes in (("plain", 256, ()), ("padded", 1000, (PADDED[ARGS],))):
        run = fed(dict(described(ARGS, *changes, where=base).whole), vocabulary)
        run.write(base / name)
    (base / "huggingface").mkdir()
    weights = {name: tensor for name, tensor in run.weights[0].items() if "#" not in name}
    save_file(weights, base / "huggingface" / "model.safetensors")
    return {name: base / name for name in ("plain", "padded", "huggingface")}


def fed(of: dict[str, tuple[int, ...]], vocabulary: int) -> Synthetic:
    """A run of a model of some shapes, whose batches fit it."""
    run = grown(of)
    run.batches = {step: batch(step, ROWS, SEQUENCE, vocabulary) for step in run.batches}
    run.model = run.model | {"vocab_size": vocabulary}
    return run


Problems = Callable[..., list[str]]


@pytest.fixture
def problems(tmp_path: Path, recorded: Mapping[str, Path]) -> Problems:
    """What is refused of ``launch/<name>`` with changes, fed from recorded runs; a name in braces is a run's."""

    def of(name: str, *changes: tuple[str, str], **switches: str) -> list[str]:
        given = {key: value.format(**recorded) for key, value in switches.items()}
        return refusals(name, *changes, where=tmp_path, device="cpu", **given)

    return of


ALL = {"load_weights": "{plain}", "replay_batches": "{plain}", "inject_gradients": "{plain}@0-1"}
BY_PADDED = {"load_weights": "{padded}", "replay_batches": "{padded}"}
ALL_PADDED = {name: value.replace("plain", "padded") for name, value in ALL.items()}


@pytest.mark.parametrize("name", [ARGS, YAML])
def test_what_fits_is_not_refused(name: str, problems: Problems) -> None:
    assert problems(name, **ALL) == []
    assert problems(name, PADDED[name], **ALL_PADDED) == []


@pytest.mark.parametrize("only", ALL)
def test_the_padding_is_known_from_whatever_feeds_mindformers(only: str, problems: Problems) -> None:
    assert problems(YAML, PADDED[YAML], **{only: ALL_PADDED[only]}) == []


Case = tuple[str, tuple[tuple[str, str], ...], dict[str, str], str]


def feeding(name: str, *changes: tuple[str, str], said: str = "", **switches: str) -> Case:
    """``launch/<name>`` with changes, what feeds it by which variable, and what is said of that."""
    return name, changes, switches, said


LAYERS = {ARGS: [("--num-layers 2", "--num-layers 1")], YAML: [("num_layers: 2", "num_layers: 1")]}
WIDER = {ARGS: [("--hidden-size 64", "--hidden-size 128"), ("", "--kv-channels 16\n")], YAML: [("hidden_size: 64", "hidden_size: 128")]}
SHORTER = {ARGS: [("--seq-length 128", "--seq-length 64")], YAML: [("seq_length: 128", "seq_length: 64")]}
NARROW = {ARGS: [("--vocab-size 256", "--vocab-size 128")], YAML: [("vocab_size: 256", "vocab_size: 128")]}
UNTIED = ("--untie-embeddings-and-output-weights\n", "")
THREE_RANKS = (
    ("use_parallel: False", "use_parallel: True"),
    ("parallel_mode: 0", "parallel_mode: 1"),
    ("data_parallel: 1", "data_parallel: 3"),
)
NOTHING_BUT_ROWS = "give this model their 1024 rows, padding and all: vocab_size: 1024 in MindFormers' YAML"
NO_PADDING = f"model.embed_tokens.weight#padding [24, 64] is not of this model; {NOTHING_BUT_ROWS}"
UNFIT: dict[str, Case] = {
    **{
        f"{name}, {misfit}": feeding(name, *changes[name], said=said, **switches)
        for name in (ARGS, YAML)
        for misfit, changes, switches, said in (
            ("hidden size", WIDER, {"load_weights": "{plain}"}, "lm_head.weight is [256, 64], this model has [256, 128]"),
            ("gradients", WIDER, {"inject_gradients": "{plain}"}, "gradients of {plain} step 0 do not fit this model: lm_head"),
            ("fewer layers", LAYERS, {"load_weights": "{plain}"}, "model.layers.1.input_layernorm.weight [64] is not of this model"),
            ("sequence length", SHORTER, {"replay_batches": "{plain}"}, "has sequence length 128, this run 64; train with 128"),
            ("ids", NARROW, {"replay_batches": "{plain}"}, "this model's vocabulary ends at 127; use the model"),
        )
    },
    "llama.yaml, padding that is missing": feeding(YAML, ("vocab_size: 256", "vocab_size: 1000"), load_weights="{padded}", said=NO_PADDING),
    "llama.yaml, a vocabulary that is cut": feeding(
        YAML, ("vocab_size: 256", "vocab_size: 512"), load_weights="{padded}", said=NOTHING_BUT_ROWS
    ),
    "llama.args, padding of another size": feeding(
        *(ARGS, PADDED[ARGS], ("", "--make-vocab-size-divisible-by 1\n")),
        load_weights="{padded}",
        said="lm_head.weight#padding [24, 64] is not of this model",
    ),
    "llama.args, padding that a checkpoint has not": feeding(
        ARGS, PADDED[ARGS], load_weights="{huggingface}", said="has no padded vocabulary rows, this model pads"
    ),
    "llama.args, rows": feeding(
        ARGS, ("--global-batch-size 4", "--global-batch-size 8"), replay_batches="{plain}", said="has 4 rows, this run consumes 8 a step"
    ),
    "llama.args, steps that are not made": feeding(
        ARGS,
        ("--train-iters 20", "--train-iters 1"),
        inject_gradients="{plain}@2",
        said="step 2 is never made; this run makes steps 0 to 0",
    ),
    "llama.args, batches from a later step": feeding(ARGS, replay_batches="{plain}@1-2", said="has no batch of step 0"),
    "llama.yaml, rows that ranks cannot share": feeding(
        YAML, *THREE_RANKS, replay_batches="{plain}", said="has 4 rows a step, which 3 data-parallel ranks"
    ),
    "llama.args, experts": feeding(ARGS, ("", "--num-experts 4\n"), load_weights="{plain}", said="block_sparse_moe.experts.0.w1.weight"),
    "llama.args, tied": feeding(
        ARGS, UNTIED, *LAYERS[ARGS], inject_gradients="{plain}", said="lm_head.weight [256, 64] is not of this model"
    ),
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_does_not_fit_is_refused_once(case: str, problems: Problems, recorded: Mapping[str, Path]) -> None:
    name, changes, switches, said = UNFIT[case]
    (line,), (variable,) = problems(name, *changes, **switches), switches
    assert line.startswith(f"ALIGN_HOOKS_{variable.upper()}: ") and said.format(**recorded) in line


FITS: dict[str, Case] = {
    "mindformers is fed any number of rows": feeding(YAML, ("batch_size: 4", "batch_size: 2"), replay_batches="{plain}"),
    "a batch that grows": feeding(ARGS, ("", "--rampup-batch-size 2 2 4\n"), replay_batches="{plain}"),
    "a tied model takes no output layer": feeding(ARGS, UNTIED, load_weights="{plain}"),
    "a tokenizer that is asked": feeding(
        ARGS, ("--tokenizer-type NullTokenizer\n--vocab-size 256", "--tokenizer-type HuggingFaceTokenizer"), **BY_PADDED
    ),
    "a script that decides on padding": feeding(ARGS, PADDED[ARGS], ("", "--no-pad-vocab-size\n"), **BY_PADDED),
    "a name that LlamaConfig does not read": feeding(YAML, ("    hidden_size: 64", "    head_dim: 32\n    hidden_size: 64"), **ALL),
    "layers of another make": feeding(ARGS, ("--num-layers 2", "--spec one two\n--num-layers 1"), load_weights="{plain}"),
}


@pytest.mark.parametrize("case", FITS)
def test_nothing_is_guessed(case: str, problems: Problems) -> None:
    name, changes, switches, _ = FITS[case]
    assert problems(name, *changes, **switches) == []


@pytest.mark.parametrize("end", ["$MODEL_ARGS", "--use-checkpoint-args --load 7"])
def test_where_more_may_be_said_only_what_is_said_counts(end: str, tmp_path: Path, recorded: Mapping[str, Path]) -> None:
    def refusals_of(arguments: str, **switches: str) -> list[str]:
        script = tmp_path / "train.sh"
        script.write_text(f"torchrun pretrain_gpt.py {arguments} --lr 1e-3 {end}\n")
        given = {key: value.format(**recorded) for key, value in switches.items()}
        return list(refused("torch", read(str(script), {}), settings(**given), VERSIONS))

    assert refusals_of("--num-layers 2 --hidden-size 64", replay_batches="{plain}", inject_gradients="{plain}") == []
    assert refusals_of("--num-layers 2", **ALL) == []
    if "checkpoint" in end:
        return
    (line,) = refusals_of("--num-layers 2 --hidden-size 128", load_weights="{plain}")
    assert "model.layers.0.input_layernorm.weight is [64], this model has [128]" in line
    assert "q_proj" not in line


@pytest.mark.parametrize(("version", "rows"), [("0.17.1", (1001, 23)), ("0.18.0rc0", (1000, 24)), ("0.18.0", (1000, 24))])
def test_null_tokenizer_counted_the_end_of_a_document_apart(version: str, rows: tuple[int, int], tmp_path: Path) -> None:
    whole = described(ARGS, PADDED[ARGS], where=tmp_path, megatron=version).whole
    assert (whole["lm_head.weight"][0], whole["lm_head.weight#padding"][0]) == rows
    full = described(ARGS, where=tmp_path, megatron=version)
    assert full.padded == (384 if version < "0.18" else 256)


def test_nothing_is_said_of_the_vocabulary_of_a_version_that_is_not_known(tmp_path: Path) -> None:
    unversioned = described(ARGS, where=tmp_path, megatron="")
    names = ("lm_head.weight", "lm_head.weight#padding", "model.norm.weight")
    assert [unversioned.is_unknown(name) for name in names] == [True, True, False]


def test_sizes_are_those_of_the_rows(tmp_path: Path) -> None:
    grouped = described(ARGS, ("--group-query-attention\n--num-query-groups 2\n", "--kv-channels 24\n"), where=tmp_path).whole
    assert grouped["model.layers.1.self_attn.k_proj.weight"] == (96, 64)
    assert grouped["model.layers.1.self_attn.o_proj.weight"] == (64, 96)
    made = described(YAML, ("    intermediate_size: 128\n", "    multiple_of: 48\n"), where=tmp_path).whole
    assert made["model.layers.0.mlp.up_proj.weight"] == (192, 64)
    tied = described(YAML, ("tie_word_embeddings: False", "tie_word_embeddings: True"), where=tmp_path, vocabulary=250).whole
    assert tied["model.embed_tokens.weight#padding"] == (6, 64)
    assert "lm_head.weight" not in tied


def test_a_source_that_cannot_be_opened_is_said_of_its_variable_alone(problems: Problems, tmp_path: Path) -> None:
    assert problems(YAML, load_weights=str(tmp_path / "nowhere"), replay_batches="{plain}") == []


def test_a_number_of_layers_that_is_a_slip_of_the_pen_takes_no_memory(tmp_path: Path) -> None:
    many = described(ARGS, ("--num-layers 2", "--num-layers 1000000000"), where=tmp_path)
    assert many.whole.keys() == {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}


@pytest.mark.parametrize("name", ["families/qwen3_moe.args", "families/qwen3_moe.yaml"])
def test_experts_that_do_not_fit_are_refused(name: str, problems: Problems, tmp_path: Path) -> None:
    (tmp_path / "families").mkdir()
    model = {name: shape for name, shape in described(name, where=tmp_path).whole.items() if name.endswith("mlp.gate.weight")}
    run = grown({**model, "model.layers.0.mlp.experts.0.up_proj.weight": (4, 4)})
    run.settings |= {"routing": "all"}
    chosen = np.tile(np.arange(2, dtype=np.int16), (ROWS, SEQUENCE, 1))
    run.routing = {step: {router.removesuffix(".weight"): chosen for router in model} for step in range(3)}
    run.write(tmp_path / "run")
    fewer = (
        ("--moe-router-topk 2", "--moe-router-topk 1") if name.endswith("args") else ("num_experts_per_tok: 2", "num_experts_per_tok: 1")
    )
    assert problems(name, replay_routing=str(tmp_path / "run")) == []
    assert "gives each token to 2 experts" in problems(name, fewer, replay_routing=str(tmp_path / "run"))[0]
    dense = problems(ARGS if name.endswith("args") else YAML, replay_routing=str(tmp_path / "run"))
    assert dense == ["ALIGN_HOOKS_REPLAY_ROUTING: this model has no experts; unset it"]


@pytest.mark.parametrize("name", [ARGS, YAML])
def test_points_that_do_not_fit_the_blocks_are_refused(name: str, problems: Problems, tmp_path: Path) -> None:
    points = ("model.embed_tokens", "model.layers.0", "model.layers.1")
    for width in (64, 96):
        run = Synthetic(settings={"activations": "0", "activations_tensors": "*"})
        value = np.ones((ROWS, SEQUENCE, width), np.float32)
        run.activations = {0: {point + suffix: value for point in points for suffix in ("", "#gradient")}}
        run.write(tmp_path / str(width))
    assert problems(name, teacher=f"{tmp_path}/64@0") == []
    (wider,) = problems(name, teacher=f"{tmp_path}/96@0")
    assert wider.startswith("ALIGN_HOOKS_TEACHER: ")
    assert "is 96 wide, here 64; take a run of this model" in wider
    assert problems(name, teacher=f"{tmp_path}/96@0", teacher_points="lm_head") == []  # how wide it is here is not known
