"""Hugging Face's model of a record, of which one part at a time has its weights in memory."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from typing import Any

import torch
import transformers
from msgspec import Struct
from torch.overrides import TorchFunctionMode
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from align_hooks.errors import RecordError, in_a_line
from align_hooks.families.registry import stacks
from align_hooks.names.blocks import PADDING
from align_hooks.names.stacks import stacked, stacked_names
from align_hooks.oracle.inputs import Inputs, Objective, size
from align_hooks.oracle.points import attention
from align_hooks.record.format.schema import Table

ATTENTION = "align_hooks"
"""The name under which transformers calls its own attention through our probe."""
DTYPES: dict[str, torch.dtype] = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""The name of a compute type in records to torch's type."""
TRUTH = "float64"
SIGMOID = ("deepseek_v3", "glm4_moe")
"""``model_type`` of the models whose routers score experts by a sigmoid."""
EMBEDDING, OUTPUT, NORM = "model.embed_tokens", "lm_head", "model.norm"


class OracleModel:
    """The model of a ``config.json`` without weights, and its parts with the weights of ``inputs``, in the type named ``precision``."""

    def __init__(self, configuration: Table, inputs: Inputs, precision: str) -> None:
        self.inputs, self.precision = inputs, precision
        self.predicting = size(configuration, "num_nextn_predict_layers")
        ALL_ATTENTION_FUNCTIONS.register(ATTENTION, attention)
        try:  # transformers refuses the oddities of a stranger's config.json in many ways
            self.configuration = transformers.AutoConfig.for_model(**configuration)
            self.layers, self.tied = int(self.configuration.num_hidden_layers), bool(self.configuration.tie_word_embeddings)
            self.skeleton = self._without_weights()
        except Exception as error:
            raise RecordError(f"transformers makes no model of the record's config.json: {in_a_line(error)}") from None
        wanted: Mapping[str, Any] = self.skeleton.state_dict()
        found = stacked_names(inputs.weights, stacks())
        self.stacks = {name: own for name, own in found.items() if name in wanted and inputs.weights.keys() >= set(chain(*own))}
        self._refuse_other_tensors(wanted)

    def _without_weights(self) -> Any:
        """Build the model without memory for its weights; layers that predict further tokens stand behind the decoder's."""
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(self.configuration, attn_implementation=ATTENTION)
            for layer in range(self.predicting):
                model.model.layers.append(predicting_layer(model.model, self.layers + layer))
        return model.to(DTYPES[self.precision]).eval()

    def part(self, name: str, *, trained: bool = False) -> Any:
        """Return a part by its name, with its weights, which keep gradients where ``trained``."""
        module = copy.deepcopy(self.skeleton.get_submodule(name)).to_empty(device="cpu")
        for own, tensor in (*module.named_parameters(), *module.named_buffers()):
            tensor.data.copy_(self.weight(f"{name}.{own}"))
            tensor.requires_grad_(trained and isinstance(tensor, torch.nn.Parameter))
        return module

    def weight(self, name: str) -> torch.Tensor:
        """Return a weight by Hugging Face's name, rounded as the run rounds it, in the model's precision."""
        if name in self.stacks:
            rows = ([self.weight(own).numpy() for own in pieces] for pieces in self.stacks[name])
            return torch.from_numpy(stacked(rows))
        tensor = torch.from_numpy(self.inputs.weights[name].copy())
        rounded = self.inputs.rounded(name)
        return (tensor if rounded is None else tensor.to(DTYPES[rounded])).to(DTYPES[self.precision])

    def output(self, *, trained: bool = False) -> dict[str, torch.Tensor]:
        """Return the weights of the output layer: rows of the vocabulary, and of the padding, which the softmax includes too."""
        name = f"{EMBEDDING if self.tied else OUTPUT}.weight"
        return {each: self.weight(each).requires_grad_(trained) for each in (name, name + PADDING) if each in self.inputs.weights}

    @cached_property
    def angles(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosine and sine of the rotary angles, ``[1 or rows, sequence, head]``."""
        rotary = type(self.skeleton.model.rotary_emb)(config=self.configuration)
        cosine, sine = rotary(torch.zeros(1, dtype=DTYPES[self.precision]), torch.from_numpy(self.inputs.positions()))
        return cosine, sine

    def _refuse_other_tensors(self, wanted: Mapping[str, Any]) -> None:
        """Raise RecordError where the record has another set of tensors than the model, or another shape of a tensor."""
        weights = self.inputs.weights
        wanted = {name: tensor for name, tensor in wanted.items() if not (self.tied and name == f"{OUTPUT}.weight")}
        shapes = {name: tuple(weights.shape(name)) for name in weights if not name.endswith(PADDING)}
        for stack, experts in self.stacks.items():
            rows, *columns = min(of_pieces := [shapes.pop(own) for own in chain(*experts)])
            shapes[stack] = (len(experts), *columns, rows * len(experts[0])) if len(set(of_pieces)) == 1 else ()
        there = set(shapes)
        if unmatched := sorted(wanted.keys() - there) or sorted(there - wanted.keys()):
            raise RecordError(f"the record's weights are not those of its config.json: {unmatched[0]} is on one side only")
        for name, tensor in wanted.items():
            if tuple(tensor.shape) != shapes[name]:
                raise RecordError(f"{name} is {list(shapes[name])} in the record, and {list(tensor.shape)} by its config.json")


def predicting_layer(decoder: Any, number: int) -> Any:
    """Build a layer for multi-token prediction (DeepSeek-V3 Technical Report, 2.2), which ``transformers`` leaves out, of its parts."""
    configuration = decoder.config
    layer = type(decoder.layers[-1])(configuration, number)
    layer.enorm, layer.hnorm, last = (copy.deepcopy(decoder.norm) for _ in range(3))
    layer.eh_proj = torch.nn.Linear(2 * configuration.hidden_size, configuration.hidden_size, bias=False)
    layer.shared_head = torch.nn.ModuleDict({"norm": last})
    return layer


def joined(layer: Any, embedded: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """Return the input of the layer's block: each hidden state and the embedding of the next token, projected together."""
    projected: torch.Tensor = layer.eh_proj(torch.cat([layer.enorm(embedded), layer.hnorm(hidden)], dim=-1))
    return projected


class Doubled(TorchFunctionMode):
    """A mode in which every call of torch that names fp32 computes in fp64.

    ``transformers`` computes norms, softmax, rotary angles and routers in fp32 even in an fp64 model, and DeepSeek-V3's experts then add
    fp64 to fp32, which torch refuses.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        func = torch.Tensor.double if func is torch.Tensor.float else func
        args = [torch.float64 if value is torch.float32 else value for value in args]
        return func(*args, **{name: torch.float64 if value is torch.float32 else value for name, value in (kwargs or {}).items()})


@contextmanager
def computing_in(name: str) -> Iterator[None]:
    """Have the model compute in the named type as ``transformers`` does; fp64 is used throughout where it is the type."""
    if name != TRUTH:
        yield
        return
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Doubled():
            yield
    finally:
        torch.set_default_dtype(before)


class RouterTerms(Struct, frozen=True):
    """The terms of one layer's router, coefficients included."""

    balance: float = 0.0
    z_loss: float = 0.0
    derivatives: list[torch.Tensor] | None = None
    """By the logits of each row, ``[sequence, experts]``; None without terms."""


def router_terms(objective: Objective, logits: Sequence[torch.Tensor], configuration: Any) -> RouterTerms:
    """Return the terms of a layer whose router has made ``logits`` of each row, ``[sequence, experts]``."""
    if objective.shares is None and objective.logits_shares is None:
        return RouterTerms()
    leaves = [each.detach().clone().requires_grad_() for each in logits]
    balance, of_logits = (torch.zeros((), dtype=leaves[0].dtype) for _ in range(2))
    for index, piece in enumerate(objective.pieces):
        rows = leaves[piece]
        if objective.shares is not None:
            together = rows if objective.by_sequence else [torch.cat(rows)]
            balance = balance + sum(objective.shares[index] * imbalance(each, configuration) for each in together) / len(together)
        if objective.logits_shares is not None:
            of_logits = of_logits + objective.logits_shares[index] * torch.cat(rows).logsumexp(-1).square().mean()
    (balance + of_logits).backward()
    return RouterTerms(float(balance.detach()), float(of_logits.detach()), [leaf.grad for leaf in leaves if leaf.grad is not None])


def imbalance(logits: torch.Tensor, configuration: Any) -> torch.Tensor:
    """Return how unevenly tokens use the experts, from logits ``[tokens, experts]``; 1 where they use all alike."""
    chosen = int(configuration.num_experts_per_tok)
    scores = logits.softmax(-1)
    if configuration.model_type in SIGMOID:  # whose routers make scores by another function
        scores = logits.sigmoid()
        scores = scores / (scores.sum(-1, keepdim=True) + 1e-20)
    # tokens count by their best scores, without bias and groups
    used = torch.nn.functional.one_hot(scores.topk(chosen).indices, scores.shape[-1]).sum(1).to(scores.dtype).mean(0) / chosen
    return scores.shape[-1] * (used * scores.mean(0)).sum()
