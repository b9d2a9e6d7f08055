"""A record in one zip file is read from memory, and what is no such file is refused before memory is taken for it."""

import os
import pickle
import struct
import zipfile
from pathlib import Path

import pytest

from align_hooks.process import archive
from align_hooks.process.archive import is_archive, packed, read_archive
from align_hooks.process.storage import opened, reading, size_of

FILES = {"run.json": b"{}", "manifest/rank_0.json": b"[1]", "step_0/rank_0/tokens.npy": bytes(100)}


def zipped(path: Path, *members: tuple[str, bytes], kind: int = zipfile.ZIP_DEFLATED, mode: int = 0o100644) -> Path:
    """A zip file of members as anybody may make one, names twice too."""
    with zipfile.ZipFile(path, "w", kind) as file:
        for name, content in members:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            file.writestr(entry, content, kind)
    return path


def known(name: str) -> bool:
    return name in FILES


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.zip"
    path.write_bytes(packed(FILES))
    return path


def test_it_is_a_place_with_the_methods_of_a_path(file: Path) -> None:
    root = read_archive(file, known)
    assert (str(root), root.name, root.is_dir(), root.is_file()) == (str(file), "run.zip", True, False)
    manifest = root / "manifest" / "rank_0.json"
    assert str(manifest) == f"{file}/manifest/rank_0.json"
    assert (manifest.name, manifest.stem, manifest.suffix) == ("rank_0.json", "rank_0", ".json")
    assert (manifest.exists(), manifest.is_file(), manifest.is_dir(), manifest.is_symlink()) == (True, True, False, False)
    assert manifest.parent == root / "manifest"
    assert str(manifest.relative_to(root)) == "manifest/rank_0.json"
    assert sorted(place.name for place in root.iterdir()) == ["manifest", "run.json", "step_0"]
    assert [place.name for place in root.glob("step_*")] == ["step_0"]
    assert not (root / "step_1").exists()
    assert root.resolve() == root == read_archive(file, known)


def test_a_file_is_read_as_from_object_storage(file: Path) -> None:
    place = read_archive(file, known) / "step_0/rank_0/tokens.npy"
    assert size_of(place) == 100
    with opened(place) as stored:
        assert (stored.size, len(stored.read(90, 20)), [len(block) for block in stored.blocks(0, 100, 64)]) == (100, 10, [64, 36])
    with reading(place) as lines:
        assert lines.read() == bytes(100)
    with pytest.raises(OSError, match="holds no step_0"), opened(place / "run"):
        pass


def test_another_process_may_read_it(file: Path) -> None:
    place = read_archive(file, known) / "run.json"
    with opened(pickle.loads(pickle.dumps(place))) as stored:
        assert stored.read(0, 10) == b"{}"


def test_equal_content_is_equal_bytes() -> None:
    assert packed(FILES) == packed(dict(reversed(FILES.items())))


def test_only_a_regular_file_that_begins_like_one_is_an_archive(file: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("PK")
    os.mkfifo(tmp_path / "fifo")
    others = (tmp_path / "text", tmp_path / "fifo", tmp_path, tmp_path / "absent")
    assert is_archive(file) and not any(map(is_archive, others))


HOSTILE: dict[str, tuple[list[str], int, str]] = {
    # names in it, mode, and what is said
    "a way out": (["../run.json"], 0o100644, "is no file of a record"),
    "a way from the root": (["/run.json"], 0o100644, "is no file of a record"),
    "a long name": (["n" * 5000], 0o100644, "is no file of a record"),
    "a folder": (["manifest/"], 0o100644, "is no file of a record"),
    "a name twice": (["run.json", "run.json"], 0o100644, "holds run.json twice"),
    "a link": (["run.json"], 0o120777, "no regular file"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("what", HOSTILE)
def test_a_member_that_it_may_not_hold_is_refused(what: str, tmp_path: Path) -> None:
    names, mode, why = HOSTILE[what]
    with pytest.raises(ValueError, match=why) as refused:
        read_archive(zipped(tmp_path / "run.zip", *((name, b"/etc%d" % at) for at, name in enumerate(names)), mode=mode), known)
    assert len(str(refused.value)) < 300


def test_what_unpacks_to_too_much_is_refused_by_what_it_says_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = zipped(tmp_path / "run.zip", ("run.json", bytes(1 << 20)))
    assert bomb.stat().st_size < 1 << 11
    monkeypatch.setattr(archive, "LARGEST", 1 << 19)
    with pytest.raises(ValueError, match="unpacks to more than"):
        read_archive(bomb, known)


@pytest.mark.parametrize("promised", [1 << 10, 1 << 21])
def test_what_says_a_wrong_size_of_itself_is_refused_within_that_size(tmp_path: Path, promised: int) -> None:
    """The size stands in the directory, at the file's end, where a stranger may write any."""
    path = zipped(tmp_path / "run.zip", ("run.json", bytes(1 << 20)))
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = struct.pack("<L", promised)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"not a whole zip file|cut short"):
        read_archive(path, known)


@pytest.mark.parametrize(("limit", "why"), [("LARGEST", "has more than"), ("LONGEST_DIRECTORY", "no distilled run")])
def test_a_file_or_a_directory_that_is_too_large_is_not_read(file: Path, limit: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, limit, 100)
    with pytest.raises(ValueError, match=why):
        read_archive(file, known)


@pytest.mark.parametrize("left", [slice(-1), slice(-30), slice(-200), slice(0)], ids=lambda left: f"up to {left.stop}")
def test_a_file_that_is_cut_or_empty_is_refused(file: Path, left: slice) -> None:
    file.write_bytes(file.read_bytes()[left])
    with pytest.raises(ValueError, match="not a whole zip file"):
        read_archive(file, known)


def test_every_changed_byte_of_a_file_is_noticed_or_changes_nothing(file: Path) -> None:
    """A byte of a time, say, says nothing of the content."""
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            root = read_archive(file, known)
        except ValueError:
            continue
        assert root.fs.files == FILES  # type: ignore[attr-defined]


def test_an_encrypted_file_is_refused(file: Path) -> None:
    content = bytearray(file.read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + at] |= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match="encrypted"):
        read_archive(file, known)


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        read_archive(tmp_path / "absent", known)
