"""YAML texts of the families that MindFormers trains, and what its own trainer builds of them, read back."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from align_hooks.configuration.mindformers import MODEL
from checklist import exercises
from real import frameworks

FAMILIES = {
    "llama": exercises.OLD,
    "qwen3": exercises.NEW,
    "qwen3_moe": exercises.EXPERTS,
    "deepseek_v3": exercises.LATENT,
    "telechat3": exercises.NEW,
    "telechat3_moe": exercises.LATENT,
}
"""Family to the base of the exercises that it stands on."""
DATA = "train_dataset.data_loader.config."
Keys = dict[str, Any]


def base(family: str) -> Keys:
    """A small model of a family, by dotted keys as rows name them."""
    keys = {long(name): value for name, value in exercises.BASES[FAMILIES[family]].items()}
    keys.pop(f"{MODEL}bias_swiglu_fusion", None)  # 1.9 wants hidden_act: swiglu with it
    keys.pop("load_checkpoint", None)  # which would have to be there
    if family != "llama":
        keys[f"{MODEL}model_type"] = family
    if FAMILIES[family] in (exercises.EXPERTS, exercises.LATENT):
        keys[f"{MODEL}moe_grouped_gemm"] = True  # 1.9 trains no other
    return keys


def long(name: str) -> str:
    """A key in full: ``m.`` is the model's, ``D.`` the data set's."""
    return name.replace("m.", MODEL, 1) if name.startswith("m.") else name.replace("D.", DATA, 1) if name.startswith("D.") else name


def changed(keys: Keys, more: Mapping[str, Any]) -> Keys:
    """Keys with others on them, in the short form too; None takes a key out, with all that stands under it."""
    kept = dict(keys)
    for name, value in ((long(name), value) for name, value in more.items()):
        kept = {key: one for key, one in kept.items() if key != name and not key.startswith(f"{name}.")}
        if value is not None:
            kept[name] = value
    return kept


def text(keys: Keys) -> str:
    """A YAML of dotted keys."""
    tree: Keys = {}
    for name, value in keys.items():
        *path, last = name.split(".")
        place = tree
        for part in path:
            inner = place.setdefault(part, {})
            place[part] = place = inner if isinstance(inner, dict) else {}
        place[last] = value
    return yaml.safe_dump(tree)


def read_back(texts: Sequence[str]) -> list[dict[str, Any]]:
    """What ``scripts/advice_mindformers.py`` answers, each different text asked once."""
    asked = list(dict.fromkeys(texts))
    answers = dict(zip(asked, frameworks.answered("advice_mindformers.py", asked), strict=True))
    return [answers[one] for one in texts]
