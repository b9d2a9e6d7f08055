"""``pretrain_gpt.py`` with one misalignment, named by the variable PLANTED, put into Megatron before it trains.

Each function is one row of :mod:`zoo.cases`. Faults of the model are put into the built model, so that weights and names stay as
they are and only the mathematics differs.
"""

from __future__ import annotations

import math
import os
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as functional
from megatron.core import tensor_parallel
from megatron.core.distributed import DistributedDataParallel
from megatron.core.models.common.embeddings import rope_utils
from megatron.core.models.gpt import GPTModel
from megatron.core.optimizer import optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.pipeline_parallel import schedules
from megatron.core.transformer import attention
from megatron.core.transformer.dot_product_attention import DotProductAttention

Change = Callable[[Any], None]


def built(change: Change) -> None:
    """Hand every model to ``change`` when it is built."""
    original = GPTModel.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        change(self)

    GPTModel.__init__ = init


def output(module: Any, change: Callable[[Any], Any]) -> None:
    """Change what a module puts out, or the first of what it puts out."""

    def hook(module: Any, inputs: Any, found: Any) -> Any:
        return (change(found[0]), *found[1:]) if isinstance(found, tuple) else change(found)

    module.register_forward_hook(hook)


def inputs(module: Any, change: Callable[..., Any]) -> None:
    """Change the positional inputs of a module."""
    module.register_forward_pre_hook(lambda module, given: change(*given))


def around(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace a function by ``wrapper(original, *args, **kwargs)``."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: wrapper(original, *args, **kwargs))


def core_attentions(change: Callable[[Any], None], layer: int | None = None) -> None:
    """Change the core attention of a layer, or of all."""
    built(
        lambda model: [change(one.self_attention.core_attention) for one in model.decoder.layers if layer in (None, one.layer_number - 1)]
    )


# ---- data, inside the model


def labels_shifted() -> None:
    """Labels one position on, inside the model: the record's batch is right."""
    around(GPTModel, "compute_language_model_loss", lambda original, self, labels, logits: original(self, labels.roll(-1, dims=1), logits))


def ids_off_by_one() -> None:
    """The embedding looks up the next id."""
    built(lambda model: inputs(model.embedding.word_embeddings, lambda ids: ((ids + 1) % 256,)))


# ---- embedding


def embedding_scaled() -> None:
    """Embeddings times the root of the hidden size, as Gemma's."""
    built(lambda model: output(model.embedding, lambda found: found * math.sqrt(found.shape[-1])))


def embedding_in_bfloat16() -> None:
    """Embeddings rounded to bfloat16: the guide's own case study."""
    built(lambda model: output(model.embedding, lambda found: found.bfloat16().to(found.dtype)))


# ---- attention


def attention_scale() -> None:
    """Scores divided by the head's size and not by its root."""
    core_attentions(lambda core: setattr(core, "softmax_scale", core.softmax_scale / math.sqrt(core.hidden_size_per_attention_head)))


def attention_scale_of_one_layer() -> None:
    """Scores of the second layer a tenth too large."""
    core_attentions(lambda core: setattr(core, "softmax_scale", core.softmax_scale * 1.1), layer=1)


def no_causal_mask() -> None:
    """Every token attends to all."""
    around(
        DotProductAttention,
        "forward",
        lambda original, self, q, k, v, mask, *a, **kw: original(self, q, k, v, torch.zeros_like(mask), *a, **kw),
    )


def mask_off_by_one() -> None:
    """Every token attends to the next one too."""

    def forward(original: Any, self: Any, query: Any, key: Any, value: Any, mask: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, query, key, value, mask & mask.roll(1, dims=-1).triu(2), *args, **kwargs)

    around(DotProductAttention, "forward", forward)


def sliding_window() -> None:
    """Tokens attend to the last 32 only."""

    def forward(original: Any, self: Any, query: Any, key: Any, value: Any, mask: Any, *args: Any, **kwargs: Any) -> Any:
        far = torch.ones(mask.shape[-2:], dtype=torch.bool).tril(-32)
        return original(self, query, key, value, mask | far, *args, **kwargs)

    around(DotProductAttention, "forward", forward)


def query_groups_tiled() -> None:
    """Heads share keys and values in turns instead of neighbour by neighbour."""

    def forward(original: Any, self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        order = torch.arange(query.shape[2]).view(2, -1).t().reshape(-1)
        back = order.argsort()
        found = original(self, query[:, :, order], *args, **kwargs)
        return found.view(*found.shape[:2], query.shape[2], -1)[:, :, back].reshape(found.shape)

    around(DotProductAttention, "forward", forward)


def head_dropped() -> None:
    """One head of the first layer puts out zeros."""

    def drop(found: Any) -> Any:
        mask = torch.ones_like(found)
        mask[..., :16] = 0
        return found * mask

    core_attentions(lambda core: output(core, drop), layer=0)


def values_of_keys() -> None:
    """Attention sums up keys instead of values in the second layer."""
    core_attentions(lambda core: core.register_forward_pre_hook(lambda core, given: (given[0], given[1], given[1], *given[3:])), layer=1)


# ---- rotary positions


def rotary(change: Callable[..., Any]) -> None:
    """Replace the function that turns queries and keys."""
    around(attention, "apply_rotary_pos_emb", change)


def rope_interleaved() -> None:
    """Neighbours are turned instead of halves."""
    rotary(lambda original, tensor, freqs, config, **kw: rope_utils._apply_rotary_pos_emb_bshd(tensor, freqs, rotary_interleaved=True))


def rope_reversed() -> None:
    """Turned the other way."""
    rotary(lambda original, tensor, freqs, config, **kw: original(tensor, -freqs, config, **kw))


def rope_missing_on_keys() -> None:
    """Keys are not turned."""
    rotary(lambda original, tensor, freqs, config, **kw: tensor if tensor.shape[2] == 2 else original(tensor, freqs, config, **kw))


def rope_in_bfloat16() -> None:
    """Angles rounded to bfloat16."""
    rotary(lambda original, tensor, freqs, config, **kw: original(tensor, freqs.bfloat16().to(freqs.dtype), config, **kw))


def rope_position_doubled() -> None:
    """Positions count in twos."""
    rotary(lambda original, tensor, freqs, config, **kw: original(tensor, freqs * 2, config, **kw))


# ---- norms


def norm_eps_outside() -> None:
    """Eps is added to the root instead of under it."""

    class Norm(torch.nn.RMSNorm):
        def forward(self, x: Any) -> Any:
            return x / (x.pow(2).mean(-1, keepdim=True).sqrt() + self.eps) * self.weight

    def change(model: Any) -> None:
        for module in model.modules():
            if isinstance(module, torch.nn.RMSNorm):
                module.__class__ = Norm

    built(change)


def norm_centred() -> None:
    """The mean is taken off, as LayerNorm does."""
    built(lambda model: [inputs(one.input_layernorm, lambda x: (x - x.mean(-1, keepdim=True),)) for one in model.decoder.layers])


def norm_final_skipped() -> None:
    """The output layer reads what was not normalised, only weighed."""
    built(lambda model: setattr(model.decoder.final_layernorm, "forward", lambda x: x * model.decoder.final_layernorm.weight))


def norm_in_bfloat16() -> None:
    """One norm computes in bfloat16."""

    def change(model: Any) -> None:
        norm = model.decoder.layers[1].pre_mlp_layernorm
        norm.forward = lambda x: functional.rms_norm(x.bfloat16(), norm.normalized_shape, norm.weight.bfloat16(), norm.eps).to(x.dtype)

    built(change)


def norm_weight_plus_one() -> None:
    """Norm weights are centred at zero on one side: one more is added."""

    def change(model: Any) -> None:
        for one in model.decoder.layers:
            norm = one.input_layernorm
            norm.forward = lambda x, norm=norm: functional.rms_norm(x, norm.normalized_shape, norm.weight + 1, norm.eps)

    built(change)


# ---- the MLP


def activation(function: Callable[[Any], Any]) -> None:
    """Compute every MLP with another activation; its configuration still says SiLU."""

    def change(model: Any) -> None:
        for one in model.decoder.layers:

            def forward(x: Any, mlp: Any = one.mlp, **kwargs: Any) -> Any:
                gate, up = mlp.linear_fc1(x)[0].chunk(2, dim=-1)
                return mlp.linear_fc2(function(gate) * up)

            one.mlp.forward = forward

    built(change)


def gelu() -> None:
    """GELU where SiLU belongs."""
    activation(functional.gelu)


def silu_steeper() -> None:
    """The sigmoid of 1.702 x, which is quick GELU."""
    activation(lambda x: x * torch.sigmoid(1.702 * x))


def gate_and_up_swapped() -> None:
    """The activation is of the wrong half, in both layers."""
    built(lambda model: [output(one.mlp.linear_fc1, lambda x: torch.cat(x.chunk(2, dim=-1)[::-1], dim=-1)) for one in model.decoder.layers])


def residual_doubled() -> None:
    """The second layer adds its MLP twice."""
    built(lambda model: output(model.decoder.layers[1].mlp, lambda found: found * 2))


def mlp_in_bfloat16() -> None:
    """One projection computes in bfloat16."""

    def change(model: Any) -> None:
        linear = model.decoder.layers[0].mlp.linear_fc2
        linear.forward = lambda x: ((x.bfloat16() @ linear.weight.bfloat16().t()).to(x.dtype), None)

    built(change)


def mlp_clamped() -> None:
    """The first layer's activations are cut at 0.5."""
    built(lambda model: inputs(model.decoder.layers[0].mlp.linear_fc2, lambda x: (x.clamp(max=0.5),)))


def layers_swapped() -> None:
    """The second layer runs before the first."""

    def change(model: Any) -> None:
        layers = model.decoder.layers
        forwards = [one.forward for one in layers]
        layers[0].forward, layers[1].forward = forwards[1], forwards[0]

    built(change)


# ---- the loss


def language_loss(change: Callable[..., Any]) -> None:
    """Replace the loss per token, ``[rows, sequence]``, by ``change(original, self, labels, logits)``."""
    around(GPTModel, "compute_language_model_loss", change)


def logits_scaled() -> None:
    """Logits a hundredth too small."""
    language_loss(lambda original, self, labels, logits: original(self, labels, logits * 0.99))


def logits_capped() -> None:
    """Logits are capped softly at 30."""
    language_loss(lambda original, self, labels, logits: original(self, labels, torch.tanh(logits / 30) * 30))


def logits_in_bfloat16() -> None:
    """Logits rounded to bfloat16."""
    language_loss(lambda original, self, labels, logits: original(self, labels, logits.bfloat16().to(logits.dtype)))


def z_loss() -> None:
    """A thousandth of the squared log of the partition function is added."""

    def change(original: Any, self: Any, labels: Any, logits: Any) -> Any:
        return original(self, labels, logits) + 1e-3 * logits.logsumexp(-1).square().transpose(0, 1)

    language_loss(change)


def labels_smoothed() -> None:
    """A hundredth of the weight goes to all labels alike."""

    def change(original: Any, self: Any, labels: Any, logits: Any) -> Any:
        smooth = -functional.log_softmax(logits, -1).mean(-1).transpose(0, 1)
        return 0.99 * original(self, labels, logits) + 0.01 * smooth

    language_loss(change)


def loss_over_fewer_tokens() -> None:
    """The sum of losses is divided by the number of tokens less one."""

    def calc(original: Any, model: Any, output: Any, loss_function: Any, *args: Any, **kwargs: Any) -> Any:
        def fewer(*given: Any, **named: Any) -> Any:
            loss, tokens, report = loss_function(*given, **named)
            return loss, tokens - 1, report

        return original(model, output, fewer, *args, **kwargs)

    around(schedules, "forward_step_calc_loss", calc)


def mask_ignored() -> None:
    """Every token counts, whatever the mask says."""

    def calc(original: Any, model: Any, output: Any, loss_function: Any, *args: Any, **kwargs: Any) -> Any:
        getattr(loss_function, "__wrapped__", loss_function).args[0].fill_(1.0)
        return original(model, output, loss_function, *args, **kwargs)

    around(schedules, "forward_step_calc_loss", calc)


# ---- gradients


def gradients(change: Callable[[str, Any], None]) -> None:
    """Hand every parameter's main gradient to ``change`` when all micro-batches are in it."""

    def finish(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for name, parameter in self.module.named_parameters():
            change(name, parameter.main_grad)

    around(DistributedDataParallel, "finish_grad_sync", finish)


def micro_batches_summed() -> None:
    """Micro-batches are summed where they should be averaged."""
    gradients(lambda name, gradient: gradient.mul_(2))


def norm_gradients_doubled() -> None:
    """Gradients of the norms are added up once too often."""
    gradients(lambda name, gradient: gradient.mul_(2) if "layernorm" in name else None)


def gradient_lost() -> None:
    """One projection gets no gradient."""
    gradients(lambda name, gradient: gradient.zero_() if name.endswith("layers.1.self_attention.linear_proj.weight") else None)


def gradient_in_bfloat16() -> None:
    """The output layer's gradient is reduced in bfloat16."""
    gradients(lambda name, gradient: gradient.copy_(gradient.bfloat16()) if name.endswith("output_layer.weight") else None)


def keys_detached() -> None:
    """Nothing flows back through the keys."""

    def forward(original: Any, self: Any, query: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, query, key.detach(), *args, **kwargs)

    around(DotProductAttention, "forward", forward)


def last_micro_batch_lost() -> None:
    """The second micro-batch's loss is not differentiated."""
    seen = []

    def backward(original: Any, input_tensor: Any, output_tensor: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(1)
        if len(seen) % 2 == 0:
            loss = output_tensor[0] if isinstance(output_tensor, list) else output_tensor
            loss.data.zero_()
            output_tensor = [loss * 0] if isinstance(output_tensor, list) else loss * 0
        return original(input_tensor, output_tensor, *args, **kwargs)

    around(schedules, "backward_step", backward)


# ---- clipping and the optimizer


def never_clipped() -> None:
    """The global norm is taken and nothing is clipped by it."""
    around(optimizer, "clip_grad_by_total_norm_fp32", lambda original, *args, **kwargs: None)


def clipped_by_value() -> None:
    """Each element is cut at 0.01 instead."""

    def clip(original: Any, parameters: Any, *args: Any, **kwargs: Any) -> None:
        for one in parameters if isinstance(parameters, list) else [parameters]:
            one.grad.clamp_(-0.01, 0.01)

    around(optimizer, "clip_grad_by_total_norm_fp32", clip)


def norm_of_one_tensor() -> None:
    """The global norm leaves out the embedding."""
    around(optimizer, "get_grad_norm_fp32", lambda original, grads, *args, **kwargs: original(grads[1:], *args, **kwargs))


def adam(change: Callable[[Any], None]) -> None:
    """Hand torch's optimizer to ``change`` before each of its steps."""

    def step(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        change(self)
        return original(self, *args, **kwargs)

    for kind in (torch.optim.Adam, torch.optim.AdamW):
        if "step" in vars(kind):
            around(kind, "step", step)


def bias_correction_off() -> None:
    """Adam's moments count as if many updates had been made."""

    def change(adam: Any) -> None:
        for group in adam.param_groups:
            for one in group["params"]:
                if adam.state[one]:
                    adam.state[one]["step"].fill_(1e6)
                else:
                    adam.state[one].update(step=torch.tensor(1e6), exp_avg=torch.zeros_like(one), exp_avg_sq=torch.zeros_like(one))

    adam(change)


def decay_in_gradient() -> None:
    """Weight decay goes into the gradient, as in Adam with L2."""

    def change(adam: Any) -> None:
        for group in adam.param_groups:
            for one in group["params"]:
                one.grad.add_(one.detach(), alpha=group.get("planted", group["weight_decay"]))
            group["planted"], group["weight_decay"] = group.get("planted", group["weight_decay"]), 0.0

    adam(change)


def tensor_frozen() -> None:
    """One tensor is never updated."""

    def step(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        one = next(one for group in self.param_groups for one in group["params"] if one.shape == (64, 128))
        held = one.detach().clone()
        found = original(self, *args, **kwargs)
        one.data.copy_(held)
        return found

    for kind in (torch.optim.Adam, torch.optim.AdamW):
        if "step" in vars(kind):
            around(kind, "step", step)


def rate_doubled_for_embedding() -> None:
    """The embedding learns twice as fast, unknown to the schedule."""

    def step(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        one = next(one for group in self.param_groups for one in group["params"] if one.shape == (256, 64))
        held = one.detach().clone()
        found = original(self, *args, **kwargs)
        one.data.add_(one.data - held)
        return found

    for kind in (torch.optim.Adam, torch.optim.AdamW):
        if "step" in vars(kind):
            around(kind, "step", step)


def schedule_late() -> None:
    """The schedule is a step behind: the first update has the rate of step 0 twice."""
    around(OptimizerParamScheduler, "step", lambda original, self, increment: original(self, increment if self.num_steps else 0))


# ---- honest


def sums_in_another_order() -> None:
    """Matrix products are summed up in two halves, as tensor parallelism does."""

    def linear(x: Any, weight: Any) -> Any:
        half = weight.shape[1] // 2
        return x[..., :half] @ weight[:, :half].t() + x[..., half:] @ weight[:, half:].t()

    def change(model: Any) -> None:
        for one in model.decoder.layers:
            for module in (one.self_attention.linear_proj, one.mlp.linear_fc2):
                module.forward = lambda x, module=module: (linear(x, module.weight), None)

    built(change)


def fused_attention() -> None:
    """Attention by torch's fused kernel."""

    def forward(original: Any, self: Any, query: Any, key: Any, value: Any, mask: Any, *args: Any, **kwargs: Any) -> Any:
        ratio = query.shape[2] // key.shape[2]
        q, k, v = (one.permute(1, 2, 0, 3) for one in (query, key.repeat_interleave(ratio, 2), value.repeat_interleave(ratio, 2)))
        found = functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.softmax_scale)
        return found.permute(2, 0, 1, 3).reshape(query.shape[0], query.shape[1], -1)

    around(DotProductAttention, "forward", forward)


def rope_shifted() -> None:
    """All positions one on: rotary positions are relative, so it is the same model."""
    rotary(lambda original, tensor, freqs, config, **kw: original(tensor, freqs + freqs[1:2], config, **kw))


def recomputed() -> None:
    """Layers are computed again in the backward pass."""

    def change(model: Any) -> None:
        for one in model.decoder.layers:
            original = one.mlp.forward
            one.mlp.forward = lambda x, *a, original=original, **kw: (tensor_parallel.checkpoint(lambda y: original(y)[0], False, x), None)

    built(change)


def norm_by_hand() -> None:
    """RMSNorm written out, with the reciprocal root."""

    def change(model: Any) -> None:
        for module in model.modules():
            if isinstance(module, torch.nn.RMSNorm):
                module.forward = lambda x, norm=module: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.eps) * norm.weight

    built(change)


def loss_in_float64() -> None:
    """The loss is computed in float64."""
    language_loss(
        lambda original, self, labels, logits: functional.cross_entropy(logits.double().permute(1, 2, 0), labels, reduction="none").to(
            logits.dtype
        )
    )


def norm_in_float64() -> None:
    """The global norm is taken exactly."""

    def exact(original: Any, grads: Any, *args: Any, **kwargs: Any) -> float:
        return math.sqrt(sum(float(one.double().square().sum()) for one in grads))

    around(optimizer, "get_grad_norm_fp32", exact)


if __name__ == "__main__":
    globals()[os.environ["PLANTED"]]()
    runpy.run_path(str(Path(__file__).parents[2] / "launch" / "pretrain_gpt.py"), run_name="__main__")
