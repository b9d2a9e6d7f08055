"""Files that a script names, there or not."""

from pathlib import Path

import pytest

from align_hooks.configuration.source import read
from align_hooks.configuration.values import Configuration
from align_hooks.doctor.examination import examine
from align_hooks.doctor.files import missing, resumes
from chosen import slow_but
from started import write
from synthetic import settings


def written(folder: Path, arguments: str) -> Configuration:
    """A launch script with these arguments, read."""
    return read(str(write(folder, f"torchrun pretrain_gpt.py --num-layers 2 {arguments}\n", "train.sh")), {})


def missed(folder: Path, arguments: str, *, from_here: bool = True, **switches: object) -> list[str]:
    """What is said of files that a script with these arguments misses, without the place that names them."""
    asked = settings(**switches or {"run": "run"})
    return [line.partition(": ")[2] for line in missing(written(folder, arguments), asked, from_here=from_here)]


def test_files_that_do_not_lie_here(tmp_path: Path) -> None:
    model, corpus = tmp_path / "tokenizer.model", tmp_path / "corpus"
    arguments = f"--tokenizer-model {model} --data-path {corpus}"
    assert missed(tmp_path, arguments) == [f"{model} does not lie here", f"{corpus}.bin does not lie here"]
    for name in ("tokenizer.model", "corpus.bin", "corpus.idx"):
        (tmp_path / name).touch()
    assert missed(tmp_path, arguments) == []
    model.unlink()
    assert missed(tmp_path, f"--tokenizer-type HuggingFaceTokenizer {arguments}") == []  # a name at a hub, for all that is known


PARALLEL = "use_parallel: True\nparallel_config: {data_parallel: 1, model_parallel: 4, pipeline_stage: 4}\n"
SPLIT = "{} splits the model over 16 devices, and so many processes are started: {}; "
REFUSED: dict[str, tuple[str, str, list[str]]] = {
    # what is written, how it is started, and what is told
    "a YAML of many devices": (PARALLEL, "", [SPLIT.format("a.yaml", 1)]),
    "eight devices of sixteen": (PARALLEL, "bash msrun_launcher.sh 'run_mindformer.py --config a.yaml' 8", [SPLIT.format("a.yaml", 8)]),
    "msrun": (PARALLEL, "msrun --worker_num=4 run_mindformer.py --config a.yaml", [SPLIT.format("a.yaml", 4)]),
    "as many as are needed": (PARALLEL, "msrun --worker_num 16 run_mindformer.py --config a.yaml", []),
    "one process": (PARALLEL.replace("True", "False"), "", []),
    "data of Megatron's form": (
        "train_dataset: {data_loader: {config: {data_path: ['1', /path/to/corpus_text_document]}}}",
        *("", ["a.yaml:1: /path/to/corpus_text_document.bin does not lie here"]),
    ),
    "a file of the context": (
        "context: {ascend_config: {parallel_speed_up_json_path: /path/to/speed_up.json}}",
        *("", ["a.yaml:1: /path/to/speed_up.json does not lie here"]),
    ),
    "Megatron's tensor parallelism": (
        *("", "torchrun --nproc_per_node 2 pretrain_gpt.py --num-layers 2 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 4"),
        [SPLIT.format("train.sh", 2)],
    ),
    "two data sets": (
        *("", "torchrun pretrain_gpt.py --num-layers 2 --data-path 30 /path/to/a 70 /path/to/b"),
        ["train.sh:1 --data-path: /path/to/a.bin does not lie here"],
    ),
}


@pytest.mark.parametrize("case", slow_but(REFUSED))
def test_a_rehearsal_that_would_not_start(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, started, told = REFUSED[case]
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(f"{written}\nrunner_config: {{epochs: 1}}\n")
    Path("train.sh").write_text(f"{started}\n")
    problems = examine("train.sh" if started else "a.yaml", {"ALIGN_HOOKS_DEVICE": "cpu"}).problems
    found = [line for line in problems if "splits" in line or "does not lie here" in line]
    assert len(found) == len(told) and all(map(str.startswith, found, told)), found


def test_recorded_batches_take_the_place_of_data(tmp_path: Path) -> None:
    assert missed(tmp_path, "--data-path nowhere", replay_batches=tmp_path) == []


def test_a_checkpoint_that_the_run_goes_on_from_is_told(tmp_path: Path) -> None:
    configuration = written(tmp_path, f"--load {tmp_path}")
    assert resumes(configuration) == ""
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("10\n")
    assert resumes(configuration).endswith("finds a checkpoint of iteration 10: the run goes on from there")


def test_relative_paths_are_looked_for_where_the_run_starts(tmp_path: Path) -> None:
    arguments = "--vocab-file gpt2.json --merge-file /nowhere/merges.txt"
    here = ["gpt2.json does not lie here", "/nowhere/merges.txt does not lie here"]
    assert missed(tmp_path, arguments) == here
    assert missed(tmp_path, arguments, from_here=False) == here[1:]
