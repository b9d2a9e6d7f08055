"""A context-parallel rank's own part of a loss that the loss function summed over the ranks of its sequence.

Up to 0.12 Megatron's loss function adds up losses and tokens of these ranks before it returns them, and the schedule multiplies their
mean by the number of ranks; from 0.13 on each rank returns its own (``loss_func`` in ``pretrain_gpt.py``, ``forward_step`` in
``megatron/core/pipeline_parallel/schedules.py``). Only values are summed: each rank differentiates its own tokens. So a row has the
numbers that the sum was made of, as from 0.13 on. A script may bring either loss function to any version: sums are seen, not guessed.

Patch point: ``torch.distributed.all_reduce``, while the loss function runs.
"""

import ast
import functools
import inspect
import textwrap
import tokenize
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
import torch
from megatron.core import parallel_state
from megatron.core.pipeline_parallel import schedules

from align_hooks.errors import RefusedRun
from align_hooks.hooking.hook import Result
from align_hooks.names.blocks import Array
from align_hooks.torch_side.objects import Group, Tensor
from align_hooks.torch_side.session import TorchSession


def is_of_ranks(code: ast.AST) -> bool:
    """Return whether code names the number of context-parallel ranks."""
    return any(name in ast.unparse(code) for name in ("context_parallel", "cp_"))


def is_summed(schedule: ast.AST) -> bool:
    """Return whether a schedule multiplies the mean of a loss with tokens by the number of context-parallel ranks."""
    branches = (node for node in ast.walk(schedule) if isinstance(node, ast.If) and ast.unparse(node.test) == "len(outputs) == 3")
    return any(is_of_ranks(line) for branch in branches for line in branch.body)


def is_scaled(schedule: ast.AST) -> bool:
    """Return whether a schedule multiplies the balancing term by the number of context-parallel ranks."""
    calls = (node for node in ast.walk(schedule) if isinstance(node, ast.Call))
    return any(is_of_ranks(call) for call in calls if ast.unparse(call.func) == "MoEAuxLossAutoScaler.set_loss_scale")


def code_of(function: object) -> ast.AST | None:
    """Return the code of a function; None where only compiled files are there, or a text that does not parse."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))  # type: ignore[arg-type]
    except (OSError, TypeError, ValueError, SyntaxError, tokenize.TokenError, RecursionError):
        return None


# read from the code: a development tree calls itself 0.13.0rc0 or 0.16.0rc0 before and after the commit that changed it
SCHEDULE = code_of(getattr(schedules, "forward_step_calc_loss", schedules.forward_step))
"""The part of this Megatron's schedule that makes the differentiated loss; None where it cannot be read."""
IS_SUMMED = None if SCHEDULE is None else is_summed(SCHEDULE)
"""Whether this Megatron expects a loss that is summed over the ranks of a sequence; None where its code cannot be read."""
IS_SCALED = None if SCHEDULE is None else is_scaled(SCHEDULE)
"""Whether this Megatron multiplies what balances experts by the number of context-parallel ranks, whose gradients are averaged."""
MOST = 64
"""Most elements of a sum of losses."""
CLOSE = 1e-6
"""Relative rounding of a mean."""
UNKNOWN = (
    "the script's loss function {why}, so that this rank's own part is not known; return (sum of losses, number of tokens, report) as "
    "Megatron's loss_func does, or record with --context-parallel-size 1"
)
MicroBatchLoss: TypeAlias = tuple[float, float | None, float, float | None]
"""Sum of losses and number of counted tokens, or a mean and None; the differentiated part; the divisor's tokens, a rank's share."""


def refuse_unread_schedule(place: Mapping[str, int]) -> None:
    """Refuse to record the parts of a sequence's ranks under a schedule that cannot be read: a rank alone has no part to tell."""
    if SCHEDULE is None and place["cp_size"] > 1:
        raise RefusedRun(
            f"the source of {schedules.__name__} is not there or does not parse, so that it is not known whether this Megatron expects "
            "losses summed over the context-parallel ranks; install it with its source, or record with --context-parallel-size 1"
        )


@contextmanager
def seen_sums(session: TorchSession) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Collect the tensors that are summed over the ranks of this rank's sequence: a copy from before, and the tensor itself."""
    sums: list[tuple[Tensor, Tensor]] = []
    original = torch.distributed.all_reduce

    @functools.wraps(original)
    def all_reduce(*args: object, **kwargs: object) -> Result:
        with session.recording.isolate_failures("the loss"):
            given = inspect.signature(original).bind(*args, **kwargs).arguments
            if is_over_sequence(given["tensor"], given.get("group")):
                sums.append((given["tensor"].detach().clone(), given["tensor"].detach()))
        return original(*args, **kwargs)

    if session.place["cp_size"] > 1:
        torch.distributed.all_reduce = all_reduce
    try:
        yield sums
    finally:
        torch.distributed.all_reduce = original


def is_over_sequence(tensor: Tensor, group: Group) -> bool:
    """Return whether a sum over a group may be one of losses over this rank's sequence."""
    ranks = torch.distributed.get_process_group_ranks
    return group is not None and tensor.numel() <= MOST and bool(ranks(group) == ranks(parallel_state.get_context_parallel_group()))


def joined(sums: list[tuple[Tensor, Tensor]], place: Mapping[str, int], *, counts: bool) -> Tensor | None:
    """Return the sums of a loss function as ``[2, elements]``, before and after; None where it sums nothing.

    Raises RefusedRun where it must, since the schedule would scale its loss wrongly; ``counts`` is whether it returns tokens."""
    if sums:
        return torch.stack([torch.cat([part.reshape(-1).float() for part in parts]) for parts in zip(*sums, strict=True)])
    if IS_SUMMED and counts and place["cp_size"] > 1:
        raise RefusedRun(UNKNOWN.format(why="was seen to sum nothing over the context-parallel ranks, as this Megatron expects"))
    return None


def own_part(loss: float, tokens: float | None, objective: float, sums: Array | None, ranks: int) -> MicroBatchLoss:
    """Return a rank's part of a loss function's results, which are found among ``sums``, or are the quotient of two of these."""
    if sums is None:
        return loss, tokens, objective, tokens
    before, after = sums.reshape(2, -1)
    if tokens is None:
        with np.errstate(divide="ignore", invalid="ignore"):
            means = after[:, None] / after
        if np.isclose(means, loss, rtol=CLOSE, atol=0, equal_nan=True).any():
            return loss, None, objective / ranks, None  # the mean of all these ranks, of which each has the whole
    else:
        of_loss, of_tokens = (np.flatnonzero(np.isclose(after, number, rtol=0, atol=0, equal_nan=True)) for number in (loss, tokens))
        if of_loss.size and of_tokens.size:
            own = float(before[of_loss[0]])
            return own, float(before[of_tokens[-1]]), objective * (own / loss) if loss else 0.0, tokens / ranks
    raise RefusedRun(UNKNOWN.format(why="sums over the context-parallel ranks and returns neither these sums nor their mean"))
