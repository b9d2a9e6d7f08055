"""What a step keeps on a GPU stays there, and crosses to the host as often as is promised: on a GPU of tensors without values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("megatron.core")

from megatron.core.optimizer import clip_grads  # noqa: E402
from megatron.training import global_vars  # noqa: E402

from align_hooks.names.blocks import Blocks  # noqa: E402
from align_hooks.process.ranks import Launch  # noqa: E402
from align_hooks.record.format.state import UPDATES  # noqa: E402
from align_hooks.settings import Settings  # noqa: E402
from align_hooks.torch_side import arrays, probe_recorder, probes, routing  # noqa: E402
from align_hooks.torch_side.activation_numbers import numbers_of  # noqa: E402
from align_hooks.torch_side.hooks import forward, gradients, norm, terms, train_step, update  # noqa: E402
from align_hooks.torch_side.hooks import routing as routing_hook  # noqa: E402
from align_hooks.torch_side.hooks.step import to_host  # noqa: E402
from align_hooks.torch_side.model import Parameter, Parameters  # noqa: E402
from align_hooks.torch_side.norms import NormPlan  # noqa: E402
from align_hooks.torch_side.place import SINGLE_RANK  # noqa: E402
from align_hooks.torch_side.session import CurrentStep, TorchSession  # noqa: E402
from align_hooks.torch_side.sketches import SketchPlan  # noqa: E402
from synthetic import fused as fused_of  # noqa: E402
from torch_side.fake_gpu import Transfers, fake_gpu  # noqa: E402

ROWS, LENGTH, VOCABULARY, EXPERTS, MICRO_BATCHES = 2, 16, 64, 8, 2
SHAPES = {"qkv": ((64, 32, 32), 64), "norm": ((64,), None), "fc1": ((96, 96), 64)}
TYPES = (torch.float32, torch.bfloat16, torch.float16)
HOOKED: list[Callable[[Any], Any]] = []
"""The hooks of tensors, which autograd cannot call on a GPU that is not there."""


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Transfers]:
    args = {"seq_length": LENGTH, "micro_batch_size": ROWS, "num_experts": EXPERTS}
    args |= {"consumed_train_samples": 0, "sequence_parallel": False, "calculate_per_token_loss": False, "fp8": None}
    monkeypatch.setattr(global_vars, "_GLOBAL_ARGS", SimpleNamespace(**args))
    monkeypatch.setattr(torch.Tensor, "register_hook", lambda tensor, hook: HOOKED.append((tensor, hook)))
    monkeypatch.setattr(clip_grads, "multi_tensor_applier", norm_of_all)
    HOOKED.clear()
    with fake_gpu() as transfers:
        yield transfers


def norm_of_all(kernel: Any, overflow: Any, lists: list[list[Any]], *given: object) -> tuple[Any, None]:
    """Return what Apex's kernel of norms returns, which Megatron's own asks of a driver."""
    return torch.stack([torch.linalg.vector_norm(tensor) for tensor in lists[0]]).norm().view(1), None


def on_gpu(*shape: int, dtype: Any = torch.float32, **of: Any) -> Any:
    return torch.empty(*shape, dtype=dtype, device="cuda", **of)


def recording(*kinds: str, at: int = 0) -> TorchSession:
    """Return a session of a rank on a GPU, recording kinds at step 0, whose errors are raised."""
    asked = {"RUN": "run", "ON_ERROR": "raise", **dict.fromkeys(kinds, "0")}
    settings = Settings.from_environment({f"ALIGN_HOOKS_{name}": value for name, value in asked.items()})
    session = TorchSession("torch", settings, Launch(0, 1, "one", "host"))
    session.recording.writer = SimpleNamespace(gradients=lambda *given: None)  # type: ignore[assignment]
    session.step, session.place, session.chunks = at, SINGLE_RANK, (torch.nn.BatchNorm1d(4, device="cuda"),)
    session.parameters = parameters(torch.bfloat16)
    count = on_gpu(1, dtype=torch.int32)
    leaf = SimpleNamespace(state={}, param_groups=[{"step": count, "lr": 1e-3, "params": [0]}])
    session.optimizer = SimpleNamespace(
        optimizer=leaf, config=SimpleNamespace(clip_grad=1.0), get_loss_scale=lambda: on_gpu(1), grad_scaler=None
    )
    session.leaves = [session.optimizer]
    return session


def parameters(dtype: Any) -> Parameters:
    """Return parameters of a type with fp32 main parameters and their gradients."""
    made = []
    for name, (rows, width) in SHAPES.items():
        shapes = {f"{name}.{index}": (size,) if width is None else (size, width) for index, size in enumerate(rows)}
        fused = fused_of(name, shapes, Blocks(1, rows))
        model, main = on_gpu(*fused.shape, dtype=dtype), on_gpu(*fused.shape)
        main.grad = on_gpu(*fused.shape)
        made.append(Parameter(model.requires_grad_(), fused, fused, main, counted=True))
    return Parameters(tuple(made), None, None, layers=1, single_rank=False)  # type: ignore[arg-type]


def trained(session: TorchSession) -> None:
    """Train a step by every hook of ours, with results of the framework's that are on the GPU."""
    chunk, optimizer = session.chunks[0], session.optimizer
    losses = on_gpu(ROWS, LENGTH, requires_grad=True)
    router: Any = torch.nn.Identity()
    router.topk, router.config = 2, SimpleNamespace(moe_pad_expert_input_to_capacity=False)
    session.routers = {router: "router"}

    def model(input_ids: Any, position_ids: Any, attention_mask: Any, labels: Any = None, loss_mask: Any = None) -> Any:
        chosen = on_gpu(LENGTH * ROWS, EXPERTS), on_gpu(LENGTH * ROWS, EXPERTS, dtype=torch.bool)
        routing_hook.wrap(session, lambda logits: chosen, router, (on_gpu(LENGTH, ROWS, EXPERTS),), {})
        context = SimpleNamespace(needs_input_grad=(True, True))
        terms.auxiliary(session, lambda *given: None, None, (context, on_gpu(4), on_gpu(1)), {})
        return losses

    def script() -> Any:
        tokens, labels = (on_gpu(ROWS, LENGTH, dtype=torch.int64) for _ in range(2))
        output = forward.wrap(session, model, chunk, (tokens, tokens, None), {"labels": labels})
        return output, lambda output: (output.sum(), on_gpu(1, dtype=torch.int32), {})

    train_step.keep_state(session, None)
    for _ in range(MICRO_BATCHES):
        output, loss_function = train_step.forward_step(session, script, None, (), {})
        train_step.objective(session, lambda output=output, listened=loss_function: listened(output)[0], None, (), {})
    for tensor, hook in HOOKED:
        hook(torch.empty_like(tensor))
    gradients.wrap(session, lambda: False, optimizer, (), {})
    taken = [parameter.gradient() for parameter in session.parameters or ()]

    def global_norm(grads_for_norm: Any, norm_type: float = 2, grad_stats_parallel_group: Any = None) -> Any:
        return clip_grads.multi_tensor_applier(clip_grads.l2_norm_impl, on_gpu(1), [grads_for_norm], False)[0]

    total = norm.wrap(session, global_norm, None, ([*taken, on_gpu(5)],), {})
    update.wrap(session, lambda: (True, total, None), optimizer, (), {})


KINDS = {
    "nothing": ((), 0),
    "a step that was not selected": (("BATCHES", "LOCAL_NORMS", "SKETCHES", "GRADIENTS", "ROUTING"), 0),
    "norms and sketches": (("LOCAL_NORMS", "SKETCHES"), 0),
    "experts": (("ROUTING",), 0),
    "batches": (("BATCHES",), 4 * MICRO_BATCHES),
    "gradients": (("GRADIENTS", "LOCAL_NORMS"), sum(len(rows) for rows, _ in SHAPES.values())),
}
"""What is recorded, and how many tensors are written whole: of a micro-batch tokens, positions, labels and token losses."""


@pytest.mark.parametrize("case", KINDS)
def test_a_step_is_kept_on_the_device_and_crosses_once(case: str, gpu: Transfers) -> None:
    kinds, whole = KINDS[case]
    session = recording(*kinds, at=int(case == "a step that was not selected"))
    trained(session)
    assert gpu.made == whole
    numbers, vectors = to_host(session)
    assert gpu.made == whole + 1
    assert {"loss 0", "loss 1", "update grad_norm", f"state {UPDATES}"} <= numbers.keys()
    assert ({"norms", "sketches"} <= vectors.keys()) is (case == "norms and sketches")
    assert ("weights of tokens 0 1" in vectors) is ("experts router" in vectors) is (case == "batches")
    if case == "experts":
        assert routing.choices(session) is not None and gpu.made == 2


@pytest.mark.parametrize("scaled", [False, True])
def test_points_are_kept_on_the_device_and_cross_once(scaled: bool, gpu: Transfers) -> None:
    session, widths = recording("ACTIVATIONS"), {"a": 8, "b": 24}
    layers = {name: torch.nn.Linear(8, width, device="cuda") for name, width in widths.items()}
    shown = [probes.ProbePoint(layers[name], (probes.ProbeSlice(name, (0, width), width),)) for name, width in widths.items()]
    watch = probe_recorder.ProbeRecorder(session, SINGLE_RANK, shown, scale=on_gpu(1) if scaled else 1.0)
    watch.begin()
    for _ in range(MICRO_BATCHES):
        for layer in layers.values():
            layer(on_gpu(LENGTH, ROWS, 8))
    for tensor, hook in HOOKED:
        hook(torch.empty_like(tensor))
    watch.end()
    assert gpu.made == 0 and watch.numbers.taken()[1].device.type == "cuda"
    made = watch.made()
    assert gpu.made == 1
    assert set(made.sums) == {"a", "b", "a#gradient", "b#gradient"}


@pytest.mark.parametrize("ask", ["weight_squares", "weight_sketches"])
@pytest.mark.parametrize("dtype", TYPES)
def test_numbers_of_weights_cross_once(ask: str, dtype: Any, gpu: Transfers) -> None:
    assert getattr(parameters(dtype), ask)()
    assert gpu.made == 1


def test_what_is_injected_or_loaded_comes_from_the_host_and_waits_for_nothing(gpu: Transfers) -> None:
    session = recording()
    assert session.parameters is not None
    read = SimpleNamespace(read=lambda step, fused: np.zeros(fused.shape, np.float32), made=set())
    gradients.inject(session, read, 0)  # type: ignore[arg-type]
    session.parameters.load(lambda fused: np.zeros(fused.shape, np.float32))
    assert (gpu.made, read.made) == (0, {0})


SHAPE = st.tuples(st.integers(1, 70), st.integers(1, 70))


@settings(max_examples=12)
@given(dtype=st.sampled_from(TYPES), shapes=st.lists(SHAPE, min_size=1, max_size=4))
def test_sums_of_any_tensors_are_made_and_kept_on_the_device(dtype: Any, shapes: list[tuple[int, int]]) -> None:
    with fake_gpu() as gpu:
        fused = [fused_of(f"x{index}", {f"x{index}.0": shape}, Blocks(1, shape[:1])) for index, shape in enumerate(shapes)]
        pairs = [(one, on_gpu(*one.shape, dtype=dtype)) for one in fused]
        made = [NormPlan().norms(pairs).numbers, SketchPlan().sketches(pairs).numbers]
        signs = probe_recorder.rows_on(torch.device("cuda"), range(1), ((0, shapes[0][0]),), shapes[0][0])
        columns = probe_recorder.columns_on(torch.device("cuda"), (0, shapes[0][1]))
        made.append(numbers_of(pairs[0][1][None], signs, columns).reshape(-1))
        assert {tensor.device.type for tensor in made} == {"cuda"} and gpu.made == 0
        assert [tensor.dtype for tensor in made] == [torch.float32, torch.float64, torch.float64]
        there = arrays.moved(made)
        assert gpu.made == 1 and [(one.shape, one.dtype) for one in there] == [(one.shape, one.dtype) for one in made]


def test_a_read_of_a_value_is_an_error(gpu: Transfers) -> None:
    """So that the others cannot pass for want of eyes."""
    value = on_gpu(4)
    for read in (lambda: bool(value.sum()), lambda: value[value > 0], lambda: torch.equal(value, value), lambda: int(value[0])):
        with pytest.raises(RuntimeError):
            read()
    arrays.to_numpy(value), value.cpu(), torch.zeros(4).copy_(value)
    assert gpu.made == 3


def test_the_current_step_of_a_session_begins_empty(gpu: Transfers) -> None:
    assert to_host(recording()) == ({}, {}) and gpu.made == 0 and recording().current == CurrentStep()
