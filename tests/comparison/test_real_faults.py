"""What faults of public histories taught, each on runs made by hand: a row of ``tests/zoo/commits`` shows each for real."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.data.token_losses import AffectedRows
from align_hooks.comparison.diagnosis.hypotheses.backward import gradients_gathered
from align_hooks.comparison.diagnosis.hypotheses.forward import across_documents
from align_hooks.comparison.diagnosis.hypothesis import Fault
from align_hooks.comparison.finding import Finding, Metric
from align_hooks.comparison.patterns.sharding import explanation
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import FaultLocation, Status
from align_hooks.comparison.stages.hyper_parameters import OF_OPTIMIZER
from align_hooks.comparison.verdict import Verdict
from align_hooks.messages import Message, Side, as_data, rendered
from align_hooks.record.format.terms import AUXILIARY, PREDICTION, Z_LOSS
from comparison.conftest import Compared, asking, stage
from sharded import Grid, Model, write
from synthetic import ROUTERS, SHAPES, STEPS, Synthetic, optimizer, routed, tensors
from worded import arguments, ids

VALUES = np.random.default_rng(5).standard_normal((2, 8, 4)).astype(np.float32)
ARGUMENTS = {"lr": "0.001", "min_lr": "0.0", "lr_decay_style": "linear", "train_iters": "3", "hidden_size": "64"}


def with_experts(values: np.ndarray | None) -> Synthetic:
    """A run that recorded its choices of experts, and what experts put out where that is given."""
    run = deepcopy(routed("routing"))
    if values is not None:
        run.settings |= {"activations": "0"}
        run.activations = {0: {router.removesuffix(".gate"): values for router in ROUTERS}}
    return run


def chosen_otherwise(run: Synthetic) -> Synthetic:
    """All tokens of the first step on record as given to the experts that they were not given to."""
    for router in ROUTERS:
        run.routing[0][router] = (run.routing[0][router] + 2) % 4
    return run


@pytest.mark.parametrize(("values", "refuted"), [(VALUES, True), (None, False)])
def test_choices_that_the_experts_outputs_refute_accuse_nobody(compared: Compared, values: np.ndarray | None, refuted: bool) -> None:
    found = compared(chosen_otherwise(with_experts(values)), against=with_experts(values))
    assert (found.verdict is Verdict.ALIGNED) == refuted
    assert stage(found, "routing").status is (Status.NOT_COMPARED if refuted else Status.DIFFERENT)
    assert ("routing.refuted" in ids(stage(found, "routing").summary)) == refuted


@pytest.mark.parametrize(("point", "holds"), [("self_attn.core", True), ("", True), ("self_attn.query", False), ("self_attn.key", False)])
def test_attention_to_another_document_is_no_fault_of_queries_and_keys(point: str, holds: bool) -> None:
    behind: Any = SimpleNamespace(divergence=SimpleNamespace(rows=SimpleNamespace(rows=AffectedRows.DOCUMENTS)))
    assert across_documents.test is not None
    assert across_documents.test(Fault(behind, FaultLocation.FORWARD, (), (point,), point)) == holds


LAYER = "model.layers.0.self_attn."
POINTS = [f"{LAYER}{kind}" for kind in ("q_proj", "k_proj", "v_proj", "query", "key", "value", "core")]


def with_points(*wrong: str) -> Synthetic:
    """A run that recorded the points of an attention, some of them other than they should be."""
    run = Synthetic()
    run.settings |= {"activations": "0"}
    run.activations = {0: {name: VALUES * np.float32(1.5 if name.removeprefix(LAYER) in wrong else 1) for name in POINTS}}
    return run


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        (("query", "key", "core"), "rotary_positions"),
        (("query", "key", "value", "core"), "projection"),
        (("q_proj", "query", "core"), "projection"),
    ],
)
def test_rotary_positions_are_no_cause_where_values_differ_too(compared: Compared, wrong: tuple[str, ...], cause: str) -> None:
    assert compared(with_points(*wrong), against=with_points()).blame.causes[0] == cause


@pytest.mark.parametrize(("ranks", "gathered"), [(1, False), (2, True)])
def test_gradients_are_gathered_from_several_ranks_alone(ranks: int, gathered: bool) -> None:
    runs = [SimpleNamespace(world_size=1), SimpleNamespace(world_size=ranks)]
    seen: Any = SimpleNamespace(
        pair=SimpleNamespace(runs=runs), status=lambda _: Status.SAME, only_tensor=None, tensors=SimpleNamespace(common=None)
    )
    assert gradients_gathered.test is not None
    assert gradients_gathered.test(Fault(seen, FaultLocation.GRADIENTS, ())) == gathered


@pytest.mark.parametrize(("factor", "told"), [(1.0, True), (2.0, False)])
def test_what_a_rehearsal_levelled_is_named_where_all_agrees(compared: Compared, factor: float, told: bool) -> None:
    candidate = Synthetic()
    levelled = dict.fromkeys(("args.moe_grouped_gemm", "FlashAttention", "MASTER_PORT"), "ALIGN_HOOKS_DEVICE") | {
        "args.seed": "ALIGN_HOOKS_SEED"
    }
    candidate.facts["overrides"] = [{"what": name, "before": True, "after": False, "why": why} for name, why in levelled.items()]
    candidate.rows[0]["loss"] *= factor
    found = compared(candidate)
    assert (found.verdict is Verdict.ALIGNED) == told
    notes = [note for note in found.notes if isinstance(note, Message) and note.id == "notes.untried"]
    assert [rendered(note) for note in notes] == [
        "not tried of the candidate, which a rehearsal on a CPU turned off or replaced: FlashAttention, args.moe_grouped_gemm"
    ][: int(told)]


@pytest.mark.parametrize(("decay", "causes"), [(0.5, ()), (0.0, ("other_decay",))])
def test_another_rate_of_decay_is_no_other_grouping(compared: Compared, decay: float, causes: tuple[str, ...]) -> None:
    candidate = asking(Synthetic(), weights="0", optimizer_state="none")
    candidate.optimizer = optimizer()
    candidate.optimizer["groups"][0]["weight_decay"] = decay  # type: ignore[index]
    assert compared(candidate).blame.causes == causes


def masked(row: int, *, lost: bool) -> Synthetic:
    """A run of micro-batches of one row; no token of a row of step 1 counts, and the step's objective may be NaN."""
    run = asking(Synthetic(), weights="0", optimizer_state="none")
    for scalars in run.rows:
        scalars["learning_rate"] = 0.0  # so that all steps have the weights of the first
    run.micro_batches = [1] * len(run.batches[0]["loss_mask"])
    run.batches[1]["loss_mask"][row] = 0
    if lost:
        run.rows[1]["objective_loss"] = float("nan")
    return run


@pytest.mark.parametrize("row", [0, 2])
def test_a_loss_divided_by_no_token_is_told_with_its_micro_batch(compared: Compared, row: int) -> None:
    found = compared(masked(row, lost=True), against=masked(row, lost=False))
    assert (found.blame.place, found.blame.causes) == (FaultLocation.NORMALISATION, ("divided_by_nothing",))
    told = arguments("later_losses.divided_by_nothing", found.headline)
    assert (told["side"], told["number"], told["rank"]) == (Side.CANDIDATE, row, 0)


def test_a_loss_that_is_lost_with_tokens_in_every_micro_batch_is_no_such_thing(compared: Compared) -> None:
    candidate = masked(0, lost=True)
    candidate.batches[1]["loss_mask"][0, 0] = 1
    reference = masked(0, lost=False)
    reference.batches[1]["loss_mask"][0, 0] = 1
    assert "later_losses.divided_by_nothing" not in ids(compared(candidate, against=reference).headline)


def resumed(rates: list[float], told: dict[str, str]) -> Synthetic:
    """The last two of three steps, with these rates."""
    run = Synthetic(facts={"arguments": told})
    run.rows = run.rows[1:]
    for kind in (run.batches, run.gradients, run.norms):
        kind.pop(0, None)
    for row, rate in zip(run.rows, rates, strict=True):
        row["learning_rate"] = rate
    return asking(run, weights="none", optimizer_state="none")


@pytest.mark.parametrize(
    ("rates", "changed", "stands"),
    [([2e-3, 2e-3], {}, True), ([2e-3, 1.5e-3], {}, False), ([2e-3, 2e-3], {"lr_decay_style": "constant"}, False)],
)
def test_a_rate_that_stands_still_behind_a_resumption_is_state(
    compared: Compared, rates: list[float], changed: dict[str, str], stands: bool
) -> None:
    reference = Synthetic(facts={"arguments": ARGUMENTS})
    for row, rate in zip(reference.rows, (3e-3, 2e-3, 1e-3), strict=True):
        row["learning_rate"] = rate
    found = compared(resumed(rates, ARGUMENTS | changed), against=asking(reference, weights="none", optimizer_state="none"))
    place, cause = (FaultLocation.STATE, "rate_stands") if stands else (FaultLocation.CONFIGURATION, "rate_schedule")
    assert (found.blame.place, found.blame.causes) == (place, (cause,))


@pytest.mark.parametrize(
    ("name", "factor", "headline", "cause"),
    [
        (AUXILIARY, 2.0, "loss_terms.scaled", "auxiliary_loss"),
        (AUXILIARY, 1.37, "differs.finding", "auxiliary_loss"),
        (Z_LOSS, 2.0, "loss_terms.scaled", "z_loss"),
    ],
)
def test_a_term_of_the_loss_is_named_with_the_number_that_it_is_off_by(
    compared: Compared, name: str, factor: float, headline: str, cause: str
) -> None:
    runs = [routed(), routed()]
    for run, by in zip(runs, (1.0, factor), strict=True):
        run.facts["training"] = {"compute_type": "float32", "global_batch_size": 2 * 2, "micro_batch_size": 2}
        for row in run.rows:
            row["terms"] = {name: 0.01 * by}
    found = compared(runs[1], against=runs[0])
    assert found.blame.causes == (cause,)
    assert (headline in ids(found.headline)) == (headline == "loss_terms.scaled")


@pytest.mark.parametrize(("seed", "causes"), [(101, ("initial_draws",)), (100, ())])
def test_independent_draws_of_initial_weights_are_told(compared: Compared, seed: int, causes: tuple[str, ...]) -> None:
    candidate = Synthetic(weights={0: tensors(seed)})
    candidate.weights[0]["lm_head.weight"] = candidate.weights[0]["lm_head.weight"] * np.float32(1.001)
    found = compared(candidate)
    assert (found.blame.place, found.blame.causes) == (FaultLocation.WEIGHTS, causes)


def test_weights_that_were_loaded_are_no_draws(compared: Compared) -> None:
    candidate = Synthetic(weights={0: tensors(101)})
    candidate.settings |= {"load_weights": "elsewhere"}
    assert compared(candidate).blame.causes == ()


@pytest.mark.parametrize(("others", "id"), [(1.0, "sharding.experts_scaled_by_own_number"), (1.1, None)])
def test_a_factor_of_experts_alone_is_told(tmp_path: Path, others: float, id: str | None) -> None:
    runs = [write(tmp_path / name, Grid(dp=2), Model().tensors(1)) for name in ("reference", "candidate")]
    scales = {f"model.layers.0.mlp.experts.{number}.up_proj.weight": 2.0 for number in range(2)} | {"lm_head.weight": others}
    findings = [Finding(name, error=abs(by - 1), limit=1e-5, scale=by, direction=0.0, name=name) for name, by in scales.items()]
    told, _ = explanation((open_run(runs[0]), open_run(runs[1])), Metric.LOCAL_NORMS, STEPS, findings)
    assert (told.id if isinstance(told, Message) else None) == id


def spoiled(*parts: tuple[int, float]) -> Callable[[int, str, np.ndarray], np.ndarray]:
    """What bends a tensor's parts on some ranks."""
    by = dict(parts)
    return lambda rank, name, part: part * np.float32(by.get(rank, 1.0)) if name == "model.layers.1.mlp.down_proj.weight" else part


@pytest.mark.parametrize(("bend", "named"), [(spoiled((1, 1.5)), True), (spoiled((0, 1.001), (1, 1.5)), False)])
def test_a_rank_holds_an_error_only_where_the_others_parts_agree(tmp_path: Path, bend: Any, named: bool) -> None:
    gradients = Model().tensors(1)
    reference, candidate = write(tmp_path / "a", Grid(), gradients), write(tmp_path / "b", Grid(tp=2), gradients, bend=bend)
    found = compare(open_run(reference), open_run(candidate))
    assert found.verdict is Verdict.DIVERGED
    assert any(id.startswith("sharding.rank_holds") for stage in found.stages for id in ids(stage.summary)) == named


@pytest.mark.parametrize(
    ("changed", "place", "causes"),
    [
        ({}, "optimizer", ("parameter_groups",)),
        ({"lr": "0.002"}, "configuration", ("rate_schedule",)),
        (None, "configuration", ("rate_schedule",)),
    ],
)
def test_groups_of_the_same_settings_are_built_otherwise(
    changed: dict[str, str] | None, place: str, causes: tuple[str, ...], compared: Compared
) -> None:
    """What the launcher says is at fault only where it says two things, or nothing is on record of it."""
    reference, candidate = (Synthetic(facts={"framework": "Megatron-LM", "arguments": dict(ARGUMENTS)}) for _ in range(2))
    candidate.facts["arguments"] = None if changed is None else ARGUMENTS | {"micro_batch_size": "4"} | changed
    candidate.optimizer = deepcopy(candidate.optimizer)
    candidate.optimizer["groups"][0]["learning_rate"] = 5e-4
    candidate.train()
    found = compared(candidate, against=reference)
    assert (found.blame.place, found.blame.causes) == (place, causes)
    assert ("hyper_parameters.built_otherwise" in ids(stage(found, "hyper-parameters").summary)) == (place == "optimizer")


@pytest.mark.parametrize(
    ("changed", "place", "causes", "says"),
    [({}, "optimizer", ("built_optimizer",), "next.mend_cause"), ({"weight_decay": "0.2"}, "configuration", (), "next.set_as_told")],
)
def test_an_optimizer_of_the_same_settings_is_built_otherwise_for_all_parameters(
    changed: dict[str, str], place: str, causes: tuple[str, ...], says: str, compared: Compared
) -> None:
    """As one of Adam and AdamW does, whichever is asked for; to set alike what is alike is no advice."""
    reference, candidate = (Synthetic(facts={"framework": "Megatron-LM", "arguments": dict(ARGUMENTS)}) for _ in range(2))
    candidate.facts["arguments"] = ARGUMENTS | changed
    candidate.optimizer = deepcopy(candidate.optimizer)
    for group in candidate.optimizer["groups"]:
        group["eps"] = 1e-5
    candidate.train()
    found = compared(candidate, against=reference)
    assert found.blame is not None
    assert (found.blame.place, found.blame.causes) == (place, causes)
    assert says in ids(found.next)


@pytest.mark.parametrize(
    ("changed", "framework", "skipped", "place"),
    [
        ({}, "Megatron-LM", False, "optimizer"),
        ({"lr_decay_style": "cosine"}, "Megatron-LM", False, "configuration"),
        ({"override_opt_param_scheduler": "True"}, "Megatron-LM", False, "configuration"),
        ({}, "MindFormers", False, "configuration"),
        ({}, "Megatron-LM", True, "clipping"),
    ],
)
def test_rates_of_the_same_schedule_are_the_schedules(
    changed: dict[str, str], framework: str, skipped: bool, place: str, compared: Compared
) -> None:
    """Unless an update was skipped before, behind which a scheduler stands; MindFormers' follows the length of the data too."""
    runs = [Synthetic(facts={"framework": framework, "arguments": ARGUMENTS | given}) for given in ({}, changed)]
    for run, rates in zip(runs, ((1e-3, 1e-3, 2e-3), (1e-3, 2e-3, 2e-3)), strict=True):
        for row, rate in zip(run.rows, rates, strict=True):
            row["learning_rate"] = rate
    runs[1].rows[0]["skipped"] = skipped
    found = compared(
        asking(runs[1], weights="none", optimizer_state="none"), against=asking(runs[0], weights="none", optimizer_state="none")
    )
    assert (found.blame.place, found.blame.causes) == (place, () if skipped else ("rate_schedule",))
    assert ("next.mend_cause" in ids(found.next)) is (place == "optimizer")


def with_biases_moved() -> list[Synthetic]:
    """Runs of two frameworks whose experts' bias moves by other steps, and nothing else."""
    bias = "model.layers.0.mlp.gate.e_score_correction_bias"
    runs = [Synthetic(shapes={**SHAPES, bias: (4,)}, side=side) for side in ("torch", "ms")]
    for run, step in zip(runs, (1e-3, 1.4e-3), strict=True):
        for at in run.weights:
            run.weights[at][bias] = np.full(4, at * step, np.float32)
    return runs


def test_a_bias_of_experts_that_moves_otherwise_is_the_updates(compared: Compared) -> None:
    """Weights of the experts' bias, which no gradient moves, alone differ behind the first update, on two frameworks too."""
    runs = with_biases_moved()
    found = compared(runs[1], against=runs[0])
    assert found.headline.id == "training_state.bias_moved"
    assert (found.blame.place, found.blame.causes) == ("optimizer", ("bias_of_experts",))


@pytest.mark.parametrize(
    ("term", "wrong_at", "place"), [(AUXILIARY, 2, "state"), (AUXILIARY, 0, "reduced gradients"), (PREDICTION, 2, "reduced gradients")]
)
def test_a_term_that_agreed_before_on_equal_weights_carries_something_over(
    term: str, wrong_at: int, place: str, compared: Compared
) -> None:
    """A learning rate of 0 keeps weights equal at every step."""
    runs = [Synthetic() for _ in range(2)]
    for run in runs:
        for row in run.rows:
            row |= {"terms": {term: 0.02}, "learning_rate": 0.0}
        run.weights = dict.fromkeys(range(STEPS + 1), run.weights[0])
    for row in runs[1].rows[wrong_at:]:
        row["terms"] = {term: 0.03}
    found = compared(runs[1], against=runs[0])
    assert (found.first.name, found.blame.place) == ("loss terms", place)
    assert ("step_leaves" in found.blame.causes) == (place == "state")


@pytest.mark.parametrize(
    ("name", "decides"),
    [
        *(
            (name, True)
            for name in ("lr", "decoupled_lr", "head_lr_mult", "use_mup", "lion_beta1", "adam_eps", "muon_momentum", "weight_decay")
        ),
        *((name, True) for name in ("optimizer", "start_weight_decay", "untie_embeddings_and_output_weights", "freeze_all_layers")),
        *((name, True) for name in ("optimizer.type", "optimizer.layer_decay", "lr_schedule.learning_rate")),
        *((name, False) for name in ("micro_batch_size", "cuda_graph_warmup_steps", "moe_input_jitter_eps", "use_distributed_optimizer")),
        *((name, False) for name in ("norm_epsilon", "overlap_param_gather_with_optimizer_step", "model.model_config.rms_norm_eps")),
    ],
)
def test_which_arguments_make_parameter_groups(name: str, decides: bool) -> None:
    assert bool(OF_OPTIMIZER.search(name)) is decides


def test_a_setting_of_all_parameters_is_no_matter_of_groups(compared: Compared) -> None:
    reference, candidate = (Synthetic(facts={"framework": "Megatron-LM", "arguments": dict(ARGUMENTS)}) for _ in range(2))
    candidate.optimizer = deepcopy(candidate.optimizer) | {"clip_grad": 0.5}
    assert compared(candidate, against=reference).blame.place == "configuration"


def test_a_bias_that_is_furthest_off_among_others_did_not_move_alone(compared: Compared) -> None:
    """Of many tensors beyond their limits a stage keeps the worst."""
    runs = with_biases_moved()
    for at in range(1, STEPS + 1):
        for name in SHAPES:
            runs[1].weights[at][name] = runs[1].weights[at][name] * np.float32(1.01)
    assert "training_state.bias_moved" not in str(as_data(stage(compared(runs[1], against=runs[0]), "free-running steps").summary))


def test_a_term_just_within_its_limit_agreed_with_no_certainty(compared: Compared) -> None:
    runs = [Synthetic() for _ in range(2)]
    for run in runs:
        for row in run.rows:
            row |= {"terms": {AUXILIARY: 0.02}, "learning_rate": 0.0}
        run.weights = dict.fromkeys(range(STEPS + 1), run.weights[0])
    for row, part in zip(runs[1].rows, (0.9, 1.5, 1.5), strict=True):
        row["terms"] = {AUXILIARY: 0.02 * (1 + 1e-5 * part)}
    assert compared(runs[1], against=runs[0]).blame.place == "reduced gradients"
