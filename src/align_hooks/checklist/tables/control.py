"""Length, logs and checkpoints: the training control table of the comparison with Megatron-LM. None of it changes a step."""

from __future__ import annotations

from typing import Any

from align_hooks.checklist.readings import control as read_control
from align_hooks.checklist.readings import training as read
from align_hooks.checklist.row import Advice, Effect, Group, Row, Says, numeric
from align_hooks.messages import message

GROUP = Group.TRAINING_CONTROL
NOT_THERE = message("note.no_such_setting")


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
            note=message("note.length"),
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
        Says(("callbacks",), None, note=message("note.per_print_times")),
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
        Says(("callbacks",), None, note=message("note.save_checkpoint_steps")),
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
        Says(("resume_training",), None, note=message("note.resume_training")),
        effect=Effect.NOTHING,
        sources=("comparison: control: ckpt-step",),
    ),
    Row(
        "load",
        GROUP,
        Says(("load",), read=read.loads),
        Says(("load_checkpoint", "checkpoint.load_path"), read=read.loads),
        effect=Effect.NOTHING,
        advice=Advice(message("advice.same_weights"), bool),
        by_hand=message("by_hand.same_weights"),
        sources=("comparison: control: load",),
    ),
    Row(
        "exit-interval",
        GROUP,
        Says(("exit_interval",), None),
        Says(("callbacks", "runner_config.stop_step"), None, note=message("note.stop_step")),
        form=lambda found: read_control.of_callback(found, "TrainCallBack", "stop_step"),
        effect=Effect.NOTHING,
        sources=("comparison: control: exit-interval",),
    ),
    megatron_only("exit-duration-in-mins"),
)
