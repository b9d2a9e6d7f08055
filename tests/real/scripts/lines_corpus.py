"""The corpus of ``launch/corpus.py`` with every line a document, which its end belongs to."""

import sys
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

if __name__ == "__main__":
    prefix = Path(sys.argv[1])
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=np.uint16)
    for line in "\n".join(topics.values()).encode().splitlines(keepends=True):
        builder.add_document(torch.tensor(list(line)), [len(line)])
    builder.finalize(f"{prefix}.idx")
