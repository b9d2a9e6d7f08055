"""What `benchmarks/profiled.py` makes of a profile: no GPU is needed to count events."""

import sys
from pathlib import Path
from types import SimpleNamespace as Of

import pytest

torch = pytest.importorskip("torch")
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path += [str(BENCHMARKS), str(BENCHMARKS / "scripts")]

from device_events import counted  # noqa: E402
from profiled import more  # noqa: E402
from torch.autograd import DeviceType  # noqa: E402


def event(name: str, of_gpu: bool, parent: object = None, microseconds: float = 0.0) -> Of:
    kind = DeviceType.CUDA if of_gpu else DeviceType.CPU
    return Of(name=name, device_type=kind, cpu_parent=parent, time_range=Of(elapsed_us=lambda: microseconds))


def test_kernels_transfers_and_operators_are_told_apart() -> None:
    outer, backward = event("aten::linear", of_gpu=False), event("autograd::engine::evaluate_function: MulBackward0", of_gpu=False)
    below = (("aten::mul", backward), ("aten::mm", outer), ("cudaLaunchKernel", outer))
    events = [outer, backward, *(event(name, of_gpu=False, parent=parent) for name, parent in below)]
    events += [event("ampere_sgemm_128x64_tn", of_gpu=True, microseconds=12.0), event("Memset (Device)", of_gpu=True, microseconds=1.0)]
    events += [event(f"Memcpy {way} (Device -> Pageable)", of_gpu=True, microseconds=2.0) for way in ("DtoH", "HtoD", "DtoD")]
    assert counted(events) == {"operators": 2, "kernels": 1, "microseconds": 12.0, "transfers": 1}


def test_the_profiler_of_this_torch_has_what_is_read() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as made:
        torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3))
    assert counted(made.events())["operators"] >= 1


def test_a_selected_step_is_held_against_the_one_before_it() -> None:
    steps = {step: {"operators": 100 + 30 * (step % 2), "kernels": 7} for step in range(10)}
    assert more(steps) == {"operators": 30, "kernels": 0, "microseconds": 0, "transfers": 0}
