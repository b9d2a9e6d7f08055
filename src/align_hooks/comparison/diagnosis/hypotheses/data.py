"""Causes of batches that differ."""

from __future__ import annotations

from align_hooks.comparison.data.batch_differences import Made
from align_hooks.comparison.diagnosis.advice import Advice, Situation
from align_hooks.comparison.diagnosis.hypothesis import Fault, Grounds, hypothesis
from align_hooks.comparison.stage_result import FaultLocation
from align_hooks.messages import message
from align_hooks.record.batch_statistics import SampleRelation

DATA = FaultLocation.DATA
LABELS = (*(Made.LABELS_NOT_SHIFTED, Made.LABELS_SHIFTED_TWICE, Made.LABELS_IGNORED, Made.LABELS_AFTER_ID, Made.LABELS_AT_END), Made.LABELS)
MASKS = (
    *(Made.MASK_HIDES_DOCUMENTS_END, Made.MASK_SCALED, Made.MASK_LATER, Made.MASK_HIDES_ID, Made.MASK_HIDES_LABEL),
    *(Made.MASK_HIDES_BEGINNING, Made.MASK_HIDES_END, Made.MASK_COUNTS_ALL, Made.MASK),
)
DOCUMENTS = (Made.POSITIONS_ANEW_AFTER, Made.POSITIONS_ANEW, Made.ATTENTION_OF_ITS_OWN)
POSITIONS = (Made.POSITIONS_FROM, Made.POSITIONS, Made.ATTENTION)


def mend_making(now: Situation) -> Advice:
    """Return that the way is to be mended in which a side makes its batches, which a replay would hide."""
    return Advice(message("next.mend_making"))


@hypothesis(DATA)
def other_order(fault: Fault) -> Grounds | None:
    """Both sides have the same samples, at other steps or rows."""
    return Grounds.PATTERN if fault.suspect.pattern is SampleRelation.OTHER_ORDER else None


@hypothesis(DATA)
def other_rows(fault: Fault) -> Grounds | None:
    """Both sides have the same samples, and one has some of them more often."""
    return Grounds.PATTERN if fault.suspect.pattern is SampleRelation.OTHER_TIMES else None


@hypothesis(DATA)
def other_data(fault: Fault) -> Grounds | None:
    """Samples, shapes, digests or counts differ, and no way is known in which one side makes them."""
    return Grounds.PATTERN if fault.suspect.pattern is SampleRelation.OTHER_SAMPLES else None


@hypothesis(DATA)
def other_cut(fault: Fault) -> Grounds | None:
    """The samples of one side are the other's, and begin some tokens later."""
    return Grounds.PATTERN if fault.suspect.pattern is Made.BEGINS_LATER else None


@hypothesis(DATA, source="MindFormers 1.9: pad_token_id", advice=mend_making)
def padding_hidden(fault: Fault) -> Grounds | None:
    """The mask of MindFormers leaves out the tokens with the id of pad_token_id."""
    return Grounds.PATTERN if fault.suspect.pattern is Made.MASK_HIDES_PADDING else None


@hypothesis(DATA, source="Megatron-LM 0.19: --eod-mask-loss; zoo", advice=mend_making)
def mask_made(fault: Fault) -> Grounds | None:
    """Tokens and labels agree, and loss masks differ."""
    return Grounds.PATTERN if fault.suspect.pattern in MASKS else None


@hypothesis(DATA, advice=mend_making)
def labels_made(fault: Fault) -> Grounds | None:
    """Tokens agree, and labels differ."""
    return Grounds.PATTERN if fault.suspect.pattern in LABELS else None


@hypothesis(DATA, advice=mend_making)
def documents_apart(fault: Fault) -> Grounds | None:
    """Positions begin anew within the samples of one side, or one side's attention mask is not the causal one."""
    return Grounds.PATTERN if fault.suspect.pattern in DOCUMENTS else None


@hypothesis(DATA, advice=mend_making)
def positions_made(fault: Fault) -> Grounds | None:
    """Position ids or attention masks differ in another way."""
    return Grounds.PATTERN if fault.suspect.pattern in POSITIONS else None
