"""What a few tokens that changed their experts leave open.

From the first such token on the runs compute with different experts, and each later difference may follow from that. So it settles nothing:
the pair is inconclusive, until the experts of the one run are given to the tokens of the other. Tokens that were given to the same experts
are compared all the same (:mod:`align_hooks.compare.stages.token_losses`), and what differs before speaks for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from align_hooks.compare.diagnosis.symptom import moment
from align_hooks.compare.ladder import Ladder
from align_hooks.compare.routing import has_choices
from align_hooks.compare.stages.routing import routing
from align_hooks.compare.stages.stage import Phase
from align_hooks.compare.stages.token_losses import token_losses
from align_hooks.compare.verdict import StageResult, Status
from align_hooks.messages import message, sentences

MOST = 0.5
"""The part of rows whose first tokens must agree, where the tokens that changed their experts are not known by themselves."""


def opened(stages: Sequence[StageResult], symptom: StageResult | None, ladder: Ladder) -> tuple[list[StageResult], StageResult | None]:
    """The stages and the first ``symptom``: that of the routing, inconclusive and open, where near ties stand before any other."""
    ties = next((result for result in stages if result.stage is routing and result.ties is not None), None)
    if ties is None or ties.status is Status.DIFFERENT or symptom is None or symptom.status is not Status.DIFFERENT:
        return list(stages), symptom
    step = ties.ties or 0
    tied, shown = (float(step), int(Phase.FORWARD)), moment(symptom, ladder.pair.first or 0)
    follows = has_choices(*ladder.pair.runs, step=step) or ladder.parted.begun <= MOST  # tokens on the same way differ, too
    if shown < tied or (shown == tied and symptom.stage is token_losses and follows):
        return list(stages), symptom
    summary = sentences(ties.summary, message("routing.leaves_open", stage=symptom.title))
    held = replace(ties, status=Status.INCONCLUSIVE, summary=summary, open=True)
    return [held if result is ties else result for result in stages], held
