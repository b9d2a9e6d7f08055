"""The models of the YAML files of MindFormers' wheel: of what family a recorder takes them for, and that the doctor foretells it."""

import json
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import DeepseekV3Config, PretrainedConfig, Qwen3Config, Qwen3MoeConfig

from align_hooks.checklist.family_match import odd
from align_hooks.checklist.result import check
from align_hooks.configuration.source import read
from align_hooks.messages import rendered
from align_hooks.quantities.weights import NEAREST, NO_FAMILY, UNKNOWN
from real import frameworks
from worded import ids

Yamls = dict[str, tuple[Path, str, dict[str, Any]]]
Facts = dict[str, dict[str, Any]]
SCALED = ["moe_router_topk_scaling_factor is 1.5, not None"]
UNNORMALISED = ["qk_layernorm is False, not True"]
SHIPPED: dict[str, str | list[str]] = {
    "qwen3/pretrain_qwen3_32b_4k.yaml": "Qwen3ForCausalLM",
    "qwen3_moe/pretrain_qwen3_30b_a3b_4k.yaml": SCALED,
    "telechat3/pretrain_telechat3_36b.yaml": "LlamaForCausalLM",
    "telechat3_moe/pretrain_telechat3_105b_a4b_4k.yaml": "DeepseekV3ForCausalLM",
    "deepseek3/pretrain_deepseek3_671b.yaml": "DeepseekV3ForCausalLM",
    "deepseek3/pretrain_deepseek3_12b_16p_pp16.yaml": "DeepseekV3ForCausalLM",
}
"""Every file of the wheel that trains a newer model of its own sizes: the architecture of Hugging Face that is recorded, or why none is.
Hugging Face's Qwen3-MoE has no factor behind its router, so no config.json says what that file trains."""
OVER: dict[str, tuple[type[PretrainedConfig], str | list[str]]] = {
    "qwen3/finetune_qwen3.yaml": (Qwen3Config, "Qwen3ForCausalLM"),
    "deepseek3/finetune_deepseek3_671b.yaml": (DeepseekV3Config, "DeepseekV3ForCausalLM"),
    "deepseek3/finetune_deepseek3_12b_16p_pp16.yaml": (DeepseekV3Config, "DeepseekV3ForCausalLM"),
    "general/llm_pretrain_dense_template.yaml": (Qwen3Config, "Qwen3ForCausalLM"),
    "general/llm_finetune_dense_template.yaml": (Qwen3Config, "Qwen3ForCausalLM"),
    "general/llm_pretrain_moe_template.yaml": (Qwen3MoeConfig, SCALED),
    "general/llm_finetune_moe_template.yaml": (Qwen3MoeConfig, SCALED),
}
"""Files that stand over a ``config.json`` of Hugging Face: whose, and the same."""
KEPT = ("qk_head_dim", "rope_interleave")
"""What transformers keeps of a DeepSeek-V3 and its published config.json does not hold."""
BARE: dict[str, str | list[str]] = {
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "telechat3": "LlamaForCausalLM",
    "deepseek_v3": UNNORMALISED,
    "telechat3_moe": UNNORMALISED,
}
"""The defaults of MindFormers' own classes."""
WRITTEN: dict[str, tuple[str, dict[str, Any], str | list[str]]] = {
    "capitals": ("qwen3", {"hidden_act": "SiLU"}, "Qwen3ForCausalLM"),
    "fused": ("qwen3", {"hidden_act": "swiglu", "bias_swiglu_fusion": True}, "Qwen3ForCausalLM"),
    "norms": ("telechat3", {"qk_layernorm": True}, "Qwen3ForCausalLM"),
    "biases": ("telechat3", {"attention_bias": True}, "Qwen2ForCausalLM"),
    "another activation": ("qwen3", {"hidden_act": "gelu"}, ["hidden_act is gelu, not silu"]),
    "not gated": ("qwen3", {"gated_linear_unit": False}, ["gated_linear_unit is False, not True"]),
    "interpolated, in vain": ("qwen3", {"rotary_seq_len_interpolation_factor": 2.0}, "Qwen3ForCausalLM"),
    "gated shared experts": ("qwen3_moe", {"use_shared_expert_gating": True}, ["use_shared_expert_gating is True, not False"]),
}
"""What a user may write: the model, its keys, and the same."""


def configs() -> Path:
    """The folder of the wheel's YAML files."""
    return Path(str(distribution("mindformers").locate_file("configs")))


@pytest.fixture(scope="module")
def yamls(tmp_path_factory: pytest.TempPathFactory) -> Yamls:
    """Each YAML by its name, its kind of model, and the whole ``model_config`` that MindFormers makes of it (``merge_model_config``)."""
    found, where = {}, tmp_path_factory.mktemp("yamls")
    for name in SHIPPED:
        asked = yaml.safe_load((configs() / name).read_text())["model"]["model_config"]
        found[name] = (configs() / name, asked["model_type"], asked)
    for name, (kind, _) in OVER.items():
        folder = where / name.replace("/", "_")
        (folder / "model").mkdir(parents=True)
        kept = kind(architectures=[f"{kind.__name__.removesuffix('Config')}ForCausalLM"]).to_diff_dict()
        own = {key: value for key, value in kept.items() if key not in KEPT}
        (folder / "model" / "config.json").write_text(json.dumps(own))
        told = yaml.safe_load((configs() / name).read_text()) | {"pretrained_model_dir": str(folder / "model")}
        (folder / "a.yaml").write_text(yaml.safe_dump(told))
        found[name] = (folder / "a.yaml", own["model_type"], own | (told["model"].get("model_config") or {}))
    written = {kind: (kind, {}) for kind in BARE} | {name: (kind, keys) for name, (kind, keys, _) in WRITTEN.items()}
    for name, (kind, keys) in written.items():
        path = where / f"{name.replace(' ', '_')}.yaml"
        path.write_text(yaml.safe_dump({"use_legacy": False, "run_mode": "train", "model": {"model_config": {"model_type": kind, **keys}}}))
        found[name] = (path, kind, keys)
    return found


@pytest.fixture(scope="module")
def answers(yamls: Yamls) -> dict[str, Any]:
    """What a recorder finds in MindFormers' models."""
    return frameworks.answered("shipped_models.py", [[kind, keys] for _, kind, keys in yamls.values()])


@pytest.fixture(scope="module")
def recorded(yamls: Yamls, answers: dict[str, Any]) -> Facts:
    """What would be recorded of each model."""
    return dict(zip(yamls, answers["recorded"], strict=True))


WANTED = {**SHIPPED, **BARE, **{name: wanted for name, (*_, wanted) in (OVER | WRITTEN).items()}}


@pytest.mark.parametrize("name", WANTED)
def test_a_model_is_of_the_family_whose_numbers_it_has_and_the_doctor_foretells_it(name: str, yamls: Yamls, recorded: Facts) -> None:
    wanted, found = WANTED[name], recorded[name]
    assert (found.get(NO_FAMILY) or found["architectures"]) == (wanted if isinstance(wanted, list) else [wanted])
    assert (NEAREST in found) == isinstance(wanted, list)
    configuration, again = (read(str(yamls[name][0]), {}) for _ in range(2))
    foretold = list(map(rendered, odd(configuration)))
    assert bool(foretold) == isinstance(wanted, list), foretold
    said = ids(*check(configuration, again).sides[0].notes).count("note.of_no_family")
    assert said == isinstance(wanted, list)


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe", "telechat3", "deepseek_v3"])
def test_a_fact_is_right_or_unknown_whatever_attribute_is_missing(answers: dict[str, Any], kind: str) -> None:
    whole = answers["without"][kind][""]
    assert "architectures" in whole and UNKNOWN not in whole
    for without, model in answers["without"][kind].items():
        common = (whole.keys() & model.keys()) - {UNKNOWN}
        assert {key: model[key] for key in common} == {key: whole[key] for key in common}, without
        assert "refused" in model or NO_FAMILY in model or set(model.get(UNKNOWN, ())) == whole.keys() - model.keys(), without
    assert answers["without"][kind]["rotary_base"][UNKNOWN] == ["rope_theta"]


def test_a_class_of_somebody_elses_of_a_familys_name_is_of_no_family(answers: dict[str, Any]) -> None:
    why = ["TrainingQwen3ForCausalLM is of no family"]
    assert answers["another class"] == {NO_FAMILY: why, UNKNOWN: ["vocab_size", "num_hidden_layers"]}


def test_every_shipped_file_that_trains_a_newer_model_is_tried() -> None:
    """A file of a later wheel is a new row of ``SHIPPED`` or of ``OVER``; the others train older models, or predict."""
    trained = set()
    for path in configs().rglob("*.yaml"):
        told = yaml.safe_load(path.read_text())
        if told.get("run_mode") in ("train", "finetune") and not told.get("use_legacy", True):
            trained.add(str(path.relative_to(configs())))
    assert trained == {*SHIPPED, *OVER}
