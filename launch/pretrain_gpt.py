"""A small GPT pre-training script on ``megatron.training`` from the wheel, which ships no script of its own.

It is what the demo and the tests train with, and holds nothing of align_hooks: any Megatron-LM script does in its place.
"""

from __future__ import annotations

from functools import partial

import torch
from megatron.core import mpu
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig, MockGPTDataset
from megatron.core.enums import ModelType
from megatron.core.tokenizers.utils.build_tokenizer import build_tokenizer
from megatron.core.utils import get_batch_on_this_cp_rank, get_batch_on_this_tp_rank
from megatron.training import get_args, pretrain
from megatron.training.argument_utils import gpt_config_from_args, pretrain_cfg_container_from_args
from megatron.training.arguments import parse_and_validate_args
from megatron.training.utils import get_blend_and_blend_per_split

KEYS = ("tokens", "labels", "loss_mask", "attention_mask", "position_ids")


def loss_function(loss_mask, output):
    """Sum of the masked losses, number of tokens that count, and both for the log."""
    mask = loss_mask.view(-1).float()
    loss = torch.sum(output.view(-1).float() * mask)
    tokens = mask.sum().clone().detach().to(torch.int)
    return loss, tokens, {"lm loss": torch.cat([loss.clone().detach().view(1), tokens.view(1)])}


def get_batch(data_iterator):
    """One micro-batch: the first tensor-parallel rank reads it and hands it on, a context-parallel rank keeps its positions."""
    args = get_args()
    batch = {}
    if data_iterator is not None:
        batch = {key: value.cuda(non_blocking=True) for key, value in next(data_iterator).items() if key in KEYS}
    batch = get_batch_on_this_tp_rank(
        batch,
        has_cu_seqlens=False,
        is_hybrid_cp=False,
        create_attention_mask_in_dataloader=args.create_attention_mask_in_dataloader,
        broadcast_src_rank=mpu.get_tensor_model_parallel_src_rank(),
        broadcast_group=mpu.get_tensor_model_parallel_group(),
        cp_size=args.context_parallel_size,
        tp_rank=mpu.get_tensor_model_parallel_rank(),
        micro_batch_size=args.micro_batch_size,
        seq_length=args.seq_length,
        mtp_on_this_rank=False,
    )
    return get_batch_on_this_cp_rank(batch, is_hybrid_cp=False, cp_group=mpu.get_context_parallel_group())


def forward_step(data_iterator, model):
    """One micro-batch through the model."""
    batch = get_batch(data_iterator)
    output = model(
        batch["tokens"], batch["position_ids"], batch.get("attention_mask"), labels=batch["labels"], loss_mask=batch["loss_mask"]
    )
    return output, partial(loss_function, batch["loss_mask"])


def datasets_provider(samples, vp_stage=None):
    """Train, validation and test data sets."""
    args = get_args()
    blend, blend_per_split = get_blend_and_blend_per_split(args)
    config = GPTDatasetConfig(
        random_seed=args.seed,
        sequence_length=args.seq_length,
        blend=blend,
        blend_per_split=blend_per_split,
        split=args.split,
        path_to_cache=args.data_cache_path,
        tokenizer=build_tokenizer(args),
        reset_position_ids=args.reset_position_ids,
        reset_attention_mask=args.reset_attention_mask,
        eod_mask_loss=args.eod_mask_loss,
        create_attention_mask=args.create_attention_mask_in_dataloader,
    )
    kind = MockGPTDataset if args.mock_data else GPTDataset
    return BlendedMegatronDatasetBuilder(kind, samples, lambda: mpu.get_tensor_model_parallel_rank() == 0, config).build()


if __name__ == "__main__":
    datasets_provider.is_distributed = True
    arguments = parse_and_validate_args()
    container = pretrain_cfg_container_from_args(arguments, gpt_config_from_args(arguments))
    pretrain(container, datasets_provider, ModelType.encoder_or_decoder, forward_step)
