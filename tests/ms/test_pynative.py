"""The PyNative trainer's parts that need no training: operators of a rehearsal, the choice of sparse attention, the loss of a step."""

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import mindspore
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindspore import Tensor, mint

from align_hooks.ms_side.pynative import rehearsal as operators
from align_hooks.ms_side.pynative.config import place_in
from align_hooks.ms_side.pynative.current import PynativeMicroBatch, token_mean
from align_hooks.ms_side.pynative.hyper_parallel import StandIn
from align_hooks.ms_side.pynative.sparse import choose, chosen
from align_hooks.ms_side.refusals import pynative_refusals
from align_hooks.process.ranks import Launch
from align_hooks.replay.routing import Router
from align_hooks.settings import Settings


@pytest.fixture(autouse=True, scope="module")
def eager() -> Iterator[None]:
    """Operators one by one, as the trainer runs them."""
    mode = mindspore.get_context("mode")
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    yield
    mindspore.set_context(mode=mode)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def numpy_softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    raised = np.exp(x.astype(np.float64) - x.max(axis=axis, keepdims=True))
    return raised / raised.sum(axis=axis, keepdims=True)


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x.astype(np.float64)))


def rms(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.square(x.astype(np.float64)).mean(axis=-1, keepdims=True) + 1e-6)


OPERATORS, FUNCTIONS = ({name: twin for name, (twin, _) in table.items()} for table in (operators.OPERATORS, operators.FUNCTIONS))
X = numbers(4, 6)
TWINS: Mapping[str, tuple[Callable[[Tensor], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "softmax": (lambda x: operators.softmax(x, dim=-1), numpy_softmax),
    "silu": (operators.silu, silu),
    "swiglu": (operators.swiglu, lambda x: silu(x[:, :3]) * x[:, 3:]),
    "rms_norm": (lambda x: operators.rms_norm(x, mint.ones(6, dtype=mindspore.float32))[0], rms),
    "exp": (OPERATORS["exp"], np.exp),
    "log": (lambda x: OPERATORS["log"](x * x + 1), lambda x: np.log(x * x + 1)),
    "sigmoid": (OPERATORS["sigmoid"], lambda x: silu(x) / x),
    "cos": (OPERATORS["cos"], np.cos),
    "sin": (OPERATORS["sin"], np.sin),
    "softplus": (FUNCTIONS["softplus"], lambda x: np.log1p(np.exp(x))),
    "split": (
        lambda x: mint.cat([part * (index + 1) for index, part in enumerate(operators.split(x, [1, 2, 3], 1))], 1),
        lambda x: np.concatenate([x[:, :1], 2 * x[:, 1:3], 3 * x[:, 3:]], 1),
    ),
    "roll": (lambda x: operators.roll(x, -1, 1), lambda x: np.roll(x, -1, 1)),
    "stack": (lambda x: OPERATORS["stack"]([x, x * 2], 1), lambda x: np.stack([x, x * 2], 1)),
    "norm": (lambda x: operators.norm(x, dim=1), lambda x: np.linalg.norm(x, axis=1)),
    "outer": (lambda x: OPERATORS["outer"](x[0], x[1]), lambda x: np.outer(x[0], x[1])),
    "topk": (lambda x: operators.topk(x, 2)[0], lambda x: np.sort(x, axis=-1)[:, :-3:-1]),
    "addcmul": (lambda x: OPERATORS["addcmul"](x, x, x, value=2), lambda x: x + 2 * x * x),
}
"""Name to a twin, and to the same in NumPy, ``[4, 6]`` to whatever it makes."""


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_makes_what_numpy_makes(name: str) -> None:
    twin, plain = TWINS[name]
    np.testing.assert_allclose(twin(Tensor(X)).asnumpy(), plain(X), rtol=3e-7, atol=3e-7)


@pytest.mark.parametrize("name", TWINS)
def test_the_gradient_of_a_twin_is_the_slope(name: str) -> None:
    """Of a sum with random weights: along a random direction, by central differences in fp64."""
    twin, plain = TWINS[name]
    weights = np.random.default_rng(5).standard_normal(plain(X).shape)
    gradient = mindspore.grad(lambda x: (twin(x) * Tensor(weights.astype(np.float32))).sum())(Tensor(X)).asnumpy()
    along, by = np.random.default_rng(6).standard_normal(X.shape), 1e-4
    ahead, behind = ((plain(X + sign * by * along) * weights).sum() for sign in (1, -1))
    assert (gradient * along).sum() == pytest.approx((ahead - behind) / (2 * by), rel=2e-3)


@pytest.mark.parametrize(
    ("name", "value"), [("add_", X + 2), ("sub_", X - 2), ("mul_", X * 2), ("div_", X / 2), ("fill_", np.full_like(X, 2))]
)
def test_what_is_done_in_place_is_done(name: str, value: np.ndarray) -> None:
    twin, _ = operators.IN_PLACE[name]
    for own in (Tensor(X.copy()), mindspore.Parameter(Tensor(X.copy()))):
        twin(own, 2.0 if name == "fill_" else Tensor(np.float32(2)))  # type: ignore[operator]
        np.testing.assert_allclose(own.asnumpy(), value, rtol=1e-6)


def test_every_twin_has_an_original_and_a_reason() -> None:
    """Functions that it stands in for are there to be replaced; methods, and what a newer MindSpore has, may be added."""
    for owner, name, _, why in operators.twins():
        added = owner in (Tensor, mindspore.Parameter) or why == operators.OF_NEWER
        assert why and (hasattr(owner, name) or added), f"{owner}.{name}"


@given(st.integers(1, 4).flatmap(lambda count: st.tuples(st.just(count), st.integers(count, 9), st.randoms(use_true_random=False))))
def test_masked_positions_of_a_choice_are_the_lowest_that_are_free(case: tuple[int, int, Any]) -> None:
    count, keys, random = case
    order = [random.sample(range(keys), count) for _ in range(5)]
    seen = [random.randint(0, count) for _ in order]
    scores = [[0.0] * visible + [-1e30] * (count - visible) for visible in seen]
    made = chosen(Tensor(np.array([order], np.int32)), Tensor(np.array([scores], np.float32)))
    assert made.shape == (1, 5, count) and made.dtype == np.int16
    for row, positions, visible in zip(made[0].tolist(), order, seen, strict=True):
        kept = set(positions[:visible])
        free = [key for key in range(keys) if key not in kept][: count - visible]
        assert row == sorted(kept | set(free))


def test_recorded_positions_take_the_place_of_an_indexers_own_which_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """With their own scores; in a step that is not replayed the indexer chooses."""
    monkeypatch.setattr(Tensor, "detach", lambda own: own, raising=False)  # the trainer adds it
    scores = Tensor(np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32))
    given = np.random.default_rng(1).permuted(np.tile(np.arange(8, dtype=np.int16), (2, 3, 1)), axis=2)[..., :2]
    micro_batch = PynativeMicroBatch({"tokens": np.zeros((2, 3))})
    session: Any = SimpleNamespace(
        recording=SimpleNamespace(must_succeed=contextlib.nullcontext),
        current=SimpleNamespace(micro_batches=[micro_batch]),
        micro_batch=micro_batch,
        rows_of=lambda micro_batch: slice(0, 2),
        routing=SimpleNamespace(steps=range(1), made=set(), source="", experts=lambda step, name, facts: given),
        indexers={"indexer": Router(8, 2)},
        step=0,
    )
    values, positions = choose(session, operators.topk, "indexer", scores, k=2)
    np.testing.assert_array_equal(positions.asnumpy(), given)
    np.testing.assert_array_equal(values.asnumpy(), np.take_along_axis(scores.asnumpy(), given.astype(int), 2))
    own = operators.topk(scores, 2)[1].asnumpy()
    np.testing.assert_array_equal(micro_batch.positions["indexer"][0].asnumpy(), own)
    session.step = 1
    np.testing.assert_array_equal(choose(session, operators.topk, "indexer", scores, k=2)[1].asnumpy(), own)


@pytest.mark.parametrize(
    ("masks", "parts", "mean"),
    [
        ([[1, 1], [1, 1]], [3.0, 1.0], 4.0),
        ([[1, 1], [1, 0]], [3.0, 1.0], 14 / 3),
        ([[1, 1], [0, 0]], [3.0, 0.0], 6.0),
        ([[0, 0], [0, 0]], [0.0, 0.0], 0.0),
        ([[1, 1], [1, 0]], [3.0], None),
    ],
)
def test_a_loss_weighs_every_token_alike(masks: list[list[int]], parts: list[float], mean: float | None) -> None:
    """Of micro-batches whose means are twice their parts of the loss that the trainer prints; without a part it is not known."""
    assert token_mean(sum(parts), parts, np.array(masks, float).sum(axis=1)) == (None if mean is None else pytest.approx(mean))


@pytest.mark.parametrize(("mask", "mean"), [([[1, 1], [1, 1]], 4.0), ([[1, 1], [1, 0]], 14 / 3), ([[0, 0], [0, 0]], 4.0)])
def test_a_rank_of_several_knows_its_own_loss_by_its_parts_alone(mask: list[list[int]], mean: float) -> None:
    """What the trainer prints is the mean over ranks; of a rank without tokens the parts are kept, since they weigh nothing."""
    assert token_mean(None, [3.0, 1.0], np.array(mask, float).sum(axis=1)) == pytest.approx(mean)
    assert token_mean(None, [3.0], np.array(mask, float).sum(axis=1)) is None


def tensor(number: float) -> Tensor:
    return Tensor(np.float32(number))


def test_what_stands_in_for_hyper_parallel_has_every_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class that nothing is an instance of, the same in every module; an import of anything else is not answered."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, StandIn()])
    for name in ("hyper_parallel", "hyper_parallel.core", "hyper_parallel.core.dtensor"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    core, inner = (importlib.import_module(f"hyper_parallel.{name}") for name in ("core", "core.dtensor"))
    assert core.DTensor is inner.DTensor and not isinstance(tensor(1), inner.DTensor)
    assert StandIn().find_spec("hyper_parallels", None) is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("hyper_parallels")


@pytest.mark.parametrize(
    ("ranks", "cut", "variables", "said"),
    [
        (2, {}, {"ALIGN_HOOKS_RUN": "run", "ALIGN_HOOKS_ACTIVATIONS": "all"}, None),
        (2, {"expert_parallel": 2}, {"ALIGN_HOOKS_RUN": "run", "ALIGN_HOOKS_ROUTING": "all"}, None),
        (2, {"tensor_parallel": 2}, {"ALIGN_HOOKS_RUN": "run", "ALIGN_HOOKS_GRADIENTS": "all"}, None),
        (2, {"tensor_parallel": 2}, {"ALIGN_HOOKS_RUN": "run", "ALIGN_HOOKS_ROUTING": "0"}, "ALIGN_HOOKS_ROUTING: under"),
        (2, {"tensor_parallel": 2}, {"ALIGN_HOOKS_TEACHER": "other"}, "ALIGN_HOOKS_TEACHER: under parallelism.tensor_parallel: 2"),
        (2, {"pipeline_parallel": 2}, {"ALIGN_HOOKS_RUN": "run"}, "parallelism.pipeline_parallel is 2: of"),
        (4, {"context_parallel": 2}, {"ALIGN_HOOKS_RUN": "run"}, "parallelism.context_parallel is 2"),
        (2, {"expert_parallel": 2}, {"ALIGN_HOOKS_RUN": "run", "ALIGN_HOOKS_LOCAL_NORMS_POINT": "local"}, "ALIGN_HOOKS_LOCAL"),
        (2, {}, {"ALIGN_HOOKS_RUN": "run", "ALIGN_HOOKS_LOCAL_NORMS_POINT": "local"}, "ALIGN_HOOKS_LOCAL"),
        (None, {"tensor_parallel": 2}, {"ALIGN_HOOKS_RUN": "run"}, None),
        (1, {"tensor_parallel": 2}, {"ALIGN_HOOKS_RUN": "run"}, "parallelism.tensor_parallel is 2 in a job of one rank"),
        (2, {"cpu_offload": True}, {"ALIGN_HOOKS_RUN": "run"}, "parallelism.cpu_offload is True, which was not tried"),
        (2, {"disable_gradient_division": False}, {"ALIGN_HOOKS_RUN": "run"}, "parallelism.disable_gradient_division is False"),
        (2, {"disable_gradient_division": True}, {"ALIGN_HOOKS_RUN": "run"}, None),
    ],
)  # fmt: skip
def test_layouts_of_ranks_that_are_not_read_are_refused_by_name(
    ranks: int | None, cut: Mapping[str, object], variables: Mapping[str, str], said: str | None
) -> None:
    """The doctor, which knows no number of ranks, refuses no layout that a job may have."""
    keys = {f"parallelism.{name}": size for name, size in cut.items()}
    lines = list(pynative_refusals(Settings.from_environment(variables), keys.get, ranks))
    assert len(lines) == (said is not None)
    assert all(said and line.startswith(said) for line in lines)


@pytest.mark.parametrize(("rank", "dp", "tp", "ep"), [(0, 0, 0, 0), (1, 0, 1, 1), (5, 2, 1, 1), (7, 3, 1, 1)])
def test_places_of_ranks_are_those_of_the_trainers_meshes(rank: int, dp: int, tp: int, ep: int) -> None:
    config = SimpleNamespace(parallelism=SimpleNamespace(tensor_parallel=2, expert_parallel=2, pipeline_parallel=1, context_parallel=1))
    place = place_in(Launch(rank, 8), config)
    sizes = {"dp_size": 4, "tp_size": 2, "pp_size": 1, "cp_size": 1, "ep_size": 2}
    assert place == {"dp": dp, "tp": tp, "pp": 0, "cp": 0, "ep": ep} | sizes
