"""A model that is cut over ranks, on a machine with no accelerator: what only Transformer Engine or an accelerator does for it.

Beside :mod:`align_hooks.torch_side.rehearsal`, which answers for CUDA and is needed by every rehearsal. Here modules of Megatron
get what their accelerated twins have, so that sequence and context parallelism train, and a model starts from the same weights
however it is cut. Seams: the ends of the imports of the modules that refuse.
"""

from __future__ import annotations

import copy
from types import ModuleType
from typing import Any

from align_hooks.torch_side.session import TorchSession

WHY = "ALIGN_HOOKS_DEVICE=cpu"


def install_norms(session: TorchSession, torch_norm: ModuleType) -> None:
    """Let torch's norms work under ``--sequence-parallel``, as Megatron's fused norm and Transformer Engine's do.

    A norm is a matter of one token, so a part of the sequence changes nothing in it. What it does change is the gradient of
    its weights, which Megatron sums over the tensor-parallel ranks where the weights are marked. Torch's norms are refused
    for want of that mark alone.
    """
    original = torch_norm.WrappedTorchNorm.__new__

    def new(cls: Any, config: Any, *args: Any, **kwargs: Any) -> Any:
        if not config.sequence_parallel:
            return original(cls, config, *args, **kwargs)
        whole = copy.copy(config)
        whole.sequence_parallel = False
        norm = original(cls, whole, *args, **kwargs)
        session.override("norms under --sequence-parallel", "refused", "torch's own, weights marked", WHY)
        for weight in norm.parameters():
            weight.sequence_parallel = True
        return norm

    session.ledger.replace(torch_norm.WrappedTorchNorm, "__new__", new)


def install_attention(session: TorchSession, module: ModuleType) -> None:
    """Let Megatron's own attention work under ``--context-parallel-size``, which it leaves to Transformer Engine.

    A query's row of the scores asks for every key and for no other query. The keys and values of all ranks are therefore
    gathered, as Transformer Engine does for ``--cp-comm-type all_gather``, and the rest is Megatron's own: the rows of the
    mask that its ``get_batch_on_this_cp_rank`` left this rank belong to this rank's queries. A sliding window stays refused:
    Megatron makes its mask from the number of queries.
    """
    attention = module.DotProductAttention
    init, forward = attention.__init__, attention.forward

    def init_whole(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        if config.context_parallel_size > 1 and config.window_size is None:
            config = copy.copy(config)
            config.context_parallel_size = 1
            session.override("context-parallel attention", "Transformer Engine's", "Megatron's own on gathered keys and values", WHY)
        init(self, config, *args, **kwargs)

    def forward_rows(self: Any, query: Any, key: Any, value: Any, attention_mask: Any, *args: Any, **kwargs: Any) -> Any:
        return forward(self, query, _whole_sequence(key), _whole_sequence(value), attention_mask, *args, **kwargs)

    session.ledger.replace(attention, "__init__", init_whole)
    session.ledger.replace(attention, "forward", forward_rows)


def _whole_sequence(part: Any) -> Any:
    """Keys or values of all context-parallel ranks, in order: of 2n chunks rank r has the r-th from the front and from the back."""
    import torch
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region

    group = parallel_state.get_context_parallel_group()
    if (ranks := group.size()) == 1:
        return part
    chunks = gather_from_sequence_parallel_region(part, group=group).chunk(2 * ranks)
    return torch.cat([*chunks[::2], *reversed(chunks[1::2])])


def install_warm_up(session: TorchSession, initialize: ModuleType) -> None:
    """Keep what Megatron draws to warm its kernels up away from the weights that are drawn next.

    On an accelerator another generator draws it. How much is drawn depends on the tensor-parallel size, on which the weights
    of ``--use-cpu-initialization`` must not.
    """
    original = initialize._warmup_jit_function

    def warm_up(*args: Any, **kwargs: Any) -> None:
        from torch.random import fork_rng

        with fork_rng(devices=()):
            original(*args, **kwargs)

    session.ledger.replace(initialize, "_warmup_jit_function", warm_up)
