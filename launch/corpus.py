"""A Megatron ``.bin/.idx`` data set from a real text that every Python carries: the language reference behind ``help()``.

``python launch/corpus.py PREFIX`` writes ``PREFIX.bin`` and ``PREFIX.idx``; ``--data-path PREFIX`` reads them. Ids are the UTF-8
bytes, so a vocabulary of 256 serves; 255, which no UTF-8 text contains, ends a document.
"""

from __future__ import annotations

import sys
from pathlib import Path
from pydoc_data.topics import topics

END_OF_DOCUMENT = 255


def make(prefix: Path) -> int:
    """Write ``prefix.bin`` and ``prefix.idx``, one document a topic; returns the number of tokens."""
    import numpy as np  # not above: usage should not cost what importing a framework does
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    prefix.parent.mkdir(parents=True, exist_ok=True)
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=np.uint16)
    tokens = 0
    for _, text in sorted(topics.items()):
        ids = [*text.encode(), END_OF_DOCUMENT]
        builder.add_document(torch.tensor(ids), [len(ids)])
        tokens += len(ids)
    builder.finalize(f"{prefix}.idx")
    return tokens


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python launch/corpus.py PREFIX")
    print(f"{make(Path(sys.argv[1]))} tokens")
