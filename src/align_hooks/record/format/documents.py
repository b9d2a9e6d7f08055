"""The documents of a batch: for each token the number of its document in its row, from 0 on, and -1 for a token of none.

The tokens of a document are neighbours and attend to no other document. Frameworks say so by cumulative lengths, by a mask that starts
anew, or by the ends of documents. Numbers of tokens have the shape of the tokens, and are joined and cut as the tokens are.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from align_hooks.record.format.layout import Array

PADDING = -1
"""The number of a token between documents."""


def numbered(spans: Iterable[tuple[int, int]], rows: int, length: int) -> Array | None:
    """Return documents, int32 ``[rows, length]``, from spans [start, stop) of the rows behind each other.

    Returns None where spans overlap, descend, or leave their row."""
    documents = np.full((rows, length), PADDING, np.int32)
    number, row, end = -1, 0, 0
    for start, stop in spans:
        of_row = start // length
        if start < end or stop > rows * length or of_row != (stop - 1) // length:
            return None
        number, row, end = number + 1 if of_row == row else 0, of_row, stop
        documents[row, start - row * length : stop - row * length] = number
    return documents


def of_lengths(lengths: Array, length: int) -> Array | None:
    """Return documents from MindFormers' column ``actual_seq_len``, ``[rows, any]``: where each ends, counted on over rows, and filled up
    with the end of the row; None where a row does not end with its last document."""
    last = lengths[:, -1:]
    ends = lengths.astype(np.int64) - last + length
    if (last % length).any() or (last < length).any() or (np.diff(ends, axis=1) < 0).any() or (ends < 0).any():
        return None
    return np.stack([np.searchsorted(np.unique(row), np.arange(length), side="right") for row in ends]).astype(np.int32)


def starts_of(documents: Array) -> Array:
    """Return the position at which each token's document begins, ``[rows, sequence]``, and PADDING for a token of none."""
    return np.where(documents == PADDING, PADDING, _begins(documents))


def ends_of(documents: Array) -> list[Array]:
    """Return for each row 0 and the end of each document, int32; padding is a document here."""
    length = documents.shape[1]
    inner = [np.flatnonzero(np.diff(row)) + 1 for row in documents]
    return [np.array([0, *ends, length], np.int32) for ends in inner]


def mask_of(documents: Array) -> Array:
    """Return the attention mask of documents, bool ``[rows, 1, sequence, sequence]``, True where attention is forbidden."""
    begins = _begins(documents)
    return np.asarray(~np.tri(documents.shape[1], dtype=bool) | (begins[:, :, None] != begins[:, None, :]))[:, None]


def of_mask(mask: Array) -> Array | None:
    """Return the documents of an attention mask ``[rows, 1, sequence, sequence]``; None where it separates no documents."""
    forbidden = np.diagonal(mask[:, 0], offset=-1, axis1=1, axis2=2)  # a token's attention to the token before
    documents = np.cumsum(np.pad(forbidden, ((0, 0), (1, 0))), axis=1, dtype=np.int32)
    return documents if np.array_equal(mask_of(documents), mask) else None


def _begins(documents: Array) -> Array:
    """Return where the run of equal numbers around each token begins."""
    changes = np.diff(documents, axis=1, prepend=documents[:, :1] - 1) != 0
    return np.asarray(np.maximum.accumulate(np.where(changes, np.arange(documents.shape[1]), 0), axis=1))
