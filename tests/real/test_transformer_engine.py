"""Transformer Engine's modules have the tensors of Megatron-LM's own by the same names, and all points but norms they fuse."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from real import frameworks, kept

VERSION = "2.13.0"
WHEELS = (f"transformer_engine=={VERSION}", "onnxscript", "onnx", "onnx_ir", "ml_dtypes")
"""Its Python, without the compiled extension, and what that imports."""
KINDS = ("llama", "qwen2", "qwen3", "mixtral", "qwen3_moe", "deepseek_v3")
FUSED = re.compile(r"model\.layers\.\d\.(input_layernorm|post_attention_layernorm|self_attn\.(q|kv)_a_layernorm)")
"""Norms that are computed within the projection behind them."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def answers(real_corpus: Path) -> dict[str, Any]:
    folder = kept.CHECKOUT / "build" / f"transformer_engine-{VERSION}"
    if not (folder / "onnxscript").exists():
        line = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *WHEELS]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no package index gave {WHEELS[0]}: {done.stderr.strip()[-200:]}")
    environment = {"ENGINE": str(folder), "ENGINE_VERSION": VERSION, "PYTHONPATH": str(folder)}
    given = {"launcher": ("-m", "align_hooks.torch_side"), "environment": environment, "DEVICE": "cpu"}
    return frameworks.answered("engine_models.py", code=3, **given)  # nothing is trained, which is said at the end


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_have_the_names_and_shapes_of_megatron_s_own(answers: dict[str, Any], kind: str) -> None:
    engine, own = answers[kind]["engine"], answers[kind]["own"]
    assert answers[kind]["is of the engine"]
    assert engine["family"] == own["family"] and engine["misfits"] == own["misfits"] == []
    assert engine["tensors"] == own["tensors"] and len(own["tensors"]) > 20


@pytest.mark.parametrize("kind", KINDS)
def test_points_are_those_of_megatron_s_own_but_fused_norms(answers: dict[str, Any], kind: str) -> None:
    engine, own = (set(answers[kind][name]["points"]) for name in ("engine", "own"))
    assert engine < own and all(FUSED.fullmatch(name) for name in own - engine)
    assert {f"model.layers.{layer}" for layer in range(2)} < engine
