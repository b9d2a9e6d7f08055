"""Length, logs and checkpoints: the training control table of the comparison with Megatron-LM. None of it changes a step."""

from __future__ import annotations

from functools import partial

from align_hooks.checklist import tries
from align_hooks.checklist.readings import initialisation
from align_hooks.checklist.readings import schedule as read
from align_hooks.checklist.row import CheckRow, Effect, Form, Recommendation, RowGroup, Says
from align_hooks.configuration.values import Setting
from align_hooks.messages import message

row = partial(CheckRow, group=RowGroup.TRAINING_CONTROL)
harmless = partial(row, effect=Effect.NOTHING)
"""Rows whose differences change nothing."""
NOT_THERE = message("note.no_such_setting")


def megatron_only(name: str, otherwise: Setting = None) -> CheckRow:
    """Return the row of a setting of Megatron's that MindFormers has no counterpart of."""
    return harmless(name, Says((name.replace("-", "_"),), otherwise), Says(note=NOT_THERE))


def of_callback(kind: str, key: str) -> Form:
    """Return a form that finds a setting of a callback in MindFormers' list; Megatron's value stays unchanged."""

    def form(value: Setting) -> Setting:
        if not isinstance(value, list):
            return value
        return next((callback.get(key) for callback in value if isinstance(callback, dict) and callback.get("type") == kind), None)

    return form


CONTROL = (
    harmless(
        "train-iters",
        Says(("train_iters", "train_samples", "global_batch_size"), read=read.megatron_steps),
        Says(
            ("train_dataset.data_loader.sizes", "runner_config.epochs", "lr_schedule.total_steps"),
            read=read.mindformers_steps,
            note=message("note.length"),
            tries=tries.length,
        ),
        harmless_if=read.ends_earlier,
    ),
    harmless(
        "train-samples",
        Says(("train_samples", "train_iters"), read=read.samples),
        Says(("train_dataset.data_loader.sizes", "runner_config.epochs"), read=read.samples, note=message("note.whole_batches")),
        harmless_if=read.ends_earlier,
    ),
    harmless(
        "log-interval",
        Says(("log_interval",), 100),
        Says(("callbacks",), None, note=message("note.per_print_times")),
        form=of_callback("MFLossMonitor", "per_print_times"),
    ),
    megatron_only("eval-iters", 100),
    megatron_only("eval-interval"),
    harmless("save", Says(("save",), None), Says(("output_dir",), None), form=None),
    harmless(
        "save-interval",
        Says(("save_interval",), None),
        Says(("callbacks",), None, note=message("note.save_checkpoint_steps")),
        form=of_callback("CheckpointMonitor", "save_checkpoint_steps"),
    ),
    megatron_only("non-persistent-save-interval"),
    megatron_only("non-persistent-ckpt-type"),
    megatron_only("pretrained-checkpoint"),
    harmless("ckpt-step", Says(("ckpt_step",), None), Says(("resume_training",), None, note=message("note.resume_training"))),
    harmless(
        "load",
        Says(("load",), read=initialisation.loads),
        Says((*initialisation.LOADED, *initialisation.OF_MODEL), read=initialisation.loads, beside=("run_mode", "auto_trans_ckpt")),
        advice=Recommendation(message("advice.same_weights"), bool, kept_by=initialisation.weights_loaded),
        by_hand=message("by_hand.same_weights"),
    ),
    harmless(
        "exit-interval",
        Says(("exit_interval",), None),
        Says(("callbacks", "runner_config.stop_step"), None, note=message("note.stop_step")),
        form=of_callback("TrainCallBack", "stop_step"),
    ),
    megatron_only("exit-duration-in-mins"),
)
