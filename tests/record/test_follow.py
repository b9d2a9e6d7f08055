"""Rows of a run that is still being recorded."""

import json
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.errors import RecordError
from align_hooks.record.format import digests, layout
from align_hooks.record.format.ending import End
from align_hooks.record.tail import Followed
from synthetic import described, finished, scalars_only

STEPS = 6


class Growing:
    """A record that is written anew, line by line, as its job would: the manifest says how it ended with the last."""

    def __init__(self, source: Path, path: Path) -> None:
        self.path, self.lines = path, layout.scalars(source, 0).read_bytes().splitlines(keepends=True)
        self.whole = layout.manifest(source, 0).read_bytes()
        for folder in ("manifest", "scalars"):
            (path / folder).mkdir(parents=True)
        layout.run_file(path).write_bytes(layout.run_file(source).read_bytes())
        begun = json.loads(self.whole)
        for key in ("ended", "end", "digest"):
            begun.pop(key, None)
        layout.manifest(path, 0).write_bytes(digests.seal(json.dumps(begun).encode()))

    def write(self, text: bytes) -> None:
        with layout.scalars(self.path, 0).open("ab") as file:
            file.write(text)

    def end(self) -> None:
        layout.manifest(self.path, 0).write_bytes(self.whole)


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    return Growing(scalars_only([9.0 - step for step in range(STEPS)]).write(tmp_path / "whole"), tmp_path / "grows")


def test_each_row_is_given_out_once_when_its_line_is_whole(growing: Growing) -> None:
    followed = Followed(growing.path)
    assert followed.rows() == []
    growing.write(b"".join(growing.lines[:2]))
    assert [row.step for row in followed.rows()] == [0, 1]
    assert followed.rows() == []
    growing.write(growing.lines[2][:40])
    assert followed.rows() == []
    growing.write(growing.lines[2][40:] + growing.lines[3])
    assert [(row.step, row.loss) for row in followed.rows()] == [(2, 7.0), (3, 6.0)]
    assert followed.endings() is None
    growing.write(b"".join(growing.lines[4:]))
    growing.end()
    assert [row.step for row in followed.rows()] == [4, 5]
    assert [each.end for each in followed.endings() or ()] == [End.FINISHED]


def test_what_is_given_out_is_what_the_whole_run_holds(growing: Growing, tmp_path: Path) -> None:
    followed, given = Followed(growing.path), []
    for line in growing.lines:
        growing.write(line)
        given += followed.rows()
    assert given == open_run(tmp_path / "whole").rows


def test_a_run_that_has_not_begun_has_no_rows(tmp_path: Path) -> None:
    followed = Followed(tmp_path / "later")
    assert followed.rows() == [] and followed.endings() is None
    scalars_only().write(tmp_path / "later")
    assert len(followed.rows()) == 3
    assert [each.end for each in followed.endings() or ()] == [End.FINISHED]


def test_what_was_changed_or_became_shorter_is_refused(growing: Growing) -> None:
    growing.write(b"".join(growing.lines[:2]))
    followed = Followed(growing.path)
    followed.rows()
    layout.scalars(growing.path, 0).write_bytes(growing.lines[0])
    with pytest.raises(RecordError, match="became shorter"):
        followed.rows()
    layout.scalars(growing.path, 0).write_bytes(growing.lines[0].replace(b"9.0", b"8.0", 1))
    with pytest.raises(RecordError, match="is no row of a record"):
        Followed(growing.path).rows()


def test_a_start_that_goes_on_repeats_no_step(tmp_path: Path) -> None:
    path = scalars_only([9.0, 8.0, 7.0]).write(tmp_path / "run")
    followed = Followed(path)
    assert [row.step for row in followed.rows()] == [0, 1, 2]
    finished(described(path, range(2, 5), run_exists="continue"), range(2, 5))
    assert [row.step for row in followed.rows()] == [3, 4]
