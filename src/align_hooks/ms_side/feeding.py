"""From the rows that a rank is fed to the batch that the job trains on, under semi-automatic parallelism. Imports no framework.

MindSpore joins what data-parallel ranks are fed, in their order, and cuts the whole into micro-batches only then, so a rank does not
train on the rows that it was fed. MindFormers multiplies ``runner_config.batch_size`` by these numbers itself (1.3 to 1.9).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from align_hooks.errors import RefusedRun
from align_hooks.families.registry import mindformers_families, models
from align_hooks.ms_side.layouts import place


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers of ``parallel_config`` and its neighbours. ``micro_batches`` is pipeline or gradient accumulation, ``interleave``
    the pieces of each; ``whole`` says that every rank is fed the whole batch (``full_batch``)."""

    dp: int = 1
    cp: int = 1
    mp: int = 1
    pp: int = 1
    micro_batches: int = 1
    interleave: int = 1
    whole: bool = False

    def place(self, rank: int, ranks: int) -> dict[str, int]:
        """A rank's place in the grid; see :func:`.layouts.place`."""
        return place(rank, ranks, dp=self.dp, cp=self.cp, mp=self.mp, pp=self.pp)

    def rows(self, fed: int) -> int:
        """Rows of the job's batch, where a rank is fed ``fed``."""
        return fed if self.whole else fed * self.dp

    def batch_size(self, rows: int, what: object) -> int:
        """The ``runner_config.batch_size`` of which MindFormers makes a batch of ``rows``; raises RefusedRun where there is none."""
        size, left_over = divmod(rows, self.dp * self.micro_batches * self.interleave)
        if left_over:
            raise RefusedRun(
                f"{what} has {rows} rows a step, which {self.dp} data-parallel ranks, {self.micro_batches} micro-batches and "
                f"micro_batch_interleave_num {self.interleave} cannot share alike; choose numbers that divide them"
            )
        return size

    def share(self, where: dict[str, int]) -> tuple[int, int]:
        """Which part of the batch a rank at a place is fed, and of how many."""
        return (0, 1) if self.whole else (where["dp"], self.dp)

    def joined_first(self) -> dict[str, Any]:
        """What a batch's description says of it."""
        return {"micro_batches": self.micro_batches, "whole": self.whole}

    def losses(self, output: float, tokens: int, where: dict[str, int], *, per_token: bool) -> dict[str, Any]:
        """A step's losses as the rank at a place records them, of its training cell's ``output`` and the ``tokens`` that it was fed.

        The output is the sum over micro-batches, and over the pieces of each, of their means over all data-parallel ranks; the gradient
        is divided by the number of micro-batches and not by that of pieces. A per-token loss is the mean already. Other stages than the
        last put out 0; context-parallel ranks are fed the same tokens.
        """
        if where["pp"] < self.pp - 1 or (where["cp"] > 0 and not self.whole):
            return {"loss": None, "objective_loss": None, "valid_tokens": 0}
        loss = output if per_token else output / (self.micro_batches * self.interleave)
        objective = output if per_token else output / self.micro_batches
        said: dict[str, Any] = {"loss": loss, "objective_loss": objective, "valid_tokens": tokens}
        return said | ({"whole": True} if self.whole else {})


REFUSED = {
    "expert_parallel": f"this version reads {models(mindformers_families())}",
    "seq_split_num": "this version reads losses of whole sequences",
}
"""Numbers of ``parallel_config`` that this version cannot follow, and why."""


def sizes_of(config: Any, *, whole: bool) -> Sizes:
    """The sizes in MindFormers' configuration, before or after it is built.

    Without a pipeline MindFormers takes ``gradient_accumulation_steps``, with one ``micro_batch_num``, and resets the other to 1.
    Raises RefusedRun for the parallelism of :data:`REFUSED`.
    """
    section = config.get("parallel_config")
    for name, why in REFUSED.items():
        if _number(section, name) > 1:
            raise RefusedRun(f"parallel_config.{name} is above 1, and {why}; set it to 1 in the YAML")
    pp = _number(section, "pipeline_stage")
    accumulated = _number(section, "micro_batch_num") if pp > 1 else _number(config.get("runner_config"), "gradient_accumulation_steps")
    return Sizes(
        dp=_number(section, "data_parallel"),
        cp=_number(section, "context_parallel"),
        mp=_number(section, "model_parallel"),
        pp=pp,
        micro_batches=accumulated,
        interleave=_number(config, "micro_batch_interleave_num"),
        whole=whole,
    )


def _number(section: Any, name: str) -> int:
    """A number of a section, which is a mapping before MindFormers builds it and an object afterwards; 1 where it is not set."""
    value = section.get(name) if isinstance(section, dict) else getattr(section, name, None)
    return int(value or 1)


def is_fed_whole(parallel: Any) -> bool:
    """Whether the ``parallel`` section of a configuration feeds the whole batch to every rank."""
    return bool(parallel.get("full_batch")) or parallel.get("dataset_strategy") == "full_batch"


SEMI_AUTO = (1, "SEMI_AUTO_PARALLEL", "semi_auto_parallel")
"""How a configuration spells the mode: as in the YAML, or as MindFormers leaves it."""

UNREAD = (2, "AUTO_PARALLEL", "auto_parallel", 3, "HYBRID_PARALLEL", "hybrid_parallel")
"""Modes of which nothing tells, before the graph is compiled, what part of a batch a rank is fed."""


def is_semi_auto(config: Any) -> bool:
    """Whether a configuration asks for semi-automatic parallelism, before anything is built; raises RefusedRun for an unread mode."""
    mode = (config.get("parallel") or {}).get("parallel_mode")
    if not config.get("use_parallel"):
        return False
    if mode in UNREAD:
        raise RefusedRun(f"this version feeds data_parallel and semi_auto_parallel jobs; set parallel.parallel_mode, now {mode}, to 0 or 1")
    return mode in SEMI_AUTO
