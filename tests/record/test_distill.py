"""A distilled run is a record: what it kept is what the run has, what it lacks it was never asked for, and it is the same bytes again."""

import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from align_hooks import open_run
from align_hooks.cli import app
from align_hooks.errors import AlignHooksError, RecordError
from align_hooks.process import archive
from align_hooks.process.archive import packed
from align_hooks.process.executors import executor_of
from align_hooks.process.work import WorkPool
from align_hooks.quantities.registry import KINDS, SKETCHES
from align_hooks.record.distill import CHOICES, DistilledRecord, distill
from align_hooks.record.inventory import inventory, not_whole
from align_hooks.record.reader import Run
from align_hooks.record.verify import verify
from align_hooks.record.write.step_files import StepBatch
from align_hooks.settings import Steps
from comparison.test_points import run as with_points
from invoked import command, invoke
from rewritten import flip
from sharded import Grid, Model
from sharded import write as write_sharded
from synthetic import HONEST_SKETCHED, STEPS, Synthetic, batch, by_hand, described, finished, routed, row

NONE = Steps.parse("none")


def written(distilled: DistilledRecord, path: Path) -> Run:
    """The run that a distilled one is after it was written and read."""
    path.write_bytes(distilled.content)
    return open_run(path)


def lists(arrays: Mapping[str, np.ndarray]) -> dict[str, list[object]]:
    """The same as lists, which are compared whole."""
    return {name: array.tolist() for name, array in arrays.items()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    facts = {"framework": "Megatron-LM", "arguments": {"num_layers": 1, "hidden_size": 4}, "versions": {"megatron-core": "0.19.0"}}
    return open_run(Synthetic(facts=facts).write(tmp_path_factory.mktemp("distill") / "run"))


@pytest.fixture
def short(run: Run, tmp_path: Path) -> Run:
    return written(distill(run), tmp_path / "run.zip")


def test_what_is_no_tensor_is_what_the_run_has(run: Run, short: Run) -> None:
    assert short.scalars() == run.scalars()
    kept, recorded = (replace(each.rank_rows(1)[0], files=None) for each in (short, run))  # tensors are no longer listed
    assert kept == recorded
    assert short.manifests[0].parameters == run.manifests[0].parameters
    for key in ("optimizer", "run_id", "model"):
        assert getattr(short.facts, key) == getattr(run.facts, key)
    for step in run.steps:
        assert short.local_norms(step) == run.local_norms(step)
        assert lists(short.batch(step).arrays()) == lists(run.batch(step).arrays())
    assert short.self_check == run.self_check


@pytest.mark.parametrize("kind", SKETCHES)
def test_tensors_are_kept_as_their_sketches(run: Run, short: Run, kind: str) -> None:
    assert short.steps_of(kind) == [] and short.sketch_steps(kind) == run.sketch_steps(kind)
    for step in run.sketch_steps(kind):
        assert lists(short.sketches(kind, step)) == lists(run.sketches(kind, step))


def test_it_is_whole_and_was_asked_for_what_it_holds(short: Run) -> None:
    assert short.problems == [] and [*not_whole(short)] == []
    assert {holding.kind for holding in inventory(short)} == {"scalars", "batches", "local_norms", "sketches/gradients", "sketches/weights"}
    for kind in KINDS:
        if kind.switch is not None:
            assert all(step in short.asked(kind.switch.name) for step in short.steps_of(kind.name)), kind.name
    assert [bool(short.asked(name)) for name in ("gradients", "weights", "optimizer_state")] == [False] * 3


def test_what_it_lacks_is_said(run: Run) -> None:
    distilled = distill(run, {"batches": Steps.parse("0"), "local_norms": NONE})
    assert distilled.left_out == {"batches": "1-2", "local_norms": "0-2", "gradients": "0-2", "weights": "0-3", "optimizer_state": "0-3"}
    assert "local_norms" not in distilled.kept and list(distilled.kept["batches"]) == [0]


def test_sketches_count_as_asked_for_where_all_that_there_can_be_are_held(tmp_path: Path) -> None:
    made = Synthetic(settings={"gradients": "0-1", "weights": "0"})
    short = distill(open_run(made.write(tmp_path / "run"))).at(tmp_path / "run.zip")
    assert (short.sketch_steps("gradients"), short.sketch_steps("weights")) == ([0, 1], [0])
    assert [step for step in range(4) if step in short.asked("sketches")] == [0]


def test_the_same_run_makes_the_same_bytes(run: Run, tmp_path: Path) -> None:
    moved = shutil.copytree(run.path, tmp_path / "elsewhere")
    assert distill(open_run(moved)).content == distill(run).content


def test_it_can_be_distilled_further(short: Run, tmp_path: Path) -> None:
    again = written(distill(short, {"batches": NONE, "sketches": Steps.parse("0")}), tmp_path / "again.zip")
    assert (again.batch_steps(), again.sketch_steps("gradients")) == ([], [0])
    facts = again.facts.distilled
    assert facts is not None and facts.left_out["gradients"] == "0-2" and facts.batches.keys() == {"0", "1", "2"}
    assert distill(again).at(tmp_path / "third.zip").facts.distilled == facts


def test_sketches_of_the_run_are_kept_as_they_are(tmp_path: Path) -> None:
    run = open_run(HONEST_SKETCHED.write(tmp_path / "run"))
    assert lists(distill(run).at(tmp_path / "run.zip").sketches("weights", 3)) == lists(run.sketches("weights", 3))


@pytest.mark.parametrize("grid", [Grid(tp=2, pp=2, dp=2), Grid(tp=2, dp=2, distributed=True)], ids=["copies", "distributed"])
@pytest.mark.parametrize("engine", ["none", "threads:2"])
def test_ranks_keep_the_sketches_of_their_own_shards(tmp_path: Path, grid: Grid, engine: str) -> None:
    run = open_run(write_sharded(tmp_path / "run", grid, Model().tensors(1)))
    with executor_of(engine) as workers:
        short = distill(run, work=WorkPool(executor=workers)).at(tmp_path / "run.zip")
    assert (short.world_size, short.local_norms(0)) == (run.world_size, run.local_norms(0))
    assert not short.self_check.contradictions
    ours, theirs = run.sketches("gradients", 0), short.sketches("gradients", 0)
    assert ours.keys() == theirs.keys()
    for name, sums in ours.items():
        np.testing.assert_allclose(theirs[name], sums, rtol=0, atol=1e-12 * max(abs(sums)))


def test_experts_and_the_sums_of_points_are_kept(tmp_path: Path) -> None:
    experts = open_run(routed("routing").write(tmp_path / "experts"))
    short = distill(experts).at(tmp_path / "experts.zip")
    assert lists(short.routing(1)) == lists(experts.routing(1))
    assert short.expert_counts(1).keys() == experts.expert_counts(1).keys()
    made = with_points()
    made.settings |= {"activations_tensors": "*"}
    points = open_run(made.write(tmp_path / "points"))
    kept = distill(points).at(tmp_path / "points.zip").activations(0)
    assert [kept[name].norm for name in kept] == [points.activations(0)[name].norm for name in kept]
    assert not any(kept.has_tensor(name) for name in kept)


def test_a_run_of_several_starts_becomes_one(tmp_path: Path) -> None:
    first = Synthetic(ended=None)
    first.write(tmp_path / "run")
    later = described(tmp_path / "run", range(2, STEPS), **first.settings, run_exists="continue")
    for step in range(2, STEPS):
        later.batch(step, StepBatch(first.batches[step], [4]))
        later.gradients(step, first.gradients[step])
        later.local_norms(step, "reduced", first.norms[step])
        later.weights(step + 1, first.weights[step + 1], first.model)
        later.optimizer_state(step + 1, first.moments[step + 1], step + 1)
        later.scalars(row(step))
    finished(later, ())
    run = open_run(tmp_path / "run")
    assert run.steps == [0, 1, 2] and len(run.manifests[0].starts()) == 2
    short = distill(run).at(tmp_path / "run.zip")
    assert short.scalars() == run.scalars()
    assert short.sketch_steps("weights") == run.sketch_steps("weights")
    assert len(short.manifests[0].starts()) == 1


@pytest.mark.parametrize(
    ("why", "make"), [("made by hand", by_hand), ("not whole", Synthetic(ended=None).write)], ids=["made by hand", "not whole"]
)
def test_no_reference_is_made_of_a_run_that_is_not_whole(tmp_path: Path, why: str, make: Callable[[Path], Path]) -> None:
    with pytest.raises(RecordError, match=why) as refused:
        distill(open_run(make(tmp_path / "run")))
    assert "\n" not in str(refused.value)


def test_what_was_changed_in_the_run_is_not_distilled(tmp_path: Path) -> None:
    path = Synthetic().write(tmp_path / "run")
    flip(path / "step_1/rank_0/tokens.npy")
    with pytest.raises(RecordError, match="tokens"):
        distill(open_run(path)).at(tmp_path / "run.zip")


def wrong(path: Path) -> list[str]:
    """What a reader says is wrong with a record, and ``show --verify``."""
    try:
        run = open_run(path)
        return [str(problem) for problem in (*run.problems, *not_whole(run), *verify(run).wrong)]
    except RecordError as error:
        return [str(error)]


CHANGES: dict[str, tuple[str, Callable[[bytes], bytes | None]]] = {
    "a row": ("scalars/rank_0.jsonl", lambda content: content.replace(b"1", b"2")),
    "a line": ("local_norms/rank_0.jsonl", lambda content: content.replace(b"1", b"2")),
    "an array": ("step_0/rank_0/tokens.npy", lambda content: content[:-1] + b"\xff"),
    "a manifest": ("manifest/rank_0.json", lambda content: content.replace(b"1", b"2")),
    "gone": ("step_1/rank_0/batch.json", lambda content: None),
}


@pytest.mark.parametrize(("name", "change"), CHANGES.values(), ids=CHANGES)
def test_what_was_changed_in_the_file_is_refused(run: Run, tmp_path: Path, name: str, change: Callable[[bytes], bytes | None]) -> None:
    """A zip has checksums of its own; whoever makes a new zip still meets the digests of the record."""
    files = dict(distill(run).files)
    files |= {name: change(files[name])}
    (tmp_path / "run.zip").write_bytes(packed({name: content for name, content in files.items() if content is not None}))
    assert any(name in problem for problem in wrong(tmp_path / "run.zip"))


def test_a_file_beside_those_of_a_record_is_refused(run: Run, tmp_path: Path) -> None:
    files = dict(distill(run).files) | {"step_0/rank_0/../../../etc/passwd": b""}
    (tmp_path / "run.zip").write_bytes(packed(files))
    with pytest.raises(RecordError, match="is no file of a record"):
        open_run(tmp_path / "run.zip")


def test_three_hundred_tensors_and_ten_steps_are_less_than_a_megabyte(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    shapes = {f"model.layers.{index // 9}.part_{index % 9}.weight": (8, 16) for index in range(300)}
    tensors = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    made = Synthetic(
        settings={"batches": "0", "local_norms": "all", "gradients": "0", "weights": "0"},
        shapes=shapes,
        rows=[row(step) for step in range(10)],
        weights={0: tensors},
        gradients={step: {name: tensor * np.float32(step + 1) for name, tensor in tensors.items()} for step in range(10)},
    )
    distilled = distill(open_run(made.write(tmp_path / "run")), {"sketches": Steps.parse("0")})
    assert len(distilled.kept["local_norms"]) == 10
    print(f"{len(distilled.content)} bytes, {dict(distilled.sizes)}")
    assert len(distilled.content) < 1_000_000
    assert distilled.sizes.total() < len(distilled.content)


@pytest.mark.parametrize("words", ["show FILE --verify", "compare FILE RUN", "check FILE RUN", "accept FILE RUN"])
def test_every_command_takes_it_in_the_place_of_the_run(run: Run, tmp_path: Path, words: str) -> None:
    file = tmp_path / "reference.zip"
    made = command("distill", run.path, file, "--sketches", "0")
    assert (made.returncode, made.stderr) == (0, "") and f"written: {file}" in made.stdout and zipfile.is_zipfile(file)
    taken = [command(*({"FILE": place, "RUN": run.path}.get(word, word) for word in words.split())) for place in (file, run.path)]
    assert [done.stderr for done in taken] == ["", ""]
    assert taken[0].returncode == taken[1].returncode in (0, 4)


def test_each_quantity_that_may_be_kept_has_an_option() -> None:
    options = {option for parameter in app.commands["distill"].params for option in parameter.opts}
    assert {f"--{name.replace('_', '-')}" for name in CHOICES} < options


def test_an_object_storage_may_hold_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIGN_HOOKS_STORAGE", "memory")
    upath = pytest.importorskip("upath", reason="universal-pathlib is not installed")
    place = upath.UPath("memory://distilled/reference.zip")
    place.fs.pipe_file(place.path, distill(run).content)
    assert open_run("memory://distilled/reference.zip").scalars() == run.scalars()


ODD = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([None, 0.0, -0.0, 5e-324, 1.7e308, 1e154])
ANY_NAME = st.text(st.characters(exclude_characters="#/"), min_size=1, max_size=40).filter(str.isprintable)


@settings(max_examples=10)
@given(st.lists(st.tuples(ODD, ODD, ODD), min_size=1, max_size=4), ANY_NAME, st.sets(st.sampled_from([*Synthetic().settings])))
def test_whatever_is_distilled_is_taken_or_nothing_is_written(numbers: list[tuple[float | None, ...]], name: str, asked: set[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(step, loss=a, grad_norm=b, learning_rate=c) for step, (a, b, c) in enumerate(numbers)]
        shapes = {name: (2, 3), "empty.weight": (0, 3)}
        tensors_of = {"empty.weight": np.zeros((0, 3), np.float32), name: np.float32([[np.nan, np.inf, -np.inf], [3e38, 0, 1e-45]])}
        run = Synthetic(
            settings=dict.fromkeys(asked, "all"),
            shapes=shapes,
            rows=rows,
            batches={step: batch(step) for step in range(len(rows))},
            weights={},
            gradients=dict.fromkeys(range(len(rows)), tensors_of),
            model={name: name},
        )
        path, file = run.write(Path(folder) / "run"), Path(folder) / "run.zip"
        done = invoke(app, ["distill", str(path), str(file)])
        assert isinstance(done.exception, AlignHooksError | None), done.exception
        assert file.exists() == (done.exit_code == 0)
        if file.exists():
            assert repr(open_run(file).scalars()) == repr(open_run(path).scalars())
            for words in (["show", file], ["compare", path, file], ["compare", file, file]):
                taken = invoke(app, words)
                assert isinstance(taken.exception, SystemExit | None), taken.exception


@pytest.mark.parametrize("limit", ["LARGEST", "LONGEST_DIRECTORY", "LONGEST_NAME"])
def test_what_no_reader_would_take_is_not_written(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(archive, limit, 5)
    done = invoke(app, ["distill", str(run.path), str(tmp_path / "run.zip")])
    assert isinstance(done.exception, RecordError) and "would be no run that can be read" in str(done.exception)
    assert not (tmp_path / "run.zip").exists()
