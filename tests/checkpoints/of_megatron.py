"""Megatron-LM's checkpoints of a tiny model, as torch itself writes them; layouts are spelled out here once more, apart from the tables."""

import argparse
import itertools
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGTERM

import numpy as np
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from checkpoints.models import Sizes, Tensors, tensors

SIGNED = {"F64": np.int64, "F32": np.int32, "F16": np.int16, "BF16": np.int16}
RANK_0 = Path("mp_rank_00", "model_optim_rng.pt")
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def as_torch(kind: str, numbers: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(numbers).view(SIGNED[kind])).view(DTYPES[kind])


def args(sizes: Sizes, **others: object) -> argparse.Namespace:
    """Megatron-LM's arguments, as far as they tell a model, with a few that are objects."""
    of_model = {"num_layers": sizes.layers, "hidden_size": sizes.hidden, "ffn_hidden_size": sizes.ffn, "kv_channels": sizes.head_dim}
    grouped = sizes.groups != sizes.heads
    of_attention = {
        "num_attention_heads": sizes.heads,
        "group_query_attention": grouped,
        "num_query_groups": sizes.groups if grouped else 1,
    }
    of_positions = {"position_embedding_type": "rope", "rotary_base": 10000, "rotary_percent": 1.0, "max_position_embeddings": 16}
    of_layers = {"normalization": "RMSNorm", "norm_epsilon": 1e-5, "swiglu": True, "add_bias_linear": False}
    of_ends = {"vocab_size": sizes.vocabulary, "padded_vocab_size": sizes.vocabulary}
    of_experts = {"num_experts": sizes.experts or None, "moe_router_topk": 2, "moe_router_score_function": "softmax", "moe_layer_freq": 1}
    none = ("moe_ffn_hidden_size", "moe_router_topk_scaling_factor", "moe_router_num_groups", "moe_router_group_topk")
    return argparse.Namespace(
        **(of_model | of_attention | of_positions | of_layers | of_ends | of_experts | others),
        **dict.fromkeys((*none, "moe_shared_expert_intermediate_size")),
        **dict.fromkeys(("multi_latent_attention", "moe_router_pre_softmax"), False),
        untie_embeddings_and_output_weights=not sizes.tied,
        exit_signal=SIGTERM,
        params_dtype=torch.bfloat16,
    )


def natives(sizes: Sizes, content: Tensors) -> dict[str, tuple[str, np.ndarray]]:
    """Megatron's parameters, whole: local layers, experts one by one, numbered over the whole model."""
    found: dict[str, np.ndarray] = {}
    whole = {name: numbers for name, (_, numbers) in content.items()}
    ends = {"embedding.word_embeddings": "model.embed_tokens", "decoder.final_layernorm": "model.norm", "output_layer": "lm_head"}
    found |= {f"{ours}.weight": whole[f"{theirs}.weight"] for ours, theirs in ends.items() if f"{theirs}.weight" in whole}
    for layer in range(sizes.layers):
        theirs, ours = f"model.layers.{layer}", f"decoder.layers.{layer}"
        q, k, v = (whole[f"{theirs}.self_attn.{name}_proj.weight"] for name in "qkv")
        q, k, v = (rows.reshape(sizes.groups, -1, sizes.hidden) for rows in (q, k, v))
        found[f"{ours}.self_attention.linear_qkv.weight"] = np.concatenate([q, k, v], 1).reshape(-1, sizes.hidden)
        found[f"{ours}.self_attention.linear_proj.weight"] = whole[f"{theirs}.self_attn.o_proj.weight"]
        found[f"{ours}.input_layernorm.weight"] = whole[f"{theirs}.input_layernorm.weight"]
        found[f"{ours}.pre_mlp_layernorm.weight"] = whole[f"{theirs}.post_attention_layernorm.weight"]
        if sizes.experts:
            found[f"{ours}.mlp.router.weight"] = whole[f"{theirs}.block_sparse_moe.gate.weight"]
        for expert in range(sizes.experts):
            own = f"{theirs}.block_sparse_moe.experts.{expert}"
            gate, down, up = (whole[f"{own}.w{number}.weight"] for number in (1, 2, 3))
            found[f"{ours}.mlp.experts.local_experts.{expert}.linear_fc1.weight"] = np.concatenate([gate, up])
            found[f"{ours}.mlp.experts.local_experts.{expert}.linear_fc2.weight"] = down
        if not sizes.experts:
            gate, up, down = (whole[f"{theirs}.mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
            found[f"{ours}.mlp.linear_fc1.weight"], found[f"{ours}.mlp.linear_fc2.weight"] = np.concatenate([gate, up]), down
    kind = next(iter(content.values()))[0]
    return {name: (kind, numbers) for name, numbers in found.items()}


def cut(name: str, numbers: np.ndarray, rank: int, count: int) -> np.ndarray:
    """What a tensor-parallel rank has of a parameter."""
    if "norm" in name or "router" in name:
        return numbers
    if "linear_proj" in name or "linear_fc2" in name:
        return np.split(numbers, count, 1)[rank]
    if "linear_fc1" in name:
        return np.concatenate([np.split(half, count)[rank] for half in np.split(numbers, 2)])
    return np.split(numbers, count)[rank]


def mp_rank(
    path: Path,
    sizes: Sizes,
    content: Tensors | None = None,
    *,
    tensor: int = 1,
    pipeline: int = 1,
    virtual: int = 1,
    expert: int = 1,
    change: Callable[[str, dict[str, object]], object] = lambda name, value: None,
) -> Path:
    """``mp_rank_*/model_optim_rng.pt`` of every rank; ``change`` may bend a file before it is written."""
    whole = natives(sizes, content or tensors(sizes))
    told = args(
        sizes,
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline,
        expert_model_parallel_size=expert,
        expert_tensor_parallel_size=tensor,
    )
    for t, p, e in itertools.product(range(tensor), range(pipeline), range(expert)):
        name = f"mp_rank_{t:02}" + (f"_{p:03}" if pipeline > 1 else "") + (f"_{e:03}" if expert > 1 else "")
        stages = [dict(stage(sizes, whole, t, tensor, v * pipeline + p, pipeline * virtual, e, expert)) for v in range(virtual)]
        models = {"model": stages[0]} if virtual == 1 else {f"model{v}": own for v, own in enumerate(stages)}
        value = {"args": told, "checkpoint_version": 3.0, "iteration": 10, **models, "rng_state": [np.random.get_state()]}
        change(name, value)
        (path / name).mkdir(parents=True)
        torch.save(value, path / name / RANK_0.name)
    return path


def stage(
    sizes: Sizes, whole: Tensors, t: int, tensor: int, chunk: int, chunks: int, e: int, experts: int
) -> Iterator[tuple[str, torch.Tensor | None]]:
    """A pipeline stage's parameters on a rank, layers and experts counted from its own first."""
    layers, own = sizes.layers // chunks, sizes.experts // experts
    for name, (kind, numbers) in whole.items():
        parts = name.split(".")
        if parts[0] == "embedding" and chunk:
            continue
        if (parts[0] == "output_layer" or "final" in name) and chunk < chunks - 1:
            continue
        if parts[1] == "layers":
            if int(parts[2]) // layers != chunk:
                continue
            parts[2] = str(int(parts[2]) % layers)
        if "local_experts" in name:
            if int(parts[6]) // own != e:
                continue
            parts[6] = str(int(parts[6]) % own)
        yield ".".join(parts), as_torch(kind, cut(name, numbers, t, tensor))
        if name.endswith("linear_proj.weight"):
            yield ".".join((*parts[:-1], "_extra_state")), None


def torch_dist(
    path: Path, sizes: Sizes, content: Tensors | None = None, *, tensor: int = 2, stacked: bool = True, common: str = "common_state"
) -> Path:
    """A distributed checkpoint as Megatron-LM's ranks save it together, its metadata made of torch's own classes."""
    path.mkdir(parents=True)
    metadata = Metadata({}, storage_data={})
    files = [(path / f"__{rank}_0.distcp").open("wb") for rank in range(tensor)]

    def saved(rank: int, index: MetadataIndex, value: object) -> None:
        start = files[rank].tell()
        torch.save(value, files[rank])
        metadata.storage_data[index] = _StorageInfo(f"__{rank}_0.distcp", start, files[rank].tell() - start)

    for name, (kind, numbers, front) in stacks(sizes, natives(sizes, content or tensors(sizes)), stacked).items():
        chunks = []
        for at in np.ndindex(numbers.shape[:front]):
            for rank in range(tensor if "norm" not in name and "router" not in name else 1):
                for begin, part in pieces(name, numbers[at], rank, tensor):
                    offsets = (*at, *begin)
                    chunks.append(ChunkStorageMetadata(torch.Size(offsets), torch.Size((*(1,) * front, *part.shape))))
                    saved(rank, MetadataIndex(name, offsets), as_torch(kind, part.reshape((*(1,) * front, *part.shape))))
        metadata.state_dict_metadata[name] = TensorStorageMetadata(TensorProperties(DTYPES[kind]), torch.Size(numbers.shape), chunks)
    chunk = ChunkStorageMetadata(torch.Size((0,)), torch.Size((2,)))
    moment = TensorStorageMetadata(TensorProperties(torch.float32), torch.Size((2,)), [chunk])
    metadata.state_dict_metadata |= {"optimizer.state.exp_avg.output_layer.weight": moment, "rng_state/shard_0_1": BytesStorageMetadata()}
    state = {"args": args(sizes), "iteration": 10}
    if common == "common.pt":
        torch.save(state, path / "common.pt")
    elif common:
        metadata.state_dict_metadata["common_state/shard_0_1"] = BytesStorageMetadata()
        saved(0, MetadataIndex("common_state/shard_0_1"), [state])
    for file in files:
        file.close()
    (path / ".metadata").write_bytes(pickle.dumps(metadata))
    (path / "metadata.json").write_text('{"sharded_backend": "torch_dist", "sharded_backend_version": 1}')
    return path


def stacks(sizes: Sizes, whole: Tensors, stacked: bool) -> dict[str, tuple[str, np.ndarray, int]]:
    """Parameters as a distributed checkpoint has them: one of all layers, and of all experts, with the number of axes in front."""
    groups: dict[str, list[tuple[str, np.ndarray]]] = {}
    for name, own in whole.items():
        key = name.replace(".local_experts.", ".experts.")
        if stacked and ".layers." in key:
            key = ".".join(part for part in key.split(".") if not part.isdigit())
        groups.setdefault(key, []).append(own)
    found = {}
    for key, members in groups.items():
        alone = len(members) == 1 and not (stacked and ".layers." in key)
        front = () if alone else (sizes.layers, sizes.experts) if ".experts." in key else (sizes.layers,)
        found[key] = (members[0][0], np.stack([numbers for _, numbers in members]).reshape((*front, *members[0][1].shape)), len(front))
    return found


def pieces(name: str, numbers: np.ndarray, rank: int, count: int) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """The boxes of a parameter that a rank saves, each with where it begins."""
    if "norm" in name or "router" in name:
        yield (0,) * numbers.ndim, numbers
    elif "linear_fc1" in name:
        for half, rows in enumerate(np.split(numbers, 2)):
            size = len(rows) // count
            yield (half * len(rows) + rank * size, 0), rows[rank * size : (rank + 1) * size]
    else:
        axis = 1 if "linear_proj" in name or "linear_fc2" in name else 0
        size = numbers.shape[axis] // count
        yield tuple(rank * size * (one == axis) for one in range(numbers.ndim)), np.split(numbers, count, axis)[rank]
