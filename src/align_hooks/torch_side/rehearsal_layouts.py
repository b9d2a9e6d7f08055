"""A model that is cut over ranks, on a machine with no accelerator: the work that only Transformer Engine or an accelerator does.

:mod:`align_hooks.torch_side.rehearsal` answers for CUDA, which every rehearsal needs. Here modules of Megatron get what their
accelerated twins have, so that sequence and context parallelism train, and a model starts from the same weights
however it is cut. Seams: the ends of the imports of the modules that refuse.
"""

from __future__ import annotations

import copy
from types import ModuleType

from align_hooks.hooking.hook import Function
from align_hooks.torch_side.objects import Config, Module, Tensor
from align_hooks.torch_side.session import TorchSession

WHY = "ALIGN_HOOKS_DEVICE=cpu"


def install_norms(session: TorchSession, torch_norm: ModuleType) -> None:
    """Let torch's norms work under ``--sequence-parallel``, as Megatron's fused norm and Transformer Engine's do.

    A norm is taken of each token alone, so a part of the sequence changes no norm. It changes the gradient of the norm's weights, which
    Megatron sums over the tensor-parallel ranks where the weights are marked. Torch's norms are refused for want of that mark alone.
    """

    def new(original: Function, cls: type, config: Config, *args: object, **kwargs: object) -> Module:
        if not config.sequence_parallel:
            return original(cls, config, *args, **kwargs)
        whole = copy.copy(config)
        whole.sequence_parallel = False
        norm = original(cls, whole, *args, **kwargs)
        session.override("norms under --sequence-parallel", "refused", "torch's own, weights marked", WHY)
        for weight in norm.parameters():
            weight.sequence_parallel = True
        return norm

    session.ledger.surround(torch_norm.WrappedTorchNorm, "__new__", new)


def install_attention(session: TorchSession, module: ModuleType) -> None:
    """Let Megatron's own attention work under ``--context-parallel-size``, which it leaves to Transformer Engine.

    A query's row of the scores needs every key and no other query. So the keys and values of all ranks are gathered, as Transformer
    Engine does for ``--cp-comm-type all_gather``. All else is Megatron's own: the rows of the mask that its
    ``get_batch_on_this_cp_rank`` left this rank belong to this rank's queries. A sliding window stays refused: Megatron makes its mask
    from the number of queries.

    Let it also take the sizes of latent attention's heads, ``k_channels`` and ``v_channels``, which Transformer Engine's takes: its
    arithmetic goes by the sizes of the tensors that it is given, but for the width of what it puts out.
    """

    def init_whole(
        init: Function,
        self: Module,
        config: Config,
        *args: object,
        k_channels: int | None = None,
        v_channels: int | None = None,
        **kwargs: object,
    ) -> None:
        if config.context_parallel_size > 1 and config.window_size is None:
            config = copy.copy(config)
            config.context_parallel_size = 1
            session.override("context-parallel attention", "Transformer Engine's", "Megatron's own on gathered keys and values", WHY)
        init(self, config, *args, **kwargs)
        if v_channels is not None:
            session.override("latent attention", "Transformer Engine's", "Megatron's own with heads of these sizes", WHY)
            self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition

    def forward_rows(forward: Function, self: Module, query: Tensor, key: Tensor, value: Tensor, *args: object, **kwargs: object) -> Tensor:
        return forward(self, query, _whole_sequence(key), _whole_sequence(value), *args, **kwargs)

    session.ledger.surround(module.DotProductAttention, "__init__", init_whole)
    session.ledger.surround(module.DotProductAttention, "forward", forward_rows)


def _whole_sequence(part: Tensor) -> Tensor:
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
    """Keep the numbers that Megatron draws to warm up its kernels from moving the weights that are drawn next.

    On an accelerator another generator draws them. Their count depends on the tensor-parallel size, on which the weights of
    ``--use-cpu-initialization`` must not depend.
    """

    def warm_up(original: Function, *args: object, **kwargs: object) -> None:
        from torch.random import fork_rng

        with fork_rng(devices=()):
            original(*args, **kwargs)

    session.ledger.surround(initialize, "_warmup_jit_function", warm_up)
