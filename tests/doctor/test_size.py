"""Sizes that configurations describe, against the counts that the models' own checkpoints have."""

from pathlib import Path

import pytest

from align_hooks.configuration.megatron import read_command
from align_hooks.configuration.source import read
from align_hooks.doctor.shapes import shapes
from align_hooks.doctor.size import Size, of_configuration, of_run, parameters
from align_hooks.record.reader import open_run
from checklist.wheels import installed
from synthetic import SHAPES, Synthetic

LLAMA = "--swiglu --normalization RMSNorm --disable-bias-linear --use-rotary-position-embeddings --untie-embeddings-and-output-weights"
LLAMA += " --make-vocab-size-divisible-by 1 --vocab-size 32000"
GROUPED = "--group-query-attention --num-query-groups"
SEVEN = "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32"
THIRTEEN = "--num-layers 40 --hidden-size 5120 --ffn-hidden-size 13824 --num-attention-heads 40"
SEVENTY = "--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64"
MIXTRAL = "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --num-experts 8"
GPT = "--num-layers 12 --hidden-size 768 --num-attention-heads 12 --vocab-size 50257 --max-position-embeddings 1024"
PUBLISHED = {
    "llama2 7b": (6_738_415_616, f"{LLAMA} {SEVEN}"),
    "llama2 13b": (13_015_864_320, f"{LLAMA} {THIRTEEN}"),
    "llama2 70b": (68_976_648_192, f"{LLAMA} {GROUPED} 8 {SEVENTY}"),
    "mixtral 8x7b": (46_702_792_704, f"{LLAMA} {GROUPED} 8 {MIXTRAL}"),
    "gpt2": (124_439_808, f"{GPT} --make-vocab-size-divisible-by 1"),
}
"""Trainable elements of the published checkpoints."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models(name: str) -> None:
    count, arguments = PUBLISHED[name]
    assert parameters(read_command(arguments, {})) == count


def test_norms_that_a_glm_lacks_are_neither_counted_nor_expected() -> None:
    file = Path(__file__).parents[2] / "launch" / "families" / "glm4_moe.args"
    arguments = file.read_text().replace("--moe-layer-freq [0,1,1]\n", "").replace("--mtp-num-layers 1\n", "")
    counts = [parameters(read_command(" ".join(text.split()), {})) for text in (arguments, arguments.replace("--qk-layernorm\n", ""))]
    assert counts[0] - counts[1] == 3 * 2 * 24
    without = shapes(read_command(" ".join(arguments.replace("--qk-layernorm\n", "").split()), {}), "")
    assert "model.layers.0.self_attn.q_proj.bias" in without.whole
    assert not [name for name in (*without.whole, *without.unknown) if "q_norm" in name]


@pytest.mark.parametrize(
    ("yaml", "count"),
    [
        ("qwen3/pretrain_qwen3_32b_4k.yaml", 32_762_123_264),
        ("qwen3_moe/pretrain_qwen3_30b_a3b_4k.yaml", 30_532_122_624),
        # without the biases of its experts, which no gradient moves
        ("deepseek3/pretrain_deepseek3_671b.yaml", 671_026_419_200 - 58 * 256),
    ],
)
def test_published_models_from_the_files_that_mindformers_ships(yaml: str, count: int) -> None:
    assert parameters(read(str(installed(yaml)), {})) == count


def test_steps_tokens_and_parts() -> None:
    training = "--train-iters 100 --global-batch-size 8 --micro-batch-size 1 --seq-length 4096 --tensor-model-parallel-size 2"
    size = of_configuration(read_command(f"{PUBLISHED['llama2 7b'][1]} {training} --pipeline-model-parallel-size 4", {}))
    assert size == Size(PUBLISHED["llama2 7b"][0], 32768, 100, 8, "the command", rows=32000, micro_batch=1, sequence=4096)


def test_what_is_not_said_is_not_known() -> None:
    size = of_configuration(read_command("--num-layers 2 --lr 1e-3", {}))
    assert size == Size(None, None, None, 1, "the command")


def test_numbers_that_no_training_has_are_not_known(tmp_path: Path) -> None:
    size = of_configuration(
        read_command(f"{PUBLISHED['llama2 7b'][1]} --train-iters {10**30} --seq-length {10**400} --hidden-size {10**400}", {})
    )
    assert (size.elements, size.tokens, size.steps) == (None, None, None)


def test_of_a_record(tmp_path: Path) -> None:
    Synthetic().write(tmp_path / "run")
    size = of_run(open_run(tmp_path / "run"))
    assert size.elements == sum(rows * (columns[0] if columns else 1) for rows, *columns in SHAPES.values())
    assert (size.steps, size.parts) == (3, 1)
