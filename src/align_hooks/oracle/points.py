"""The canonical points of a layer: the tensors of one forward pass, in the order of computation, ``[rows, sequence, width]``, head-major.

Hooks on our own copy of the layer see the inputs and outputs of modules. The inputs of the attention and the weights of experts are seen
where ``transformers`` calls the attention and torch. A side's record of a step has the points that are compared with them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from msgspec import Struct
from numpy.typing import NDArray
from torch.overrides import TorchFunctionMode

from align_hooks.comparison.arbitration import PointKind
from align_hooks.names.points import GRADIENT, TOKEN_LOSSES, place
from align_hooks.quantities.activations import ACTIVATIONS
from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.quantities.routing import ROUTING
from align_hooks.record.format.layout import Array
from align_hooks.record.read.batch import Batch
from align_hooks.record.reader import Run

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


class PointRows(Struct, frozen=True):
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


class ProbedTensor(Struct, frozen=True):
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
        self._added: int | None = None
        if "mlp.experts" in modules:
            router, experts = modules["mlp.gate" if "mlp.gate" in modules else "mlp.router"], modules["mlp.experts"]
            self._removed += [router.register_forward_pre_hook(lambda *_: setattr(self, "_routes", True))]
            self._removed += [router.register_forward_hook(lambda *_: setattr(self, "_routes", False))]
            if isinstance(experts, torch.nn.ModuleList):
                self._removed += [expert.register_forward_hook(self._expert_of(index)) for index, expert in enumerate(experts)]
            else:  # all in one module, behind a router that returns the weights of all experts
                self._added = 0
                self._removed += [router.register_forward_hook(self._output_of("mlp.gate.weights"))]
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
                if self._added is None:
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
        elif self._added is not None and name == "index_add_":  # of the experts that tokens chose, one after the other
            assert self.choice is not None
            self.see(f"mlp.experts.{int(self.choice.unique()[self._added])}", args[3], lambda tensor: tensor, args[2])
            self._added += 1
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
            probe.see(f"self_attn.{name}", tensor, lambda tensor: tensor.transpose(1, 2).flatten(2))  # [rows, heads, …]
    return sys.modules[type(module).__module__].eager_attention_forward(module, query, key, value, *args, **kwargs)


class Recorded:
    """The values of a run's ``step`` at points, whose gradients are judged where ``gradients`` says so."""

    def __init__(self, run: Run, step: int, batch: Batch, *, gradients: bool) -> None:
        row = run.row(step)
        self.batch, self.holds_token_losses = batch, batch.token_losses is not None
        self.judges_gradients = gradients and not (row is not None and row.skipped)
        self._terms = (row.terms if row is not None else None) or {}
        self.choices: Mapping[str, Array] = run.routing(step) if step in run.steps_of(ROUTING.name) else {}
        """Router name to the experts of each token; empty where they are not on record."""
        self.counts: Mapping[str, Array] = {} if run.made_by_hand else run.expert_counts(step)
        """Router name to the number of each expert's tokens."""
        self.activations = run.activations(step) if step in run.steps_of(ACTIVATIONS.name) else None
        """The values of the step's points and their gradients; None where they are not on record."""
        self._gradients = run.gradients(step) if self.judges_gradients and step in run.gradient_steps() else None
        has_sketches = self.judges_gradients and self._gradients is None and step in run.sketch_steps(GRADIENTS.name)
        self._sketches = run.sketches(GRADIENTS.name, step) if has_sketches else {}
        of_points = self.judges_gradients and any(name.endswith(GRADIENT) for name in self.activations or ())
        self.holds_gradients = of_points or self._gradients is not None or bool(self._sketches)
        """Whether gradients that can be judged were recorded."""
        self._kept: dict[str, Array] = {}
        self._block: str | None = None
        ranks = max((manifest.size("dp") for manifest in run.manifests.values()), default=1)
        # recorded gradients may be sums over ranks, and the truth has means
        self.scale = float(ranks) if run.facts.training.gradients_summed_over_ranks else 1.0

    def pair(self, part: PointRows) -> tuple[Array, Array] | None:
        """Return the truth and its counterpart on record, fp64, 0 in both for tokens that do not count; None without a counterpart."""
        if part.kind is PointKind.TERM:
            return (part.array, np.array([self._terms[part.point]])) if part.point in self._terms else None
        if part.kind is PointKind.PARAMETER:
            known = self._gradients is not None and part.point in self._gradients
            return (self.scale * part.array, self._gradients[part.point].astype(np.float64)) if known else None  # type: ignore[index]
        name, rows = self._name(part), slice(part.first, part.first + len(part.array))
        if name is not None and self._has_tensor(name, part):
            return self.factor(part) * part.array, self._tensor(name)[rows].astype(np.float64).reshape(part.array.shape)
        if part.kind is PointKind.VALUE and part.point == TOKEN_LOSSES and self.batch.token_losses is not None:
            counts = np.ones(part.array.shape, bool) if self.batch.loss_mask is None else self.batch.loss_mask[rows] > 0
            return np.where(counts, part.array, 0.0), np.where(counts, self.batch.token_losses[rows].astype(np.float64), 0.0)
        return None

    def factor(self, part: PointRows) -> float:
        """Return the factor from the truth's objective to the side's."""
        return self.scale if part.kind in (PointKind.GRADIENT, PointKind.PARAMETER) else 1.0

    def sketch(self, part: PointRows) -> NDArray[np.float64] | None:
        """Return the recorded sketch of all rows of a point or of a parameter's gradient; None where a tensor was recorded, or nothing."""
        if part.kind is PointKind.PARAMETER:
            return self._sketches.get(part.point)
        known, name = self.activations, self._name(part)
        return None if known is None or name is None or self._has_tensor(name, part) else known[name].sketch

    def _name(self, part: PointRows) -> str | None:
        """Return the name of a point, or of its gradient, on record; None where it is not on record, or not judged."""
        if self.activations is None or part.kind not in (PointKind.VALUE, PointKind.GRADIENT):
            return None
        if part.kind is PointKind.VALUE and part.point == TOKEN_LOSSES and self.holds_token_losses:
            return None  # the batch has all token losses
        if part.kind is PointKind.GRADIENT and not self.judges_gradients:
            return None
        name = part.point + (GRADIENT if part.kind is PointKind.GRADIENT else "")
        return name if name in self.activations else None

    def _has_tensor(self, name: str, part: PointRows) -> bool:
        return part.tokens is None and self.activations is not None and self.activations.has_tensor(name)

    def _tensor(self, name: str) -> Array:
        block = place(name.removesuffix(GRADIENT)).block
        if block != self._block:  # points come row by row, so the tensors of one block are kept
            self._kept, self._block = {}, block
        if name not in self._kept:
            assert self.activations is not None
            self._kept[name] = self.activations.tensor(name)
        return self._kept[name]
