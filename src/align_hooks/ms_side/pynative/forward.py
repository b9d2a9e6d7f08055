"""What a micro-batch is given, and its tokens' losses.

Patch points: ``GPTModel.construct``, whose arguments the model consumes, ``Trainer._forward_backward``, which returns the micro-batch's
loss, and ``_NLLLossModule.construct``, whose output are the losses of the tokens before the mask, ``[rows · sequence]``, row by row.
Layers for multi-token prediction call the same module before the model does.
"""

import inspect

import numpy as np

from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.ms_side.arrays import local, to_numpy
from align_hooks.ms_side.batch import DOCUMENTS, LENGTHS
from align_hooks.ms_side.objects import Cell, Tensor
from align_hooks.ms_side.pynative.cell_points import is_chunked
from align_hooks.ms_side.pynative.current import PynativeMicroBatch
from align_hooks.ms_side.session import MsSession
from align_hooks.names.blocks import Array
from align_hooks.quantities.batches import BATCHES
from align_hooks.record.format.documents import of_lengths

RECORDED = ("input_ids", "labels", "loss_mask", "position_ids", "attention_mask")
"""The arguments of ``GPTModel.construct`` that a record has."""


def wrap(session: MsSession, wrapped: Function, instance: Cell, args: Args, kwargs: Kwargs) -> Result:
    """Call ``GPTModel.construct``, and keep on the host what it was given."""
    current = session.current
    led = session.routing is not None or session.teacher is not None  # which count the micro-batches where nothing is recorded too
    if session.step is None or current is None or not (session.recording.is_on or led):
        return wrapped(*args, **kwargs)
    given = inspect.signature(wrapped).bind(*args, **kwargs).arguments
    arrays = consumed(given, instance)
    current.micro_batches.append(PynativeMicroBatch(arrays))
    if session.made == 0 and len(current.micro_batches) == 1:
        session.see_unrecorded(name for name, value in given.items() if value is not None and name not in RECORDED)
        say_hidden(session, arrays["tokens"], instance)
        if is_chunked(instance) and session.recording.wants(BATCHES):
            session.say("model.chunk_loss_num makes no token's own loss, so token losses are not recorded; set it to 1 to have them")
    return wrapped(*args, **kwargs)


def consumed(given: dict[str, Tensor], model: Cell) -> dict[str, Array]:
    """Return ``tokens``, ``labels`` and ``position_ids`` int64 and ``loss_mask`` fp32, ``[rows, sequence]``.

    The model drops labels with the ignored id whatever the mask, and makes a missing mask of its pad id
    (``GPTModel._preprocess_input_labels_and_masks``)."""
    arrays = {name: to_numpy(given[name]) for name in RECORDED[:4] if given.get(name) is not None}
    tokens, labels = arrays["input_ids"].astype(np.int64), arrays.get("labels")
    mask = arrays.get("loss_mask", tokens != model.pad_token_id)
    batch = {"tokens": tokens}
    if labels is not None:
        batch["labels"] = labels.astype(np.int64)
        mask = mask * (labels != model.ignore_token_id)
    batch["loss_mask"] = mask.astype(np.float32)
    if getattr(model, "use_rotary_position_ids", False) and "position_ids" in arrays:  # otherwise, and in 2.0, it counts positions itself
        batch["position_ids"] = arrays["position_ids"].astype(np.int64)
    if getattr(model, "use_eod_attn_mask_compression", False) and given.get(LENGTHS) is not None:
        lengths = given[LENGTHS]  # an array of the host in 2.1
        documents = of_lengths(lengths if isinstance(lengths, np.ndarray) else to_numpy(lengths), tokens.shape[1])
        batch |= {} if documents is None else {DOCUMENTS: documents}
    return batch


def say_hidden(session: MsSession, tokens: Array, model: Cell) -> None:
    """Print, once, that the model hides tokens that are no padding."""
    hidden = int((tokens == model.pad_token_id).sum())
    if hidden:
        session.say(
            f"model.pad_token_id is {model.pad_token_id}, which {hidden} of {tokens.size} tokens of the first micro-batch are: "
            f"attention hides them, as Megatron-LM does not; set pad_token_id: -1 where nothing is padded"
        )


def part(session: MsSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call ``Trainer._forward_backward``, and keep the micro-batch's part of the step's loss that it returns."""
    result = wrapped(*args, **kwargs)
    micro_batch = session.micro_batch
    if micro_batch is not None:
        micro_batch.part = local(result).detach()
    return result


def losses(session: MsSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Call the negative log likelihood, and keep its output: the model's own comes last."""
    result = wrapped(*args, **kwargs)
    micro_batch = session.micro_batch
    made = session.model is not None and not is_chunked(session.model.core)
    if made and session.step is not None and micro_batch is not None and session.recording.wants(BATCHES):
        micro_batch.token_losses = result.detach()
    return result
