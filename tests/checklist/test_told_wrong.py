"""What ``check`` once told wrong of real pairs: a difference that was none, one that it did not see, advice that did not mend it."""

from pathlib import Path
from typing import Any

import pytest

from align_hooks.checklist.result import check
from align_hooks.configuration.megatron import read_command
from align_hooks.configuration.source import read
from align_hooks.messages import message
from align_hooks.report.check import document, in_absent_file
from checklist.exercises import NEW, OLD, megatron, mindformers
from worded import on_terminal

SEEDS = "seed (1234 against 42): it decides the first weights where none are loaded, and the order of data that are shuffled"
REPORTS: dict[str, tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]], tuple[str, ...], tuple[str, ...]]] = {
    # flags, keys, what stands in the report, and what does not
    "seeds that decide": ((OLD, {"load": None}), (OLD, {"seed": 42}), (SEEDS,), ()),
    "seeds that decide nothing": ((OLD, {}), (OLD, {"seed": 42}), (), ("seed (1234",)),
    "one line each": (
        *((OLD, {"log-progress": ""}), (OLD, {"m.type": "LlamaConfig", "m.qkv_has_bias": True, "output_dir": "x"})),
        ("not covered, reference: 1 setting (--all lists it)", "candidate: of no family of models", "settings follow it (--all)"),
        ("these do not", "log_progress"),
    ),
    "a part of no steps": ((OLD, {"lr-warmup-fraction": 0.2}), (OLD, {"lr_schedule.warmup_ratio": 0}), (" 0.2 ", " 0 "), ("None ",)),
    "a class that is gone": ((OLD, {}), (OLD, {"m.type": "InternLM2Config", "m.has_bias": False}), ("1.5 is the last that has it",), ()),
}


@pytest.mark.parametrize("case", REPORTS)
def test_a_report_says_it_in_few_lines(case: str) -> None:
    (style, flags), (other, keys), there, away = REPORTS[case]
    printed = on_terminal(document(check(megatron(style, flags), mindformers(other, keys))), 200)
    assert [words for words in there if words not in printed] == [] and [words for words in away if words in printed] == [], printed


def test_a_script_that_was_given_no_arguments_says_so_first(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("torchrun pretrain_gpt.py --num-layers $1 --lr 1e-3\n", encoding="utf-8")
    notes = check(read(str(tmp_path / "train.sh"), {}), mindformers(OLD, {})).sides[0].notes
    assert notes[0] == message("configuration.arguments_missing", script="train.sh")


def test_a_backend_of_mindspeed_is_known() -> None:
    words = "--num-layers 2 --lr 1e-3 --train-iters 8 --use-fused-rmsnorm --use-fused-swiglu"
    sides = [read_command(f"torchrun pretrain_gpt.py {words}{more}", {}) for more in ("", " --ai-framework mindspore")]
    done = check(*sides)
    assert (done.uncovered, [name for name, *_ in done.setting_differences]) == ([], ["ai_framework"])


def test_what_stands_in_no_file_of_the_model_is_not_sought_there() -> None:
    one = mindformers(NEW, {"pretrained_model_dir": "/nowhere", "m.seq_length": None, "lr_schedule.total_steps": None})
    named = {checked.row.id for checked in in_absent_file(check(megatron(NEW, {}), one))}
    assert named and not {"seq_length", "lr_decay_iters"} & named
