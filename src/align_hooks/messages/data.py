"""Messages for programs: ids and arguments, as JSON holds them."""

from __future__ import annotations

from enum import Enum
from typing import Any

from align_hooks.messages.message import Argument, Joined, Message
from align_hooks.messages.render import id_of


def as_data(value: Argument) -> Any:
    """A message as its id and arguments, parts in a row as a list, a member of an enumeration as its id; everything else as it is."""
    if isinstance(value, Message):
        return {"id": value.id, "arguments": {name: as_data(one) for name, one in value.arguments.items()}}
    if isinstance(value, Joined):
        return {"id": id_of(value.separator), "parts": [as_data(part) for part in value.parts]}
    return {"id": id_of(value)} if isinstance(value, Enum) else value
