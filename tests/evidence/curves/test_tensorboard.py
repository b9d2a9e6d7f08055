"""TensorBoard's event files, written by the writer that Megatron-LM and MindFormers write them with."""

from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.errors import RecordError
from align_hooks.evidence.convert import convert_curves, is_curves
from align_hooks.regular import ReadLimits

SummaryWriter = pytest.importorskip("tensorboardX").SummaryWriter


def logged(where: Path, steps: range, tag: str = "lm loss", *, off: float = 0.0, start: int = 1) -> None:
    """Of two starts in one second the files would have one name."""
    with SummaryWriter(str(where), filename_suffix=f".{start}") as writer:
        for step in steps:
            writer.add_scalar(tag, 10.0 - step + off, step)
            writer.add_scalar(f"{tag} vs samples", 10.0 - step + off, 32 * step)
            writer.add_scalar("grad-norm", float(step), step)


def test_a_resumed_run_s_later_points_count(tmp_path: Path) -> None:
    logged(tmp_path / "board", range(1, 5))
    logged(tmp_path / "board", range(3, 7), off=0.5, start=2)
    scalars = convert_curves(tmp_path / "board", tmp_path / "run")
    rows = open_run(tmp_path / "run").rows
    points = [(0, 9.0, 1.0), (1, 8.0, 2.0), (2, 7.5, 3.0), (3, 6.5, 4.0), (4, 5.5, 5.0), (5, 4.5, 6.0)]
    assert [(row.step, row.loss, row.grad_norm) for row in rows] == points
    assert scalars.notes[0] == "6 points were logged again for the same step, by a resumed run: the later ones count"


def test_consumed_samples_come_from_the_curve_over_them(tmp_path: Path) -> None:
    logged(tmp_path / "board", range(10, 31, 10), "loss")
    assert is_curves(next((tmp_path / "board").iterdir()))
    convert_curves(tmp_path / "board", tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert [(row.step, row.consumed_samples) for row in run.rows] == [(9, 320), (19, 640), (29, 960)]
    assert run.facts.framework == "MindFormers"


def test_the_folder_of_one_rank_is_found_and_several_are_refused(tmp_path: Path) -> None:
    logged(tmp_path / "board" / "rank_0", range(1, 3), "loss")
    convert_curves(tmp_path / "board", tmp_path / "run")
    logged(tmp_path / "board" / "rank_1", range(1, 3), "loss")
    with pytest.raises(RecordError, match="has events of 2 ranks, each of its own loss; name one"):
        convert_curves(tmp_path / "board", tmp_path / "refused")


def test_events_without_a_curve_or_of_no_loss_and_no_events_are_refused(tmp_path: Path) -> None:
    logged(tmp_path / "other", range(1, 3), "validation")
    with pytest.raises(RecordError, match=r"has no curve of the loss.*'grad-norm'"):
        convert_curves(tmp_path / "other", tmp_path / "run", "torch")
    with SummaryWriter(str(tmp_path / "board")) as writer:
        writer.add_text("args", "--lr 1")
    (tmp_path / "events.out.tfevents.1.host").write_bytes(b"nothing of TensorBoard's")
    for source in (tmp_path / "board", tmp_path / "events.out.tfevents.1.host"):
        with pytest.raises(RecordError, match="holds no curve; name the directory of one run"):
            convert_curves(source, tmp_path / "run")


def test_a_cut_or_a_changed_file_gives_what_stands_before_it(tmp_path: Path) -> None:
    logged(tmp_path / "board", range(1, 5))
    (file,) = (tmp_path / "board").iterdir()
    content = file.read_bytes()
    file.write_bytes(content[:-20])
    assert [row["step"] for row in convert_curves(file, tmp_path / "cut").rows] == [0, 1, 2, 3]
    half = len(content) // 2
    file.write_bytes(content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :])
    steps = [row["step"] for row in convert_curves(file, tmp_path / "changed").rows]
    assert 0 < len(steps) < 4 and steps == list(range(len(steps)))


def test_what_no_copy_would_mend_is_not_to_be_copied_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged(tmp_path / "board", range(1, 3))
    monkeypatch.setattr(ReadLimits, "FILE", 10)
    with pytest.raises(RecordError, match="larger than 10 bytes; name a directory that holds the events of one run"):
        convert_curves(tmp_path / "board", tmp_path / "run")
    monkeypatch.setattr(ReadLimits, "CELLS", 3)
    (tmp_path / "loss.csv").write_text("step,loss\n1,9\n2,8\n")
    monkeypatch.setattr(ReadLimits, "FILE", 100)
    with pytest.raises(RecordError, match="more than 3 cells; export it again, of fewer steps or columns"):
        convert_curves(tmp_path / "loss.csv", tmp_path / "run")
