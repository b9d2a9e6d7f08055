"""What align_hooks says, as data: a message is an id with named arguments, and words are made of it last.

Nothing reads a sentence back. A report in two languages, a program that reads the JSON and a test have the same message: its id and its
arguments. English is a catalogue like any other, so rewording a message changes a line of ``en/`` and nothing else.
"""

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
