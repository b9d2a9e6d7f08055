"""How a run is split over ranks, and whether gradients are averaged over them, as each side computes it."""

from __future__ import annotations

import math

from align_hooks.checklist.meaning import Words
from align_hooks.checklist.readings.lookup import are_numbers, known, value_of
from align_hooks.checklist.row import UNSET, model
from align_hooks.configuration.values import Configuration, Setting
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


def mindformers_averages(c: Configuration) -> Setting:
    """Return whether gradients are averaged over ranks: always in a semi-automatic graph, else by ``gradients_mean``."""
    if (summed := c.fact("training.gradients_summed_over_ranks")) is not None:
        return not summed
    single = value_of(c, ("use_parallel",), False) is False or mindformers_data_parallel(c) == 1
    return True if single or not is_data_parallel(c) else bool(value_of(c, ("parallel.gradients_mean",), False))
