"""Every parallel layout of Megatron that the tests know, and the single ranks that they are held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from real import frameworks

LAYERS = {"--num-layers": "4"}
"""Enough for two stages of two."""
TIED = {"--untie-embeddings-and-output-weights": None, "--vocab-size": "257", "--make-vocab-size-divisible-by": "200"}
EXPERTS = ("--num-experts", "4", "--moe-router-topk", "2", "--moe-router-load-balancing-type", "none")
TP, PP = ("--tensor-model-parallel-size", "2"), ("--pipeline-model-parallel-size", "2")
CP, EP = ("--context-parallel-size", "2"), ("--expert-model-parallel-size", "2")
DISTRIBUTED, SEQUENCE = ("--use-distributed-optimizer",), ("--sequence-parallel",)
OVERLAP = ("--overlap-grad-reduce", "--overlap-param-gather")
VIRTUAL = ("--num-layers-per-virtual-pipeline-stage", "1")
FP16 = ("--fp16", "--initial-loss-scale", "65536")

LAYOUTS: dict[str, tuple[str, int, Sequence[str]]] = {
    "TP2": ("fp32", 2, TP),
    "TP2 with sequence parallelism": ("fp32", 2, (*TP, *SEQUENCE)),
    "PP2": ("fp32", 2, PP),
    "PP2 with virtual stages": ("fp32", 2, (*PP, *VIRTUAL)),
    "DP2": ("fp32", 2, ()),
    "DP2 with the distributed optimizer": ("fp32", 2, DISTRIBUTED),
    "DP2 with the distributed optimizer, overlapped": ("fp32", 2, (*DISTRIBUTED, *OVERLAP)),
    "CP2": ("fp32", 2, CP),
    "4 micro-batches": ("fp32", 1, ("--micro-batch-size", "1")),
    "TP2 DP2 with the distributed optimizer": ("fp32", 4, (*TP, *DISTRIBUTED, "--micro-batch-size", "1")),
    "per-token loss, DP2": ("fp32", 2, ("--calculate-per-token-loss",)),
    "PP2, tied and padded": ("tied", 2, PP),
    "PP2, tied and padded, with the distributed optimizer": ("tied", 2, (*PP, *DISTRIBUTED)),
    "TP2, tied and padded": ("tied", 2, TP),
    "EP2": ("experts", 2, EP),
    "EP2 with the distributed optimizer": ("experts", 2, (*EP, *DISTRIBUTED)),
    "TP2 EP2, sequence parallel": ("experts", 2, (*TP, *SEQUENCE, *EP, "--expert-tensor-parallel-size", "1")),
    "TP2 of experts": ("experts", 2, (*TP, *SEQUENCE)),
    "CP2 of experts": ("experts", 2, CP),
    "TP2 CP2 of experts": ("experts", 4, (*TP, *SEQUENCE, *CP)),
    "bf16, TP2": ("bf16", 2, TP),
    "bf16, PP2": ("bf16", 2, PP),
    "bf16, DP2 with the distributed optimizer": ("bf16", 2, DISTRIBUTED),
    "fp16, DP2 with the distributed optimizer": ("fp16", 2, DISTRIBUTED),
    "Qwen3, TP2": ("qwen3", 2, TP),
    "Qwen3, TP2 with sequence parallelism": ("qwen3", 2, (*TP, *SEQUENCE)),
    "Qwen3, PP2": ("qwen3", 2, PP),
    "Qwen3-MoE, EP2": ("qwen3_moe", 2, EP),
    "Qwen3-MoE, TP2": ("qwen3_moe", 2, (*TP, *SEQUENCE)),
    "Qwen3-MoE, PP2": ("qwen3_moe", 2, PP),
    "DeepSeek-V3, EP2": ("deepseek_v3", 2, EP),
    "DeepSeek-V3, EP2 with the distributed optimizer": ("deepseek_v3", 2, (*EP, *DISTRIBUTED)),
    "DeepSeek-V3, PP2": ("deepseek_v3", 2, PP),
    "DeepSeek-V3 that predicts further, EP2": ("deepseek_v3_mtp", 2, EP),
    "DeepSeek-V3 that predicts further, PP2": ("deepseek_v3_mtp", 2, PP),
}
"""What a layout is called, the single rank that it is held against, its number of ranks, and its flags."""

DENSE_FIRST = {"--moe-layer-freq": "[0,1,1,1]"}
REFERENCES: dict[str, tuple[str, Sequence[str], Mapping[str, str | None]]] = {
    "fp32": (frameworks.LLAMA, (), {}),
    "tied": (frameworks.LLAMA, (), TIED),
    "experts": (frameworks.LLAMA, EXPERTS, {}),
    "bf16": (frameworks.LLAMA, ("--bf16",), {}),
    "fp16": (frameworks.LLAMA, FP16, {}),
    "qwen3": ("qwen3", (), {}),
    "qwen3_moe": ("qwen3_moe", (), {"--micro-batch-size": "2"}),  # the loss of balance is one of micro-batches
    "deepseek_v3": ("deepseek_v3", (), DENSE_FIRST),
    "deepseek_v3_mtp": ("deepseek_v3_mtp", (), DENSE_FIRST),
}
"""The family, flags and changes of a single rank."""


SPARSE = ("experts", "qwen3_moe", "deepseek_v3", "deepseek_v3_mtp")
"""Those whose layers have experts."""
