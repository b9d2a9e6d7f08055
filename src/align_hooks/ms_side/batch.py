"""The batch that a MindFormers model consumed, in the record's terms, from the columns of its data set."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.arrays import to_numpy
from align_hooks.ms_side.columns import CUT, RESET, UNCUT, takes_cut
from align_hooks.ms_side.model import Model, model_of
from align_hooks.ms_side.objects import Cell, Tensor
from align_hooks.names.blocks import Array
from align_hooks.record.format.documents import of_lengths
from align_hooks.record.format.missing_batch import MissingBatchReason

LENGTHS, DOCUMENTS = "actual_seq_len", "documents"
"""The column of documents' lengths, and the array of a record."""


def consumed(elements: Sequence[Tensor], columns: Sequence[str], cell: Cell) -> dict[str, Array]:
    """Return ``tokens`` and ``labels`` int64 and ``loss_mask`` fp32, ``[rows, sequence]``, and of a data set with these columns
    ``position_ids`` int64, ``attention_mask`` bool ``[rows, 1, sequence, sequence]``, True where attention is forbidden, and ``documents``.

    ``LlamaForCausalLM`` cuts tokens and labels out of sequence+1 ids unless ``input_sliced_sig`` is set; without a mask column its pad and
    ignore ids make the mask (``construct``, 1.5 to 1.9). In 1.3 it always cuts and accepts no mask. A newer model never cuts, and drops
    labels with the ignored id whatever the mask (``PreprocessLabelsAndMasks``)."""
    model = model_of(cell)
    arrays = {name: to_numpy(element) for name, element in zip(columns, elements, strict=True)}
    if "input_ids" not in arrays:
        kind = type(model.network).__name__
        raise RefusedRun(f"the data set has no column input_ids but {', '.join(columns)}; name its columns as {kind} does")
    read = _of_newer if model.is_newer else _of_older
    batch = {name: array.astype(np.float32 if name == "loss_mask" else np.int64) for name, array in read(arrays, model).items()}
    return batch | _positions(arrays, model) | packed_documents(arrays, model)


def _of_newer(arrays: Mapping[str, Array], model: Model) -> dict[str, Array]:
    tokens, config = arrays["input_ids"], model.config
    labels = arrays.get("labels")
    if labels is None:
        raise RefusedRun("the data set has no column labels, from which a newer model takes its loss; name its columns as MindFormers does")
    mask = arrays.get("loss_mask", tokens != config.pad_token_id)
    return {"tokens": tokens, "labels": labels, "loss_mask": mask * (labels != config.ignore_token_id)}


def _of_older(arrays: Mapping[str, Array], model: Model) -> dict[str, Array]:
    config, cut = model.config, takes_cut(type(model.network))
    ids, labels, mask = arrays["input_ids"], arrays.get("labels"), arrays.get("loss_mask") if cut else None
    sliced = cut and bool(getattr(config, "input_sliced_sig", False)) and labels is not None
    tokens = ids if sliced else ids[:, :-1]
    if labels is None:
        labels = ids[:, 1:]
    elif not sliced:
        labels = labels[:, 1:]
    if mask is None:
        mask = tokens != config.pad_token_id
        if "labels" in arrays:
            mask = mask & (labels != config.ignore_token_id)
    elif not sliced:
        mask = mask[:, :-1]
    return {"tokens": tokens, "labels": labels, "loss_mask": mask}


def _positions(arrays: Mapping[str, Array], model: Model) -> dict[str, Array]:
    """Return position ids and attention mask of a newer model, which reads position ids only with ``use_eod_reset``."""
    batch: dict[str, Array] = {}
    if model.is_newer and model.config.use_eod_reset and "position_ids" in arrays:
        batch["position_ids"] = arrays["position_ids"].astype(np.int64)
    if model.is_newer and arrays.get("attention_mask", np.zeros(())).ndim == 4:
        batch["attention_mask"] = arrays["attention_mask"] != 0
    return batch


def packed_documents(arrays: Mapping[str, Array], model: Model) -> dict[str, Array]:
    """Return the documents of packed samples, where the model reads the column and the column tells them."""
    if LENGTHS not in arrays or not (model.is_newer and getattr(model.config, "use_eod_attn_mask_compression", False)):
        return {}
    documents = of_lengths(arrays[LENGTHS], arrays["input_ids"].shape[1])
    return {} if documents is None else {DOCUMENTS: documents}


def unseen(batch: Mapping[str, Array], unrecorded: Collection[str]) -> list[str]:
    """Return why parts of a batch are missing, by the names of the model's unrecorded inputs."""
    return [MissingBatchReason.DOCUMENTS.value] if LENGTHS in unrecorded and DOCUMENTS not in batch else []


def unrecorded(columns: Sequence[str], cell: Cell) -> list[str]:
    """Return the columns of the data set that no record has, such as lengths of packed samples."""
    model = model_of(cell)
    known = RESET if model.is_newer else CUT if takes_cut(type(model.network)) else UNCUT
    return sorted(set(columns) - set(known))
