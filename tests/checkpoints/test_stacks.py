"""A gpt-oss of Hugging Face, whose tensors hold all experts of a layer: through other forms and back, and as weights to load."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from align_hooks.checkpoints.convert import convert_weights  # noqa: E402
from align_hooks.checkpoints.forms import open_checkpoint  # noqa: E402
from align_hooks.checkpoints.huggingface import open_safetensors  # noqa: E402
from align_hooks.replay.weights import SafetensorsFolder  # noqa: E402
from oracle.models import GPT_OSS  # noqa: E402


def test_experts_are_cut_apart_and_stacked_again(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**GPT_OSS))
    for parameter in model.parameters():
        parameter.data.normal_()  # biases too
    model.save_pretrained(tmp_path / "hf")
    convert_weights(tmp_path / "hf", tmp_path / "megatron", "megatron")
    convert_weights(tmp_path / "megatron", tmp_path / "again", "huggingface")
    before, after = (open_safetensors(tmp_path / name / "model.safetensors") for name in ("hf", "again"))
    assert "model.layers.0.mlp.experts.gate_up_proj" in before
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name].read(), after[name].read()) for name in before)
    loaded, opened = SafetensorsFolder(tmp_path / "hf"), open_checkpoint(tmp_path / "hf").tensors
    assert set(loaded) == set(opened)
    for name, tensor in opened.items():
        assert loaded.shape(name) == tensor.shape
        np.testing.assert_array_equal(loaded[name], tensor.read(), strict=True)
