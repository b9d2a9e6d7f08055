"""What is made of models as Megatron-LM builds them: those that are refused, and facts of which an attribute was taken away.

The second argument is the file for the answers.
"""

# ruff: noqa: E402
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

warnings.simplefilter("ignore")
ANSWERS = Path(sys.argv[2])
os.chdir(tempfile.mkdtemp())

import torch
from megatron.core import parallel_state
from megatron.core.models.bert.bert_layer_specs import bert_layer_local_spec
from megatron.core.models.bert.bert_model import BertModel
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.hybrid import hybrid_block
from megatron.core.models.hybrid.hybrid_model import HybridModel
from megatron.core.models.mamba.mamba_model import MambaModel
from megatron.core.models.T5 import t5_spec
from megatron.core.models.T5.t5_model import T5Model
from megatron.core.ssm.mlp_layer import MLPLayer
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.core.transformer.transformer_block import TransformerBlock
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules

from align_hooks.errors import RefusedRun
from align_hooks.torch_side.hooks.model import draws
from align_hooks.torch_side.model import model_facts, parameters_of

SIZES = {"num_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "num_query_groups": 1, "ffn_hidden_size": 24}
LLAMA = {"normalization": "RMSNorm", "gated_linear_unit": True, "activation_func": torch.nn.functional.silu, "add_bias_linear": False}
EXPERTS = {"num_moe_experts": 4, "moe_router_topk": 2, "moe_ffn_hidden_size": 12, "moe_layer_freq": [0, 1]}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"add_qkv_bias": True},
    "qwen3": {"qk_layernorm": True},
    "qwen3_moe": {"qk_layernorm": True, **EXPERTS, "moe_layer_freq": 1},
}
ARGUMENTS = {"use_rope_scaling": False, "rotary_seq_len_interpolation_factor": None, "noop_layers": None}
DROPOUT = {"hidden_dropout": 0.1}
DRAWING = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "moe_input_jitter_eps": None}


def config(**changes: Any) -> TransformerConfig:
    return TransformerConfig(**SIZES, **LLAMA, use_cpu_initialization=True, kv_channels=8, layernorm_epsilon=1e-6, **changes)


def gpt(kind: type = GPTModel, **changes: Any) -> Any:
    built = config(**changes)
    spec = get_gpt_layer_local_spec(built.num_moe_experts, qk_layernorm=built.qk_layernorm, normalization="RMSNorm")
    given = {"position_embedding_type": "rope", "rotary_base": 1234567, "max_sequence_length": 32}
    return kind(built, spec, vocab_size=40, share_embeddings_and_output_weights=False, **given)


class Derived(GPTModel):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*args, **kwargs)


class DerivedBlock(TransformerBlock):
    pass


class LooksAlike(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        inner = gpt()
        self.config, self.decoder, self.vocab_size = inner.config, inner.decoder, inner.vocab_size


RetroModel = type("RetroModel", (GPTModel,), {"__module__": "megatron.core.models.retro.model"})
"""Until 0.15; later versions have none."""


def numbered(*numbers: int | None) -> Any:
    model = gpt()
    for layer, number in zip(model.decoder.layers, numbers, strict=True):
        layer.layer_number = number
    return model


def with_decoder(kind: type) -> Any:
    model = gpt()
    model.decoder.__class__ = kind
    return model


class Recurrent(torch.nn.Module):
    """Stands for a MambaLayer, which needs kernels of a GPU."""

    def __init__(self, config: TransformerConfig, layer_number: int, **given: object) -> None:
        super().__init__()
        self.layer_number, self.mixer = layer_number, torch.nn.Linear(config.hidden_size, config.hidden_size)


def hybrid(kind: type, pattern: str = "*-") -> Any:
    """A model of layers that are each half of a GPTModel's, without Transformer Engine."""
    hybrid_block.TENorm = WrappedTorchNorm
    whole = get_gpt_layer_local_spec(normalization="RMSNorm").submodules
    attention, feed_forward = ("input_layernorm", "self_attention", "self_attn_bda"), ("pre_mlp_layernorm", "mlp", "mlp_bda")
    halves = {
        name: ModuleSpec(layer, submodules=TransformerLayerSubmodules(**{part: getattr(whole, part) for part in parts}))
        for name, layer, parts in (("attention_layer", TransformerLayer, attention), ("mlp_layer", MLPLayer, feed_forward))
    }
    stack = hybrid_block.HybridStackSubmodules(**halves, mamba_layer=ModuleSpec(Recurrent))
    given = {"vocab_size": 40, "max_sequence_length": 32, "hybrid_layer_pattern": pattern, "position_embedding_type": "rope"}
    built = config()
    built.num_layers = len(pattern)
    return kind(built, ModuleSpec(hybrid_block.HybridStack, submodules=stack), rotary_base=1234567, **given)


def without_pattern() -> Any:
    model = hybrid(HybridModel)
    model.hybrid_layer_pattern = None
    return model


def t5() -> Any:
    specs = t5_spec.get_t5_encoder_with_local_block_spec(2), t5_spec.get_t5_decoder_with_local_block_spec(2)
    plain = TransformerConfig(**SIZES | {"num_query_groups": 2}, use_cpu_initialization=True)
    return T5Model(plain, plain, *specs, vocab_size=40, max_sequence_length=32)


def bert() -> Any:
    return BertModel(TransformerConfig(**SIZES, use_cpu_initialization=True), 0, bert_layer_local_spec, 40, 32)


MODELS: dict[str, Callable[[], Any]] = {
    "GPTModel": gpt,
    "a class derived from it": lambda: gpt(Derived),
    "a decoder derived from TransformerBlock": lambda: with_decoder(DerivedBlock),
    "HybridModel": lambda: hybrid(HybridModel),
    "MambaModel": lambda: hybrid(MambaModel),
    "a HybridModel without a pattern": without_pattern,
    "T5Model": t5,
    "BertModel": bert,
    "RetroModel": lambda: gpt(RetroModel),
    "no GPTModel": LooksAlike,
    "another decoder": lambda: with_decoder(hybrid_block.HybridStack),
    "layers from 0": lambda: numbered(0, 1),
    "layers of one number": lambda: numbered(1, 1),
    "layers without a number": lambda: numbered(None, None),
}


def refusal(build: Callable[[], Any]) -> str:
    """Why a model is refused; empty where it is not."""
    model = build()
    try:
        parameters_of([model], 40)
    except RefusedRun as error:
        return str(error)
    return ""


def facts(model: Any, arguments: SimpleNamespace) -> dict[str, object]:
    """What ``run.json`` would say of a model, or that it could not be recorded."""
    try:
        return model_facts(model, parameters_of([model], 40), arguments)
    except (RefusedRun, AttributeError) as error:
        return {"refused": str(error)}


def raising(name: str) -> property:
    def missing(self: Any) -> Any:
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    return property(missing)


def without_each(model: Any, arguments: SimpleNamespace) -> Iterator[tuple[str, dict[str, object]]]:
    yield "", facts(model, arguments)
    for owner in (model, model.config, model.rotary_pos_emb):
        whole = type(owner)
        for name in [name for name in vars(owner) if not name.startswith("_")]:
            owner.__class__ = type(whole.__name__, (whole,), {name: raising(name)})
            yield f"{whole.__name__}.{name}", facts(model, arguments)
            owner.__class__ = whole


def names(pattern: str) -> list[str]:
    """The names of what a HybridModel holds."""
    parameters = parameters_of([hybrid(HybridModel, pattern)], 40)
    return [name for parameter in parameters for name in parameter.whole.pieces]


def without(kind: str) -> Iterator[tuple[str, dict[str, object]]]:
    """What a record would say of a model of a kind, each time without one attribute of the model, its configuration, or its embedding."""
    model, arguments = gpt(**KINDS[kind]), SimpleNamespace(**ARGUMENTS, **DRAWING)
    yield from without_each(model, arguments)
    embedding = model._modules.pop("rotary_pos_emb")
    yield "GPTModel.rotary_pos_emb", facts(model, arguments)
    model.rotary_pos_emb = embedding
    for name in ARGUMENTS:
        yield f"arguments.{name}", facts(model, SimpleNamespace(**{key: value for key, value in vars(arguments).items() if key != name}))
    embedding.inv_freq = embedding.inv_freq / torch.arange(1, 1 + len(embedding.inv_freq))
    yield "scaled frequencies", facts(model, arguments)
    model = gpt(**KINDS[kind])
    attention = model.decoder.layers[1].self_attention
    attention.linear_out = attention._modules.pop("linear_proj")
    yield "a renamed layer", facts(model, arguments)


torch.distributed.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1)
parallel_state.initialize_model_parallel()
answers = {
    "refusals": {name: refusal(build) for name, build in MODELS.items()},
    "facts": {kind: dict(without(kind)) for kind in KINDS},
    "hybrid": dict(without_each(hybrid(HybridModel, "*-*-"), SimpleNamespace(**ARGUMENTS, **DRAWING))),
    "names": {pattern: names(pattern) for pattern in ("*-*-", "*M-", "**--")},
    "of no blocks": facts(hybrid(HybridModel, "*M-"), SimpleNamespace(**ARGUMENTS, **DRAWING)),
    "draws": [draws(SimpleNamespace(**given)) for given in (DRAWING, DRAWING | DROPOUT, DROPOUT, {"hidden_dropout": 0.0})],
}
ANSWERS.write_text(json.dumps(answers))
