"""Files that a script names, there or not."""

from __future__ import annotations

from pathlib import Path

from align_hooks.configuration.source import read
from align_hooks.doctor.files import missing, resumes
from synthetic import settings


def test_files_that_do_not_lie_here(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    model = tmp_path / "tokenizer.model"
    script.write_text(f"torchrun pretrain_gpt.py --num-layers 2 --tokenizer-model {model} --data-path {tmp_path}/corpus\n")
    asked = settings(run="run")
    assert [line.partition(": ")[2] for line in missing(read(str(script), {}), asked, from_here=True)] == [
        f"{model} does not lie here",
        f"{tmp_path}/corpus.bin does not lie here",
    ]
    for name in ("tokenizer.model", "corpus.bin", "corpus.idx"):
        (tmp_path / name).touch()
    assert list(missing(read(str(script), {}), asked, from_here=True)) == []
    model.unlink()
    script.write_text(script.read_text().replace("--data-path", "--tokenizer-type HuggingFaceTokenizer --data-path"))
    assert list(missing(read(str(script), {}), asked, from_here=True)) == []  # a name at a hub, for all that is known


def test_recorded_batches_take_the_place_of_data(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("torchrun pretrain_gpt.py --num-layers 2 --data-path nowhere\n")
    assert list(missing(read(str(script), {}), settings(replay_batches=tmp_path), from_here=True)) == []


def test_a_checkpoint_that_the_run_goes_on_from_is_told(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"torchrun pretrain_gpt.py --num-layers 2 --load {tmp_path}\n")
    assert resumes(read(str(script), {})) == ""
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("10\n")
    assert resumes(read(str(script), {})).endswith("finds a checkpoint of iteration 10: the run goes on from there")


def test_relative_paths_are_looked_for_where_the_run_starts(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("torchrun pretrain_gpt.py --num-layers 2 --vocab-file gpt2.json --merge-file /nowhere/merges.txt\n")
    asked = settings(run="run")
    here, elsewhere = (list(missing(read(str(script), {}), asked, from_here=from_here)) for from_here in (True, False))
    assert [line.partition(": ")[2] for line in here] == ["gpt2.json does not lie here", "/nowhere/merges.txt does not lie here"]
    assert elsewhere == here[1:]
