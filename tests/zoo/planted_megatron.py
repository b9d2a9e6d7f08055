"""``pretrain_gpt.py`` with one misalignment, named by the variable PLANTED, or several in a comma list, put into Megatron before it trains.

Each plant is one row of :mod:`zoo.cases`, which says in words what it changes. Faults of the model are put into the built model, so that
weights and names stay as they are and only the mathematics differs.
"""

import math
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as functional
from megatron.core import tensor_parallel
from megatron.core.distributed import DistributedDataParallel
from megatron.core.models.common.embeddings import rope_utils
from megatron.core.models.gpt import GPTModel
from megatron.core.optimizer import emerging_optimizers, optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.pipeline_parallel import schedules
from megatron.core.transformer import attention
from megatron.core.transformer.dot_product_attention import DotProductAttention

Change = Callable[..., Any]
PLANTS: dict[str, Callable[[], None]] = {}
"""What puts each misalignment in, by its name."""


def plant(seam: Callable[..., None], *place: Any) -> Callable[[Change], Change]:
    """Register a function as the plant of its name: it is handed to ``seam``, behind ``place``."""

    def register(change: Change) -> Change:
        PLANTS[change.__name__] = partial(seam, *place, change)
        return change

    return register


def plants(seam: Callable[..., None], *place: Any, changes: Mapping[str, Change]) -> None:
    """The same for changes that are one expression each, by name."""
    PLANTS.update({name: partial(seam, *place, change) for name, change in changes.items()})


# ---- seams


def built(change: Change) -> None:
    """Hand every model to ``change`` when it is built."""
    original = GPTModel.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        change(self)

    GPTModel.__init__ = init


def output(module: Any, change: Change) -> None:
    """Change what a module puts out, or the first of what it puts out."""

    def hook(module: Any, inputs: Any, outputs: Any) -> Any:
        return (change(outputs[0]), *outputs[1:]) if isinstance(outputs, tuple) else change(outputs)

    module.register_forward_hook(hook)


def inputs(module: Any, change: Change) -> None:
    """Change the positional inputs of a module."""
    module.register_forward_pre_hook(lambda module, given: change(*given))


def around(owner: Any, name: str, wrapper: Change) -> None:
    """Replace a function by ``wrapper(original, *args, **kwargs)``."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: wrapper(original, *args, **kwargs))


def core_attentions(layer: int | None, change: Change) -> None:
    """Change the core attention of a layer, or of all."""
    built(
        lambda model: [
            change(each.self_attention.core_attention) for each in model.decoder.layers if layer in (None, each.layer_number - 1)
        ]
    )


def rotary(change: Change) -> None:
    """Replace the function that turns queries and keys."""
    around(attention, "apply_rotary_pos_emb", change)


def activation(function: Change) -> None:
    """Compute every MLP with another activation; its configuration still says SiLU."""

    def change(model: Any) -> None:
        for layer in model.decoder.layers:

            def forward(x: Any, mlp: Any = layer.mlp, **kwargs: Any) -> Any:
                gate, up = mlp.linear_fc1(x)[0].chunk(2, dim=-1)
                return mlp.linear_fc2(function(gate) * up)

            layer.mlp.forward = forward

    built(change)


def language_loss(change: Change) -> None:
    """Replace the loss per token, ``[rows, sequence]``, by ``change(original, self, labels, logits)``."""
    around(GPTModel, "compute_language_model_loss", change)


def gradients(change: Change) -> None:
    """Hand every parameter's name and main gradient to ``change`` when all micro-batches are in it."""

    def finish(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for name, parameter in self.module.named_parameters():
            change(name, parameter.main_grad)

    around(DistributedDataParallel, "finish_grad_sync", finish)


def stepped(change: Change) -> None:
    """Replace the step of torch's optimizer by ``change(original, self, *args, **kwargs)``."""
    for kind in (torch.optim.Adam, torch.optim.AdamW):
        if "step" in vars(kind):
            around(kind, "step", change)


def adam(change: Change) -> None:
    """Hand torch's optimizer to ``change`` before each of its steps."""

    def step(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        change(self)
        return original(self, *args, **kwargs)

    stepped(step)


# ---- changes of one expression

plants(
    built,
    changes={
        "ids_off_by_one": lambda model: inputs(model.embedding.word_embeddings, lambda ids: ((ids + 1) % 256,)),
        # as Gemma's
        "embedding_scaled": lambda model: output(model.embedding, lambda x: x * math.sqrt(x.shape[-1])),
        # the guide's own case study
        "embedding_in_bfloat16": lambda model: output(model.embedding, lambda x: x.bfloat16().to(x.dtype)),
        # as LayerNorm does
        "norm_centred": lambda model: [
            inputs(layer.input_layernorm, lambda x: (x - x.mean(-1, keepdim=True),)) for layer in model.decoder.layers
        ],
        # the output layer reads what was only weighed
        "norm_final_skipped": lambda model: setattr(
            model.decoder.final_layernorm, "forward", lambda x: x * model.decoder.final_layernorm.weight
        ),
        "gate_and_up_swapped": lambda model: [
            output(layer.mlp.linear_fc1, lambda x: torch.cat(x.chunk(2, dim=-1)[::-1], dim=-1)) for layer in model.decoder.layers
        ],
        "residual_doubled": lambda model: output(model.decoder.layers[1].mlp, lambda x: x * 2),
        "mlp_clamped": lambda model: inputs(model.decoder.layers[0].mlp.linear_fc2, lambda x: (x.clamp(max=0.5),)),
    },
)
plants(
    core_attentions,
    1,
    changes={
        "attention_scale_of_one_layer": lambda core: setattr(core, "softmax_scale", core.softmax_scale * 1.1),
        "values_of_keys": lambda core: core.register_forward_pre_hook(lambda core, given: (given[0], given[1], given[1], *given[3:])),
    },
)
plants(
    rotary,
    changes={
        "rope_interleaved": lambda original, x, freqs, *args, **kw: rope_utils._apply_rotary_pos_emb_bshd(
            x, freqs, rotary_interleaved=True
        ),
        "rope_reversed": lambda original, x, freqs, *args, **kw: original(x, -freqs, *args, **kw),
        "rope_missing_on_keys": lambda original, x, freqs, *args, **kw: x if x.shape[2] == 2 else original(x, freqs, *args, **kw),
        "rope_in_bfloat16": lambda original, x, freqs, *args, **kw: original(x, freqs.bfloat16().to(freqs.dtype), *args, **kw),
        "rope_position_doubled": lambda original, x, freqs, *args, **kw: original(x, freqs * 2, *args, **kw),
        # rotary positions are relative, so it is the same model
        "rope_shifted": lambda original, x, freqs, *args, **kw: original(x, freqs + freqs[1:2], *args, **kw),
    },
)
plants(activation, changes={"gelu": functional.gelu, "silu_steeper": lambda x: x * torch.sigmoid(1.702 * x)})
plants(
    language_loss,
    changes={
        # the record's batch is right
        "labels_shifted": lambda original, self, labels, logits: original(self, labels.roll(-1, dims=1), logits),
        "logits_scaled": lambda original, self, labels, logits: original(self, labels, logits * 0.99),
        "logits_capped": lambda original, self, labels, logits: original(self, labels, torch.tanh(logits / 30) * 30),
        "logits_in_bfloat16": lambda original, self, labels, logits: original(self, labels, logits.bfloat16().to(logits.dtype)),
        "loss_in_float64": lambda original, self, labels, logits: functional.cross_entropy(
            logits.double().permute(1, 2, 0), labels, reduction="none"
        ).to(logits.dtype),
        # a thousandth of the squared log of the partition function is added
        "z_loss": lambda original, self, labels, logits: (
            original(self, labels, logits) + 1e-3 * logits.logsumexp(-1).square().transpose(0, 1)
        ),
    },
)
plants(
    gradients,
    changes={
        "micro_batches_summed": lambda name, gradient: gradient.mul_(2),
        "norm_gradients_doubled": lambda name, gradient: gradient.mul_(2) if "layernorm" in name else None,
        "gradient_lost": lambda name, gradient: gradient.zero_() if name.endswith("layers.1.self_attention.linear_proj.weight") else None,
        "gradient_in_bfloat16": lambda name, gradient: (
            gradient.copy_(gradient.bfloat16()) if name.endswith("output_layer.weight") else None
        ),
    },
)
plants(
    around,
    optimizer,
    "get_grad_norm_fp32",
    changes={
        "norm_of_one_tensor": lambda original, grads, *args, **kwargs: original(grads[1:], *args, **kwargs),
        "norm_in_float64": lambda original, grads, *args, **kwargs: math.sqrt(sum(float(each.double().square().sum()) for each in grads)),
        # that of a rank's own gradients
        "norm_of_each_rank": lambda original, grads, *args, **kwargs: (
            torch.stack([each.pow(2).sum() for each in grads]).sum().sqrt().item()
        ),
    },
)


# ---- attention

attends = plant(around, DotProductAttention, "forward")


@attends
def no_causal_mask(original: Any, self: Any, query: Any, key: Any, value: Any, mask: Any, *args: Any, **kwargs: Any) -> Any:
    return original(self, query, key, value, torch.zeros_like(mask), *args, **kwargs)


@attends
def mask_off_by_one(original: Any, self: Any, query: Any, key: Any, value: Any, mask: Any, *args: Any, **kwargs: Any) -> Any:
    return original(self, query, key, value, mask & mask.roll(1, dims=-1).triu(2), *args, **kwargs)


@attends
def sliding_window(original: Any, self: Any, query: Any, key: Any, value: Any, mask: Any, *args: Any, **kwargs: Any) -> Any:
    far = torch.ones(mask.shape[-2:], dtype=torch.bool).tril(-32)
    return original(self, query, key, value, mask | far, *args, **kwargs)


@attends
def query_groups_tiled(original: Any, self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
    """Heads share keys and values in turns instead of neighbour by neighbour."""
    order = torch.arange(query.shape[2]).view(2, -1).t().reshape(-1)
    context = original(self, query[:, :, order], *args, **kwargs)
    return context.view(*context.shape[:2], query.shape[2], -1)[:, :, order.argsort()].reshape(context.shape)


@attends
def keys_detached(original: Any, self: Any, query: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
    return original(self, query, key.detach(), *args, **kwargs)


@attends
def fused_attention(original: Any, self: Any, query: Any, key: Any, value: Any, mask: Any, *args: Any, **kwargs: Any) -> Any:
    ratio = query.shape[2] // key.shape[2]
    q, k, v = (x.permute(1, 2, 0, 3) for x in (query, key.repeat_interleave(ratio, 2), value.repeat_interleave(ratio, 2)))
    context = functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.softmax_scale)
    return context.permute(2, 0, 1, 3).reshape(query.shape[0], query.shape[1], -1)


@plant(core_attentions, None)
def attention_scale(core: Any) -> None:
    core.softmax_scale /= math.sqrt(core.hidden_size_per_attention_head)


@plant(core_attentions, 0)
def head_dropped(core: Any) -> None:
    def drop(context: Any) -> Any:
        mask = torch.ones_like(context)
        mask[..., :16] = 0
        return context * mask

    output(core, drop)


# ---- norms


@plant(built)
def norm_eps_outside(model: Any) -> None:
    """Eps is added to the root instead of under it."""

    class Norm(torch.nn.RMSNorm):
        def forward(self, x: Any) -> Any:
            return x / (x.pow(2).mean(-1, keepdim=True).sqrt() + self.eps) * self.weight

    for module in model.modules():
        if isinstance(module, torch.nn.RMSNorm):
            module.__class__ = Norm


@plant(built)
def norm_in_bfloat16(model: Any) -> None:
    norm = model.decoder.layers[1].pre_mlp_layernorm
    norm.forward = lambda x: functional.rms_norm(x.bfloat16(), norm.normalized_shape, norm.weight.bfloat16(), norm.eps).to(x.dtype)


@plant(built)
def norm_weight_plus_one(model: Any) -> None:
    """One more is added to the weights of norms."""
    for layer in model.decoder.layers:
        norm = layer.input_layernorm
        norm.forward = lambda x, norm=norm: functional.rms_norm(x, norm.normalized_shape, norm.weight + 1, norm.eps)


@plant(built)
def norm_by_hand(model: Any) -> None:
    """With the reciprocal root."""
    for module in model.modules():
        if isinstance(module, torch.nn.RMSNorm):
            module.forward = lambda x, norm=module: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.eps) * norm.weight


# ---- layers


@plant(built)
def mlp_in_bfloat16(model: Any) -> None:
    linear = model.decoder.layers[0].mlp.linear_fc2
    linear.forward = lambda x: ((x.bfloat16() @ linear.weight.bfloat16().t()).to(x.dtype), None)


@plant(built)
def layers_swapped(model: Any) -> None:
    first, second = model.decoder.layers
    first.forward, second.forward = second.forward, first.forward


@plant(built)
def sums_in_another_order(model: Any) -> None:
    """Matrix products are summed up in two halves, as tensor parallelism does."""

    def linear(x: Any, weight: Any) -> Any:
        half = weight.shape[1] // 2
        return x[..., :half] @ weight[:, :half].t() + x[..., half:] @ weight[:, half:].t()

    for layer in model.decoder.layers:
        for module in (layer.self_attention.linear_proj, layer.mlp.linear_fc2):
            module.forward = lambda x, module=module: (linear(x, module.weight), None)


@plant(built)
def recomputed(model: Any) -> None:
    for layer in model.decoder.layers:
        original = layer.mlp.forward
        layer.mlp.forward = lambda x, *a, original=original, **kw: (tensor_parallel.checkpoint(lambda y: original(y)[0], False, x), None)


# ---- the loss


@plant(language_loss)
def labels_smoothed(original: Any, self: Any, labels: Any, logits: Any) -> Any:
    """A hundredth of the weight goes to all labels alike."""
    smooth = -functional.log_softmax(logits, -1).mean(-1).transpose(0, 1)
    return 0.99 * original(self, labels, logits) + 0.01 * smooth


@plant(core_attentions, 1)
def scale_of_first_step(core: Any) -> None:
    """Attention of layer 1 is exact in the first step, and a tenth too large from the second on."""
    scale, calls = core.softmax_scale, count()

    def rescale(module: Any, given: Any) -> None:
        module.softmax_scale = scale * (1.1 if next(calls) >= 2 else 1.0)  # two micro-batches a step

    core.register_forward_pre_hook(rescale)


@plant(around, schedules, "forward_step_calc_loss")
def loss_over_fewer_tokens(original: Any, model: Any, output: Any, loss_function: Any, *args: Any, **kwargs: Any) -> Any:
    def fewer(*given: Any, **named: Any) -> Any:
        loss, tokens, report = loss_function(*given, **named)
        return loss, tokens - 1, report

    return original(model, output, fewer, *args, **kwargs)


@plant(around, schedules, "forward_step_calc_loss")
def loss_over_more_tokens(original: Any, model: Any, output: Any, loss_function: Any, *args: Any, **kwargs: Any) -> Any:
    def more(*given: Any, **named: Any) -> Any:
        loss, tokens, report = loss_function(*given, **named)
        return loss, tokens + 1, report

    return original(model, output, more, *args, **kwargs)


@plant(around, schedules, "forward_step_calc_loss")
def mask_ignored(original: Any, model: Any, output: Any, loss_function: Any, *args: Any, **kwargs: Any) -> Any:
    getattr(loss_function, "__wrapped__", loss_function).args[0].fill_(1.0)
    return original(model, output, loss_function, *args, **kwargs)


# ---- the backward pass, clipping and the optimizer


micro_batches = count(1)


@plant(around, schedules, "backward_step")
def last_micro_batch_lost(original: Any, input_tensor: Any, output_tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """The second micro-batch's loss is not differentiated."""
    if next(micro_batches) % 2 == 0:
        loss = output_tensor[0] if isinstance(output_tensor, list) else output_tensor
        loss.data.zero_()
        output_tensor = [loss * 0] if isinstance(output_tensor, list) else loss * 0
    return original(input_tensor, output_tensor, *args, **kwargs)


@plant(around, optimizer, "clip_grad_by_total_norm_fp32")
def never_clipped(original: Any, *args: Any, **kwargs: Any) -> None:
    """The global norm is taken and nothing is clipped by it."""


@plant(around, optimizer, "clip_grad_by_total_norm_fp32")
def clipped_by_value(original: Any, parameters: Any, *args: Any, **kwargs: Any) -> None:
    """Each element is cut at 0.01 instead."""
    for parameter in parameters if isinstance(parameters, list) else [parameters]:
        parameter.grad.clamp_(-0.01, 0.01)


@plant(around, DistributedDataParallel, "finish_grad_sync")
def clipped_once_more(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """Gradients are scaled to a global norm of 1 before the optimizer takes their norm and clips by it."""
    original(self, *args, **kwargs)
    gradients = [parameter.main_grad for parameter in self.module.parameters()]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients]))
    for gradient in gradients:
        gradient.div_(norm)


@plant(around, DistributedDataParallel, "finish_grad_sync")
def gradient_not_reduced(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """Every data-parallel rank keeps its own gradient of layer 1's MLP."""
    kept = {name: each.main_grad.clone() for name, each in self.module.named_parameters() if "layers.1.mlp" in name}
    original(self, *args, **kwargs)
    for name, parameter in self.module.named_parameters():
        if name in kept:
            parameter.main_grad.copy_(kept[name])


@plant(around, optimizer.MixedPrecisionOptimizer, "reload_model_params")
def main_parameters_stale(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """Weights that are loaded without the optimizer reach the model alone."""


def moved_by(formula: Change) -> Change:
    """A step of torch's optimizer whose update is ``formula(m, v, group)`` of the moments with their bias corrected."""

    def step(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        before = [(group, each, each.detach().clone()) for group in self.param_groups for each in group["params"]]
        result = original(self, *args, **kwargs)
        for group, parameter, weights in before:
            state, (first, second) = self.state[parameter], group["betas"]
            count = float(state["step"])
            moments = state["exp_avg"] / (1 - first**count), state["exp_avg_sq"] / (1 - second**count)
            kept = weights * (1 - group["lr"] * group["weight_decay"])
            parameter.data.copy_(kept - group["lr"] * formula(*moments, group))
        return result

    return step


plants(stepped, changes={"eps_in_root": moved_by(lambda m, v, group: m / (v + group["eps"]).sqrt())})


@plant(adam)
def bias_correction_off(adam: Any) -> None:
    """Adam's moments count as if many updates had been made."""
    for group in adam.param_groups:
        for parameter in group["params"]:
            if adam.state[parameter]:
                adam.state[parameter]["step"].fill_(1e6)
            else:
                moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                adam.state[parameter].update(step=torch.tensor(1e6), **moments)


@plant(adam)
def decay_in_gradient(adam: Any) -> None:
    """As in Adam with L2."""
    for group in adam.param_groups:
        group.setdefault("planted", group["weight_decay"])
        group["weight_decay"] = 0.0
        for parameter in group["params"]:
            parameter.grad.add_(parameter.detach(), alpha=group["planted"])


def updated_apart(shape: tuple[int, int], change: Change) -> Change:
    """A step that hands the first tensor of a shape to ``change`` after its update, with what it was before."""

    def step(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        tensor = next(each for group in self.param_groups for each in group["params"] if each.shape == shape)
        before = tensor.detach().clone()
        result = original(self, *args, **kwargs)
        change(tensor.data, before)
        return result

    return step


plants(
    stepped,
    changes={
        "tensor_frozen": updated_apart((64, 128), lambda tensor, before: tensor.copy_(before)),
        # unknown to the schedule
        "rate_doubled_for_embedding": updated_apart((256, 64), lambda tensor, before: tensor.add_(tensor - before)),
    },
)


@plant(around, emerging_optimizers.TensorParallelMuon, "step")
def muon_momentum(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """The groups say 0.9 before and after each step."""
    recorded = [group["momentum"] for group in self.param_groups]
    for group in self.param_groups:
        group["momentum"] = 0.95
    result = original(self, *args, **kwargs)
    for group, momentum in zip(self.param_groups, recorded, strict=True):
        group["momentum"] = momentum
    return result


@plant(lambda change: around(sys.modules["emerging_optimizers.orthogonalized_optimizers.muon_utils"], "newton_schulz_step", change))
def muon_coefficients(original: Any, matrix: Any, *coefficients: float, **kwargs: Any) -> Any:
    """Those of Keller Jordan's first set, in every step."""
    return original(matrix, 3.4445, -4.7750, 2.0315, **kwargs)


@plant(around, emerging_optimizers, "get_muon_scale_factor")
def muon_scale(original: Any, rows: int, columns: int, mode: str) -> float:
    """As Keller Jordan scales, for as Moonlight does."""
    return float(original(rows, columns, "shape_scaling"))


@plant(built)
def muon_embeddings(model: Any) -> None:
    """Their marks are lost, by which Megatron leaves them to Adam."""
    for weight in (model.embedding.word_embeddings.weight, model.output_layer.weight):
        weight.is_embedding_or_output_parameter = False


@plant(around, OptimizerParamScheduler, "step")
def schedule_late(original: Any, self: Any, increment: int) -> Any:
    """The schedule is a step behind: the first update has the rate of step 0 twice."""
    return original(self, increment if self.num_steps else 0)


if __name__ == "__main__":
    for planted in os.environ["PLANTED"].split(","):
        PLANTS[planted]()
    runpy.run_path(str(Path(__file__).parents[2] / "launch" / "pretrain_gpt.py"), run_name="__main__")
