"""Where data come from and in which order: what names of files say, who shuffles, and what recorded batches say of both."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align_hooks.checklist.canonical_values import Order
from align_hooks.checklist.edits import Action
from align_hooks.checklist.judge import JudgedRow, RowOutcome
from align_hooks.checklist.result import Checklist, as_read, check
from align_hooks.checklist.tables import ROW
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.messages import message
from align_hooks.record.batch_statistics import BatchStatistics, statistics_of
from checklist.exercises import DATA, OLD, keys, megatron, mindformers, row
from checklist.wheels import older

LOADER = "train_dataset.data_loader"
NO_TABLE = {key: None for key in mindformers(OLD, {}).values if key.startswith(f"{DATA}.")}


def of(text: str) -> dict[str, Any]:
    """Keys of a YAML whose reader has no table of Megatron's data; ``L.`` stands for the reader."""
    return NO_TABLE | keys(text.replace("L.", f"{LOADER}."))


def checked(flags: dict[str, Any], text: str, *statistics: BatchStatistics | None) -> Checklist:
    return check(megatron(OLD, flags), mindformers(OLD, of(text)), (statistics[0], statistics[1]) if statistics else (None, None))


# --- names of files ---


@pytest.mark.parametrize(
    ("flags", "text", "outcome"),
    [
        ({}, "L.type: MindDataset, L.dataset_dir: /mnt/wiki.mindrecord", RowOutcome.BY_HAND),
        ({}, "L.type: MindDataset, L.dataset_files: [/mnt/wiki.mindrecord0, /mnt/wiki.mindrecord1]", RowOutcome.BY_HAND),
        ({}, "L.type: TFRecordDataset, L.dataset_dir: /mnt/wiki", RowOutcome.BY_HAND),
        ({}, "L.type: HFDataLoader, L.path: json", RowOutcome.BY_HAND),
        ({}, "L.type: IndexedDataLoader, L.dataset_dir: /mnt/other_text_document", RowOutcome.DIFFERENT),
        ({}, "L.type: BlendedMegatronDatasetDataLoader, L.dataset_dir: /mnt/wiki_text_document", RowOutcome.SAME),
        ({"data-path": "/data/a.jsonl"}, "L.type: HFDataLoader, L.path: /mnt/b.json", RowOutcome.DIFFERENT),
        ({"data-path": "0.3 /a/one 0.7 /b/two"}, "L.type: MindDataset, L.dataset_dir: /mnt/one.mindrecord", RowOutcome.BY_HAND),
    ],
)
def test_names_of_files_of_another_format_are_no_difference(flags: dict[str, Any], text: str, outcome: RowOutcome) -> None:
    found = row(checked(flags, text), "data_path")
    assert found.outcome is outcome
    if outcome is RowOutcome.BY_HAND:
        assert (found.by_hand, found.change) == (message("by_hand.batches"), None)


# --- who shuffles ---

ORDERS = """
# reader | shuffle | MindFormers | order | where it stands
MindDataset | | 1.9 | shuffled | MindSpore 2.9 dataset/engine/datasets_standard_format.py, whose default is ADAPTIVE
MindDataset | false | 1.9 | of_the_data |
MindDataset | files | 1.9 | shuffled |
TFRecordDataset | | 1.9 | shuffled | MindSpore 2.9, whose default is GLOBAL
MultiSourceDataLoader | | 1.9 | shuffled | 1.9 dataset/dataloader/multi_source_dataloader.py:42
HFDataLoader | | 1.9 | of_the_data | 1.9 hf_dataloader.py:159
CommonDataLoader | | 1.9 | of_the_data | 1.6 common_dataloader.py:42
CommonDataLoader | | 1.3 | shuffled | 1.3.2 common_dataloader.py:37
BlendedMegatronDatasetDataLoader | | 1.9 | of_the_data | 1.9 blended_megatron_dataloader.py:263
BlendedMegatronDatasetDataLoader | true | 1.9 | shuffled |
ADGenDataLoader | | 1.9 | | 1.9 adgen_dataloader.py:27, which wants to be told
OfTheUsers | | 1.9 | |
"""


def orders() -> list[Any]:
    lines = [[part.strip() for part in line.split("|")] for line in ORDERS.strip().splitlines() if not line.startswith("#")]
    return [pytest.param(*line[:4], id=" ".join(line[:3])) for line in lines]


@pytest.mark.parametrize(("reader", "shuffle", "version", "order"), orders())
def test_each_reader_shuffles_or_does_not(reader: str, shuffle: str, version: str, order: str) -> None:
    told = f", L.shuffle: {shuffle}" if shuffle else ""
    side = as_read(mindformers(OLD, of(f"L.type: {reader}, L.dataset_dir: /mnt/wiki{told}")), version)
    held = ROW["shuffle"].read(side)
    assert held.shown == (Order(order) if order else "–")


@pytest.mark.parametrize(("kind", "order"), [(None, Order.OF_THE_DATA), ("single", Order.OF_THE_DATA), ("cyclic", Order.CYCLIC)])
def test_megatrons_order_is_that_of_its_data_set(kind: str | None, order: Order) -> None:
    assert ROW["shuffle"].read(megatron(OLD, {"dataloader-type": kind})).canonical is order
    assert row(check(megatron(OLD, {"dataloader-type": "external"}), mindformers(OLD, {})), "shuffle").outcome is RowOutcome.BY_HAND


def shuffled(text: str = "", *statistics: BatchStatistics | None) -> JudgedRow:
    return row(checked({}, f"L.type: MindDataset, L.dataset_dir: /mnt/wiki.mindrecord{text}", *statistics), "shuffle")


def test_a_reader_that_shuffles_is_a_difference_and_what_is_told_mends_it() -> None:
    found = shuffled()
    assert found.outcome is RowOutcome.DIFFERENT
    assert [(edit.key, edit.value) for edit in found.change.edits] == [(f"{LOADER}.shuffle", False)]
    assert shuffled(", L.shuffle: false").outcome is RowOutcome.SAME


def test_megatron_cannot_be_told_to_shuffle_so() -> None:
    found = row(check(mindformers(OLD, of("L.type: MindDataset, L.dataset_dir: /mnt/w")), megatron(OLD, {})), "shuffle")
    assert (found.change.action, found.change.value) == (Action.BOTH_SIDES, message("way_out.shuffle"))


def test_a_seed_says_nothing_of_data_of_another_reader() -> None:
    found = row(checked({}, "L.type: MindDataset, L.dataset_dir: /mnt/w, L.shuffle: true, seed: 7"), "seed_of_the_data")
    assert (found.outcome, found.why) == (RowOutcome.HARMLESS, message("harmless.other_rule"))
    two = [mindformers(OLD, of(f"L.type: MindDataset, L.dataset_dir: /mnt/w, seed: {seed}")) for seed in (7, 8)]
    assert row(check(*two), "seed_of_the_data").outcome is RowOutcome.DIFFERENT


# --- recorded batches ---

TOKENS = np.arange(8).reshape(2, 4)


def batches(tokens: Any = TOKENS, **more: Any) -> BatchStatistics:
    return statistics_of(((step, {"tokens": tokens, **more}) for step in range(3)), None, {})


def test_the_same_recorded_batches_make_all_that_orders_them_harmless() -> None:
    text = "L.type: MindDataset, L.dataset_dir: /mnt/other.mindrecord, L.shuffle: true"
    result = checked({"split": "9,1,0"}, text, batches(), batches())
    held = {name: row(result, name) for name in ("data_path", "split", "shuffle")}
    assert {name: (one.outcome, one.why) for name, one in held.items()} == dict.fromkeys(
        held, (RowOutcome.HARMLESS, message("seen.same_batches", count=3))
    )


@pytest.mark.parametrize("other", [batches(TOKENS + 1), batches(loss_mask=np.zeros((2, 4))), None], ids=["tokens", "masks", "none"])
def test_other_batches_or_those_of_one_side_do_not(other: BatchStatistics | None) -> None:
    assert shuffled("", batches(loss_mask=np.ones((2, 4))), other).outcome is RowOutcome.DIFFERENT


# --- a file that MindFormers ships ---


def test_llama_2_of_1_3_shuffles_its_mindrecord(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = older("llama2/pretrain_llama2_7b.yaml", tmp_path_factory)
    text = file.read_text(encoding="utf-8").replace('dataset_dir: ""', "dataset_dir: /data/wiki4096.mindrecord")
    result = check(megatron(OLD, {}), read_yaml(text, file.name, Path()), mindformers="1.3")
    assert row(result, "shuffle").outcome is RowOutcome.DIFFERENT
    assert row(result, "data_path").outcome is RowOutcome.BY_HAND
