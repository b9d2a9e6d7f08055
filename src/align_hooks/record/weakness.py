"""What a record needs of its file system and does not get, in the words in which manifests keep it."""

from __future__ import annotations

from enum import Enum

from align_hooks.messages import Message, message


class Weakness(Enum):
    """Something that a file system lacks; the value is the sentence in manifests."""

    NO_LINKS = "it has no hard links: a rank that is killed while it claims the directory may leave a manifest that is not whole"
    NO_SYNC = "it does not sync files or directories: a machine that loses power may lose steps that were whole"
    NO_LOCKS = (
        "it has no locks ({error}): of two jobs on one directory the first is not refused on another machine; "
        "it stops recording once it sees the second"
    )


def weakness(text: str) -> Message | str:
    """A manifest's sentence as a message; a sentence that no version of ours wrote stays as it is."""
    if text == Weakness.NO_LINKS.value:
        return message("weakness.no_links")
    if text == Weakness.NO_SYNC.value:
        return message("weakness.no_sync")
    before, after = Weakness.NO_LOCKS.value.split("{error}")
    if text.startswith(before) and text.endswith(after):
        return message("weakness.no_locks", error=text[len(before) : -len(after)])
    return text
