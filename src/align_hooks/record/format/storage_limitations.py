"""What a record needs of its file system and did not get, as a manifest says it."""

from __future__ import annotations

from align_hooks.messages import Message, message

NO_LINKS, NO_SYNC, NO_LOCKS = "no_links", "no_sync", "no_locks"
"""Missing features of a file system in manifests, each with a message ``weakness.WORD``; the last is followed by an error."""


def weakness(text: str) -> Message | str:
    """Return a manifest's text as a message; an unknown text stays as it is."""
    word, _, error = text.partition(": ")
    return message(f"weakness.{word}", **({"error": error} if error else {})) if word in (NO_LINKS, NO_SYNC, NO_LOCKS) else text
