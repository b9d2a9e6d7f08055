"""Length, logs and checkpoints: the training control table of the comparison with Megatron-LM. None of it changes a step."""

from __future__ import annotations

from typing import Any

from align_hooks.checklist.readings import control as read_control
from align_hooks.checklist.readings import training as read
from align_hooks.checklist.row import Advice, Effect, Row, Says, numeric

GROUP = "training control"
NOT_THERE = "MindFormers has no such setting"


def megatron_only(name: str, otherwise: Any = None) -> Row:
    """A setting of Megatron's that MindFormers has no counterpart of."""
    key = name.replace("-", "_")
    return Row(name, GROUP, Says((key,), otherwise), Says(note=NOT_THERE), effect=Effect.NOTHING, sources=(f"comparison: control: {name}",))


CONTROL = (
    Row(
        "train-iters",
        GROUP,
        Says(("train_iters", "train_samples", "global_batch_size"), read=read.megatron_steps),
        Says(
            ("train_dataset.data_loader.sizes", "runner_config.epochs", "lr_schedule.total_steps"),
            read=read.mindformers_steps,
            note="sizes / global batch × epochs",
        ),
        form=numeric,
        effect=Effect.NOTHING,
        sources=("comparison: control: train-iters", "comparison: control: epochs"),
    ),
    Row(
        "train-samples",
        GROUP,
        Says(("train_samples",), None),
        Says(("train_dataset.data_loader.sizes",), None),
        form=lambda sizes: sizes[0] if isinstance(sizes, list) and sizes else sizes,
        effect=Effect.NOTHING,
        sources=("comparison: control: train-samples",),
    ),
    Row(
        "log-interval",
        GROUP,
        Says(("log_interval",), 100),
        Says(("callbacks",), None, note="per_print_times of MFLossMonitor"),
        form=lambda found: read_control.of_callback(found, "MFLossMonitor", "per_print_times"),
        effect=Effect.NOTHING,
        sources=("comparison: control: log-interval",),
    ),
    megatron_only("eval-iters", 100),
    megatron_only("eval-interval"),
    Row(
        "save",
        GROUP,
        Says(("save",), None),
        Says(("output_dir",), None),
        effect=Effect.NOTHING,
        sources=("comparison: control: save",),
    ),
    Row(
        "save-interval",
        GROUP,
        Says(("save_interval",), None),
        Says(("callbacks",), None, note="save_checkpoint_steps of CheckpointMonitor"),
        form=lambda found: read_control.of_callback(found, "CheckpointMonitor", "save_checkpoint_steps"),
        effect=Effect.NOTHING,
        sources=("comparison: control: save-interval",),
    ),
    megatron_only("non-persistent-save-interval"),
    megatron_only("non-persistent-ckpt-type"),
    megatron_only("pretrained-checkpoint"),
    Row(
        "ckpt-step",
        GROUP,
        Says(("ckpt_step",), None),
        Says(("resume_training",), None, note="resume_training names the checkpoint in load_checkpoint"),
        effect=Effect.NOTHING,
        sources=("comparison: control: ckpt-step",),
    ),
    Row(
        "load",
        GROUP,
        Says(("load",), read=read.loads),
        Says(("load_checkpoint", "checkpoint.load_path"), read=read.loads),
        effect=Effect.NOTHING,
        advice=Advice("both sides start from the same weights (ALIGN_HOOKS_LOAD_WEIGHTS)", bool),
        by_hand="whether both load the same weights: ALIGN_HOOKS_WEIGHTS=0 on both sides, then compare",
        sources=("comparison: control: load",),
    ),
    Row(
        "exit-interval",
        GROUP,
        Says(("exit_interval",), None),
        Says(("callbacks", "runner_config.stop_step"), None, note="stop_step of TrainCallBack"),
        form=lambda found: read_control.of_callback(found, "TrainCallBack", "stop_step"),
        effect=Effect.NOTHING,
        sources=("comparison: control: exit-interval",),
    ),
    megatron_only("exit-duration-in-mins"),
)
