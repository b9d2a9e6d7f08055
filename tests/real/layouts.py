"""Every parallel layout of Megatron that the tests know, and the single ranks that they are held against: ``layouts.txt``."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from align_hooks.data_file import sections
from checklist.exercises import arguments

LAYERS = {"--num-layers": "4"}
"""Enough for two stages of two."""
TP, PP = ("--tensor-model-parallel-size", "2"), ("--pipeline-model-parallel-size", "2")
DISTRIBUTED = ("--use-distributed-optimizer",)


def table(head: str) -> Iterator[list[str]]:
    """The cells of each row below a head."""
    lines = sections(Path(__file__).with_name("layouts.txt"))[head]
    return ([*map(str.strip, line.split("|"))] for line in lines)


LAYOUTS = {name: (single, int(ranks), tuple(words.split())) for name, single, ranks, words in table("layouts")}
REFERENCES: dict[str, tuple[str, tuple[str, ...], Mapping[str, str | None]]] = {
    name: (family, tuple(own.split()), arguments(change)) for name, family, own, change in table("single ranks")
}
SPECIFICATION = ("--spec", "megatron.core.models.hybrid.hybrid_layer_specs", "hybrid_stack_spec")


def started(flags: Sequence[str]) -> dict[str, object]:
    """How a layout with these flags is started otherwise than the rest: the script, flags beside them, and the environment."""
    hybrid, sharded = "--hybrid-layer-pattern" in flags, {"--use-torch-fsdp2", "--use-megatron-fsdp"} & set(flags)
    return {
        "flags": (*flags, *(SPECIFICATION if hybrid else ())),
        **({"script": Path(__file__).parents[2] / "launch" / "pretrain_hybrid.py"} if hybrid else {}),
        # which refuses the 1 that tensor parallelism asks for
        **({"environment": {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}} if sharded else {}),
    }


SPARSE = ("experts", "qwen3_moe", "deepseek_v3", "deepseek_v3_mtp", "glm4_moe", "gpt_oss")
"""The single ranks whose layers have experts."""
