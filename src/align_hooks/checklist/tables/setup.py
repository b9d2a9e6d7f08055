"""The guide's set-ups: stage 1's parameters for finding a fault, and the standard's default test, each as a row that a pair may keep to."""

from __future__ import annotations

from typing import Any

from align_hooks.checklist.defaults import default
from align_hooks.checklist.readings import precision, training
from align_hooks.checklist.readings import setup as read
from align_hooks.checklist.readings.said import LAYERS, known
from align_hooks.checklist.row import Advice, Effect, Group, Name, Occasion, Row, Says, model, numeric
from align_hooks.checklist.tables.optimizer import STYLES
from align_hooks.messages import Argument, message

GROUP = Group.SET_UPS
FAULT, ACCEPTANCE = Occasion.FINDING_A_FAULT, Occasion.ACCEPTANCE


def setup(
    name: Name, occasion: Occasion, megatron: Says, mindformers: Says, text: Argument, keeps: Any, source: str, form: Any = None
) -> Row:
    """A value that the guide sets for an occasion; both sides are held against it, not against each other."""
    return Row(name, GROUP, megatron, mindformers, Effect.NOTHING, form, advice=Advice(text, keeps, occasion), sources=(source,))


SETUP = (
    setup(
        message("row.layers_in_a_small_model"),
        FAULT,
        Says(("num_layers", "encoder_num_layers")),
        Says(LAYERS, default("num_layers")),
        "2",
        lambda layers: known(layers) and layers <= 2,
        "set-up: stage 1: num_layers",
        numeric,
    ),
    setup(
        message("row.constant_learning_rate"),
        FAULT,
        Says(("lr_decay_style",), "linear"),
        Says(("lr_schedule.type",), "constant"),
        "constant",
        lambda style: style == "constant",
        "set-up: stage 1: learning_rate_type",
        lambda kind: STYLES.get(str(kind), str(kind).lower()),
    ),
    setup(
        message("row.no_warm_up"),
        FAULT,
        Says(("lr_warmup_iters", "lr_warmup_samples", "lr_warmup_fraction"), read=read.warm),
        Says(("lr_schedule.warmup_steps", "lr_schedule.warmup_ratio"), read=read.warm),
        message("advice.no_steps"),
        lambda steps: not steps,
        "set-up: stage 1: warmup_steps",
    ),
    setup(
        "adam_eps",
        FAULT,
        Says(("adam_eps",), 1e-8),
        Says(("optimizer.eps",), 1e-8),
        "1e-8",
        lambda eps: known(eps) and abs(eps - 1e-8) < 1e-14,
        "set-up: stage 1: adam_eps",
        numeric,
    ),
    setup(
        message("row.no_dropout"),
        FAULT,
        Says(("attention_dropout", "hidden_dropout"), read=read.dropout),
        Says(model("attention_dropout", "hidden_dropout"), read=read.dropout),
        "0",
        lambda rate: rate == 0,
        "set-up: stage 1: dropout",
    ),
    setup(
        message("row.one_parallel_feature_at_a_time"),
        FAULT,
        Says(read=read.split),
        Says(read=read.split),
        message("advice.not_split"),
        lambda ways: not ways.on,
        "set-up: stage 1: parallel",
    ),
    setup(
        "bfloat16",
        ACCEPTANCE,
        Says(read=precision.megatron_compute),
        Says(read=precision.mindformers_compute),
        "bfloat16",
        lambda kind: kind == "bfloat16",
        "set-up: acceptance: precision",
    ),
    setup(
        message("row.data_parallelism_alone"),
        ACCEPTANCE,
        Says(read=read.split),
        Says(read=read.split),
        message("advice.data_parallel_only"),
        lambda ways: not ways.on,
        "set-up: acceptance: parallel",
    ),
    setup(
        message("row.eight_cards_of_one_machine"),
        ACCEPTANCE,
        Says(read=training.megatron_cards),
        Says(read=training.mindformers_cards),
        message("advice.eight_cards"),
        lambda ranks: ranks == 8,
        "set-up: acceptance: cluster",
    ),
    setup(
        message("row.a_thousand_steps_and_more"),
        ACCEPTANCE,
        Says(read=training.megatron_steps),
        Says(read=training.mindformers_steps),
        message("advice.a_thousand_steps"),
        lambda steps: known(steps) and steps >= 1000,
        "set-up: acceptance: steps",
    ),
    setup(
        message("row.data_set"),
        ACCEPTANCE,
        Says(("data_path",), None),
        Says(("train_dataset.data_loader.config.data_path", "train_dataset.data_loader.dataset_dir"), None),
        message("advice.data_sets"),
        lambda path: any(name in str(path).lower() for name in ("wiki", "alpaca")),
        "set-up: acceptance: data set",
    ),
)
