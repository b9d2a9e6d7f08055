"""The conversion of a record's JSON to its types; a wrong value is a RecordError that names its file and key."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from functools import cache
from typing import TypeVar

from msgspec import MsgspecError, Struct, convert
from msgspec.structs import fields

from align_hooks.errors import RecordError
from align_hooks.record.format.files import QUOTED, TensorFile
from align_hooks.record.format.schema import Json

Structure = TypeVar("Structure", bound=Struct)


def structured(kind: type[Structure], content: Mapping[str, Json], where: object, *, numbers: Container[str] = ()) -> Structure:
    """Convert the content of a file or a row to a structure; NaN and infinities are allowed below the keys ``numbers``.

    Raises RecordError for a wrong value; the error names ``where``, the file or the row, and the key.
    """
    try:
        known = {key: number(value) if key in numbers else value for key, value in content.items()}
        return convert({key: value for key, value in known.items() if value is not None or key in _required(kind)}, kind)
    # a name that is no text is a ValueError, a long integer an OverflowError
    except (MsgspecError, ValueError, RecursionError, OverflowError) as error:
        why, _, at = str(error).replace("`", "").partition(" - at $")
        named = f"{at.lstrip('.')}: {why}" if at.lstrip(".") else why
        raise RecordError(f"{where}: {named[:QUOTED]}; copy it again, or record the run again") from None


def in_header(kind: type[Structure], file: TensorFile, of: str, way: str) -> Structure:
    """Return a structure from a file's header; the RecordError names its subject ``of`` and a ``way`` out."""
    try:
        said = {key: json.loads(file.metadata[key]) for key in kind.__struct_fields__ if key in file.metadata}
    except (ValueError, RecursionError, TypeError) as error:
        raise RecordError(f"{file.path}: what its header says of {of} cannot be read ({str(error)[:80]}); {way}") from None
    return structured(kind, said, file.path)


def number(value: Json) -> Json:
    """Replace strict JSON's strings for NaN and infinities by numbers, except in names of parameters."""
    if isinstance(value, list):
        return [number(item) for item in value]
    if isinstance(value, dict):
        return {key: item if key == "parameters" else number(item) for key, item in value.items()}
    return float(value) if isinstance(value, str) and value in ("nan", "inf", "-inf") else value


@cache
def _required(kind: type[Struct]) -> frozenset[str]:
    return frozenset(field.encode_name for field in fields(kind) if field.required)
