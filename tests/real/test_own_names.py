"""Models of no family, and parameters that a family does not know: recorded under Megatron's own names, and compared all the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from align_hooks import Run, open_run
from align_hooks.families.own import ADD_A_FAMILY, NO_FAMILY
from real import frameworks
from real.frameworks import Ended
from synthetic import relative_error

Model = tuple[Mapping[str, str | None], Sequence[str]]
MODELS: dict[str, tuple[Model, int, str]] = {
    "squared ReLU": (({"--swiglu": None}, ("--squared-relu", "--qk-layernorm")), 19, "activation_func"),
    "GELU": (
        (
            {
                "--swiglu": None,
                "--disable-bias-linear": None,
                "--normalization": "LayerNorm",
                "--position-embedding-type": "learned_absolute",
            },
            (),
        ),
        29,
        "normalization",
    ),
    "gated": (({}, ("--rotary-percent", "0.5")), 17, "rotary_percent"),
}
"""What is changed of the Llama, how many tensors the model has, and a property by which it is of no family.

Queries, keys and values are one tensor under Megatron's name; a gate and what it lets through are two.
"""
STEPS = {"--train-iters": "2"}
QUICK = ("gated",)


def train(where: Path, model: Model, *flags: str, ranks: int | None = None, **variables: object) -> tuple[Ended, Run]:
    """What a run said, and what it recorded."""
    change, own = model
    given = {"change": {**STEPS, **change}, "flags": (*own, *flags), "ranks": ranks}
    done = frameworks.megatron(where, RUN=where / "run", **given, **frameworks.EVERYTHING, **variables).succeeded()
    return done, open_run(where / "run")


def said_once(done: Ended) -> str:
    """The line that says what has no canonical name, which must be the only one."""
    (line,) = [line for line in done.ours.splitlines() if ADD_A_FAMILY in line]
    return line


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in MODELS])
def test_a_model_of_no_family_is_recorded_and_compared_under_own_names(name: str, tmp_path: Path) -> None:
    """Two runs of one rank, and two tensor-parallel ranks, from the same weights and batches."""
    model, count, why = MODELS[name]
    done, reference = train(tmp_path / "one", model)
    assert why in said_once(done)
    assert any(why in reason for reason in reference.manifest["model"][NO_FAMILY])
    assert all(shard.own for shard in reference.shards(0))
    assert len(reference.weights(0)) == len(reference.gradients(0)) == count
    fed = frameworks.fed_by(reference.path)
    for where, flags, ranks in (("again", (), None), ("tp", ("--tensor-model-parallel-size", "2"), 2)):
        done, candidate = train(tmp_path / where, model, *flags, ranks=ranks, **fed)
        assert why in said_once(done)
        assert candidate.self_check.contradictions == ()
        ours, theirs = reference.gradients(0), candidate.gradients(0)
        assert set(ours) == set(theirs)
        worst = max(relative_error(ours[tensor], theirs[tensor]) for tensor in ours)
        print(f"{name}, {where}: gradients within {worst:.1e}")
        assert worst < (1e-5 if ranks else 1e-12)
        frameworks.aligned(reference.path, candidate.path)


def test_a_parameter_that_a_family_does_not_know_is_named_and_has_its_own_name(tmp_path: Path, reference: Path) -> None:
    """All others keep their canonical names."""
    script, unknown = frameworks.SCRIPTS / "learned_scale.py", "decoder.learned_scale"
    done = frameworks.megatron(tmp_path / "one", script=script, RUN=tmp_path / "one" / "run", **frameworks.EVERYTHING).succeeded()
    assert unknown in said_once(done)
    run, known = open_run(tmp_path / "one" / "run"), open_run(reference)
    assert set(run.weights(0)) == {*known.weights(0), unknown}
    assert set(run.gradients(0)) == {*known.gradients(0), unknown}
    assert run.gradients(0)[unknown].any()
    assert {shard.name: shard.own for shard in run.shards(0)} == {**dict.fromkeys(known.weights(0), False), unknown: True}
    assert run.manifest["model"] == known.manifest["model"]
    fed = frameworks.fed_by(run.path)
    again = frameworks.recorded(frameworks.megatron, tmp_path / "two", script=script, ranks=2, **fed)
    frameworks.aligned(run.path, again)
