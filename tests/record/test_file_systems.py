"""File systems that lack what a record rests on: what there is is used, and what is weaker is said."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from align_hooks import open_run
from align_hooks.comparison.health import health
from align_hooks.errors import RefusedRun
from align_hooks.messages import message
from record.conftest import failing
from synthetic import Synthetic, begun


def no_folder_sync(descriptor: int, sync: Any = os.fsync) -> None:
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "Invalid argument")
    sync(descriptor)


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL])
def test_without_hard_links_a_run_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(os, "link", failing(number))
    run = open_run(Synthetic().write(tmp_path / "run"))
    assert run.steps == [0, 1, 2] and run.problems == []
    assert run.weaker == [message("weakness.no_links")]
    with pytest.raises(RefusedRun, match="already holds a run"):
        begun(tmp_path / "run")
    assert message("run.weaker", weakness=run.weaker[0]) in health(run, (), ()).remarks


def test_without_syncing_directories_a_run_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", no_folder_sync)
    run = open_run(Synthetic().write(tmp_path / "run"))
    assert run.steps == [0, 1, 2] and run.problems == []
    assert run.weaker == [message("weakness.no_sync")]


def test_where_everything_is_there_nothing_is_said(tmp_path: Path) -> None:
    run = open_run(Synthetic().write(tmp_path / "run"))
    assert run.weaker == [] and "run.weaker" not in [remark.id for remark in health(run, (), ()).remarks]


@pytest.mark.parametrize("call", ["link", "fsync"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_start_that_fails_blocks_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    monkeypatch.setattr(os, call, failing(number))
    with pytest.raises(RefusedRun, match=f"cannot be written: {os.strerror(number)}"):
        begun(tmp_path / "run")
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "run").rglob("*") if path.is_file()] in ([], ["rank_0.claim"])
    assert open_run(Synthetic().write(tmp_path / "run")).problems == []
