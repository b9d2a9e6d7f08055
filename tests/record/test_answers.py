"""What a run answers: its numbers as DataFrames, a row a step; and who asks for what it does not have is told what it has, in a line."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from align_hooks import open_run
from align_hooks.errors import RecordError
from align_hooks.record.reader import Run
from sharded import Grid, Model
from sharded import write as write_sharded
from synthetic import NAMES, STEPS, Synthetic, by_hand, row, scalars_only

ASKED: dict[str, tuple[Callable[[Run], object], str]] = {
    "gradients": (lambda run: run.gradients(5), r"gradients of step 5 are not recorded; recorded: 0-1; .*ALIGN_HOOKS_GRADIENTS=5"),
    "weights": (lambda run: run.weights(2), r"weights after 2 updates are not recorded; recorded: 0; .*ALIGN_HOOKS_WEIGHTS=2"),
    "one update": (lambda run: run.weights(1), "weights after 1 update are not recorded"),
    "norms": (lambda run: run.local_norms(2), r"local_norms of step 2 are not recorded; recorded: 0; .*ALIGN_HOOKS_LOCAL_NORMS=2"),
    "batch": (lambda run: run.batch(7), r"batches of step 7 are not recorded; recorded: 0,2; .*ALIGN_HOOKS_BATCHES=7"),
    "facts of a batch": (lambda run: run.batch_facts(1), "batches of step 1 are not recorded"),
    "counts of experts": (lambda run: run.expert_counts(1), "batches of step 1 are not recorded"),
    "state": (
        lambda run: run.optimizer_state(0),
        "optimizer_state after 0 updates is not recorded; recorded: none; .*ALIGN_HOOKS_OPTIMIZER_STATE=0",
    ),
    "experts": (lambda run: run.routing(0), "routing of step 0 is not recorded; recorded: none"),
    "points": (lambda run: run.activations(0), "activations of step 0 are not recorded; recorded: none"),
    "sketches": (lambda run: run.sketches("gradients", 2), "sketches/gradients of step 2 are not recorded; recorded: 0-1"),
    "sketches of what has none": (
        lambda run: run.sketches("batches", 0),
        "no sketches of batches; there are sketches of gradients and weights",
    ),
    "a quantity": (lambda run: run.steps_of("gradient"), r"gradient is no quantity .*did you mean gradients\?"),
    "another quantity": (lambda run: run.has("xyz", 0), "xyz is no quantity that a run records; there are scalars, batches"),
    "rows of ranks": (lambda run: run.rank_rows(9), "step 9 is not whole; whole: 0-2"),
    "generators": (lambda run: run.random_states(9), "step 9 is not whole; whole: 0-2"),
    "a frame": (lambda run: run.to_frame("weights"), "no frame of weights; there are frames of scalars and local_norms"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    made = Synthetic(settings={"batches": "0,2", "local_norms": "0", "gradients": "0-1", "weights": "0"})
    made.batches, made.norms = {step: made.batches[step] for step in (0, 2)}, {0: made.norms[0]}
    return open_run(made.write(tmp_path_factory.mktemp("asked") / "run"))


@pytest.mark.parametrize(("ask", "words"), ASKED.values(), ids=ASKED)
def test_the_error_names_what_is_recorded(ask: Callable[[Run], object], words: str, run: Run) -> None:
    with pytest.raises(RecordError, match=words) as refused:
        ask(run)
    assert "\n" not in str(refused.value)


def test_a_tensor_by_a_wrong_name_is_answered_with_the_nearest(run: Run) -> None:
    with pytest.raises(KeyError, match=r"did you mean model\.norm\.weight"):
        run.gradients(0)["model.norms.weight"]


def test_a_directory_made_by_hand_has_batches_alone(tmp_path: Path) -> None:
    run = open_run(by_hand(tmp_path / "hand"))
    assert run.batch(1).tokens is not None
    with pytest.raises(RecordError, match="batches of step 5 are not recorded; recorded: 0-1"):
        run.batch(5)
    for read in (run.gradients, run.local_norms, run.weights):
        with pytest.raises(RecordError, match="was made by hand and holds batches alone"):
            read(0)


def test_every_public_member_says_what_it_is() -> None:
    members = {name: member for kind in Run.__mro__ for name, member in vars(kind).items() if not name.startswith("_")}
    undocumented = [name for name, member in members.items() if not inspect.getdoc(getattr(member, "func", member))]
    assert len(members) > 30 and undocumented == []


def test_scalars_have_a_row_a_step_and_a_column_a_number(honest: Path) -> None:
    run = open_run(honest)
    frame = run.to_frame()
    assert frame.index.name == "step" and list(frame.index) == run.steps
    assert list(frame.loss) == [scalars.loss for scalars in run.rows]
    assert frame.loc[1, "consumed_samples"] == run.scalars()[1]["consumed_samples"]
    assert str(frame.skipped.dtype) == "boolean" and frame.dtypes["loss"] == frame.dtypes["grad_norm"] == "float64"
    assert "terms" not in frame and frame.notna().all().all()


def test_what_no_row_has_is_no_column(tmp_path: Path) -> None:
    frame = open_run(scalars_only((9.0, None, 8.8)).write(tmp_path / "run")).to_frame()
    assert frame.loss.isna().tolist() == [False, True, False]
    made = scalars_only()
    for scalars in made.rows:
        scalars["grad_norm"] = None
    assert "grad_norm" not in open_run(made.write(tmp_path / "other")).to_frame()


def test_rates_of_groups_and_terms_of_the_loss_have_columns_of_their_own(tmp_path: Path) -> None:
    made = scalars_only()
    made.rows = [row(step, learning_rate=[1e-3, 2e-3], terms={"load_balancing": 0.5}) for step in range(STEPS)]  # type: ignore[arg-type]
    frame = open_run(made.write(tmp_path / "run")).to_frame()
    assert "learning_rate" not in frame
    assert frame["learning_rate.1"].tolist() == [2e-3] * STEPS
    assert frame["terms.load_balancing"].tolist() == [0.5] * STEPS


@pytest.mark.parametrize("grid", [Grid(), Grid(tp=2, pp=2, dp=2), Grid(dp=2, distributed=True)], ids=["one", "copies", "distributed"])
def test_norms_have_a_column_a_tensor(tmp_path: Path, grid: Grid) -> None:
    run = open_run(write_sharded(tmp_path / "run", grid, Model().tensors(1)))
    frame = run.to_frame("local_norms")
    assert list(frame.index) == [0] and frame.columns.name == "name"
    assert frame.loc[0].to_dict() == run.local_norms(0)


def test_norms_are_in_the_order_of_the_model(honest: Path) -> None:
    frame = open_run(honest).to_frame("local_norms")
    assert list(frame) == NAMES and frame.shape == (STEPS, len(NAMES))


def test_a_run_without_any_has_an_empty_frame(tmp_path: Path) -> None:
    for run in (open_run(scalars_only().write(tmp_path / "run")), open_run(by_hand(tmp_path / "hand"))):
        frame = run.to_frame("local_norms")
        assert isinstance(frame, pd.DataFrame) and frame.empty
    assert open_run(tmp_path / "hand").to_frame().empty


WITHOUT_PANDAS = """
import sys
sys.modules["pandas"] = None
import align_hooks
try: align_hooks.open_run(sys.argv[1]).to_frame()
except align_hooks.errors.AlignHooksError as error: print(error)
"""


def test_without_pandas_the_extra_is_named(honest: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_PANDAS, honest], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "a DataFrame needs pandas, which is not installed; pip install 'pandas>=2.1.1'\n"
