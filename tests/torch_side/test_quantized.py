"""What a run that multiplies in FP8 or FP4 says of it, and what it carries from step to step."""

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("megatron.core")

from msgspec import convert  # noqa: E402

from align_hooks.record.format.schema import MatrixProducts  # noqa: E402
from align_hooks.record.format.state import ABSENT  # noqa: E402
from align_hooks.settings import Settings  # noqa: E402
from align_hooks.torch_side import state  # noqa: E402
from align_hooks.torch_side.hooks.model import products  # noqa: E402
from align_hooks.torch_side.refusals import refusals  # noqa: E402

ARGS = {"fp8": None, "fp8_recipe": "delayed", "fp8_wgrad": True, "first_last_layers_bf16": False, "fp4": None, "fp4_recipe": "nvfp4"}
ARGS |= {"num_layers_at_start_in_bf16": 1, "num_layers_at_end_in_bf16": 2}


def said(**args: object) -> str | None:
    made = products(SimpleNamespace(**ARGS | args))
    return None if made is None else str(convert(made, MatrixProducts))


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({}, ""),
        ({"fp8": "hybrid"}, "hybrid delayed"),
        ({"fp8": "e4m3", "fp8_recipe": "mxfp8", "fp8_wgrad": False}, "e4m3 mxfp8"),  # only delayed scaling reads it
        ({"fp8": "e4m3", "fp8_wgrad": False, "fp8_param_gather": True}, "e4m3 delayed --no-fp8-wgrad --param-gather"),
        ({"fp8": "e4m3", "fp8_recipe": "blockwise", "first_last_layers_bf16": True}, "e4m3 blockwise --first-last-layers-bf16 1+2"),
        ({"fp8": "hybrid", "fp8_multi_head_attention": True}, "hybrid delayed --fp8-dot-product-attention"),
        ({"fp4": "e2m1", "fp4_param_gather": True}, "e2m1 nvfp4 --param-gather"),
        ({"fp8": "hif8", "fp8_recipe": "tensorwise"}, "hif8 tensorwise"),  # MindSpeed's
        ({"fp8": "hybrid", "te_precision_config_file": "layers.yaml"}, None),
    ],
)
def test_arguments_say_in_which_format_matrices_are_multiplied(args: dict[str, object], expected: str | None) -> None:
    assert said(**args) == expected


def test_cores_without_fp4_are_read_too() -> None:
    older = {name: value for name, value in ARGS.items() if "fp4" not in name}
    assert products(SimpleNamespace(**older)) == {"format": ""}


@pytest.mark.parametrize("recipe", ["delayed", "tensorwise", "blockwise", "mxfp8", "custom"])
@pytest.mark.parametrize("kind", ["e4m3", "hybrid"])
def test_a_rehearsal_refuses_every_format_and_recipe(kind: str, recipe: str) -> None:
    asked = {"fp8": kind, "fp8_recipe": recipe, "fp8_param_gather": True}
    (line,) = refusals(Settings(device="cpu"), asked.get)
    assert line == "ALIGN_HOOKS_DEVICE=cpu: --fp8-format only an accelerator can follow; leave it out"


@pytest.mark.parametrize(
    ("asked", "flag"), [({"fp4": "e2m1"}, "--fp4-format"), ({"te_precision_config_file": "layers.yaml"}, "--te-precision-config-file")]
)
def test_a_rehearsal_refuses_fp4_and_formats_by_layer(asked: dict[str, str], flag: str) -> None:
    assert list(refusals(Settings(device="cpu"), asked.get)) == [
        f"ALIGN_HOOKS_DEVICE=cpu: {flag} only an accelerator can follow; leave it out"
    ]


# ---- scales, by stand-ins of Transformer Engine's modules (module/base.py, ops/op.py: 1.0 to 2.18 have these names)


def scaling(value: float) -> SimpleNamespace:
    return SimpleNamespace(scale=torch.full((3,), value), amax_history=torch.full((4, 3), value))


class Linear(torch.nn.Linear):
    """A module before its first pass, which has no scales yet, or behind it."""

    def __init__(self, **scalings: object) -> None:
        super().__init__(2, 2)
        self.fp8_meta = {"recipe": None, "fp8_group": None, **scalings}


class Operation(torch.nn.Module):
    """One of the operations that can be fused."""

    def __init__(self) -> None:
        super().__init__()
        self._fp8_metas = {"forward": {"scaling_fwd": scaling(2)}, "backward": None}


def held(*modules: torch.nn.Module, monkeypatch: pytest.MonkeyPatch, chunks: int = 1, **args: object) -> dict[str, Any]:
    monkeypatch.setattr(state, "get_args", lambda: SimpleNamespace(**ARGS | {"fp8": "hybrid"} | args))
    named = state.scaled_modules([torch.nn.Sequential(*modules)] * chunks)
    return {name: value for path, module in named for name, value in state.scalings(path, module).items()}


def test_scales_and_histories_are_copied_by_module_and_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Linear(scaling_fwd=scaling(1), scaling_bwd=scaling(3))
    found = held(torch.nn.Linear(2, 2), module, Operation(), monkeypatch=monkeypatch)
    module.fp8_meta["scaling_fwd"].amax_history.fill_(9)  # what the step makes of it
    assert {name: value if value == ABSENT else value.unique().tolist() for name, value in found.items()} == {
        "1.scaling_fwd": [1], "1.scaling_bwd": [3], "2.scaling_fwd": [2], "2.scaling_bwd": ABSENT,
    }  # fmt: skip
    assert found["1.scaling_fwd"].shape == (15,)


def test_a_run_that_lost_its_scales_is_unlike_one_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a resumed run has before its first pass where its checkpoint brought no extra state."""
    assert set(held(Linear(), monkeypatch=monkeypatch).values()) == {ABSENT}
    assert "1.0.scaling_fwd" in held(Linear(), monkeypatch=monkeypatch, chunks=2)


def test_what_cannot_be_read_and_what_no_step_carries_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = Linear(scaling_fwd=SimpleNamespace(scale=torch.ones(3)), scaling_bwd=scaling(1))
    assert [*held(unknown, monkeypatch=monkeypatch)] == ["0.scaling_bwd"]
    for args in ({"fp8_recipe": "mxfp8"}, {"fp8": None}):
        assert held(Linear(scaling_fwd=scaling(1)), monkeypatch=monkeypatch, **args) == {}
