"""The stage "first updates": what each optimizer did to the weights while both runs still stand together.

Weights hide an update that is a hundredth of them; so it is the change of the weights that is compared, of the first two updates that
move any. After the first both stand on weights that are equal but for rounding, and their gradients agree likewise: the second shows
what bias correction and the scale of the gradients hide from the first (betas, clipping). Neither moments nor gradients need to be
stored, and sketches of the weights will do, for the sketch of a change is the change of the sketches.
"""

from __future__ import annotations

from align_hooks.compare import distances
from align_hooks.compare.findings import as_finding, furthest, judged, unless_finite
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.limits import SKETCHED
from align_hooks.compare.sharding import common_factor
from align_hooks.compare.verdict import Finding, Stage, Status

NAME = "first updates"
UPDATES = 2


def first_updates(ladder: Ladder) -> Stage:
    """Both runs' changes of the weights, tensor by tensor; beyond the limit and not clearly so, noise alone could tell.

    Default limits are Adam's: it makes the whole rate of a gradient that is near zero, on either side of it.
    """
    pair = ladder.pair
    kinds = {str((run.manifest.get("optimizer") or {}).get("type")) for run in pair.both}
    if not ladder.noise.repeats and not all("adam" in kind.lower() for kind in kinds):
        return Stage(
            NAME, Status.NOT_COMPARED, f"what {' and '.join(sorted(kinds))} make of rounding has no default limit: measure it by --noise"
        )
    known = {*pair.steps("weights"), *pair.sketched("weights")}
    begun = next((step for step, row in enumerate(pair.rows) if not pair.is_still(row[0]["step"] + 1)), len(pair.rows))
    rows = pair.rows[begun : begun + UPDATES]
    steps = [ours["step"] for ours, theirs in rows if not (ours["skipped"] or theirs["skipped"])]
    steps = [step for step in steps if {step, step + 1} <= known and step + 1 not in pair.handed and pair.is_exact(rows[0][0]["step"])]
    errors = [_errors(ladder, step) for step in steps]
    if not any(errors):
        handed = any(ours["step"] + 1 in pair.handed for ours, _ in rows)
        why = (
            "they were made from gradients that were handed over"
            if handed
            else "both sides' weights before and after one are not on record"
        )
        return Stage(NAME, Status.NOT_COMPARED, why)
    parted = next((one for one in errors if any(finding.excess > 1 for finding in one)), None)  # what comes after follows from it
    found = parted or [finding for one in errors for finding in one]
    stage = judged(NAME, f"change of {len(errors[0])} tensors in {len(steps)} updates", found, most=None)
    if stage.status is not Status.DIFFERENT:
        return stage
    if not ladder.noise.repeats and stage.findings[0].excess <= pair.limits.clear_update:
        return Stage(NAME, Status.INCONCLUSIVE, stage.summary, furthest(stage.findings))
    factor = common_factor(found)
    return stage.telling("" if factor is None else f"every update is {factor:.6g} times the reference's")


def _errors(ladder: Ladder, step: int) -> list[Finding]:
    """Distances of one update, relative to the reference's."""
    pair = ladder.pair
    times = 1.0 if all(one in pair.steps("weights") for one in (step, step + 1)) else SKETCHED
    limit = ladder.noise.limits("updates", step, pair.limits.update)
    return [
        as_finding(one, step, lambda name: times * limit(name), unless_finite(one.reference), unless_finite(one.candidate))
        for one in distances.updates(*pair.both, step, pair.limits.eps, ladder.progress)
    ]
