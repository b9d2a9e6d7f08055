"""How a run is split over ranks, and whether gradients are averaged over them, as each side computes it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec.structs import replace

from align_hooks.checklist.canonical_values import UNSET, ParallelAxis, Switched, Words
from align_hooks.checklist.lookup import are_numbers, known, model, value_of
from align_hooks.checklist.resolver import EditRequest, Edits, one_key, resolver
from align_hooks.configuration.values import MINDFORMERS, Configuration, Setting
from align_hooks.messages import Message, message, terms


def is_piped(c: Configuration) -> bool:
    """Return whether MindFormers splits the layers over a pipeline."""
    return bool(value_of(c, ("parallel_config.pipeline_stage",), 1) > 1)


def megatron_data_parallel(c: Configuration) -> Setting:
    """Return the data-parallel size: of a record as it was, of a script the launcher's processes over the other sizes."""

    def left(c: Configuration) -> Setting:
        names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
        cards, sizes = _launched(c), [value_of(c, (name,), 1) for name in names]
        return cards // math.prod(sizes) if are_numbers(cards, *sizes) else UNSET

    return value_of(c, ("data_parallel_size",), left)


def megatron_cards(c: Configuration) -> Setting:
    """Return the processes of a run: of a record as they were, of a script the launcher's."""
    return value_of(c, ("world_size",), _launched)


def _launched(c: Configuration) -> Setting:
    processes, nodes = value_of(c, ("launcher.nproc_per_node",)), value_of(c, ("launcher.nnodes",), 1)
    return processes * nodes if are_numbers(processes, nodes) else UNSET


def one_tensor_rank(reference: Configuration, candidate: Configuration) -> Words | None:
    """Return why sequence parallelism need not agree: a single tensor-parallel rank has nothing to cut, and Megatron switches it off."""
    sizes = [value_of(c, ("tensor_model_parallel_size", "parallel_config.model_parallel"), 1) for c in (reference, candidate)]
    return message("harmless.not_cut") if sizes == [1, 1] else None


def is_data_parallel(c: Configuration) -> bool:
    """Return whether MindFormers has data parallelism only; its default mode is semi-automatic."""
    return value_of(c, ("parallel.parallel_mode",), 1) in (0, "DATA_PARALLEL", "data_parallel")


def mindformers_data_parallel(c: Configuration) -> Setting:
    """Return the data-parallel size: configured where sharding is semi-automatic, else every device."""
    if is_data_parallel(c):
        return value_of(c, ("device_num",), 1 if value_of(c, ("use_parallel",), False) is False else UNSET)
    return value_of(c, ("parallel_config.data_parallel",), 1)


def mindformers_cards(c: Configuration) -> Setting:
    """Return the devices of a run: every way of splitting it, multiplied."""
    if value_of(c, ("use_parallel",), False) is False:
        return 1
    sizes = [value_of(c, (f"parallel_config.{name}",), 1) for name in ("model_parallel", "pipeline_stage", "context_parallel")]
    ranks = mindformers_data_parallel(c)
    return ranks if is_data_parallel(c) else math.prod([ranks, *sizes]) if are_numbers(ranks, *sizes) else UNSET


def per_stage(c: Configuration) -> list[str]:
    """Return the lists of a candidate that have an entry for each pipeline stage."""
    names = ("recompute_config.recompute", "recompute_config.select_recompute", "recompute_config.select_comm_recompute", *model("offset"))
    return [name for name in c.values if name.startswith(names) and isinstance(known(c, name), list)]


def stages_too(reference: Configuration, candidate: Configuration) -> tuple[str, Message] | None:
    """Return the key and words for other pipeline stages where lists have an entry for each; None without such lists."""
    key, lists = "parallel_config.pipeline_stage", per_stage(candidate)
    stages = value_of(reference, ("pipeline_model_parallel_size", key), 1)
    return (key, message("change.stages_too", key=key, stages=stages, lists=terms(lists))) if lists else None


def stages_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield stages of a pipeline, unless lists with an entry for each must be written by hand."""
    if request.wanted == 1 or not per_stage(request.candidate):
        yield from one_key(request)


@resolver
def mindformers_averages(c: Configuration) -> Setting:
    """Return whether gradients are averaged over ranks: always in a semi-automatic graph, else by ``gradients_mean``."""
    if (summed := c.fact("training.gradients_summed_over_ranks")) is not None:
        return not summed
    single = value_of(c, ("use_parallel",), False) is False or mindformers_data_parallel(c) == 1
    return True if single or not is_data_parallel(c) else bool(value_of(c, ("parallel.gradients_mean",), False))


@mindformers_averages.writer
def averages_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield gradients that are averaged over ranks, or not."""
    yield {"parallel.gradients_mean": request.wanted}


def megatron_global_batch(c: Configuration) -> Setting:
    """Return ``--global-batch-size``, or one micro-batch a data-parallel rank."""

    def of_ranks(c: Configuration) -> Setting:
        micro, ranks = value_of(c, ("micro_batch_size",)), megatron_data_parallel(c)
        return micro * ranks if are_numbers(micro, ranks) else UNSET

    return value_of(c, ("global_batch_size",), of_ranks)


STEP = "runner_config.global_batch_size"
"""The rows of a step, which the PyNative trainer is given."""


def does_not_accumulate(c: Configuration) -> bool:
    """Return whether MindFormers trains without semi-automatic parallelism, where ``gradient_accumulation_steps`` is 1."""
    return not c.trainer and (value_of(c, ("use_parallel",), True) is False or is_data_parallel(c))


def adds_up_nothing(c: Configuration) -> Words | None:
    """Return why a side has one micro-batch a step whatever is set (1.3 to 2.1, ``_check_grad_accumulation_steps``); else None."""
    return message("cannot.accumulate") if c.side == MINDFORMERS and does_not_accumulate(c) and not is_piped(c) else None


def accumulated(c: Configuration) -> Setting:
    """Return the micro-batches whose gradients MindFormers adds up without a pipeline; its PyNative trainer computes them."""
    if c.trainer:
        rows, size, ranks = value_of(c, (STEP,), 1), value_of(c, ("runner_config.batch_size",), 1), mindformers_data_parallel(c)
        return rows // (size * ranks) if are_numbers(rows, size, ranks) and size * ranks else UNSET
    return 1 if does_not_accumulate(c) else value_of(c, ("runner_config.gradient_accumulation_steps",), 1)


@resolver
def mindformers_global_batch(c: Configuration) -> Setting:
    """Return ``base_trainer``'s product: batch × data parallel × micro-batches × interleaved copies × accumulation."""
    if (recorded := c.fact("training.global_batch_size")) is not None:
        return recorded
    if c.trainer:
        return value_of(c, (STEP,), 1)
    batch, ranks = value_of(c, ("runner_config.batch_size",), 1), mindformers_data_parallel(c)
    piped, micro = is_piped(c), value_of(c, ("parallel_config.micro_batch_num",), 1)
    copies, added = value_of(c, ("micro_batch_interleave_num",), 1), accumulated(c)
    return int(batch * ranks * copies * (micro if piped else added)) if are_numbers(batch, ranks, micro, copies, added) else UNSET


@mindformers_global_batch.writer
def global_batch_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield a global batch by its micro-batches, by the rows of these, or by both, with the reference's rows if these divide it."""
    c = request.candidate
    if c.trainer:
        size = value_of(request.reference, ("micro_batch_size", "runner_config.batch_size"), 1)
        yield from ({STEP: request.wanted, **more} for more in ({}, {"runner_config.batch_size": size}))
        return
    count, now = micro_batch_key(c), mindformers_global_batch(c)
    for key in (count, "runner_config.batch_size"):
        each = value_of(c, (key,), 1)
        if are_numbers(request.wanted, now, each) and now and (request.wanted * each) % now == 0:
            yield {key: int(request.wanted * each // now)}
    rows, batches = mindformers_micro_batch(c), mindformers_micro_batches(c)
    if are_numbers(request.wanted, now, rows, batches) and now and request.wanted % (ranks := now // (rows * batches)) == 0:
        wanted = value_of(request.reference, ("micro_batch_size", "runner_config.batch_size"), 1)
        each = int(request.wanted // ranks)
        yield from ({"runner_config.batch_size": size, count: each // size} for size in (wanted, 1) if each % size == 0)


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


@resolver
def mindformers_micro_batches(c: Configuration) -> Setting:
    """Return the micro-batches of a step on one rank: a pipeline's ``micro_batch_num``, else accumulation steps."""
    return value_of(c, ("parallel_config.micro_batch_num",), 1) if is_piped(c) else accumulated(c)


@mindformers_micro_batches.writer
def micro_batches_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield micro-batches of a step, with as many rows each as keep the global batch."""
    rows, batches = mindformers_micro_batch(request.candidate), mindformers_micro_batches(request.candidate)
    if are_numbers(request.wanted, rows, batches) and request.wanted and rows * batches % request.wanted == 0:
        yield from micro_batch_edits(replace(request, wanted=rows * batches // request.wanted))
    if not request.candidate.trainer:
        yield {micro_batch_key(request.candidate): request.wanted}


@resolver
def mindformers_micro_batch(c: Configuration) -> Setting:
    """Return the rows of a micro-batch on one rank; a record has the size before training overwrites ``batch_size``."""
    recorded = c.fact("training.micro_batch_size")
    return recorded if recorded is not None else value_of(c, ("runner_config.batch_size",), 1)


@mindformers_micro_batch.writer
def micro_batch_edits(request: EditRequest) -> Iterator[Edits]:
    """Yield rows of a micro-batch, with as many micro-batches of a step as keep the global batch."""
    c = request.candidate
    if adds_up_nothing(c) is not None:
        return
    rows, batches = mindformers_micro_batch(c), mindformers_micro_batches(c)
    if are_numbers(request.wanted, rows, batches) and request.wanted and rows * batches % request.wanted == 0:
        counted = {} if c.trainer else {micro_batch_key(c): int(rows * batches // request.wanted)}
        yield {"runner_config.batch_size": int(request.wanted)} | counted


SPLITS = {
    ParallelAxis.TENSOR: ("tensor_model_parallel_size", "parallel_config.model_parallel"),
    ParallelAxis.PIPELINE: ("pipeline_model_parallel_size", "parallel_config.pipeline_stage"),
    ParallelAxis.CONTEXT: ("context_parallel_size", "parallel_config.context_parallel"),
    ParallelAxis.SEQUENCE: ("sequence_parallel", "parallel_config.use_seq_parallel"),
    ParallelAxis.OPTIMIZER: ("use_distributed_optimizer", "parallel.enable_parallel_optimizer"),
}
"""Ways of splitting a model: Megatron's setting and MindFormers', a number of ranks or a switch."""


def split(c: Configuration) -> Setting:
    """Return the ways of splitting a model that are on."""
    set_to = {way: value_of(c, (keys[c.side == MINDFORMERS],), None) for way, keys in SPLITS.items()}
    switches = (ParallelAxis.SEQUENCE, ParallelAxis.OPTIMIZER)
    return Switched(tuple(way for way, size in set_to.items() if (size is True if way in switches else are_numbers(size) and size > 1)))
