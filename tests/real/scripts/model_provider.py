"""``pretrain_gpt.py`` whose model comes from a ``model_provider``, as users' older scripts have it: Megatron then builds buffers in another
way than for a configured model."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "launch"))

from megatron.core.enums import ModelType
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.training import pretrain
from megatron.training.argument_utils import gpt_config_from_args, pretrain_cfg_container_from_args
from megatron.training.arguments import parse_and_validate_args
from pretrain_gpt import datasets_provider, forward_step


def main() -> None:
    """Train."""
    datasets_provider.is_distributed = True
    arguments = parse_and_validate_args()
    configured = gpt_config_from_args(arguments)
    container = pretrain_cfg_container_from_args(arguments, configured)
    container.model = None

    def provider(pre_process: bool = True, post_process: bool = True, vp_stage: int | None = None, **others: Any) -> Any:
        groups = others.get("pg_collection") or ProcessGroupCollection.use_mpu_process_groups()
        return configured.get_builder_cls()(configured).build_model(groups, pre_process, post_process, vp_stage)

    pretrain(container, datasets_provider, ModelType.encoder_or_decoder, forward_step, model_provider=provider)


if __name__ == "__main__":
    main()
