"""The guide's set-ups: stage 1's parameters for finding a fault, and the standard's default test, each as a row that a pair may keep to."""

from __future__ import annotations

from typing import Any

from align_hooks.checklist.defaults import default
from align_hooks.checklist.readings import precision, training
from align_hooks.checklist.readings import setup as read
from align_hooks.checklist.readings.said import LAYERS, known
from align_hooks.checklist.row import Advice, Effect, Row, Says, model, numeric
from align_hooks.checklist.tables.optimizer import STYLES

GROUP = "the guide's set-ups"
FAULT, ACCEPTANCE = "finding a fault", "acceptance"


def setup(name: str, occasion: str, megatron: Says, mindformers: Says, text: str, keeps: Any, source: str, form: Any = None) -> Row:
    """A value that the guide sets for an occasion; both sides are held against it, not against each other."""
    return Row(name, GROUP, megatron, mindformers, Effect.NOTHING, form, advice=Advice(text, keeps, occasion), sources=(source,))


SETUP = (
    setup(
        "layers in a small model",
        FAULT,
        Says(("num_layers", "encoder_num_layers")),
        Says(LAYERS, default("num_layers")),
        "2",
        lambda layers: known(layers) and layers <= 2,
        "set-up: stage 1: num_layers",
        numeric,
    ),
    setup(
        "constant learning rate",
        FAULT,
        Says(("lr_decay_style",), "linear"),
        Says(("lr_schedule.type",), "constant"),
        "constant",
        lambda style: style == "constant",
        "set-up: stage 1: learning_rate_type",
        lambda kind: STYLES.get(str(kind), str(kind).lower()),
    ),
    setup(
        "no warm-up",
        FAULT,
        Says(("lr_warmup_iters", "lr_warmup_samples", "lr_warmup_fraction"), read=read.warm),
        Says(("lr_schedule.warmup_steps", "lr_schedule.warmup_ratio"), read=read.warm),
        "0 steps",
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
        "no dropout",
        FAULT,
        Says(("attention_dropout", "hidden_dropout"), read=read.dropout),
        Says(model("attention_dropout", "hidden_dropout"), read=read.dropout),
        "0",
        lambda rate: rate == 0,
        "set-up: stage 1: dropout",
    ),
    setup(
        "one parallel feature at a time",
        FAULT,
        Says(read=read.split),
        Says(read=read.split),
        "no tensor, pipeline, sequence or optimizer parallelism",
        lambda features: features == "none",
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
        "data parallelism alone",
        ACCEPTANCE,
        Says(read=read.split),
        Says(read=read.split),
        "data parallel only, where resources allow",
        lambda features: features == "none",
        "set-up: acceptance: parallel",
    ),
    setup(
        "eight cards of one machine",
        ACCEPTANCE,
        Says(read=training.megatron_cards),
        Says(read=training.mindformers_cards),
        "8, or as resources allow",
        lambda ranks: ranks == 8,
        "set-up: acceptance: cluster",
    ),
    setup(
        "a thousand steps and more",
        ACCEPTANCE,
        Says(read=training.megatron_steps),
        Says(read=training.mindformers_steps),
        "5000 steps or 12 hours, not fewer than 1000",
        lambda steps: known(steps) and steps >= 1000,
        "set-up: acceptance: steps",
    ),
    setup(
        "data set",
        ACCEPTANCE,
        Says(("data_path",), None),
        Says(("train_dataset.data_loader.config.data_path", "train_dataset.data_loader.dataset_dir"), None),
        "wikitext-103 for pre-training, alpaca for fine-tuning, unless the user has others",
        lambda path: any(name in str(path).lower() for name in ("wiki", "alpaca")),
        "set-up: acceptance: data set",
    ),
)
