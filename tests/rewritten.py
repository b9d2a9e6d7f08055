"""Records that a test changes after they were written, with digests made anew.

Rows of norms and of sketches have their digests in the rows of scalars, tensors and batches theirs there too: :func:`relisted` makes
these anew, so that a file is refused for what it holds and not because its digest differs.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from align_hooks.record.format import digests, layout
from align_hooks.record.write import atomic

Content = dict[str, Any]


def edit(path: Path, **changes: object) -> None:
    """Change members of a JSON file; one that holds its own digest gets the right one."""
    bend(path, lambda content: content.update(changes))


def bend(path: Path, change: Callable[[Content], object]) -> None:
    """The same, by a function that changes the content in its place."""
    _write(path, _changed(path.read_bytes(), change, indent=1))


def edit_rows(path: Path, **changes: object) -> None:
    """Change members of every row of a file; a row that holds its own digest gets the right one."""
    bend_rows(path, lambda row: row.update(changes))


def bend_rows(path: Path, change: Callable[[Content], object]) -> None:
    """The same, by a function that changes a row in its place."""
    _write(path, b"".join(_changed(line, change, indent=None) + b"\n" for line in path.read_bytes().splitlines()))


def _write(path: Path, content: bytes) -> None:
    path.unlink()  # it may have another name elsewhere
    path.write_bytes(content)


def flip(path: Path) -> None:
    """Change one bit of the last byte of a file."""
    *kept, last = path.read_bytes()
    path.write_bytes(bytes([*kept, last ^ 1]))


def cut(path: Path, size: int) -> None:
    """Cut bytes off the end of a file."""
    path.write_bytes(path.read_bytes()[:-size])


def cut_last_line(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def sealed(text: str) -> bytes:
    """A JSON object with its digest."""
    return digests.seal(text.encode())


def is_sealed(text: bytes) -> bool:
    """Whether a text holds its own digest."""
    try:
        digests.opened(text)
    except ValueError:
        return False
    return True


def _changed(text: bytes, change: Callable[[Content], object], indent: int | None) -> bytes:
    has_digest = is_sealed(text)
    content = digests.opened(text) if has_digest else json.loads(text)
    change(content)
    new = atomic.encoded(atomic.json_text(content, indent=indent))
    return digests.seal(new) if has_digest else new


def relisted(run: Path) -> Path:
    """A record whose rows of scalars list the files and lines that are there now."""
    for rank in layout.ranks(run):
        for path in run.glob(f"step_*/rank_{rank}/batch.json"):
            bend(path, partial(_with_arrays, path.parent))
        for path in (layout.manifest(run, rank), layout.scalars(run, rank)):
            (bend if path.suffix == ".json" else bend_rows)(path, partial(_list, run, rank))
    return run


def _with_arrays(folder: Path, batch: Content) -> None:
    for name, stored in batch["arrays"].items():
        stored["file"] = digests.xxh3((folder / f"{name}.npy").read_bytes())


def _list(run: Path, rank: int, row: Content) -> None:
    """List what is there in the place of what was there; of what is gone, or was never a row, the entry stays."""
    for key in row.get("files", {}):
        step, _, name = key.partition("/")
        if name in layout.LINES:
            lines = layout.rows(run, name, rank).read_bytes().splitlines()
            found = [line for line in lines if line.startswith(f'{{"step": {step},'.encode())]
        else:
            path = layout.step(run, int(step), rank) / name
            found = [_digested(path.read_bytes(), name)] if path.exists() else []
        if found:
            row["files"][key] = digests.xxh3(found[-1])


def _digested(content: bytes, name: str) -> bytes:
    """What of a file its digest is of: of tensors the header, which holds theirs."""
    return content[: 8 + int.from_bytes(content[:8], "little")] if name.endswith(".safetensors") else content
