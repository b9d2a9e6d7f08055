"""The stage "first updates": what each optimizer did to the weights while both runs still stand together.

Weights hide an update that is a hundredth of them; so it is the change of the weights that is compared, of the first two updates that
move any. After the first both stand on weights that are equal but for rounding, and their gradients agree likewise: the second shows
what bias correction and the scale of the gradients hide from the first (betas, clipping). Neither moments nor gradients need to be
stored, and sketches of the weights will do, for the sketch of a change is the change of the sketches.
"""

from __future__ import annotations

import math
from dataclasses import replace

from align_hooks.compare import distances
from align_hooks.compare.findings import as_finding, furthest, judged, unless_finite
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.limits import SKETCHED
from align_hooks.compare.pair import Pair
from align_hooks.compare.sharding import common_factor
from align_hooks.compare.stages.stage import Phase, stage
from align_hooks.compare.verdict import Finding, Place, Quantity, StageResult, Status, at_step
from align_hooks.messages import any_of, message
from align_hooks.record.schema import Row

UPDATES = 2
FLIPS = 1.5
"""An element whose gradient is near zero is moved by the whole rate, one way or the other: so many, in root mean square, may differ in
any tensor, however small it is."""
MOST = 0.7
"""Of the reference's update: no limit is wider, or a tensor that is never updated would pass."""


@stage("first updates", Phase.UPDATE, place=Place.OPTIMIZER, is_of_tensors=True, is_pictured=True)
def first_updates(ladder: Ladder) -> StageResult:
    """Both runs' changes of the weights, tensor by tensor; beyond the limit and not clearly so, noise alone could tell.

    Default limits are Adam's: it makes the whole rate of a gradient that is near zero, on either side of it.
    """
    pair = ladder.pair
    kinds = {str(run.facts.optimizer and run.facts.optimizer.type) for side, run in pair.sides if side not in pair.converted}
    if not ladder.noise.repeats and not all("adam" in kind.lower() for kind in kinds):
        return StageResult(first_updates, Status.NOT_COMPARED, message("first_updates.no_default_limit", optimizers=any_of(*sorted(kinds))))
    rows = _first_rows(pair)
    known = set(pair.known("weights"))
    steps = [ours.step for ours, theirs in rows if not (ours.skipped or theirs.skipped)]
    steps = [step for step in steps if {step, step + 1} <= known and step + 1 not in pair.handed]
    errors = [_errors(ladder, step) for step in steps]
    if not any(errors):
        handed = any(ours.step + 1 in pair.handed for ours, _ in rows)
        return StageResult(
            first_updates, Status.NOT_COMPARED, message("first_updates.handed_over" if handed else "first_updates.not_on_record")
        )
    summary = message("first_updates.compared", tensors=sum(map(_is_of_a_tensor, errors[0])), updates=len(steps))
    parted = next((one for one in errors if any(finding.excess > 1 for finding in one)), None)  # what comes after follows from it
    found = parted or [finding for one in errors for finding in one]
    result = judged(first_updates, summary, found, most=None)
    result = replace(result, findings=tuple(sorted(result.findings, key=lambda one: (one.excess <= 1, not _is_of_a_tensor(one)))))
    if result.status is not Status.DIFFERENT:
        return result
    clear = any(one.excess > pair.limits.clear_update or not (one.error or 0.0) <= MOST for one in result.findings)
    if not clear and not ladder.noise.repeats:
        return StageResult(first_updates, Status.INCONCLUSIVE, result.summary, furthest(result.findings))
    factor = common_factor([replace(one, limit=pair.limits.update) for one in found if one.scale is not None])
    return result if factor is None else result.telling(message("first_updates.every_update_scaled", factor=factor))


def _first_rows(pair: Pair) -> list[tuple[Row, Row]]:
    """Rows of the first steps that can move a weight, from equal weights; none where the two sides begin apart."""
    begun = next((place for place, (ours, _) in enumerate(pair.rows) if not pair.is_still(ours.step + 1)), len(pair.rows))
    rows = pair.rows[begun : begun + UPDATES]
    return rows if rows and pair.is_exact(rows[0][0].step) else []


def _errors(ladder: Ladder, step: int) -> list[Finding]:
    """Distances of one update, relative to the reference's, and that of all tensors together."""
    pair = ladder.pair
    times = 1.0 if all(one in pair.steps("weights") for one in (step, step + 1)) else SKETCHED
    measured = ladder.noise.limits("updates", step, pair.limits.update)
    shapes = pair.pieces(pair.reference)

    def limit(name: str) -> float:
        """Wide enough for one element that Adam moves the other way, and too narrow for a tensor that is not updated."""
        return min(math.hypot(times * measured(name), 2 * FLIPS / math.sqrt(math.prod(shapes[name]) or 1)), MOST)

    found = list(distances.updates(*pair.both, step, pair.limits.eps, ladder.progress))
    findings = [as_finding(one, step, limit, Quantity.UPDATES, unless_finite(one.reference), unless_finite(one.candidate)) for one in found]
    size = math.sqrt(math.fsum(one.reference**2 for one in found))
    if len(found) < 2 or not math.isfinite(size):
        return findings
    elements = sum(math.prod(shapes[one.name]) for one in found)
    widest = max(measured(one.name) for one in found)
    apart = math.sqrt(math.fsum((one.error * one.reference) ** 2 for one in found if one.error)) / size if size else 0.0
    together = min(math.hypot(widest, 2 * FLIPS / math.sqrt(elements or 1)), MOST)  # of many estimates the errors even out
    what = at_step(message("first_updates.all_tensors"), step)
    return [*findings, Finding(what, error=apart, limit=together, step=step, quantity=Quantity.UPDATES)]


def _is_of_a_tensor(finding: Finding) -> bool:
    """Whether a finding is about one tensor, and not about all of them together."""
    return bool(finding.name)
