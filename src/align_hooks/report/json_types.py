"""The JSON that commands write, as types: every key with what it is. ``docs/json.md`` and ``docs/schemas/`` are made of them.

What is read by people is English text. Beside it, under ``messages``, stands the same as data. Numbers are in full precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias, TypedDict

from msgspec import Meta

from align_hooks.comparison.band.watching import Sign, Watched
from align_hooks.comparison.health import Condition
from align_hooks.comparison.verdict import Judgement, Place, Status, Unit, Verdict


def is_(words: str) -> Meta:
    """What a key is."""
    return Meta(description=words)


def one_of(words: str, values: Sequence[str] | type[Enum]) -> Meta:
    """What a key is whose value is one of some texts, or of an enumeration."""
    texts = (
        [member.text if isinstance(member, Judgement) else str(member.value) for member in values] if isinstance(values, type) else values
    )
    return Meta(description=words, extra_json_schema={"enum": list(texts)})


Number: TypeAlias = Annotated[float | Literal["nan", "inf", "-inf"], is_("A number. NaN and the infinities are texts that float() reads.")]
Data: TypeAlias = Annotated[
    Any,
    Meta(
        title="message as data",
        description="An object with an `id` and `arguments`, or with the `id` of what joins it and its `parts`; the `id` alone of a member "
        "of an enumeration; null where there is none; or a text or a number as it is.",
    ),
]
Words: TypeAlias = Annotated[str, is_("English text.")]
Steps: TypeAlias = Annotated[list[int], is_("Numbers of steps; step N is the iteration that the frameworks print as N+1.")]


class HeadJson(TypedDict):
    """Who compared what."""

    format: Annotated[int, is_("The format of this file. It goes up when the meaning of a key changes; new keys may come without.")]
    align_hooks: Annotated[str, is_("The version of align_hooks.")]
    reference: Annotated[str, is_("The run that is trusted, as it was named.")]
    candidate: Annotated[str, is_("The run that is questioned, as it was named.")]


class WhatJson(TypedDict):
    """A finding's messages as data."""

    what: Annotated[Data, is_("`what` as data.")]


class FindingJson(TypedDict):
    """One thing that was compared."""

    what: Annotated[str, is_("What was compared, in words.")]
    reference: Annotated[str, is_("The reference's value, nine digits of a number; empty where there is none to show.")]
    candidate: Annotated[str, is_("The candidate's value.")]
    error: Annotated[Number | None, is_("How far the two are apart, in `unit`; null where that is no number.")]
    limit: Annotated[Number | None, is_("What `error` may be; null where there is no limit.")]
    scale: Annotated[Number | None, is_("The number that brings the reference closest to the candidate; null where that means nothing.")]
    direction: Annotated[Number | None, is_("Of two tensors the relative error that is left once the reference is multiplied by `scale`.")]
    name: Annotated[str, is_("The canonical name of the tensor, or the name of the setting; empty of what is neither.")]
    step: Annotated[int | None, is_("The step, or of weights the number of updates made; null of no single step.")]
    quantity: Annotated[str, is_("What it is of: losses, local_norms, gradients, …; empty of none.")]
    since: Annotated[int | None, is_("The first step at which it may have come about, where that is earlier than it was seen.")]
    rank: Annotated[int | None, is_("The rank that it is of; null of none.")]
    unit: Annotated[str, one_of("What error and limit are counted in: relative, or in rounding steps.", Unit)]
    term: Annotated[str, is_("The term of AdamW that a run's updates were made with against its settings; empty of none.")]
    by_digest: Annotated[bool, is_("Whether the two are equal by the digests that both records keep; they were not read then.")]
    messages: WhatJson
    excess: Annotated[Number, is_("`error` over `limit`: above 1 it is out. inf where the error is none or not finite.")]


class StageMessagesJson(TypedDict):
    """A stage's messages as data."""

    summary: Annotated[Data, is_("`summary` as data.")]
    told: Annotated[Data, is_("`told` as data.")]


class StageJson(TypedDict):
    """One stage, in the order of a training step."""

    id: Annotated[str, is_("What the stage is called by programs: `token_losses`, `gradients`, …")]
    name: Annotated[str, is_("What it is called in words.")]
    status: Annotated[str, one_of("How it came out.", Status)]
    summary: Annotated[str, is_("What was compared, or why nothing was.")]
    told: Annotated[str, is_("What the findings have in common; empty where that is not known.")]
    messages: StageMessagesJson
    findings: Annotated[list[FindingJson], is_("What was compared, the worst first; those that agree too.")]


class BlameJson(TypedDict):
    """Where a fault sits and what it likely is."""

    place: Annotated[str, one_of("Where it sits.", Place)]
    suspects: Annotated[list[str], is_("What to suspect, the likelier first, in words.")]
    suspect_names: Annotated[list[str], is_("Of each the name of the tensor or of the setting; empty of what is neither.")]
    suspect_ids: Annotated[list[str], is_("The id of each one's message; empty of what is a name alone.")]
    causes: Annotated[list[str], is_("What it likely is, the likelier first, in words, with what is not ruled out.")]
    cause_ids: Annotated[list[str], is_("The ids of those causes that are in the table of docs/reference.md.")]


class CriterionJson(TypedDict):
    """One line of the guide's acceptance standard."""

    name: Annotated[str, is_("first_loss, mean_loss or mean_norm; of `accept` also steps.")]
    what: Annotated[str, is_("What it asks for, in words.")]
    passed: Annotated[bool | None, is_("Whether it is met; null where it could not be judged.")]
    value: Annotated[str, is_("What was measured, in words.")]
    reference_own: Annotated[str | None, is_("What repeats of the reference differ by; null without a repeat.")]


class ComparedRunJson(TypedDict):
    """One of the two runs."""

    path: Annotated[str, is_("Where it lies.")]
    ranks: Annotated[int, is_("How many ranks the job had.")]
    layout: Annotated[dict[str, int], is_("Sizes of the axes of parallelism that are larger than 1: tp, pp, cp, ep, dp.")]
    steps: Annotated[int, is_("How many steps every rank completed.")]


class CurveJson(TypedDict):
    """A number at every common step."""

    name: Annotated[str, is_("loss, grad_norm or learning_rate.")]
    steps: Steps
    reference: Annotated[list[Number | None], is_("The reference's number at each step; null where it has none.")]
    candidate: Annotated[list[Number | None], is_("The candidate's; empty of a run alone.")]
    limits: Annotated[list[Number], is_("What the relative difference may be at each step; empty where it was not judged.")]
    noise: Annotated[list[Number | None], is_("How far repeats of the reference are from it at most, relative; empty without repeats.")]


class ComparisonMessagesJson(TypedDict):
    """A comparison's messages as data."""

    headline: Annotated[Data, is_("`headline` as data.")]
    next: Annotated[Data, is_("`next` as data.")]
    notes: Annotated[list[Data], is_("Each of `notes` as data.")]


class ComparisonBodyJson(TypedDict):
    """What two runs have come out with."""

    verdict: Annotated[str, one_of("The verdict.", Verdict)]
    exit_code: Annotated[int, is_("What the command ends with: 0 aligned, 1 diverged, 3 not comparable, 4 inconclusive.")]
    first: Annotated[str | None, is_("The stage that decided the verdict, in words; null when aligned.")]
    first_id: Annotated[str | None, is_("Its id.")]
    blame: Annotated[BlameJson | None, is_("Where the fault sits and what it likely is; null unless diverged.")]
    headline: Annotated[str, is_("What differs, and from where on, in one sentence.")]
    next: Annotated[str, is_("What to do now.")]
    commands: Annotated[list[str], is_("The commands for it, as they are typed; empty where none is needed.")]
    stages: Annotated[list[StageJson], is_("All stages, in the order of a training step.")]
    model_settings: Annotated[list[FindingJson], is_("The settings of the model that differ.")]
    acceptance: Annotated[list[CriterionJson], is_("The guide's acceptance standard. The verdict does not depend on it.")]
    notes: Annotated[list[str], is_("What a reader should know: where limits come from, what makes the two unequal.")]
    messages: ComparisonMessagesJson
    eps: Annotated[Number, is_("The rounding step of the coarser of both compute types.")]
    calibration: Annotated[
        dict[str, dict[str, Number]],
        is_("What was measured on repeats of the reference: `local_norms of step 0` and the like, to name, to relative error."),
    ]
    runs: Annotated[list[ComparedRunJson], is_("Reference and candidate.")]
    curves: Annotated[list[CurveJson], is_("What both did at every common step.")]


class ComparisonJson(HeadJson, ComparisonBodyJson):
    """What `align-hooks compare --json` writes, and `Comparison.to_dict()` returns."""


class AcceptanceJson(HeadJson):
    """What `align-hooks accept --json` writes."""

    outcome: Annotated[str, one_of("Whether the standard is met.", ["accepted", "refused", "open"])]
    exit_code: Annotated[int, is_("What the command ends with: 0 accepted, 1 refused, 4 open.")]
    criteria: Annotated[list[CriterionJson], is_("The lines of the standard.")]


class AlarmJson(TypedDict):
    """What was wrong with a number."""

    number: Annotated[str, is_("The number: loss, grad_norm, …")]
    sign: Annotated[str, one_of("Why the job is called off.", Sign)]
    since: Annotated[int, is_("The step from which on it likely is wrong.")]
    seen: Annotated[int, is_("The step at which that was seen.")]
    words: Words


class WatchedNumberJson(TypedDict):
    """One number of a watched job."""

    last_step: Annotated[int | None, is_("The last step at which it was seen; null where it never was.")]
    evidence: Annotated[Number, is_("How far the evidence went towards an alarm, which is at 1.")]


class WatchBodyJson(TypedDict):
    """How a watch ended."""

    outcome: Annotated[str, one_of("The job stayed in the band, left it, stopped early, or nothing could be judged.", Watched)]
    exit_code: Annotated[int, is_("What the command ends with: 0 stayed, 1 left, 3 stopped, 4 open.")]
    steps: Annotated[int, is_("How many steps were seen.")]
    repeats: Annotated[int, is_("How many repeats of the reference make the band; 0 without one.")]
    false_alarms: Annotated[Number | None, is_("The share of honest jobs that may be called off; null without a band.")]
    alarms: Annotated[list[AlarmJson], is_("What was wrong; empty where nothing was.")]
    numbers: Annotated[dict[str, WatchedNumberJson], is_("Every number that was watched, by its name.")]


class WatchJson(HeadJson, WatchBodyJson):
    """What `align-hooks watch --json` writes when it ends."""


class HoldingJson(TypedDict):
    """A quantity of a run."""

    quantity: Annotated[str, is_("Its name: scalars, batches, local_norms, gradients, …")]
    steps: Annotated[str, is_("The steps that have it on every rank, as a variable takes them: `0-9,20`.")]
    count: Annotated[int, is_("How many these are.")]
    asked: Annotated[str, is_("For which steps the run was asked to record it.")]
    bytes: Annotated[int, is_("What it takes on disk, of all ranks.")]


class HookJson(TypedDict):
    """A hook of a rank."""

    state: Annotated[str, is_("Whether it was attached.")]
    calls: Annotated[int, is_("How often it was called.")]


class RankJson(TypedDict):
    """A rank of a run."""

    rank: Annotated[int, is_("The launcher's global rank.")]
    host: Annotated[str, is_("The machine.")]
    place: Annotated[str, is_("Its index on each axis of parallelism that has more than one; `-` without any.")]
    ended: Annotated[str, is_("How it ended.")]
    hooks: Annotated[dict[str, HookJson], is_("Its hooks by name.")]
    recorded: Annotated[dict[str, int], is_("How much it recorded, by the variable that asked for it.")]


class ProblemJson(TypedDict):
    """Why a record is not whole."""

    kind: Annotated[str, is_("The kind of the problem.")]
    words: Words
    rank: Annotated[int | None, is_("The first rank that has it; null of none.")]
    step: Annotated[int | None, is_("The first step that has it; of a run that did not finish its last whole one; null of none.")]
    place: Annotated[str, is_("The file in the run; empty of no single file.")]
    error: Annotated[str, is_("What reading the file raised; empty of nothing.")]


class RunBodyJson(TypedDict):
    """What a run holds, and how it is."""

    condition: Annotated[str, one_of("Unwell is whole, and contradicts itself or has numbers that are not finite.", Condition)]
    exit_code: Annotated[int, is_("What the command ends with: 0 clean, 1 unwell, 3 incomplete.")]
    framework: Annotated[str | None, is_("Whose run it is; null of a directory made by hand.")]
    versions: Annotated[dict[str, Any], is_("Versions of the packages, by name.")]
    compute_type: Annotated[str | None, is_("What it computes in; null where that is not known.")]
    ranks: Annotated[int, is_("How many ranks the job had.")]
    layout: Annotated[dict[str, int], is_("Sizes of the axes of parallelism that are larger than 1.")]
    steps: Annotated[int, is_("How many steps every rank completed.")]
    planned_steps: Annotated[int | None, is_("How many the run was to make; null where that is not known.")]
    holds: Annotated[list[HoldingJson], is_("What it holds.")]
    of_ranks: Annotated[list[RankJson], is_("Its ranks.")]
    problems: Annotated[list[ProblemJson], is_("Why it is not whole; empty where it is.")]
    self_check: Annotated[str, is_("What it was checked by, in words.")]
    contradictions: Annotated[list[FindingJson], is_("What it says twice and differently.")]
    remarks: Annotated[list[str], is_("What else a reader should know.")]
    curves: Annotated[list[CurveJson], is_("Its numbers at every step; `candidate`, `limits` and `noise` are empty.")]


class RunHeadJson(TypedDict):
    """Who looked at what."""

    format: Annotated[int, is_("The format of this file. It goes up when the meaning of a key changes; new keys may come without.")]
    align_hooks: Annotated[str, is_("The version of align_hooks.")]
    run: Annotated[str, is_("The run, as it was named.")]


class RunJson(RunHeadJson, RunBodyJson):
    """What `align-hooks show --json` writes."""
