"""Who is right on real runs: an honest pair, and runs in which Megatron computes otherwise than its configuration says."""

from pathlib import Path

import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from align_hooks import open_run  # noqa: E402
from align_hooks.comparison.arbitration import Arbitration, PointKind, Ruling  # noqa: E402
from align_hooks.messages import Side  # noqa: E402
from align_hooks.oracle.arbitrate import arbitrate  # noqa: E402
from chosen import slow_but  # noqa: E402
from real import frameworks  # noqa: E402
from zoo import run as zoo  # noqa: E402

PLANTED = Path(zoo.__file__).parent / "planted_megatron.py"
POINTS = {
    "attention_scale_of_one_layer": ("model.layers.1.self_attn.core", PointKind.VALUE),
    "mlp_clamped": ("model.layers.0.mlp.activation", PointKind.VALUE),
    # nothing flows back to the keys, so nothing is recorded there
    "keys_detached": ("model.layers.1.self_attn.k_proj", PointKind.GRADIENT),
}
"""Where Megatron with a fault leaves the truth first, by what the fault is."""


@pytest.fixture(autouse=True)
def alone() -> None:
    """One thread, as the frameworks have: tests share a machine."""
    torch.set_num_threads(1)


def held(*runs: Path, step: int = 0) -> Arbitration:
    return arbitrate(*map(open_run, runs), step)


@pytest.mark.parametrize("step", [0, frameworks.STEPS - 1])
def test_an_honest_pair_is_right_on_both_sides(reference: Path, candidate: Path, step: int) -> None:
    """At the last step each by the truth of its own weights."""
    said = held(reference, candidate, step=step)
    assert said.alike is (step == 0)
    assert all(said.right(side) for side in Side)
    exact = [each for judged in said.points for each in judged.distances.values() if not each.estimated and each.honest]
    furthest = max(each.error / each.honest for each in exact)
    print(f"step {step}: {len(said.points)} points, at most {furthest:.2g} times the honest distance")
    assert len(said.points) >= 22
    assert said.ruling is (Ruling.BOTH_RIGHT if step == 0 else Ruling.UNDECIDED)


@pytest.mark.parametrize("fault", slow_but(POINTS, "mlp_clamped"))
def test_a_fault_is_found_at_the_point_where_it_sits(fault: str, reference: Path) -> None:
    given = {"environment": {"PLANTED": fault}, "change": {"--train-iters": "1"}, **frameworks.fed_by(reference)}
    run = frameworks.recorded(frameworks.megatron, script=PLANTED, ACTIVATIONS="0", **given)
    for runs in ((reference, run), (run, reference)):
        said = held(*runs)
        planted = Side.CANDIDATE if runs[1] is run else Side.REFERENCE
        assert said.ruling is (Ruling.CANDIDATE_WRONG if planted is Side.CANDIDATE else Ruling.REFERENCE_WRONG)
        first = said.first(planted)
        assert first is not None
        assert (first.point, first.kind) == POINTS[fault]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen2", "qwen3", "qwen3_moe", "deepseek_v3", "deepseek_v3_mtp", "glm4_moe", "gpt_oss"])
def test_every_point_of_every_family_is_within_rounding(family: str, real_corpus: Path) -> None:
    """Values and gradients of points, gradients of parameters, terms of the loss, and the choices of routers."""
    asked = {"ACTIVATIONS": "0", "ACTIVATIONS_TENSORS": "*"}
    run = frameworks.recorded(frameworks.megatron, family=family, change={"--train-iters": "2"}, **asked)
    said = held(run, run)
    assert said.ruling is Ruling.BOTH_RIGHT
    known = {judged.point for judged in said.points}
    assert {name.removesuffix("#gradient") for name in open_run(run).activations(0)} <= known
    assert set(open_run(run).gradients(0)) <= known
    exact = [each for judged in said.points for each in judged.distances.values() if not each.estimated and each.honest]
    furthest = max(each.error / max(each.honest, 2**-24) for each in exact)  # a single number may be honest to less than fp32 holds
    print(f"{family}: {len(said.points)} points, at most {furthest:.2g} times the honest distance")
    assert furthest < (2.5 if family == "gpt_oss" else 2)  # steep where its weights are drawn so wide that gates are clamped
