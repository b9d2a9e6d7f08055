"""The JSON of ``check``, as types; see :mod:`.json_types`."""

from __future__ import annotations

from typing import Annotated, TypedDict

from align_hooks.checklist.change import Action, Form
from align_hooks.checklist.judge import Outcome
from align_hooks.checklist.row import Effect, Group
from align_hooks.report.json_types import Data, HeadJson, Number, Steps, is_, one_of


class CellMessagesJson(TypedDict):
    """A cell's texts as data."""

    value: Data
    where: Data
    why: Data


class CellJson(TypedDict):
    """What one side holds of a row."""

    value: Annotated[str, is_("The value, as it is shown; empty where it is not known.")]
    where: Annotated[str, is_("Where it was set: a file and its line, a default, run.json.")]
    why: Annotated[str, is_("Why it is not known; empty where it is.")]
    messages: CellMessagesJson


class RowIdsJson(TypedDict):
    """A row's words as ids."""

    group: Annotated[str, one_of("The group.", Group)]
    outcome: Annotated[str, one_of("The outcome.", Outcome)]
    effect: Annotated[str, one_of("What a difference does.", Effect)]


class EditJson(TypedDict):
    """A setting to write into the candidate."""

    form: Annotated[str, one_of("Whether it is written, added as a flag, or left out.", Form)]
    key: Annotated[str, is_("The setting as its framework names it.")]
    value: Annotated[Data, is_("What to give it, as the framework reads it.")]


class ChangeJson(TypedDict):
    """What is to be done about a difference."""

    action: Annotated[str, one_of("What is to be done.", Action)]
    key: Annotated[str, is_("The setting by which, where nothing is to be written and there is one.")]
    value: Annotated[Data, is_("What the candidate, or the reference, is to come to.")]
    edits: Annotated[list[EditJson], is_("All that is to be written together.")]
    parts: Annotated[Data, is_("The name of a row that agrees and would not after the change.")]
    why: Annotated[Data, is_("What keeps the candidate from being told, where something of its own does.")]


class RowMessagesJson(TypedDict):
    """A row's texts as data."""

    why: Data
    change: Annotated[ChangeJson | None, is_("What is to be done; null where nothing is.")]
    advice: Data
    by_hand: Data


class RowJson(TypedDict):
    """A row of the CheckList."""

    id: Annotated[str, is_("The row.")]
    name: Annotated[str, is_("What it asks for.")]
    group: Annotated[str, is_("What it is about, in words.")]
    outcome: Annotated[str, is_("How it came out, in words.")]
    effect: Annotated[str, is_("What a difference does, in words.")]
    reference: CellJson
    candidate: CellJson
    why: Annotated[str, is_("What makes a difference harmless, or what is not told.")]
    change: Annotated[str, is_("What to set where.")]
    advised: Annotated[str, is_("The guide's recommendation, where a side does not keep to it.")]
    by_hand: Annotated[str, is_("What to look at by hand.")]
    sources: Annotated[list[str], is_("The rows of the guide that ask for it.")]
    advised_against: Annotated[list[str], is_("The sides that do not keep to the recommendation.")]
    ids: RowIdsJson
    messages: RowMessagesJson


class CourseMessagesJson(TypedDict):
    """A course's texts as data."""

    text: Data
    schedules: Annotated[list[Data], is_("Each of `schedules` as data.")]


class CourseJson(TypedDict):
    """What a schedule makes of every step."""

    name: Annotated[str, is_("What it gives every step, in words.")]
    same: Annotated[bool | None, is_("Whether both sides agree at every step; null where a side does not say enough.")]
    text: Annotated[str, is_("How it came out.")]
    schedules: Annotated[list[str], is_("The schedules of reference and candidate, in words.")]
    steps: Steps
    reference: Annotated[list[Number], is_("The reference's number at each step.")]
    candidate: Annotated[list[Number], is_("The candidate's.")]
    differing: Annotated[int, is_("How many steps differ.")]
    first: Annotated[int | None, is_("The first of them; null of none.")]
    most: Annotated[int | None, is_("The step at which the two are furthest apart.")]
    id: Annotated[str, is_("learning_rate or weight_decay.")]
    messages: CourseMessagesJson


class UncoveredJson(TypedDict):
    """A setting that no row looks at."""

    name: Annotated[str, is_("The setting.")]
    value: Annotated[str, is_("Its value.")]
    where: Annotated[str, is_("Where it was set.")]
    matters: Annotated[bool, is_("Whether it may change the result.")]


class LookMessagesJson(TypedDict):
    """The texts of a look at batches as data."""

    problems: Annotated[list[Data], is_("Each of `problems` as data.")]
    notes: Annotated[list[Data], is_("Each of `notes` as data.")]


class LookJson(TypedDict):
    """What a run's batches hold."""

    steps: Steps
    rows: Annotated[int, is_("Rows of all batches.")]
    tokens: Annotated[int, is_("Tokens of all batches.")]
    counted: Annotated[int, is_("Those that count in the loss.")]
    smallest: Annotated[int | None, is_("The smallest id.")]
    largest: Annotated[int | None, is_("The largest id.")]
    shifted: Annotated[int, is_("Labels that are the next token.")]
    pairs: Annotated[int, is_("Labels that stand beside a next token.")]
    special: Annotated[
        dict[str, tuple[int, int, int]], is_("Of each special id how often it is a token, how often where the loss counts, and the id.")
    ]
    problems: Annotated[list[str], is_("What no training wants.")]
    notes: Annotated[list[str], is_("What a reader should know.")]
    decoded: Annotated[list[tuple[str, str]], is_("Place and text of some samples, where a tokenizer was named.")]
    messages: LookMessagesJson


class SideMessagesJson(TypedDict):
    """A side's texts as data."""

    notes: Annotated[list[Data], is_("Each of `notes` as data.")]
    traps: Annotated[list[Data], is_("Each of `traps` as data.")]
    gaps: Annotated[list[Data], is_("Each of `gaps` as data.")]


class SideJson(TypedDict):
    """One side of a check."""

    framework: Annotated[str, is_("Whose configuration it is.")]
    source: Annotated[str, is_("What it was read of.")]
    recorded: Annotated[bool, is_("Whether it is a recorded run.")]
    notes: Annotated[list[str], is_("How it was read.")]
    traps: Annotated[list[str], is_("What does not do what it seems to do.")]
    gaps: Annotated[list[str], is_("Where it may say more that could not be followed.")]
    not_covered: Annotated[list[UncoveredJson], is_("Settings that no row looks at.")]
    data: Annotated[LookJson | None, is_("Its batches; null of what is no record, or recorded none.")]
    messages: SideMessagesJson


class CheckMessagesJson(TypedDict):
    """A check's texts as data."""

    data: Data


class CheckBodyJson(TypedDict):
    """How two sides came out."""

    verdict: Annotated[str, is_("Clean, differs, or not everything that matters is told, in words.")]
    exit_code: Annotated[int, is_("What the command ends with: 0 clean, 1 something differs that changes the result, 4 not all is told.")]
    counts: Annotated[dict[str, int], is_("How many rows came out in each way, by the words of the way.")]
    rows: Annotated[list[RowJson], is_("Every row of the CheckList, in its order.")]
    to_write: Annotated[str, is_("What to write into the candidate, as sections of its YAML; empty of nothing.")]
    courses: Annotated[list[CourseJson], is_("Learning rate and weight decay of every step.")]
    sides: Annotated[list[SideJson], is_("Reference and candidate.")]
    data: Annotated[str, is_("How the batches of two records relate; empty where nobody looked.")]
    data_alike: Annotated[bool | None, is_("Whether they are the same; null where nobody looked.")]
    differ_and_not_covered: Annotated[list[tuple[str, str, str]], is_("Settings without a row that differ: name, and both values.")]
    messages: CheckMessagesJson


class CheckJson(HeadJson, CheckBodyJson):
    """What `align-hooks check --json` writes."""
