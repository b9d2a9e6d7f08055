"""The commit of what was imported is read from the repository's own files, and nobody else's repository is taken for it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from align_hooks.hooking.commits import checked_out, commits, folder_of, head, installed_from
from align_hooks.process import processor

ONE, OTHER = "1" * 40, "2" * 40


def indexed(*names: str) -> str:
    """An index of version 2, as far as names go: behind each entry's flags, which end in the length of its name."""
    return "DIRC" + "".join(f"{chr(0)}{chr(len(name))}{name}{chr(0)}" for name in names)


def repository(where: Path, **files: str) -> Path:
    """A repository's folder with these files; a dot in the name of a file is a slash of its path."""
    for name, content in files.items():
        file = where / ".git" / name.replace(".", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content + "\n")
    return where


@pytest.mark.parametrize(
    ("files", "commit"),
    [
        ({"HEAD": ONE}, ONE),
        ({"HEAD": "ref: refs/heads/main", "refs.heads.main": ONE}, ONE),
        (
            {"HEAD": "ref: refs/heads/main", "packed-refs": f"# pack-refs with: peeled\n{OTHER} refs/heads/mainly\n{ONE} refs/heads/main"},
            ONE,
        ),
        ({"HEAD": "ref: refs/heads/main", "refs.heads.main": ONE, "packed-refs": f"{OTHER} refs/heads/main"}, ONE),
        ({"HEAD": "ref: refs/heads/main"}, None),
        ({"HEAD": "none"}, None),
        ({"HEAD": ""}, None),
    ],
)
def test_what_is_checked_out(files: dict[str, str], commit: str | None, tmp_path: Path) -> None:
    assert head(repository(tmp_path, **files) / ".git") == commit


def test_a_worktree_has_its_own_head_and_the_refs_of_its_repository(tmp_path: Path) -> None:
    repository(tmp_path / "main", **{"HEAD": "ref: refs/heads/main", "refs.heads.main": ONE, "refs.heads.other": OTHER})
    repository(tmp_path / "main", **{"worktrees.w.HEAD": "ref: refs/heads/other", "worktrees.w.commondir": "../.."})
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / ".git").write_text("gitdir: ../main/.git/worktrees/w\n")
    assert head(folder_of(tmp_path / "w" / ".git")) == OTHER


@pytest.mark.parametrize(("package", "parts"), [("megatron/core", 2), ("mindspeed", 1), ("src/hyper_parallel", 1)])
def test_a_package_of_a_checkout(package: str, parts: int, tmp_path: Path) -> None:
    file = tmp_path / "checkout" / package / "__init__.py"
    repository(tmp_path / "checkout", HEAD=ONE, index=indexed(f"{package}/__init__.py"))
    assert checked_out(file, parts) == ONE
    # a repository that does not have the file is another's: a home directory, or the one around an environment
    repository(tmp_path / "checkout", index=indexed("README.md", f"vendor/{package}/__init__.py"))
    assert checked_out(file, parts) is None
    repository(tmp_path, HEAD=OTHER, index=indexed("lib/site-packages/megatron/core/__init__.py"))
    assert checked_out(tmp_path / "lib" / "site-packages" / "megatron" / "core" / "__init__.py", 2) is None


def test_a_broken_repository_is_no_other_one(tmp_path: Path) -> None:
    repository(tmp_path, HEAD=OTHER, index=indexed("src/mindspeed/__init__.py"))
    (tmp_path / "src" / "mindspeed").mkdir(parents=True)
    (tmp_path / "src" / ".git").write_text("gitdir: nowhere")
    assert checked_out(tmp_path / "src" / "mindspeed" / "__init__.py", 1) is None
    assert checked_out(Path("/x.py"), 1) is None


def test_a_copy_in_front_of_an_installation_is_not_of_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = tmp_path / "site-packages" / "some_package-1.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: some-package\nVersion: 1\n")
    (facts / "direct_url.json").write_text(json.dumps({"url": "https://forge", "vcs_info": {"vcs": "git", "commit_id": ONE}}))
    monkeypatch.syspath_prepend(str(facts.parent))
    assert installed_from("some_package", facts.parent / "some_package" / "__init__.py") == ONE
    assert installed_from("some_package", tmp_path / "copy" / "some_package" / "__init__.py") is None


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_git_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> str:
        who = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    (tmp_path / "committed_package").mkdir()
    (tmp_path / "committed_package" / "__init__.py").touch()
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("committed_package")
    assert commits(["committed_package", "no_such_package"]) == {"committed_package": git("rev-parse", "HEAD")}
    git("pack-refs", "--all")
    assert commits(["committed_package"]) == {"committed_package": git("rev-parse", "HEAD")}
    (tmp_path / "no_such_package.py").touch()
    monkeypatch.setitem(sys.modules, "no_file", object())
    assert commits(["no_file"]) == {}
    monkeypatch.delitem(sys.modules, "committed_package")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor\t: 0\nmodel name\t: Kunpeng-920\n\nprocessor\t: 1\nmodel name\t: Kunpeng-920\n", "Kunpeng-920"),
        ("processor\t: 0\nCPU implementer\t: 0x48\n", "other"),
        ("", "other"),
    ],
)
def test_the_processor_by_name(text: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.machine", lambda: "other")
    assert processor.processor() == name
