"""Keys that an anchor of a YAML ties: advised together, written together by ``--fix`` and in the file to paste, or named."""

from pathlib import Path

import pytest

from align_hooks.checklist.fix import fixed
from align_hooks.checklist.result import check
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.yaml_files import leaves
from align_hooks.messages import rendered
from checklist.exercises import OLD, megatron, row, to_change
from checklist.test_advice import written

BIAS = "callbacks: [{type: MFLossMonitor}, {type: TopkBiasBalanceCallback, count: *tied}]\n"
CASES: dict[str, tuple[str, str, dict[str, int], list[str]]] = {
    # a line of the base and what stands in its place, lines below it, flags, and the keys that come to the flag's value
    "an alias behind the anchor": (
        *("  batch_size: 1\n", "  batch_size: &tied 1\n"),
        *({"global-batch-size": 4, "micro-batch-size": 4}, ["runner_config.batch_size", "callbacks.1.count"]),
    ),
    "the key itself is the alias": (
        *("    seq_length: 128\n", "    seq_length: *tied\n"),
        *({"seq-length": 256, "max-position-embeddings": 128}, ["model.model_config.seq_length", "first", "callbacks.1.count"]),
    ),
}


def at(text: str, key: str) -> object:
    """Return what stands at a dotted key, where a number is a place in a list."""
    name, *way = key.split(".1.")
    value = leaves(text, "x.yaml")[name].written
    return value[1][way[0]] if way else value


@pytest.mark.parametrize("case", CASES)
def test_they_come_to_one_value_by_fix_and_by_paste(case: str, tmp_path: Path) -> None:
    before, after, flags, keys = CASES[case]
    text = written(OLD, {"use_parallel": False})
    assert before in text
    first = "first: &tied 128\n" if "*" in after else ""
    text = first + text.replace(before, after) + BIAS
    (tmp_path / "old.yaml").write_text(text, encoding="utf-8")
    checklist = check(megatron(OLD, flags), read_yaml(text, "old.yaml", tmp_path))
    mended = fixed(str(tmp_path / "old.yaml"), checklist)
    pasted = read_yaml(checklist.block, "over.yaml", tmp_path)
    wanted = next(iter(flags.values()))
    assert [at(mended.after, key) for key in keys] == [wanted] * len(keys)
    assert "*tied" in mended.after  # the tie is kept
    assert {key: value.written for key, value in pasted.values.items()} == {
        key: value.written for key, value in mended.configuration.values.items()
    }
    assert "callbacks too, by its anchor &tied" in " ".join(rendered(edit.words) for edit in checklist.edits)


def test_keys_that_are_to_part_are_written_apart(tmp_path: Path) -> None:
    text = "first: &tied 4\n" + written(OLD, {}).replace("    num_layers: 2\n", "    num_layers: *tied\n")
    text = text.replace("    num_heads: 4\n", "    num_heads: *tied\n")
    (tmp_path / "old.yaml").write_text(text, encoding="utf-8")
    checklist = check(megatron(OLD, {"num-layers": 2}), read_yaml(text, "old.yaml", tmp_path))
    assert to_change(row(checklist, "num_layers")) == "num_layers: 2; num_heads: 4"
    after = fixed(str(tmp_path / "old.yaml"), checklist).after
    assert [line.strip() for line in after.splitlines() if "num_" in line or "tied" in line] == [
        *("first: &tied 4", "num_heads: *tied", "num_layers: 2")
    ]


@pytest.mark.parametrize(
    ("text", "tied"),
    [
        ("a: &x 1\nb: *x\n", {"a": "x", "b": "x"}),
        ("a: &x {b: 1}\nc: *x\n", {"a.b": "x", "c.b": "x"}),
        ("a: &x {b: 1}\nc: {<<: *x, d: 2}\n", {"a.b": "x"}),
        ("a: &x 1\nb: [[*x, 2]]\n", {"a": "x"}),  # the list itself stands nowhere else
        ("a: 1\nb: 1\n", {}),
    ],
)
def test_what_an_anchor_ties(text: str, tied: dict[str, str]) -> None:
    assert {key: value.tie.anchor for key, value in leaves(text, "x.yaml").items() if value.tie is not None} == tied


def test_a_copy_of_the_data_set_that_mindformers_makes_is_not_read(tmp_path: Path) -> None:
    text = written(OLD, {"train_dataset_task.type": "CausalLanguageModelDataset", "train_dataset_task.dataset_config.seed": 4})
    assert [key for key in read_yaml(text, "old.yaml", tmp_path).values if "_task." in key] == ["train_dataset_task.type"]
