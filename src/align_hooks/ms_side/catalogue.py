"""Every hook on MindFormers, read top to bottom in the order of a run. Imports no framework."""

from __future__ import annotations

import functools

from align_hooks.hooking.hook import Hook
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.settings import Settings

MINDFORMERS = ">=1.3,!=1.4.*,!=1.10.*,!=2.0.*,<2.2"
MINDSPORE = ">=2.4,!=2.5.*,!=2.8.*,<2.11"
"""The versions on which ``tests/matrix/mindformers.py`` ran the hooks, pair by pair, and :data:`FROM_SOURCE`. Only betas of
MindFormers 1.4 ask for MindSpore 2.5 or 2.8. After MindFormers 1.9 came 2.0, which cannot be imported without hyper-parallel; the package
index lacks that."""

FROM_SOURCE = ("2.4", "2.6")
"""Minor versions of MindSpore that MindFormers 1.3 and 1.5 ask for and the package index no longer has. The hooks were never run on
them: both were run on 2.7.0 instead. ``Model.train``, its callbacks and the attributes that are read are alike in the sources of 2.0.0
and 2.7.0."""

_ROOM = "align_hooks.ms_side.hooks"


def _always(settings: Settings) -> bool:
    return settings.any_set()


def training(settings: Settings) -> bool:
    """Whether the training loop is seen or changed."""
    fed = (settings.load_weights, settings.inject_gradients, settings.replay_routing, settings.teacher)
    return any(source is not None for source in fed) or settings.run is not None or bool(settings.steps(LOCAL_NORMS))


_mindformers = functools.partial(Hook, package="mindformers", supports=MINDFORMERS)

HOOKS: tuple[Hook, ...] = (
    _mindformers(
        "config",
        asked=_always,
        trigger="mindformers.core.context.build_context",
        targets=("build_context",),
        body=f"{_ROOM}.config:wrap",
        why="sets seed, determinism, learning rate, device and replay before anything is built from the configuration",
    ),
    _mindformers(
        "pynative",
        asked=_always,
        trigger="mindformers.pynative.trainer.trainer",
        targets=("Trainer.train",),
        body=f"{_ROOM}.pynative:refuse",
        why="refuses the trainer of PYNATIVE_MODE, which comes to none of the others",
        must_fire=False,
    ),
    _mindformers(
        "dataloader",
        asked=_always,
        trigger="mindformers.dataset.base_dataset",
        body=f"{_ROOM}.dataloader:install",
        why="registers NumpyDataloader",
        only_a_name=True,
    ),
    _mindformers(
        "train_cell",
        asked=lambda settings: training(settings) or settings.device is not None,
        trigger="mindformers.wrapper.wrapper",
        targets=("MFTrainOneStepCell.__init__", "MFPipelineWithLossScaleCell.__init__"),
        body=f"{_ROOM}.train_cell:wrap",
        why="knows weights and optimizer, and puts the capturing Cell in place",
    ),
    Hook(
        "training",
        asked=training,
        package="mindspore",
        supports=MINDSPORE,
        trigger="mindspore.train.model",
        targets=("Model.train",),
        body=f"{_ROOM}.training:wrap",
        why="knows the step, reads its outputs, loads and records weights",
    ),
)
