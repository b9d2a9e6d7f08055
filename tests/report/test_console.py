"""How every command's report is laid out in a pipe: 80 columns, no blanks at the ends of lines, and commands to copy in one piece."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

import drifting
from align_hooks.cli import app
from align_hooks.cli.files import PIPED
from align_hooks.messages import with_commands
from align_hooks.record.format.ending import HowEnded
from align_hooks.report import console
from align_hooks.report.arbitration import document
from align_hooks.report.blocks import Paragraph
from comparison.test_arbitration import arbitration as arbitrated
from comparison.test_arbitration import judged
from evidence.test_logs import megatron
from golden.write import other_forward, other_update
from invoked import invoke
from scenarios import test_frozen, test_ladder
from scenarios.test_ladder import trains  # noqa: F401
from synthetic import CONFIG, LAUNCH, NAMES, Synthetic, grown, scalars_only

MODEL = CONFIG | {"rms_norm_eps": 1e-5}


def sound(text: str) -> str:
    """A report that fits: each line within the width, but for commands, which are moved in, and for a path, which is not broken."""
    for line in text.splitlines():
        assert line == line.rstrip(), f"blanks at the end of {line!r}"
        wide = len(line) > PIPED and not line.startswith(" " * 2 * console.STEP) and max(map(len, line.split())) < PIPED / 2
        assert not wide, f"{len(line)} columns: {line!r}"
    return text


def said(*words: object, code: int = 0, **environment: str | None) -> str:
    """What a command prints into a pipe."""
    done = invoke(app, [str(word) for word in words], env={"COLUMNS": None, **environment})
    assert done.exit_code == code, done.output
    return sound(done.output)


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    return Synthetic(model=MODEL).write(tmp_path / "reference")


BENT: dict[str, tuple[int, Callable[[Synthetic], Synthetic]]] = {
    "aligned": (0, Synthetic.drifted),
    "another forward pass": (1, other_forward),
    "another optimizer": (1, other_update),
    "another model": (3, lambda run: grown({NAMES[0]: (10, 4), NAMES[1]: (8, 4)})),
    "no step": (3, lambda run: replace(run, rows=[], batches={}, gradients={}, weights={}, norms={})),
}


@pytest.mark.parametrize(("code", "bend"), BENT.values(), ids=BENT)
def test_a_comparison_says_its_verdict_first_and_fits(
    tmp_path: Path, reference: Path, code: int, bend: Callable[[Synthetic], Synthetic]
) -> None:
    candidate = bend(Synthetic(model=MODEL)).write(tmp_path / "candidate")
    text = said("compare", reference, candidate, "--json", tmp_path / "said.json", code=code)
    first = json.loads((tmp_path / "said.json").read_text())["verdict"].replace("_", " ")
    assert text.startswith(f"{first}: ")
    assert text.count(f"{first}: ") == 1  # it is said again at the end of what fills a terminal alone


def test_what_is_known_of_a_run_and_of_variables_fits(tmp_path: Path, reference: Path) -> None:
    assert said("show", reference).startswith("clean: ")
    assert said("accept", reference, reference, code=4).startswith("open: ")
    assert said("distill", reference, tmp_path / "small.zip")
    assert said("env")


def test_a_check_fits(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text((LAUNCH / "llama.yaml").read_text().replace("rms_norm_eps: 1.e-5", "rms_norm_eps: 1.e-6"))
    said("check", LAUNCH / "llama.args", other, code=1)
    said("check", LAUNCH / "llama.args", LAUNCH / "llama.yaml", "--all")


def test_frozen_steps_fit(tmp_path: Path) -> None:
    test_frozen.written(tmp_path / "reference")
    test_frozen.written(tmp_path / "candidate", odd=17)
    said("frozen", "--run", tmp_path / "candidate", "--from", tmp_path / "reference", code=1)


def test_a_ladder_fits(trains: Path) -> None:  # noqa: F811
    plan = test_ladder.planned(trains, [{"name": "one"}, {"name": "two", "changes": "wrong"}, {"name": "three"}])
    said("ladder", plan, code=1)


def test_a_watch_fits(tmp_path: Path) -> None:
    hard, after = drifting.hardness(1), np.arange(drifting.STEPS) >= 250
    runs = [drifting.recorded(tmp_path / str(number), drifting.differences(number, hard=hard)).path for number in range(3)]
    left = scalars_only(drifting.losses(drifting.differences(3, hard=hard) + 0.03 * after))
    left.ended = HowEnded("finished")
    said("watch", runs[0], left.write(tmp_path / "run"), "--noise", runs[1], "--noise", runs[2], "--every", "0.1", code=1)


def test_a_log_that_becomes_a_record_fits(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(megatron())
    said("convert", tmp_path / "train.log", tmp_path / "run")


@pytest.mark.slow
def test_an_examination_fits(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("python nothing.py --num-layers 2")
    text = said("doctor", tmp_path / "train.sh", code=1, ALIGN_HOOKS_RUN=str(tmp_path / "run"), ALIGN_HOOKS_GRADEINTS="0")
    assert text.startswith("not ready: ")


def test_an_arbitration_fits() -> None:
    made = io.StringIO()
    points = [judged("model.layers.0.self_attn.core", 1e-7, 1e-2), judged("model.norm", 1e-7, 1e-2)]
    console.print_document(document(arbitrated(*points)), Console(file=made, width=PIPED, highlight=False))
    sound(made.getvalue())


def test_the_help_fits_and_no_summary_of_a_command_is_cut() -> None:
    _, _, commands = said("--help", COLUMNS=str(PIPED + 2)).partition("Commands:\n")  # argparse leaves two columns free
    assert len(commands.splitlines()) == len(app.commands)
    assert "..." not in commands
    # an example is one line
    assert "\nExample: align-hooks compare runs/megatron runs/mindformers\n" in said("compare", "--help", COLUMNS="40")


# ---- the parts


def printed(print_it: Callable[[Console], object], width: int = 40) -> list[str]:
    made = io.StringIO()
    print_it(Console(file=made, width=width, highlight=False))
    return made.getvalue().splitlines()


def test_a_word_that_is_longer_than_a_line_is_left_whole() -> None:
    path = f"/shared/{'runs/' * 20}megatron"
    lines = printed(lambda out: console.paragraph(out, f"the record lies in {path} and is whole, as far as it was read"))
    assert f"    {path}" in lines
    assert all(len(line) <= 40 for line in lines if path not in line)


def test_commands_below_a_sentence_are_not_broken() -> None:
    command = f"align-hooks show {'runs/' * 20}megatron"
    told = with_commands("see its log by the command below, which is long", command)
    lines = printed(lambda out: console.paragraph(out, told))
    assert lines[-1] == f"    {command}"
    assert len(lines) == 3


def test_a_table_has_no_blanks_at_the_ends_of_its_lines() -> None:
    table = Table("a", "b", box=None)
    table.add_row("long enough", "")
    table.add_row("", "x")
    assert all(line == line.rstrip() for line in printed(lambda out: out.print(console.Trimmed(table))))


def test_a_control_sequence_shows_as_its_escape() -> None:
    assert printed(lambda out: console.print_blocks([Paragraph("a\x1b[2Jb", "red", 0, "failed")], out)) == ["failed: a\\x1b[2Jb"]
