"""``align-hooks show``: what a run holds and whether it is well, as text and as a page."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from align_hooks import open_run
from align_hooks.comparison.finding import Metric, when
from align_hooks.comparison.health import Condition, health
from align_hooks.messages import Message, rendered
from align_hooks.quantities.weights import NEAREST, NO_FAMILY, UNKNOWN
from align_hooks.record.inventory import bytes_by_kind, inventory, ranges
from align_hooks.record.read.problems import ProblemKind
from align_hooks.report.findings import size
from align_hooks.report.html import page
from align_hooks.report.run import document
from align_hooks.settings import Steps
from chosen import every
from invoked import command
from report.conftest import HOSTILE, healthy
from rewritten import bend_rows, edit, edit_rows, relisted
from synthetic import EVERYTHING, ROWS, SEQUENCE, Synthetic, by_hand, row, scalars_only
from worded import arguments, ids, on_terminal, words


def only_rows(rows: list[dict[str, Any]]) -> Synthetic:
    return Synthetic(settings={}, rows=rows, batches={}, weights={}, gradients={}, norms={})


show = partial(command, "show")


def test_a_model_of_no_family_and_settings_that_could_not_be_read_are_told_with_their_reason(tmp_path: Path) -> None:
    odd = {NO_FAMILY: ["activation is odd"], NEAREST: "Qwen3"}, {UNKNOWN: ["rope_theta"]}
    strange, unread = (healthy(Synthetic(model=one | {"num_hidden_layers": 2}), tmp_path / next(iter(one))) for one in odd)
    told = arguments("family.not_recognised", *strange.remarks)
    assert (told["family"], rendered(told["why"])) == ("Qwen3", "activation is odd")
    assert rendered(arguments("health.unknown_settings", *unread.remarks)["names"]) == "rope_theta"
    assert strange.condition is unread.condition is Condition.CLEAN
    assert not ids(*healthy(Synthetic(), tmp_path / "known").remarks).count("health.no_family")


def test_a_clean_run(tmp_path: Path) -> None:
    run = healthy(Synthetic(), tmp_path / "run")
    assert (run.condition, run.exit_code) == (Condition.CLEAN, 0)
    text = on_terminal(document(run))
    assert text.startswith(rendered(Condition.CLEAN))
    assert max(map(len, text.splitlines())) <= 80
    assert isinstance(run.checked, Message)
    assert (run.checked.id, run.checked.arguments["count"], run.checked.arguments["every"]) == ("health.norms", 3, 3)
    assert rendered(run.checked) in " ".join(text.split())
    for kind in EVERYTHING:
        assert kind in text


@pytest.mark.parametrize(("asked", "said"), [({}, "health.no_norms"), ({"local_norms": "7"}, "health.no_norms_of_any_step")])
def test_a_run_without_norms_is_told_a_variable_that_was_not_set(tmp_path: Path, asked: dict[str, str], said: str) -> None:
    run = healthy(Synthetic(settings=asked, batches={}, weights={}, gradients={}, norms={}), tmp_path / "run")
    assert isinstance(run.checked, Message)
    assert run.checked.id == said


def test_what_is_wrong_with_the_data_is_told_and_is_no_contradiction(tmp_path: Path) -> None:
    synthetic = Synthetic()
    for arrays in synthetic.batches.values():
        arrays["labels"] = arrays["tokens"]
    run = healthy(synthetic, tmp_path / "run")
    assert run.condition is Condition.CLEAN
    assert ids(run.remarks)[:2] == ["batches.problem", "batches.not_shifted"]
    assert words("batches.not_shifted", labels=46, pairs=48) in " ".join(on_terminal(document(run)).split())


OTHERWISE, ITSELF = "health.weighs_otherwise", "health.contradicts_itself"


@pytest.mark.parametrize(("count", "layout", "told"), [(2, False, [OTHERWISE]), (20, True, [ITSELF]), (2, True, [ITSELF, OTHERWISE])])
def test_a_loss_function_is_not_taken_for_a_layout(tmp_path: Path, count: int, layout: bool, told: list[str]) -> None:
    synthetic = Synthetic()
    synthetic.rows[0]["valid_tokens"] = count
    path = synthetic.write(tmp_path / "run")
    if layout:
        bend_rows(path / "local_norms" / "rank_0.jsonl", lambda held: held["taken"][0].update(norm=1.0))
        relisted(path)
    run = health(open_run(path), [], [])
    assert (run.condition, ids(run.contradicted)) == (Condition.UNWELL, told)


def test_a_mask_that_was_not_seen_is_told(tmp_path: Path) -> None:
    synthetic = Synthetic(micro_batches=[ROWS])
    for arrays in synthetic.batches.values():
        del arrays["loss_mask"]
    assert "health.mask_unseen" not in ids(healthy(synthetic, tmp_path / "all").remarks)
    synthetic.rows[0]["valid_tokens"] = 15
    assert arguments("health.mask_unseen", healthy(synthetic, tmp_path / "some").remarks) == {"count": 15, "all": ROWS * SEQUENCE}


def test_what_a_run_holds(tmp_path: Path) -> None:
    settings = {"batches": "0-1", "local_norms": "all", "gradients": "2", "weights": "0", "sketches": "0-1"}
    run = open_run(Synthetic(settings=settings, batches={}).write(tmp_path / "run"))
    kinds = {holding.kind: holding for holding in inventory(run)}
    expected = {"scalars": "0-2", "batches": "", "local_norms": "0-2", "gradients": "2", "weights": "0"}
    expected |= dict.fromkeys(("sketches/gradients", "sketches/weights"), "0-1")
    assert {kind: ranges(holding.steps) for kind, holding in kinds.items()} == expected
    assert kinds["batches"].asked == "0-1"
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert sum(bytes_by_kind(run).values()) == sum(path.stat().st_size for path in files)
    assert kinds["gradients"].bytes == (tmp_path / "run/step_2/rank_0/gradients.safetensors").stat().st_size


def test_what_was_asked_for_and_is_not_there_is_a_problem(tmp_path: Path) -> None:
    run = healthy(Synthetic(batches={}), tmp_path / "run")
    assert run.exit_code == 3
    (problem,) = run.problems
    assert (problem.kind, problem.step) == (ProblemKind.NOT_RECORDED, 0)
    assert problem.message.arguments == {"kind": "batches", "count": 3, "step": 0, "iteration": 1}
    assert rendered(problem.message) in " ".join(on_terminal(document(run)).split())


def gone(place: str) -> Callable[[Path], None]:
    return lambda path: shutil.rmtree(path / place)


def truncated(place: str) -> Callable[[Path], object]:
    return lambda path: (path / place).write_bytes((path / place).read_bytes()[:100])


LOST = {
    "weights": (
        gone("step_1/rank_0/weights"),
        words("lost.of_step", rank=0, path="step_1/rank_0/weights/model.safetensors", step=1, iteration=2),
    ),
    "state": (
        gone("step_2/rank_0/optimizer_state"),
        words("lost.of_step", rank=0, path="step_2/rank_0/optimizer_state/state.json", step=2, iteration=3),
    ),
    "sketches": (gone("sketches"), words("lost.of_steps", rank=0, path="sketches/weights/rank_0.jsonl", count=4, step=0, iteration=1)),
    "gradients": (truncated("step_1/rank_0/gradients.safetensors"), "gradients.safetensors is not a whole safetensors file"),
    "a batch": (truncated("step_1/rank_0/tokens.npy"), "tokens.npy is not a whole .npy array"),
}
"""How a part is lost, and what is said of it."""


@pytest.mark.parametrize(("lose", "text"), every(4, LOST.values()), ids=LOST)
def test_what_was_lost_on_the_way_is_missed(tmp_path: Path, lose: Callable[[Path], object], text: str) -> None:
    path = Synthetic(settings=EVERYTHING | {"sketches": "all"}).write(tmp_path / "run")
    lose(path)
    done = show(path)
    assert done.returncode == 3, done.stderr
    assert text in " ".join(done.stdout.split())


ODD = {
    "overrides": ("run.json", {"overrides": 5}, "run.json"),
    "hooks": ("manifest/rank_0.json", {"hooks": ["x"]}, "rank_0.json"),
    "a hook": ("manifest/rank_0.json", {"hooks": {"x": 1}}, "rank_0.json"),
    "recorded": ("manifest/rank_0.json", {"recorded": {"scalars": "3"}}, "rank_0.json"),
    "a clip": ("run.json", {"optimizer": {"groups": [], "clip_grad": 10**400}}, "run.json"),
    "no rate": ("scalars/rank_0.jsonl", {"learning_rate": []}, "step 0: learning_rate"),
    "half a rate": ("scalars/rank_0.jsonl", {"learning_rate": [1e-3, None]}, "step 0: learning_rate"),
    "seconds": ("scalars/rank_0.jsonl", {"seconds": "x"}, "step 0: seconds"),
}


@pytest.mark.parametrize(("file", "change", "named"), every(4, ODD.values()), ids=ODD)
def test_what_is_of_no_known_type_is_refused_in_a_line(tmp_path: Path, file: str, change: dict[str, object], named: str) -> None:
    path = Synthetic().write(tmp_path / "run")
    (edit if file.endswith(".json") else edit_rows)(path / file, **change)
    done = show(path)
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("\n") == 1
    assert named in done.stderr
    assert "internal" not in done.stderr
    assert "digest" not in done.stderr


def test_a_run_that_was_killed_is_incomplete(tmp_path: Path) -> None:
    run = healthy(Synthetic(ended=None), tmp_path / "run")
    assert (run.condition, run.exit_code) == (Condition.INCOMPLETE, 3)
    assert words("rank.never_ended", rank=0) in on_terminal(document(run))


@pytest.mark.parametrize(("name", "quantity"), [("loss", Metric.LOSS), ("grad_norm", Metric.GRAD_NORM)])
def test_numbers_that_are_not_finite_are_named(tmp_path: Path, name: str, quantity: Metric) -> None:
    rows = [row(step, **({name: float("nan")} if step else {})) for step in range(3)]
    run = healthy(only_rows(rows), tmp_path / "run")
    assert (run.condition, run.exit_code) == (Condition.UNWELL, 1)
    assert run.remarks[0].id == "health.not_finite"
    assert run.remarks[0].arguments == {"quantity": quantity, "count": 2, "first": when(1)}


def test_an_overflow_that_was_skipped_is_no_fault(tmp_path: Path) -> None:
    rows = [row(step, **({"grad_norm": float("inf"), "skipped": True} if step == 1 else {})) for step in range(3)]
    run = healthy(only_rows(rows), tmp_path / "run")
    assert run.exit_code == 0
    assert words("health.skipped", count=1, first=when(1)) in " ".join(on_terminal(document(run)).split())


def contradictory(path: Path) -> None:
    def quadruple(row: dict[str, Any]) -> None:
        if row["step"] == 1:
            row["squared"]["lm_head.weight"] *= 4

    bend_rows(Synthetic().write(path) / "local_norms/rank_0.jsonl", quadruple)
    relisted(path)


@pytest.mark.parametrize(
    ("make", "condition", "said"),
    [(contradictory, Condition.UNWELL, "health.contradicts_itself"), (by_hand, Condition.CLEAN, "health.directory_made_by_hand")],
)
def test_a_terminal_and_a_page_say_the_same(tmp_path: Path, make: Callable[[Path], object], condition: Condition, said: str) -> None:
    make(tmp_path / "run")
    done = show(tmp_path / "run", "--html", tmp_path / "run.html")
    assert done.returncode == (condition is Condition.UNWELL), done.stderr
    assert done.stdout.startswith(rendered(condition))
    assert words(said) in " ".join(done.stdout.split())
    assert words(said) in (tmp_path / "run.html").read_text()


def test_hostile_text_is_text(tmp_path: Path) -> None:
    run = scalars_only()
    run.model = {HOSTILE: HOSTILE}
    made = page(document(healthy(run, tmp_path / "[bold]\x1b[31m")), "1.2.3")
    assert HOSTILE not in made
    assert "&lt;/script&gt;" in made


def test_exit_codes_errors_and_colour_only_where_it_is_wanted(tmp_path: Path) -> None:
    path = Synthetic().write(tmp_path / "run")
    done = show(path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "\x1b[" in show(path, FORCE_COLOR="1").stdout
    assert "\x1b[3" not in show(path, FORCE_COLOR="1", NO_COLOR="1").stdout
    assert show(tmp_path / "none").returncode == 3
    missing = show(path, "--html", path / "run.json" / "x.html")
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)


STEPS: dict[str, tuple[int, ...]] = {"": (), "3": (3,), "0-2": (0, 1, 2), "0-1,5": (0, 1, 5), "0,5": (0, 5), "1,3-4": (1, 3, 4)}
STEPS |= {"0-30/10": (0, 10, 20, 30), "0-2,10-30/10": (0, 1, 2, 10, 20, 30)}


@pytest.mark.parametrize(("expected", "steps"), STEPS.items())
def test_steps_as_people_write_them(steps: tuple[int, ...], expected: str) -> None:
    assert ranges(steps) == expected
    chosen = Steps.parse(expected or "none")
    assert tuple(step for step in range(50) if step in chosen) == steps


@pytest.mark.parametrize(
    ("count", "expected"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_600, "1 MB"), (12_345_678, "12.3 MB"), (2e15, "2e+03 TB")]
)
def test_sizes_as_people_read_them(count: int, expected: str) -> None:
    assert size(int(count)) == expected
