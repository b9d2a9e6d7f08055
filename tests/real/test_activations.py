"""What the points of both frameworks put out, and blocks that are fed what the other run's were."""

from pathlib import Path

import numpy as np
import pytest

from align_hooks import Run, open_run
from align_hooks.comparison.distances import activations
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import Status
from align_hooks.names.points import GRADIENT
from align_hooks.record.read.activations import column_signs, measured, places, row_signs
from chosen import slow_but
from real import frameworks
from real.frameworks import Train

POINTS = 38
"""Points of a dense Llama of two layers."""
PLANTS = Path(__file__).parents[1] / "zoo" / "planted_megatron.py"
RECOMPUTED = {"--recompute-granularity": "full", "--recompute-method": "uniform", "--recompute-num-layers": "1"}


def furthest(reference: Run, candidate: Run, step: int = 0) -> float:
    """The largest error of a step, of all points that both have in common, which are all that either has."""
    errors = {distance.name: distance.error for distance in activations(reference, candidate, step, 2.0**-23)}
    assert errors.keys() == set(reference.activations(step)) == set(candidate.activations(step))
    return max(errors.values())


def test_both_frameworks_put_out_the_same_at_every_point(reference: Path, candidate: Path) -> None:
    runs = open_run(reference), open_run(candidate)
    worst = furthest(*runs)
    assert len(runs[0].activations(0).points) == POINTS and len(runs[0].activations(0)) == 2 * POINTS
    assert worst < 3e-6, worst  # fp32, CPU: 1.2e-6 when this was written
    comparison = compare(*runs)
    assert [frameworks.stage(comparison, name).status for name in ("activations", "activation gradients")] == [Status.SAME, Status.SAME]


@pytest.mark.parametrize("odd", [(), (np.nan,), (np.inf,), (-np.inf, np.nan)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("width", [40, 300_000])
@pytest.mark.parametrize("ordered", [False, True])
def test_torch_takes_the_numbers_of_the_reference(odd: tuple[float, ...], dtype: str, width: int, ordered: bool) -> None:
    """Values of one shape are measured together, large ones and odd ones alone, and those of other shapes beside them."""
    torch = pytest.importorskip("torch")
    from align_hooks.torch_side.activation_numbers import ActivationNumbers
    from align_hooks.torch_side.probe_recorder import columns_on, rows_on

    made, random, values = ActivationNumbers(), np.random.default_rng(7), {}
    for number, tokens in enumerate((3, 3, 5, 3, 0)):
        value = random.standard_normal((tokens, width)).astype(np.float32)
        if number and tokens:  # only some are odd
            value[1, : len(odd)] = odd
        values[f"value {number}", 0] = torch.from_numpy(value).to(getattr(torch, dtype))
    for key, tensor in values.items():
        tokens = len(tensor)
        rows = rows_on(tensor.device, range(2), ((0, tokens),), 8)[:, :tokens] if ordered else None
        made.add(key, tensor, rows, columns_on(tensor.device, (0, width)))
    keys, taken = made.taken()
    assert list(made.seen) == list(values) and sorted(keys) == sorted(values)
    for key, numbers in zip(keys, taken.numpy(), strict=True):
        tokens = len(values[key])
        signs = row_signs(places(range(2), np.arange(tokens), 8)[:tokens] if ordered else None, tokens)
        np.testing.assert_allclose(numbers, measured(values[key].float().numpy(), signs, column_signs((0, width))), rtol=1e-12, atol=1e-8)


def test_values_of_many_shapes_wait_for_no_more_than_memory_allows() -> None:
    torch = pytest.importorskip("torch")
    from align_hooks.torch_side.activation_numbers import IN_CACHE, ActivationNumbers
    from align_hooks.torch_side.probe_recorder import columns_on

    made, width = ActivationNumbers(), 1 << 9
    columns = columns_on(torch.device("cpu"), (0, width))
    for tokens in range(1, 129):
        made.add((str(tokens), 0), torch.full((tokens, width), float(tokens)), None, columns)
        assert made.held <= 5 * IN_CACHE
    keys, taken = made.taken()
    assert made.held == 0 and len(keys) == 128
    assert [numbers[4].item() for numbers in taken] == [int(name) ** 2 * width for name, _ in keys]  # the sum


def test_sums_are_those_of_the_whole_tensors(reference: Path) -> None:
    recorded = open_run(reference).activations(0)
    whole = [name for name in recorded if recorded.has_tensor(name)]
    assert whole[:3] == ["model.embed_tokens", "model.layers.0", "model.layers.1"] and len(whole) == 6
    for name in whole:
        tensor, sums = recorded.tensor(name).astype(np.float64), recorded[name]
        assert tensor.shape == (*recorded.size, recorded.width(name)) and tensor.size == sums.elements
        assert np.isclose(np.linalg.norm(tensor), sums.norm, rtol=1e-12)
        assert (tensor.min(), tensor.max(), sums.not_finite) == (sums.minimum, sums.maximum, 0)


@pytest.mark.parametrize("method", slow_but(["uniform", "block"], "block"))
def test_what_is_computed_again_is_no_second_forward_pass(reference: Path, method: str) -> None:
    """``block`` computes the first layer again, and not the second, which is given its output."""
    change = RECOMPUTED | {"--recompute-method": method}
    run = frameworks.kept(frameworks.megatron, change=change, RUN="run", ACTIVATIONS="0", **frameworks.fed_by(reference)).run
    ours, again = open_run(reference).activations(0), open_run(run).activations(0)
    assert set(ours) == set(again)
    assert all(np.array_equal(ours[name].sketch, again[name].sketch) for name in ours)


@pytest.fixture(scope="module")
def faulty(reference: Path) -> dict[str, Run]:
    """Two faults in different layers, in a run that goes its own way and in one whose blocks are fed what the reference's were."""
    runs = {}
    for name, teacher in (("free", None), ("forced", f"{reference}@0")):
        fed = {"REPLAY_BATCHES": f"{reference}@0", "LOAD_WEIGHTS": reference, "TEACHER": teacher}
        planted = {"script": PLANTS, "environment": {"PLANTED": "attention_scale_of_one_layer,mlp_in_bfloat16"}}
        runs[name] = open_run(frameworks.kept(frameworks.megatron, **planted, **fed, RUN="run", ACTIVATIONS="0", BATCHES="0").run)
    return runs


@pytest.mark.slow
def test_one_forced_run_names_two_faults_in_different_layers(reference: Path, faulty: dict[str, Run]) -> None:
    free, forced = (compare(open_run(reference), faulty[name]) for name in ("free", "forced"))
    assert [origin.name for origin in frameworks.stage(free, "activations").origins] == ["model.layers.0.mlp.down_proj"]
    both = ["model.layers.0.mlp.down_proj", "model.layers.1.self_attn.core"]
    assert [origin.name for origin in frameworks.stage(forced, "activations").origins] == both
    assert forced.blame is not None and [suspect.name for suspect in forced.blame.suspects[:2]] == both
    assert faulty["forced"].facts.forced.steps == (0,)


@pytest.mark.slow
def test_a_forced_run_of_either_framework_agrees_with_its_teacher(reference: Path) -> None:
    fed = {"REPLAY_BATCHES": f"{reference}@0", "LOAD_WEIGHTS": reference, "TEACHER": f"{reference}@0"}
    for train, allowed in ((frameworks.megatron, 0.0), (frameworks.mindformers, 3e-6)):
        run = frameworks.kept(train, **fed, RUN="run", ACTIVATIONS="0").run
        assert furthest(open_run(reference), open_run(run)) <= allowed


@pytest.mark.slow
@pytest.mark.parametrize("train", [frameworks.megatron, frameworks.mindformers])
def test_a_pattern_that_matches_nothing_is_refused_with_the_nearest_points(train: Train, reference: Path) -> None:
    asked = {"ACTIVATIONS": "0", "ACTIVATIONS_FILTER": "model.layers.*.attention.q_proj"}
    done = frameworks.kept(train, 2, **frameworks.fed_by(reference), RUN="run", **asked)
    assert "ALIGN_HOOKS_ACTIVATIONS_FILTER: no point is called model.layers.*.attention.q_proj; near it are model.layers." in done.line
    assert ".self_attn.q_proj" in done.line


def test_nothing_is_watched_on_a_step_that_is_not_selected(reference: Path) -> None:
    script = frameworks.SCRIPTS / "counting_hooks.py"
    done = frameworks.kept(frameworks.megatron, script=script, **frameworks.fed_by(reference), RUN="run", ACTIVATIONS="1")
    counted = [int(line.split()[-1]) for line in done.output.splitlines() if line.startswith("hooks during the step:")]
    assert len(counted) == frameworks.STEPS
    assert counted[1] > 2 * POINTS > 0 and counted[0] == counted[2] == 0


@pytest.mark.slow
def test_a_teacher_of_other_tensors_is_refused(reference: Path) -> None:
    taught = {"TEACHER": reference, "TEACHER_POINTS": "*.self_attn.core"}
    done = frameworks.kept(frameworks.megatron, 2, **frameworks.fed_by(reference), RUN="run", **taught)
    assert "keeps no whole tensor of model.layers.0.self_attn.core; record it with ALIGN_HOOKS_ACTIVATIONS_TENSORS=" in done.line


def test_gradients_are_those_of_the_reduced_objective(reference: Path) -> None:
    """The gradient of a bias-free projection's weight is made of what its output is handed back and what it is given."""
    run = open_run(reference)
    recorded = run.activations(0)
    handed, weights = recorded[f"token_losses{GRADIENT}"], run.batch(0).loss_mask
    assert weights is not None and np.isclose(handed.mean, 1 / weights.sum(), rtol=1e-6)
