"""Nothing that was changed since it was recorded is taken for what was recorded."""

import contextlib
import json
import random
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from align_hooks import open_run
from align_hooks.comparison.pipeline import compare
from align_hooks.errors import RecordError
from align_hooks.record.format import digests
from align_hooks.record.verify import verify
from record.conftest import DP2, of_ranks
from rewritten import cut_last_line, flip
from synthetic import EVERYTHING, HONEST_SKETCHED, NAMES, Synthetic, row, scalars_only

NO_PART = (".claim",)
"""Files beside a record that are no part of it."""
EXPECTED_FILES = 30


def noticed(path: Path) -> list[str]:
    """What is wrong with a run by every reader, each problem behind its kind."""
    try:
        run = open_run(path)
        run.scalars()
        return [f"{problem.kind.value}: {problem}" for problem in (*run.problems, *verify(run).wrong)]
    except RecordError as error:
        return [str(error)]


def files_of(run: Path) -> list[Path]:
    """Every file that is a part of a record."""
    return sorted(path for path in run.rglob("*") if path.is_file() and path.suffix not in NO_PART)


def test_a_whole_run_is_verified_file_by_file(honest: Path) -> None:
    verified, files = verify(open_run(honest)), files_of(honest)
    rows = [path for path in files if path.suffix == ".jsonl"]
    lines = sum(len(path.read_bytes().splitlines()) for path in rows if path.parent.name != "scalars")
    assert verified.files == len(files) - len(rows) + lines and len(files) > EXPECTED_FILES and verified.wrong == []


def test_no_changed_byte_goes_unnoticed(run: Path) -> None:
    """Of every file the first byte, the last, and some by chance."""
    silent, chance = [], random.Random(18)
    for path in files_of(run):
        content = path.read_bytes()
        for at in {0, len(content) - 1, *(chance.randrange(len(content)) for _ in range(2))}:
            changed = bytearray(content)
            changed[at] ^= 1 << random.Random(at).randrange(8)
            path.write_bytes(changed)
            if not noticed(run):
                silent.append(f"{path.relative_to(run)} at {at}: {content[at]} is {changed[at]}")
        path.write_bytes(content)
    # numpy's header may say the same in other bytes; the causal mask is held against what a causal mask is
    assert [change for change in silent if not change.startswith("causal_attention_mask.npy")] == []


def test_what_is_gone_is_named(run: Path) -> None:
    for path in files_of(run):
        if path.name not in ("run.json", "causal_attention_mask.npy"):
            content = path.read_bytes()
            path.unlink()
            words = "rows_cut: " if path.parent.name == "scalars" else path.parent.name if path.suffix == ".jsonl" else path.name
            assert any(words in problem or "lost its manifests" in problem for problem in noticed(run)), path
            path.write_bytes(content)
    assert noticed(run) == []


def test_a_flipped_bit_in_a_gradient_is_refused_where_it_is_read_and_nowhere_else(run: Path) -> None:
    flip(run / "step_1/rank_0/gradients.safetensors")
    gradients, wrong = open_run(run).gradients(1), []
    for name in NAMES:
        try:
            _ = gradients[name]
        except RecordError as error:
            wrong.append(str(error))
    assert len(wrong) == 1 and "gradients.safetensors" in wrong[0] and "was changed since it was recorded" in wrong[0]


@pytest.mark.parametrize("name", ["gradients.safetensors", "weights/model.safetensors", "token_losses.npy", "batch.json"])
def test_one_steps_file_in_the_place_of_anothers_is_refused(run: Path, name: str) -> None:
    shutil.copy(run / "step_0/rank_0" / name, run / "step_1/rank_0" / name)
    assert any("was changed since it was recorded" in problem and f"step_1/rank_0/{name}" in problem for problem in noticed(run))


@pytest.mark.parametrize("name", ["run.json", "manifest/rank_0.json", "scalars/rank_0.jsonl", "local_norms/rank_0.jsonl"])
def test_another_runs_file_is_refused(run: Path, tmp_path: Path, name: str) -> None:
    foreign = Synthetic(settings=EVERYTHING | {"sketches": "all"}).write(tmp_path / "foreign")
    shutil.copy(foreign / name, run / name)
    assert noticed(run)


def test_tensors_written_anew_are_not_what_was_recorded(run: Path) -> None:
    path = run / "step_1/rank_0/gradients.safetensors"
    save_file(load_file(path), path, metadata={"format": "pt"})
    with pytest.raises(RecordError, match="was changed since it was recorded"):
        open_run(run).gradients(1)


@pytest.mark.parametrize("name", ["scalars", "local_norms", "sketches/gradients", "sketches/weights"])
def test_rows_that_are_cut_are_missed(run: Path, name: str) -> None:
    cut_last_line(run / name / "rank_0.jsonl")
    assert noticed(run)


def test_rows_cut_after_a_continued_run_are_missed(tmp_path: Path) -> None:
    synthetic = scalars_only()
    path = synthetic.write(tmp_path / "run")
    synthetic.settings = {"run_exists": "continue"}
    synthetic.rows = [{**scalars, "step": scalars["step"] + 3} for scalars in synthetic.rows]
    synthetic.write(path)
    assert open_run(path).steps == [0, 1, 2, 3, 4, 5] and noticed(path) == []
    for _ in range(6):
        cut_last_line(path / "scalars/rank_0.jsonl")
        assert noticed(path)


def test_a_row_that_is_there_twice_makes_up_for_none_that_is_gone(run: Path) -> None:
    rows = run / "scalars/rank_0.jsonl"
    *kept, _ = rows.read_bytes().splitlines(keepends=True)
    rows.write_bytes(b"".join([*kept, kept[-1]]))
    assert any(problem.startswith("rows_cut: ") for problem in noticed(run))


@pytest.mark.parametrize("name", ["run.json", "manifest/rank_0.json", "scalars/rank_0.jsonl"])
def test_what_lost_its_digest_is_refused(run: Path, name: str) -> None:
    content = (run / name).read_bytes()
    (run / name).write_bytes(content.replace(b'"digest"', b'"digesu"', 1))
    words = "it was changed since it was written" if name.endswith("l") else f"{name} cannot be read: it was changed"
    assert any(words in problem for problem in noticed(run))


def test_pieces_that_are_gone_make_no_aligned_run(tmp_path: Path) -> None:
    whole = HONEST_SKETCHED.write(tmp_path / "whole")
    for name in ("sketches/gradients/rank_0.jsonl", "step_1/rank_0/tokens.npy", "step_1/rank_0/token_losses.npy"):
        broken = Path(shutil.copytree(whole, tmp_path / "broken"))
        (broken / name).unlink()
        with contextlib.suppress(RecordError):
            assert compare(open_run(whole), open_run(broken)).verdict.exit_code != 0, name
        shutil.rmtree(broken)


def test_a_step_that_was_copied_alone_is_made_by_hand_where_it_holds_its_batch_alone(run: Path, tmp_path: Path) -> None:
    """The guide's page copies the batch of a step that stands out, to feed it to both sides. More is a record without its manifests."""
    only = Synthetic(settings={"batches": "all"}, weights={}, gradients={}, moments={}).write(tmp_path / "only")
    for source in (run, only):
        shutil.copytree(source / "step_1", tmp_path / f"alone_{source.name}" / "step_0")
    assert open_run(tmp_path / "alone_only").batch_steps() == [0]
    shutil.rmtree(run / "manifest")
    for lost in (tmp_path / "alone_run", run):
        with pytest.raises(RecordError, match="has lost its manifests"):
            open_run(lost)


def test_a_seal_is_of_every_byte() -> None:
    sealed = digests.seal(json.dumps({"a": [1, 2], "b": "ü"}, ensure_ascii=False).encode())
    assert digests.opened(sealed) == {"a": [1, 2], "b": "ü"}
    assert json.loads(sealed).keys() == {"a", "b", "digest"}
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 1
        with pytest.raises(ValueError, match=r"differs|decode"):
            digests.opened(bytes(changed))


def test_a_row_that_lacks_only_the_end_of_its_line_is_whole_and_stays(tmp_path: Path) -> None:
    path = scalars_only().write(tmp_path / "run")
    rows = path / "scalars/rank_0.jsonl"
    rows.write_bytes(rows.read_bytes()[:-1])
    assert open_run(path).steps == [0, 1, 2] and noticed(path) == []
    Synthetic(settings={"run_exists": "continue"}, rows=[row(3)], batches={}, weights={}, gradients={}, norms={}).write(path)
    assert open_run(path).steps == [0, 1, 2, 3] and noticed(path) == []
    rows.write_bytes(rows.read_bytes()[:-1] + b"}")
    assert noticed(path)


@pytest.mark.parametrize("name", ["manifest/rank_{}.json", "scalars/rank_{}.jsonl"])
def test_files_of_two_ranks_that_changed_places_are_refused(tmp_path: Path, name: str) -> None:
    of_ranks(tmp_path, DP2)
    assert noticed(tmp_path) == []
    first, second = (tmp_path / name.format(rank) for rank in (0, 1))
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    assert noticed(tmp_path)
