"""A training loop of one's own on megatron.core, without megatron.training: the model of ``launch/llama.args``.

``OWN_LOOP`` has variations, a comma between them. ``OWN_STATE`` names a file of model and optimizer from which it starts, or to which it is
written where it is not there. ``WITNESS`` names a file for losses and final weights.
"""

import os
import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig

STEPS, ROWS, LENGTH, VOCABULARY = 3, 2, 128, 256
VARIATIONS = set(filter(None, os.environ.get("OWN_LOOP", "").split(",")))
BF16 = "bf16" in VARIATIONS
PIPELINE, TENSOR = (2 if name in VARIATIONS else 1 for name in ("pp2", "tp2"))
losses: list[float] = []


class OwnForward(GPTModel):
    """A model with a forward pass of its own, which calls none of Megatron's."""

    def forward(self, input_ids, position_ids, attention_mask, labels=None):
        hidden = self.decoder(
            hidden_states=self.embedding(input_ids, position_ids),
            attention_mask=attention_mask,
            rotary_pos_emb=self.rotary_pos_emb(input_ids.shape[1]),
        )
        logits, _ = self.output_layer(hidden)
        return self.compute_language_model_loss(labels, logits)


def model() -> GPTModel:
    config = TransformerConfig(
        num_layers=2,
        hidden_size=64,
        ffn_hidden_size=128,
        num_attention_heads=4,
        num_query_groups=2,
        normalization="RMSNorm",
        layernorm_epsilon=1e-5,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        attention_dropout=0.1 if "dropout" in VARIATIONS else 0.0,
        hidden_dropout=0.1 if "dropout" in VARIATIONS else 0.0,
        init_method_std=0.1,
        use_cpu_initialization=True,
        masked_softmax_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        apply_rope_fusion=False,
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
        bf16=BF16,
        params_dtype=torch.bfloat16 if BF16 else torch.float32,
        pipeline_dtype=torch.float32,
        tensor_model_parallel_size=TENSOR,
        pipeline_model_parallel_size=PIPELINE,
        finalize_model_grads_func=finalize_model_grads,
    )
    kind = OwnForward if "own forward" in VARIATIONS else GPTModel
    gpt = kind(
        config,
        get_gpt_layer_local_spec(normalization="RMSNorm"),
        VOCABULARY,
        LENGTH,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        position_embedding_type="rope",
        rotary_base=10000,
        share_embeddings_and_output_weights=False,
    )
    return gpt.bfloat16() if BF16 else gpt


def batches(seed: int):
    generator = torch.Generator().manual_seed(seed)
    positions = torch.arange(LENGTH).expand(ROWS, -1)
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1).expand(ROWS, 1, -1, -1).contiguous()
    while True:
        text = torch.randint(VOCABULARY, (ROWS, LENGTH + 1), generator=generator)
        weights = (torch.rand(ROWS, LENGTH, generator=generator) > 0.2).float()
        yield {"tokens": text[:, :-1], "labels": text[:, 1:], "loss_mask": weights, "attention_mask": mask, "position_ids": positions}


def loss_of(loss_mask: torch.Tensor, output: torch.Tensor):
    loss, tokens = (output.float() * loss_mask).sum(), loss_mask.sum()
    losses.append(float(loss))
    return loss, tokens.int(), {"lm loss": loss.detach()}


def forward_step(data, chunk: GPTModel):
    batch = next(data)
    if "object" in VARIATIONS:
        batch = batch.to("cuda")
    given = (batch[name] for name in ("tokens", "position_ids", "attention_mask"))
    return chunk(*given, labels=batch["labels"]), partial(loss_of, batch["loss_mask"])


def built(wrapper: DistributedDataParallelConfig, options: OptimizerConfig):
    gpt = model()
    chunk = DistributedDataParallel(gpt.config, wrapper, gpt)
    return chunk, get_megatron_optimizer(options, [chunk])


def main() -> None:
    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel(TENSOR, PIPELINE)
    torch.manual_seed(1)
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    options = OptimizerConfig(lr=1e-3, min_lr=1e-3, weight_decay=0.1, clip_grad=1.0, adam_beta2=0.95, bf16=BF16)
    options.params_dtype = torch.bfloat16 if BF16 else torch.float32
    wrapper = DistributedDataParallelConfig(grad_reduce_in_fp32=True)
    chunk, optimizer = built(wrapper, options)
    other = built(wrapper, options) if "two models" in VARIATIONS else None
    schedule = OptimizerParamScheduler(optimizer, 0.0, 1e-3, 1e-3, 0, 1000, "constant", 0.1, 0.1, 1, "constant")
    kept = Path(os.environ["OWN_STATE"]) if "OWN_STATE" in os.environ else None
    if kept is not None and kept.exists():
        state = torch.load(kept, weights_only=False)
        chunk.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    run, data = get_forward_backward_func(), batches(100 + parallel_state.get_data_parallel_rank())
    for _ in range(int(os.environ.get("OWN_STEPS", STEPS))):
        for trained, its_optimizer in filter(None, ((chunk, optimizer), other)):
            trained.zero_grad_buffer()
            its_optimizer.zero_grad()
            for _ in range(2 if "two calls" in VARIATIONS else 1):
                run(
                    forward_step_func=forward_step,
                    data_iterator=data,
                    model=[trained],
                    num_microbatches=2 // parallel_state.get_data_parallel_world_size(),
                    seq_length=LENGTH,
                    micro_batch_size=ROWS,
                    forward_only=False,
                )
            if "left" not in VARIATIONS or len(losses) > 3:  # the first step without an update
                its_optimizer.step()
        schedule.step(increment=2 * ROWS)
        with torch.no_grad():  # an evaluation, which is no step
            run(
                forward_step_func=forward_step,
                data_iterator=batches(7),
                model=[chunk],
                num_microbatches=1,
                seq_length=LENGTH,
                micro_batch_size=ROWS,
                forward_only=True,
            )
    if kept is not None and not kept.exists():
        torch.save({"model": chunk.state_dict(), "optimizer": optimizer.state_dict()}, kept)
    if "WITNESS" in os.environ:
        weights = {name: parameter.detach().float().numpy() for name, parameter in chunk.named_parameters()}
        np.savez(os.environ["WITNESS"].format(rank=torch.distributed.get_rank()), losses=np.array(losses), **weights)
    assert "megatron.training" not in sys.modules


main()
