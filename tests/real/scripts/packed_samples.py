"""``pretrain_gpt.py`` on lines as documents: packed with --dataloader-inter-document-masking or --sft, kept apart by masks with --reset-….

PACKED_FAULT plants a fault: crossing (attention is given one document a row), unseen (attention crosses documents behind the model's
arguments), shifted (boundaries come a token late), positions (they go on over boundaries). With WITNESS, losses and final parameters go
there to the bit.
"""

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "launch"))

import numpy as np
import pretrain_gpt as script
import torch
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.utils import flatten_batch_for_packed_sequences

LINE_END = 10
FAULT = os.environ.get("PACKED_FAULT", "")
PACKED = ("cu_seqlens", "max_seqlen")
witnessed: dict[str, Any] = {"losses": []}


def get_batch(data_iterator: Any) -> dict[str, Any]:
    """One micro-batch of packed samples, its rows behind each other, as Megatron-LM's own script makes it."""
    args = script.get_args()
    keys = (*script.KEYS, *PACKED, "cu_seqlens_padded")
    batch: dict[str, Any] = dict.fromkeys(keys)
    if data_iterator is not None:
        batch |= {key: value for key, value in next(data_iterator).items() if key in keys}
    batch = script.get_batch_on_this_tp_rank(
        batch,
        has_cu_seqlens=True,
        is_hybrid_cp=False,
        create_attention_mask_in_dataloader=False,
        broadcast_src_rank=script.mpu.get_tensor_model_parallel_src_rank(),
        broadcast_group=script.mpu.get_tensor_model_parallel_group(),
        cp_size=1,
        tp_rank=script.mpu.get_tensor_model_parallel_rank(),
        micro_batch_size=args.micro_batch_size,
        seq_length=args.seq_length,
        mtp_on_this_rank=False,
    )
    return flatten_batch_for_packed_sequences(batch)


def whole_rows(ends: torch.Tensor) -> torch.Tensor:
    """One document a row."""
    return torch.arange(0, int(ends[-1]) + 1, script.get_args().seq_length, dtype=torch.int32)


def packed(ends: torch.Tensor, longest: int) -> PackedSeqParams:
    """What attention is given."""
    args = script.get_args()
    if FAULT == "crossing":
        ends = whole_rows(ends)
    elif FAULT == "shifted":
        ends = torch.where(ends % args.seq_length == 0, ends, ends + 1).unique()
    longest = max(longest, int((ends[1:] - ends[:-1]).max()))
    return PackedSeqParams(qkv_format="thd", cu_seqlens_q=ends, cu_seqlens_kv=ends, max_seqlen_q=longest, max_seqlen_kv=longest)


def forward_step(data_iterator: Any, model: Any) -> Any:
    """One micro-batch through the model, packed where the flag says so."""
    args = script.get_args()
    if not (args.sft or args.dataloader_inter_document_masking):
        return script.forward_step(data_iterator, model)
    batch = get_batch(data_iterator)
    params = packed(batch["cu_seqlens"][0], int(batch["max_seqlen"].item()))
    positions = batch["position_ids"]
    if FAULT == "positions":
        positions = torch.arange(positions.numel())[None] % args.seq_length
    output = model(batch["tokens"], positions, None, labels=batch["labels"], loss_mask=batch["loss_mask"], packed_seq_params=params)
    witnessed["losses"].append(output.detach().numpy())
    witnessed["model"] = model
    return output, partial(script.loss_function, batch["loss_mask"])


if __name__ == "__main__":
    arguments = script.parse_and_validate_args()
    make, tokenizer = script.GPTDatasetConfig, script.build_tokenizer
    script.GPTDatasetConfig = partial(make, inter_document_masking=arguments.dataloader_inter_document_masking)

    def build_tokenizer(args: Any) -> Any:
        """Megatron's tokenizer, by which a line's end is a document's."""
        made = tokenizer(args)
        type(made).eod = property(lambda self: LINE_END)
        return made

    script.build_tokenizer = build_tokenizer
    if FAULT == "unseen":
        attend = DotProductAttention.forward

        def crossing(self: Any, *given: Any, packed_seq_params: PackedSeqParams, **kwargs: Any) -> torch.Tensor:
            """Attention over the ends of documents."""
            ends = whole_rows(packed_seq_params.cu_seqlens_q)
            params = replace(packed_seq_params, cu_seqlens_q=ends, cu_seqlens_kv=ends)
            return attend(self, *given, packed_seq_params=params, **kwargs)

        DotProductAttention.forward = crossing
    script.datasets_provider.is_distributed = True
    container = script.pretrain_cfg_container_from_args(arguments, script.gpt_config_from_args(arguments))
    script.pretrain(container, script.datasets_provider, script.ModelType.encoder_or_decoder, forward_step)
    if "WITNESS" in os.environ:
        parameters = {name: tensor.detach().numpy() for name, tensor in witnessed["model"].named_parameters()}
        np.savez(os.environ["WITNESS"], **parameters, losses=np.stack(witnessed["losses"]))
