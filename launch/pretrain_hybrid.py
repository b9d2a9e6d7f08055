"""``pretrain_gpt.py`` with a HybridModel: ``--hybrid-layer-pattern`` in the place of ``--num-layers``, and ``--spec`` for its layers.

It holds nothing of align_hooks: Megatron-LM's own ``pretrain_hybrid.py`` does in its place.
"""

from __future__ import annotations

import pretrain_gpt as given
from megatron.training.argument_utils import hybrid_config_from_args

if __name__ == "__main__":
    given.datasets_provider.is_distributed = True
    arguments = given.parse_and_validate_args()
    container = given.pretrain_cfg_container_from_args(arguments, hybrid_config_from_args(arguments))
    given.pretrain(container, given.datasets_provider, given.ModelType.encoder_or_decoder, given.forward_step)
