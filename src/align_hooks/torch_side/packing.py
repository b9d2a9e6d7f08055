"""Packed samples: rows of a micro-batch behind each other in one, and ``PackedSeqParams``, by which attention keeps documents apart.

A record has rows as the data set has them, ``[rows, sequence]``, and the number of each token's document in its row, so that batches with
and without packing are compared, joined and cut alike.
"""

import sys
from collections.abc import Mapping

import numpy as np
import torch
from megatron.core.packed_seq_params import PackedSeqParams

from align_hooks.names.blocks import Array
from align_hooks.record.format.documents import numbered
from align_hooks.record.format.sequence import positions_of
from align_hooks.torch_side.arrays import to_numpy
from align_hooks.torch_side.objects import Tensor
from align_hooks.torch_side.place import rank_slices
from align_hooks.torch_side.run_arguments import get_args

ARGUMENT = "packed_seq_params"
"""The argument of the model, and of each layer."""
MINDSPEED = ("mindspeed.core.context_parallel.get_batch_utils", "mindspeed.utils")
"""Modules that keep the ends of documents for MindSpeed's attention, in 2.3 and before (``get_actual_seq_len``); untried."""


def is_packed(params: Tensor) -> bool:
    """Return whether a forward pass has packed samples, from its ``PackedSeqParams`` or None."""
    return getattr(params, "qkv_format", None) == "thd"


def rows_of(place: Mapping[str, int], tokens: int) -> int:
    """Return the rows of which packed samples with so many tokens are made; 1 where they are not those of the run."""
    args = get_args()
    rows = int(args.micro_batch_size)
    return rows if tokens * place["cp_size"] == rows * args.seq_length else 1


def unfolded(place: Mapping[str, int], value: Tensor) -> Tensor:
    """Return ``[1, tokens]`` of packed samples as ``[rows, sequence]``, and anything else unchanged."""
    is_folded = isinstance(value, torch.Tensor) and value.dim() == 2 and len(value) == 1
    return value.reshape(rows_of(place, value.shape[1]), -1) if is_folded else value


def documents(place: Mapping[str, int], params: Tensor) -> Array | None:
    """Return the number of each token's document, int32 ``[rows, sequence]`` of this rank; None where ``PackedSeqParams`` do not tell."""
    args, spans = get_args(), spans_of(params)
    rows, length = int(args.micro_batch_size), int(args.seq_length)
    # MindSpeed cuts its lengths by context-parallel ranks in ways of its own
    if spans is None or not (is_packed(params) or (spans[-1][1] == rows * length and place["cp_size"] == 1)):
        return None
    documents = numbered(spans, rows, length)
    if documents is None or place["cp_size"] == 1:
        return documents
    return documents[:, positions_of(rank_slices(place, length))]


def spans_of(params: Tensor) -> list[tuple[int, int]] | None:
    """Return the tokens [start, stop) of each document; None where queries and keys have others, or ranks share one document."""
    lengths, places = (cumulative(params, suffix) for suffix in ("", "_padded"))
    if lengths is None or places is None or len(lengths) != len(places) or getattr(params, "local_cp_size", None) is not None:
        return None
    sizes = zip(places[:-1].tolist(), np.diff(lengths).tolist(), strict=True)
    return [(start, start + size) for start, size in sizes if size] or None  # empty documents fill cu_seqlens up


def cumulative(params: Tensor, suffix: str) -> Array | None:
    """Return cumulative lengths of documents, with a suffix those with the padding behind each; None where queries and keys differ."""
    here = []
    for of in ("cu_seqlens_q", "cu_seqlens_kv"):
        padded = getattr(params, of + suffix, None)
        here.append(getattr(params, of, None) if padded is None else padded)
    if not all(isinstance(lengths, torch.Tensor) for lengths in here):
        return None
    queries, keys = (to_numpy(lengths).reshape(-1) for lengths in here)
    if not queries.size or not np.array_equal(queries, keys):
        return None
    return queries if queries[0] == 0 else np.concatenate([[0], queries])  # MindSpeed leaves the 0 out


def packed_by_mindspeed() -> PackedSeqParams | None:
    """Return the documents that MindSpeed hands to its attention past the model's arguments; None without."""
    if not getattr(get_args(), "reset_attention_mask", False):
        return None
    modules = (sys.modules.get(name) for name in MINDSPEED)
    kept = (module.get_actual_seq_len() for module in modules if module is not None and hasattr(module, "get_actual_seq_len"))
    ends = next((ends for ends in kept if ends is not None), None)
    return None if ends is None else PackedSeqParams(cu_seqlens_q=ends, cu_seqlens_kv=ends)
