"""Models as Megatron-LM builds them with Transformer Engine's modules, and with its own: tensors with shapes, and points.

The second argument is the file for the answers. ENGINE names a folder with Transformer Engine's Python. Its compiled extension
needs a GPU: in its place are names without anything behind them, so that modules are built here, and not run.
"""

# ruff: noqa: E402
import enum
import importlib.machinery
import json
import os
import sys
import tempfile
import types
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

warnings.simplefilter("ignore")
ANSWERS, ENGINE = Path(sys.argv[2]), os.environ["ENGINE"]
os.chdir(tempfile.mkdtemp())
os.environ["NVTE_PROJECT_BUILDING"] = "1"  # then it does not look for its shared libraries

import torch

TYPES = "kByte kInt16 kInt32 kInt64 kFloat32 kFloat16 kBFloat16 kFloat8E4M3 kFloat8E5M2 kFloat8E8M0 kFloat4E2M1"


class Extension(types.ModuleType):
    """Stands for ``transformer_engine_torch``: every function is there, none can be called, and enumerations have any member."""

    DType = enum.IntEnum("DType", TYPES, start=0)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Members(name, (), {}) if name[0].isupper() else lambda *args, **kwargs: missing(name)


class Members(type):
    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


def missing(name: str) -> None:
    raise NotImplementedError(f"transformer_engine_torch.{name}")


engine = types.ModuleType("transformer_engine")
engine.__path__ = [f"{ENGINE}/transformer_engine"]
engine.__spec__ = importlib.machinery.ModuleSpec("transformer_engine", None, is_package=True)
engine.__version__ = os.environ["ENGINE_VERSION"]
sys.modules.update({"transformer_engine": engine, "transformer_engine_torch": Extension("transformer_engine_torch")})
engine.common = importlib.import_module("transformer_engine.common")
engine.common.load_framework_extension = lambda framework: None
engine.pytorch = importlib.import_module("transformer_engine.pytorch")
importlib.import_module("transformer_engine.pytorch.cpp_extensions").get_cudnn_version = lambda: 92000

from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_layer_with_transformer_engine_spec
from megatron.core.transformer import MLATransformerConfig, TransformerConfig

from align_hooks.torch_side import probes
from align_hooks.torch_side.model import parameters_of

SIZES = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "ffn_hidden_size": 96, "layernorm_epsilon": 1e-6}
LLAMA = {"normalization": "RMSNorm", "gated_linear_unit": True, "activation_func": torch.nn.functional.silu, "add_bias_linear": False}
EXPERTS = {"num_moe_experts": 4, "moe_router_topk": 2, "moe_ffn_hidden_size": 32}
LATENT = {
    "multi_latent_attention": True,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_head_dim": 16,
    "qk_pos_emb_head_dim": 8,
    "v_head_dim": 16,
}
GROUPED = {"num_query_groups": 2, "kv_channels": 16}
KINDS: dict[str, dict[str, Any]] = {
    "llama": GROUPED,
    "qwen2": {**GROUPED, "add_qkv_bias": True},
    "qwen3": {**GROUPED, "qk_layernorm": True},
    "mixtral": {**GROUPED, **EXPERTS, "moe_grouped_gemm": True},
    "qwen3_moe": {**GROUPED, **EXPERTS, "qk_layernorm": True},
    "deepseek_v3": {
        **LATENT,
        **EXPERTS,
        "qk_layernorm": True,
        "moe_router_enable_expert_bias": True,
        "moe_router_score_function": "sigmoid",
    },
}
AXES = ("tp", "pp", "dp", "cp", "ep", "etp", "edp")
PLACE = dict.fromkeys(AXES, 0) | {f"{axis}_size": 1 for axis in AXES}


def built(changes: dict[str, Any], *, with_engine: bool) -> Any:
    """A model with the engine's modules, or with Megatron-LM's own."""
    kind = MLATransformerConfig if "multi_latent_attention" in changes else TransformerConfig
    own = {} if with_engine else {"moe_grouped_gemm": False}
    config = kind(**SIZES, **LLAMA, use_cpu_initialization=True, params_dtype=torch.float32, **changes | own)
    spec = get_gpt_layer_with_transformer_engine_spec if with_engine else get_gpt_layer_local_spec
    latent = {"multi_latent_attention": True} if "multi_latent_attention" in changes else {}
    layer = spec(config.num_moe_experts, config.moe_grouped_gemm, qk_layernorm=config.qk_layernorm, **latent)
    given = {"position_embedding_type": "rope", "rotary_base": 10000, "max_sequence_length": 32}
    return GPTModel(config, layer, vocab_size=40, share_embeddings_and_output_weights=False, **given)


def seen(model: Any) -> dict[str, Any]:
    """The family, the canonical tensors with their shapes, and the names of points."""
    probes.get_args = lambda: SimpleNamespace(mtp_num_layers=0)
    parameters = parameters_of([model], 40)
    tensors = {piece.name: list(piece.shape) for parameter in parameters for piece in parameter.whole.parts}
    names = {id(parameter.model): parameter.whole for parameter in parameters}
    points = [value.name for probe in probes.of_chunk(model, names, parameters, PLACE) for value in probe.values]
    return {"family": parameters.family.name, "misfits": list(map(str, parameters.misfits)), "tensors": tensors, "points": sorted(points)}


torch.distributed.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1)
parallel_state.initialize_model_parallel()
answers = {}
for kind, changes in KINDS.items():
    answers[kind] = {name: seen(built(changes, with_engine=name == "engine")) for name in ("engine", "own")}
    bases = {base.__module__ for module in built(changes, with_engine=True).modules() for base in type(module).__mro__}
    answers[kind]["is of the engine"] = any("transformer_engine." in name for name in bases)
ANSWERS.write_text(json.dumps(answers))
