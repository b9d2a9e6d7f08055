"""NumpyDataloader in a YAML that its user wrote, in a script where no variable of ours is set."""

import functools
import re
from pathlib import Path

import pytest
import yaml

from align_hooks import open_run
from real import frameworks
from real.kept import Kept

COLUMNS = ["input_ids", "labels", "loss_mask"]
NEEDED = {
    "train_dataset.input_columns": COLUMNS,
    "train_dataset.construct_args_key": COLUMNS,
    "model.model_config.input_sliced_sig": True,
    "model.model_config.pad_token_id": -1,
}
"""The four settings, beside the name and the directory, with which a Llama computes the loss of a recorded batch."""
NOTHING = {"DEVICE": None, "SEED": None}


def by_hand(code: int, *flags: str, **change: object) -> Kept:
    settings = {"context.device_target": "CPU", "model.model_config.pad_token_id": 0} | change
    script = frameworks.SCRIPTS / "by_hand.py"
    return frameworks.kept(frameworks.mindformers, code, script=script, launcher=(), change=settings, flags=flags, **NOTHING)


def test_the_yaml_of_the_documentation_holds_them() -> None:
    page = Path(__file__).parents[2] / "docs" / "launchers.md"
    told = yaml.safe_load(re.findall(r"^```yaml\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)[0])
    assert {name: functools.reduce(dict.__getitem__, name.split("."), told) for name in NEEDED} == NEEDED


def test_the_import_alone_registers_the_name_and_the_recorded_batch_is_fed(reference: Path) -> None:
    done = by_hand(0, **{"train_dataset.data_loader.dataset_dir": str(reference)}, **NEEDED)
    first = open_run(reference).batch(0)
    recorded = dict(zip(COLUMNS, (first.tokens, first.labels, first.loss_mask), strict=True))
    assert str({name: (array.shape, int(array.sum())) for name, array in recorded.items()}) in done.output.splitlines()
    assert done.ours == ""


@pytest.mark.slow
@pytest.mark.parametrize("missing", [name for name in NEEDED if name != "train_dataset.construct_args_key"])
def test_what_is_missing_in_the_yaml_is_named_with_all_that_it_needs(reference: Path, missing: str) -> None:
    given = {name: value for name, value in NEEDED.items() if name != missing}
    done = by_hand(1, **{"train_dataset.data_loader.dataset_dir": str(reference)}, **given)
    assert f"(not so: {missing})" in done.line
    assert all(f"{name}: {value}" in done.line for name, value in NEEDED.items())


@pytest.mark.slow
def test_without_a_directory_that_is_named_first(real_corpus: Path) -> None:
    assert "(not so: train_dataset.data_loader.dataset_dir)" in by_hand(1, **NEEDED).line


@pytest.mark.slow
def test_a_class_of_the_user_s_own_stays(real_corpus: Path) -> None:
    assert by_hand(1, "--own").output.splitlines()[-1] == "the user's own"


@pytest.mark.slow
def test_a_replay_feeds_recorded_batches_though_the_user_has_a_class_of_that_name(reference: Path) -> None:
    script = frameworks.SCRIPTS / "by_hand.py"
    done = frameworks.kept(frameworks.mindformers, script=script, launcher=(), flags=("--own",), REPLAY_BATCHES=reference)
    assert "the user's own" not in done.output
    assert "'loss_mask'" in done.output
