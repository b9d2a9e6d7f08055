"""Hugging Face's model of a record, of which one part at a time has its weights in memory."""

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
"""The name under which transformers calls its own attention through our probe."""
EMBEDDING, OUTPUT, NORM = "model.embed_tokens", "lm_head", "model.norm"


class OracleModel:
    """The model of a ``config.json`` without weights, and its parts with the weights of ``inputs``, in the type named ``precision``.

    Raises RecordError where transformers makes no such model, or where its tensors are not the record's."""

    def __init__(self, configuration: Table, inputs: Inputs, precision: str) -> None:
        self.inputs, self.precision = inputs, precision
        self.predicting = size(configuration, "num_nextn_predict_layers")
        ALL_ATTENTION_FUNCTIONS.register(ATTENTION, attention)
        try:  # transformers refuses the oddities of a stranger's config.json in many ways
            self.configuration = transformers.AutoConfig.for_model(**configuration)
            self.skeleton = self._without_weights()
        except Exception as error:
            raise RecordError(f"transformers makes no model of the record's config.json: {in_a_line(error)}") from None
        self._refuse_other_tensors()

    def _without_weights(self) -> Any:
        """Build the model without memory for its weights; layers that predict further tokens stand behind the decoder's."""
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(self.configuration, attn_implementation=ATTENTION)
            for layer in range(self.predicting):
                model.model.layers.append(predicting_layer(model.config, self.layers + layer))
        return model.to(DTYPES[self.precision]).eval()

    @property
    def layers(self) -> int:
        """The number of the decoder's layers."""
        return int(self.configuration.num_hidden_layers)

    @property
    def tied(self) -> bool:
        """Whether the output layer has the embedding's weight."""
        return bool(self.configuration.tie_word_embeddings)

    def part(self, name: str, *, trained: bool = False) -> Any:
        """Return a part by its name, with its weights, which keep gradients where ``trained``."""
        module = copy.deepcopy(self.skeleton.get_submodule(name)).to_empty(device="cpu")
        for own, tensor in (*module.named_parameters(), *module.named_buffers()):
            tensor.data.copy_(self.weight(f"{name}.{own}"))
            tensor.requires_grad_(trained and isinstance(tensor, torch.nn.Parameter))
        return module

    def weight(self, name: str) -> torch.Tensor:
        """Return a weight by its canonical name, rounded as the run rounds it, in the model's precision."""
        tensor = torch.from_numpy(self.inputs.weights[name].copy())
        rounded = self.inputs.rounded(name)
        return (tensor if rounded is None else tensor.to(DTYPES[rounded])).to(DTYPES[self.precision])

    def output(self, *, trained: bool = False) -> dict[str, torch.Tensor]:
        """Return the weights of the output layer: rows of the vocabulary, and of the padding, which the softmax includes too."""
        name = f"{EMBEDDING if self.tied else OUTPUT}.weight"
        return {each: self.weight(each).requires_grad_(trained) for each in (name, name + PADDING) if each in self.inputs.weights}

    def angles(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosine and sine of the rotary angles, ``[1, sequence, head]``."""
        rotary = type(self.skeleton.model.rotary_emb)(config=self.configuration)
        positions = torch.arange(self.inputs.shape[1])[None]
        cosine, sine = rotary(torch.zeros(1, dtype=DTYPES[self.precision]), positions)
        return cosine, sine

    def _refuse_other_tensors(self) -> None:
        """Raise RecordError where the record has another set of tensors than the model, or another shape of a tensor."""
        weights = self.inputs.weights
        wanted: Mapping[str, Any] = self.skeleton.state_dict()
        wanted = {name: tensor for name, tensor in wanted.items() if not (self.tied and name == f"{OUTPUT}.weight")}
        there = {name for name in weights if not name.endswith(PADDING)}
        if unmatched := sorted(wanted.keys() - there) or sorted(there - wanted.keys()):
            raise RecordError(f"the record's weights are not those of its config.json: {unmatched[0]} is on one side only")
        for name, tensor in wanted.items():
            if tuple(tensor.shape) != tuple(weights.shape(name)):
                raise RecordError(f"{name} is {list(weights.shape(name))} in the record, and {list(tensor.shape)} by its config.json")
