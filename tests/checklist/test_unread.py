"""Keys of an older model that its configuration class does not read: the table of classes against MindFormers' source, and what is told."""

import ast
import importlib.metadata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from align_hooks.checklist.mindformers_models import EVERY_CLASS, classes, keys_read, own_keys
from align_hooks.checklist.result import Checklist, as_read, check
from align_hooks.checklist.tables import ROW
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.messages import Message, message, terms
from checklist.exercises import NEW, OLD, keys, megatron, mindformers
from checklist.wheels import older

SOURCES = {"LlamaConfig": "models/llama/llama_config.py", "ChatGLM2Config": "models/glm2/glm2_config.py"}
"""Classes that 1.9 still has, and where."""


def parameters(text: str, kind: str) -> set[str]:
    """The parameters of a class's ``__init__``, and what it takes out of its keyword arguments."""
    body = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef) and node.name == kind)
    init = next(node for node in body.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    return {argument.arg for argument in init.args.args[1:]} | set(taken(init))


def taken(init: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(init):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr in ("get", "pop") and ast.unparse(called.value) == "kwargs":
            yield str(ast.literal_eval(node.args[0]))


@pytest.mark.parametrize("kind", SOURCES)
def test_the_table_is_what_the_installed_classes_take(kind: str) -> None:
    try:
        distribution = importlib.metadata.distribution("mindformers")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("mindformers is not installed")
    text = Path(str(distribution.locate_file(f"mindformers/{SOURCES[kind]}"))).read_text(encoding="utf-8")
    own, every = own_keys(kind, distribution.version), classes()[EVERY_CLASS][1]
    assert parameters(text, kind) - every.keys() == own


@pytest.mark.parametrize("kind", [*SOURCES, "GPT2Config"])
def test_the_table_is_what_the_classes_of_1_3_take(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    text = older(SOURCES.get(kind, "models/gpt2/gpt2_config.py"), tmp_path_factory, "mindformers").read_text(encoding="utf-8")
    assert parameters(text, kind) - classes()[EVERY_CLASS][1].keys() == own_keys(kind, "1.3.2")


def test_a_class_reads_what_it_is_made_of_and_from_which_release_on() -> None:
    assert "rms_norm_eps" in keys_read("QwenConfig", "1.3") and "num_hidden_layers" in keys_read("QwenConfig", "1.3")
    assert "init_method_std" not in keys_read("LlamaConfig", "1.3.2") and "init_method_std" in keys_read("LlamaConfig", "1.5.0")
    assert "type" in keys_read("GPT2Config", "1.3")


# --- what is told ---


def told(text: str, version: str = "1.9", kind: str = "LlamaConfig") -> list[Message]:
    """The traps of keys that are not read; ``m.`` is the model."""
    checked = check(megatron(OLD, {}), mindformers(OLD, {"m.type": kind, **keys(text)}), mindformers=version)
    return [pitfall for pitfall in checked.sides[1].pitfalls if pitfall.id.startswith("pitfall.unread")]


def about(version: str = "1.9", kind: str = "LlamaConfig") -> dict[str, Any]:
    return {"kind": kind, "version": version}


def at(text: str, name: str, kind: str = "LlamaConfig") -> str:
    """Where a key stands in the YAML of such keys."""
    place = mindformers(OLD, {"m.type": kind, **keys(text)}).values[f"model.model_config.{name}"].where
    assert place.startswith("old.yaml:")
    return place


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("initializer_range", 0.1, "init_method_std: 0.1"),
        ("num_hidden_layers", 3, "num_layers: 3"),
        ("num_key_value_heads", 2, "n_kv_heads: 2"),
        ("rope_theta", 5000.0, "theta: 5000.0"),
        ("rotary_emb_base", 5000.0, "theta: 5000.0"),
        ("max_position_embeddings", 64, "max_position_embedding: 64"),
        ("layernorm_epsilon", 0.001, "rms_norm_eps: 0.001"),
        ("attention_bias", True, "qkv_has_bias: True"),
    ],
)
def test_the_key_that_does_the_same_is_what_to_write(name: str, value: Any, instead: str) -> None:
    written = instead.partition(":")[0]
    text = f"m.{name}: {value}, m.{written}: null"
    assert told(text) == [message("pitfall.unread", place=at(text, name), name=name, instead=instead, **about())]


def test_what_is_not_read_does_not_count() -> None:
    held = ROW["init_method_std"].read(as_read(mindformers(OLD, {"m.init_method_std": None, "m.initializer_range": 0.1}), "1.9"))
    assert held.shown == "0.01"


def test_a_key_beside_the_one_that_counts_is_told_with_its_place() -> None:
    text = "m.initializer_range: 0.1"
    beside = message(
        "pitfall.unread_beside",
        place=at(text, "initializer_range"),
        name="initializer_range",
        other="init_method_std",
        elsewhere=at(text, "init_method_std"),
        **about(),
    )
    assert told(text) == [beside]
    assert told("m.initializer_range: 0.02") == []  # which is what init_method_std says


def test_a_name_that_is_nearly_one_that_is_read() -> None:
    near = "m.rms_norm_epsilon: 1.0e-6, m.rms_norm_eps: null"
    assert told(near) == [
        message("pitfall.unread_near", place=at(near, "rms_norm_epsilon"), name="rms_norm_epsilon", other="rms_norm_eps", **about())
    ]
    beside = "m.rms_norm_epsilon: 1.0e-6"
    assert [(pitfall.id, pitfall.arguments["elsewhere"]) for pitfall in told(beside)] == [
        ("pitfall.unread_beside", at(beside, "rms_norm_eps"))
    ]


def test_names_that_are_like_none_are_told_together() -> None:
    text = "m.foo_bar: 3, m.use_past_shard: true"
    names = terms(f"{name} ({at(text, name)})" for name in ("foo_bar", "use_past_shard"))
    assert told(text) == [message("pitfall.unread_alone", names=names, **about())]


def test_what_says_what_holds_anyway_is_no_trap() -> None:
    assert told("m.kv_channels: 16, m.rotary_pct: 1.0, m.emb_dropout_prob: 0.0, m.max_position_embeddings: 128, m.foo: null") == []
    assert [pitfall.id for pitfall in told("m.kv_channels: 32, m.rotary_pct: 0.5")] == ["pitfall.unread_alone"]


@pytest.mark.parametrize(
    ("kind", "version", "text", "ids"),
    [
        ("LlamaConfig", "1.3", "m.init_method_std: 0.1", ["pitfall.unread_alone"]),
        ("LlamaConfig", "1.5", "m.init_method_std: 0.1", []),
        ("DeepseekV3Config", "1.5", "m.init_method_std: 0.1, m.mtp_depth: 1, m.rms_norm_eps: 1.0e-6", []),
        ("InternLM2Config", "1.3", "m.has_bias: false", ["pitfall.unread_near", "pitfall.unread_alone"]),
        ("OfTheUsers", "1.9", "m.foo_bar: 3", []),
    ],
)
def test_by_class_and_release(kind: str, version: str, text: str, ids: list[str]) -> None:
    assert [pitfall.id for pitfall in told(text, version, kind)] == ids


def test_newer_models_and_records_have_none() -> None:
    result = check(megatron(NEW, {}), mindformers(NEW, {"m.foo_bar": 3}))
    assert [pitfall for pitfall in result.sides[1].pitfalls if pitfall.id.startswith("pitfall.unread")] == []


# --- files that MindFormers ships ---


def shipped(name: str, factory: pytest.TempPathFactory) -> Checklist:
    file = older(name, factory)
    return check(megatron(OLD, {}), read_yaml(file.read_text(encoding="utf-8"), file.name, Path()), mindformers="1.3")


@pytest.mark.parametrize(
    "name", ["llama2/pretrain_llama2_7b.yaml", "codellama/pretrain_codellama_34b.yaml", "glm2/finetune_glm2_6b_fp16.yaml"]
)
def test_files_of_1_3_that_set_what_their_classes_read(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert [pitfall for pitfall in shipped(name, tmp_path_factory).sides[1].pitfalls if pitfall.id.startswith("pitfall.unread")] == []
