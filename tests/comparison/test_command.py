"""``align-hooks compare`` as a shell calls it: exit codes, and a report that fits 80 columns."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.curves import values
from align_hooks.comparison.finding import at_step
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.settings.recorded import HyperParameter
from align_hooks.comparison.stage_result import Status
from align_hooks.comparison.verdict import ComparisonResult, Verdict
from align_hooks.extras import installing
from align_hooks.messages import Argument, Separator, as_data, in_a_row, message, rendered
from align_hooks.report.blocks import parts_of
from align_hooks.report.comparison import BRIEF, SETTINGS, document
from align_hooks.report.comparison import SHOWN as FINDINGS
from comparison.conftest import Compared, with_one_more
from invoked import command
from synthetic import SHAPES, Synthetic, by_hand, grown, row, scalars_only, tensors
from worded import ids, on_terminal, result, words


def begins(text: str, headline: Argument, verdict: Verdict = Verdict.DIVERGED) -> bool:
    """Whether what is printed begins with a verdict, and says beside it what differs."""
    return " ".join(text.split()).startswith(f"{rendered(verdict)}: {rendered(headline)}")


def bent(key: str, factor: float, step: int = 2) -> Synthetic:
    run = Synthetic().drifted()
    run.rows[step][key] *= factor
    return run


def unreadable(path: Path) -> Path:
    (scalars_only().write(path) / "manifest/rank_0.json").write_text('{"format": 1}')
    return path


def truncated(path: Path) -> Path:
    file = Synthetic().write(path) / "step_1/rank_0/gradients.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    return path


def other_model() -> Synthetic:
    run = scalars_only()
    run.shapes["model.layers.1.mlp.up_proj.weight"] = (2, 2)
    return run


CASES: dict[str, tuple[Callable[[Path], Path], int, Verdict | None, str]] = {
    # how the run is made, the exit code, the verdict that is printed, and the id of what differs
    "aligned": (lambda path: Synthetic().drifted().write(path), 0, Verdict.ALIGNED, "comparison.agrees"),
    "diverged": (lambda path: bent("loss", 1.1, 0).write(path), 1, Verdict.DIVERGED, "first_loss.not_the_mean"),
    "not comparable": (lambda path: other_model().write(path), 3, Verdict.NOT_COMPARABLE, "match.other_model"),
    "killed": (lambda path: Synthetic(ended=None).write(path), 3, Verdict.NOT_COMPARABLE, "match.not_whole"),
    "inconclusive": (lambda path: bent("loss", 1 + 2e-5).write(path), 4, Verdict.INCONCLUSIVE, "differs.unclear"),
    "no directory": (lambda path: path, 3, None, ""),
    "no manifest": (unreadable, 3, None, ""),
    "truncated": (truncated, 3, None, ""),
    "made by hand": (by_hand, 3, Verdict.NOT_COMPARABLE, "match.other_model"),
}


@pytest.mark.parametrize(("make", "code", "verdict", "id"), CASES.values(), ids=CASES.keys())
def test_the_exit_code_is_the_contracts(
    reference: Path, tmp_path: Path, make: Callable[[Path], Path], code: int, verdict: Verdict | None, id: str
) -> None:
    run = make(tmp_path / "run")
    done = command("compare", reference, run)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stdout + done.stderr
    if verdict is None:
        assert done.stdout == ""
        return
    headline = compare(open_run(reference), open_run(run)).headline
    assert (ids(headline)[0], begins(done.stdout, headline, verdict)) == (id, True)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("compare", None),
        ("compare a", None),
        ("compare a b --nonsense", None),
        ("nonsense", None),
        ("compare a b --html x --json x", None),
        ("compare a b --html ", "align_hooks: an argument is empty; give what it should hold, or leave it out\n"),
    ],
)
def test_a_wrong_command_line_is_2(arguments: str, error: str | None) -> None:
    done = command(*arguments.split(" "))
    assert (done.returncode, done.stdout) == (2, "")
    assert error is None or done.stderr == error


def test_a_record_that_cannot_be_read_is_told_in_one_line_on_stderr(reference: Path, tmp_path: Path) -> None:
    done = command("compare", reference, tmp_path / "no")
    assert done.stdout == ""
    assert done.stderr.splitlines() == [f"align_hooks: {tmp_path}/no is not a directory; give the directory that ALIGN_HOOKS_RUN named"]


@pytest.mark.parametrize("name", ["aligned", "diverged", "not comparable"])
def test_in_brief_the_report_is_its_beginning(reference: Path, tmp_path: Path, name: str) -> None:
    run = CASES[name][0](tmp_path / "run")
    whole, brief = command("compare", reference, run), command("compare", reference, run, "--brief")
    assert brief.returncode == whole.returncode
    words, _, ids = brief.stdout.partition("  verdict: ")
    assert whole.stdout.startswith(words)
    assert [line.split(":")[0].strip() for line in words.splitlines()[-2:]] == ["reference", "candidate"]
    said = dict(line.strip().split(": ") for line in f"verdict: {ids}".splitlines())
    assert said["verdict"] == name
    assert (said["limits"], len(brief.stdout.encode()) <= BRIEF) == ("default", True)
    assert ("place" in said, "first" in said) == (name == "diverged", name != "aligned")


def test_a_long_command_is_left_out_of_a_brief_report_and_not_cut(tmp_path: Path) -> None:
    long = Synthetic(facts={"command": f"python pretrain_gpt.py {'--some-argument 1 ' * 300}"})
    other = deepcopy(long)
    other.weights = {0: tensors(101)}
    other.train()
    runs = long.write(tmp_path / "reference"), other.write(tmp_path / "candidate")
    brief, whole = command("compare", *runs, "--brief").stdout, command("compare", *runs).stdout
    assert "--some-argument" in whole
    assert "--some-argument" not in brief
    assert "too long to be shown in brief" in " ".join(brief.split())
    assert len(brief.encode()) <= BRIEF


def test_names_that_may_be_missing_are_given_on_the_command_line(reference: Path, tmp_path: Path) -> None:
    run = with_one_more("extra.weight").write(tmp_path / "run")
    assert command("compare", reference, run).returncode == 3
    assert command("compare", reference, run, "--allow-missing", "extra.*").returncode == 0


def wide() -> tuple[Synthetic, Synthetic]:
    """A pair with the names, the paths and the settings of a large model, and a fault in each stage."""
    names = ["model.layers.127.self_attn.q_proj.weight", "model.layers.127.post_attention_layernorm.weight"]
    run = grown(dict.fromkeys(names, (6, 4)))
    run.norms = {step: dict.fromkeys(names, 1.234567890123) for step in run.norms}
    for group, name in zip(run.optimizer["groups"], names, strict=True):
        group["parameters"] = [name]
    run.train()
    run.rows = [row(step, loss=9.056482123, objective_loss=9.056482123) for step in range(3)]
    run.model = {"rope_theta": 1e4, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_size": 4096, "num_hidden_layers": 128}
    candidate = deepcopy(run)
    candidate.model |= {"rope_theta": 10100.0, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "num_hidden_layers": 127}
    return run, candidate


def another_name(run: Synthetic) -> None:
    name = "model.layers.127.self_attn.rotary_emb.inv_freq_of_another_kind.weight"
    run.shapes = run.shapes | {name: (3,)}
    run.norms = {step: norms | {name: 1.0} for step, norms in run.norms.items()}


Bend = Callable[[Synthetic], Any]
FAULTS: dict[str, Bend] = {
    "none": lambda run: None,
    "scalars": lambda run: vars(run).update(settings={}, batches={}, norms={}),
    "gradient": lambda run: run.gradients.update({0: {name: tensor * 2 for name, tensor in run.gradients[0].items()}}),
    "norm": lambda run: run.norms.update({0: dict.fromkeys(run.norms[0], 3.0)}),
    "hyper-parameters": lambda run: [group.update(betas=[0.9, 0.999]) for group in run.optimizer["groups"]],
    "loss": lambda run: run.rows[0].update(loss=9.2, objective_loss=9.2),
    "token": lambda run: run.batches[0].update(tokens=run.batches[0]["tokens"] + 1),
    "name": another_name,
    "killed": lambda run: setattr(run, "ended", None),
}


@pytest.fixture
def wide_pair(compared: Compared) -> Callable[[str], ComparisonResult]:
    def make(fault: str) -> ComparisonResult:
        reference, candidate = wide()
        FAULTS[fault](candidate)
        return compared(candidate, against=reference)

    return make


def printed(comparison: ComparisonResult, **options: object) -> str:
    return on_terminal(document(comparison), **options)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_report_fits_80_columns_and_breaks_no_command(wide_pair: Callable[[str], ComparisonResult], fault: str) -> None:
    comparison = wide_pair(fault)
    lines, commands = printed(comparison).splitlines(), [rendered(each) for each in parts_of(comparison.next)[1:]]
    assert [line for line in lines if (len(line) > 80 and line.strip() not in commands) or line != line.rstrip()] == []
    assert [each for each in commands if f"    {each}" not in lines] == []


@pytest.mark.parametrize("fault", ["none", "gradient", "hyper-parameters"])
def test_a_report_names_every_stage_and_criterion(wide_pair: Callable[[str], ComparisonResult], fault: str) -> None:
    comparison = wide_pair(fault)
    text = printed(comparison)
    assert text.startswith(rendered(comparison.verdict))
    for named in (*(stage.title for stage in comparison.stages), *(criterion.what for criterion in comparison.acceptance)):
        assert " ".join(text.split()).count(rendered(named)) >= 1


@pytest.mark.parametrize("fault", ["none", "gradient", "norm", "hyper-parameters", "loss"])
def test_a_stage_that_was_compared_is_one_line(wide_pair: Callable[[str], ComparisonResult], fault: str) -> None:
    comparison = wide_pair(fault)
    lines = printed(comparison).splitlines()
    rule = next(index for index, line in enumerate(lines) if set(line.strip()) == {"─"})
    compared = [stage for stage in comparison.stages if stage.status is not Status.NOT_COMPARED]
    rows = lines[rule + 1 : rule + 1 + len(compared)]
    assert [row.startswith(f" {rendered(stage.title)}  ") for row, stage in zip(rows, compared, strict=True)] == [True] * len(compared)
    assert lines[rule + 1 + len(compared)] == ""


@pytest.mark.parametrize(
    ("fault", "headline", "both"),
    [
        ("loss", message("differs.one", what=at_step("loss", 0)), ("9.05648212", "9.2")),
        ("hyper-parameters", message("differs.settings", names=HyperParameter.BETAS), ("[0.9, 0.95]", "[0.9, 0.999]")),
    ],
)
def test_a_report_begins_with_what_differs_and_shows_both_values(
    wide_pair: Callable[[str], ComparisonResult], fault: str, headline: Argument, both: tuple[str, str]
) -> None:
    text = printed(wide_pair(fault))
    assert begins(text, headline)
    assert rendered(in_a_row(both, Separator.AGAINST)) in " ".join(text.split())


@pytest.mark.parametrize(("height", "times"), [(200, 1), (10, 2)])
def test_the_verdict_is_said_again_where_its_line_has_left_the_screen(
    wide_pair: Callable[[str], ComparisonResult], height: int, times: int
) -> None:
    text = printed(wide_pair("loss"), height=height, force_terminal=True, color_system=None, legacy_windows=False)
    assert text.count(f"{rendered(Verdict.DIVERGED)}: ") == times
    assert printed(wide_pair("loss"), height=10).count(f"{rendered(Verdict.DIVERGED)}: ") == 1  # what is piped has no screen


NOT_COMPARED = "batches, initial weights, token losses, local norms, gradients, weights after an update, first updates, curve"


def test_what_was_not_compared_is_said_once_with_its_reason(wide_pair: Callable[[str], ComparisonResult]) -> None:
    comparison = wide_pair("scalars")
    left_out = [stage for stage in comparison.stages if stage.status is Status.NOT_COMPARED]
    assert [stage.name for stage in left_out] == [*NOT_COMPARED.split(", "), "free-running steps"]
    text = " ".join(printed(comparison).split())
    said = text.partition(words("terminal.not_compared", stages=""))[2].partition(words("terminal.acceptance"))[0]
    for stage in left_out:
        assert rendered(stage.title) in said and f"({rendered(stage.summary)})" in said
    reasons = {rendered(stage.summary) for stage in left_out}
    assert said.count("(") == len(reasons) + sum(reason.count("(") for reason in reasons)


def test_brackets_in_a_report_are_text_and_no_markup(compared: Compared) -> None:
    run = scalars_only()
    run.shapes["model.[bold].weight"] = (2,)
    assert "model.[bold].weight" in printed(compared(run))


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}, {"TERM": "xterm-256color"}, {"TERM": "dumb"}, {"PYTHONIOENCODING": "ascii"}])
def test_a_piped_report_has_no_escape_codes_and_fits(reference: Path, tmp_path: Path, variables: dict[str, str]) -> None:
    done = command("compare", reference, bent("loss", 1.1, 0).write(tmp_path / "run"), **variables)
    assert (done.returncode, done.stdout.startswith(f"{rendered(Verdict.DIVERGED)}: ")) == (1, True)
    assert "\x1b" not in done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if len(line) > 80 and str(tmp_path) not in line] == []
    assert [line for line in done.stdout.splitlines() if line != line.rstrip()] == []


def test_colour_is_only_where_the_console_has_it(wide_pair: Callable[[str], ComparisonResult]) -> None:
    comparison = wide_pair("loss")
    terminal = {"force_terminal": True, "color_system": "standard", "legacy_windows": False}
    assert f"\x1b[1;31m{rendered(Verdict.DIVERGED)}" in printed(comparison, no_color=False, **terminal)
    assert "31m" not in printed(comparison, no_color=True, **terminal)
    assert "\x1b" not in printed(comparison)


@pytest.mark.parametrize("output", ["| true", "> /dev/full"], ids=["a reader that leaves early", "a disk that is full"])
def test_where_a_report_goes_does_not_change_the_verdict(reference: Path, output: str) -> None:
    shell = f"set -o pipefail; {sys.executable} -m align_hooks compare {reference} {reference} {output}"
    assert subprocess.run(["bash", "-c", shell], capture_output=True, timeout=300, check=False).returncode == 0


def test_control_characters_of_a_record_do_not_reach_the_terminal(reference: Path, tmp_path: Path) -> None:
    run = Synthetic(shapes=SHAPES | {"model.\x1b[2J[/red].weight": (2,)})
    done = command("compare", reference, run.write(tmp_path / "run"))
    assert (done.returncode, "\x1b" in done.stdout + done.stderr) == (3, False)


def test_everything_is_written_as_json(reference: Path, tmp_path: Path) -> None:
    candidate = bent("objective_loss", 2.0, 0).write(tmp_path / "candidate")
    repeat = Synthetic().drifted().write(tmp_path / "repeat")
    done = command("compare", reference, candidate, "--noise", repeat, "--json", tmp_path / "out" / "verdict.json")
    assert done.returncode == 1, done.stderr
    outcome = json.loads((tmp_path / "out" / "verdict.json").read_text(), parse_constant=pytest.fail)
    assert (outcome["format"], outcome["verdict"], outcome["exit_code"], outcome["first_id"]) == (1, "diverged", 1, "step_0_loss")
    assert outcome["blame"]["place"] == "loss normalisation"
    assert [stage["id"] for stage in outcome["stages"]][:3] == ["match", "self_check", "hyper_parameters"]
    loss = next(stage for stage in outcome["stages"] if stage["id"] == "step_0_loss")["findings"][0]
    assert loss["messages"]["what"] == as_data(at_step("objective_loss", 0))
    assert (loss["error"], loss["limit_ratio"]) == (1.0, 1 / loss["limit"])
    assert outcome["messages"]["headline"]["id"] == "sharding.objective_scaled"
    assert outcome["commands"] == [] and outcome["messages"]["next"]["id"] == "next.look_at_divisors"
    assert 0 < outcome["calibration"]["gradients of step 1"]["lm_head.weight"] < 1e-3


def test_json_that_cannot_be_written_is_told_after_the_verdict(reference: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = command("compare", reference, reference, "--json", tmp_path / "file" / "verdict.json")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stdout.startswith(rendered(Verdict.ALIGNED))
    assert done.stderr.startswith("align_hooks: --json")


def test_a_page_is_written_beside_the_verdict(reference: Path, tmp_path: Path) -> None:
    file = tmp_path / "out" / "page.html"
    done = command("compare", reference, bent("loss", 1.1, 0).write(tmp_path / "run"), "--html", file)
    assert (done.returncode, done.stderr) == (1, "")
    assert file.read_text().startswith("<!doctype html>")
    assert rendered(result("step-0 loss", Status.SAME).title) in file.read_text()


def test_a_page_that_cannot_be_made_is_told_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "vl_convert.py").write_text("raise ModuleNotFoundError('no', name='vl_convert')")
    line = [sys.executable, "-m", "align_hooks", "compare", tmp_path / "none", tmp_path / "none", "--html", tmp_path / "page.html"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert done.stderr == f"align_hooks: --html needs vl_convert, which is not installed; {installing('html')}\n"


def test_of_many_settings_the_first_are_printed(tmp_path: Path) -> None:
    for name, value in (("one", 1), ("other", 2)):
        Synthetic(model={f"setting_{at}": value for at in range(300)}).write(tmp_path / name)
    done = command("compare", tmp_path / "one", tmp_path / "other")
    assert words("terminal.more_settings", count=300 - FINDINGS - SETTINGS) in " ".join(done.stdout.split())


def test_a_learning_rate_that_differs_in_one_group_is_seen_in_its_curve() -> None:
    assert values([1e-3, 5e-4], [1e-3, 1e-4]) == (5e-4, 1e-4)
    assert values([1e-3, 5e-4], 1e-3) == (1e-3, 1e-3)
    assert values(None, 1.0) == (None, 1.0)


def test_a_tensor_that_only_a_factor_sets_apart_is_said_to_be(reference: Path, tmp_path: Path) -> None:
    halved = Synthetic()
    halved.weights = {0: halved.weights[0] | {"lm_head.weight": halved.weights[0]["lm_head.weight"] * np.float32(0.5)}}
    halved.train()
    said = " ".join(command("compare", reference, halved.write(tmp_path / "halved")).stdout.split())
    assert "lm_head.weight at step 0 (iteration 1), 0.5 times the reference's" in said
