"""How well ``check`` reads real pairs that it was not built on: ``python tests/checklist/unseen_pairs.py REPOSITORIES [--seen]``.

``unseen/`` holds a file a pair: where its script and its YAML are published, and what an engineer read of both before the check was run on
them. REPOSITORIES is a directory with a clone of each, ``owner+name`` or ``owner+name/repo``; MindFormers 1.9 itself is the installed one.
``seen/`` holds pairs that are no referee any more: whoever builds the check may look at what was missed and what was raised falsely there,
which ``--seen`` names.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.row import Effect
from align_hooks.checklist.sides import check
from align_hooks.checklist.tables import ROWS

sys.path.insert(0, str(Path(__file__).parents[1]))

import yaml

from align_hooks.errors import AlignHooksError
from checklist.wheels import installed

PAIRS, SEEN = Path(__file__).parent / "unseen", Path(__file__).parent / "seen"
ROW = {row.id: row for row in ROWS}


@dataclass(frozen=True)
class Score:
    """Rows of a pair: rightly said to differ, missed, and falsely said to differ; ``error`` where it could not be checked at all."""

    name: str
    right: frozenset[str] = frozenset()
    missed: frozenset[str] = frozenset()
    false: frozenset[str] = frozenset()
    error: str = ""


def file_of(published: Mapping[str, Any], repositories: Path, where: Path) -> Path:
    """A published file with what lies around it, in ``where``."""
    if "package" in published:
        return installed(published["path"])
    folder = repositories / published["repository"].replace("/", "+")
    folder = folder / "repo" if (folder / "repo").is_dir() else folder
    path = Path(published["path"])
    around = path.parts[0] if len(path.parts) > 1 else "."
    archive = ["git", f"--git-dir={folder}", "archive", published["commit"], "--"]
    where.mkdir()
    try:
        content = subprocess.run([*archive, around], check=True, capture_output=True).stdout
    except subprocess.CalledProcessError:  # of a clone that has not all files
        content = subprocess.run([*archive, published["path"]], check=True, capture_output=True).stdout
    subprocess.run(["tar", "--extract", "--directory", str(where)], input=content, check=True)
    return where / path


def score(file: Path, repositories: Path) -> Score:
    """One pair: what is told of it against what was read."""
    truth = yaml.safe_load(file.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as where:
        script = file_of(truth["script"], repositories, Path(where) / "script")
        other = file_of(truth["yaml"], repositories, Path(where) / "yaml")
        variables = dict(word.split("=", 1) for word in truth["script"].get("variables", "").split())
        given = truth["script"].get("arguments")
        side = f"bash {script} {given}" if given else str(script)
        try:
            checklist = check(side, str(other), variables, mindformers=str(truth["mindformers"]))
        except AlignHooksError as error:
            return Score(file.stem, missed=rows(truth["differs"]), error=str(error))
    told = frozenset(checked.row.id for checked in checklist.of(RowOutcome.DIFFERENT))
    differs = rows(truth["differs"])
    entries = [entry for part in truth.values() if isinstance(part, list) for entry in part if isinstance(entry, dict)]
    doubtful = frozenset(entry["row"] for entry in entries if "doubt" in entry and "row" in entry)
    return Score(file.stem, told & differs, differs - told - doubtful, told - differs - doubtful)


def rows(entries: list[Mapping[str, Any]]) -> frozenset[str]:
    """Ids of rows that change the result."""
    return frozenset(entry["row"] for entry in entries if entry["row"] and ROW[entry["row"]].effect is Effect.RESULT)


def main() -> None:
    """Print a line a pair, and how precise and how complete all are together."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repositories", type=Path)
    parser.add_argument("--seen", action="store_true")
    options = parser.parse_args()
    scores = [score(file, options.repositories) for file in sorted((SEEN if options.seen else PAIRS).glob("*.yaml"))]
    for pair in scores:
        counts = f"right {len(pair.right):3}  missed {len(pair.missed):3}  false {len(pair.false):3}"
        print(f"{pair.name:28} {counts}  {pair.error[:80]}".rstrip())
        if options.seen:
            print(f"    missed {sorted(pair.missed)}\n    false  {sorted(pair.false)}")
    right, missed, false = (sum(len(getattr(pair, name)) for pair in scores) for name in ("right", "missed", "false"))
    print(f"recall {right} of {right + missed}, {right / (right + missed):.1%}")
    print(f"precision {right} of {right + false}, {right / (right + false):.1%}")


if __name__ == "__main__":
    main()
