"""A model's forward and backward pass over a batch, one layer at a time, and within a layer one row at a time.

Rows depend on each other only in the term that balances experts, which needs their router logits. So memory holds one layer, the graph of
one row in it, and the hidden states between layers. The backward pass makes each layer's graph again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from msgspec import Struct, field
from torch.nn import functional

from align_hooks.comparison.arbitration import PointKind
from align_hooks.errors import RecordError, in_a_line
from align_hooks.families.registry import stacks
from align_hooks.names.blocks import PADDING
from align_hooks.names.points import TOKEN_LOSSES
from align_hooks.names.stacks import slots
from align_hooks.oracle.inputs import Inputs, moved
from align_hooks.oracle.model import EMBEDDING, NORM, OUTPUT, OracleModel, RouterTerms, computing_in, joined, router_terms
from align_hooks.oracle.points import LayerProbe, PointRows
from align_hooks.record.format.terms import AUXILIARY, PREDICTION, Z_LOSS

Rows = list[torch.Tensor]
"""A tensor of each row, ``[1, sequence, width]``."""


class _LayerParts(Struct, frozen=True):
    """A layer of the model, and for multi-token prediction the embedding and the output that it shares."""

    name: str
    ahead: int
    """Number of places between a token and the one that the layer predicts beyond the next; 0 of a decoder's layer."""
    layer: Any
    embedding: Any = None
    output: Mapping[str, torch.Tensor] = field(default_factory=dict)


class Pass:
    """A forward and a backward pass over a step's ``inputs``, by the model of a ``config.json``, in the type named ``precision``."""

    def __init__(self, configuration: Mapping[str, object], inputs: Inputs, precision: str) -> None:
        self.inputs, self.precision = inputs, precision
        with computing_in(precision):
            self.model = OracleModel(dict(configuration), inputs, precision)
        self.rows, self.sequence = inputs.shape
        self.states: list[Rows] = []
        self.logits: dict[int, Rows] = {}
        self.terms: dict[str, float] = {}
        self.normed: Rows = []
        self._of_routers: dict[int, RouterTerms] = {}
        self._kept: dict[str, torch.Tensor] = {}

    def values(self) -> Iterator[PointRows]:
        """Return the value of every point, layer by layer in the order of execution, a row at a time."""
        return self._inside(self._values())

    def gradients(self) -> Iterator[PointRows]:
        """Return the gradients of points and parameters, the last layer first, shared weights last, once :meth:`values` is exhausted."""
        return self._inside(self._gradients())

    def _inside(self, parts: Iterator[PointRows]) -> Iterator[PointRows]:
        """Yield parts made in the precision, which must not reach into the caller's code."""
        while True:
            with computing_in(self.precision):
                part = next(parts, None)
            if part is None:
                return
            yield part

    def _values(self) -> Iterator[PointRows]:
        embedding = self.model.part(EMBEDDING)
        self.states.append([])
        for row in range(self.rows):
            with torch.no_grad():
                self.states[-1].append(embedding(self._ids(row, 0)))
            yield PointRows(EMBEDDING, PointKind.VALUE, fp64(self.states[-1][-1]), row)
        for number in range(self.model.layers):
            self.states.append([])
            yield from self._layer_values(number, self.states[-2], self.states[-1])
        norm = self.model.part(NORM)
        for row, hidden in enumerate(self.states[-1]):
            with torch.no_grad():
                self.normed.append(norm(hidden))
            yield PointRows(NORM, PointKind.VALUE, fp64(self.normed[-1]), row)
        output = self.model.output()
        for row, hidden in enumerate(self.normed):
            with torch.no_grad():
                logits, losses = self._losses(output, hidden, row, 0)
            yield from (PointRows(OUTPUT, PointKind.VALUE, fp64(logits), row), PointRows(TOKEN_LOSSES, PointKind.VALUE, fp64(losses), row))
        for ahead in range(1, self.model.predicting + 1):
            predicted: Rows = []
            yield from self._layer_values(self.model.layers + ahead - 1, self.normed, predicted)
            total = sum(float((fp64(losses) * self._weights(row, ahead)).sum()) for row, losses in enumerate(predicted))
            self.terms[PREDICTION] = self.terms.get(PREDICTION, 0.0) + total
        objective = self.inputs.objective
        self._of_routers = {number: router_terms(objective, rows, self.model.configuration) for number, rows in self.logits.items()}
        if objective.shares is not None:
            self.terms[AUXILIARY] = sum(terms.balance for terms in self._of_routers.values())
        if objective.logits_shares is not None:
            self.terms[Z_LOSS] = sum(terms.z_loss for terms in self._of_routers.values())
        for name, value in self.terms.items():
            yield PointRows(name, PointKind.TERM, np.array([value]))

    def _layer_values(self, number: int, entering: Rows, leaving: Rows) -> Iterator[PointRows]:
        """Yield the values of a layer's points; append each row's output to ``leaving``."""
        parts = self._parts(number)
        for row, hidden in enumerate(entering):
            probe = self._probe(parts, row)
            with torch.no_grad(), probe:
                leaving.append(self._layer(parts, probe, hidden, row))
            probe.close()
            if probe.logits is not None:
                self.logits.setdefault(number, []).append(probe.logits)
            yield from probe.values(row)

    def _gradients(self) -> Iterator[PointRows]:
        flowing = [torch.zeros_like(hidden) for hidden in self.normed]
        for number in reversed(range(self.model.layers, self.model.layers + self.model.predicting)):
            yield from self._layer_gradients(number, self.normed, flowing)
        yield from self._output_gradients(flowing)
        norm = self.model.part(NORM, trained=True)
        for row in reversed(range(self.rows)):
            yield PointRows(NORM, PointKind.GRADIENT, fp64(flowing[row]), row)
            hidden = leaf(self.states[-1][row])
            norm(hidden).backward(flowing[row])
            flowing[row] = gradient(hidden)
        yield from parameters(NORM, norm)
        for number in reversed(range(self.model.layers)):
            yield from self._layer_gradients(number, self.states[number], flowing)
        embedding = self.model.part(EMBEDDING, trained=True)
        for row in reversed(range(self.rows)):
            yield PointRows(EMBEDDING, PointKind.GRADIENT, fp64(flowing[row]), row)
            embedding(self._ids(row, 0)).backward(flowing[row])
        self._keep({f"{EMBEDDING}.weight": embedding.weight})
        padding = f"{EMBEDDING}.weight{PADDING}"
        if padding in self.inputs.weights and padding not in self._kept:  # no token has an id of the padding
            self._kept[padding] = torch.zeros(self.inputs.weights.shape(padding))
        for name, total in self._kept.items():
            yield PointRows(name, PointKind.PARAMETER, fp64(total))

    def _output_gradients(self, flowing: Rows) -> Iterator[PointRows]:
        """Yield the gradients of losses and logits; add the gradient of the last norm's output to ``flowing``."""
        output = self.model.output(trained=True)
        for row in reversed(range(self.rows)):
            hidden = leaf(self.normed[row])
            logits, losses = self._losses(output, hidden, row, 0)
            logits.retain_grad()
            weights = self._weights(row, 0)
            losses.backward(torch.from_numpy(weights).to(losses.dtype))
            yield PointRows(TOKEN_LOSSES, PointKind.GRADIENT, weights, row)
            yield PointRows(OUTPUT, PointKind.GRADIENT, fp64(gradient(logits)), row)
            flowing[row] = flowing[row] + gradient(hidden)
        self._keep(output)
        if not self.model.tied:
            yield from (PointRows(name, PointKind.PARAMETER, fp64(self._kept.pop(name))) for name in output)

    def _layer_gradients(self, number: int, entering: Rows, flowing: Rows) -> Iterator[PointRows]:
        """Yield the gradients of a layer; ``flowing``, the gradient of its output, or of the last norm's, becomes that of its input."""
        parts = self._parts(number, trained=True)
        for row in reversed(range(self.rows)):
            probe, hidden = self._probe(parts, row, backward=True), leaf(entering[row])
            with probe:
                output = self._layer(parts, probe, hidden, row)
            arriving = torch.from_numpy(self._weights(row, parts.ahead)).to(output.dtype) if parts.ahead else flowing[row]
            balances = self._of_routers.get(number, RouterTerms()).derivatives
            if probe.logits is None or balances is None:
                output.backward(arriving)
            else:  # the objective has a term of the router's logits
                torch.autograd.backward([output, probe.logits], [arriving, balances[row].to(probe.logits.dtype)])
            probe.close()
            yield from probe.gradients(row)
            flowing[row] = flowing[row] + gradient(hidden) if parts.ahead else gradient(hidden)
        yield from parameters(parts.name, parts.layer)
        if parts.ahead:
            self._keep({**parts.output, f"{EMBEDDING}.weight": parts.embedding.weight})

    def _parts(self, number: int, *, trained: bool = False) -> _LayerParts:
        name, ahead = f"model.layers.{number}", max(number - self.model.layers + 1, 0)
        layer = self.model.part(name, trained=trained)
        if not ahead:
            return _LayerParts(name, ahead, layer)
        return _LayerParts(name, ahead, layer, self.model.part(EMBEDDING, trained=trained), self.model.output(trained=trained))

    def _layer(self, parts: _LayerParts, probe: LayerProbe, hidden: torch.Tensor, row: int) -> torch.Tensor:
        """Return the output of a layer for a row's hidden states; of a layer for multi-token prediction, each token's loss."""
        if not parts.ahead:
            return self._block(probe, parts.layer, hidden, row)
        block = self._block(probe, parts.layer, joined(parts.layer, parts.embedding(self._ids(row, parts.ahead)), hidden), row)
        logits, losses = self._losses(parts.output, parts.layer.shared_head["norm"](block), row, parts.ahead)
        probe.see("shared_head.head", logits)
        return losses

    def _probe(self, parts: _LayerParts, row: int, *, backward: bool = False) -> LayerProbe:
        """Return a probe of a layer, which gives tokens to the run's own experts where these are on record."""
        choices = (self.inputs.choices or {}).get(f"{parts.name}.mlp.gate")
        given = None if choices is None else choices[row]
        return LayerProbe(parts.name, parts.layer, self.sequence, backward=backward, given=given)

    def _block(self, probe: LayerProbe, layer: Any, hidden: torch.Tensor, row: int) -> torch.Tensor:
        """Return the output of a decoder's layer for a row's hidden states."""
        hidden = hidden.view_as(hidden)  # its gradient is the layer's alone, whatever else uses the hidden states
        probe.see("input", hidden)
        forbidden = torch.from_numpy(self.inputs.hidden(row).copy())
        if (window := getattr(layer.self_attn, "sliding_window", None)) is not None:
            forbidden |= torch.ones_like(forbidden).tril(-window)  # the token itself is in the window
        # added to the scores of attention
        mask = torch.zeros(forbidden.shape, dtype=hidden.dtype).masked_fill_(forbidden, torch.finfo(hidden.dtype).min)
        try:  # a setting of an odd kind shows where the model computes with it
            angles = tuple(each[row : row + 1] if len(each) > 1 else each for each in self.model.angles)
            output = layer(hidden, attention_mask=mask, position_embeddings=angles)
        except Exception as error:
            raise RecordError(f"Hugging Face's model of the record's config.json does not run: {in_a_line(error)}") from error
        output = output[0] if isinstance(output, tuple) else output
        probe.see("", output)
        return output

    def _ids(self, row: int, ahead: int) -> torch.Tensor:
        """Return a row's tokens, so many places ahead."""
        assert self.inputs.batch.tokens is not None
        return torch.from_numpy(moved(self.inputs.batch.tokens[row : row + 1], ahead).astype(np.int64))

    def _weights(self, row: int, ahead: int) -> np.ndarray[Any, Any]:
        """Return the objective's derivative by a row's losses of the tokens so many places ahead, ``[1, sequence]``."""
        known = self.inputs.objective
        if ahead > len(known.predicted):
            return np.zeros_like(known.tokens[row : row + 1])
        return (known.tokens, *known.predicted)[ahead][row : row + 1]

    def _losses(self, output: Mapping[str, torch.Tensor], hidden: torch.Tensor, row: int, ahead: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the logits of a row, without padding, and each token's loss, ``[1, sequence]``."""
        assert self.inputs.batch.labels is not None
        parts = [functional.linear(hidden, weight) for weight in output.values()]
        logits = torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]
        labels = moved(self.inputs.batch.labels[row : row + 1], ahead).astype(np.int64)
        labels = np.where((labels < 0) | (labels >= logits.shape[-1]), 0, labels)  # of tokens that do not count
        losses = functional.cross_entropy(logits[0].float(), torch.from_numpy(labels[0]), reduction="none")
        return parts[0], losses[None]

    def _keep(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Add up the gradients of weights that several parts of the model use."""
        for name, weight in weights.items():
            if weight.grad is not None:
                self._kept[name] = self._kept[name] + weight.grad if name in self._kept else weight.grad


def leaf(hidden: torch.Tensor) -> torch.Tensor:
    """Return hidden states as the beginning of a new graph."""
    return hidden.detach().requires_grad_()


def gradient(tensor: torch.Tensor) -> torch.Tensor:
    """Return the gradient of a tensor; 0 where none arrived."""
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def parameters(name: str, module: Any) -> Iterator[PointRows]:
    """Yield the gradients of a part's parameters, the last first; 0 for a parameter that no token reached."""
    for own, parameter in reversed(list(module.named_parameters())):
        array = fp64(gradient(parameter))
        of_experts = slots({f"{name}.{own}": array.shape}, stacks())
        for canonical, slot in reversed(of_experts.items()):
            yield PointRows(canonical, PointKind.PARAMETER, slot.cut(array))
        if not of_experts:
            yield PointRows(f"{name}.{own}", PointKind.PARAMETER, array)


def fp64(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor as an fp64 array."""
    array: np.ndarray[Any, Any] = tensor.detach().double().numpy()
    return array
