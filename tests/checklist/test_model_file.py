"""A model's ``config.json``: what it may say is not known where it is not here, and a table of the YAML replaces its whole."""

import json
from pathlib import Path
from typing import Any

import pytest

from align_hooks.checklist.canonical_values import UNSET, same
from align_hooks.checklist.mindformers_models import ARCHITECTURES
from align_hooks.checklist.row import Effect
from align_hooks.checklist.sides import check
from align_hooks.checklist.tables import ROWS
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.values import Configuration, ConfigurationError

FILE: dict[str, Any] = {
    **{"hidden_size": 96, "intermediate_size": 224, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 3},
    **{"head_dim": 24, "vocab_size": 1000, "rms_norm_eps": 1e-3, "rope_theta": 77.0, "max_position_embeddings": 123, "hidden_act": "gelu"},
    **{"tie_word_embeddings": True, "attention_bias": True, "attention_dropout": 0.3, "initializer_range": 0.5},
    **{"sliding_window": 64, "use_sliding_window": True, "rope_scaling": {"type": "yarn", "factor": 3.0}},
    **{"num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 48, "norm_topk_prob": True, "routed_scaling_factor": 3.5},
    **{"n_routed_experts": 5, "n_shared_experts": 2, "n_group": 5, "topk_group": 2, "first_k_dense_replace": 2, "scoring_func": "softmax"},
    **{"q_lora_rank": 17, "kv_lora_rank": 19, "qk_nope_head_dim": 10, "qk_rope_head_dim": 12, "v_head_dim": 14},
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "llama": {"mlp_bias": False, "pretraining_tp": 1, "rope_scaling": None, "torch_dtype": "bfloat16", "transformers_version": "4.42.3"},
    "qwen2": {"max_window_layers": 28, "sliding_window": 131072, "use_mrope": False, "use_sliding_window": False, "use_cache": True},
    "qwen3": {"max_window_layers": 28, "sliding_window": None, "torch_dtype": "bfloat16", "transformers_version": "4.51.0"},
    "qwen3_moe": {
        **{"decoder_sparse_step": 1, "mlp_only_layers": [], "output_router_logits": False, "router_aux_loss_coef": 0.001},
        **{"num_experts": 128, "num_experts_per_tok": 8, "max_window_layers": 48, "torch_dtype": "bfloat16"},
    },
    "deepseek_v3": {
        **{"auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}, "ep_size": 1, "moe_layer_freq": 1, "seq_aux": True},
        **{"pretraining_tp": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "num_nextn_predict_layers": 1},
        **{"rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "original_max_position_embeddings": 4096, "type": "yarn"}},
    },
}
"""What the published ``config.json`` of a family has beside the sizes of its model."""
OTHER_TRAINERS = {"training:\n  lr: 1.e-5\ndata:\n  cutoff_len: 4096\nparallel:\n  ep_size: 8\nmodel:\n  model_id: qwen3\n": "FSDP2"}
"""A YAML in the sections of another trainer, and that."""
YAML = "use_legacy: False\npretrained_model_dir: {folder}\nmodel:\n  model_config:\n    model_type: {family}\n"


def read(folder: Path, family: str, more: str = "") -> Configuration:
    return read_yaml(YAML.format(folder=folder, family=family) + more, "model.yaml", folder.parent)


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_what_the_file_may_say_is_not_known_without_it(family: str, tmp_path: Path) -> None:
    sides = {}
    for name, content in (("default", {}), ("changed", FILE)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(content))
        sides[name] = read(tmp_path / name, family)
    absent, decided, known = read(tmp_path / "absent", family), 0, {}
    for row in ROWS:
        default, changed, without = (row.read(side).canonical for side in (sides["default"], sides["changed"], absent))
        if row.effect is Effect.RESULT and not same(default, changed):
            decided += 1
            known |= {row.id: without} if without is not UNSET else {}
    assert decided > 10
    assert known == {}


def test_a_table_of_the_yaml_replaces_that_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(FILE))
    both = read(tmp_path / "model", "qwen3", "    rope_scaling:\n      type: yarn\n")
    assert "model.model_config.rope_scaling.factor" not in both.values
    assert both.values["model.model_config.hidden_size"].value == 96


@pytest.mark.parametrize("family", PUBLISHED)
def test_a_published_file_holds_nothing_that_stands_in_the_way_of_clean(family: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": family, **PUBLISHED[family]}))
    (tmp_path / "model.yaml").write_text(YAML.format(folder=tmp_path / "model", family=family))
    checklist = check("--num-layers 2 --hidden-size 64 --lr 1e-3", str(tmp_path / "model.yaml"), {})
    assert [setting.name for _, setting in checklist.uncovered if setting.matters] == []


@pytest.mark.parametrize("text", OTHER_TRAINERS, ids=OTHER_TRAINERS.values())
def test_the_sections_of_another_trainer_are_refused_by_its_name(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"sections of .*{OTHER_TRAINERS[text]}, which are not read yet"):
        read_yaml(text, "model.yaml", tmp_path)
