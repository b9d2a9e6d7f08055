"""The choice of experts of a recorded run, replayed in another run.

Where two scores nearly tie, a rounding decides, and two runs compute with different experts from there on. With a replayed choice,
differences have another cause. Scores, weights of the experts and losses stay the run's own.
"""

from collections.abc import Mapping

from msgspec import Struct

from align_hooks.errors import RecordError, RefusedRun
from align_hooks.names.blocks import Array
from align_hooks.replay.source import ReplaySource


class Router(Struct, frozen=True):
    """A layer's router."""

    experts: int
    chosen: int
    """The number of experts of each token."""


class RoutingReplay(ReplaySource):
    """The experts that ``ALIGN_HOOKS_REPLAY_ROUTING`` names."""

    quantity, words, of_what, recorder = "routing", "experts", " of tokens", "ALIGN_HOOKS_ROUTING"

    def check(self, routers: Mapping[str, Router], planned: range, tokens: int | None, *, every: bool = True) -> None:
        """Raise RefusedRun unless the experts fit this rank's ``routers`` and the ``planned`` steps (:meth:`ReplaySource.plan`).

        ``tokens`` is the number in a step; None where it changes.
        """
        self.refuse_missing_ranks()
        for step in self.plan(planned, every=every):
            routing, where = self.at(step), f"{self.source}: step {step}"
            if unknown := sorted(routers.keys() - {*routing}):
                raise RefusedRun(f"{where} has no {unknown[0]}, which this model has; replay a run of this model")
            for name, router in routers.items():
                chosen, there = routing.shape(name)
                if chosen != router.chosen:
                    raise RefusedRun(
                        f"{where} gives each token to {chosen} experts in {name}, this model to {router.chosen}; set them alike"
                    )
                if tokens is not None and there != tokens:
                    raise RefusedRun(f"{where} routes {there} tokens in {name}, this run {tokens} a step; train on the same batches")

    def experts(self, step: int, name: str, router: Router) -> Array:
        """Read the experts of each token in a layer, int16 ``[rows, sequence, experts a token]``; cached for one step.

        Raises RecordError for an incomplete file, and where a token has too few experts, one twice, or an unknown one.
        """
        routing, where = self.at(step), f"{self.source}: step {step}"
        if name not in self._read:
            experts: Array = routing[name]
            if experts.size and experts.min() < 0:
                raise RecordError(
                    f"{where}: some tokens of {name} were given to fewer than {router.chosen} experts (they were dropped); "
                    f"record a run without --moe-expert-capacity-factor"
                )
            if experts.shape[2] > 1 and (experts[:, :, 1:] <= experts[:, :, :-1]).any():
                raise RecordError(f"{where}: {name} gives a token to one expert twice; copy the record again")
            if experts.size and experts.max() >= router.experts:
                raise RecordError(f"{where}: {name} chooses expert {experts.max()}, this model has {router.experts}")
            self._read[name] = experts
        return self._read[name]
