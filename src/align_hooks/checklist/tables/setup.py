"""The guide's set-ups: stage 1's parameters for finding a fault, and the standard's default test, each as a row that a pair may keep to."""

from __future__ import annotations

from functools import partial

from align_hooks.checklist.defaults import default
from align_hooks.checklist.readings import layout, precision, schedule
from align_hooks.checklist.readings import setup as read
from align_hooks.checklist.readings.lookup import LAYERS, are_numbers
from align_hooks.checklist.row import CheckRow, Effect, Occasion, Recommendation, RowGroup, Says, model
from align_hooks.checklist.tables.optimizer import STYLES
from align_hooks.messages import message

harmless = partial(CheckRow, group=RowGroup.SET_UPS, effect=Effect.NOTHING)
fault, acceptance = partial(Recommendation, setup=Occasion.FINDING_A_FAULT), partial(Recommendation, setup=Occasion.ACCEPTANCE)
"""Values that the guide sets for an occasion; both sides are compared with them, not with each other."""

SETUP = (
    harmless(
        message("row.layers_in_a_small_model"),
        Says(("num_layers", "encoder_num_layers")),
        Says(LAYERS, default("num_layers")),
        advice=fault("2", lambda layers: are_numbers(layers) and layers <= 2),
    ),
    harmless(
        message("row.constant_learning_rate"),
        Says(("lr_decay_style",), "linear"),
        Says(("lr_schedule.type",), "constant"),
        advice=fault("constant", lambda style: style == "constant"),
        form=lambda kind: STYLES.get(str(kind), str(kind).lower()),
    ),
    harmless(
        message("row.no_warm_up"),
        Says(("lr_warmup_iters", "lr_warmup_samples", "lr_warmup_fraction"), read=read.warm),
        Says(("lr_schedule.warmup_steps", "lr_schedule.warmup_ratio"), read=read.warm),
        advice=fault(message("advice.no_steps"), lambda steps: not steps),
    ),
    harmless(
        "adam_eps",
        Says(("adam_eps",), 1e-8),
        Says(("optimizer.eps",), 1e-8),
        advice=fault("1e-8", lambda eps: are_numbers(eps) and abs(eps - 1e-8) < 1e-14),
    ),
    harmless(
        message("row.no_dropout"),
        Says(("attention_dropout", "hidden_dropout"), read=read.dropout),
        Says(model("attention_dropout", "hidden_dropout"), read=read.dropout),
        advice=fault("0", lambda rate: rate == 0),
    ),
    harmless(
        message("row.one_parallel_feature_at_a_time"),
        Says(read=read.split),
        Says(read=read.split),
        advice=fault(message("advice.not_split"), lambda ways: not ways.on),
    ),
    harmless(
        "bfloat16",
        Says(read=precision.megatron_compute),
        Says(read=precision.mindformers_compute),
        advice=acceptance("bfloat16", lambda kind: kind == "bfloat16"),
    ),
    harmless(
        message("row.data_parallelism_alone"),
        Says(read=read.split),
        Says(read=read.split),
        advice=acceptance(message("advice.data_parallel_only"), lambda ways: not ways.on),
    ),
    harmless(
        message("row.eight_cards_of_one_machine"),
        Says(read=layout.megatron_cards),
        Says(read=layout.mindformers_cards),
        advice=acceptance(message("advice.eight_cards"), lambda ranks: ranks == 8),
    ),
    harmless(
        message("row.a_thousand_steps_and_more"),
        Says(read=schedule.megatron_steps),
        Says(read=schedule.mindformers_steps),
        advice=acceptance(message("advice.a_thousand_steps"), lambda steps: are_numbers(steps) and steps >= 1000),
    ),
    harmless(
        message("row.data_set"),
        Says(("data_path",), None),
        Says(("train_dataset.data_loader.config.data_path", "train_dataset.data_loader.dataset_dir"), None),
        form=None,
        advice=acceptance(message("advice.data_sets"), lambda path: any(name in str(path).lower() for name in ("wiki", "alpaca"))),
    ),
)
