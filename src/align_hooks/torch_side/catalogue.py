"""Every hook on Megatron-LM, of ``hooks.txt``. Imports no framework."""

from pathlib import Path

from align_hooks.hooking.hook import Hook, HookTable
from align_hooks.quantities.activations import ACTIVATIONS
from align_hooks.quantities.batches import BATCHES
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.quantities.registry import KINDS
from align_hooks.quantities.routing import ROUTING
from align_hooks.settings import Settings

CORE = ">=0.12,<=0.20.0"
LEGACY = ">=0.12,<0.17"  # megatron.legacy.fused_kernels was removed in 0.17
TORCH = ">=2.4,<2.14"


def _recorded(settings: Settings) -> bool:
    return settings.run is not None


def _recording(settings: Settings) -> bool:
    return _recorded(settings) or bool(settings.steps(LOCAL_NORMS))


def _stepping(settings: Settings) -> bool:
    replayed = (settings.replay_batches, settings.inject_gradients, settings.replay_routing, settings.teacher)
    return _recording(settings) or any(source is not None for source in replayed)


def _gradients(settings: Settings) -> bool:
    return any(settings.steps(kind) for kind in KINDS if kind.of_gradients) or settings.inject_gradients is not None


TABLE = HookTable(
    Path(__file__).parent / "hooks.txt",
    {
        "any": Settings.any_set,
        "rehearsing": lambda settings: settings.device == "cpu",
        "recorded": _recorded,
        "recording": _recording,
        "training": lambda settings: _stepping(settings) or settings.load_weights is not None,
        "stepping": _stepping,
        "gradients": _gradients,
        "replaying": lambda settings: settings.replay_batches is not None,
        "routing": lambda settings: any(settings.steps(kind) for kind in (BATCHES, ROUTING, ACTIVATIONS)),
        "norms": lambda settings: _recorded(settings) and bool(settings.steps(LOCAL_NORMS)),
    },
    {
        "core": ("megatron-core", CORE),
        "legacy": ("megatron-core", LEGACY),
        "torch": ("torch", TORCH),
        "bridge": ("megatron-bridge", ""),
        "mindspeed": ("mindspeed", ""),
    },
)
HOOKS: tuple[Hook, ...] = TABLE.hooks("hooks")
WITNESS: tuple[Hook, ...] = TABLE.hooks("witness")
"""Hooks of the witness below ``prove``, attached whatever is set."""
