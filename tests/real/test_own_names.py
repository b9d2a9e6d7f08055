"""Models of no family, and parameters that a family does not know: what has no canonical name has Megatron's own, and all is compared."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from align_hooks import Run, open_run
from align_hooks.quantities.weights import NO_FAMILY
from align_hooks.session.loading import ADD_A_FAMILY
from real import frameworks
from real.kept import Kept
from synthetic import Array

Model = tuple[Mapping[str, str | None], Sequence[str]]
MODELS: dict[str, tuple[Model, int, int, str]] = {
    "squared ReLU": (({"--swiglu": None}, ("--squared-relu", "--qk-layernorm")), 23, 2, "activation_func"),
    "GELU": (
        (
            {"--swiglu": None, "--disable-bias-linear": None, "--normalization": "LayerNorm", "--adam-eps": "1e-5"}
            | {"--position-embedding-type": "learned_absolute"},
            (),
        ),
        *(37, 14, "normalization"),
    ),
    "half turned": (({}, ("--rotary-percent", "0.5")), 21, 0, "rotary_percent"),
}
"""What is changed of the Llama, how many tensors the model has, how many of these its nearest family does not know, and a property by which
it is of no family."""
STEPS = {"--train-iters": "2"}


def train(model: Model, *flags: str, ranks: int | None = None, **variables: object) -> tuple[Kept, Run]:
    """What a run said, and what it recorded."""
    change, own = model
    given = {"change": {**STEPS, **change}, "flags": (*own, *flags), "ranks": ranks}
    done = frameworks.kept(frameworks.megatron, RUN="run", **given, **frameworks.EVERYTHING, **variables)
    return done, open_run(done.run)


def said_once(done: Kept, words: str) -> str:
    """The line with these words, which must be the only one."""
    (line,) = [line for line in done.ours.splitlines() if words in line]
    return line


def beyond_rounding(gradients: Mapping[str, Array]) -> dict[str, Array]:
    """Gradients that are not rounding alone, as that of a bias of all keys is without rotary positions."""
    floor = np.finfo(np.float32).eps * max(map(np.linalg.norm, gradients.values()))
    return {name: gradient for name, gradient in gradients.items() if np.linalg.norm(gradient) > floor}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_no_family_is_recorded_and_compared_under_own_names(name: str, real_corpus: Path) -> None:
    """Two runs of one rank, and two tensor-parallel ranks, from the same weights and batches."""
    model, count, own, why = MODELS[name]
    done, reference = train(model)
    assert why in said_once(done, "the model is no")
    assert any(why in reason for reason in reference.manifest["model"][NO_FAMILY])
    assert sum(shard.own for shard in reference.shards(0)) == own
    assert done.ours.count(f"own names: {own} tensors") == (1 if own else 0)
    assert len(reference.weights(0)) == len(reference.gradients(0)) == count
    fed = frameworks.fed_by(reference.path)
    for where, flags, ranks in (("again", (), None), ("tp", ("--tensor-model-parallel-size", "2"), 2)):
        done, candidate = train(model, *flags, ranks=ranks, **fed)
        assert why in said_once(done, "the model is no")
        assert candidate.self_check.contradictions == ()
        worst = frameworks.furthest(*(beyond_rounding(run.gradients(0)) for run in (reference, candidate)))
        print(f"{name}, {where}: gradients within {worst:.1e}")
        assert worst < (1e-5 if ranks else 1e-12)
        frameworks.aligned(reference.path, candidate.path)


@pytest.mark.slow
def test_parameters_that_a_family_does_not_know_are_named_and_have_their_own_names(reference: Path) -> None:
    """All others keep their canonical names; layers are counted over the whole model where two stages share them."""
    script, native = frameworks.SCRIPTS / "learned_scale.py", [f"decoder.layers.{layer}.learned_scale" for layer in (0, 1)]
    unknown = [f"megatron:{name}" for name in native]
    done = frameworks.kept(frameworks.megatron, script=script, RUN="run", **frameworks.EVERYTHING)
    assert native[0] in said_once(done, ADD_A_FAMILY)
    run, known = open_run(done.run), open_run(reference)
    assert set(run.weights(0)) == {*known.weights(0), *unknown}
    assert set(run.gradients(0)) == {*known.gradients(0), *unknown}
    assert all(run.gradients(0)[name].any() for name in unknown)
    own = dict.fromkeys(known.weights(0), False) | dict.fromkeys(unknown, True)
    assert {shard.name: shard.own for shard in run.shards(0)} == own
    assert run.manifest["model"] == known.manifest["model"]
    given = {"flags": ("--pipeline-model-parallel-size", "2"), "ranks": 2, **frameworks.fed_by(run.path)}
    stages = frameworks.recorded(frameworks.megatron, script=script, **given)
    assert frameworks.furthest(run.gradients(0), open_run(stages).gradients(0)) < 1e-5
    frameworks.aligned(run.path, stages)
