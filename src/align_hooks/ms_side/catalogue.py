"""Every hook on MindFormers, of ``hooks.txt``. Imports no framework."""

from pathlib import Path

from align_hooks.hooking.hook import Hook, HookTable
from align_hooks.quantities.batches import BATCHES
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.settings import Settings

MINDFORMERS = ">=1.3,!=1.4.*,!=1.10.*,<2.2"
MINDSPORE = ">=2.4,!=2.5.*,!=2.8.*,<2.11"
"""Versions on which ``tests/matrix/mindformers.py`` ran the hooks, pair by pair, and :data:`FROM_SOURCE`. Only betas of MindFormers 1.4
need MindSpore 2.5 or 2.8. MindFormers 2.0, which followed 1.9, imports hyper-parallel, which the package index lacks: the slow tests run
it with :mod:`.pynative.hyper_parallel` in its place."""
PYNATIVE_TRAINER = "PyNative"
"""MindFormers' trainer beside that of its static graph."""
PYNATIVE_VERSIONS = ">=2.0,<2.2"
"""Versions of MindFormers whose PyNative trainer was recorded."""
FROM_SOURCE = ("2.4", "2.6")
"""MindSpore versions of MindFormers 1.3 and 1.5, which the package index no longer has. Both were run on 2.7.0 instead: the sources of
2.0.0 and 2.7.0 have the same ``Model.train``, callbacks and attributes."""


def training(settings: Settings) -> bool:
    """Return whether hooks see or change the training loop."""
    replayed = (settings.load_weights, settings.inject_gradients, settings.replay_routing, settings.teacher)
    return any(source is not None for source in replayed) or settings.run is not None or bool(settings.steps(LOCAL_NORMS))


TABLE = HookTable(
    Path(__file__).parent / "hooks.txt",
    {
        "any": Settings.any_set,
        "rehearsing": lambda settings: settings.device == "cpu",
        "training": training,
        "building": lambda settings: training(settings) or settings.device is not None,
        "batches": lambda settings: bool(settings.steps(BATCHES)),
    },
    {"mindformers": ("mindformers", MINDFORMERS), "pynative": ("mindformers", PYNATIVE_VERSIONS), "mindspore": ("mindspore", MINDSPORE)},
)
HOOKS: tuple[Hook, ...] = TABLE.hooks("hooks")
WITNESS: tuple[Hook, ...] = TABLE.hooks("witness")
"""Hooks of the witness below ``prove``, attached whatever is set."""
