"""``pretrain_gpt.py`` with a HybridModel of Megatron's local layers in the place of its GPTModel: what ``--hybrid-layer-pattern`` says, or
two layers of the script's own."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "launch"))

import pretrain_gpt as given
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.hybrid import hybrid_block
from megatron.core.ssm.mlp_layer import MLPLayer
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules
from megatron.training.argument_utils import hybrid_config_from_args


def local_stack() -> ModuleSpec:
    """A stack whose layers are attention (``*``) or feed-forward (``-``), each half of a GPTModel's layer, without Transformer Engine."""
    hybrid_block.TENorm = WrappedTorchNorm
    whole = get_gpt_layer_local_spec(normalization="RMSNorm").submodules
    attention, feed_forward = ("input_layernorm", "self_attention", "self_attn_bda"), ("pre_mlp_layernorm", "mlp", "mlp_bda")
    halves = {
        name: ModuleSpec(kind, submodules=TransformerLayerSubmodules(**{part: getattr(whole, part) for part in parts}))
        for name, kind, parts in (("attention_layer", TransformerLayer, attention), ("mlp_layer", MLPLayer, feed_forward))
    }
    return ModuleSpec(hybrid_block.HybridStack, submodules=hybrid_block.HybridStackSubmodules(**halves))


if __name__ == "__main__":
    arguments = given.parse_and_validate_args()
    config = hybrid_config_from_args(arguments)
    config.hybrid_stack_spec = local_stack()
    config.hybrid_layer_pattern = config.hybrid_layer_pattern or "*-"
    container = given.pretrain_cfg_container_from_args(arguments, config)
    given.pretrain(container, given.datasets_provider, given.ModelType.encoder_or_decoder, given.forward_step)
