"""A model's forward and backward pass over a batch, one layer at a time and of that one row at a time.

Rows do not depend on each other but in the term that balances experts, which needs no more of them than their router logits. So memory
holds a layer, one row's graph of it, and the hidden states between layers. The backward pass makes each layer's graph again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from align_hooks.comparison.arbitration import PointKind
from align_hooks.errors import RecordError, in_a_line
from align_hooks.names.blocks import PADDING
from align_hooks.oracle.balance import balance
from align_hooks.oracle.inputs import Inputs
from align_hooks.oracle.model import EMBEDDING, NORM, OUTPUT, OracleModel
from align_hooks.oracle.objective import moved
from align_hooks.oracle.points import LayerProbe, PointRows
from align_hooks.oracle.precision import computing_in
from align_hooks.oracle.prediction import joined
from align_hooks.record.format.terms import AUXILIARY, PREDICTION

Rows = list[torch.Tensor]
"""A tensor of each row, ``[1, sequence, width]``."""
TOKEN_LOSSES = "token_losses"


class Pass:
    """A forward and a backward pass over a step's ``inputs``, of the model of a ``config.json``, in the precision of this name."""

    def __init__(self, configuration: Mapping[str, object], inputs: Inputs, precision: str) -> None:
        self.inputs, self.precision = inputs, precision
        with computing_in(precision):
            self.model = OracleModel(dict(configuration), inputs, precision)
        self.rows, self.sequence = inputs.shape
        self.states: list[Rows] = []
        self.logits: dict[int, Rows] = {}
        self.terms: dict[str, float] = {}
        self.normed: Rows = []
        self._balances: dict[int, tuple[float, Rows | None]] = {}
        self._kept: dict[str, torch.Tensor] = {}

    def values(self) -> Iterator[PointRows]:
        """The value of every point, a row at a time within a layer, layers in the order of execution."""
        yield from self._inside(self._values())

    def gradients(self) -> Iterator[PointRows]:
        """The gradient of every point, the last layer first, and of each parameter behind its layer's points; when all of :meth:`values`
        was taken."""
        yield from self._inside(self._gradients())

    def _inside(self, parts: Iterator[PointRows]) -> Iterator[PointRows]:
        """Parts that are made in the precision, which does not reach into whoever takes them."""
        while True:
            with computing_in(self.precision):
                part = next(parts, None)
            if part is None:
                return
            yield part

    @cached_property
    def angles(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The angles of positions."""
        return self.model.angles()

    # ---- forward

    def _values(self) -> Iterator[PointRows]:
        yield from self._embedded()
        for number in range(self.model.layers):
            self.states.append([])
            yield from self._block_values(number, self.states[-2], self.states[-1])
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
        for number in range(self.model.layers, self.model.layers + self.model.predicting):
            yield from self._predicted_values(number)
        for name, value in self._all_terms().items():
            yield PointRows(name, PointKind.TERM, np.array([value]))

    def _embedded(self) -> Iterator[PointRows]:
        embedding = self.model.part(EMBEDDING)
        self.states.append([])
        for row in range(self.rows):
            with torch.no_grad():
                self.states[-1].append(embedding(self._ids(row, 0)))
            yield PointRows(EMBEDDING, PointKind.VALUE, fp64(self.states[-1][-1]), row)

    def _block_values(self, number: int, given: Rows, made: Rows) -> Iterator[PointRows]:
        layer = self.model.part(layer_name(number))
        for row, hidden in enumerate(given):
            watch = self._watch(number, layer, row)
            with torch.no_grad(), watch:
                made.append(self._block(watch, layer, hidden, row))
            watch.close()
            if watch.logits is not None:
                self.logits.setdefault(number, []).append(watch.logits)
            yield from watch.values(row)

    def _predicted_values(self, number: int) -> Iterator[PointRows]:
        """Those of a layer for multi-token prediction."""
        name, ahead = layer_name(number), number - self.model.layers + 1
        layer, embedding, output = self.model.part(name), self.model.part(EMBEDDING), self.model.output()
        total = 0.0
        for row, hidden in enumerate(self.normed):
            watch = self._watch(number, layer, row)
            with torch.no_grad(), watch:
                block = self._block(watch, layer, joined(layer, embedding(self._ids(row, ahead)), hidden), row)
                normed = layer.shared_head["norm"](block)
                logits, losses = self._losses(output, normed, row, ahead)
                watch.see("shared_head.head", logits)
            watch.close()
            if watch.logits is not None:
                self.logits.setdefault(number, []).append(watch.logits)
            total += float((fp64(losses) * self._weights(row, ahead)).sum())
            yield from watch.values(row)
        self.terms[PREDICTION] = self.terms.get(PREDICTION, 0.0) + total

    def _all_terms(self) -> dict[str, float]:
        """The terms of the loss beside the language model's, with their coefficients."""
        self._balances = {number: balance(self.inputs.objective, rows, self.model.configuration) for number, rows in self.logits.items()}
        if self.inputs.objective.shares is not None:
            self.terms[AUXILIARY] = sum(value for value, _ in self._balances.values())
        return self.terms

    # ---- backward

    def _gradients(self) -> Iterator[PointRows]:
        flowing = [torch.zeros_like(hidden) for hidden in self.normed]
        for number in reversed(range(self.model.layers, self.model.layers + self.model.predicting)):
            yield from self._predicted_gradients(number, flowing)
        yield from self._output_gradients(flowing)
        norm = self.model.part(NORM, trained=True)
        for row in reversed(range(self.rows)):
            yield PointRows(NORM, PointKind.GRADIENT, fp64(flowing[row]), row)
            hidden = leaf(self.states[-1][row])
            norm(hidden).backward(flowing[row])
            flowing[row] = gradient(hidden)
        yield from parameters(NORM, norm)
        for number in reversed(range(self.model.layers)):
            yield from self._block_gradients(number, flowing)
        embedding = self.model.part(EMBEDDING, trained=True)
        for row in reversed(range(self.rows)):
            yield PointRows(EMBEDDING, PointKind.GRADIENT, fp64(flowing[row]), row)
            embedding(self._ids(row, 0)).backward(flowing[row])
        self._keep({f"{EMBEDDING}.weight": embedding.weight})
        yield from self._last()

    def _last(self) -> Iterator[PointRows]:
        """The gradients of what several parts of the model use; of the padding of an embedding nobody looks up, 0."""
        padding = f"{EMBEDDING}.weight{PADDING}"
        if padding in self.inputs.weights and padding not in self._kept:
            self._kept[padding] = torch.zeros(self.inputs.weights.shape(padding))
        for name, whole in self._kept.items():
            yield PointRows(name, PointKind.PARAMETER, fp64(whole))

    def _output_gradients(self, flowing: Rows) -> Iterator[PointRows]:
        """Those of the losses and logits; what flows back into the last norm's output is added to ``flowing``."""
        output = self.model.output(trained=True)
        for row in reversed(range(self.rows)):
            hidden = leaf(self.normed[row])
            logits, losses = self._losses(output, hidden, row, 0)
            logits.retain_grad()
            weights = self._weights(row, 0)
            losses.backward(torch.from_numpy(weights).to(losses.dtype))
            yield from (
                PointRows(TOKEN_LOSSES, PointKind.GRADIENT, weights, row),
                PointRows(OUTPUT, PointKind.GRADIENT, fp64(gradient(logits)), row),
            )
            flowing[row] = flowing[row] + gradient(hidden)
        self._keep(output)
        if not self.model.tied:
            yield from (PointRows(name, PointKind.PARAMETER, fp64(self._kept.pop(name))) for name in output)

    def _block_gradients(self, number: int, flowing: Rows) -> Iterator[PointRows]:
        """Those of a layer, given what flows back into its output; ``flowing`` becomes what flows back into its input."""
        layer = self.model.part(layer_name(number), trained=True)
        for row in reversed(range(self.rows)):
            watch, hidden = self._watch(number, layer, row, backward=True), leaf(self.states[number][row])
            with watch:
                made = self._block(watch, layer, hidden, row)
            yield from self._flow(watch, number, row, made, flowing[row])
            flowing[row] = gradient(hidden)
        yield from parameters(layer_name(number), layer)

    def _predicted_gradients(self, number: int, flowing: Rows) -> Iterator[PointRows]:
        """Those of a layer for multi-token prediction; what flows back into the last norm's output is added to ``flowing``."""
        name, ahead = layer_name(number), number - self.model.layers + 1
        layer, embedding = self.model.part(name, trained=True), self.model.part(EMBEDDING, trained=True)
        output = self.model.output(trained=True)
        for row in reversed(range(self.rows)):
            watch, hidden = self._watch(number, layer, row, backward=True), leaf(self.normed[row])
            with watch:
                block = self._block(watch, layer, joined(layer, embedding(self._ids(row, ahead)), hidden), row)
                logits, losses = self._losses(output, layer.shared_head["norm"](block), row, ahead)
                watch.see("shared_head.head", logits)
            weights = torch.from_numpy(self._weights(row, ahead)).to(losses.dtype)
            yield from self._flow(watch, number, row, losses, weights)
            flowing[row] = flowing[row] + gradient(hidden)
        yield from parameters(name, layer)
        self._keep({**output, f"{EMBEDDING}.weight": embedding.weight})

    def _flow(self, watch: LayerProbe, number: int, row: int, made: torch.Tensor, flowing: torch.Tensor) -> list[PointRows]:
        """Flow back from a layer's output, and from its router's logits, where these are in the objective themselves."""
        balances = self._balances.get(number, (0.0, None))[1]
        if watch.logits is None or balances is None:
            made.backward(flowing)
        else:
            torch.autograd.backward([made, watch.logits], [flowing, balances[row].to(watch.logits.dtype)])
        watch.close()
        return watch.gradients(row)

    # ---- parts of both

    def _watch(self, number: int, layer: Any, row: int, *, backward: bool = False) -> LayerProbe:
        """Who sees the points of a layer, whose tokens are given to the experts that the run gave them to, where that is on record."""
        router, choices = f"{layer_name(number)}.mlp.gate", self.inputs.choices
        given = None if choices is None or router not in choices else choices[router][row]
        return LayerProbe(layer_name(number), layer, self.sequence, backward=backward, given=given)

    def _block(self, watch: LayerProbe, layer: Any, hidden: torch.Tensor, row: int) -> torch.Tensor:
        """What a decoder's layer makes of a row's hidden states."""
        hidden = hidden.view_as(hidden)  # what its input's own gradient is of, whoever else uses the hidden states
        watch.see("input", hidden)
        try:  # a setting of an odd kind shows where the model computes with it
            made = layer(hidden, attention_mask=self._mask(row), position_embeddings=self.angles)
        except Exception as error:
            raise RecordError(f"Hugging Face's model of the record's config.json does not run: {in_a_line(error)}") from error
        made = made[0] if isinstance(made, tuple) else made
        watch.see("", made)
        return made

    def _mask(self, row: int) -> torch.Tensor:
        """What is added to the scores of a row: nothing, or what no softmax lets through."""
        forbidden = torch.from_numpy(self.inputs.hidden(row).copy())
        dtype = self.states[0][0].dtype
        return torch.zeros(forbidden.shape, dtype=dtype).masked_fill_(forbidden, torch.finfo(dtype).min)

    def _ids(self, row: int, ahead: int) -> torch.Tensor:
        """A row's tokens, so many places on."""
        assert self.inputs.batch.tokens is not None
        return torch.from_numpy(moved(self.inputs.batch.tokens[row : row + 1], ahead).astype(np.int64))

    def _weights(self, row: int, ahead: int) -> np.ndarray[Any, Any]:
        """The objective's derivative by the losses of a row, those of what is predicted so many places on, ``[1, sequence]``."""
        known = self.inputs.objective
        whole = known.tokens if ahead == 0 else known.predicted[ahead - 1] if ahead <= len(known.predicted) else np.zeros_like(known.tokens)
        return whole[row : row + 1]

    def _losses(self, output: Mapping[str, torch.Tensor], hidden: torch.Tensor, row: int, ahead: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The logits of a row, without padding, and each token's loss, ``[1, sequence]``; of a token that does not count any label will
        do."""
        batch = self.inputs.batch
        assert batch.labels is not None
        whole = [functional.linear(hidden, weight) for weight in output.values()]
        logits = torch.cat(whole, dim=-1) if len(whole) > 1 else whole[0]
        labels = moved(batch.labels[row : row + 1], ahead).astype(np.int64)
        labels = np.where((labels < 0) | (labels >= logits.shape[-1]), 0, labels)
        losses = functional.cross_entropy(logits[0].float(), torch.from_numpy(labels[0]), reduction="none")
        return whole[0], losses[None]

    def _keep(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Add the gradients of weights that several parts of the model use."""
        for name, weight in weights.items():
            if weight.grad is not None:
                self._kept[name] = self._kept[name] + weight.grad if name in self._kept else weight.grad


def layer_name(number: int) -> str:
    """The name of a layer."""
    return f"model.layers.{number}"


def leaf(hidden: torch.Tensor) -> torch.Tensor:
    """Hidden states from which a graph begins."""
    return hidden.detach().requires_grad_()


def gradient(tensor: torch.Tensor) -> torch.Tensor:
    """The gradient that flowed back into a tensor."""
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def parameters(name: str, module: Any) -> Iterator[PointRows]:
    """The gradients of a part's parameters, the last first; 0 of one that no token reached."""
    for own, parameter in reversed(list(module.named_parameters())):
        yield PointRows(f"{name}.{own}", PointKind.PARAMETER, fp64(gradient(parameter)))


def fp64(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """A tensor as an array."""
    array: np.ndarray[Any, Any] = tensor.detach().double().numpy()
    return array
