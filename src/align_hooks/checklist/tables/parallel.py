"""Parallel layout: the guide's parallel strategy, and the parallel table of the comparison with Megatron-LM."""

from __future__ import annotations

from align_hooks.checklist.readings import training as read
from align_hooks.checklist.row import Advice, Effect, Group, Row, Says, boolean, model, numeric
from align_hooks.messages import message

GROUP = Group.PARALLEL_LAYOUT

PARALLEL = (
    Row(
        "data_parallel",
        GROUP,
        Says(
            ("data_parallel_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "world_size"),
            read=read.megatron_data_parallel,
        ),
        Says(("parallel_config.data_parallel", "parallel.parallel_mode", "device_num"), read=read.mindformers_data_parallel),
        form=numeric,
        effect=Effect.ROUNDING,
        by_hand=message("by_hand.processes"),
        sources=("CheckList: parallel: data_parallel",),
    ),
    Row(
        "model_parallel",
        GROUP,
        Says(("tensor_model_parallel_size", "model_parallel_size"), 1),
        Says(("parallel_config.model_parallel",), 1),
        form=numeric,
        effect=Effect.ROUNDING,
        sources=("CheckList: parallel: model_parallel", "comparison: parallel: tensor-model-parallel-size"),
    ),
    Row(
        "pipeline_stage",
        GROUP,
        Says(("pipeline_model_parallel_size", "transformer_pipeline_model_parallel_size"), 1),
        Says(("parallel_config.pipeline_stage",), 1),
        form=numeric,
        effect=Effect.ROUNDING,
        sources=("CheckList: parallel: pipeline_stage", "comparison: parallel: pipeline-model-parallel-size"),
    ),
    Row(
        "use_seq_parallel",
        GROUP,
        Says(("sequence_parallel",), False),
        Says(("parallel_config.use_seq_parallel",), False),
        form=boolean,
        effect=Effect.ROUNDING,
        unless=read.alone_on_the_tensor,
        sources=("CheckList: parallel: use_seq_parallel", "comparison: parallel: sequence-parallel"),
    ),
    Row(
        "context_parallel",
        GROUP,
        Says(("context_parallel_size",), 1, beside=("cp_comm_type",)),
        Says(("parallel_config.context_parallel",), 1, beside=("parallel_config.context_parallel_algo",)),
        form=numeric,
        effect=Effect.ROUNDING,
        sources=("comparison: parallel: context-parallel-size",),
    ),
    Row(
        "expert_parallel",
        GROUP,
        Says(("expert_model_parallel_size",), 1),
        Says(("parallel_config.expert_parallel",), 1),
        form=numeric,
        when="expert_num",
        effect=Effect.ROUNDING,
        sources=("comparison: parallel: expert-model-parallel-size",),
    ),
    Row(
        "expert_model_parallel",
        GROUP,
        Says(("expert_tensor_parallel_size",), None),
        Says((*model("expert_model_parallel", "expert_tensor_parallel_size"), "moe_config.expert_model_parallel"), None),
        form=lambda size: numeric(size) or 1,
        when="expert_num",
        effect=Effect.ROUNDING,
        sources=("comparison: parallel: expert-tensor-parallel-size",),
    ),
    Row(
        "enable_parallel_optimizer",
        GROUP,
        Says(("use_distributed_optimizer",), False),
        Says(("parallel.enable_parallel_optimizer",), False, beside=("parallel_config.optimizer_shard",)),
        form=boolean,
        effect=Effect.ROUNDING,
        advice=Advice(message("advice.parallel_optimizer_off"), lambda on: not on),
        sources=("CheckList: parallel: enable_parallel_optimizer", "comparison: parallel: use-distributed-optimizer"),
    ),
    Row(
        "micro_batch_interleave_num",
        GROUP,
        Says(),
        Says(("micro_batch_interleave_num",), 1),
        form=numeric,
        effect=Effect.ROUNDING,
        advice=Advice(message("advice.no_interleaving"), lambda copies: copies == 1),
        sources=("CheckList: parallel: micro_batch_interleave_num",),
    ),
    Row(
        message("row.micro_batch_size"),
        GROUP,
        Says(("micro_batch_size",)),
        Says(("runner_config.batch_size",), read=read.mindformers_micro_batch),
        form=numeric,
        effect=Effect.ROUNDING,
        sources=("comparison: control: batch_size",),
    ),
    Row(
        message("row.micro_batches_of_a_step"),
        GROUP,
        Says(("global_batch_size", "micro_batch_size", "data_parallel_size"), read=read.megatron_micro_batches),
        Says(
            ("parallel_config.micro_batch_num", "runner_config.gradient_accumulation_steps", "parallel_config.pipeline_stage"),
            read=read.mindformers_micro_batches,
        ),
        form=numeric,
        effect=Effect.ROUNDING,
        sources=("CheckList: optimizer: global_batch_size",),
    ),
    Row(
        message("row.gradients_are_averaged_over_ranks"),
        GROUP,
        Says(fixed=True, note=message("note.averages")),
        Says(
            ("parallel.gradients_mean", "parallel.parallel_mode", "use_parallel", "parallel_config.data_parallel"),
            read=read.mindformers_averages,
            note=message("note.gradients_mean"),
        ),
        sources=("CheckList: parallel: data_parallel",),
    ),
    Row(
        message("row.loss_of_every_token_alike"),
        GROUP,
        Says(("calculate_per_token_loss",), False, note=message("note.mean_of_means")),
        Says(("calculate_per_token_loss", *model("calculate_per_token_loss")), False),
        form=boolean,
        fact="training.per_token_loss",
        sources=("CheckList: precision: loss",),
    ),
)
