"""Megatron on a machine with no accelerator: the CPU answers for CUDA.

Megatron asserts a CUDA device all over, though its mathematics needs none. This stand-in answers device queries, makes streams and events
do nothing, uses the CPU's generator as the CUDA generator, and rewrites ``cuda`` devices to ``cpu`` in every torch call. It changes no
arithmetic. :mod:`align_hooks.torch_side.hooks.arguments` switches fused kernels and NCCL off.

Megatron's plain modules get the abilities of the accelerated ones, so that sequence and context parallelism train, and a model starts from
the same weights however it is cut.

Patch points: the end of ``import torch``, because Megatron binds names of ``torch.cuda`` while it is imported, and the ends of the imports
of the modules that refuse.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

from align_hooks.hooking.attach import load
from align_hooks.hooking.hook import Args, Function, Kwargs, Result
from align_hooks.torch_side.objects import Config, Module, Tensor
from align_hooks.torch_side.session import TorchSession

WHY = "ALIGN_HOOKS_DEVICE=cpu"
CONSTANT = (
    (False, ("is_current_stream_capturing", "_is_in_bad_fork", "is_initialized")),
    (None, ("synchronize", "empty_cache", "set_device", "reset_peak_memory_stats", "ipc_collect", "set_stream")),
    (None, ("_lazy_init", "init", "check_error")),
    (0, ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved", "device_memory_used")),
    (0, ("current_device", "utilization")),
    (True, ("is_available",)),
    (1, ("device_count",)),
    ("cpu", ("get_device_name",)),
    ((8, 0), ("get_device_capability",)),
)
"""Constant answers of ``torch.cuda``, each with its functions."""
TWINS = {
    "TENorm": "megatron.core.transformer.torch_norm:WrappedTorchNorm",
    **dict.fromkeys(("TELinear", "TEColumnParallelLinear"), "megatron.core.tensor_parallel.layers:ColumnParallelLinear"),
    "TERowParallelLinear": "megatron.core.tensor_parallel.layers:RowParallelLinear",
    "TELayerNormColumnParallelLinear": "align_hooks.torch_side.engine_twins:NormThenLinear",
    "TEDotProductAttention": "megatron.core.transformer.dot_product_attention:DotProductAttention",
}
"""Transformer Engine's layers to plain ones with the same parameters."""


def _answering(value: object) -> Function:
    return lambda *args, **kwargs: value


class _IdleStream:
    """A CUDA stream or event on a machine where everything has already happened."""

    cuda_stream = device = 0
    wait_stream = wait_event = synchronize = record = wait = _answering(None)
    elapsed_time, query, is_capturing, priority_range = (_answering(value) for value in (0.0, True, False, (0, 0)))

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def record_event(self, *args: object) -> _IdleStream:
        return self

    __enter__, __exit__ = record_event, _answering(None)


def install(session: TorchSession, torch: ModuleType) -> None:
    """Replace ``torch.cuda`` by the stand-in, logged for undoing."""
    # Dynamo would compile around the rewriting of devices below; Megatron's jitted helpers run eagerly without it.
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    replace = session.patch_log.replace
    cpu = torch.default_generator
    stream = _IdleStream()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def to_cpu_generator(seed: int) -> None:
        cpu.manual_seed(seed)

    answers: dict[str, object] = {name: _answering(value) for value, names in CONSTANT for name in names} | {
        **dict.fromkeys(("current_stream", "default_stream"), _answering(stream)),
        **dict.fromkeys(("stream", "device"), lambda *args: contextlib.nullcontext()),
        **dict.fromkeys(("Stream", "Event"), _IdleStream),
        **dict.fromkeys(("manual_seed", "manual_seed_all"), to_cpu_generator),
        "default_generators": (cpu,),
        "get_rng_state": lambda *args, **kwargs: cpu.get_state(),
        "set_rng_state": lambda state, *args, **kwargs: cpu.set_state(state),
        "initial_seed": cpu.initial_seed,
        "_lazy_call": lambda call, **kwargs: call(),
        "get_device_properties": _answering(SimpleNamespace(name="cpu", major=8, minor=0, total_memory=memory, multi_processor_count=1)),
        "mem_get_info": _answering((memory, memory)),
        "memory_stats": lambda *args: Counter(),
    }
    for name, answer in answers.items():
        replace(torch.cuda, name, answer)
    for name in ("get_rng_state", "set_rng_state", "manual_seed", "manual_seed_all"):
        replace(torch.cuda.random, name, answers[name])
    for name in ("range_push", "range_pop", "mark"):
        replace(torch.cuda.nvtx, name, _answering(None))
    replace(torch.Tensor, "cuda", lambda tensor, *args, **kwargs: tensor)
    replace(torch.nn.Module, "cuda", lambda module, *args, **kwargs: module)
    session.patch_log.surround(torch.Tensor, "type", _type_as_cuda)
    accelerator = getattr(torch, "accelerator", None)
    for name, value in (("synchronize", None), ("current_device_index", 0), ("current_stream", stream), ("set_stream", None)):
        if hasattr(accelerator, name):
            replace(accelerator, name, _answering(value))
    session.patch_log.surround(torch.utils.data.DataLoader, "__init__", functools.partial(_of_the_host, torch))
    session.patch_log.surround(torch.distributed, "all_to_all_single", _with_plain_sizes)
    _device_mode(torch).__enter__()
    session.override("device", "cuda", "cpu", WHY)


def _type_as_cuda(original: Callable[..., object], tensor: Tensor, *args: object, **kwargs: object) -> object:
    """Return the name of a CUDA tensor's type, which Megatron's clipping asserts."""
    name = original(tensor, *args, **kwargs)
    return name.replace("torch.", "torch.cuda.", 1) if isinstance(name, str) and "cuda" not in name else name


def _of_the_host(torch: ModuleType, original: Function, loader: object, *args: object, **kwargs: object) -> None:
    """Build a data loader without a pinning thread, which would talk to the driver, and with its own generator."""
    if kwargs.get("generator") is None:  # the host's is dropout's here too, so a resumed run would draw other masks
        kwargs["generator"] = torch.Generator().manual_seed(torch.initial_seed())
    original(loader, *args, **kwargs | {"pin_memory": False})


def _with_plain_sizes(original: Function, *args: Tensor, **kwargs: Tensor) -> Result:
    """Convert split sizes to numbers: Megatron fetches them from a device, but keeps a host tensor, which torch refuses."""
    for name in ("output_split_sizes", "input_split_sizes"):
        if hasattr(kwargs.get(name), "tolist"):
            kwargs[name] = kwargs[name].tolist()
    return original(*args, **kwargs)


def _device_mode(torch: ModuleType) -> contextlib.AbstractContextManager[object]:
    """Return a torch function mode that rewrites ``cuda`` devices in the arguments of every torch call."""
    from torch.overrides import TorchFunctionMode

    def to_cpu(value: object) -> object:
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device("cpu")
        return "cpu" if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")) else value

    class CudaMeansCpu(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None) -> Result:
            kwargs = {key: to_cpu(value) for key, value in (kwargs or {}).items()}
            if type(kwargs.get("device")) is int:
                kwargs["device"] = "cpu"
            if kwargs.get("pin_memory") is True:
                kwargs["pin_memory"] = False
            args = tuple(map(to_cpu, args))
            if func is torch.Tensor.to and len(args) > 1 and type(args[1]) is int:
                args = (args[0], "cpu", *args[2:])
            return func(*args, **kwargs)

    return CudaMeansCpu()


def install_helpers(session: TorchSession, utils: ModuleType) -> None:
    """Let Megatron use the data set helper that a wheel ships compiled: the wheel has no Makefile to build it again."""

    def compile_helpers(original: Function) -> None:
        if importlib.util.find_spec("megatron.core.datasets.helpers_cpp") is None:
            original()

    session.patch_log.surround(utils, "compile_helpers", compile_helpers)


def install_fused_kernels(session: TorchSession, fused_kernels: ModuleType) -> None:
    """Let 0.12 to 0.16 start without nvcc, whose version they read although they build no kernel."""
    session.patch_log.replace(fused_kernels, "load", _answering(None))


def install_norms(session: TorchSession, torch_norm: ModuleType) -> None:
    """Let torch's norms work under ``--sequence-parallel``, as Megatron's fused norm and Transformer Engine's do.

    A norm is of one token, so a part of the sequence changes only the gradient of the norm's weights, which Megatron sums over
    tensor-parallel ranks where the weights are marked. Torch's norms are refused only for want of this mark."""

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

    session.patch_log.surround(torch_norm.WrappedTorchNorm, "__new__", new)


def install_attention(session: TorchSession, module: ModuleType) -> None:
    """Let Megatron's own attention work under ``--context-parallel-size``, which it leaves to Transformer Engine.

    A query's row of the scores needs every key and no other query. So the keys and values of all ranks are gathered, as Transformer
    Engine does for ``--cp-comm-type all_gather``; Megatron's ``get_batch_on_this_cp_rank`` leaves this rank the mask rows of its queries,
    and where the batch has no mask, it is causal and made here.
    A sliding window stays refused: Megatron makes its mask from the number of queries.

    The sizes of latent attention's heads, ``k_channels`` and ``v_channels``, are accepted as by Transformer Engine's attention: the
    arithmetic follows the sizes of the inputs, and only the width of the output does not.

    Packed samples, which it refuses, are attended to a document at a time."""

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

    def forward_rows(
        forward: Function,
        self: Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor,
        *args: object,
        packed_seq_params: Tensor = None,
        **kwargs: object,
    ) -> Tensor:
        if packed_seq_params is None:
            keys = _whole_sequence(key)
            if attention_mask is None and len(keys) > len(query):
                attention_mask = _later_keys(len(keys))
            return forward(self, query, keys, _whole_sequence(value), attention_mask, *args, **kwargs)
        from align_hooks.torch_side.engine_twins import by_document

        session.override("attention of packed samples", "Transformer Engine's", "Megatron's own, a document at a time", WHY)
        attend = functools.partial(forward, self)
        return by_document(attend, self.hidden_size_per_partition, packed_seq_params, (query, key, value), attention_mask, *args, **kwargs)

    session.patch_log.surround(module.DotProductAttention, "__init__", init_whole)
    session.patch_log.surround(module.DotProductAttention, "forward", forward_rows)


def install_experts(session: TorchSession, mlp: ModuleType) -> None:
    """Let Megatron's own experts have biases: Megatron adds one in place to a view that torch protects, and here to a copy."""

    def init(original: Function, self: Module, *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)
        if self.config.add_bias_linear and getattr(self.linear_fc2, "is_expert", False):
            session.override("biases of experts", "added in place", "added to a copy", WHY)
            self.linear_fc2.register_forward_hook(lambda linear, given, result: (result[0].clone(), result[1]))

    session.patch_log.surround(mlp.MLP, "__init__", init)


def _whole_sequence(part: Tensor) -> Tensor:
    """Gather keys or values of all context-parallel ranks, in order: of 2n chunks rank r has the r-th from the front and from the back."""
    import torch
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region

    group = parallel_state.get_context_parallel_group()
    if (ranks := group.size()) == 1:
        return part
    chunks = gather_from_sequence_parallel_region(part, group=group).chunk(2 * ranks)
    return torch.cat([*chunks[::2], *reversed(chunks[1::2])])


def _later_keys(length: int) -> Tensor:
    """Return which keys of a sequence lie behind each query of this context-parallel rank, bool ``[1, 1, queries, keys]``."""
    import torch
    from megatron.core import parallel_state

    rank, keys = parallel_state.get_context_parallel_rank(), torch.arange(length)
    chunks = keys.chunk(2 * parallel_state.get_context_parallel_world_size())
    return (keys > torch.cat([chunks[rank], chunks[-1 - rank]]).unsqueeze(1))[None, None]


def install_engine(session: TorchSession, extensions: ModuleType) -> None:
    """Put plain layers where a HybridModel's specification finds Transformer Engine's, which a CPU does not have."""

    def build(name: str, twin: str, cls: type, /, *args: object, **kwargs: object) -> Module:
        session.override(name, "Transformer Engine's", twin.rpartition(":")[2], WHY)
        return load(twin)(*args, **kwargs)

    if getattr(extensions, "HAVE_TE", True):  # 0.12 has the module only beside the engine
        return
    for name, twin in TWINS.items():
        session.patch_log.replace(extensions, name, type(name, (), {"__new__": functools.partial(build, name, twin)}))


def install_latent(session: TorchSession, attention: ModuleType) -> None:
    """Let latent attention build the linear layer of such a specification as it builds Megatron's own, which it knows by their classes."""
    # up to 0.16 it imports the twin itself, as no specification without Transformer Engine names it there
    if getattr(attention, "TELinear", attention) is None:
        from megatron.core.extensions import transformer_engine

        session.patch_log.replace(attention, "Linear", transformer_engine.TELinear)


def install_router(session: TorchSession, utils: ModuleType) -> None:
    """Let experts of 0.13 to 0.16 start: their router asks for a matrix product that is bound with Transformer Engine alone."""
    if hasattr(utils, "te_general_gemm") or not hasattr(utils, "router_gating_linear"):
        return

    def route(original: Function, *args: object, **kwargs: object) -> Tensor:
        session.override("router", "Transformer Engine's matrix product", "torch's", WHY)
        return original(*args, **kwargs)

    session.patch_log.replace(utils, "te_general_gemm", None)  # as Megatron itself does later
    session.patch_log.surround(utils, "router_gating_linear", route)


def install_query_norms(session: TorchSession, attention: ModuleType) -> None:
    """Let ``--qk-layernorm`` build the norms that a HybridModel's specification leaves to Transformer Engine."""
    if getattr(attention, "TENorm", attention) is None:  # in 0.12 the extension cannot be imported without the engine
        from megatron.core.extensions import transformer_engine

        session.patch_log.replace(attention, "TENorm", transformer_engine.TENorm)


def install_latent_norms(session: TorchSession, module: ModuleType) -> None:
    """Let latent attention of such a specification have its norms inside the projections behind them."""
    from megatron.core.extensions import transformer_engine

    def init(original: Function, self: Module, *args: object) -> None:
        original(self, *args)
        self.fused_norm_linear_impl = self.fused_norm_linear_impl or transformer_engine.TELayerNormColumnParallelLinear

    session.patch_log.surround(module.QKNormConfigResolver, "__init__", init)


def install_fully_sharded(session: TorchSession, module: ModuleType) -> None:
    """Let ``--use-torch-fsdp2`` shard over ranks of CPUs."""
    whole = module.DeviceMesh
    session.patch_log.replace(module, "DeviceMesh", SimpleNamespace(from_group=lambda group, device: whole.from_group(group, "cpu")))


def install_fully_sharded_2(session: TorchSession, module: ModuleType) -> None:
    """Let Megatron-FSDP 2 shard over ranks of CPUs: it refuses their device, and asserts the stream on which a buffer was allocated."""
    if not hasattr(module, "fully_shard_context"):  # before 0.20
        return
    torch, buffers = sys.modules["torch"], sys.modules[f"{module.__package__}.dbuffer"]

    def of_any_device(original: Function, device: object = None, **kwargs: object) -> Result:
        return original(device=SimpleNamespace(type="cuda"), **kwargs)

    def on_a_stream(original: Function, self: Module, *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)
        self.allocation_stream = torch.cuda.current_stream()

    session.patch_log.surround(module, "fully_shard_context", of_any_device)
    session.patch_log.surround(buffers.DBuffer, "__init__", on_a_stream)


def install_layer_wise(session: TorchSession, module: ModuleType) -> None:
    """Let the layer-wise optimizer hand its weights round by Megatron's own broadcasts: Gloo gathers no tensors of unequal sizes."""

    def broadcast(original: Function, self: Module) -> None:
        session.override("layer-wise optimizer", "gathers the weights of all ranks", "broadcasts those of each", WHY)
        self.broadcast_params()

    session.patch_log.surround(module.LayerWiseDistributedOptimizer, "allgather_params", broadcast)


def install_warm_up(session: TorchSession, initialize: ModuleType) -> None:
    """Restore the generator after Megatron's warm-up of kernels, which on an accelerator draws from another generator."""
    # the number of draws depends on the tensor-parallel size, on which weights of --use-cpu-initialization must not depend

    def warm_up(original: Function, *args: object, **kwargs: object) -> None:
        from torch.random import fork_rng

        with fork_rng(devices=()):
            original(*args, **kwargs)

    session.patch_log.surround(initialize, "_warmup_jit_function", warm_up)
