"""The YAML files that MindFormers ships, with what docs/rehearsal.md says to change in them and no more, train in a rehearsal on a CPU."""

import shutil
from pathlib import Path

import pytest
import yaml

from align_hooks import open_run
from align_hooks.configuration.yaml_edits import with_settings
from align_hooks.quantities.weights import NO_FAMILY
from checklist.wheels import installed
from docs.blocks import FENCE, ROOT
from real import frameworks
from real.test_shipped_models import SHIPPED as FAMILIES

ALL, QWEN3, QWEN3_EXPERTS, LATENT = range(4)
"""The blocks of the page, in their order."""
SHIPPED = {
    "qwen3/pretrain_qwen3_32b_4k.yaml": (ALL, QWEN3),
    "qwen3_moe/pretrain_qwen3_30b_a3b_4k.yaml": (ALL, QWEN3, QWEN3_EXPERTS),
    "telechat3/pretrain_telechat3_36b.yaml": (ALL, QWEN3),
    "telechat3_moe/pretrain_telechat3_105b_a4b_4k.yaml": (ALL, LATENT),
    "deepseek3/pretrain_deepseek3_12b_16p_pp16.yaml": (ALL, LATENT),
    "deepseek3/pretrain_deepseek3_671b.yaml": (ALL, LATENT),
}
NO_HEAD_DIM = "telechat3/"
SECTIONS = {"rehearsal.md": "MindFormers ships", "rehearsal.zh-CN.md": "MindFormers自带"}


def blocks(page: str) -> list[dict[str, str]]:
    """What each YAML block of a page says to write, values as they stand."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").partition(SECTIONS[page])[2]
    return [dict(line.split(": ", 1) for line in block.splitlines()) for kind, block in FENCE.findall(text) if kind == "yaml"]


def test_both_languages_say_the_same() -> None:
    assert len(blocks("rehearsal.md")) == 1 + LATENT
    assert blocks("rehearsal.md") == blocks("rehearsal.zh-CN.md")


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_file_trains_with_what_the_page_says(real_corpus: Path, name: str) -> None:
    said = blocks("rehearsal.md")
    settings = {key: value for block in SHIPPED[name] for key, value in said[block].items()}
    if name.startswith(NO_HEAD_DIM):
        del settings["model.model_config.head_dim"]
    settings = {key: value.replace("data/corpus", "corpus") for key, value in settings.items()}
    text = with_settings(installed(name).read_text(encoding="utf-8"), name, settings)
    assert {key for key in settings if key.startswith("train_dataset")} <= {*dotted(yaml.safe_load(text))}
    run = open_run(frameworks.derived(trained, text))
    assert (run.problems, run.steps) == ([], [0, 1])
    assert (NO_FAMILY in run.facts.model) == isinstance(FAMILIES[name], list)


def trained(run: Path, text: str) -> None:
    """Train what a YAML says, in its own folder: MindFormers keeps an index beside the data."""
    for ending in (".bin", ".idx"):
        shutil.copy(f"{frameworks.corpus()}{ending}", run.parent)
    (run.parent / "copy.yaml").write_text(text, encoding="utf-8")
    command = ["-m", "align_hooks.ms_side", str(frameworks.LAUNCH / "run_mindformer.py"), "--config", "copy.yaml"]
    variables = {"RUN": run, "DEVICE": "cpu", "BATCHES": "all", "LOCAL_NORMS": "all", "WEIGHTS": "0"}
    frameworks.python(run.parent, command, variables, {}).succeeded()


def dotted(tree: object, name: str = "") -> list[str]:
    """The keys of a YAML with those of its sections."""
    if not isinstance(tree, dict):
        return [name]
    return [key for part, inner in tree.items() for key in dotted(inner, f"{name}.{part}".lstrip("."))]
