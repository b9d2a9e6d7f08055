"""Every parallel layout of a real Megatron against one rank that trains on the same weights and batches.

Each candidate is a job of several processes over gloo. What it recorded must read back as the same whole tensors: losses, norms
and gradients of the first step agree with the single rank's, and the record does not contradict itself.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from align_hooks import Run, open_run
from chosen import slow_but
from real import frameworks
from real.frameworks import Made
from real.layouts import DISTRIBUTED, LAYERS, LAYOUTS, PP, REFERENCES, SPARSE, TP, started
from synthetic import relative_error

STEPS = {**LAYERS, "--train-iters": "2"}

QUICK = ("TP2 with sequence parallelism",)
"""Those that every run of the tests trains; the others are slow only because they are many."""


def train(ranks: int, kind: str, flags: Sequence[str] = (), **variables: object) -> Run:
    """Train ``ranks`` processes and open what they recorded."""
    family, own, change = REFERENCES[kind]
    given = {"family": family, "change": {**STEPS, **change}, "ranks": ranks, **started((*own, *flags))}
    variables |= {"ROUTING": "all"} if kind in SPARSE else {}
    return open_run(frameworks.recorded(frameworks.megatron, **given, **variables))


@pytest.fixture(scope="module")
def single(real_corpus: Path) -> dict[str, Run]:
    """Runs of one rank, each made when it is first asked for."""
    return Made(lambda kind: train(1, kind))


@pytest.mark.parametrize("name", slow_but(LAYOUTS, *QUICK))
def test_a_layout_is_aligned_with_one_rank(single: dict[str, Run], name: str) -> None:
    kind, ranks, flags = LAYOUTS[name]
    reference = single[kind]
    candidate = train(ranks, kind, flags, **frameworks.fed_by(reference.path))
    check = candidate.self_check
    assert check.contradictions == ()
    assert check.steps == (0, 1)
    worst = frameworks.furthest(reference.gradients(0), candidate.gradients(0))
    print(f"{name}: gradients within {worst:.1e}, {check.copies} copies, the framework's norm {check.inexact:.1e} off")
    assert worst < (0.1 if kind in ("bf16", "fp16") else 1e-5)
    assert max(frameworks.sketch_errors(candidate)) < 1e-12
    frameworks.aligned(reference.path, candidate.path)
    if kind in SPARSE:
        for step in (0, 1):
            ours, theirs = (run.routing(step) for run in (reference, candidate))
            counts = [run.expert_counts(step) for run in (reference, candidate)]
            assert len(ours) == len(theirs) > 1
            assert all(np.array_equal(ours[router], theirs[router]) for router in ours)
            assert all(np.array_equal(counts[0][router], counts[1][router]) for router in ours)


@pytest.mark.slow
def test_bf16_layouts_differ_by_no_more_than_twice_measured_noise(single: dict[str, Run]) -> None:
    """Noise: what bf16 itself does to each tensor, measured against one rank in fp32 on the same weights and batches.

    Two honest bf16 runs are each that far from the truth, in directions of their own: 1.4 times as far from each other. Another
    order of micro-batches is no measure: it is added up in fp32, while tensor parallelism adds up activations in bf16.
    """
    reference = single["bf16"]
    exact = train(1, "fp32", **frameworks.fed_by(reference.path)).gradients(0)
    noise = {name: relative_error(exact[name], tensor) for name, tensor in reference.gradients(0).items()}
    for layout, flags in (("tp", TP), ("pp", PP), ("dp", DISTRIBUTED)):
        candidate = train(2, "bf16", flags, **frameworks.fed_by(reference.path)).gradients(0)
        excess = {name: relative_error(tensor, candidate[name]) / noise[name] for name, tensor in reference.gradients(0).items()}
        worst = max(excess, key=lambda name: excess[name])
        print(f"bf16 {layout}: worst {excess[worst]:.2f} of noise ({worst}); noise {min(noise.values()):.1e} to {max(noise.values()):.1e}")
        assert excess[worst] < 2, worst


@pytest.mark.slow
def test_a_run_is_fed_and_injected_in_another_layout_than_it_was_recorded_in(single: dict[str, Run]) -> None:
    """Recorded at TP2·DP2, replayed, loaded and injected at DP4, at TP2·PP2 and on one rank."""
    source = train(4, "fp32", (*TP, *DISTRIBUTED, "--micro-batch-size", "1"), **frameworks.fed_by(single["fp32"].path))
    fed = frameworks.fed_by(source.path) | {"INJECT_GRADIENTS": source.path}
    sharded = (LAYOUTS["FSDP2"][2], LAYOUTS["Megatron-FSDP"][2])
    others = (("dp4", 4, ()), ("tp2pp2", 4, (*TP, *PP)), ("one", 1, ()), ("fsdp2", 2, sharded[0]), ("megatron-fsdp", 2, sharded[1]))
    for name, ranks, flags in others:
        candidate = train(ranks, "fp32", ("--micro-batch-size", "1", *flags), **fed)
        for step in (1, 2):
            worst = frameworks.furthest(source.weights(step), candidate.weights(step))
            print(f"{name}: weights after update {step} within {worst:.1e}")
            assert worst < 1e-6
        frameworks.aligned(source.path, candidate.path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "flags"), [("TP2", TP), ("DP2", ())])
def test_recorded_gradients_are_those_that_megatron_saves_itself_to_the_bit(real_corpus: Path, name: str, flags: Sequence[str]) -> None:
    """``--save-wgrads-interval``: every model-parallel rank's main gradients by Megatron's own names, in its own layout."""
    torch = pytest.importorskip("torch")
    run = train(2, "fp32", (*flags, "--save-wgrads-interval", "1", "--save", "saved", "--save-interval", "100"))
    ranks = 2 if name == "TP2" else 1
    compared = 0
    for step in (0, 1):
        gradients = run.gradients(step)
        for rank in range(ranks):
            file = run.path.with_name("saved") / "wgrads" / f"iter_{step + 1:07d}" / f"mp_rank_{rank:02d}.pth"
            for native, tensor in torch.load(file, weights_only=True)["model_chunk0"].items():
                np.testing.assert_array_equal(as_megatron(native, gradients, rank, ranks), tensor.numpy(), err_msg=f"{native}, rank {rank}")
                compared += 1
    assert compared == 2 * ranks * (4 * 6 + 3)


def as_megatron(native: str, whole: Mapping[str, np.ndarray], rank: int, ranks: int) -> np.ndarray:
    """What Megatron keeps under a name on a tensor-parallel rank, cut by hand: 2 query groups of 2 heads of 16, no padding."""
    if not native.startswith("decoder.layers."):
        ends = {"embedding": "model.embed_tokens", "decoder": "model.norm", "output_layer": "lm_head"}
        tensor = whole[f"{ends[native.split('.')[0]]}.weight"]
        return tensor if tensor.ndim == 1 else np.split(tensor, ranks)[rank]
    layer, _, part = native.removeprefix("decoder.layers.").partition(".")
    hf = f"model.layers.{layer}."
    if part == "self_attention.linear_qkv.weight":
        query, key, value = (whole[f"{hf}self_attn.{name}_proj.weight"] for name in "qkv")
        groups = [np.concatenate([query[32 * g : 32 * g + 32], key[16 * g : 16 * g + 16], value[16 * g : 16 * g + 16]]) for g in range(2)]
        return np.split(np.concatenate(groups), ranks)[rank]
    if part == "mlp.linear_fc1.weight":
        return np.concatenate([np.split(whole[f"{hf}mlp.{name}_proj.weight"], ranks)[rank] for name in ("gate", "up")])
    others = {"self_attention.linear_proj": "self_attn.o_proj", "mlp.linear_fc2": "mlp.down_proj", "input_layernorm": "input_layernorm"}
    others["pre_mlp_layernorm"] = "post_attention_layernorm"
    tensor = whole[f"{hf}{others[part.removesuffix('.weight')]}.weight"]
    return tensor if tensor.ndim == 1 else np.split(tensor, ranks, axis=1)[rank]
