"""The guide's set-ups: stage 1's parameters for finding a fault, and the standard's default test, each as a row that a pair may keep to."""

from __future__ import annotations

from functools import partial

from align_hooks.checklist.defaults import default
from align_hooks.checklist.readings import precision, training
from align_hooks.checklist.readings import setup as read
from align_hooks.checklist.readings.said import LAYERS, known
from align_hooks.checklist.row import Advice, Effect, Form, Group, Keeps, Name, Occasion, Row, Says, model, numeric
from align_hooks.checklist.tables.optimizer import STYLES
from align_hooks.messages import Argument, message

harmless = partial(Row, group=Group.SET_UPS, effect=Effect.NOTHING)


def setup(
    name: Name,
    megatron: Says,
    mindformers: Says,
    text: Argument,
    keeps: Keeps,
    source: str,
    form: Form | None = None,
    *,
    occasion: Occasion,
) -> Row:
    """A value that the guide sets for an occasion; both sides are held against it, not against each other."""
    advice = Advice(text, keeps, occasion)
    return harmless(name, megatron, mindformers, form=form, advice=advice, sources=(f"set-up: {source}",))


fault, acceptance = partial(setup, occasion=Occasion.FINDING_A_FAULT), partial(setup, occasion=Occasion.ACCEPTANCE)

SETUP = (
    fault(
        message("row.layers_in_a_small_model"),
        Says(("num_layers", "encoder_num_layers")),
        Says(LAYERS, default("num_layers")),
        "2",
        lambda layers: known(layers) and layers <= 2,
        "stage 1: num_layers",
        numeric,
    ),
    fault(
        message("row.constant_learning_rate"),
        Says(("lr_decay_style",), "linear"),
        Says(("lr_schedule.type",), "constant"),
        "constant",
        lambda style: style == "constant",
        "stage 1: learning_rate_type",
        lambda kind: STYLES.get(str(kind), str(kind).lower()),
    ),
    fault(
        message("row.no_warm_up"),
        Says(("lr_warmup_iters", "lr_warmup_samples", "lr_warmup_fraction"), read=read.warm),
        Says(("lr_schedule.warmup_steps", "lr_schedule.warmup_ratio"), read=read.warm),
        message("advice.no_steps"),
        lambda steps: not steps,
        "stage 1: warmup_steps",
    ),
    fault(
        "adam_eps",
        Says(("adam_eps",), 1e-8),
        Says(("optimizer.eps",), 1e-8),
        "1e-8",
        lambda eps: known(eps) and abs(eps - 1e-8) < 1e-14,
        "stage 1: adam_eps",
        numeric,
    ),
    fault(
        message("row.no_dropout"),
        Says(("attention_dropout", "hidden_dropout"), read=read.dropout),
        Says(model("attention_dropout", "hidden_dropout"), read=read.dropout),
        "0",
        lambda rate: rate == 0,
        "stage 1: dropout",
    ),
    fault(
        message("row.one_parallel_feature_at_a_time"),
        Says(read=read.split),
        Says(read=read.split),
        message("advice.not_split"),
        lambda ways: not ways.on,
        "stage 1: parallel",
    ),
    acceptance(
        "bfloat16",
        Says(read=precision.megatron_compute),
        Says(read=precision.mindformers_compute),
        "bfloat16",
        lambda kind: kind == "bfloat16",
        "acceptance: precision",
    ),
    acceptance(
        message("row.data_parallelism_alone"),
        Says(read=read.split),
        Says(read=read.split),
        message("advice.data_parallel_only"),
        lambda ways: not ways.on,
        "acceptance: parallel",
    ),
    acceptance(
        message("row.eight_cards_of_one_machine"),
        Says(read=training.megatron_cards),
        Says(read=training.mindformers_cards),
        message("advice.eight_cards"),
        lambda ranks: ranks == 8,
        "acceptance: cluster",
    ),
    acceptance(
        message("row.a_thousand_steps_and_more"),
        Says(read=training.megatron_steps),
        Says(read=training.mindformers_steps),
        message("advice.a_thousand_steps"),
        lambda steps: known(steps) and steps >= 1000,
        "acceptance: steps",
    ),
    acceptance(
        message("row.data_set"),
        Says(("data_path",), None),
        Says(("train_dataset.data_loader.config.data_path", "train_dataset.data_loader.dataset_dir"), None),
        message("advice.data_sets"),
        lambda path: any(name in str(path).lower() for name in ("wiki", "alpaca")),
        "acceptance: data set",
    ),
)
