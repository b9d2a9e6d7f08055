"""Every hook on MindFormers, read top to bottom in the order of a run. Imports no framework."""

import functools

from align_hooks.hooking.hook import Hook, hook_at
from align_hooks.quantities.batches import BATCHES
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.settings import Settings

MINDFORMERS = ">=1.3,!=1.4.*,!=1.10.*,<2.2"
MINDSPORE = ">=2.4,!=2.5.*,!=2.8.*,<2.11"
"""Versions on which ``tests/matrix/mindformers.py`` ran the hooks, pair by pair, and :data:`FROM_SOURCE`. Only betas of MindFormers 1.4
need MindSpore 2.5 or 2.8. MindFormers 2.0, which followed 1.9, imports hyper-parallel, which the package index lacks: the slow tests run
it with :mod:`.pynative.hyper_parallel` in its place."""
GRAPH, PYNATIVE_TRAINER = "static graph", "PyNative"
"""MindFormers' trainers."""
PYNATIVE_VERSIONS = ">=2.0,<2.2"
"""Versions of MindFormers whose PyNative trainer was recorded."""
FROM_SOURCE = ("2.4", "2.6")
"""MindSpore versions of MindFormers 1.3 and 1.5, which the package index no longer has. Both were run on 2.7.0 instead: the sources of
2.0.0 and 2.7.0 have the same ``Model.train``, callbacks and attributes."""


def training(settings: Settings) -> bool:
    """Return whether hooks see or change the training loop."""
    replayed = (settings.load_weights, settings.inject_gradients, settings.replay_routing, settings.teacher)
    return any(source is not None for source in replayed) or settings.run is not None or bool(settings.steps(LOCAL_NORMS))


def _batches(settings: Settings) -> bool:
    return bool(settings.steps(BATCHES))


_hook = functools.partial(hook_at, handlers="align_hooks.ms_side.hooks")
_mindformers = functools.partial(_hook, package="mindformers", supports=MINDFORMERS)
_pynative = functools.partial(
    _mindformers, supports=PYNATIVE_VERSIONS, handlers="align_hooks.ms_side.pynative", variant=PYNATIVE_TRAINER, must_fire=False
)
_behind = functools.partial(_pynative, behind="pynative_config")
_in_step = functools.partial(_behind, in_step=True)
TRAINER, GPT = "mindformers.pynative.trainer.trainer", "mindformers.pynative.base_models.gpt.gpt_model"
LOSS, LAYERS = "mindformers.pynative.loss.loss", "mindformers.pynative.transformers"
FURTHER, SPARSE = f"{LAYERS}.multi_token_prediction", f"{LAYERS}.experimental_attention_variant"
PYNATIVE_STEP = {
    "update": (f"{TRAINER}:Trainer._optimizer_update", "update:wrap", "reads or replaces the gradients before they are clipped"),
    "forward": (f"{GPT}:GPTModel.construct", "forward:wrap", "sees the batch"),
    "backward": (f"{TRAINER}:Trainer._forward_backward", "forward:part", "keeps the loss of each micro-batch"),
    "losses": (f"{LOSS}:_NLLLossModule.construct", "forward:losses", "keeps the losses of tokens before the mask"),
    "auxiliary": (f"{LAYERS}.moe.moe_utils:MoEAuxLossAutoScaler.construct", "terms:auxiliary", "adds up what balances experts"),
    "prediction": (f"{FURTHER}:MTPLossAutoScaler.construct", "terms:prediction", "adds up what predicts further tokens"),
    "indexer_loss": (f"{SPARSE}.csa:save_to_indexer_losses_tracker", "terms:indexer", "adds up what teaches sparse attention's indexers"),
    "sparse": (f"{SPARSE}.indexer:CSAIndexer.construct", "sparse:wrap", "keeps the positions that sparse attention chooses"),
    "routing": (f"{LAYERS}.moe.router:TopKRouter.construct", "routing:wrap", "keeps the experts of each token"),
}
"""Hooks of a step of the PyNative trainer: patch point, handler, and why."""
PYNATIVE_HOOKS: tuple[Hook, ...] = (
    _hook(
        "hyper_parallel",
        "mindspore",
        handlers="align_hooks.ms_side.pynative",
        asked=lambda settings: settings.device == "cpu",
        package="mindspore",
        supports=MINDSPORE,
        handler="hyper_parallel:install",
        must_fire=False,
        why="stands in for hyper-parallel where a rehearsal does not have it",
    ),
    _mindformers(
        "yaml",
        "mindformers.tools.register.config:MindFormerConfig.__init__",
        handlers="align_hooks.ms_side.pynative",
        handler="config:read_static",
        asked=Settings.any_set,
        must_fire=False,
        why="refuses a YAML of the PyNative trainer before its keys are missed",
    ),
    _pynative(
        "pynative_config",
        f"{TRAINER}:Trainer._init_config",
        handler="config:wrap",
        asked=Settings.any_set,
        why="sets seed, determinism, learning rate, device and replay before anything is built from the configuration",
    ),
    _behind(
        "pynative_trainer",
        f"{TRAINER}:Trainer.__init__",
        handler="trainer:wrap",
        asked=Settings.any_set,
        why="knows weights and optimizer, feeds recorded batches, and sees the steps by a callback",
    ),
    *(
        _in_step(f"pynative_{name}", point, handler=handler, asked=_batches if name == "losses" else training, why=why)
        for name, (point, handler, why) in PYNATIVE_STEP.items()
    ),
)
HOOKS: tuple[Hook, ...] = (
    _mindformers(
        "config",
        "mindformers.core.context.build_context:build_context",
        asked=Settings.any_set,
        variant=GRAPH,
        why="sets seed, determinism, learning rate, device and replay before anything is built from the configuration",
    ),
    *PYNATIVE_HOOKS,
    _mindformers(
        "dataloader",
        "mindformers.dataset.base_dataset",
        asked=Settings.any_set,
        handler="dataloader:install",
        why="registers NumpyDataloader",
        only_a_name=True,
    ),
    _mindformers(
        "train_cell",
        "mindformers.wrapper.wrapper:MFTrainOneStepCell.__init__,MFPipelineWithLossScaleCell.__init__",
        asked=lambda settings: training(settings) or settings.device is not None,
        variant=GRAPH,
        why="knows weights and optimizer, and puts the capturing Cell in place",
    ),
    _hook(
        "training",
        "mindspore.train.model:Model.train",
        asked=training,
        package="mindspore",
        supports=MINDSPORE,
        variant=GRAPH,
        why="knows the step, reads its outputs, loads and records weights",
    ),
)
WITNESS: tuple[Hook, ...] = (
    _pynative(
        "pynative_witness",
        f"{TRAINER}:Trainer.__init__",
        handler="witness:wrap",
        asked=Settings.any_set,
        why="limits the steps, saves nothing, and keeps what must not change",
    ),
    _hook(
        "training",
        "mindspore.train.model:Model.train",
        asked=Settings.any_set,
        package="mindspore",
        supports=MINDSPORE,
        handler="witness:training",
        why="limits the steps, saves and evaluates nothing, and keeps what must not change",
    ),
)
"""Hooks of the witness below ``prove``, attached whatever is set."""
