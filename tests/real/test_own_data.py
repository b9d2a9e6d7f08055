"""MindFormers trains on data of its own, with no replay: the same tokens as Megatron-LM, in a file of MindFormers' own."""

from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.checklist.canonical_values import Hidden
from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.result import Checklist
from align_hooks.checklist.sides import check
from checklist.exercises import row
from real import frameworks

OWN = {"train_dataset.input_columns": ["input_ids"], "train_dataset_task.type": "CausalLanguageModelDataset"}


@pytest.fixture(scope="module")
def own(reference: Path) -> Path:
    def written(where: Path, reference: Path) -> None:
        command = [str(frameworks.SCRIPTS / "mindrecord.py"), str(reference), str(where / "words.mindrecord")]
        frameworks.python(where, command, {}, {}).succeeded()

    return frameworks.derived(written, reference) / "words.mindrecord"


def trained(reference: Path, file: Path, pad: int) -> Path:
    data = {"type": "MindDataset", "dataset_dir": str(file), "shuffle": False}
    change = OWN | {"train_dataset.data_loader": data, "model.model_config.pad_token_id": pad}
    return frameworks.recorded(frameworks.mindformers, change=change, LOAD_WEIGHTS=reference)


def checked(reference: Path, run: Path) -> Checklist:
    return check(str(reference), str(run), {})


@pytest.mark.slow
def test_what_is_told_of_a_pad_token_id_makes_the_pair_agree_without_a_replay(reference: Path, own: Path) -> None:
    batches = [open_run(reference).batch(step) for step in range(frameworks.STEPS)]
    ids, counts = np.unique(np.concatenate([batch.tokens.ravel() for batch in batches]), return_counts=True)
    pad, times = int(ids[counts.argmax()]), int(counts.max())
    hides = trained(reference, own, pad)
    found = row(checked(reference, hides), "pad_token_id")
    assert (found.outcome, found.candidate.canonical) == (RowOutcome.DIFFERENT, Hidden(pad, True, True))
    assert [(part.id, part.arguments["count"]) for part in found.why.parts] == [("seen.times", times)]
    first = batches[0].tokens
    ours, theirs = (open_run(run).scalars()[0] for run in (reference, hides))
    assert (ours["valid_tokens"], theirs["valid_tokens"]) == (first.size, first.size - (first == pad).sum())
    assert abs(theirs["loss"] / ours["loss"] - 1) > 1e-4
    change = found.change
    assert [(edit.key, edit.value) for edit in change.edits] == [("model.model_config.pad_token_id", -1)]
    mended = trained(reference, own, -1)
    assert row(checked(reference, mended), "pad_token_id").outcome is RowOutcome.SAME
    frameworks.aligned(reference, mended)
