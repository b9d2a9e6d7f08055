"""What a record needs of its file system and does not get: the words by which manifests name it."""

from __future__ import annotations

from align_hooks.messages import Message, message

NO_LINKS, NO_SYNC, NO_LOCKS = "no_links", "no_sync", "no_locks"
"""Each with its message, ``weakness.WORD``; behind the last stands ``": "`` and the error of the file system."""


def weakness(text: str) -> Message | str:
    """Return what a manifest says as a message; what no version of ours wrote stays as it is."""
    word, _, error = text.partition(": ")
    return message(f"weakness.{word}", **({"error": error} if error else {})) if word in (NO_LINKS, NO_SYNC, NO_LOCKS) else text
