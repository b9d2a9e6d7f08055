"""Documents of MindFormers' packed samples: read from the column where the model reads it, and named where they cannot be."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("mindspore")

from align_hooks.ms_side.batch import DOCUMENTS, LENGTHS, packed_documents, unseen

ROWS = [[2, 4, 4], [4, 4, 4]]
OPEN = [[2, 3, 3], [4, 4, 4]]


@pytest.mark.parametrize(
    ("reads", "lengths", "documents"),
    [(True, ROWS, [[0, 0, 1, 1], [0] * 4]), (True, OPEN, None), (False, ROWS, None)],
    ids=["read", "without an end", "not read"],
)
def test_documents_are_recorded_or_named(reads: bool, lengths: list[list[int]], documents: list[list[int]] | None) -> None:
    model = SimpleNamespace(is_newer=True, config=SimpleNamespace(use_eod_attn_mask_compression=reads))
    arrays = {"input_ids": np.ones((2, 4), np.int32), LENGTHS: np.array(lengths, np.int32)}
    made = packed_documents(arrays, model)  # type: ignore[arg-type]
    assert {name: array.tolist() for name, array in made.items()} == ({} if documents is None else {DOCUMENTS: documents})
    assert unseen(made, {LENGTHS}) == ([] if made else ["documents"])
    assert unseen({}, set()) == []
