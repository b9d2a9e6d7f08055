"""Trainings of a proof as their witnesses wrote them."""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from align_hooks.comparison.health import Condition
from align_hooks.job.witness import Witnessed, WitnessedStep
from align_hooks.proof.difference import differences
from align_hooks.proof.proof import HookFired, Proof, WayResult
from align_hooks.proof.training import Trained
from align_hooks.proof.ways import WAYS, Way, repeatable

STEPS = 4


def witnessed(rank: int = 0, ranks: int = 2) -> Witnessed:
    """What a rank of an honest training leaves."""
    steps = [WitnessedStep(step, [(2.5 - step / 8).hex()], {"torch": f"{step:x}"}, None if step == 1 else 0.25) for step in range(STEPS)]
    seen = Witnessed("torch", rank, ranks, 0, "/environment", "CPU", {"torch": "2.13.0", "megatron-core": "0.19.2"}, steps)
    seen.initial, seen.final = {"weight": "a", "bias": "b"}, {"weight": "c", "bias": "d"}
    seen.elements, seen.nodes, seen.waits, seen.host_memory = 10, {"MmBackward0": 3}, {"schedules.py:7": 2}, 1000
    return seen


def trained(way: Way = WAYS[0], seen: Sequence[Witnessed] | None = None, code: int | None = 0, **more: Any) -> Trained:
    """A training that ended with a code."""
    ranks = [witnessed(0), witnessed(1)] if seen is None else seen
    return Trained(way, STEPS, code, 1.0, Path("run"), ranks, (), **more)


def with_loss(step: int, loss: float, rank: int = 1) -> list[Witnessed]:
    """Two ranks, one of which has another loss at a step."""
    ranks = deepcopy([witnessed(0), witnessed(1)])
    ranks[rank].steps[step].losses = [loss.hex()]
    return ranks


class Clean:
    """The health of a record that is whole and agrees with itself."""

    condition, problems, checked = Condition.CLEAN, (), "norms of 4 of 4 steps"


def proof_of(changed: dict[str, Any] | None = None, repeated: dict[str, Any] | None = None, *, fixed: bool = False) -> Proof:
    """A proof of honest trainings, but for what some left in the place of it: witnesses, or a whole training."""

    def result(way: Way, left: dict[str, Any], plain: Trained | None) -> WayResult:
        made = left.get(way.name)
        ended = made if isinstance(made, Trained) else trained(way, made)
        return WayResult(ended, [] if plain is None or ended.failure is not None else differences(plain.witnessed, ended.witnessed))

    proof = Proof(["train"], STEPS, health=Clean())  # type: ignore[arg-type]
    for way in WAYS:
        proof.ways.append(result(way, changed or {}, proof.ways[0].trained if proof.ways else None))
    if fixed:
        for way in repeatable({"FIXED": "1"}):
            proof.repeated.append(result(way, repeated or {}, proof.repeated[0].trained if proof.repeated else None))
    proof.hooks = [HookFired("forward", "attached", 8, "sees the batch")]
    return proof
