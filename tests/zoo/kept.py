"""Results that are kept beside the cases: one file a kind, a row a case, in the order of the cases."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


def keep(path: Path, rows: Mapping[str, Row], order: Iterable[str]) -> None:
    """Write rows, by the name of their case, in the place of earlier ones. Rows of other cases stay, but of cases that are no more."""
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    known = {name_of(row): row for row in earlier} | dict(rows)
    path.parent.mkdir(exist_ok=True)
    lines = json.dumps([known[name] for name in order if name in known], indent=1, ensure_ascii=False)
    path.write_text(lines + "\n", encoding="utf-8")


def name_of(row: Row) -> str:
    """The case of a row: grades are kept by way of judging, and each says it."""
    return str(row["name"] if "name" in row else row["measured"]["name"])
