"""Messages as data: an id with named arguments, rendered last in a language. English is a catalogue like any other."""

from align_hooks.messages.catalogue import CHINESE, ENGLISH, language_of, speaking
from align_hooks.messages.message import (
    Argument,
    Joined,
    Message,
    Separator,
    Side,
    all_of,
    any_of,
    as_data,
    in_a_row,
    message,
    rendered,
    sentences,
    terms,
    with_commands,
)

__all__ = [
    "CHINESE",
    "ENGLISH",
    "Argument",
    "Joined",
    "Message",
    "Separator",
    "Side",
    "all_of",
    "any_of",
    "as_data",
    "in_a_row",
    "language_of",
    "message",
    "rendered",
    "sentences",
    "speaking",
    "terms",
    "with_commands",
]
