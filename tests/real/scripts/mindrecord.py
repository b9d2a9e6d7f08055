"""Write the batches of a record as a MindRecord of rows of sequence+1 ids: ``mindrecord.py RUN FILE``."""

import sys

import numpy as np
from mindspore.mindrecord import FileWriter

from align_hooks import open_run

run, writer = open_run(sys.argv[1]), FileWriter(sys.argv[2], shard_num=1, overwrite=True)
writer.add_schema({"input_ids": {"type": "int32", "shape": [-1]}}, "rows")
batches = [run.batch(step) for step in run.batch_steps()]
rows = [np.append(tokens, labels[-1]) for batch in batches for tokens, labels in zip(batch.tokens, batch.labels, strict=True)]
writer.write_raw_data([{"input_ids": row.astype(np.int32)} for row in rows])
writer.commit()
