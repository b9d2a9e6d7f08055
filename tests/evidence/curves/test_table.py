"""Tables as W&B and people export them."""

import math
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.errors import RecordError
from align_hooks.evidence.convert import convert_curves, is_curves

LOSS = '"Step","gpt3 - lm loss","gpt3 - lm loss__MIN","gpt3 - lm loss__MAX"\n"1","10.9","10.9","10.9"\n"2","10.5","10.4","10.6"\n'
NORM = '"Step","gpt3 - grad-norm","gpt3 - grad-norm__MIN","gpt3 - grad-norm__MAX"\n"1","2.5","2.5","2.5"\n"2","nan","nan","nan"\n'
RATE = '"Step","gpt3 - learning-rate"\n"1","0.001"\n"2","0.002"\n'
SAMPLES = '"Step","gpt3 - samples vs steps"\n"1","256"\n"2","512"\n'


def test_charts_that_wandb_exported_of_a_run_of_megatron(tmp_path: Path) -> None:
    """As W&B's page exports them: a chart a file, and beside each point the least and the largest of those that it stands for."""
    charts = tmp_path / "charts"
    charts.mkdir()
    for number, chart in enumerate((LOSS, NORM, RATE, SAMPLES)):
        (charts / f"wandb_export_{number}.csv").write_text(chart)
    assert is_curves(charts)
    scalars = convert_curves(charts, tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert run.facts.framework == "Megatron-LM"
    points = [(row.step, row.loss, row.learning_rate, row.consumed_samples) for row in run.rows]
    assert points == [(0, 10.9, None, 256), (1, 10.5, 0.001, 512)]
    assert run.rows[0].grad_norm == 2.5
    assert math.isnan(run.rows[1].grad_norm or 0.0)
    assert scalars.notes == ["Megatron-LM logs the learning rate of the step after: that of the first step is not known"]


def test_the_history_of_a_run_as_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text('{"_step": 0, "train/loss": 3.5, "lr": 0.1, "_timestamp": 1e9}\n\n{"_step": 10, "train/loss": 3.25, "lr": 0.2}\n')
    unsaid = convert_curves(file, tmp_path / "unsaid")
    assert [(row["loss"], row["learning_rate"]) for row in unsaid.rows] == [(3.5, None), (3.25, None)]  # of this step, or of the next
    assert unsaid.notes[-1] == "nothing says which framework made it, so its learning rates are left out: --side torch or --side ms"
    assert open_run(tmp_path / "unsaid").facts.framework is None
    scalars = convert_curves(file, tmp_path / "run", "ms")
    run = open_run(tmp_path / "run")
    assert run.facts.framework == "MindFormers"
    assert [(row.step, row.loss, row.learning_rate) for row in run.rows] == [(0, 3.5, 0.1), (10, 3.25, 0.2)]
    assert scalars.notes == ["its steps begin with 0: step 0 is taken to be number 0"]
    assert run.problems == []  # curves are of those steps that were logged


def test_a_table_by_hand_that_counts_from_1(tmp_path: Path) -> None:
    file = tmp_path / "curve.csv"
    file.write_text("iteration,Loss,Global_Norm,note\n1,2.5,1,warm\n2,,2,\n3,2.25,3,\n")
    convert_curves(file, tmp_path / "run", "torch")
    assert [(row.step, row.loss, row.grad_norm) for row in open_run(tmp_path / "run").rows] == [(0, 2.5, 1.0), (2, 2.25, 3.0)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("loss,lr\n1,2\n", "has no column of steps"),
        ("step,loss\n1.5,2\n", "'1.5' as its step, which is no number of one"),
        ("step,loss\n-1,2\n", "'-1' as its step"),
        ("step,loss\n,2\n", "'' as its step"),
        ("step,accuracy\n1,2\n", "has no curve of the loss"),
        ("iteration,lm-loss\n0,2\n", "at step 0 alone, before the first, which is number 1"),
        ("step,loss\n", "holds no number of a step"),
        ("", "holds no number of a step"),
        ("step,a - loss,b - loss\n1,2,3\n", "has curves of 2 runs, 'a', 'b'; export one run at a time"),
        ("step,loss\n1,2\0\n", "has no curve|cannot be read|holds no number"),
        *((f'{{"step": 1, "loss": 2.0}}\n{line}\n', r"curve\.jsonl:2 is no") for line in ("{", "[1, 2]", '"step"')),
    ],
)
def test_what_is_no_table_and_no_objects_of_a_run_is_refused_by_name(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / ("curve.jsonl" if text.startswith("{") else "curve.csv")
    file.write_text(text)
    with pytest.raises(RecordError, match=why):
        convert_curves(file, tmp_path / "run", "ms")
    assert not (tmp_path / "run").exists()


def test_other_files_are_no_curves(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("")
    (tmp_path / "empty").mkdir()
    assert not any(map(is_curves, (tmp_path / "train.log", tmp_path / "empty", tmp_path / "missing.csv")))
