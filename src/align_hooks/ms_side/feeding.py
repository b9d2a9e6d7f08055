"""The job's batch and the rows of each rank's data set, under semi-automatic parallelism. Imports no framework.

MindSpore joins the rows of all data-parallel ranks in the order of the ranks, and then cuts the joined batch into micro-batches. So a rank
does not train on the rows of its own data set. MindFormers multiplies ``runner_config.batch_size`` by these numbers itself (1.3 to 1.9).
"""

from msgspec import Struct

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.objects import Config


class Sizes(Struct, frozen=True):
    """The numbers of ``parallel_config`` and its neighbours."""

    dp: int = 1
    cp: int = 1
    mp: int = 1
    pp: int = 1
    micro_batches: int = 1
    """Micro-batches of a pipeline or of gradient accumulation."""
    interleave: int = 1
    """Pieces of a micro-batch."""
    whole: bool = False
    """Whether every rank's data set has the full batch (``full_batch``)."""

    def place(self, rank: int, ranks: int) -> dict[str, int]:
        """Map axes to a rank's indices, and ``<axis>_size`` to numbers of ranks; ``tp`` is MindFormers' model parallelism.

        Indices vary fastest along model, then context, then data parallelism, then stages. Raises RefusedRun where the sizes do not make
        the job."""
        dp, cp, mp, pp = self.dp, self.cp, self.mp, self.pp
        if dp * cp * mp * pp != ranks:
            raise RefusedRun(
                f"parallel_config has data_parallel {dp}, context_parallel {cp}, model_parallel {mp} and pipeline_stage {pp}, which make "
                f"{dp * cp * mp * pp} ranks, and the job has {ranks}; make them the same"
            )
        rest, tensor = divmod(rank, mp)
        rest, context = divmod(rest, cp)
        stage, data = divmod(rest, dp)
        indices = {"dp": data, "tp": tensor, "pp": stage, "cp": context, "ep": 0}
        return indices | {"dp_size": dp, "tp_size": mp, "pp_size": pp, "cp_size": cp, "ep_size": 1}

    def rows(self, of_rank: int) -> int:
        """Return the rows of the job's batch where a rank's data set has ``of_rank`` rows."""
        return of_rank if self.whole else of_rank * self.dp

    def batch_size(self, rows: int, what: object) -> int:
        """Return the ``runner_config.batch_size`` for a batch of ``rows``; raises RefusedRun where there is none."""
        size, left_over = divmod(rows, self.dp * self.micro_batches * self.interleave)
        if left_over:
            raise RefusedRun(
                f"{what} has {rows} rows a step, which {self.dp} data-parallel ranks, {self.micro_batches} micro-batches and "
                f"micro_batch_interleave_num {self.interleave} cannot share alike; choose numbers that divide them"
            )
        return size

    def share(self, place: dict[str, int]) -> tuple[int, int]:
        """Return the part of the batch in the data set of a rank at a place, and the number of parts."""
        return (0, 1) if self.whole else (place["dp"], self.dp)

    def losses(self, output: float, tokens: int, place: dict[str, int], *, per_token: bool) -> dict[str, float | None]:
        """Return a step's losses for the record of the rank at a place, from its training cell's ``output`` and number of ``tokens``.

        The output is a sum over micro-batches, and over the pieces of each, of means over all data-parallel ranks; a per-token loss is the
        mean already. The gradient is divided by the number of micro-batches, and not by the number of pieces."""
        # only the last stage has a loss, and context-parallel ranks have the same tokens
        if place["pp"] < self.pp - 1 or (place["cp"] > 0 and not self.whole):
            return {"loss": None, "objective_loss": None, "valid_tokens": 0}
        loss = output if per_token else output / (self.micro_batches * self.interleave)
        objective = output if per_token else output / self.micro_batches
        losses: dict[str, float | None] = {"loss": loss, "objective_loss": objective, "valid_tokens": tokens}
        return losses | ({"whole": True} if self.whole else {})


REFUSED = {
    "expert_parallel": "this version reads experts that are whole on every rank",
    "seq_split_num": "this version reads losses of whole sequences",
}
"""Numbers of ``parallel_config`` that must be 1 in this version, and why."""


def sizes_of(config: Config, *, whole: bool) -> Sizes:
    """Return the sizes in MindFormers' configuration, built or not; raise RefusedRun for the parallelism of :data:`REFUSED`."""
    section = config.get("parallel_config")
    for name, why in REFUSED.items():
        if _number(section, name) > 1:
            raise RefusedRun(f"parallel_config.{name} is above 1, and {why}; set it to 1 in the YAML")
    pp = _number(section, "pipeline_stage")
    # MindFormers resets the number that it does not use to 1
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


def _number(section: Config, name: str) -> int:
    """Return a number of a section, which is a mapping before MindFormers builds it and an object afterwards; 1 where it is not set."""
    value = section.get(name) if isinstance(section, dict) else getattr(section, name, None)
    return int(value or 1)


def is_fed_whole(parallel: Config) -> bool:
    """Return whether the ``parallel`` section of a configuration gives the full batch to every rank."""
    return bool(parallel.get("full_batch")) or parallel.get("dataset_strategy") == "full_batch"


SEMI_AUTO = (1, "SEMI_AUTO_PARALLEL", "semi_auto_parallel")
"""Spellings of the mode in a configuration: those of the YAML, and MindFormers' own."""
UNREAD = (2, "AUTO_PARALLEL", "auto_parallel", 3, "HYBRID_PARALLEL", "hybrid_parallel")
"""Modes in which a rank's part of a batch is unknown until the graph is compiled."""


def is_semi_auto(config: Config) -> bool:
    """Return whether a configuration asks for semi-automatic parallelism; raises RefusedRun for a mode that this version cannot read."""
    mode = (config.get("parallel") or {}).get("parallel_mode")
    if not config.get("use_parallel"):
        return False
    if mode in UNREAD:
        raise RefusedRun(f"this version feeds data_parallel and semi_auto_parallel jobs; set parallel.parallel_mode, now {mode}, to 0 or 1")
    return mode in SEMI_AUTO
