"""What a capturing Cell has to do in every step, decided before the graph is compiled. Imports no framework."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.quantities.registry import KINDS
from align_hooks.quantities.sketches import GRADIENT_SKETCHES
from align_hooks.settings import Settings


@dataclass(frozen=True, slots=True)
class Tasks:
    """Take ``norms``, keep ``gradients`` until the step ends, take ``sketches``, ``inject`` gradients."""

    norms: bool = False
    gradients: bool = False
    sketches: bool = False
    inject: bool = False

    @classmethod
    def of(cls, settings: Settings, *, inject: bool) -> Tasks:
        """What a run's settings ask for."""
        keeps = any(settings.steps(kind) for kind in KINDS if kind.kept_on_device)
        return cls(bool(settings.steps(LOCAL_NORMS)), keeps, bool(settings.steps(GRADIENT_SKETCHES)), inject)

    def __bool__(self) -> bool:
        return any(astuple(self))
