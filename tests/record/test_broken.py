"""Records that are not whole, not ours, or contradict themselves; directories that cannot be used."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import asdict

from align_hooks import open_run
from align_hooks.errors import RecordError, RefusedRun
from align_hooks.messages import message, sentences
from align_hooks.record.format.ending import End, HowEnded, InterruptedWrite
from align_hooks.record.format.schema import Facts, ReplayedSteps
from align_hooks.record.read.problems import ProblemKind
from align_hooks.record.write.step_files import write_tensors
from holder import Holder
from record.conftest import DP2, contents, of_ranks
from rewritten import cut_last_line, edit, relisted, sealed
from synthetic import NAMES, STEPS, Synthetic, begun, described, finished, job, row, scalars_only


@pytest.mark.parametrize(("name", "message"), [("no", "is not a directory"), ("", "holds no run")])
def test_a_path_without_a_run_is_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        open_run(tmp_path / name)


def losses(path: Path) -> list[float | None]:
    return [scalars["loss"] for scalars in open_run(path).scalars()]


def test_a_torn_last_row_does_not_count_and_is_cut_before_a_continued_run_writes_on(run: Path) -> None:
    path = run / "scalars/rank_0.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert open_run(run).steps == [0, 1]
    finished(described(run, range(2, 3), run_exists="continue"), [2], loss=1.5)
    assert losses(run) == [9.0, 8.9, 1.5]


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b"3", b'{"step": 0}', sealed('{"loss": 1}'), sealed('{"step": [0]}'), b"\x00\x00", b"\xff\xfe"]
)
def test_a_row_that_is_broken_before_the_end_is_refused_with_its_line(run: Path, line: bytes) -> None:
    path = run / "scalars/rank_0.jsonl"
    path.write_bytes(line + b"\n" + path.read_bytes())
    with pytest.raises(RecordError, match=r"rank_0.jsonl:1 is no row of a record"):
        _ = open_run(run).steps


KILLED = """
import os, sys
from pathlib import Path
from synthetic import Synthetic
run = Synthetic(ended=None)
run.rows = run.rows[:2]
run.write(Path(sys.argv[1]))
os.kill(os.getpid(), 9)
"""


def test_a_killed_run_is_readable_up_to_its_last_whole_step_and_named(tmp_path: Path) -> None:
    killed = Holder(tmp_path / "run", code=KILLED)
    killed.process.communicate()
    assert killed.process.returncode == -9
    run = open_run(tmp_path / "run")
    assert run.steps == run.gradient_steps() == run.batch_steps() == [0, 1]
    assert run.gradients(1)[NAMES[0]].shape == (10, 4)
    (problem,) = run.problems
    assert (problem.kind, problem.rank, problem.step) == (ProblemKind.NOT_FINISHED, 0, 1)
    assert run.endings[0].end is End.UNKNOWN


def test_what_a_step_wrote_before_its_row_does_not_count(tmp_path: Path) -> None:
    path = Synthetic(ended=None).write(tmp_path / "run")
    cut_last_line(path / "scalars/rank_0.jsonl")
    run = open_run(path)
    assert run.steps == run.batch_steps() == run.gradient_steps() == run.local_norm_steps() == [0, 1]


def test_a_run_that_stopped_recording_says_why(run: Path) -> None:
    edit(run / "manifest/rank_0.json", end=HowEnded("stopped", step=2, what="weights", error="OSError: full").facts())
    (problem,) = open_run(run).problems
    assert open_run(run).endings[0].end is End.STOPPED
    stopped = {"rank": 0, "step": 2, "iteration": 3, "what": InterruptedWrite.WEIGHTS, "error": "OSError: full"}
    assert problem.message == sentences(message("rank.stopped", **stopped), message("run.last_whole_step", step=2, iteration=3))


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A run of two ranks, of which rank 1 ends a step before rank 0."""
    rows = {rank: [row(step) for step in range(STEPS - rank)] for rank in (0, 1)}
    return of_ranks(tmp_path / "pair", DP2, lambda writer, rank: [*map(writer.scalars, rows[rank])], steps=range(2))


def test_a_rank_that_ended_early_bounds_the_run_and_one_that_is_missing_is_named(pair: Path) -> None:
    assert open_run(pair).steps == [0, 1]
    (pair / "manifest/rank_1.json").unlink()
    run = open_run(pair)
    assert run.steps == [0, 1, 2]
    assert [(problem.kind, problem.rank) for problem in run.problems] == [(ProblemKind.RANKS_MISSING, 1)]


@pytest.mark.parametrize(
    ("rank", "changes", "message"),
    [
        pytest.param(1, {"launch": asdict(job(1, 2, "two")), "run_id": None}, "rank 1 belongs to another job than rank 0", id="other name"),
        pytest.param(1, {"launch": asdict(job(1, 4))}, "rank 1 belongs to another job than rank 0", id="other size"),
        *((0, {"format": number}, "this version reads 1; use the version that wrote it") for number in (0, 2, "1", None)),
    ],
)
def test_a_manifest_of_another_job_or_format_is_refused(pair: Path, rank: int, changes: dict[str, Any], message: str) -> None:
    edit(pair / f"manifest/rank_{rank}.json", **changes)
    with pytest.raises(RecordError, match=message):
        open_run(pair)


def test_a_run_without_run_json_is_readable(run: Path) -> None:
    (run / "run.json").unlink()
    assert (open_run(run).facts, open_run(run).steps) == (Facts(), [0, 1, 2])


TOKENS, GRADIENTS = "step_1/rank_0/tokens.npy", "step_1/rank_0/gradients.safetensors"


class Boom:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.abort, ())


def archived(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, np.zeros(3))


def promising(path: Path) -> None:
    """A header that promises more than its file holds."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": (10**7, 10**6)})


NO_ARRAYS: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-9]), r"tokens.npy is not a whole \.npy array"),
    "empty": (lambda path: path.write_bytes(b""), r"tokens.npy is not a whole \.npy array"),
    "pickled": (lambda path: np.save(path, np.array([Boom()], object), allow_pickle=True), "pickled arrays are never loaded"),
    "an archive": (archived, "not a single array of numbers"),
    "larger by its header": (promising, r"tokens.npy is not a whole \.npy array"),
    "missing": (Path.unlink, r"tokens.npy is missing"),
}


@pytest.mark.parametrize(("spoil", "message"), NO_ARRAYS.values(), ids=NO_ARRAYS)
def test_a_file_that_is_no_whole_array_is_refused(run: Path, spoil: Callable[[Path], object], message: str) -> None:
    spoil(run / TOKENS)
    for read in (open_run(run).batch, open_run(run).batch_facts):
        with pytest.raises(RecordError, match=message):
            read(1)


@pytest.mark.parametrize("change", ["value", "dtype", "shape"])
def test_an_altered_array_is_refused(run: Path, change: str) -> None:
    array = np.load(run / TOKENS)
    if change == "value":
        array[0, 0] += 1
    np.save(run / TOKENS, array.astype(np.int32) if change == "dtype" else array.T if change == "shape" else array)
    if change != "value":
        relisted(run)
    with pytest.raises(RecordError, match="was changed since it was recorded"):
        open_run(run).batch(1)


@pytest.mark.parametrize(
    "text",
    [
        *("{", "{}", '{"rows": [4], "arrays": []}'),
        *(f'"joined_first": {value}' for value in ("[]", "2", "{}")),
        *(f'"joined_first": {{"micro_batches": {count}, "whole": false}}' for count in ("0", "true")),
        *(f'"joined_first": {{"micro_batches": 2, "whole": {value}}}' for value in ("null", "1")),
        *(f'"slices": {value}' for value in ("{}", "[]", "[[0]]", "[[4, 2]]", "[[-1, 2]]", "[[0, 1099511627776]]", '[["0", "2"]]')),
    ],
)
def test_a_description_of_a_batch_that_cannot_be_is_refused(run: Path, text: str) -> None:
    """A whole text, or a member in place of the honest one."""
    path = run / "step_1/rank_0/batch.json"
    path.write_text(text if text.startswith("{") else json.dumps(json.loads(path.read_text()) | json.loads(f"{{{text}}}")))
    if not text.startswith("{"):
        relisted(run)
    for read in (open_run(run).batch, open_run(run).batch_facts):
        with pytest.raises(RecordError, match=r"batch\.json" if text.startswith("{") else r"batch\.json: .*; copy it again"):
            read(1)


@pytest.mark.parametrize("keep", [0, 4, 200, -9])
def test_a_truncated_safetensors_file_is_refused(run: Path, keep: int) -> None:
    (run / GRADIENTS).write_bytes((run / GRADIENTS).read_bytes()[:keep])
    with pytest.raises(RecordError, match=r"gradients.safetensors is not a whole safetensors file"):
        open_run(run).gradients(1)


def test_run_exists_refuse_is_the_default_and_leaves_the_run_alone(run: Path) -> None:
    before = contents(run)
    with pytest.raises(RefusedRun, match=r"already holds a run of rank 0.*ALIGN_HOOKS_RUN_EXISTS=replace"):
        begun(run)
    assert contents(run) == before


def test_run_exists_replace_leaves_nothing_of_the_earlier_run(run: Path) -> None:
    before = contents(run)
    begun(run, run_exists="replace").finish(HowEnded("failed"), hooks={})
    after = contents(run)
    assert all(after[path] == content for path, content in before.items() if not path.endswith(".claim"))
    writer = described(run, range(1), run_exists="replace")
    left = contents(run)
    assert {path for path, content in left.items() if content} == {"manifest/rank_0.json", "manifest/rank_0.claim", "run.json"}
    assert not list(run.glob("step_*"))
    assert left["run.json"] != before["run.json"]
    finished(writer, [0], loss=1.0)
    assert losses(run) == [1.0]


def test_a_rank_refuses_its_own_earlier_file_alone_and_a_smaller_job_replaces_all(pair: Path) -> None:
    for rank in (0, 1):  # rank 1 begins where rank 0 has recorded
        with pytest.raises(RefusedRun, match=f"of rank {rank}"):
            begun(pair, job(rank, 2))
    of_ranks(pair, DP2[:1], run_exists="replace")
    assert open_run(pair).problems == [] and not (pair / "scalars/rank_1.jsonl").exists()


def test_a_file_that_is_replaced_while_it_is_read_is_refused(run: Path) -> None:
    gradients = open_run(run).gradients(1)
    _ = gradients[NAMES[0]]
    write_tensors(run, 1, 0, "gradients.safetensors", {name: tensor + 1 for name, tensor in gradients.items()})
    with pytest.raises(RecordError, match=r"gradients.safetensors was replaced while it was being read"):
        _ = gradients[NAMES[0]]
    assert len(open_run(relisted(run)).gradients(1)[NAMES[0]])


def test_run_exists_continue_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    scalars_only((9.0, 8.0, 7.0)).write(tmp_path / "run")
    again = scalars_only((0.0, 0.0, 6.0, 5.0))
    again.rows = again.rows[2:]
    again.settings["run_exists"] = "continue"
    run = open_run(again.write(tmp_path / "run"))
    assert losses(run.path) == [9.0, 8.0, 6.0, 5.0]
    assert run.problems == []


def injected(path: Path, steps: range, source: str, from_source: list[int], how: str = "continue") -> None:
    """Write a segment whose steps ``from_source`` were injected with gradients of ``source``."""
    writer = begun(path, run_exists=how)
    handed = {"injected": {"run": source, "run_id": source, "steps": from_source}} if from_source else {}
    override = {"what": f"segment {steps.start}", "before": "a", "after": "b", "why": "c"}
    writer.describe(place={"dp": 0}, shards=[], facts={"overrides": [override], **handed}, steps=steps)
    finished(writer, steps)


@pytest.mark.parametrize(("source", "from_source", "steps"), [("a", [3], [0, 1, 3]), ("", [], [0, 1])])
def test_a_continued_run_keeps_its_id_its_overrides_and_its_injected_steps(
    tmp_path: Path, source: str, from_source: list[int], steps: list[int]
) -> None:
    injected(tmp_path, range(3), "a", [0, 1, 2], "refuse")
    before = open_run(tmp_path).facts
    injected(tmp_path, range(2, 4), source, from_source)  # step 2 is made again
    after = open_run(tmp_path).facts
    assert (after.run_id, after.injected) == (before.run_id, ReplayedSteps("a", "a", tuple(steps)))
    assert [override.what for override in after.overrides] == ["segment 0", "segment 2"]


def test_a_continued_run_is_injected_from_one_source_alone(tmp_path: Path) -> None:
    injected(tmp_path, range(3), "a", [0, 1, 2], "refuse")
    with pytest.raises(RefusedRun, match=r"was injected with gradients of a up to step 1, now .*INJECT_GRADIENTS names b; choose"):
        injected(tmp_path, range(2, 4), "b", [2])
    assert open_run(tmp_path).steps == [0, 1, 2]
    injected(tmp_path, range(4), "b", [0])  # nothing of the other source stays
    assert open_run(tmp_path).facts.injected == ReplayedSteps("b", "b", (0,))


def test_run_exists_continue_may_be_the_first_run(tmp_path: Path) -> None:
    begun(tmp_path / "run", run_exists="continue")
    assert (tmp_path / "run/manifest/rank_0.json").exists()


@pytest.mark.parametrize("how", ["refuse", "replace", "continue"])
@pytest.mark.parametrize("place", ["below a file", "is a file", "proc"])
def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path, place: str, how: str) -> None:
    (tmp_path / "file").write_text("mine")
    path = {"below a file": tmp_path / "file/run", "is a file": tmp_path / "file", "proc": Path("/proc/align_hooks")}[place]
    with pytest.raises(RefusedRun, match="cannot be written"):
        begun(path, run_exists=how)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_failed_write_leaves_the_earlier_file(run: Path) -> None:
    path = run / "step_0/rank_0/gradients.safetensors"
    before = path.read_bytes()
    writer = described(run, range(0, 1), run_exists="continue")
    with pytest.raises(TypeError):
        writer.weights(0, {"x": np.zeros(1, np.float32)}, {}, {"x": object()})
    with pytest.raises(RecordError):
        writer.gradients(0, {"x": np.zeros(1, np.float16)})
    assert path.read_bytes() == before
    assert list(run.rglob("*.tmp")) == []


@pytest.mark.parametrize(
    ("file", "content"),
    [
        *(("manifest/rank_0.json", text) for text in (b"", b"{", b"[]", b"null", b'{"format": 1}', b'{"format": 1, "launch": null}')),
        *(("run.json", text) for text in (b"", b"{", b"[]", b"[" * 100_000)),
        ("run.json", '{"format": 1, "settings": 5}'),
        ("run.json", '{"format": 1, "settings": {"weights": "9-1"}}'),
        ("run.json", '{"format": 1, "optimizer": {"groups": [{"betas": []}]}}'),
        ("run.json", '{"format": 1, "optimizer": []}'),
        ("manifest/rank_0.json", '{"format": 1, "launch": {"world_size": "1"}}'),
        ("manifest/rank_0.json", '{"format": 1, "launch": {"world_size": 1}, "place": []}'),
        ("manifest/rank_0.json", '{"format": 1, "launch": {"world_size": 1}, "parameters": [{"nome": 1}]}'),
        ("scalars/rank_0.jsonl", '{"step": -1}'),
        ("scalars/rank_0.jsonl", '{"step": 0, "loss": "ten"}'),
        ("scalars/rank_0.jsonl", '{"step": 0}'),
        ("scalars/rank_0.jsonl", '{"step": 0, "loss": 1' + "0" * 400 + "}"),
    ],
)
def test_a_file_of_a_stranger_is_refused(run: Path, file: str, content: str | bytes) -> None:
    """Bytes as they are, a text with the digest that makes it a member of a record."""
    named = file
    if isinstance(content, str):
        named += ": .*copy it again" if file.endswith(".json") else ""
        content = content.replace("}", f', "rank": 0, "segment": "{open_run(run).manifests[0].segment}"}}') if "jsonl" in file else content
        content = sealed(content)
    (run / file).write_bytes(content)
    with pytest.raises(RecordError, match=named):
        open_run(run).scalars()


def test_a_million_missing_ranks_are_one_sentence(run: Path) -> None:
    edit(run / "manifest/rank_0.json", launch=asdict(job(0, 10**9)))
    (problem,) = open_run(run).problems
    assert problem.message == message("run.ranks_missing", count=10**9 - 1, ranks=10**9, rank=1)


@pytest.mark.parametrize(
    ("put", "message"),
    [(lambda path: path.symlink_to("/dev/zero"), r"run\.json is a link that leads out of"), (os.mkfifo, "not a regular file")],
    ids=["a device", "a pipe, which is not waited for"],
)
def test_what_is_no_file_in_place_of_one_is_refused(run: Path, put: Callable[[Path], object], message: str) -> None:
    (run / "run.json").unlink()
    put(run / "run.json")
    with pytest.raises(RecordError, match=message):
        open_run(run)


def test_a_missing_step_is_a_problem(tmp_path: Path) -> None:
    synthetic = Synthetic()
    del synthetic.rows[1]
    (problem,) = open_run(synthetic.write(tmp_path / "run")).problems
    assert (problem.kind, problem.step) == (ProblemKind.STEP_MISSING, 1)
