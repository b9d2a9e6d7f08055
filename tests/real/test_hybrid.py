"""A GPTModel and the HybridModel of the same layers, trained on the CPU by Megatron-LM's own specification of the latter's."""

from pathlib import Path

import pytest

from align_hooks import open_run
from chosen import slow_but
from real import frameworks
from real.layouts import SPECIFICATION

PATTERNS = {
    "llama": "*-*-",
    "qwen2": "*-*-",
    "qwen3": "*-*-",
    "qwen3_moe": "*E*E",
    "deepseek_v3": "+-+E+E",
    "deepseek_v3_mtp": "+-+E+E/+E",
    "glm4_moe": "*-*E*E/*E",
}
"""Families that a HybridModel has too, each with its pattern."""
WITHOUT = {"--num-layers": None, "--moe-layer-freq": None, "--mtp-num-layers": None, "--train-iters": "10"}
"""What a pattern stands for."""


@pytest.mark.parametrize("family", slow_but(PATTERNS, "deepseek_v3_mtp"))
def test_both_models_of_a_family_are_one(family: str, real_corpus: Path) -> None:
    runs = []
    for change, script, flags in (
        ({"--train-iters": "10"}, "pretrain_gpt.py", ()),
        (WITHOUT, "pretrain_hybrid.py", ("--hybrid-layer-pattern", PATTERNS[family], *SPECIFICATION)),
    ):
        given = {"family": family, "change": change, "script": frameworks.LAUNCH / script, "flags": flags}
        runs.append(open_run(frameworks.recorded(frameworks.megatron, **given, **frameworks.EVERYTHING)))
    losses = max(frameworks.loss_errors(*runs))
    gradients = max(frameworks.furthest(runs[0].gradients(step), runs[1].gradients(step)) for step in runs[0].steps)
    print(f"{family}: losses within {losses:.1e}, gradients of {len(runs[0].steps)} steps within {gradients:.1e}")
    assert len(runs[0].steps) == 10 and losses < 1e-6 and gradients < 1e-5
    frameworks.aligned(*(run.path for run in runs))


def test_layers_that_make_no_blocks_are_recorded_under_their_own_names(real_corpus: Path) -> None:
    given = {"change": WITHOUT | {"--train-iters": "2"}, "script": frameworks.LAUNCH / "pretrain_hybrid.py"}
    variables = frameworks.EVERYTHING | {"ACTIVATIONS_TENSORS": None, "RUN": "run"}
    done = frameworks.kept(frameworks.megatron, **given, flags=("--hybrid-layer-pattern", "**--", *SPECIFICATION), **variables)
    assert "hybrid_layer_pattern is **--, not pairs of attention and feed-forward" in done.ours
    run = open_run(done.run)
    numbers = {name.split(".")[2] for name in run.gradients(0) if name.startswith("megatron:decoder.layers.")}
    assert numbers == set("0123") and not any(name.startswith("model.layers.") for name in run.gradients(0))
    points = {name for name in run.activations(0) if "#" not in name}
    assert {f"megatron:decoder.layers.{number}{end}" for number in range(4) for end in ("", ".input")} < points
    assert {name for name in points if name.endswith(".core")} == {f"megatron:decoder.layers.{number}.self_attn.core" for number in (0, 1)}
