"""A HybridModel's command beside a GPTModel's: its pattern is the layers that it stands for, and an edit of these is one of the pattern."""

import random
import shlex

from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.result import check
from align_hooks.configuration.megatron import read_command, read_script
from align_hooks.configuration.values import Configuration
from align_hooks.names.hybrid import pattern_of_blocks
from chosen import in_one

SIZES = "torchrun pretrain.py --hidden-size 64 --num-attention-heads 4 --seq-length 128 --lr 1e-3"
SPECIFICATION = "--spec megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec"
LAYERS = {"num_layers", "layers_with_experts", "mtp_num_layers", "initial_scale_of_output_projections", "hybrid_layer_pattern", "spec"}


def gpt(experts: list[bool], predicted: int) -> Configuration:
    words = f"{SIZES} --num-layers {len(experts)}" + (f" --mtp-num-layers {predicted}" if predicted else "")
    sparse = f" --num-experts 4 --moe-layer-freq {list(map(int, experts))}".replace(", ", ",") if any(experts) else ""
    return read_command(words + sparse, {})


def hybrid(pattern: str, sparse: bool) -> str:
    return f"{SIZES} {'--num-experts 4 ' if sparse else ''}{SPECIFICATION} --hybrid-layer-pattern {shlex.quote(pattern)}"


def differing(reference: Configuration, candidate: Configuration) -> dict[str, list[str]]:
    """The rows of layers that differ or are unknown, each with its edits as they are written."""
    bad = (one for one in check(reference, candidate).checked if one.outcome in (RowOutcome.DIFFERENT, RowOutcome.UNKNOWN))
    edits = {one.row.id: [] if one.change is None else [f"{edit.name} {edit.written}" for edit in one.change.edits] for one in bad}
    return {name: words for name, words in edits.items() if name in LAYERS}


def model(seed: int) -> tuple[list[bool], int]:
    draw = random.Random(seed)
    sparse = [draw.random() < 0.5 for _ in range(draw.randint(1, 5))]
    return sparse, draw.choice((0, 0, 1, 2))


@in_one(range(25))
def test_the_blocks_of_a_pattern_are_the_layers_of_a_gptmodel(seed: int) -> None:
    experts, predicted = model(seed)
    candidate = read_command(hybrid(pattern_of_blocks(experts, predicted=predicted, latent=False), any(experts)), {})
    reference = gpt(experts, predicted)
    assert differing(reference, candidate) == differing(candidate, reference) == {}


@in_one(range(25))
def test_an_edit_of_the_layers_is_one_of_the_pattern_and_mends_it_as_it_is_pasted(seed: int) -> None:
    (experts, predicted), (others, others_predicted) = model(seed), model(seed + 1000)
    sparse = any(experts) and any(others)
    experts, others = ([one and sparse for one in each] for each in (experts, others))
    reference = gpt(experts, predicted)
    words = hybrid(pattern_of_blocks(others, predicted=others_predicted, latent=False), sparse)
    told = {edit for edits in differing(reference, read_command(words, {})).values() for edit in edits}
    for _ in range(3):  # each row's edit by itself, one after the other, as a reader follows them
        for edit in sorted(told)[:1]:
            assert edit.startswith("--hybrid-layer-pattern ")
            words = f"{words} {edit}"
        told = {edit for edits in differing(reference, read_script(f"{words}\n", "pasted.sh", {})).values() for edit in edits}
    assert told == set()
    assert differing(reference, read_script(f"{words}\n", "pasted.sh", {})) == {}


@in_one(["M-*-", "G-*-", "D-D-", "**--"])
def test_a_pattern_of_other_layers_is_a_difference_that_no_edit_of_a_pattern_mends(pattern: str) -> None:
    told = differing(gpt([False, False], 0), read_command(hybrid(pattern, False), {}))
    assert "hybrid_layer_pattern" in told
    assert not any(edit.startswith("--hybrid-layer-pattern '") for edits in told.values() for edit in edits)


def test_latent_attention_is_in_the_pattern() -> None:
    assert read_command(hybrid("+-+-", False), {}).values["multi_latent_attention"].written is True
    assert "multi_latent_attention" not in read_command(hybrid("*-*-", False), {}).values


def test_windows_are_those_of_the_layers_that_attend() -> None:
    """Megatron-LM leaves out every Nth of a model's own layers, and of a pattern's only the odd ones attend."""
    windowed = [read_command(f"{hybrid('*-' * 4, False)} --window-size 8,0 --window-attn-skip-freq {every}", {}) for every in (2, 3)]
    assert [side.values["window_attn_skip_freq"].written for side in windowed] == ["[1, 1, 1, 1]", "[1, 0, 1, 1]"]


def test_a_bare_list_of_arguments_holds_a_pattern_that_a_shell_would_take_for_files() -> None:
    read = read_script("--hidden-size 8\n--hybrid-layer-pattern *-*-\n--lr 1\n", "hybrid.args", {})
    assert (read.values["num_layers"].written, read.values["num_layers"].unknown) == (2, None)
