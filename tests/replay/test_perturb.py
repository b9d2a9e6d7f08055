"""Weights moved by one rounding step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from align_hooks.names.blocks import Blocks
from align_hooks.replay.perturb import EPS, Perturbed
from align_hooks.replay.weights import Loader
from align_hooks.settings import Settings, SettingsError, Source, Steps
from synthetic import fused

NAME = "model.embed_tokens.weight"


class Given(dict):  # type: ignore[type-arg]
    """Weights as ``open_run`` gives them."""

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self[name].shape)


WEIGHTS = Given({name: np.random.default_rng(1).standard_normal((64, 32)).astype(np.float32) for name in ("a", "b")})


@pytest.mark.parametrize("kind", EPS)
def test_every_element_moves_by_one_step_up_or_down(kind: str) -> None:
    moved = Perturbed(WEIGHTS, EPS[kind], 1)["a"] / WEIGHTS["a"].astype(np.float64) - 1
    assert moved.shape == (64, 32)
    assert (np.abs(moved) >= 0.4 * EPS[kind]).all()
    assert (np.abs(moved) <= 1.6 * EPS[kind]).all()
    assert 0.45 < (moved > 0).mean() < 0.55


def test_signs_are_those_of_the_seed_and_the_name() -> None:
    moved, again, of_another_seed = (Perturbed(WEIGHTS, 0.5, seed) for seed in (1, 1, 2))
    assert (moved["a"] == again["a"]).all()
    assert (moved["a"] != of_another_seed["a"]).mean() > 0.4
    assert ((moved["a"] > WEIGHTS["a"]) != (moved["b"] > WEIGHTS["b"])).mean() > 0.3
    assert Perturbed(Given(), 0.5, 1).keys() == set()
    assert (len(moved), moved.shape("a")) == (2, (64, 32))


def test_a_loader_moves_what_it_reads_and_leaves_types_alone(tmp_path: Path) -> None:
    weights = {NAME: np.full((8, 4), 0.5, np.float32)}
    save_file(weights, tmp_path / "model.safetensors")
    native = fused("embedding", {NAME: (8, 4)}, Blocks(1, (8,)))
    tensor = Loader(Source(tmp_path, Steps.parse("0")), {NAME: (8, 4)}, perturb=(3, "bfloat16")).read(native)
    assert tensor.dtype == np.float32
    assert set(np.unique(tensor)) == {np.float32(0.5 * (1 - 2.0**-7)), np.float32(0.5 * (1 + 2.0**-7))}


def test_it_needs_weights_to_move() -> None:
    with pytest.raises(SettingsError, match=r"PERTURB moves weights that are loaded; set ALIGN_HOOKS_LOAD_WEIGHTS"):
        Settings.from_environment({"ALIGN_HOOKS_PERTURB": "1"})
