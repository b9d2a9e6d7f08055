"""Files of other tools are regular, in the folder that was named, and of a size that is read."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest

from align_hooks.errors import RecordError
from align_hooks.record.format.files import is_folder_in, list_folder
from align_hooks.regular import ReadLimits, lines_of, listed, read_regular, whole_number


def linked_out(folder: Path) -> None:
    (folder.parent / "elsewhere").write_text("x")
    (folder / "file").symlink_to(folder.parent / "elsewhere")


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (lambda folder: os.mkfifo(folder / "file"), "not a regular file"),
    "a device": (lambda folder: (folder / "file").symlink_to("/dev/zero"), "leads out|not a regular file"),
    "a folder": (lambda folder: (folder / "file").mkdir(), "not a regular file|Is a directory"),
    "a link that leads out": (linked_out, "leads out of its folder"),
    "more bytes than are read": (lambda folder: (folder / "file").write_bytes(b"x" * 11), "larger than 10 bytes"),
}


@pytest.mark.parametrize(("make", "why"), ODD.values(), ids=ODD)
def test_what_is_no_file_of_a_folder_is_refused_without_waiting(make: Callable[[Path], object], why: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    make(tmp_path / "folder")
    with pytest.raises((ValueError, OSError), match=why):
        read_regular(tmp_path / "folder" / "file", 10, tmp_path / "folder")


@pytest.mark.parametrize(("repository", "is_read"), [("models--owner--name", True), ("mine", False)])
def test_links_may_lead_to_what_hugging_faces_cache_keeps_once(repository: str, is_read: bool, tmp_path: Path) -> None:
    cache, local = tmp_path / "cache" / repository, tmp_path / "local"
    for folder in (cache / "blobs", cache / "snapshots" / "main", local):
        folder.mkdir(parents=True)
    (cache / "blobs" / "1").write_text("x")
    (cache / "snapshots" / "main" / "config.json").symlink_to("../../blobs/1")
    (local / "config.json").symlink_to(cache / "blobs" / "1")  # as huggingface_hub downloads into a folder that it is given
    for folder in (cache / "snapshots" / "main", local):
        with nullcontext() if is_read else pytest.raises(ValueError, match="leads out of its folder"):
            assert read_regular(folder / "config.json", within=folder) == b"x"


def test_a_line_and_a_number_have_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadLimits, "LINE", 10)
    (tmp_path / "table").write_text("short\n" + "x" * 11)
    lines = lines_of(tmp_path / "table")
    assert next(lines) == "short\n"
    with pytest.raises(ValueError, match="a line of more than 10 characters"):
        next(lines)
    with pytest.raises(ValueError, match="a number of 5000 digits"):
        whole_number("9" * 5000)


def test_a_folder_has_an_end_and_is_not_left_by_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "folder" / "b").mkdir(parents=True)
    (tmp_path / "folder" / "a").symlink_to(tmp_path / "outside")
    assert [path.name for path in listed(tmp_path / "folder")] == ["a", "b"]
    assert is_folder_in(tmp_path / "folder" / "b", tmp_path / "folder")
    with pytest.raises(RecordError, match="is a link that leads out"):
        is_folder_in(tmp_path / "folder" / "a", tmp_path / "folder")
    with pytest.raises(RecordError, match="cannot be read: No such file"):
        list_folder(tmp_path / "none")
    monkeypatch.setattr(ReadLimits, "ENTRIES", 1)
    with pytest.raises(RecordError, match="holds more than 1 names"):
        list_folder(tmp_path / "folder")


def test_a_folder_that_may_not_be_listed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may list all, so the system says no in its place."""
    monkeypatch.setattr(os, "scandir", Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(RecordError, match="cannot be read: Permission denied; name a directory that you may read"):
        list_folder(tmp_path)
