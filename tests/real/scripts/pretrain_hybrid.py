"""``pretrain_gpt.py`` with a HybridModel of Megatron's local layers in the place of its GPTModel: what ``--hybrid-layer-pattern`` says, or
two layers of the script's own."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "launch"))

import pretrain_gpt as given
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.hybrid import hybrid_block
from megatron.core.ssm.mlp_layer import MLPLayer
from megatron.core.tensor_parallel.layers import ColumnParallelLinear
from megatron.core.transformer import TransformerConfig, multi_token_prediction
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules
from megatron.training.argument_utils import hybrid_config_from_args

ATTENTION, FEED_FORWARD = ("input_layernorm", "self_attention", "self_attn_bda"), ("pre_mlp_layernorm", "mlp", "mlp_bda")


def half(parts: tuple[str, ...], kind: type = TransformerLayer, **given: object) -> ModuleSpec:
    """Half of a GPTModel's layer."""
    whole = get_gpt_layer_local_spec(normalization="RMSNorm", **given).submodules
    return ModuleSpec(kind, submodules=TransformerLayerSubmodules(**{part: getattr(whole, part) for part in parts}))


def predicting() -> ModuleSpec:
    """What stands around the layers for multi-token prediction."""
    norms = dict.fromkeys(("enorm", "hnorm", "layer_norm"), WrappedTorchNorm)
    parts = multi_token_prediction.MultiTokenPredictionLayerSubmodules(**norms, eh_proj=ColumnParallelLinear, mtp_model_layer=None)
    layers = [ModuleSpec(multi_token_prediction.MultiTokenPredictionLayer, submodules=parts)]
    block = multi_token_prediction.MultiTokenPredictionBlockSubmodules(layer_specs=layers)
    return ModuleSpec(multi_token_prediction.MultiTokenPredictionBlock, submodules=block)


def local_stack(config: TransformerConfig) -> ModuleSpec:
    """A stack whose layers are each half of a GPTModel's layer, without Transformer Engine."""
    hybrid_block.TENorm = WrappedTorchNorm
    latent, experts = config.multi_latent_attention, config.num_moe_experts
    halves = {
        "mla_layer" if latent else "attention_layer": half(ATTENTION, qk_layernorm=config.qk_layernorm, multi_latent_attention=latent),
        "mlp_layer": half(FEED_FORWARD, MLPLayer),
        **({"moe_layer": half(FEED_FORWARD, num_experts=experts)} if experts else {}),
    }
    return ModuleSpec(hybrid_block.HybridStack, submodules=hybrid_block.HybridStackSubmodules(**halves, mtp_block_spec=predicting()))


if __name__ == "__main__":
    arguments = given.parse_and_validate_args()
    config = hybrid_config_from_args(arguments)
    config.hybrid_stack_spec = local_stack(config.transformer)
    config.hybrid_layer_pattern = config.hybrid_layer_pattern or "*-"
    container = given.pretrain_cfg_container_from_args(arguments, config)
    given.pretrain(container, given.datasets_provider, given.ModelType.encoder_or_decoder, given.forward_step)
