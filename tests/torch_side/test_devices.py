"""What runs on a device in every step: without a read by the host, without fp64, and where a device holds what others count."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("megatron.core")

from torch.profiler import ProfilerActivity, profile  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from align_hooks.names.blocks import Blocks  # noqa: E402
from align_hooks.names.fused import Fused, Piece  # noqa: E402
from align_hooks.process.ranks import Launch  # noqa: E402
from align_hooks.record.format.token_digest import digest, text  # noqa: E402
from align_hooks.settings import Settings  # noqa: E402
from align_hooks.torch_side import arrays, optimizer, probe_recorder, probes, routing  # noqa: E402
from align_hooks.torch_side.activation_numbers import numbers_of  # noqa: E402
from align_hooks.torch_side.hooks import norm as norm_hook  # noqa: E402
from align_hooks.torch_side.hooks import step as step_hook  # noqa: E402
from align_hooks.torch_side.norms import NormPlan  # noqa: E402
from align_hooks.torch_side.session import CurrentStep, ForwardBackward, TorchSession  # noqa: E402
from align_hooks.torch_side.sketches import SketchPlan  # noqa: E402
from align_hooks.torch_side.token_digest import TokenDigest, sums_of_rows  # noqa: E402
from torch_side.fake_gpu import fake_gpu  # noqa: E402

READS = ("aten::item", "aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::equal")
"""Operators for which the host waits for a device; some are called inside others."""
Make = Callable[..., Any]


def parameter(name: str, rows: tuple[int, ...], width: int | None) -> Fused:
    """Pieces below each other in one tensor; a vector for each where there is no width."""
    shapes = [(size,) if width is None else (size, width) for size in rows]
    pieces = tuple(Piece(f"{name}.{index}", shape, tuple((0, length) for length in shape)) for index, shape in enumerate(shapes))
    return Fused(name, pieces, Blocks(1, rows))


FUSED = [parameter("qkv", (64, 32, 32), 64), parameter("norm", (64,), None), parameter("fc1", (256, 200), 64)]


def gradients(make: Make) -> list[Any]:
    return [make(*fused.shape) for fused in FUSED]


def planned(plan: Any, take: str, make: Make) -> object:
    """Take numbers twice: the second time where each of them goes is known."""
    getattr(plan, take)(zip(FUSED, gradients(make), strict=True))
    return getattr(plan, take)(zip(FUSED, gradients(make), strict=True)).numbers


def signed(make: Make) -> object:
    device = make(1).device
    rows = probe_recorder.rows_on(device, range(2, 4), ((0, 8), (24, 32)), 32)
    return numbers_of(make(1, 32, 96), rows, probe_recorder.columns_on(device, (0, 96)))


def digested(make: Make) -> object:
    return TokenDigest([sums_of_rows(make(2, 128, dtype=torch.int64)) for _ in range(2)]).upper()


def counted(make: Make) -> object:
    leaf = SimpleNamespace(optimizer=SimpleNamespace(state={}, param_groups=[{"step": make(1, dtype=torch.int32)}]))
    return optimizer.updates_made([leaf])


ROUTER = SimpleNamespace(topk=2, config=SimpleNamespace(moe_pad_expert_input_to_capacity=True))
IN_A_STEP: dict[str, Callable[[Make], object]] = {
    "norms": lambda make: planned(NormPlan(), "norms", make),
    "sketches": lambda make: planned(SketchPlan(), "sketches", make),
    "points": signed,
    "digest of tokens": digested,
    "count of updates": counted,
    "other gradients": lambda make: norm_hook.places(SimpleNamespace(current=CurrentStep()), gradients(make)),  # type: ignore[arg-type]
    "routed": lambda make: routing.routing_map_of(ROUTER, make(64, 8), make(64, 8, dtype=torch.bool)),
    "experts": lambda make: routing.chosen_by(ROUTER, make(64, 8, dtype=torch.bool)),
}


@pytest.mark.parametrize("case", IN_A_STEP)
def test_on_a_gpu_the_host_reads_nothing(case: str) -> None:
    with fake_gpu() as gpu:
        made = IN_A_STEP[case](lambda *shape, **of: torch.empty(*shape, device="cuda", **of))
    assert gpu.made == 0
    for tensor in made if isinstance(made, tuple) else [made]:
        assert isinstance(tensor, list) or tensor.device.type == "cuda"


@pytest.mark.parametrize("case", IN_A_STEP)
def test_no_operator_reads_inside(case: str) -> None:
    """A fake tensor does not see what an operator does within itself; a profiler does. What a host reads of its own memory is free."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        IN_A_STEP[case](lambda *shape, **of: torch.ones(*shape, **of))
    called = {event.key for event in profiled.key_averages()}
    assert called and (case == "points" or not called & set(READS))


class WithoutFp64(TorchDispatchMode):
    """A device that has no fp64: what asks for it is given fp32, as by torch_npu."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        narrow = {torch.float64: torch.float32}
        kwargs = {key: narrow.get(value, value) if isinstance(value, torch.dtype) else value for key, value in (kwargs or {}).items()}
        return func(*(narrow.get(arg, arg) if isinstance(arg, torch.dtype) else arg for arg in args), **kwargs)


TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int8, torch.bool, torch.float64)


def test_all_numbers_of_a_step_cross_as_they_are() -> None:
    sent = [torch.arange(1, 4 + index).mul(1 << 40).add(1).to(kind) for index, kind in enumerate(TYPES)]
    assert all(there is not here and torch.equal(there, here) for there, here in zip(arrays.moved(sent), sent, strict=True))
    assert arrays.fetched({"none": torch.zeros(0)})["none"].tolist() == []


def test_a_device_without_fp64_keeps_the_digest_of_tokens() -> None:
    batch = np.random.default_rng(0).integers(0, 150_000, (4, 33))
    recording = SimpleNamespace(best_effort=lambda name, look, otherwise: look(), given_up=set())
    current = CurrentStep(ForwardBackward(tokens=TokenDigest([sums_of_rows(torch.from_numpy(batch))])))
    session = SimpleNamespace(current=current, digests=None, recording=recording, say=pytest.fail)
    with WithoutFp64():
        numbers, vectors = step_hook.to_host(session)  # type: ignore[arg-type]
    ended = step_hook.MegatronStep(session, 0, numbers, vectors, False, 0.0, current)  # type: ignore[arg-type]
    assert ended.token_digest() == digest(batch) and session.digests is True
    assert text(int(np.float32(numbers[step_hook.TOKENS]))) != digest(batch)


@pytest.mark.parametrize("fused", [False, True])
def test_updates_that_a_device_counts_are_those_before_the_step(fused: bool) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    adam = torch.optim.Adam([weight], fused=fused)
    made = [optimizer.updates_made([SimpleNamespace(optimizer=adam)])]
    for _ in range(2):
        weight.grad = torch.ones(3)
        adam.step()
        made.append(optimizer.updates_made([SimpleNamespace(optimizer=adam)]))
    assert [int(count) for count in made] == [0, 1, 2]


@pytest.mark.parametrize("rows", [6, 12, 7])
def test_a_rank_counts_its_own_of_the_tokens_that_a_router_gathered(rows: int) -> None:
    chosen = torch.arange(rows * 4).view(rows, 4) % 3 == 0
    if rows == 7:
        with pytest.raises(Exception, match="experts of 7 tokens, this rank has 6"):
            routing.own_tokens(chosen, 6, {"tp": 0, "tp_size": 2})
        return
    size = rows // 6
    parts = [routing.own_tokens(chosen, 6, {"tp": rank, "tp_size": size}) for rank in range(size)]
    assert torch.equal(torch.cat(parts), chosen)


GRAPHS = [{"enable_cuda_graph": True}, {"external_cuda_graph": True}, {"cuda_graph_impl": "local"}]


@pytest.mark.parametrize("args", [*GRAPHS, {}, {"cuda_graph_impl": "none"}])
def test_what_balances_experts_is_unknown_where_graphs_replay_them(args: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from align_hooks.torch_side.hooks import terms

    known = SimpleNamespace(num_experts=4, calculate_per_token_loss=False, **args)
    for module in (routing, step_hook):
        monkeypatch.setattr(module, "get_args", lambda: known)
    seen: list[str] = []
    monkeypatch.setattr(terms, "joined", lambda session, name, wrapped, *given: seen.append(name))
    session: Any = SimpleNamespace(current=SimpleNamespace(in_z_loss=False))
    terms.auxiliary(session, lambda *given: None, None, (), {})
    terms.z_loss(session, lambda *given: terms.auxiliary(session, lambda *given: None, None, (), {}), None, (), {})
    place = dict.fromkeys(("dp_size", "cp_size", "pp_size"), 1) | {"tp": 0}
    ended = step_hook.MegatronStep(SimpleNamespace(place=place), 0, {"term auxiliary": 0.5}, {}, False, 0.0, CurrentStep())  # type: ignore[arg-type]
    graphed = args in GRAPHS
    assert (seen, ended.terms(8, 1)) == (([], None) if graphed else (["auxiliary", "router_z_loss"], {"auxiliary": 0.5}))
    assert not session.current.in_z_loss
    known.num_experts = None
    assert not routing.are_captured()


class Watched(torch.nn.Module):
    """Two layers, of which a fused path may pass the second without a call."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.fused = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), False

    def forward(self, value: Any) -> Any:
        value = self.first(value)
        return torch.nn.functional.linear(value, self.second.weight) if self.fused else self.second(value)


@pytest.mark.parametrize("fused", [False, True])
def test_a_point_whose_module_is_passed_is_said_and_kept(fused: bool, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    args = SimpleNamespace(seq_length=4, micro_batch_size=2, sequence_parallel=False, calculate_per_token_loss=False)
    monkeypatch.setattr(probe_recorder, "get_args", lambda: args)
    model, settings = Watched(), Settings.from_environment({"ALIGN_HOOKS_RUN": "run", "ALIGN_HOOKS_ACTIVATIONS": "0"})
    session = TorchSession("torch", settings, Launch(0, 1, "one", "host"))
    session.recording.writer, session.step = SimpleNamespace(), 0  # type: ignore[assignment]
    session.place = {"dp": 0, "dp_size": 1, "tp": 0, "tp_size": 1, "cp": 0, "cp_size": 1}
    names = ("first", "second")
    seams = [probes.ProbePoint(getattr(model, name), (probes.ProbeSlice(name, (0, 8), 8),), probes.output, probes.uncut) for name in names]
    watch = probe_recorder.ProbeRecorder(session, session.place, seams)
    watch.begin()
    model.fused = fused
    model(torch.ones(4, 2, 8)).sum().backward()
    watch.end()
    made = watch.made()
    assert made.points["unseen"] == (["second"] if fused else [])
    assert ("1 points of rank 0, first second" in capsys.readouterr().out) is fused
    assert set(made.sums) == {name + suffix for name in (names[:1] if fused else names) for suffix in ("", "#gradient")}
