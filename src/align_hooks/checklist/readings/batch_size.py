"""Rows of a global batch and of a micro-batch, and the micro-batches of a step, as each side computes them."""

from __future__ import annotations

from align_hooks.checklist.meaning import Words
from align_hooks.checklist.readings.layout import is_data_parallel, is_piped, megatron_data_parallel, mindformers_data_parallel
from align_hooks.checklist.readings.lookup import are_numbers, value_of
from align_hooks.checklist.row import UNSET
from align_hooks.configuration.values import MINDFORMERS, Configuration, Setting
from align_hooks.messages import Message, message


def megatron_global_batch(c: Configuration) -> Setting:
    """Return ``--global-batch-size``, or one micro-batch a data-parallel rank."""

    def of_ranks(c: Configuration) -> Setting:
        micro, ranks = value_of(c, ("micro_batch_size",)), megatron_data_parallel(c)
        return micro * ranks if are_numbers(micro, ranks) else UNSET

    return value_of(c, ("global_batch_size",), of_ranks)


def does_not_accumulate(c: Configuration) -> bool:
    """Return whether MindFormers trains without semi-automatic parallelism, where ``gradient_accumulation_steps`` is 1."""
    return value_of(c, ("use_parallel",), True) is False or is_data_parallel(c)


def adds_up_nothing(c: Configuration) -> Words | None:
    """Return why a side has one micro-batch a step whatever is set (1.3 to 2.1, ``_check_grad_accumulation_steps``); else None."""
    return message("cannot.accumulate") if c.side == MINDFORMERS and does_not_accumulate(c) and not is_piped(c) else None


def accumulated(c: Configuration) -> Setting:
    """Return the micro-batches whose gradients MindFormers adds up without a pipeline."""
    return 1 if does_not_accumulate(c) else value_of(c, ("runner_config.gradient_accumulation_steps",), 1)


def mindformers_global_batch(c: Configuration) -> Setting:
    """Return ``base_trainer``'s product: batch × data parallel × micro-batches × interleaved copies × accumulation."""
    if (recorded := c.fact("training.global_batch_size")) is not None:
        return recorded
    batch, ranks = value_of(c, ("runner_config.batch_size",), 1), mindformers_data_parallel(c)
    piped, micro = is_piped(c), value_of(c, ("parallel_config.micro_batch_num",), 1)
    copies, added = value_of(c, ("micro_batch_interleave_num",), 1), accumulated(c)
    return int(batch * ranks * copies * (micro if piped else added)) if are_numbers(batch, ranks, micro, copies, added) else UNSET


def megatron_micro_batches(c: Configuration) -> Setting:
    """Return the micro-batches of a step on one rank."""
    batch, micro, ranks = megatron_global_batch(c), value_of(c, ("micro_batch_size",)), megatron_data_parallel(c)
    return batch // (micro * ranks) if are_numbers(batch, micro, ranks) and micro * ranks else UNSET


def micro_batch_key(c: Configuration) -> str:
    """Return the key of MindFormers' micro-batches of a step."""
    return "parallel_config.micro_batch_num" if is_piped(c) else "runner_config.gradient_accumulation_steps"


def ranks_too(reference: Configuration, candidate: Configuration) -> tuple[str, Message] | None:
    """Return the key and words for a global batch that the candidate's ranks do not divide; None where these do."""
    wanted = (mindformers_global_batch if reference.side == MINDFORMERS else megatron_global_batch)(reference)
    ranks = mindformers_data_parallel(candidate) if candidate.side == MINDFORMERS else UNSET
    if not are_numbers(wanted, ranks) or wanted % ranks == 0:
        return None
    return "parallel_config.data_parallel", message("change.ranks_too", batch=wanted, ranks=ranks)


def mindformers_micro_batches(c: Configuration) -> Setting:
    """Return the micro-batches of a step on one rank: a pipeline's ``micro_batch_num``, else accumulation steps."""
    return value_of(c, ("parallel_config.micro_batch_num",), 1) if is_piped(c) else accumulated(c)


def mindformers_micro_batch(c: Configuration) -> Setting:
    """Return the rows of a micro-batch on one rank; a record has the size before training overwrites ``batch_size``."""
    recorded = c.fact("training.micro_batch_size")
    return recorded if recorded is not None else value_of(c, ("runner_config.batch_size",), 1)
