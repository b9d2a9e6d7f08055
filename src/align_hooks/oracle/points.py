"""The canonical points of a layer: the tensors of one forward pass, in the order of computation, ``[rows, sequence, width]``, head-major.

Hooks on our own copy of the layer see the inputs and outputs of modules. The inputs of the attention and the weights of experts are seen
where ``transformers`` calls the attention and torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from align_hooks.comparison.arbitration import PointKind
from align_hooks.record.format.layout import Array

Layout = Callable[[torch.Tensor], torch.Tensor]
OUTPUTS = (
    *("input_layernorm", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "mlp.shared_experts"),
    *(f"mlp.shared_experts.{name}_proj" for name in ("gate", "up", "down")),
    *(f"self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "q_norm", "k_norm", "o_proj")),
    *(f"self_attn.{name}" for name in ("q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj")),
    *("enorm", "hnorm", "eh_proj", "shared_head.norm"),
)
"""Modules of a layer whose output is a point of the module's name."""
INPUTS = {"self_attn.o_proj": "self_attn.core", "post_attention_layernorm": "residual", "mlp.down_proj": "mlp.activation"}
INPUTS |= {"mlp.shared_experts.down_proj": "mlp.shared_experts.activation"}
"""Module of a layer to the point at its input."""
PROBE = "align_hooks_probe"
"""The attribute of an attention that holds its probe."""


@dataclass(frozen=True, slots=True)
class PointRows:
    """Rows of a point's value or of its gradient, a parameter's gradient, a term of the loss, or a router's choice."""

    point: str
    kind: PointKind
    array: Array
    """fp64 ``[rows, sequence, width]``, or ``[rows, sequence]`` of token losses; ``[tokens, width]`` of an expert; a parameter's shape;
    ``[1]`` of a term; int64 ``[rows, sequence, chosen]`` of a choice, ascending."""
    first: int = 0
    """The number of the first row."""
    tokens: Array | None = None
    """Positions, row by row, of an expert's tokens; None of other points."""


@dataclass(frozen=True, slots=True)
class ProbedTensor:
    """A tensor at a point, and the function that makes its layout canonical."""

    tensor: torch.Tensor
    layout: Layout
    tokens: torch.Tensor | None = None

    def canonical(self, tensor: torch.Tensor | None) -> Array:
        """Return the value or its gradient as fp64; 0 for a gradient of None."""
        filled = torch.zeros_like(self.tensor) if tensor is None else tensor
        array: Array = self.layout(filled.detach()).double().numpy()
        return array


def by_positions(sequence: int) -> Layout:
    """Return the layout of ``[rows, sequence, …]`` and of ``[rows · sequence, …]``."""
    return lambda tensor: tensor.reshape(-1, sequence, tensor.numel() // (tensor.shape[0] * (tensor.shape[1] if tensor.ndim > 2 else 1)))


def by_heads(tensor: torch.Tensor) -> torch.Tensor:
    """Make the layout of ``[rows, heads, sequence, head]`` canonical."""
    return tensor.transpose(1, 2).flatten(2)


class LayerProbe(TorchFunctionMode):
    """Sees the points of ``layer``, called ``name``, while it is entered; with ``backward`` their tensors keep gradients.

    Tokens go to the experts ``given``, ``[sequence, chosen]``, unless None: where a rounding decides the choice, nothing behind it can be
    compared with the outputs of other experts."""

    def __init__(self, name: str, layer: Any, sequence: int, *, backward: bool, given: Array | None = None) -> None:
        super().__init__()
        self.name, self.sequence, self.backward = name, sequence, backward
        self.seen: dict[str, ProbedTensor] = {}
        self.logits: torch.Tensor | None = None
        self.choice: torch.Tensor | None = None
        self._given = None if given is None or (given < 0).any() else torch.from_numpy(given.astype("int64"))
        self._expert: tuple[int, torch.Tensor] | None = None
        self._routes = False
        self._weights: list[tuple[int, torch.Tensor]] = []
        modules = dict(layer.named_modules())
        self._removed = [modules[own].register_forward_hook(self._output_of(own)) for own in OUTPUTS if own in modules]
        self._removed += [modules[own].register_forward_pre_hook(self._input_of(point)) for own, point in INPUTS.items() if own in modules]
        if "mlp.experts" in modules:
            self._removed += [modules["mlp.gate"].register_forward_pre_hook(lambda *_: setattr(self, "_routes", True))]
            self._removed += [modules["mlp.gate"].register_forward_hook(lambda *_: setattr(self, "_routes", False))]
            self._removed += [expert.register_forward_hook(self._expert_of(index)) for index, expert in enumerate(modules["mlp.experts"])]
            self._removed += [modules["mlp"].register_forward_hook(self._output_of("mlp"))]
        if "self_attn" in modules:
            setattr(modules["self_attn"], PROBE, self)

    def close(self) -> None:
        """Remove the hooks, so that another probe can be put on the layer."""
        for handle in self._removed:
            handle.remove()

    def see(self, point: str, tensor: torch.Tensor, layout: Layout | None = None, tokens: torch.Tensor | None = None) -> None:
        """Keep a tensor at a point of the layer; the empty point is the layer itself."""
        if self.backward and tensor.requires_grad:
            tensor.retain_grad()
        name = f"{self.name}.{point}" if point else self.name
        self.seen[name] = ProbedTensor(tensor, layout or by_positions(self.sequence), tokens)

    def values(self, first: int) -> list[PointRows]:
        """Return the values of all points, in their order."""
        return self._parts(first, PointKind.VALUE, lambda tensor: tensor)

    def gradients(self, first: int) -> list[PointRows]:
        """Return the gradients of all points, the last point first."""
        return self._parts(first, PointKind.GRADIENT, lambda tensor: tensor.grad)[::-1]

    def _parts(self, first: int, kind: PointKind, of: Callable[[torch.Tensor], torch.Tensor | None]) -> list[PointRows]:
        """Return all points in their order; the weights of chosen experts follow the router's logits."""
        parts: list[PointRows] = []
        for name, at in self.seen.items():
            parts.append(PointRows(name, kind, at.canonical(of(at.tensor)), first, None if at.tokens is None else at.tokens.numpy()))
            if name == f"{self.name}.mlp.gate":
                if self.choice is not None and kind is PointKind.VALUE:
                    parts.append(PointRows(name, PointKind.CHOICE, self.choice.sort(-1).values[None].numpy(), first))
                parts.append(PointRows(f"{name}.weights", kind, self._weighed(of), first))
        return parts

    def _weighed(self, of: Callable[[torch.Tensor], torch.Tensor | None]) -> Array:
        """Return the weights of the experts that each token chose, or their gradients, 0 elsewhere, ``[rows, sequence, experts]``."""
        assert self.logits is not None
        dense = torch.zeros(self.logits.shape, dtype=torch.float64)
        for index, weights in self._weights:
            if (chosen := of(weights)) is not None:
                dense[self.seen[f"{self.name}.mlp.experts.{index}"].tokens, index] = chosen.detach().double().reshape(-1)
        array: Array = by_positions(self.sequence)(dense).numpy()
        return array

    def _output_of(self, point: str) -> Callable[..., None]:
        return lambda module, given, output: self.see(point, output[0] if isinstance(output, tuple) else output)

    def _input_of(self, point: str) -> Callable[..., None]:
        return lambda module, given: self.see(point, given[0])

    def _expert_of(self, index: int) -> Callable[..., None]:
        return lambda module, given, output: setattr(self, "_expert", (index, output))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, name = func(*args, **(kwargs or {})), getattr(func, "__name__", "")
        if self.logits is not None and name == "topk" and self._expert is None and tuple(args[0].shape) == tuple(self.logits.shape):
            self.choice = result.indices
            if self._given is not None and self._given.shape == self.choice.shape:
                result = (args[0].gather(-1, self._given), self._given)
        if self._routes and name == "linear":
            self.logits = result
            self.see("mlp.gate", result)
        elif self._expert is not None and name in ("mul", "__mul__") and args[0] is self._expert[1]:
            if self.backward:
                args[1].retain_grad()
            self._weights.append((self._expert[0], args[1]))
            self._expert = (self._expert[0], result)
        elif self._expert is not None and name == "index_add_":
            self.see(f"mlp.experts.{self._expert[0]}", self._expert[1], lambda tensor: tensor, args[2])
            self._expert = None
        return result


def attention(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Call the plain attention of the layer's own model, after the layer's probe has seen its inputs."""
    probe: LayerProbe | None = getattr(module, PROBE, None)
    if probe is not None:
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            probe.see(f"self_attn.{name}", tensor, by_heads)
    return sys.modules[type(module).__module__].eager_attention_forward(module, query, key, value, *args, **kwargs)
