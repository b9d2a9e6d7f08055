"""Lines as the frameworks write them, by the format strings of their source, and what each says of its step."""

import math
import os
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from align_hooks import Run, open_run
from align_hooks.cli import app
from align_hooks.comparison.finding import Metric, at_step
from align_hooks.comparison.health import Condition
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import Status
from align_hooks.errors import RecordError, RefusedRun
from align_hooks.evidence.convert import convert
from align_hooks.evidence.logs import read_log
from align_hooks.messages import Side, message, rendered, terms
from comparison.conftest import stage
from invoked import invoke
from synthetic import Synthetic, row
from worded import arguments, ids, messages

LOSSES, NORMS, RATES = (9.0512343, 8.7654321, 8.5), (1.62629, 1.5, 1.375), (0.0, 1e-4, 2e-4, 3e-4)
START = "[before the start of training step] datetime: 2026-11-22 12:00:00.000000 "


def megatron(
    losses: Sequence[float] = LOSSES,
    *,
    newer: bool = True,
    first: int = 1,
    skipped: Sequence[int] = (),
    zero: bool = False,
    begun: Sequence[int] = (0,),
    at: float = 0.0,
) -> str:
    """What Megatron-LM 0.12 to 0.15 print, and what 0.16 and newer do: microseconds, and a mean that begins with the first step of a
    process twice. Processes begin before the steps ``begun``. ``zero``: since 0.17 a mean of no step is printed, as 0."""
    lines, gathered, lost = ["> building GPT model ..."], list[float](), 0
    for index, loss in enumerate(losses):
        if index in begun:
            gathered, lost = [], 0
            lines.append(START)
        gathered += [] if index in skipped else [loss]
        lost += index in skipped
        when = datetime(2026, 11, 22, 12) + timedelta(seconds=index + at, microseconds=123456)
        line = f" [{when:%Y-%m-%d %H:%M:%S{'.%f' if newer else ''}}] iteration {first + index:8d}/{100:8d} |"
        line += f" consumed samples: {4 * (first + index):12d} | elapsed time per iteration (ms): {100.0 + index:.1f} |"
        line += f" learning rate: {RATES[(index + 1) % 4]:.6E} | global batch size: {4:5d} |"
        line += f" lm loss: {math.fsum(gathered) / max(1, len(gathered)):.6E} |" if gathered or (zero and index) else ""
        line += f" loss scale: {1.0:.1f} |" + (f" grad norm: {NORMS[index % 3]:.3f} |" if index not in skipped else "")
        lines.append(line + f" number of skipped iterations: {lost:3d} | number of nan iterations: {0:3d} |")
        if not (newer and index in begun):
            gathered, lost = [], 0
    return "\n".join(lines)


def lines_alone(text: str) -> str:
    """The lines of steps, as ``grep``, or a last rank's own file, has them."""
    return "\n".join(line for line in text.splitlines() if "iteration " in line or "step:[" in line)


def cut(text: str, steps: int) -> str:
    """A log without its first lines."""
    return "\n".join(lines_alone(text).splitlines()[steps:])


def mindformers(losses: Sequence[float] = LOSSES, *, decimals: int = 6, sink: bool = False, overflow: Sequence[int] = ()) -> str:
    """What MindFormers' MFLossMonitor prints, of two steps an epoch."""
    lines = ["2026-11-22 12:00:00,000 - mindformers[trainer.py:1] - INFO - .........Starting Training Model.........."]
    for index, loss in enumerate(losses):
        mean = sum(losses[: index + 1]) / (index + 1)
        shown = f"loss: {loss:5.{decimals}f}, " if sink else f"loss:[{loss:5.{decimals}f}/{mean:5.{decimals}f}], "
        lines.append(
            f"2026-11-22 12:00:0{index},000 - mindformers[callback.py:747] - INFO - {{ Epoch:[{index // 2 + 1:3d}/{2:3d}], "
            f"step:[{index % 2 + 1:5d}/{2:5d}], {shown}per_step_time: {90 + index}ms, lr: {RATES[index % 4]}, "
            f"overflow cond: {index in overflow}, loss_scale: 1.0, global_norm: [{NORMS[index % 3]:.6f}], train_throughput_per_npu: 0.004T"
        )
        lines.append("  5.0% |██                                                | 10.80361 samples/s/p  0:00:01 }")
    return "\n".join(lines)


def pynative(losses: Sequence[float] = LOSSES, *, samples: bool = True) -> str:
    """What the LossCallback of MindFormers' PyNative trainer prints, of 2.1 with samples; the rate is the next step's."""
    counted = "consumed_samples: {}, global_batch_size: 4, " if samples else ""
    return "\n".join(
        f"2026-11-22 12:00:0{index},000 - mindformers[loss_callback.py:337] - INFO - {{ step:[{index + 1:5d}/{len(losses):5d}], "
        f"{counted.format(4 * index + 4)}loss: {loss:10.6f}, per_step_time: {90 + index:6d}ms, load_balancing_loss:   1.001300, "
        f"lr: {float(RATES[(index + 1) % 4]):10.6e}, grad_norm: {NORMS[index % 3]:10.6f}, throughput:   0.00T }}"
        for index, loss in enumerate(losses)
    )


def recorded(path: Path, text: str) -> Run:
    """The record of a log."""
    path.with_suffix(".log").write_text(text)
    convert(path.with_suffix(".log"), path)
    return open_run(path)


def column(rows: Sequence[Any], name: str) -> list[Any]:
    return [each[name] for each in rows]


@pytest.mark.parametrize("newer", [False, True])
def test_each_number_of_megatron_belongs_to_its_own_step(newer: bool) -> None:
    log = read_log(megatron(newer=newer), "megatron.log")
    assert (log.side, column(log.rows, "step")) == ("torch", [0, 1, 2])
    assert column(log.rows, "loss") == pytest.approx(LOSSES, abs=log.resolution["loss"])
    assert log.resolution["loss"] == pytest.approx(1.5e-6 if newer else 5e-7)
    assert column(log.rows, "grad_norm") == pytest.approx(NORMS, abs=log.resolution["grad_norm"])
    assert log.resolution["grad_norm"] == pytest.approx(5e-4)
    assert column(log.rows, "learning_rate") == [None, 1e-4, 2e-4]  # what is printed is the next step's
    assert column(log.rows, "consumed_samples") == [4, 8, 12]
    assert column(log.rows, "skipped") == [False] * 3
    assert any("the mean of the first two" in note for note in log.notes) is newer


@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize("decimals", [3, 6])
def test_each_number_of_mindformers_belongs_to_its_own_step(decimals: int, sink: bool) -> None:
    log = read_log(mindformers(decimals=decimals, sink=sink), "info.log")
    assert (log.side, column(log.rows, "step")) == ("ms", [0, 1, 2])
    assert column(log.rows, "loss") == pytest.approx(LOSSES, abs=log.resolution["loss"])
    assert log.resolution["loss"] == pytest.approx(0.5 * 10.0**-decimals)
    assert column(log.rows, "grad_norm") == pytest.approx(NORMS, abs=log.resolution["grad_norm"])
    assert column(log.rows, "learning_rate") == list(RATES[:3])


@pytest.mark.parametrize("samples", [False, True])
def test_each_number_of_the_pynative_trainer_belongs_to_its_own_step(samples: bool) -> None:
    log = read_log(pynative(samples=samples), "info.log")
    assert (log.side, column(log.rows, "step")) == ("ms", [0, 1, 2])
    assert column(log.rows, "loss") == pytest.approx(LOSSES, abs=log.resolution["loss"])
    assert column(log.rows, "grad_norm") == pytest.approx(NORMS, abs=log.resolution["grad_norm"])
    assert column(log.rows, "learning_rate") == [None, *map(pytest.approx, RATES[1:3])]
    assert column(log.rows, "consumed_samples") == ([4, 8, 12] if samples else [None] * 3)
    assert column(log.rows, "skipped") == [False] * 3
    unknown = read_log(pynative().replace(f"grad_norm: {NORMS[1]:10.6f}", "grad_norm:        nan"), "info.log")
    assert column(unknown.rows, "skipped") == [False, None, False]  # with use_skip_step_on_nan it would be


def test_a_resumed_run_goes_on_counting_and_a_resumed_process_may_have_another_schedule() -> None:
    assert column(read_log(megatron(first=501), "megatron.log").rows, "step") == [500, 501, 502]
    rates = column(read_log(megatron((9.1, 8.9, 8.7, 8.5, 8.4), begun=(0, 2)), "log").rows, "learning_rate")
    assert rates == [None, RATES[1], None, RATES[3], RATES[0]]


FIVE = (9.1, 8.9, 8.7, 8.5, 8.4)
ALL = (True,) * 5
THREE, RESUMED = megatron(FIVE[:3]), megatron(FIVE, begun=(0, 2), at=60)
CASES: dict[str, tuple[str, Sequence[bool]]] = {
    "whole": (megatron(FIVE), ALL),
    "lines alone from iteration 1": (lines_alone(megatron(FIVE)), ALL),
    "resumed, start-up seen": (megatron(FIVE, first=36), ALL),
    "resumed, lines alone": (lines_alone(megatron(FIVE, first=36)), (False, False, True, True, True)),
    "cut after the first line": (cut(megatron((9.3, *FIVE), first=35), 1), (False, False, True, True, True)),
    "cut in the middle": (cut(megatron((9.3, 9.2, 9.1, *FIVE), first=33), 3), (False, False, True, True, True)),
    "cut, and then resumed": (cut(megatron((9.3, *FIVE[:2])), 1) + "\n" + megatron(FIVE[2:], first=4), (False, False, True, True, True)),
    "two jobs, start-up seen": (megatron(FIVE, begun=(0, 2)), ALL),
    "two jobs, lines alone": (f"{lines_alone(THREE)}\n{lines_alone(megatron(FIVE[3:], first=4, at=60))}", (True, True, True, True, False)),
    "two processes, one step made twice": (f"{THREE}\n{START}{RESUMED.rpartition(START)[2]}", ALL),
    "the same, lines alone": (f"{lines_alone(THREE)}\n{cut(RESUMED, 2)}", ALL),
    "a single line": (lines_alone(megatron(FIVE[:1], first=10)), (False,)),
    "a single line of 0.15": (megatron(FIVE[:1], newer=False, first=10), (False,)),
    "the first line of a run of 0.15": (megatron(FIVE[:1], newer=False), (True,)),
    "cut, of 0.15": (cut(megatron(FIVE, newer=False), 0), ALL),
    "first skipped": (megatron(FIVE, skipped=(0,)), (False, True, True, True, True)),
    "second skipped": (megatron(FIVE, skipped=(1,)), (True, False, True, True, True)),
    "both skipped, and a mean of none printed": (megatron(FIVE, skipped=(0, 1), zero=True), (False, False, True, True, True)),
    "later skipped, and a mean of none printed": (megatron(FIVE, skipped=(3,), zero=True), (True, True, True, False, True)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_loss_is_its_own_steps_or_unknown(case: str) -> None:
    text, known = CASES[case]
    log, head = read_log(text, "megatron.log"), [*known, True].index(True) if "skipped" not in case and any(known) else 0
    assert [row["loss"] is not None for row in log.rows] == list(known[head:])
    assert all(row["loss"] in (None, pytest.approx(loss, abs=2e-6)) for row, loss in zip(log.rows, FIVE[head:], strict=False))
    unknown = not all(known) and "skipped" not in case
    assert any("no loss is known of iteration" in note for note in log.notes) is unknown


def test_skipped_steps_are_marked() -> None:
    for text in (megatron(skipped=(1,)), mindformers(overflow=(1,))):
        assert column(read_log(text, "log").rows, "skipped") == [False, True, False]
    two = "\n".join(cut(megatron(FIVE, skipped=(1,)), 1).splitlines()[:2])
    assert column(read_log(two, "log").rows, "skipped") == [None, False]


@pytest.mark.parametrize("print_", [megatron, mindformers])
def test_the_tails_of_two_equal_logs_do_not_diverge(print_: Callable[..., str], tmp_path: Path) -> None:
    """Iterations 36 to 40 of one log beside all of another."""
    losses = tuple(9.5 - 0.01 * step for step in range(40))
    tail = recorded(tmp_path / "tail", cut(print_(losses), 35))
    assert [row.step for row in tail.rows] == list(range(37 if print_ is megatron else 35, 40))
    outcome = compare(recorded(tmp_path / "whole", print_(losses)), tail)
    assert (outcome.verdict.exit_code, outcome.first) == (0, None)


def test_steps_that_both_runs_skipped_lack_no_loss(tmp_path: Path) -> None:
    runs = [recorded(tmp_path / name, megatron(FIVE, skipped=(3,), zero=name == "newer")) for name in ("newer", "older")]
    outcome = compare(*runs)
    assert (outcome.verdict.exit_code, outcome.first) == (0, None)


def test_numbers_that_are_none_are_read_as_such() -> None:
    text = mindformers().replace("loss:[8.765432", "loss:[nan").replace("global_norm: [1.500000]", "global_norm: [inf]")
    row = read_log(text, "info.log").rows[1]
    assert math.isnan(row["loss"]) and row["grad_norm"] == math.inf


def test_a_line_that_two_handlers_wrote_is_one_and_colours_of_a_terminal_are_no_part_of_it() -> None:
    twice = "\n".join(line for each in megatron().splitlines() for line in (each, each.replace("(ms): 10", "(ms): 11")))
    coloured = megatron().replace("lm loss", "\x1b[32mlm loss").replace(" |", "\x1b[0m |")
    assert read_log(twice, "log").rows == read_log(coloured, "log").rows == read_log(megatron(), "log").rows


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nothing of a step", "holds no line of a step"),
        (megatron() + "\n" + megatron((9.1, 8.8, 8.4)), "has two runs in it: lines 3 and 8 are both of iteration 1, and differ"),
        (re.sub(r"iteration        ([23])/", r"iteration       \g<1>0/", megatron()), "--log-interval 1"),
        ("\n".join(line for line in mindformers().splitlines() if "step:[    2/" not in line), "per_print_times: 1"),
    ],
)
def test_a_log_that_does_not_say_every_step_once_is_refused(text: str, why: str) -> None:
    with pytest.raises(RecordError, match=why):
        read_log(text, "megatron.log")


@pytest.mark.parametrize("end", ["\r\n", "\r", "\r\r\n"])
def test_lines_may_end_as_on_any_system(end: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(mindformers().replace("\n", end).encode())
    assert convert(tmp_path / "log", tmp_path / "run")[0].rows == read_log(mindformers(), "log").rows


def test_two_logs_are_compared_as_two_runs_are(tmp_path: Path) -> None:
    reference, candidate = recorded(tmp_path / "one", megatron()), recorded(tmp_path / "other", mindformers())
    third = recorded(tmp_path / "third", mindformers((9.0512343, 8.77, 8.5)))
    same = compare(reference, candidate)
    compared = {stage.name: stage.status for stage in same.stages if stage.status is not Status.NOT_COMPARED}
    assert compared == dict.fromkeys(("match", "hyper-parameters", "step-0 loss", "clipping", "later losses"), Status.SAME)
    logs = [note.arguments["side"] for note in messages(same.notes) if note.id == "notes.log"]
    assert logs == [Side.REFERENCE, Side.CANDIDATE]
    assert compare(reference, third).verdict.exit_code == 1
    assert reference.problems == []


def test_rates_of_logs_are_judged_and_lead(tmp_path: Path) -> None:
    """Two logs that differ only in how low the rate goes: the same first loss, and a rate that differs before any loss does."""
    lower = mindformers().replace("lr: 0.0002", "lr: 0.00015")
    outcome = compare(recorded(tmp_path / "one", mindformers()), recorded(tmp_path / "other", lower))
    assert (outcome.first.name, outcome.blame.place) == ("hyper-parameters", "configuration")
    assert outcome.blame.suspects[0].what == at_step(Metric.LEARNING_RATE, 2)
    assert arguments("next.set_alike", outcome.next)["setting"] is Metric.LEARNING_RATE
    assert "batches.valid_tokens_alone" not in ids(stage(outcome, "batches").summary)


def test_logs_of_unrelated_runs_are_inconclusive(tmp_path: Path) -> None:
    unrelated = mindformers((3.2, 3.1, 3.0)).replace("lr: 0.0001", "lr: 0.0007")
    outcome = compare(recorded(tmp_path / "one", mindformers()), recorded(tmp_path / "other", unrelated))
    assert (outcome.verdict.exit_code, outcome.first.name) == (4, "step-0 loss")
    assert "first_loss.of_a_log" in ids(outcome.first.summary)
    assert arguments("next.set_alike_and_record_both", outcome.next)["setting"] is Metric.LEARNING_RATE


def test_steps_of_other_sizes_are_told_by_the_samples_that_they_consumed(tmp_path: Path) -> None:
    """A log goes by its numbers of steps: twice the global batch size makes another training of the same numbers."""
    twice = re.sub(r"(consumed samples:\s+)(\d+)", lambda found: found[1] + str(2 * int(found[2])), megatron())
    assert twice != megatron()
    outcome = compare(recorded(tmp_path / "one", megatron()), recorded(tmp_path / "other", twice))
    assert (outcome.first.name, outcome.first.findings[0].quantity) == ("batches", Metric.CONSUMED_SAMPLES)
    assert compare(recorded(tmp_path / "again", megatron()), recorded(tmp_path / "same", megatron())).first is None


def test_a_log_beside_a_record_and_no_finer_than_it_is(tmp_path: Path) -> None:
    """Three decimals, as MindFormers printed up to 1.6: what they leave open parts nobody."""
    coarse = recorded(tmp_path / "coarse", mindformers(decimals=3))
    printed = enumerate(zip(LOSSES, NORMS, strict=True))
    rows = [row(step, loss=loss, objective_loss=loss, grad_norm=norm, learning_rate=step * 1e-4) for step, (loss, norm) in printed]
    outcome = compare(open_run(Synthetic(rows=rows).write(tmp_path / "record")), coarse)
    assert outcome.verdict.exit_code == 0, outcome.first


def test_a_run_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "one.log").write_text(megatron())
    Synthetic().write(tmp_path / "run")
    with pytest.raises(RefusedRun, match="already holds a run"):
        convert(tmp_path / "one.log", tmp_path / "run")
    with pytest.raises(RecordError, match="cannot be read: No such file"):
        convert(tmp_path / "none.log", tmp_path / "other")


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "megatron.log").write_text(megatron())
    done = invoke(app, ["convert", str(tmp_path / "megatron.log"), str(tmp_path / "run")])
    assert done.exit_code == 0 and "0 to 2" in done.stdout.splitlines()[0], done.output
    shown = invoke(app, ["show", str(tmp_path / "run")])
    assert shown.exit_code == 0, shown.output
    headline = terms(["Megatron-LM", message("health.ranks", count=1), message("health.steps_of", count=3, planned=3)])
    assert shown.stdout.startswith(rendered(Condition.CLEAN))
    assert rendered(headline) in shown.stdout


def test_a_log_may_come_out_of_a_shells_pipe(tmp_path: Path) -> None:
    """``<(zcat …)``, whose path leads nowhere once it is resolved."""
    read, write = os.pipe()
    with os.fdopen(read), os.fdopen(write, "w") as text:
        text.write(megatron())
        text.close()
        done = invoke(app, ["convert", f"/dev/fd/{read}", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert len(open_run(tmp_path / "run").steps) == 3
