"""Hugging Face's model of a record, a part at a time: one layer in memory, whatever the model's size."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
import transformers
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from align_hooks.errors import RecordError, in_a_line
from align_hooks.names.blocks import PADDING
from align_hooks.oracle.inputs import Inputs, size
from align_hooks.oracle.points import attention
from align_hooks.oracle.precision import DTYPES
from align_hooks.oracle.prediction import predicting_layer
from align_hooks.record.format.schema import Table

ATTENTION = "align_hooks"
"""The name of our attention among those of transformers: theirs, watched."""
EMBEDDING, OUTPUT, NORM = "model.embed_tokens", "lm_head", "model.norm"


class OracleModel:
    """The model of a ``config.json`` without its weights, and its parts with the weights of some inputs, in a precision.

    Raises RecordError where the model is of a family that is not known here, or has other tensors than the record."""

    def __init__(self, configuration: Table, inputs: Inputs, precision: str) -> None:
        """``precision`` names the type to compute in."""
        self.inputs, self.precision = inputs, precision
        self.predicting = size(configuration, "num_nextn_predict_layers")
        ALL_ATTENTION_FUNCTIONS.register(ATTENTION, attention)
        try:  # what a stranger's config.json may hold, transformers refuses in many ways
            self.configuration = transformers.AutoConfig.for_model(**configuration)
            self.whole = self._without_weights()
        except Exception as error:
            raise RecordError(f"transformers makes no model of the record's config.json: {in_a_line(error)}") from None
        self._refuse_other_tensors()

    def _without_weights(self) -> Any:
        """The model, without memory for its weights; behind the decoder's layers those that predict further tokens."""
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(self.configuration, attn_implementation=ATTENTION)
            for layer in range(self.predicting):
                model.model.layers.append(predicting_layer(model.config, self.layers + layer))
        return model.to(DTYPES[self.precision]).eval()

    @property
    def layers(self) -> int:
        """How many layers the decoder has."""
        return int(self.configuration.num_hidden_layers)

    @property
    def tied(self) -> bool:
        """Whether the output layer has the embedding's weight."""
        return bool(self.configuration.tie_word_embeddings)

    def part(self, name: str, *, trained: bool = False) -> Any:
        """A part by its name, with its weights; ``trained`` keeps gradients of them."""
        module = copy.deepcopy(self.whole.get_submodule(name)).to_empty(device="cpu")
        for own, tensor in (*module.named_parameters(), *module.named_buffers()):
            tensor.data.copy_(self.weight(f"{name}.{own}"))
            tensor.requires_grad_(trained and isinstance(tensor, torch.nn.Parameter))
        return module

    def weight(self, name: str) -> torch.Tensor:
        """A weight by its canonical name, rounded as the run rounds it, in the model's precision."""
        tensor = torch.from_numpy(self.inputs.weights[name].copy())
        rounded = self.inputs.rounded(name)
        return (tensor if rounded is None else tensor.to(DTYPES[rounded])).to(DTYPES[self.precision])

    def output(self, *, trained: bool = False) -> dict[str, torch.Tensor]:
        """The weights of the output layer: its rows of the vocabulary, and those of its padding, which are in the softmax too."""
        name = f"{EMBEDDING if self.tied else OUTPUT}.weight"
        names = [each for each in (name, name + PADDING) if each in self.inputs.weights]
        return {each: self.weight(each).requires_grad_(trained) for each in names}

    def angles(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine of the angles by which positions are turned, ``[1, sequence, head]``."""
        rotary = type(self.whole.model.rotary_emb)(config=self.configuration)
        positions = torch.arange(self.inputs.shape[1])[None]
        cosine, sine = rotary(torch.zeros(1, dtype=DTYPES[self.precision]), positions)
        return cosine, sine

    def _refuse_other_tensors(self) -> None:
        """Raise RecordError where the record lacks a tensor of the model, or has another shape of it, or a tensor more."""
        weights = self.inputs.weights
        wanted: Mapping[str, Any] = self.whole.state_dict()
        wanted = {name: tensor for name, tensor in wanted.items() if not (self.tied and name == f"{OUTPUT}.weight")}
        there = {name for name in weights if not name.endswith(PADDING)}
        lacking, beyond = sorted(wanted.keys() - there), sorted(there - wanted.keys())
        if lacking or beyond:
            raise RecordError(f"the record's weights are not those of its config.json: {(lacking or beyond)[0]} is on one side only")
        for name, tensor in wanted.items():
            if tuple(tensor.shape) != tuple(weights.shape(name)):
                raise RecordError(f"{name} is {list(weights.shape(name))} in the record, and {list(tensor.shape)} by its config.json")
