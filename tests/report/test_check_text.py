"""A check on a terminal of any width: what is told to be written can be copied from it."""

from pathlib import Path

import pytest

from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.result import Scheduled
from align_hooks.checklist.sides import check
from align_hooks.messages import rendered
from align_hooks.report.check import document
from align_hooks.report.console import broken, widths
from checklist.exercises import to_change
from started import write
from synthetic import LAUNCH
from worded import on_terminal, words

HEAD, RATES = words("heading.change"), rendered(Scheduled.LEARNING_RATE)
CHANGED = {"hidden_size: 64": "hidden_size: 128", "rms_norm_eps: 1.0e-5": "rms_norm_eps: 1.0e-6", "rope_theta": "theta_of_ropes"}


@pytest.mark.parametrize("width", [60, 80, 200])
def test_nothing_of_a_change_is_cut(width: int, tmp_path: Path) -> None:
    text = (LAUNCH / "llama.yaml").read_text()
    for before, after in CHANGED.items():
        text = text.replace(before, after)
    checklist = check(str(LAUNCH / "llama.args"), str(write(tmp_path, text, "other.yaml")), {})
    lines = on_terminal(document(checklist), width).splitlines()
    first = next(index for index, line in enumerate(lines) if HEAD in line)
    tables = lines[first : next(index for index, line in enumerate(lines) if line.startswith(f"  {RATES[:13]}"))]
    assert max(len(line.rstrip()) for line in tables) <= width
    last, start = "", 0
    for line in tables:
        start = line.index(HEAD) if HEAD in line else start
        last += line[start:].replace(" ", "")
    changes = [to_change(checked).replace(" ", "") for checked in checklist.of(RowOutcome.DIFFERENT)]
    assert len(changes) >= 2
    assert [change for change in changes if change not in last] == []


def test_widths_give_way_from_the_widest_on() -> None:
    rows = [("a" * 30, "b" * 60, "c", "d" * 80)]
    assert widths(rows, 200) == [30, 60, 1, 80]
    assert sum(widths(rows, 71)) == 71
    assert widths(rows, 71)[2] == 1
    assert widths(rows, 10) == [12, 12, 1, 24]  # none is narrower than that


def test_an_absent_model_file_stands_at_the_top_and_is_one_paragraph(tmp_path: Path) -> None:
    text = (
        "use_legacy: False\npretrained_model_dir: absent\nmodel:\n  model_config:\n    model_type: qwen3\nrunner_config:\n  batch_size: 1\n"
    )
    yaml = write(tmp_path, text, "model.yaml")
    result = check("--num-layers 2 --hidden-size 64 --num-attention-heads 4 --lr 1e-3 --micro-batch-size 1", str(yaml), {})
    said = on_terminal(document(result))
    assert said.index("config.json") < said.index("may stand in that file") < said.index("hidden_size (64)") < said.index("─")
    assert "candidate does not" not in said


@pytest.mark.parametrize("name", ["train_dataset.data_loader.config.eod_mask_loss:", "rotary_seq_len_interpolation_factor"])
def test_a_name_goes_on_in_the_next_line_behind_a_joint(name: str) -> None:
    lines = broken(name, 24).splitlines()
    assert "".join(lines) == name
    assert len(lines) > 1
    assert all(line.endswith((".", "_")) for line in lines[:-1])
