"""What the optimizers start from."""

from __future__ import annotations

from align_hooks.compare.findings import judged, moment_errors
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.limits import limits_for
from align_hooks.compare.stages.stage import Phase, stage
from align_hooks.compare.verdict import Finding, Place, Quantity, StageResult, Status
from align_hooks.messages import message
from align_hooks.record.reader import Run


@stage("initial optimizer state", Phase.UPDATE, place=Place.STATE, decides=False)
def initial_optimizer_state(ladder: Ladder) -> StageResult:
    """What the optimizers start from where updates were made before: of a resumed run, or one whose state was loaded. To the bit, or within
    the rounding of the type that either keeps moments in."""
    first = ladder.pair.first
    if first is None or first not in ladder.pair.steps("optimizer_state"):
        if first == 0 and not ladder.pair.converted and all(run.manifests for run in ladder.pair.both):
            return StageResult(initial_optimizer_state, Status.SAME, message("optimizer_state.no_update"))
        return StageResult(initial_optimizer_state, Status.NOT_COMPARED, ladder.pair.why_not("optimizer_state"))
    counts = [run.optimizer_state(first).updates for run in ladder.pair.both]
    if not any(counts):
        return StageResult(initial_optimizer_state, Status.SAME, message("optimizer_state.no_update"))
    types = {kind for run in ladder.pair.both for kind in run.optimizer_state(first).dtypes.values()}
    rounding = limits_for(*types)[1].eps if types - {"float32"} else 0.0
    found = moment_errors(ladder.pair, first, rounding, ladder.progress)
    if counts[0] != counts[1]:
        count = message("optimizer_state.count")
        found.insert(0, Finding(count, counts[0], counts[1], step=first, quantity=Quantity.OPTIMIZER_STATE))
    compared = message("optimizer_state.within_rounding" if rounding else "optimizer_state.to_the_bit", count=len(found))
    result = judged(initial_optimizer_state, compared, found)
    lost = [side for side, run in ladder.pair.sides if is_empty(run, first)]
    return result.telling(message("optimizer_state.not_restored", side=lost[0]) if len(lost) == 1 else None)


def is_empty(run: Run, step: int) -> bool:
    """Whether all moments of an optimizer are zero."""
    return not any(tensor.any() for moments in run.optimizer_state(step).moments.values() for tensor in moments.values())
