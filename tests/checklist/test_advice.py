"""Advice that was once wrong or incomplete: what is told now, all of it, and that nothing differs once it is written."""

from pathlib import Path
from typing import Any

import yaml

from align_hooks.checklist.result import check
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.messages import message, rendered
from checklist.exercises import LATENT, NEW, megatron, mindformers, mindformers_tree, row, to_change


def test_a_row_that_follows_names_the_changes_that_it_follows() -> None:
    older = {"use_legacy": True, "m.type": "LlamaConfig"}
    found = row(check(megatron(NEW, {}), mindformers(NEW, older)), "type_in_which_the_residual_is_added")
    assert to_change(found) == rendered(message("change.follows", changes="compute_dtype"))


def written(style: str, keys: dict[str, Any]) -> str:
    """The text of a MindFormers YAML."""
    return yaml.safe_dump(mindformers_tree(style, keys))


def test_a_table_of_the_models_own_file_is_taken_along(tmp_path: Path) -> None:
    """A table of the YAML takes the place of the whole table of ``config.json``: one of its numbers alone would lose the others."""
    scaling = '{"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 1.0}'
    (tmp_path / "config.json").write_text('{"rope_scaling": ' + scaling + "}", encoding="utf-8")
    names = ("type", "factor", "original_max_position_embeddings", "mscale", "mscale_all_dim")
    keys = {**{f"m.rope_scaling.{name}": None for name in names}, "pretrained_model_dir": "."}
    (tmp_path / "latent.yaml").write_text(written(LATENT, keys), encoding="utf-8")
    candidate = read_yaml(written(LATENT, keys), "latent.yaml", tmp_path)
    reference = megatron(LATENT, {"rotary-scaling-factor": 40})
    before = check(reference, candidate)
    assert before.differing == ["rotary_scaling_factor", "stretch_of_latent_attentions_scores"]
    assert {edit.key.rpartition(".")[2]: edit.value for edit in before.edits} == {
        "type": "yarn",
        "factor": 40,
        "original_max_position_embeddings": 4096,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    }
    assert check(reference, read_yaml(before.block, "mended.yaml", tmp_path)).differing == []
