"""What stands for an NPU's operators computes what each is defined as, here in numpy and fp64; a fault in one is seen."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from align_hooks.names.blocks import Array

STANDIN = Path(__file__).parents[1] / "matrix" / "standin"
FAULTS = {
    "rms_norm": {"npu_rms_norm"},
    "rotary": {"npu_rotary_mul", "npu_rotary_position_embedding"},
    "attention": {f"npu_fusion_attention {layout}" for layout in ("SBH", "BSND", "BNSD")},
}
"""Fault of ``planted.py`` to the operators that it spoils."""


@cache
def computed(*faults: str) -> dict[str, Array]:
    pytest.importorskip("torch")
    line, path = [sys.executable, str(STANDIN / "computed.py"), *faults], os.environ | {"PYTHONPATH": str(STANDIN)}
    done = subprocess.run(line, env=path, capture_output=True, text=True, check=True)
    return {name: np.array(values) for name, values in json.loads(done.stdout).items()}


def drawn(*shape: int, seed: int = 1) -> Array:
    values: Array = np.random.default_rng(seed).normal(size=shape)
    return values


def softmax(scores: Array) -> Array:
    powers: Array = np.exp(scores)
    return powers / powers.sum(-1, keepdims=True)


def attended() -> Array:
    """Attend row by row: each position to those up to its own, each head to those of its group."""
    query, key, value = (drawn(2, 5, heads, 6, seed=seed) for seed, heads in enumerate((4, 2, 2)))
    made = np.zeros_like(query)
    for batch, position, head in np.ndindex(made.shape[:3]):
        seen = slice(position + 1)
        weights = softmax(key[batch, seen, head // 2] @ query[batch, position, head] * 0.3)
        made[batch, position, head] = weights @ value[batch, seen, head // 2]
    return made


def defined() -> dict[str, Array]:
    x, gamma, angle = drawn(3, 8), drawn(8, seed=2), drawn(3, 8, seed=3)[:, :4]
    turned = (x[:, :4] + 1j * x[:, 4:]) * np.exp(1j * angle)
    halves = np.concatenate([turned.real, turned.imag], -1)
    pairs = (x[:, ::2] + 1j * x[:, 1::2]) * np.exp(1j * angle)
    weight, first, second = (abs(drawn(4, seed=seed)) for seed in (4, 5, 6))
    mean, square = 0.9 * first + 0.1 * drawn(4), 0.95 * second + 0.05 * drawn(4) ** 2
    return {
        "npu_rms_norm": x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-2) * gamma,
        "npu_swiglu": x[:, :4] / (1 + np.exp(-x[:, :4])) * x[:, 4:],
        "npu_rotary_mul": halves,
        "npu_rotary_position_embedding": halves,
        "interleaved": np.stack([pairs.real, pairs.imag], -1).reshape(3, 8),
        "npu_scaled_masked_softmax": softmax(np.where(x > 0.5, -10000.0, 0.7 * x)),
        **dict.fromkeys(FAULTS["attention"], attended()),
        "npu_apply_adam_w": weight * (1 - 0.1 * 0.2) - 0.1 * (mean / 0.1) / (np.sqrt(square / 0.05) + 1e-8),
    }


def wrong(*faults: str) -> set[str]:
    """Return the operators that are further than fp32 from their definition."""
    expected = defined()
    return {name for name, made in computed(*faults).items() if not np.allclose(made, expected[name], rtol=1e-5, atol=1e-6)}


def test_each_operator_is_as_it_is_defined() -> None:
    assert computed().keys() == defined().keys()
    assert wrong() == set()


def test_a_fault_in_an_operator_is_seen() -> None:
    assert wrong(*FAULTS) == set().union(*FAULTS.values())
