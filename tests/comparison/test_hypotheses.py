"""Causes of faults: which comes first follows from what is stated of each, and from no order in which they are written."""

import random
from collections.abc import Iterator
from itertools import product

import pytest

from align_hooks.comparison.diagnosis.hypotheses.registry import HYPOTHESES, MODULES
from align_hooks.comparison.diagnosis.hypothesis import Fault, Grounds, Hypothesis, likeliest
from align_hooks.comparison.diagnosis.observations import Observations
from align_hooks.comparison.stage_result import FaultLocation, StageResult, Status
from align_hooks.comparison.stages.gradients import gradients
from align_hooks.comparison.verdict import Suspect
from comparison.test_arguments import NAMES, context, seen
from messages.test_catalogues import ENGLISH_ENTRIES


def test_every_cause_has_one_hypothesis_with_its_words() -> None:
    causes = [one.cause for one in HYPOTHESES]
    assert len(causes) == len(set(causes)) > 50
    for word in ("cause", "look"):
        assert {id for id in ENGLISH_ENTRIES if id.startswith(f"{word}.")} == {f"{word}.{cause}" for cause in causes}
    assert all(one.locations and one.source and (one.test is None or one.test.__doc__) for one in HYPOTHESES)
    tested = {name: one.cause for module in MODULES for name, one in vars(module).items() if isinstance(one, Hypothesis)}
    assert all(name == cause for name, cause in tested.items()) and len(tested) == sum(one.test is not None for one in HYPOTHESES)
    assert {cause for one in HYPOTHESES for cause in one.outranks} <= set(causes)


def made(cause: str, grounds: Grounds | None, *outranks: str) -> Hypothesis:
    """A hypothesis that holds on some grounds, wherever a fault is."""
    anywhere = Hypothesis(cause, tuple(FaultLocation), outranks=outranks)
    return anywhere if grounds is None else anywhere.by(grounds)(lambda fault: True)


@pytest.mark.parametrize(
    ("hypotheses", "causes"),
    [
        ([made("a", Grounds.PART), made("b", Grounds.TOKENS)], ("b", "a")),
        ([made("a", Grounds.PART), made("b", Grounds.PART, "a")], ("b", "a")),
        ([made("a", Grounds.PART), made("b", Grounds.BLOCK, "a")], ("a", "b")),
        ([made("b", Grounds.PART), made("a", Grounds.PART)], ("a", "b")),
        ([made("a", Grounds.POINT), made("b", Grounds.POINT, "a")], ("b",)),
        ([made("a", Grounds.SETTING), made("b", Grounds.POINT)], ("a",)),
        ([made("a", Grounds.SETTING), made("b", Grounds.TOKENS)], ("b", "a")),
        ([made("a", Grounds.PART), made("b", Grounds.PART), made("c", Grounds.PART)], ("a", "b")),
        ([made("a", None)], ()),
    ],
)
def test_the_likelier_cause_comes_first(hypotheses: list[Hypothesis], causes: tuple[str, ...]) -> None:
    first = StageResult(gradients, Status.DIFFERENT, "")
    fault = Fault(Observations(first, (first,), context()), FaultLocation.FORWARD, (), ("mlp",))
    for ordered in (hypotheses, hypotheses[::-1]):
        assert tuple(one.cause for one in likeliest(fault, ordered)) == causes


def test_at_several_points_each_has_a_cause_in_the_order_of_the_pass() -> None:
    fault = Fault(seen(gradients, NAMES[:2]), FaultLocation.FORWARD, (Suspect("", NAMES[0]),), ("self_attn.core", "mlp.gate", "lm_head"))
    assert [one.cause for one in likeliest(fault, HYPOTHESES)] == ["attention_core", "router", "logits_or_loss"]


KINDS = ("", "mlp", "mlp.gate", "input_layernorm", "self_attn.core", "self_attn.kv_a_layernorm", "residual", "lm_head")


def faults() -> Iterator[Fault]:
    """Faults with suspects of every name that a hypothesis asks for, at every place, with and without points."""
    settings = (
        "rope_theta",
        "rms_norm_eps",
        "n_group",
        "moe_aux_loss_coeff",
        "mtp_loss_scaling_factor",
        "count",
        "formula",
        "learning rate",
    )
    shown = seen(gradients, NAMES[:8][::-1])
    for name in (*NAMES[:5], *settings, "model.layers.0.self_attn.q_norm.weight", "model.embed_tokens.weight", "lm_head.weight"):
        for location, kind in product(FaultLocation, KINDS):
            yield Fault(shown, location, (Suspect("", name),), (kind, "mlp.shared_experts") if kind else ())


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_registration_means_nothing(seed: int) -> None:
    shuffled = random.Random(seed).sample(HYPOTHESES, len(HYPOTHESES))
    found = [likeliest(fault, HYPOTHESES) for fault in faults()]
    assert len(set(found)) > 20
    assert [likeliest(fault, shuffled) for fault in faults()] == found
