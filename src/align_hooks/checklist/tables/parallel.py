"""Parallel layout: the guide's parallel strategy, and the parallel table of the comparison with Megatron-LM."""

from __future__ import annotations

from functools import partial

from align_hooks.checklist.canonical_values import plain
from align_hooks.checklist.lookup import model
from align_hooks.checklist.resolver import Write
from align_hooks.checklist.resolvers import layout as read
from align_hooks.checklist.row import CheckRow, Effect, Instead, Recommendation, RowGroup, SideSpec, Worded
from align_hooks.messages import message

row = partial(CheckRow, group=RowGroup.PARALLEL_LAYOUT)
rounding = partial(row, effect=Effect.ROUNDING)
"""Rows whose differences change the rounding only."""


def size(name: str, keys: tuple[str, ...], writer: Write | None = None, instead: Instead | None = None) -> CheckRow:
    """Return the row of how many ranks split a model in one way."""
    return rounding(name, SideSpec(keys, 1), SideSpec((f"parallel_config.{name}",), 1, writer=writer), instead=instead)


PARALLEL = (
    rounding(
        "data_parallel",
        SideSpec(
            ("data_parallel_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "world_size"),
            read=read.megatron_data_parallel,
        ),
        SideSpec(("parallel_config.data_parallel", "parallel.parallel_mode", "device_num"), read=read.mindformers_data_parallel),
        by_hand=message("by_hand.processes"),
    ),
    size("model_parallel", ("tensor_model_parallel_size", "model_parallel_size")),
    size(
        "pipeline_stage",
        ("pipeline_model_parallel_size", "transformer_pipeline_model_parallel_size"),
        writer=read.stages_edits,
        instead=read.stages_too,
    ),
    rounding(
        "use_seq_parallel",
        SideSpec(("sequence_parallel",), False),
        SideSpec(("parallel_config.use_seq_parallel",), False),
        harmless_if=read.one_tensor_rank,
    ),
    rounding(
        "context_parallel",
        SideSpec(("context_parallel_size",), 1, beside=("cp_comm_type",)),
        SideSpec(("parallel_config.context_parallel",), 1, beside=("parallel_config.context_parallel_algo",)),
    ),
    rounding(
        "expert_parallel",
        SideSpec(("expert_model_parallel_size",), 1),
        SideSpec(("parallel_config.expert_parallel",), 1),
        when="expert_num",
    ),
    rounding(
        "expert_model_parallel",
        SideSpec(("expert_tensor_parallel_size",), None),
        SideSpec((*model("expert_model_parallel", "expert_tensor_parallel_size"), "moe_config.expert_model_parallel"), None),
        form=lambda size: plain(size) or 1,
        when="expert_num",
    ),
    rounding(
        "enable_parallel_optimizer",
        SideSpec(("use_distributed_optimizer",), False),
        SideSpec(("parallel.enable_parallel_optimizer",), False, beside=("parallel_config.optimizer_shard",)),
        advice=Recommendation(message("advice.parallel_optimizer_off"), lambda on: not on),
    ),
    rounding(
        "micro_batch_interleave_num",
        SideSpec(),
        SideSpec(("micro_batch_interleave_num",), 1),
        advice=Recommendation(message("advice.no_interleaving"), lambda copies: copies == 1),
    ),
    rounding(
        Worded("micro_batch_size"),
        SideSpec(("micro_batch_size",)),
        SideSpec(("runner_config.batch_size",), read=read.mindformers_micro_batch, cannot=read.adds_up_nothing),
    ),
    rounding(
        Worded("micro_batches_of_a_step"),
        SideSpec(("global_batch_size", "micro_batch_size", "data_parallel_size"), read=read.megatron_micro_batches),
        SideSpec(
            ("runner_config.gradient_accumulation_steps", "parallel_config.micro_batch_num"),
            beside=("parallel_config.pipeline_stage",),
            read=read.mindformers_micro_batches,
            cannot=read.adds_up_nothing,
        ),
        weighs=True,
    ),
    row(
        Worded("gradients_are_averaged_over_ranks"),
        SideSpec(fixed=True),
        SideSpec(
            ("parallel.gradients_mean", "parallel.parallel_mode", "use_parallel", "parallel_config.data_parallel"),
            read=read.mindformers_averages,
        ),
    ),
    row(
        Worded("loss_of_every_token_alike"),
        SideSpec(("calculate_per_token_loss",), False),
        SideSpec(("calculate_per_token_loss", *model("calculate_per_token_loss")), False),
        fact="training.per_token_loss",
        weighs=True,
    ),
)
