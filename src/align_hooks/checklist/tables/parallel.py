"""Parallel layout: the guide's parallel strategy, and the parallel table of the comparison with Megatron-LM."""

from __future__ import annotations

from functools import partial

from align_hooks.checklist import tries
from align_hooks.checklist.readings import batch_size
from align_hooks.checklist.readings import layout as read
from align_hooks.checklist.row import CheckRow, Effect, Instead, Recommendation, RowGroup, Says, Tries, model, plain
from align_hooks.messages import message

row = partial(CheckRow, group=RowGroup.PARALLEL_LAYOUT)
rounding = partial(row, effect=Effect.ROUNDING)
"""Rows whose differences change the rounding only."""


def size(name: str, keys: tuple[str, ...], tries: Tries | None = None, instead: Instead | None = None) -> CheckRow:
    """Return the row of how many ranks split a model in one way."""
    return rounding(name, Says(keys, 1), Says((f"parallel_config.{name}",), 1, tries=tries), instead=instead)


PARALLEL = (
    rounding(
        "data_parallel",
        Says(
            ("data_parallel_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "world_size"),
            read=read.megatron_data_parallel,
        ),
        Says(("parallel_config.data_parallel", "parallel.parallel_mode", "device_num"), read=read.mindformers_data_parallel),
        by_hand=message("by_hand.processes"),
    ),
    size("model_parallel", ("tensor_model_parallel_size", "model_parallel_size")),
    size(
        "pipeline_stage",
        ("pipeline_model_parallel_size", "transformer_pipeline_model_parallel_size"),
        tries=tries.stages,
        instead=read.stages_too,
    ),
    rounding(
        "use_seq_parallel",
        Says(("sequence_parallel",), False),
        Says(("parallel_config.use_seq_parallel",), False),
        harmless_if=read.one_tensor_rank,
    ),
    rounding(
        "context_parallel",
        Says(("context_parallel_size",), 1, beside=("cp_comm_type",)),
        Says(("parallel_config.context_parallel",), 1, beside=("parallel_config.context_parallel_algo",)),
    ),
    rounding("expert_parallel", Says(("expert_model_parallel_size",), 1), Says(("parallel_config.expert_parallel",), 1), when="expert_num"),
    rounding(
        "expert_model_parallel",
        Says(("expert_tensor_parallel_size",), None),
        Says((*model("expert_model_parallel", "expert_tensor_parallel_size"), "moe_config.expert_model_parallel"), None),
        form=lambda size: plain(size) or 1,
        when="expert_num",
    ),
    rounding(
        "enable_parallel_optimizer",
        Says(("use_distributed_optimizer",), False),
        Says(("parallel.enable_parallel_optimizer",), False, beside=("parallel_config.optimizer_shard",)),
        advice=Recommendation(message("advice.parallel_optimizer_off"), lambda on: not on),
    ),
    rounding(
        "micro_batch_interleave_num",
        Says(),
        Says(("micro_batch_interleave_num",), 1),
        advice=Recommendation(message("advice.no_interleaving"), lambda copies: copies == 1),
    ),
    rounding(
        message("row.micro_batch_size"),
        Says(("micro_batch_size",)),
        Says(
            ("runner_config.batch_size",),
            read=batch_size.mindformers_micro_batch,
            tries=tries.micro_batch,
            cannot=batch_size.adds_up_nothing,
        ),
    ),
    rounding(
        message("row.micro_batches_of_a_step"),
        Says(("global_batch_size", "micro_batch_size", "data_parallel_size"), read=batch_size.megatron_micro_batches),
        Says(
            ("runner_config.gradient_accumulation_steps", "parallel_config.micro_batch_num"),
            beside=("parallel_config.pipeline_stage",),
            read=batch_size.mindformers_micro_batches,
            tries=tries.micro_batches,
            cannot=batch_size.adds_up_nothing,
        ),
        weighs=True,
    ),
    row(
        message("row.gradients_are_averaged_over_ranks"),
        Says(fixed=True, note=message("note.averages")),
        Says(
            ("parallel.gradients_mean", "parallel.parallel_mode", "use_parallel", "parallel_config.data_parallel"),
            read=read.mindformers_averages,
            tries=tries.averaged,
            note=message("note.gradients_mean"),
        ),
    ),
    row(
        message("row.loss_of_every_token_alike"),
        Says(("calculate_per_token_loss",), False, note=message("note.mean_of_means")),
        Says(("calculate_per_token_loss", *model("calculate_per_token_loss")), False),
        fact="training.per_token_loss",
        weighs=True,
    ),
)
