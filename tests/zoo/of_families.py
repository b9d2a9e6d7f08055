"""What the cases of ``of_families.txt`` are held against: Megatron, and MindFormers, whose references end in ``_ms``."""

from zoo.case import MINDFORMERS, Reference

FAMILIES = ("qwen2", "qwen3", "qwen3_moe", "deepseek_v3", "deepseek_v3_mtp")


def references(family: str) -> dict[str, Reference]:
    """Of a family the run whose weights are scattered, and those of both frameworks that start from these."""
    return {
        f"{family}_own": Reference(family=family, start=""),
        family: Reference(family=family, start=f"{family}_own", weights="scattered"),
        f"{family}_ms": Reference(family=family, start=family, fed=family, side=MINDFORMERS),
    }


REFERENCES = {name: reference for family in FAMILIES for name, reference in references(family).items()}
REFERENCES["qwen3_tied"] = Reference({"--untie-embeddings-and-output-weights": None}, family="qwen3", start="")
