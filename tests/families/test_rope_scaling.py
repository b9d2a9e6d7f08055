"""Scaled rotary positions against those that Megatron-LM, MindFormers and Transformers build."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("megatron.core")

from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding

from align_hooks.families import llama
from align_hooks.families.megatron import Llama3Scaling, rotary_base, scaled, usual_yarn

SIZE = 64


def built(factor: float | None, base: int = 500000) -> SimpleNamespace:
    """A model with Megatron-LM's own rotary embedding, scaled by ``factor``, or not at all."""
    given = {} if factor is None else {"rope_scaling": True, "rope_scaling_factor": factor}
    rotary = RotaryEmbedding(SIZE, 1.0, rotary_base=base, use_cpu_initialization=True, cp_group=object(), **given)
    return SimpleNamespace(rotary_pos_emb=rotary, config=SimpleNamespace(), rotary_base=base)


def arguments(factor: float, scales: bool = True) -> SimpleNamespace:
    return SimpleNamespace(use_rope_scaling=scales, rope_scaling_factor=factor, rotary_base=500000)


@pytest.mark.parametrize(("factor", "asked"), [(2.0, 2.0), (8.0, 8.0), (32.0, 32.0), (8.0, 32.0)])
def test_what_megatron_built_is_read(factor: float, asked: float) -> None:
    """And not a factor that never reached the model: ``pretrain_gpt.py`` of some releases hands ``--rope-scaling-factor`` to nobody."""
    found = scaled(built(factor), arguments(asked))
    assert found.facts()["factor"] == found.factor == factor
    assert rotary_base(built(factor), arguments(asked)) == 500000


@pytest.mark.parametrize(("factor", "asked"), [(None, True), (3.0, True), (8.0, False)])
def test_other_frequencies_are_of_no_known_scaling(factor: float | None, asked: bool) -> None:
    assert scaled(built(factor), arguments(8.0, asked)) is None


YARN = {"factor": 4.0, "original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.0}
METHODS = {
    "None": (1.0, None),
    "LLAMA3": ({"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, "llama3"),
    "PI": (4.0, "linear"),
    "NTK": (2.0, None),
    "YARN": (YARN, "yarn"),
}
"""``extend_method`` to ``scaling_factor``, and the ``rope_type`` that it is; 1.9 refuses every factor of ``linear``."""


@pytest.mark.parametrize("method", METHODS)
def test_mindformers_positions_are_those_of_the_record(method: str) -> None:
    """The cosines of MindFormers' own table are those of Transformers' model of the ``config.json`` that is recorded."""
    layers, utils = pytest.importorskip("mindformers.modules.layers"), pytest.importorskip("transformers.modeling_rope_utils")
    mindspore = pytest.importorskip("mindspore")
    given, kind = METHODS[method]
    config = SimpleNamespace(extend_method=method, scaling_factor=given, theta=10000.0)
    built = layers.FreqsMgr(*(SIZE, 64, 32768, mindspore.float32), theta=10000.0, scaling_factor=given, extend_method=method)
    recorded = llama._rope_scaling(config)
    assert (recorded or {}).get("rope_type") == kind
    base = llama._rotary_base(config)
    if recorded is None:
        frequencies, size = base ** (-np.arange(0, SIZE, 2) / SIZE), 1.0
    else:
        of_transformers = pytest.importorskip("transformers").LlamaConfig(
            hidden_size=SIZE, num_attention_heads=1, rope_theta=base, rope_scaling=recorded, max_position_embeddings=32768
        )
        found, size = utils.ROPE_INIT_FUNCTIONS[kind](of_transformers, "cpu")
        frequencies = found.double().numpy()
    expected = size * np.cos(np.outer(np.arange(64), frequencies))
    assert np.abs(built.freqs_cos.asnumpy()[:64, : SIZE // 2] - expected).max() < 1e-5


def test_frequencies_of_llama_3_1_are_those_of_transformers() -> None:
    utils, transformers = pytest.importorskip("transformers.modeling_rope_utils"), pytest.importorskip("transformers")
    scaling = Llama3Scaling(500000.0, 8.0)
    config = transformers.LlamaConfig(hidden_size=SIZE, num_attention_heads=1, rope_theta=500000.0, rope_scaling=scaling.facts())
    found, _ = utils.ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    assert np.allclose(found.double().numpy(), scaling.frequencies(SIZE), rtol=1e-6)


@pytest.mark.parametrize(
    "given",
    [
        {"factor": 32.0, "base": 150000.0, "correction_range_round_to_int": False},  # gpt-oss
        {"factor": 32.0, "base": 50000.0, "beta_fast": 1.0, "mscale_all_dim": 1.0},  # Kimi-K2
        {"factor": 4.0, "base": 10000.0, "beta_slow": 2.0, "mscale": 0.7},
        {"factor": 0.5, "base": 10000.0},
    ],
)
def test_positions_by_yarn_that_megatron_built_are_those_of_the_record(given: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    torch, yarn = pytest.importorskip("torch"), pytest.importorskip("megatron.core.models.common.embeddings.yarn_rotary_pos_embedding")
    utils, transformers = pytest.importorskip("transformers.modeling_rope_utils"), pytest.importorskip("transformers")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
    base, factor = given.pop("base"), given.pop("factor")
    rotary = yarn.YarnRotaryEmbedding(
        SIZE, rotary_base=base, scaling_factor=factor, use_cpu_initialization=True, cp_group=SimpleNamespace(size=lambda: 1), **given
    )
    angles, size = rotary.get_emb(64)
    recorded = usual_yarn(rotary)
    config = transformers.LlamaConfig(hidden_size=SIZE, num_attention_heads=1, rope_theta=base, rope_scaling=recorded)
    found, expected = utils.ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
    assert size == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(angles[:, 0, 0, : SIZE // 2].numpy(), np.outer(np.arange(64), found.numpy()), rtol=1e-5)
