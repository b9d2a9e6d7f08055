"""Documents of a batch: their numbers, their mask, and their ends."""

import numpy as np
import pytest

from align_hooks.record.format.documents import ends_of, mask_of, numbered, of_lengths, of_mask, starts_of

DOCUMENTS = [[0, 0, 1, -1, 2], [0, 0, 0, 0, -1], [0, 1, 1, 1, 1]]
SPANS = [(0, 2), (2, 3), (4, 5), (5, 9), (10, 11), (11, 15)]


def test_spans_are_numbered_in_each_row() -> None:
    documents = numbered(SPANS, 3, 5)
    assert documents is not None
    assert (documents.tolist(), documents.dtype) == (DOCUMENTS, np.int32)
    assert starts_of(documents).tolist() == [[0, 0, 2, -1, 4], [0, 0, 0, 0, -1], [0, 1, 1, 1, 1]]
    assert [ends.tolist() for ends in ends_of(documents)] == [[0, 2, 3, 4, 5], [0, 4, 5], [0, 1, 5]]


@pytest.mark.parametrize("spans", [[(0, 6)], [(0, 3), (2, 5)], [(5, 7), (0, 5)], [(10, 16)]], ids=["over rows", "overlap", "order", "end"])
def test_what_are_no_documents_of_rows_is_not_known(spans: list[tuple[int, int]]) -> None:
    assert numbered(spans, 3, 5) is None


def test_a_mask_separates_documents_or_is_none_of_any() -> None:
    mask = mask_of(np.array(DOCUMENTS))
    assert mask.shape == (3, 1, 5, 5)
    for row, documents in enumerate(DOCUMENTS):
        for query in range(5):
            seen = [key for key in range(query + 1) if len(set(documents[key : query + 1])) == 1]
            assert np.flatnonzero(~mask[row, 0, query]).tolist() == seen
    assert of_mask(mask).tolist() == [[0, 0, 1, 2, 3], [0, 0, 0, 0, 1], [0, 1, 1, 1, 1]]
    other = mask.copy()
    other[0, 0, 4, 0] = False
    assert of_mask(other) is None


@pytest.mark.parametrize(
    ("lengths", "documents"),
    [
        ([[2, 3, 5, 5], [5, 5, 5, 5]], [[0, 0, 1, 2, 2], [0] * 5]),
        ([[2, 3, 5, 5], [6, 10, 10, 10]], [[0, 0, 1, 2, 2], [0, 1, 1, 1, 1]]),
        ([[2, 3], [4, 5]], None),
        ([[3, 2, 5]], None),
        ([[2, 8, 10]], None),
        ([[4, 7, 7]], None),
    ],
    ids=["of each row", "counted on", "without an end", "in disorder", "over rows", "between rows"],
)
def test_documents_of_actual_seq_len(lengths: list[list[int]], documents: list[list[int]] | None) -> None:
    made = of_lengths(np.array(lengths, np.int32), 5)
    assert documents == (None if made is None else made.tolist())
