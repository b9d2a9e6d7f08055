"""Advice that was tried: what a check tells to write is written as printed, and the check is run again."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from align_hooks.checklist.canonical_values import UNSET, same
from align_hooks.checklist.edits import Action, Edit, Form, block
from align_hooks.checklist.judge import RowOutcome
from align_hooks.checklist.result import NEWEST, Checklist, as_read, check
from align_hooks.checklist.suggest_edits import EditSearch
from align_hooks.checklist.tables import ROW
from align_hooks.configuration.mindformers import read_yaml
from align_hooks.configuration.values import MEGATRON, MINDFORMERS, Configuration
from checklist.exercises import EXERCISES, Exercise, flags, megatron, mindformers_tree


@dataclass(frozen=True)
class Planted:
    """The difference of an exercise, with either framework as the candidate."""

    exercise: Exercise
    candidate: str

    @property
    def flags(self) -> dict[str, Any]:
        """Megatron's flags."""
        other = self.exercise.other
        return flags(other["FLAGS"]) if "FLAGS" in other else self.exercise.flags

    @property
    def keys(self) -> dict[str, Any]:
        """MindFormers' keys."""
        return {key: value for key, value in self.exercise.other.items() if key != "FLAGS"}

    def check(self, mended: Configuration | None = None) -> Checklist:
        """Both sides checked, with a candidate that is mended in the place of its own."""
        sides = self.exercise.sides(self.exercise.other)
        reference, candidate = sides if self.candidate == MINDFORMERS else sides[::-1]
        return check(reference, mended or candidate)

    def as_printed(self, edits: tuple[Edit, ...], folder: Path) -> Configuration:
        """The candidate with edits, read from what a person would write: a file that stands over the YAML, or another command."""
        style = self.exercise.style
        if self.candidate == MINDFORMERS:
            (folder / "base.yaml").write_text(yaml.safe_dump(mindformers_tree(style, self.keys)), encoding="utf-8")
            return read_yaml(block(edits, "base.yaml"), "mended.yaml", folder)
        words = {Form.LEAVE_OUT: lambda edit: None, Form.ADD: lambda edit: "", Form.WRITE: lambda edit: shlex.quote(edit.written)}
        return megatron(style, {**self.flags, **{edit.name.removeprefix("--"): words[edit.form](edit) for edit in edits}})


def planted() -> Iterator[Planted]:
    for exercise in EXERCISES:
        yield Planted(exercise, MINDFORMERS)
        yield Planted(exercise, MEGATRON)


ALL = list(planted())
CASES = [pytest.param(case, id=f"{at}-{case.exercise.row}", marks=() if at % 7 == 0 else pytest.mark.slow) for at, case in enumerate(ALL)]
"""Of which a quick run of the tests takes each seventh: of both candidates, and of every style."""
NAMES = pytest.mark.parametrize("case", CASES)


def differing(checklist: Checklist) -> set[str]:
    return {one.row.id for one in checklist.of(RowOutcome.DIFFERENT)}


def without_advice(checklist: Checklist) -> set[str]:
    """Rows that differ and that nothing can be written for, or nothing that keeps the others; without any change they say why."""
    rows = checklist.of(RowOutcome.DIFFERENT)
    changed = {one.row.id for one in rows if one.change is not None and (one.change.is_safe or one.change.action is Action.FOLLOWS)}
    assert [one.row.id for one in rows if one.change is None and one.why is None] == []
    return {one.row.id for one in rows} - changed


@NAMES
def test_what_is_told_mends_what_it_is_told_of(case: Planted, tmp_path: Path) -> None:
    before = case.check()
    after = case.check(case.as_printed(before.edits, tmp_path))
    assert differing(after) <= without_advice(before)
    if not without_advice(before):
        assert [course.name for course in after.courses if course.same is False] == []


@NAMES
def test_what_is_told_of_rounding_mends_it_and_parts_nothing(case: Planted, tmp_path: Path) -> None:
    before = case.check()
    for one in before.of(RowOutcome.ROUNDING):
        if one.change is None or not one.change.is_safe or any(edit.key == "runner_wrapper.scale_sense" for edit in one.change.edits):
            continue
        edits = tuple({edit.key: edit for edit in (*before.edits, *one.change.edits)}.values())
        after = case.check(case.as_printed(edits, tmp_path))
        again = next(row for row in after.checked if row.row.id == one.row.id)
        assert again.outcome not in (RowOutcome.ROUNDING, RowOutcome.DIFFERENT)
        assert differing(after) <= without_advice(before)


NO_WAY = {
    MEGATRON: """
        activation_function rope_scaling stretch_of_latent_attentions_scores moe_device_level_aux_loss_coeff moe_comm_aux_loss_coeff
        tokens_that_are_dropped extended_tensor_parallelism_of_experts type_of_the_gradients_reduction softmax_compute_type loss_scale
        retriever_seq_length data_path
    """,
    MINDFORMERS: """
        head_dim initial_scale_of_output_projections stretch_of_latent_attentions_scores use_shared_expert_gating aux_loss_factor
        moe_device_level_aux_loss_coeff moe_comm_aux_loss_coeff load_balancing_type choices_that_this_loss_counts groups_that_are_not_chosen
        jitter_of_the_input routing_policy log_of_every_layer tokens_that_the_loss_of_further_tokens_is_divided_by softmax_compute_type
        micro_batch_size micro_batches_of_a_step data_path reset_attention_mask compressed_attention_mask recompute-activations log-interval
        save-interval
    """,
}
"""Rows of which an exercise plants a value that no setting of the side makes, or none that its family of models reads."""


def test_what_a_side_reads_is_read_again_where_it_is_written() -> None:
    left: dict[str, set[str]] = {MEGATRON: set(), MINDFORMERS: set()}
    for exercise in EXERCISES:
        row, planted = ROW[exercise.row], {"FLAGS": "", **exercise.other}
        agreeing, differing = ([as_read(side, NEWEST) for side in exercise.sides(keys)] for keys in (exercise.same, planted))
        for one, other, reference in zip(agreeing, differing, agreeing[::-1], strict=True):
            values = row.read(one), row.read(other)
            differs = UNSET not in (values[0].canonical, values[1].canonical) and not same(values[0].canonical, values[1].canonical)
            if differs and next(EditSearch(reference, {row.id: values}).ways(row, other), None) is None:
                left[one.side].add(row.id)
    assert left == {side: set(names.split()) for side, names in NO_WAY.items()}
