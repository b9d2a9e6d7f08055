"""Records that a test changes after they were written: with digests made anew, or as they were before there were any.

Rows of norms and of sketches have their digests in the rows of scalars, tensors and batches theirs there too: whatever is to be wrong in
these without differing from its digest is bent in a record of format 1, made by :func:`older`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from safetensors.numpy import load_file, save_file

from align_hooks.record import atomic, digests
from align_hooks.record.files import EMPTY

Content = dict[str, object]


def edit(path: Path, **changes: object) -> None:
    """Change members of a JSON file; one that holds its own digest gets the right one."""
    bend(path, lambda content: content.update(changes))


def bend(path: Path, change: Callable[[Content], object]) -> None:
    """The same, by a function that changes the content in its place."""
    path.write_bytes(_changed(path.read_bytes(), change, indent=1))


def edit_rows(path: Path, **changes: object) -> None:
    """Change members of every row of a file; a row that holds its own digest gets the right one."""
    bend_rows(path, lambda row: row.update(changes))


def bend_rows(path: Path, change: Callable[[Content], object]) -> None:
    """The same, by a function that changes a row in its place."""
    path.write_bytes(b"".join(_changed(line, change, indent=None) + b"\n" for line in path.read_bytes().splitlines()))


def _changed(text: bytes, change: Callable[[Content], object], indent: int | None) -> bytes:
    sealed = digests.is_sealed(text)
    content = digests.opened(text) if sealed else json.loads(text)
    change(content)
    new = atomic.encoded(atomic.json_text(content, indent=indent))
    return digests.seal(new) if sealed else new


def older(run: Path) -> Path:
    """A record as format 1 has it, in its place: no digest in rows, manifests and tensors, and nothing that lists what is there."""
    for path in (run / "run.json", *run.glob("manifest/rank_*.json")):
        if path.exists():
            content = digests.opened(path.read_bytes())
            for key in ("segment", "segments", "first_step", "files", "weaker"):
                content.pop(key, None)
            if "manifest" in path.parts:
                content.pop("run_id", None)
            path.write_text(json.dumps(content | {"format": 1}))
    for path in run.glob("manifest/rank_*.claim"):
        path.unlink()
    for path in (*run.glob("*/rank_*.jsonl"), *run.glob("sketches/*/rank_*.jsonl")):
        path.write_text("".join(_older_row(line) for line in path.read_bytes().splitlines()))
    for path in run.glob("step_*/rank_*/optimizer_state/state.json"):
        bend(path, lambda state: state.pop("segment", None))
    for path in run.glob("step_*/rank_*/batch.json"):
        content = json.loads(path.read_bytes())
        content.pop("segment", None)
        content["arrays"] = {
            name: {key: description[key] for key in ("dtype", "shape", "sha256")} for name, description in content["arrays"].items()
        }
        path.write_text(json.dumps(content))
    for path in run.rglob("*.safetensors"):
        if path.read_bytes() != EMPTY:
            save_file(load_file(path), path, metadata={"format": "pt"})
    return run


def _older_row(line: bytes) -> str:
    row = digests.opened(line) if digests.is_sealed(line) else json.loads(line)
    for key in ("segment", "files"):
        row.pop(key, None)
    return json.dumps(row) + "\n"
